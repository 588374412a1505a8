// qp_flush.c - queue pairs in error: outstanding requests complete with IBV_WC_WR_FLUSH_ERR, in order
// follows: IBA volume 1, 10.3.1.5 (SQE), 10.3.1.7 (ERR), 10.8.3 (order of completions)
// SPDX-License-Identifier: MIT
#include "core/cntr.h"
#include "core/mw.h"
#include "core/opcode.h"
#include "core/qp.h"
#include "core/rq.h"
#include "core/sq.h"
#include "core/tm.h"
#include "core/wq.h"

void vb_qp_set_state(struct vb_qp *qp, enum ibv_qp_state state)
{
	qp->attr.qp_state = qp->attr.cur_qp_state = state;
	__atomic_store_n(&qp->qp.state, state, __ATOMIC_RELAXED); /* programs read this field directly */
	for (struct vb_qp *h = qp->xrc.handles; h; h = h->xrc.handles)
		__atomic_store_n(&h->qp.state, state, __ATOMIC_RELAXED);
	atomic_store_explicit(&qp->state, (uint8_t)state, memory_order_release);
}

/* Not in vb_sq_tell, so that the data path stays as it is. */
__attribute__((cold, noinline)) void vb_qp_show_error(struct vb_qp *qp)
{
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	if (state == IBV_QPS_RTS || state == IBV_QPS_SQD)
		vb_qp_set_state(qp, vb_qp_is_reliable(qp) ? IBV_QPS_ERR : IBV_QPS_SQE);
}

__attribute__((cold, noinline)) bool vb_sq_tell_apart(struct vb_qp *qp, struct vb_swqe *w, enum ibv_wc_status status)
{
	if (qp->sq_tagged) {
		vb_tm_sent(qp, w, status);
		return false;
	}
	vb_cntr_sent(qp, w, status);
	return status != IBV_WC_SUCCESS || w->flags & IBV_SEND_SIGNALED;
}

void vb_qp_close_shared(struct vb_qp *qp)
{
	uint32_t gen = atomic_load(&qp->shared->gen);

	if (gen & 1)
		atomic_store(&qp->shared->gen, gen + 1);
}

static void flush_receive(struct vb_qp *qp, uint64_t wr_id)
{
	struct vb_cqe cqe = {
	        .wc = {.wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = qp->qp.qp_num},
	        .receive = vb_rq_of(qp),
	};

	if (qp->xrc.initiator) /* a guest: the connection is its target's */
		cqe.wc.qp_num = qp->attr.dest_qp_num;
	if (qp->inbound->kind != VB_TM_PLAIN)
		vb_tm_complete(qp, &cqe);
	if (qp->rq_counted)
		vb_cntr_received(qp, cqe.wc.status, 1, 0);
	vb_cq_push(qp->rcq, &cqe, true);
}

void vb_sq_drop_held(struct vb_qp *qp)
{
	for (uint32_t i = qp->sq_una; qp->type == IBV_QPT_UD && i != qp->sq_head; i++)
		vb_sq_release(vb_sq_at(qp, i));
}

/* Unsignaled requests, too, complete in error (IBA 10.7.3.1). Under sq_lock. */
static void flush_sends(struct vb_qp *qp)
{
	vb_sq_drop_held(qp);
	if (qp->sq_una != qp->sq_head && vb_mw_finish(qp, vb_sq_at(qp, qp->sq_una))) {
		if (vb_sq_at(qp, qp->sq_una)->flags & VB_SEND_TOLD)
			vb_sq_tell(qp, vb_sq_at(qp, qp->sq_una), IBV_WC_SUCCESS);
		vb_sq_retire(qp);
	}
	for (; qp->sq_una != qp->sq_head; vb_sq_retire(qp))
		vb_sq_tell(qp, vb_sq_at(qp, qp->sq_una), IBV_WC_WR_FLUSH_ERR);
	if (qp->path->forget_sends) /* before sq_emit moves: a rate limit takes back what it counted from there on */
		qp->path->forget_sends(qp);
	qp->sq_emit = qp->sq_head;
	atomic_store_explicit(&qp->sq_pending, 0, memory_order_relaxed);
}

void vb_receive_abandon(struct vb_qp *qp)
{
	bool queued = !qp->srq || !qp->srq->tm || vb_tm_abandon(qp);

	if (!qp->inbound->active)
		return;
	qp->inbound->active = false;
	if (queued)
		vb_rq_give_back(vb_rq_of(qp));
}

/* Flushes the receive of a message that arrived in part, then the posted ones. Receives of an SRQ stay for its other
 * queue pairs. Under progress. */
static void flush_receives(struct vb_qp *qp)
{
	struct vb_rwqe w;
	struct ibv_sge *sges;

	if (qp->inbound->active) {
		qp->inbound->active = false;
		flush_receive(qp, qp->inbound->wqe.wr_id);
	}
	if (qp->srq && qp->srq->tm)
		vb_tm_flush(qp);
	if (qp->srq)
		return;
	vb_lock(&qp->rq.lock); /* ibv_post_recv reads the state under it, and flushes a receive that it posts later */
	while (vb_rq_peek(&qp->rq, &w, &sges)) {
		vb_rq_advance(&qp->rq);
		flush_receive(qp, w.wr_id);
	}
	vb_unlock(&qp->rq.lock);
}

void vb_qp_error(struct vb_qp *qp)
{
	if (atomic_load(&qp->state) == IBV_QPS_RESET)
		return;
	vb_qp_set_state(qp, IBV_QPS_ERR);
	vb_qp_set_draining(qp, false);
	vb_qp_close_shared(qp);
	vb_path_closed(qp);
	flush_sends(qp);
	flush_receives(qp);
	if (qp->srq && qp->type != IBV_QPT_XRC_RECV && !qp->last_wqe_raised) { /* an XRC target has no SRQ of its own */
		qp->last_wqe_raised = true;
		vb_async_raise(VB_CONTEXT_OF(qp), IBV_EVENT_QP_LAST_WQE_REACHED, &qp->qp);
	}
}

/* An XRC target has no queue for sends, and one for receives only once a message has named an SRQ. */
static bool queue_overran(const struct vb_cq *cq)
{
	return cq && atomic_load_explicit(&cq->overrun, memory_order_relaxed);
}

static bool has_overrun(const struct vb_qp *qp)
{
	return queue_overran(qp->scq) || queue_overran(qp->rcq);
}

/* IBA 10.2.6.3, 11.6.3.1: the QPs of an overrun CQ go to ERR, because their requests cannot complete. */
static void end_overrun(struct vb_qp *qp)
{
	uint8_t state = atomic_load(&qp->state);

	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR || !has_overrun(qp))
		return;
	vb_lock(&qp->sq_lock);
	vb_qp_error(qp);
	vb_unlock(&qp->sq_lock);
	vb_async_raise(VB_CONTEXT_OF(qp), IBV_EVENT_QP_FATAL, &qp->qp);
}

void vb_qp_end_overrun(struct vb_node *node)
{
	atomic_fetch_and(&node->attention, (uint8_t)~VB_ATTEND_OVERRUN);
	for (uint32_t i = 0; i < VB_LANE_QPS; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		if (qp)
			end_overrun(qp);
	}
	vb_wq_end_overrun(node);
}

void vb_qp_end(struct vb_node *node, uint32_t qpn, bool fatal)
{
	vb_lock(&node->progress);
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);

	if (qp && qp->qp.qp_num == qpn) {
		vb_lock(&qp->sq_lock);
		vb_qp_error(qp);
		vb_unlock(&qp->sq_lock);
		if (fatal)
			vb_async_raise(VB_CONTEXT_OF(qp), IBV_EVENT_QP_FATAL, &qp->qp);
	}
	vb_unlock(&node->progress);
}

void vb_qp_sq_error(struct vb_qp *qp)
{
	uint8_t state = atomic_load(&qp->state);

	if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE)
		return;
	vb_qp_set_state(qp, IBV_QPS_SQE);
	vb_qp_set_draining(qp, false);
	flush_sends(qp);
}

void vb_qp_flush(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	if (atomic_load(&qp->state) == IBV_QPS_ERR)
		vb_qp_error(qp);
	else
		vb_qp_sq_error(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}
