// compat10_data.c - posting and polling by programs of 2006
// follows: libibverbs 1.0, infiniband/verbs.h
// SPDX-License-Identifier: MIT
#include <string.h>

#include "abi/compat10.h"

_Static_assert(sizeof(struct vb_recv_wr10) == 32 && sizeof(struct vb_send_wr10) == 72, "requests of 1.0");
_Static_assert(offsetof(struct ibv_send_wr, sg_list) == 16 && offsetof(struct ibv_send_wr, imm_data) == 36 &&
                       offsetof(struct ibv_send_wr, wr) == 40,
               "the middle of a send request has not changed since 1.0");

static int poll_cq(struct vb_cq10 *cq, int n, struct ibv_wc *wc)
{
	return ibv_poll_cq(cq->real, n, wc);
}

static int req_notify_cq(struct vb_cq10 *cq, int solicited_only)
{
	return ibv_req_notify_cq(cq->real, solicited_only);
}

/* Posts the requests one by one. The first one that is refused ends the list, as it would in a single call. */
static int post_srq_recv(struct vb_srq10 *srq, struct vb_recv_wr10 *wr, struct vb_recv_wr10 **bad)
{
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr one = {.wr_id = wr->wr_id, .sg_list = wr->sg_list, .num_sge = wr->num_sge}, *ignored;
		int err = ibv_post_srq_recv(srq->real, &one, &ignored);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

static int post_recv(struct vb_qp10 *qp, struct vb_recv_wr10 *wr, struct vb_recv_wr10 **bad)
{
	for (; wr; wr = wr->next) {
		struct ibv_recv_wr one = {.wr_id = wr->wr_id, .sg_list = wr->sg_list, .num_sge = wr->num_sge}, *ignored;
		int err = ibv_post_recv(qp->real, &one, &ignored);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

static int post_send(struct vb_qp10 *qp, struct vb_send_wr10 *wr, struct vb_send_wr10 **bad)
{
	for (; wr; wr = wr->next) {
		struct ibv_send_wr one = {.wr_id = wr->wr_id}, *ignored;
		memcpy(&one.sg_list, wr->rest, sizeof(wr->rest));
		if (qp->qp_type == IBV_QPT_UD && one.wr.ud.ah)
			one.wr.ud.ah = ((struct vb_ah10 *)one.wr.ud.ah)->real;
		int err = ibv_post_send(qp->real, &one, &ignored);
		if (err) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

const struct vb_ops10 vb_ops10 = {
        .poll_cq = poll_cq,
        .req_notify_cq = req_notify_cq,
        .post_srq_recv = post_srq_recv,
        .post_send = post_send,
        .post_recv = post_recv,
};
