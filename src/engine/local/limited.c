// limited.c - sends the requests before a limit: the others are delayed by a rule of fault injection
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#include "engine/local/requester.h"

/* As emit_one's caller in requester.c, which is a function of its own so that it stays fast. */
static enum vb_sq_status emit_limited(struct vb_qp *qp, uint32_t end)
{
	while (qp->sq_emit != end) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);
		enum vb_emit r;

		if (w->state == VB_SWQE_DONE) {
			r = w->status == IBV_WC_SUCCESS ? VB_EMIT_OK : VB_EMIT_FAILED;
		} else {
			if ((w->flags & IBV_SEND_FENCE) &&
			    qp->local.rd_outstanding != qp->local.rd_withdrawn) /* IBA 10.8.3.3 */
				return VB_SQ_GOOD;
			r = vb_local_emit_one(qp, w);
		}
		if (r == VB_EMIT_BLOCKED)
			return VB_SQ_GOOD;
		if (r == VB_EMIT_FAILED)
			return VB_SQ_FAILED;
		qp->sq_emit++;
		if (w->state == VB_SWQE_DONE && vb_local_retire_done(qp) == VB_SQ_FAILED)
			return VB_SQ_FAILED;
	}
	return VB_SQ_GOOD;
}

enum vb_sq_status vb_local_kick_until(struct vb_qp *qp, uint32_t end)
{
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	if (qp->sq_una != qp->sq_head && !atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
	if (qp->local.timer_kind != VB_TIMER_NONE)
		return VB_SQ_GOOD;
	if (!vb_local_linked(qp)) {
		vb_local_wait_retry(qp);
		return VB_SQ_GOOD;
	}
	uint64_t before = qp->local.last_ring_end;
	enum vb_sq_status status = emit_limited(qp, end);

	if (qp->local.last_ring_end != before || qp->local.sq_emit_off)
		vb_peer_notify(qp->local.peer);
	return status;
}
