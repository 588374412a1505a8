// xrc_ends.h - the two ends of an XRC connection: the initiator, and what a process does that has an SRQ
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_XRC_ENDS_H
#define VB_TEST_XRC_ENDS_H

#include "pair.h"

#define XRC_SIZE (1u << 20) /* of the memory of both ends */

/* What a request names: an SRQ, and memory of its protection domain. */
struct xrc_srq {
	uint32_t number, pad;
	struct far far;
};

struct xrc_initiator {
	struct dev d;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mem m;
	uint64_t id; /* of the last request */
};
void xrc_initiator_open(struct xrc_initiator *i); /* INIT */
/* RTS. retries: timeout, retry_cnt and rnr_retry. */
void xrc_initiator_connect(struct xrc_initiator *i, const union ibv_gid *gid, uint32_t target,
                           const struct ibv_qp_attr *retries);
void xrc_initiator_close(struct xrc_initiator *i);
/* Posts a request of the first len bytes of the initiator's memory. Returns its id. */
uint64_t xrc_request(struct xrc_initiator *i, uint32_t len, struct ibv_send_wr *wr);
#define XRC_REQUEST(i, len, to, ...) \
	xrc_request(i, len, &(struct ibv_send_wr){.qp_type.xrc.remote_srqn = (to)->number, __VA_ARGS__})
/* Posts a flush of len bytes there. rkey: of a region with ACCESS_FLUSH_GLOBAL. */
uint64_t xrc_flush(struct xrc_initiator *i, const struct xrc_srq *to, uint32_t rkey, size_t len);
#define XRC_REMOTE(to) .wr.rdma = {(to)->far.addr, (to)->far.rkey}

int xrc_domain_try(struct ibv_context *ctx, int fd, int oflags, struct ibv_xrcd **x); /* returns the errno */
struct ibv_xrcd *xrc_domain(struct ibv_context *ctx, int fd);

/* An SRQ, with a completion queue, a protection domain and memory of its own. */
struct xrc_taker {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct mem m;
	uint32_t target, initiator; /* that its completions name */
};
struct ibv_srq *xrc_srq_make(struct ibv_pd *pd, struct ibv_xrcd *x, struct ibv_cq *cq, uint32_t *number);
void xrc_taker_open(struct xrc_taker *t, struct dev *d, struct ibv_xrcd *x, struct xrc_srq *to);
void xrc_taker_close(struct xrc_taker *t);
void xrc_post_receive(struct xrc_taker *t, uint64_t id);
/* Awaits the completion of a message. */
struct ibv_wc xrc_arrived(struct xrc_taker *t, uint64_t id, uint32_t len);

struct ibv_qp *xrc_target_make(struct ibv_context *ctx, struct ibv_xrcd *x);         /* INIT */
void xrc_target_connect(struct ibv_qp *qp, const struct dev *d, uint32_t initiator); /* RTR */

/* All operations of many lengths, in turns to n SRQs: what their process does, and what the initiator does. */
void xrc_take_all(int fd, struct xrc_taker *of, unsigned n);
void xrc_request_all(struct xrc_initiator *i, int fd, const struct xrc_srq *to, unsigned n);

#endif
