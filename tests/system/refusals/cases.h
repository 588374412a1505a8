// cases.h - every wrong use of every operation, as rows: a case is one of each on a queue pair of one type
// follows: IBA volume 1, 9.7.4.1, 9.9.2, 9.9.3, 10.10.2, 11.4.1, table 97; ibv_post_send(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CASES_H
#define VB_TEST_CASES_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { RC = 1 << 0, UC = 1 << 1, UD = 1 << 2, XRC = 1 << 3 };
enum { CONNECTED = RC | UC, ANY = RC | UC | UD, RELIABLE = RC | XRC, EVERY = ANY | XRC };

/* X(name, text, opcode, types that have it). bind-1 is ibv_bind_mw, bind-2 a request of ibv_post_send, and the headers of
 * rdma-core 44 have no name for a flush. */
#define OPERATIONS(X)                                                          \
	X(SEND, "send", IBV_WR_SEND, EVERY)                                    \
	X(SEND_IMM, "send-imm", IBV_WR_SEND_WITH_IMM, EVERY)                   \
	X(SEND_INV, "send-inv", IBV_WR_SEND_WITH_INV, RELIABLE)                \
	X(WRITE, "write", IBV_WR_RDMA_WRITE, CONNECTED | XRC)                  \
	X(WRITE_IMM, "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM, CONNECTED | XRC) \
	X(READ, "read", IBV_WR_RDMA_READ, RELIABLE)                            \
	X(SWAP, "compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, RELIABLE)           \
	X(ADD, "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, RELIABLE)             \
	X(INV, "local-inv", IBV_WR_LOCAL_INV, CONNECTED | XRC)                 \
	X(BIND, "bind-2", IBV_WR_BIND_MW, CONNECTED | XRC)                     \
	X(BIND_1, "bind-1", IBV_WR_BIND_MW, CONNECTED | XRC)                   \
	X(STORE, "atomic-write", IBV_WR_ATOMIC_WRITE, RELIABLE)                \
	X(FLUSH, "flush", (enum ibv_wr_opcode)14, RELIABLE)

enum operation {
#define X(name, text, opcode, types) OP_##name,
	OPERATIONS(X)
#undef X
	        OPERATION_COUNT
};

#define OP(name) (1u << OP_##name)
#define SENDS (OP(SEND) | OP(SEND_IMM) | OP(SEND_INV))
#define WRITES (OP(WRITE) | OP(WRITE_IMM))
#define ATOMICS (OP(SWAP) | OP(ADD))
#define ANSWERED (OP(READ) | ATOMICS) /* their response is stored in the requester's memory */
#define BINDS (OP(BIND) | OP(BIND_1))
#define PLACES (OP(STORE) | OP(FLUSH))
#define REMOTE (WRITES | ANSWERED | PLACES) /* they name the responder's memory */
#define RECEIVES (SENDS | OP(WRITE_IMM))    /* they take a receive */
#define GATHERS (SENDS | WRITES | ANSWERED | OP(STORE))
#define FEW (OP(SEND) | OP(WRITE) | OP(READ) | OP(ADD)) /* one of each kind */
#define WINDOWED (OP(WRITE) | OP(READ) | OP(ADD))
#define EACH ((1u << OPERATION_COUNT) - 1)

/* X(name, text, types, operations, also with a large message) */
#define WRONGS(X)                                                                               \
	X(NOTHING, "nothing", EVERY, EACH, true)                                                \
	/* the request */                                                                       \
	X(OPCODE, "unknown-opcode", ANY, OP(SEND), false)                                       \
	X(SGES, "too-many-sges", ANY, GATHERS, false)                                           \
	X(INLINE, "inline-too-long", ANY, GATHERS, false)                                       \
	X(HUGE, "over-2-gib", ANY, SENDS | WRITES | OP(READ), false)                            \
	X(FOUR, "atomic-of-4-bytes", RC, ATOMICS | OP(STORE), false)                            \
	X(NO_SGE, "atomic-without-sge", RC, ATOMICS | OP(STORE), false)                         \
	X(MTU, "datagram-over-mtu", UD, OP(SEND) | OP(SEND_IMM), false)                         \
	X(NO_AH, "no-address-handle", UD, OP(SEND), false)                                      \
	/* the requester's memory */                                                            \
	X(LKEY, "bad-lkey", EVERY, GATHERS, true)                                               \
	X(LKEY_PD, "lkey-of-other-pd", ANY, GATHERS, false)                                     \
	X(LKEY_GONE, "deregistered-lkey", ANY, GATHERS, false)                                  \
	X(LOCAL_END, "local-past-end", ANY, GATHERS, true)                                      \
	X(LOCAL_START, "local-before-start", ANY, GATHERS, false)                               \
	X(LOCAL_WRAP, "local-wraps", ANY, GATHERS, false)                                       \
	X(LOCAL_RIGHT, "no-local-write", RC, ANSWERED, true)                                    \
	/* the requester's state and limits */                                                  \
	X(IN_RESET, "post-in-reset", ANY, FEW, false)                                           \
	X(IN_INIT, "post-in-init", ANY, FEW, false)                                             \
	X(IN_RTR, "post-in-rtr", ANY, FEW, false)                                               \
	X(IN_SQD, "post-in-sqd", ANY, FEW, false)                                               \
	X(SQD_EVENT, "post-in-sqd-with-event", ANY, OP(SEND), false)                            \
	X(IN_ERR, "post-in-err", EVERY, EACH, false)                                            \
	X(CQ_FULL, "post-in-err-cq-overrun", ANY, OP(SEND), false)                              \
	X(ORD, "max-rd-atomic-0", RC, ANSWERED | PLACES, true)                                  \
	/* the responder's memory and limits */                                                 \
	X(RKEY, "bad-rkey", CONNECTED | XRC, REMOTE, true)                                      \
	X(RKEY_PD, "rkey-of-other-pd", CONNECTED | XRC, REMOTE, false)                          \
	X(RKEY_GONE, "deregistered-rkey", CONNECTED, REMOTE, true)                              \
	X(REGION_RIGHT, "region-without-right", CONNECTED, REMOTE, true)                        \
	X(QP_RIGHT, "qp-without-right", CONNECTED | XRC, REMOTE, true)                          \
	X(EMPTY, "empty-bad-rkey", CONNECTED, WRITES | OP(READ), false)                         \
	X(EMPTY_RIGHT, "empty-qp-without-right", CONNECTED, WRITES | OP(READ), false)           \
	X(PAST_END, "past-end", CONNECTED | XRC, REMOTE, true)                                  \
	X(BEFORE_START, "before-start", CONNECTED, REMOTE, true)                                \
	X(WRAPS, "address-wraps", CONNECTED, REMOTE, true)                                      \
	X(MISALIGNED, "misaligned", RC, ATOMICS | OP(STORE), false)                             \
	X(IRD, "max-dest-rd-atomic-0", RC, ANSWERED | PLACES, true)                             \
	X(INV_KEY, "bad-key", CONNECTED, OP(SEND_INV) | OP(INV), false)                         \
	X(INV_PD, "key-of-other-pd", CONNECTED, OP(SEND_INV) | OP(INV), false)                  \
	/* the responder's receives */                                                          \
	X(RECV_SHORT, "receive-too-short", EVERY, SENDS, true)                                  \
	X(RECV_LKEY, "receive-bad-lkey", EVERY, SENDS, true)                                    \
	X(RECV_PD, "receive-lkey-of-other-pd", EVERY, SENDS, false)                             \
	X(RECV_GONE, "receive-deregistered-lkey", ANY, SENDS, false)                            \
	X(RECV_RIGHT, "receive-no-local-write", ANY, SENDS, true)                               \
	X(RECV_END, "receive-past-end", ANY, SENDS, false)                                      \
	X(RNR_0, "no-receive-rnr-retry-0", EVERY, RECEIVES, false)                              \
	X(RNR_7, "no-receive-rnr-retry-7", RC, RECEIVES, false)                                 \
	/* the responder's receives, in a shared queue */                                       \
	X(SRQ, "srq", ANY, OP(SEND) | OP(WRITE_IMM), false)                                     \
	X(SRQ_LIMIT, "srq-limit", ANY, OP(SEND) | OP(WRITE_IMM), false)                         \
	X(SRQ_SHORT, "srq-receive-too-short", ANY, OP(SEND), false)                             \
	X(SRQ_LKEY, "srq-receive-bad-lkey", ANY, OP(SEND), false)                               \
	X(SRQ_RIGHT, "srq-receive-no-local-write", ANY, OP(SEND), false)                        \
	X(SRQ_END, "srq-receive-past-end", ANY, OP(SEND), false)                                \
	X(SRQ_PD, "srq-of-other-pd", ANY, OP(SEND), false)                                      \
	X(SRQ_BOTH_PD, "srq-and-receive-of-other-pd", ANY, OP(SEND), false)                     \
	X(SRQ_RNR_0, "srq-empty-rnr-retry-0", ANY, OP(SEND) | OP(WRITE_IMM), false)             \
	X(SRQ_ERR, "srq-peer-in-err", ANY, OP(SEND), false)                                     \
	X(SRQ_NUMBER, "no-such-srq", XRC, OP(SEND) | OP(WRITE_IMM), false)                      \
	X(SRQ_BASIC, "srq-not-of-xrc", XRC, OP(SEND), false)                                    \
	X(SRQ_DOMAIN, "srq-of-other-domain", XRC, OP(SEND) | OP(WRITE_IMM), false)              \
	/* the responder's windows */                                                           \
	X(WINDOW_1, "window-1", RC, WINDOWED, false)                                            \
	X(WINDOW_2, "window-2", CONNECTED, WINDOWED | OP(SEND_INV) | OP(INV), false)            \
	X(WINDOW_RIGHT, "window-without-right", CONNECTED, WINDOWED, false)                     \
	X(WINDOW_END, "window-past-end", RC, WINDOWED, false)                                   \
	X(WINDOW_START, "window-before-start", RC, WINDOWED, false)                             \
	X(WINDOW_REBOUND, "window-1-bound-again", RC, WINDOWED, false)                          \
	X(WINDOW_UNBOUND, "window-1-unbound", RC, WINDOWED, false)                              \
	X(WINDOW_INVALID, "window-2-invalidated", RC, WINDOWED | OP(SEND_INV) | OP(INV), false) \
	X(WINDOW_FREED, "window-2-freed", RC, WINDOWED | OP(SEND_INV) | OP(INV), false)         \
	X(WINDOW_1_KEY, "key-of-window-1", RC, OP(SEND_INV) | OP(INV), false)                   \
	X(WINDOW_QP, "window-2-of-other-qp", RC, WINDOWED | OP(SEND_INV) | OP(INV), false)      \
	X(WINDOW_PD, "window-1-of-other-pd", RC, WINDOWED, false)                               \
	/* a bind */                                                                            \
	X(BIND_TYPE, "window-of-other-type", RC, BINDS, false)                                  \
	X(BIND_TWICE, "window-already-bound", RC, BINDS, false)                                 \
	X(BIND_NONE, "bind-of-no-bytes", RC, BINDS, false)                                      \
	X(BIND_ACCESS, "bind-of-unknown-right", RC, BINDS, false)                               \
	X(BIND_WINDOW_PD, "bind-window-of-other-pd", RC, BINDS, false)                          \
	X(BIND_PD, "bind-region-of-other-pd", RC, BINDS, false)                                 \
	X(BIND_RIGHT, "bind-region-without-mw-bind", RC, BINDS, false)                          \
	X(BIND_WRITE, "bind-region-without-local-write", RC, BINDS, false)                      \
	X(BIND_END, "bind-past-end", RC, BINDS, false)                                          \
	X(BIND_START, "bind-before-start", RC, BINDS, false)                                    \
	X(BIND_WRAP, "bind-wraps", RC, BINDS, false)                                            \
	/* the peer */                                                                          \
	X(PEER_RTR, "peer-in-rtr", ANY, FEW, false)                                             \
	X(PEER_RESET, "peer-in-reset", ANY, FEW, false)                                         \
	X(PEER_ERR, "peer-in-err", EVERY, FEW, false)                                           \
	X(PEER_DESTROYED, "peer-qp-destroyed", EVERY, FEW, false)                               \
	X(PEER_EXIT, "peer-program-ended", ANY, FEW, false)                                     \
	X(QKEY, "wrong-qkey", UD, OP(SEND) | OP(SEND_IMM), false)                               \
	X(QPN, "wrong-qp-number", UD, OP(SEND), false)

enum wrong {
#define X(name, ...) WRONG_##name,
	WRONGS(X)
#undef X
	        WRONG_COUNT
};

/* What both ends are told. */
struct plan {
	uint8_t type; /* RC, UC, UD or XRC */
	uint8_t operation, wrong;
	bool large;
};

#define SMALL_BYTES 64u
#define LARGE_BYTES 20000u /* several packets, and longer than what always travels in a ring */
#define GRH_BYTES 40u

bool plan_is_atomic(const struct plan *p);
bool plan_is_window(const struct plan *p);    /* the request names a window's key */
bool plan_has_other_qp(const struct plan *p); /* and another queue pair has bound it */
bool plan_has_srq(const struct plan *p);
uint32_t plan_unit(const struct plan *p); /* what the address of remote memory is a multiple of */
/* The wrong use of a receive, the same in a shared queue. */
enum wrong plan_receive(const struct plan *p);
bool plan_is_answered(const struct plan *p);
uint32_t plan_length(const struct plan *p);
enum ibv_wr_opcode plan_opcode(const struct plan *p);
bool plan_type_has_it(const struct plan *p);
void plan_name(const struct plan *p, char *text, size_t n);
/* Steps through all cases. Returns false after the last. p: all zero before the first. */
bool plan_next(struct plan *p);

#endif
