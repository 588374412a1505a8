// cases.h - every wrong use of every operation, as rows: a case is one of each on a queue pair of one type
// follows: IBA volume 1, 9.7.4.1, 9.9.2, 9.9.3, 10.10.2, 11.4.1, table 97; ibv_post_send(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CASES_H
#define VB_TEST_CASES_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { RC = 1 << 0, UC = 1 << 1, UD = 1 << 2, CONNECTED = RC | UC, ANY = RC | UC | UD };

/* X(name, text, opcode, types that have it) */
#define OPERATIONS(X)                                                    \
	X(SEND, "send", IBV_WR_SEND, ANY)                                \
	X(SEND_IMM, "send-imm", IBV_WR_SEND_WITH_IMM, ANY)               \
	X(SEND_INV, "send-inv", IBV_WR_SEND_WITH_INV, RC)                \
	X(WRITE, "write", IBV_WR_RDMA_WRITE, CONNECTED)                  \
	X(WRITE_IMM, "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM, CONNECTED) \
	X(READ, "read", IBV_WR_RDMA_READ, RC)                            \
	X(SWAP, "compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, RC)           \
	X(ADD, "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, RC)             \
	X(INV, "local-inv", IBV_WR_LOCAL_INV, CONNECTED)

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
#define ANSWERED (OP(READ) | ATOMICS)    /* their response is stored in the requester's memory */
#define REMOTE (WRITES | ANSWERED)       /* they name the responder's memory */
#define RECEIVES (SENDS | OP(WRITE_IMM)) /* they take a receive */
#define GATHERS (SENDS | WRITES | ANSWERED)
#define FEW (OP(SEND) | OP(WRITE) | OP(READ) | OP(ADD)) /* one of each kind */
#define EACH ((1u << OPERATION_COUNT) - 1)

/* X(name, text, types, operations, also with a large message) */
#define WRONGS(X)                                                                     \
	X(NOTHING, "nothing", ANY, EACH, true)                                        \
	/* the request */                                                             \
	X(OPCODE, "unknown-opcode", ANY, OP(SEND), false)                             \
	X(SGES, "too-many-sges", ANY, GATHERS, false)                                 \
	X(INLINE, "inline-too-long", ANY, GATHERS, false)                             \
	X(HUGE, "over-2-gib", ANY, SENDS | WRITES | OP(READ), false)                  \
	X(FOUR, "atomic-of-4-bytes", RC, ATOMICS, false)                              \
	X(NO_SGE, "atomic-without-sge", RC, ATOMICS, false)                           \
	X(MTU, "datagram-over-mtu", UD, OP(SEND) | OP(SEND_IMM), false)               \
	X(NO_AH, "no-address-handle", UD, OP(SEND), false)                            \
	/* the requester's memory */                                                  \
	X(LKEY, "bad-lkey", ANY, GATHERS, true)                                       \
	X(LKEY_PD, "lkey-of-other-pd", ANY, GATHERS, false)                           \
	X(LKEY_GONE, "deregistered-lkey", ANY, GATHERS, false)                        \
	X(LOCAL_END, "local-past-end", ANY, GATHERS, true)                            \
	X(LOCAL_START, "local-before-start", ANY, GATHERS, false)                     \
	X(LOCAL_WRAP, "local-wraps", ANY, GATHERS, false)                             \
	X(LOCAL_RIGHT, "no-local-write", RC, ANSWERED, true)                          \
	/* the requester's state and limits */                                        \
	X(IN_RESET, "post-in-reset", ANY, FEW, false)                                 \
	X(IN_INIT, "post-in-init", ANY, FEW, false)                                   \
	X(IN_RTR, "post-in-rtr", ANY, FEW, false)                                     \
	X(IN_SQD, "post-in-sqd", ANY, FEW, false)                                     \
	X(IN_ERR, "post-in-err", ANY, EACH, false)                                    \
	X(ORD, "max-rd-atomic-0", RC, ANSWERED, true)                                 \
	/* the responder's memory and limits */                                       \
	X(RKEY, "bad-rkey", CONNECTED, REMOTE, true)                                  \
	X(RKEY_PD, "rkey-of-other-pd", CONNECTED, REMOTE, false)                      \
	X(RKEY_GONE, "deregistered-rkey", CONNECTED, REMOTE, true)                    \
	X(REGION_RIGHT, "region-without-right", CONNECTED, REMOTE, true)              \
	X(QP_RIGHT, "qp-without-right", CONNECTED, REMOTE, true)                      \
	X(EMPTY, "empty-bad-rkey", CONNECTED, WRITES | OP(READ), false)               \
	X(EMPTY_RIGHT, "empty-qp-without-right", CONNECTED, WRITES | OP(READ), false) \
	X(PAST_END, "past-end", CONNECTED, REMOTE, true)                              \
	X(BEFORE_START, "before-start", CONNECTED, REMOTE, true)                      \
	X(WRAPS, "address-wraps", CONNECTED, REMOTE, true)                            \
	X(MISALIGNED, "misaligned", RC, ATOMICS, false)                               \
	X(IRD, "max-dest-rd-atomic-0", RC, ANSWERED, true)                            \
	X(INV_KEY, "bad-key", CONNECTED, OP(SEND_INV) | OP(INV), false)               \
	X(INV_PD, "key-of-other-pd", CONNECTED, OP(SEND_INV) | OP(INV), false)        \
	/* the responder's receives */                                                \
	X(RECV_SHORT, "receive-too-short", ANY, SENDS, true)                          \
	X(RECV_LKEY, "receive-bad-lkey", ANY, SENDS, true)                            \
	X(RECV_PD, "receive-lkey-of-other-pd", ANY, SENDS, false)                     \
	X(RECV_GONE, "receive-deregistered-lkey", ANY, SENDS, false)                  \
	X(RECV_RIGHT, "receive-no-local-write", ANY, SENDS, true)                     \
	X(RECV_END, "receive-past-end", ANY, SENDS, false)                            \
	X(RNR_0, "no-receive-rnr-retry-0", ANY, RECEIVES, false)                      \
	X(RNR_7, "no-receive-rnr-retry-7", RC, RECEIVES, false)                       \
	/* the peer */                                                                \
	X(PEER_RESET, "peer-in-reset", ANY, FEW, false)                               \
	X(PEER_ERR, "peer-in-err", ANY, FEW, false)                                   \
	X(PEER_DESTROYED, "peer-qp-destroyed", ANY, FEW, false)                       \
	X(PEER_EXIT, "peer-program-ended", ANY, FEW, false)                           \
	X(QKEY, "wrong-qkey", UD, OP(SEND) | OP(SEND_IMM), false)                     \
	X(QPN, "wrong-qp-number", UD, OP(SEND), false)

enum wrong {
#define X(name, ...) WRONG_##name,
	WRONGS(X)
#undef X
	        WRONG_COUNT
};

/* What both ends are told. */
struct plan {
	uint8_t type; /* RC, UC or UD */
	uint8_t operation, wrong;
	bool large;
};

#define SMALL_BYTES 64u
#define LARGE_BYTES 20000u /* several packets, and longer than what always travels in a ring */
#define GRH_BYTES 40u

bool plan_is_atomic(const struct plan *p);
bool plan_is_answered(const struct plan *p);
uint32_t plan_length(const struct plan *p);
enum ibv_wr_opcode plan_opcode(const struct plan *p);
bool plan_type_has_it(const struct plan *p);
void plan_name(const struct plan *p, char *text, size_t n);
/* Steps through all cases. Returns false after the last. p: all zero before the first. */
bool plan_next(struct plan *p);

#endif
