// ends.h - one end of a connection: its device, memory and queue pair, connected by a socket or by rdma_cm
// follows: ibv_* man pages; rdma_cm(7)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_ENDS_H
#define VB_TEST_ENDS_H

#include <rdma/rdma_cma.h>

#include "cases.h"

#define AREA_BYTES 65536u
#define MARGIN_BYTES 4096u /* mapped and not registered, on both sides */
#define SECOND_RECEIVE 32768u
#define DEPTH 16u
#define SGES 4u
#define INLINE_BYTES 32u
#define READS 4u
#define QKEY 0x11111111u
#define FLUSH_OPERATION (1u << 11) /* IBV_QP_EX_WITH_FLUSH */
#define FLUSH_RIGHT (1u << 8)      /* IBV_ACCESS_FLUSH_GLOBAL; the headers of rdma-core 44 do not have it */
#define REMOTE_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct device {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other_pd;
	struct ibv_xrcd *xrcd, *other_xrcd; /* NULL: the adapter has no XRC, or no case has needed it yet */
	union ibv_gid gid;
	uint32_t mtu; /* bytes of the longest datagram */
	int gid_index;
	uint16_t lid;        /* of its port; 0: it has none, and GIDs are the addresses */
	const char *address; /* for rdma_cm; NULL: connected by a socket */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener; /* bound to the address */
};
void device_open(struct device *d, const char *name, const char *address);

struct area {
	uint8_t *map;
	struct ibv_mr *mr;
};
void area_map(struct area *a);
void area_fill(struct area *a, uint8_t byte);
void area_register(struct area *a, struct ibv_pd *pd, unsigned access);
void area_forget(struct area *a);
static inline uint8_t *area_start(const struct area *a)
{
	return a->map + MARGIN_BYTES;
}

/* What one end tells the other. */
struct hello {
	union ibv_gid gid;
	uint64_t data; /* address of the responder's memory */
	uint32_t qpn, rkey, spare_key, srqn;
	uint16_t port; /* rdma_cm's */
	uint16_t lid;
};

struct end {
	struct device *d;
	const struct plan *p;
	bool asks; /* the requester */
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_qp_cap cap;
	struct rdma_cm_id *id; /* with rdma_cm */
	struct ibv_ah *ah;     /* of the request; they stay until the end */
	struct ibv_mr *huge;
	struct ibv_srq *srq;       /* of the responder's queue pair */
	struct ibv_srq *other_srq; /* of another domain, or not for XRC: its number is told the requester */
	struct ibv_qp *other_qp;   /* connected to itself, or with rdma_cm to one more of this process: */
	struct rdma_event_channel *other_channel;
	struct rdma_cm_id *other_id[3]; /* that of other_qp, the listener, the third queue pair's */
	struct ibv_mw *mw;
};

/* Is the case possible on this kind of connection? */
bool end_supports(const struct device *d, const struct plan *p);
/* All rights of a peer that the case needs. */
unsigned end_rights(const struct plan *p);
/* The rights that the operation needs at the responder. */
unsigned end_right(const struct plan *p);
void end_make(struct end *e, struct device *d, const struct plan *p, bool asks); /* INIT; RESET where that is wrong */
/* Connects to the other end. The responder listens. fill: called when the responder's queue pair is in INIT. */
void end_connect(struct end *e, const struct hello *it, void (*fill)(void *), void *arg);
void end_to(struct end *e, enum ibv_qp_state state);
enum ibv_qp_state end_state(struct end *e);
/* The number that requests of XRC name. */
uint32_t end_srq_number(struct end *e);
/* The address of the other end: by its LID alone where ports have LIDs, otherwise by its GID. */
struct ibv_ah_attr end_address(const struct device *d, const struct hello *it);
/* A queue pair that may bind windows, for cases of another queue pair or protection domain. */
struct ibv_qp *end_other_qp(struct end *e);
void end_destroy(struct end *e);
/* Returns the port. */
uint16_t listen_here(struct device *d);

void tell(int fd, const void *bytes, size_t n);
void hear(int fd, void *bytes, size_t n);

#endif
