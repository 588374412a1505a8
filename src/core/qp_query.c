// qp_query.c - queries of a queue pair
// follows: IBA volume 1, 11.2.5.3 (query queue pair); ibv_query_qp(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/handle.h"
#include "core/qp.h"
#include "core/verbs.h"
#include "core/xrc.h"

/* Before RTS sq_psn, and before RTR rq_psn, is what the program has set. */
static void query_psns(const struct vb_qp *qp, struct ibv_qp_attr *attr)
{
	uint8_t state = atomic_load(&qp->state);
	uint32_t sq_psn, rq_psn;

	if (state < IBV_QPS_RTR || state > IBV_QPS_SQE || !qp->path->next_psns)
		return;
	qp->path->next_psns(qp, &sq_psn, &rq_psn);
	attr->rq_psn = rq_psn;
	if (state >= IBV_QPS_RTS)
		attr->sq_psn = sq_psn;
}

bool vb_qp_has_heard(struct ibv_context *context, uint32_t qpn)
{
	struct vb_node *node = vb_ctx(context)->node;
	struct vb_qp *qp = vb_qp_hold_number(node, qpn);
	struct ibv_qp_attr attr;

	if (!qp)
		return false;
	vb_lock(&node->progress);
	vb_lock(&qp->sq_lock);
	attr.rq_psn = qp->attr.rq_psn;
	query_psns(qp, &attr);
	bool heard = attr.rq_psn != qp->attr.rq_psn;

	vb_unlock(&qp->sq_lock);
	vb_unlock(&node->progress);
	vb_qp_drop(qp);
	return heard;
}

/* A handle of another process's target, which has no queues. */
static int query_far(struct vb_qp *h, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	int err = vb_xrc_far_ops.query(h, attr);

	if (!err)
		*init = (struct ibv_qp_init_attr){.qp_context = h->qp.qp_context, .qp_type = IBV_QPT_XRC_RECV};
	return err;
}

/* The mask is a hint (ibv_query_qp(3)). All fields up to rate_limit are filled. rate_limit, which the structs of older
 * programs lack, is filled if requested. PSNs are the next ones. */
int vb_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct vb_qp *qp = vb_qp_real(vb_qp(ibqp));

	if (!vb_qp_is_sound(ibqp))
		return EINVAL;
	if (qp->xrc.far) {
		if (mask & IBV_QP_RATE_LIMIT)
			attr->rate_limit = 0;
		return query_far(qp, attr, init);
	}
	bool is_target = qp->type == IBV_QPT_XRC_RECV;
	/* an XRC target uses the queues of the SRQs that requests name, and others may have work queues */
	struct vb_cq *rcq = !qp->scq ? NULL : qp->named_rcq ? qp->named_rcq : qp->rcq;

	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	memcpy(attr, &qp->attr, offsetof(struct ibv_qp_attr, rate_limit));
	if (mask & IBV_QP_RATE_LIMIT)
		attr->rate_limit = qp->attr.rate_limit;
	if (attr->qp_state == IBV_QPS_RESET && vb_qp_is_iwarp(qp)) /* iWARP has one state, Idle, for both */
		attr->qp_state = attr->cur_qp_state = IBV_QPS_INIT;
	if (mask & IBV_QP_STATE) /* as rdma-core */
		__atomic_store_n(&ibqp->state, attr->qp_state, __ATOMIC_RELAXED);
	query_psns(qp, attr);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	if (!attr->ah_attr.is_global) /* the grh was not set by the program, but by vb_lid_route */
		attr->ah_attr.grh = (struct ibv_global_route){0};
	attr->cap = qp->cap;
	*init = (struct ibv_qp_init_attr){
	        .qp_context = ibqp->qp_context,
	        .send_cq = qp->scq ? &qp->scq->cq : NULL,
	        .recv_cq = rcq ? &rcq->cq : NULL,
	        .srq = !is_target && qp->srq ? &qp->srq->srq : NULL,
	        .cap = qp->cap,
	        .qp_type = (enum ibv_qp_type)qp->type,
	        .sq_sig_all = qp->sq_sig_all,
	};
	return 0;
}
