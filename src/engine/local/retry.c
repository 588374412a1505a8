// retry.c - what the requester repeats or gives up: NAKs, timers, lost records, a peer that has ended
// follows: IBA volume 1, 9.7.5 (acknowledgements), 9.9 (errors), over rings in shared memory
// SPDX-License-Identifier: MIT
#include "engine/local/frames.h"
#include "engine/local/pingpong.h"
#include "engine/local/requester.h"
#include "engine/local/ring.h"
#include "frame/aeth.h"
#include "util/units.h"

#define READY_MAX VB_S(15) /* ns: next to spinning programs the peer's progress thread may wait ten seconds */
/* ns: requests to a program that has ended fail after this time, or earlier after the QP's own retries */
#define GIVE_UP_MAX VB_S(1)

/* --- NAKs --- */

/* The number of our requests that the peer has received. They are not repeated, even if they are not acknowledged: an
 * unanswered read delays the acknowledgement of requests behind it that were executed. */
static uint64_t peer_has_taken(const struct vb_qp *qp)
{
	uint64_t n = qp->local.remote ? qp->local.acked_base +
	                                        atomic_load_explicit(&qp->local.remote->taken, memory_order_acquire)
	                              : 0;

	if (n > qp->local.ssn_emit) /* more than were sent: ignored */
		n = 0;
	if (n < qp->local.acked_seen)
		n = qp->local.acked_seen;
	return n < qp->local.ssn_una ? qp->local.ssn_una : n;
}

void vb_local_go_back_to(struct vb_qp *qp, uint64_t from)
{
	uint32_t first = qp->sq_una + (uint32_t)(from - qp->local.ssn_una);

	if ((int32_t)(first - qp->sq_emit) > 0) /* the peer claims more than was sent */
		first = qp->sq_emit;

	for (uint32_t i = first; i != qp->sq_emit; i++) {
		struct vb_swqe *w = vb_sq_at(qp, i);

		if (w->state != VB_SWQE_SENT)
			continue;
		if (vb_local_is_atomic(w) || vb_local_is_placed(w) || w->opcode == IBV_WR_RDMA_READ)
			qp->local.rd_outstanding--;
		w->state = VB_SWQE_POSTED;
		w->data_written = 0;
	}
	qp->sq_emit = first;
	qp->local.sq_emit_off = 0;
	qp->local.ssn_emit = from;
	VB_COUNT(retry, 1);
}

static bool nak_failed(struct vb_qp *qp, enum ibv_wc_status status)
{
	vb_local_fail_oldest(qp, status);
	return false;
}

/* IBA 9.7.5.2.8. */
static bool handle_rnr_nak(struct vb_qp *qp)
{
	VB_COUNT(rnr_nak, 1);
	qp->local.sent.rnr_naks++;
	if (qp->attr.rnr_retry != 7) { /* 7: unlimited retries */
		if (!qp->local.rnr_left)
			return nak_failed(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		qp->local.rnr_left--;
	}
	vb_local_go_back_to(qp, peer_has_taken(qp));
	qp->local.timer_kind = VB_TIMER_RNR;
	uint8_t code = (uint8_t)atomic_load_explicit(&qp->local.remote->min_rnr_timer, memory_order_relaxed);

	qp->local.deadline = vb_now() + VB_US(vb_rnr_timer_us(code));
	vb_timer_armed(qp->node);
	return true;
}

/* The peer's QP goes to ERR with it. */
static bool is_fatal_nak(uint64_t nak)
{
	unsigned code = VB_RING_NAK_CODE(nak);

	return code == VB_RING_NAK_INV_REQ || code == VB_RING_NAK_ACCESS || code == VB_RING_NAK_OP;
}

bool vb_local_nak_is_early(struct vb_qp *qp, uint64_t nak)
{
	return is_fatal_nak(nak) && peer_has_taken(qp) > qp->local.ssn_una && vb_ring_ready(qp->local.peer);
}

bool vb_local_handle_nak(struct vb_qp *qp, uint64_t nak)
{
	vb_local_end_hold(qp);
	bool ended = qp->sq_una == qp->sq_emit && !qp->local.sq_emit_off; /* the request, since */

	/* It was withdrawn when the peer refused it, and executed. The next one fails with this NAK, when it is posted:
	 * it would find nobody. */
	if (ended && is_fatal_nak(nak) && qp->sq_una == qp->sq_head)
		return true;
	qp->local.nak_seen = VB_RING_NAK_COUNTER(nak);
	if (ended && !is_fatal_nak(nak))
		return true;
	if (vb_local_is_shown(qp))
		vb_local_show_nak(qp, VB_RING_NAK_CODE(nak), peer_has_taken(qp));
	switch (VB_RING_NAK_CODE(nak)) {
	case VB_RING_NAK_RNR:
		return handle_rnr_nak(qp);
	case VB_RING_NAK_AGAIN:
		if (qp->local.timer_kind == VB_TIMER_RETRY)
			vb_local_stop_timer(qp);
		vb_local_go_back_to(qp, peer_has_taken(qp));
		return true;
	case VB_RING_NAK_INV_REQ:
		return nak_failed(qp, IBV_WC_REM_INV_REQ_ERR);
	case VB_RING_NAK_ACCESS:
		return nak_failed(qp, IBV_WC_REM_ACCESS_ERR);
	case VB_RING_NAK_OP:
		return nak_failed(qp, IBV_WC_REM_OP_ERR);
	case VB_RING_NAK_SOURCE:
		return nak_failed(qp, IBV_WC_LOC_PROT_ERR);
	default:
		return true;
	}
}

/* --- timers, and what nobody answers --- */

/* The peer's program lives, but has not handled our introduction, because it is stopped or gets no processor. An adapter
 * would answer nevertheless, so retries do not count. */
static bool awaits_meeting(struct vb_qp *qp)
{
	struct vb_peer *peer = qp->local.peer;
	uint64_t now = vb_now();

	if (!peer || qp->local.remote || !vb_peer_alive(peer) || vb_peer_ready(peer))
		return false;
	if (!qp->local.ready_by)
		qp->local.ready_by = now + READY_MAX;
	return now < qp->local.ready_by;
}

/* If the peer's QP has ended, or begun anew: reads its last acknowledgements, if it has them still. */
static void forget_ended_remote(struct vb_qp *qp)
{
	struct vb_qp_shared *r = qp->local.remote;
	uint32_t gens = r ? atomic_load_explicit(&r->gen, memory_order_acquire) - qp->local.remote_gen : 0;

	if (gens == 1)
		vb_local_take_acks(qp, true);
	if (gens)
		qp->local.remote = NULL; /* vb_local_linked reads the peer's QP again */
}

/* No answer can come while no way leads to the peer. */
static void try_again_later(struct vb_qp *qp)
{
	vb_local_end_hold(qp);
	qp->local.sent.timeouts++;
	if (!vb_local_timeout_ns(qp))
		return;
	if (!qp->local.retry_left)
		vb_local_fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
	else
		qp->local.retry_left--;
}

void vb_local_cut(struct vb_qp *qp, bool cut)
{
	unsigned state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	if (qp->local.cut == cut)
		return;
	qp->local.cut = cut;
	if (state != IBV_QPS_RTS && state != IBV_QPS_SQD)
		return;
	if (!cut && qp->local.timer_kind == VB_TIMER_RETRY)
		vb_local_stop_timer(qp);
	if (vb_sq_kick(qp) == VB_SQ_FAILED)
		qp->path->settle(qp);
}

void vb_local_leave_peer(struct vb_qp *qp)
{
	if (!qp->local.peer)
		return;
	vb_local_end_hold(qp); /* these two need the peer */
	vb_local_release_held(qp);
	qp->local.look = 0;
	qp->local.owed &= VB_LOCAL_SHOWN;
	qp->local.sq_emit_off = 0;
	if (vb_qp_is_reliable(qp)) {
		vb_local_go_back_to(qp, qp->local.ssn_una);
		qp->local.acked_seen = qp->local.ssn_una;
	}
	qp->local.peer = NULL;
	qp->local.remote = NULL;
	if (qp->sq_una != qp->sq_head)
		vb_local_wait_retry(qp);
}

void vb_local_timer_expired(struct vb_qp *qp)
{
	bool retry = qp->local.timer_kind == VB_TIMER_RETRY;

	vb_local_stop_timer(qp);
	if (qp->type == IBV_QPT_UD) /* vb_local_emit_datagrams finds the datagrams that are due */
		return;
	if (qp->type == IBV_QPT_UC) {
		/* without a peer, unreliable requests are lost and complete (IBA 9.8.2) */
		if (retry && qp->sq_emit != qp->sq_head && !vb_local_linked(qp) &&
		    !vb_local_needs_no_peer(vb_sq_at(qp, qp->sq_emit))) {
			VB_COUNT(drop_ud_path, 1);
			vb_local_emit_done(vb_sq_at(qp, qp->sq_emit));
			qp->sq_emit++;
			qp->local.sq_emit_off = 0;
		}
		return;
	}
	if (!retry)
		return;
	/* what is in the ring has passed before it was cut, so nothing is repeated */
	if (qp->local.cut || vb_local_is_apart(qp)) {
		try_again_later(qp);
		return;
	}
	vb_local_end_hold(qp);
	forget_ended_remote(qp);
	if ((vb_local_timeout_ns(qp) && !awaits_meeting(qp)) || qp->local.gone) {
		if (!qp->local.retry_left || qp->local.gone) {
			vb_local_fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
			return;
		}
		qp->local.retry_left--;
	}
	qp->local.sent.timeouts++;
	vb_local_go_back_to(qp, peer_has_taken(qp));
	qp->local.stall = 0;
}

void vb_local_check_dropped(struct vb_qp *qp)
{
	if (qp->sq_una == qp->sq_emit || vb_sq_at(qp, qp->sq_una)->state != VB_SWQE_SENT ||
	    qp->local.timer_kind != VB_TIMER_NONE)
		return;
	if (peer_has_taken(qp) > qp->local.ssn_una)
		return;
	if (atomic_load_explicit(&qp->local.peer->theirs->rx_head, memory_order_acquire) <
	    vb_sq_at(qp, qp->sq_una)->ring_end)
		qp->local.stall = 0;
	else if (vb_ring_ready(qp->local.peer))
		return;
	else if (++qp->local.stall > 3)
		vb_local_wait_retry(qp);
}

/*
 * Sets the deadline of requests to a program that has ended. A hardware adapter would notice that by its retries, so
 * requests do not fail earlier: data of that program may still be in flight. They fail after GIVE_UP_MAX at the latest,
 * whatever the timeout, because no answer will come.
 */
static void give_up_later(struct vb_qp *qp)
{
	uint64_t total = vb_local_timeout_ns(qp) ? vb_local_timeout_ns(qp) * (qp->local.retry_left + 1u) : GIVE_UP_MAX;

	if (qp->local.timer_kind == VB_TIMER_RETRY && qp->local.gone)
		return;
	qp->local.gone = true;
	qp->local.timer_kind = VB_TIMER_RETRY;
	qp->local.deadline = vb_now() + (total < GIVE_UP_MAX ? total : GIVE_UP_MAX);
	vb_timer_armed(qp->node);
}

void vb_local_peer_died(struct vb_qp *qp)
{
	if (vb_qp_is_reliable(qp)) {
		vb_local_take_acks(qp, true);
		vb_local_pingpong_release(qp);
		if (vb_local_retire_done(qp) == VB_SQ_FAILED)
			vb_local_fail_oldest(qp, vb_sq_at(qp, qp->sq_una)->status);
		else if (qp->sq_una != qp->sq_head)
			give_up_later(qp);
		return;
	}
	if (qp->type == IBV_QPT_UC)
		while (qp->sq_emit != qp->sq_head && !vb_local_needs_no_peer(vb_sq_at(qp, qp->sq_emit)))
			vb_local_emit_done(vb_sq_at(qp, qp->sq_emit++));
}
