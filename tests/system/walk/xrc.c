// xrc.c - the random walk: XRC domains, shared receive queues of XRC, and the two ends of XRC, not connected
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_get_srq_num(3), ibv_open_qp(3)
// SPDX-License-Identifier: MIT
#include <fcntl.h>

#include "walk.h"

void make_xrcd(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, XRCD), *ctx = o ? pick(&h, d, CTX) : NULL;
	struct ibv_xrcd_init_attr attr = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	if (ctx && ctx->c.iwarp) {
		REFUSED(ibv_open_xrcd(ctx->p, &attr), EOPNOTSUPP);
	} else if (ctx && one_in(d, 8)) {
		attr.fd = -2 - (int)roll(d, 1000);
		REFUSED(ibv_open_xrcd(ctx->p, &attr), EINVAL);
	} else if (ctx) {
		struct ibv_xrcd *xrcd = ibv_open_xrcd(ctx->p, &attr);

		COUNT(calls);
		CHECK(xrcd && xrcd->context == ctx->p);
		object_born(o, xrcd, ctx, ctx, NULL, NULL, NULL);
	}
	let_go(&h);
}

void make_xrc_srq(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, SRQ), *xrcd = o ? pick(&h, d, XRCD) : NULL;
	struct object *pd = xrcd ? pick_of(&h, d, PD, xrcd->ctx) : NULL,
	              *cq = pd ? pick_of(&h, d, CQ, xrcd->ctx) : NULL;

	if (cq) {
		struct ibv_srq_init_attr_ex attr = {.srq_context = o,
		                                    .attr = {.max_wr = RECV_COUNT, .max_sge = 2},
		                                    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
		                                                 IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		                                    .srq_type = IBV_SRQT_XRC,
		                                    .pd = pd->p,
		                                    .xrcd = xrcd->p,
		                                    .cq = cq->p};
		struct ibv_srq *srq = ibv_create_srq_ex(((struct ibv_xrcd *)xrcd->p)->context, &attr);
		uint32_t number = 0;

		COUNT(calls);
		CHECK(srq && srq->pd == pd->p && srq->srq_context == o);
		ANSWER(ibv_get_srq_num(srq, &number), 0);
		CHECK(number && number < 1 << 24);
		o->srq.xrc = true;
		srq_begin(o, pd);
		object_born(o, srq, xrcd->ctx, pd, xrcd, cq, NULL);
	}
	let_go(&h);
}

static struct ibv_qp *new_target(struct object *o, struct object *xrcd)
{
	struct ibv_qp_init_attr_ex a = {
	        .qp_context = o, .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd->p};
	struct ibv_qp *qp = ibv_create_qp_ex(((struct ibv_xrcd *)xrcd->p)->context, &a);

	COUNT(calls);
	CHECK(qp && qp->qp_type == IBV_QPT_XRC_RECV && qp->state == IBV_QPS_RESET && qp->qp_context == o);
	CHECK(!ibv_qp_to_qp_ex(qp));
	o->qp.type = IBV_QPT_XRC_RECV;
	object_born(o, qp, xrcd->ctx, xrcd, NULL, NULL, NULL);
	return qp;
}

static void new_initiator(struct object *o, struct object *pd, struct object *cq)
{
	struct ibv_qp_init_attr a = {.qp_context = o,
	                             .send_cq = cq->p,
	                             .cap = {.max_send_wr = SEND_DEPTH, .max_send_sge = 4, .max_inline_data = 64},
	                             .qp_type = IBV_QPT_XRC_SEND};
	struct ibv_qp *qp = ibv_create_qp(pd->p, &a);

	COUNT(calls);
	CHECK(qp && qp->qp_type == IBV_QPT_XRC_SEND && qp->state == IBV_QPS_RESET && qp->send_cq == cq->p);
	o->qp.type = IBV_QPT_XRC_SEND;
	object_born(o, qp, pd->ctx, pd, cq, NULL, NULL);
}

/* A handle of another kind to the same target: the queue pair exists until both are destroyed. */
static void open_again(const struct ibv_qp *qp, const struct object *xrcd)
{
	struct ibv_qp_open_attr attr = {.comp_mask =
	                                        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
	                                .qp_num = qp->qp_num,
	                                .xrcd = xrcd->p,
	                                .qp_type = IBV_QPT_XRC_RECV};
	struct ibv_qp *again = ibv_open_qp(qp->context, &attr);

	COUNT(calls);
	CHECK(again && again != qp && again->qp_num == qp->qp_num);
	ANSWER(ibv_destroy_qp(again), 0);
}

void make_loose_xrc(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, QP), *xrcd = o ? pick(&h, d, XRCD) : NULL;
	struct object *pd = xrcd ? pick_of(&h, d, PD, xrcd->ctx) : NULL,
	              *cq = pd ? pick_of(&h, d, CQ, xrcd->ctx) : NULL;

	if (cq) {
		o->qp.loose = true;
		o->qp.extended = false;
		o->qp.state = IBV_QPS_RESET;
		if (one_in(d, 2))
			open_again(new_target(o, xrcd), xrcd);
		else if (room_take(cq, SEND_DEPTH))
			new_initiator(o, pd, cq);
	}
	let_go(&h);
}
