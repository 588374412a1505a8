// withdraw.c - takes RDMA reads and writes back from a peer that does not execute them, and executes them by one copy
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "core/node.h"
#include "engine/local/pingpong.h"
#include "engine/local/requester.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "util/units.h"

#define LOOK_SOON VB_US(20) /* ns: next look while the peer stores a record's data */
#define SPINS 2000u         /* waits as long as it may take to store the data of one record */

/* Anything that changes when the peer works for this QP, or for another. */
static uint64_t signs_of_work(const struct vb_qp *qp)
{
	const struct vb_slot_shared *theirs = qp->local.peer->theirs;

	return qp->local.read_data + qp->local.acked_seen +
	       atomic_load_explicit(&theirs->claimed, memory_order_relaxed) +
	       atomic_load_explicit(&theirs->placed, memory_order_relaxed);
}

void vb_local_expect_work(struct vb_qp *qp, uint64_t within)
{
	if (qp->local.look && within == VB_WITHDRAW_AFTER)
		return;
	qp->local.look_seen = signs_of_work(qp);
	qp->local.look = vb_now() + within;
	vb_timer_at(qp->node, qp->local.look);
}

static void choose_copies(struct vb_qp *qp, const struct vb_swqe *w)
{
	if (w->length <= VB_PINGPONG_MAX) {
		vb_local_pingpong_failed(qp);
		return;
	}
	vb_lock(&qp->local.peer->tx_lock);
	vb_pace_failed(vb_pace_of(qp->local.peer, w));
	vb_unlock(&qp->local.peer->tx_lock);
}

static enum vb_sq_status complete(struct vb_qp *qp, struct vb_swqe *w)
{
	vb_local_emit_done(w);
	w->slot = 1; /* it has used a PSN */
	return vb_local_retire_done(qp);
}

/* --- reads --- */

/*
 * The peer may have read requests in its queue. It forgets those up to the PSN in shared->withdrawn, and data that comes
 * late is ignored. Only the oldest requests are withdrawn, up to the first that is no read: those behind it must wait for
 * it.
 */
static enum vb_sq_status withdraw_reads(struct vb_qp *qp)
{
	struct vb_local_qp *l = &qp->local;
	struct vb_swqe *w;

	while (qp->sq_una != qp->sq_emit && (w = vb_sq_at(qp, qp->sq_una), w->state == VB_SWQE_SENT) &&
	       w->opcode == IBV_WR_RDMA_READ && vb_local_direct(qp, w) == VB_DIRECT_DONE) {
		choose_copies(qp, w);
		l->withdrawn_end = l->ssn_una + 1;
		if (l->acked_seen < l->withdrawn_end) {
			l->rd_withdrawn++;
			atomic_store_explicit(&qp->shared->withdrawn, vb_rec_word(w->psn, 1), memory_order_release);
		} else {
			l->rd_outstanding--; /* it has answered, and its data lies in the ring */
		}
		if (complete(qp, w) == VB_SQ_FAILED)
			return VB_SQ_FAILED;
	}
	return VB_SQ_GOOD;
}

/* --- writes --- */

/* The oldest request, if it is a write that the peer executes by our choice: in the ring, or a part of it. */
static struct vb_swqe *oldest_write(struct vb_qp *qp)
{
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);

	if (qp->sq_una == qp->sq_head || w->opcode != IBV_WR_RDMA_WRITE || !w->slot)
		return NULL;
	return w->state == VB_SWQE_SENT || (qp->sq_una == qp->sq_emit && qp->local.sq_emit_off) ? w : NULL;
}

/* How many of the oldest requests are such writes? */
static uint32_t oldest_writes(struct vb_qp *qp)
{
	uint32_t n = 0;

	for (uint32_t i = qp->sq_una; i != qp->sq_head; i++, n++) {
		const struct vb_swqe *w = vb_sq_at(qp, i);

		if (w->opcode != IBV_WR_RDMA_WRITE || !w->slot ||
		    !(w->state == VB_SWQE_SENT || (i == qp->sq_emit && qp->local.sq_emit_off)))
			break;
	}
	return n;
}

bool vb_local_may_withdraw_all(struct vb_qp *qp)
{
	return qp->sq_una != qp->sq_emit && (int32_t)(oldest_writes(qp) - (qp->sq_emit - qp->sq_una)) >= 0;
}

/* Changes the type of this QP's write records in the ring, from the PSN of its oldest request on, of so many messages.
 * The peer says where the first record is that it has not consumed; a place where no record begins ends the walk. */
static void change_records(struct vb_qp *qp, unsigned from, unsigned to, uint32_t messages)
{
	struct vb_peer *peer = qp->local.peer;
	uint32_t first = (uint32_t)(qp->attr.sq_psn + qp->local.ssn_una);

	vb_lock(&peer->tx_lock);
	/* another process may own the ring of a dead peer now */
	bool alive = atomic_load_explicit(&peer->state, memory_order_relaxed) != VB_PEER_DEAD;

	for (uint64_t pos = vb_ring_consumed(peer); alive && (int64_t)(peer->tx_tail - pos) > 0;) {
		struct vb_rec *rec = (struct vb_rec *)(peer->tx + (pos & VB_RING_MASK & ~(uint64_t)(VB_LINE - 1)));
		uint64_t mark = atomic_load_explicit(&rec->mark, memory_order_relaxed);
		uint32_t dest = __atomic_load_n(&rec->dest, __ATOMIC_RELAXED);

		if (mark >> 32 != (uint32_t)(pos / VB_LINE) || !(uint32_t)mark)
			break;
		if (vb_rec_top(dest) == from && (rec->src & VB_QPN_MASK) == qp->qp.qp_num &&
		    (((rec->psn & VB_PSN_MASK) - first) & VB_PSN_MASK) < messages)
			__atomic_store_n(&rec->dest, vb_rec_word(dest & VB_QPN_MASK, to), __ATOMIC_RELEASE);
		pos += (uint64_t)(uint32_t)mark * VB_LINE;
	}
	vb_unlock(&peer->tx_lock);
}

void vb_local_release_held(struct vb_qp *qp)
{
	if (!qp->local.holding)
		return;
	qp->local.holding = false;
	change_records(qp, VB_REC_HELD, VB_REC_WRITE, VB_PSN_HALF);
	vb_peer_doorbell(qp->local.peer);
}

/*
 * Does the peer store data of one of our records? It sees that a record is held before it stores, or this process sees
 * that it has claimed the record (the membarrier of hold_writes). A claimed record of a stopped thread is not stored: the
 * kernel lets the thread begin again (util/guard.h), and then it sees that the record is held.
 */
static bool peer_stores(struct vb_peer *peer, uint64_t *placed)
{
	for (unsigned i = 0; i < SPINS; i++) {
		uint64_t claimed = atomic_load_explicit(&peer->theirs->claimed, memory_order_acquire);

		*placed = atomic_load_explicit(&peer->theirs->placed, memory_order_acquire);
		if (claimed == *placed)
			return false;
		vb_cpu_relax();
	}
	return !vb_peer_sleeps(peer);
}

static void hold_writes(struct vb_qp *qp)
{
	change_records(qp, VB_REC_WRITE, VB_REC_HELD, oldest_writes(qp));
	vb_fence_all(qp->node);
	qp->local.holding = true;
}

/* The message is only in part in the ring, which is full: the rest of it is one record, which says that the data is
 * written. The next record of this QP follows it. */
static void owe_last_record(struct vb_qp *qp, struct vb_swqe *w)
{
	w->psn = (uint32_t)(qp->attr.sq_psn + qp->local.ssn_emit++) & VB_PSN_MASK;
	qp->local.owed = vb_rec_word(w->psn, 1) | (qp->local.owed & VB_LOCAL_SHOWN);
	qp->local.sq_emit_off = 0;
	vb_local_count_sent(qp, w);
	qp->sq_emit++;
}

static enum vb_sq_status withdraw_writes(struct vb_qp *qp, uint64_t now)
{
	enum vb_sq_status status = VB_SQ_GOOD;
	struct vb_swqe *w = oldest_write(qp);
	uint64_t placed;

	if (!w) {
		vb_local_release_held(qp);
		return VB_SQ_GOOD;
	}
	if (!qp->local.holding)
		hold_writes(qp);
	if (peer_stores(qp->local.peer, &placed)) {
		qp->local.look = now + LOOK_SOON;
		return VB_SQ_GOOD;
	}
	for (; w && status == VB_SQ_GOOD; w = oldest_write(qp)) {
		bool sent = w->state == VB_SWQE_SENT;
		bool executed = sent && (int64_t)(placed - w->ring_end) >= 0;

		if (!executed && vb_local_direct(qp, w) != VB_DIRECT_DONE)
			break; /* the peer must judge it */
		choose_copies(qp, w);
		change_records(qp, VB_REC_HELD, VB_REC_WRITTEN, 1);
		if (!sent)
			owe_last_record(qp, w);
		status = complete(qp, w);
	}
	vb_local_release_held(qp);
	return status;
}

/* If no request is outstanding, the slot is free: a program may be writing its next request there, without sq_lock. */
static bool oldest_is_small(struct vb_qp *qp)
{
	const struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);

	return w->opcode == IBV_WR_RDMA_WRITE && w->length <= VB_PINGPONG_MAX;
}

enum vb_sq_status vb_local_look(struct vb_qp *qp, uint64_t now)
{
	struct vb_local_qp *l = &qp->local;

	if (now < l->look)
		return VB_SQ_GOOD;
	bool idle = qp->sq_una == qp->sq_emit && !l->sq_emit_off;
	uint64_t seen = signs_of_work(qp);

	l->look = idle ? 0 : now + (oldest_is_small(qp) ? VB_WITHDRAW_SOON : VB_WITHDRAW_AFTER);
	if (idle || (!l->holding && seen != l->look_seen)) {
		l->look_seen = seen;
		return VB_SQ_GOOD;
	}
	enum vb_sq_status status = l->holding ? VB_SQ_GOOD : withdraw_reads(qp);

	return status == VB_SQ_GOOD ? withdraw_writes(qp, now) : status;
}
