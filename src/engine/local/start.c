// start.c - start and end of a same-host queue pair: both sides' counters, and what is given back
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "core/active.h"
#include "core/qp.h"
#include "core/sq.h"
#include "engine/local/frames.h"
#include "engine/local/local.h"
#include "engine/local/pingpong.h"
#include "engine/local/requester.h"

void vb_local_start_responder(struct vb_qp *qp)
{
	struct vb_local_qp *l = &qp->local;

	l->taken = 0;
	atomic_store(&l->executed, 0);
	atomic_store(&l->ack_sent, 0);
	l->ack_in = 0;
	l->epsn = qp->attr.rq_psn;
	l->nak_counter = 0;
	l->nak_state = false;
	l->inread_head = l->inread_tail = 0;
	l->refusal = 0;
}

static void start_requester(struct vb_qp *qp)
{
	struct vb_local_qp *l = &qp->local;

	l->ssn_una = l->ssn_emit = l->acked_seen = l->acked_base = 0;
	l->nak_seen = 0;
	l->rd_outstanding = l->rd_slot = l->rd_withdrawn = 0;
	l->sq_emit_off = 0;
	l->last_ring_end = 0;
	l->retry_left = qp->attr.retry_cnt;
	l->rnr_left = qp->attr.rnr_retry;
	l->stall = 0;
	l->ready_by = 0;
	l->look = 0;
	l->holding = false;
	l->owed = 0;
	vb_local_pingpong_reset(qp);
	if (l->frames)
		vb_local_frames_free(qp);
}

void vb_local_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	if (cur == IBV_QPS_RTR && next == IBV_QPS_RTS) {
		start_requester(qp);
		atomic_store_explicit(&qp->shared->withdrawn, 0, memory_order_release);
	}
}

void vb_local_forget_sends(struct vb_qp *qp)
{
	vb_local_release_held(qp);
	qp->local.owed &= VB_LOCAL_SHOWN;
	qp->local.sq_emit_off = 0;
	qp->local.rd_outstanding = qp->local.rd_withdrawn = 0;
	vb_local_stop_timer(qp);
}

void vb_local_closed(struct vb_qp *qp)
{
	vb_local_end_hold(qp);
	atomic_store_explicit(&qp->shared->acked, atomic_load_explicit(&qp->local.executed, memory_order_relaxed),
	                      memory_order_release);
	if (qp->local.peer && vb_peer_alive(qp->local.peer))
		vb_peer_notify(qp->local.peer); /* threads of the peer that wait for this QP see that it has ended */
}

static void leave_acks(struct vb_qp *qp)
{
	struct vb_qp **q = &qp->node->acks;

	while (*q && *q != qp)
		q = &(*q)->local.acks_next;
	if (*q)
		*q = qp->local.acks_next;
	qp->local.on_acks = false;
}

void vb_local_reset(struct vb_qp *qp)
{
	leave_acks(qp);
	vb_active_collect(qp->node);
	vb_active_remove(qp);
	vb_local_stop_timer(qp);
	vb_local_release_held(qp);
	qp->local.peer = NULL;
	qp->local.remote = NULL;
	qp->local.gone = false;
	start_requester(qp);
	vb_local_start_responder(qp); /* shared->executed keeps its value, because the peer may still read it */
}
