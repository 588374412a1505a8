// requester.c - the send queue on one host: sends requests, and handles acknowledgements, NAKs and lost requests
// follows: IBA volume 1, 9.7.5 (acknowledgements), 9.9 (errors), 10.8 (ordering), over rings in shared memory
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/mr.h"
#include "core/opcode.h"
#include "core/pd.h"
#include "engine/local/requester.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "util/guard.h"
#include "util/units.h"

#define STALL_LOOK VB_US(200)  /* ns: next visit of a QP whose records may have been dropped */
#define MEET_AGAIN VB_MS(1)    /* ns: pause between two questions to the broker about the peer's process */
#define UNLINKED_LOOK VB_MS(2) /* ns: next visit of a QP whose peer is not ready yet */
/* ns: requests to a program that has ended fail after this time, or earlier after the QP's own retries */
#define GIVE_UP_MAX VB_S(1)

/* --- completion --- */

/* Copies the result of an atomic from the peer's segment to the program's buffer. */
static bool take_atomic(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	uint64_t old =
	        atomic_load_explicit(&qp->remote->atomic_result[w->slot % VB_RD_ATOM_SLOTS], memory_order_relaxed);
	int n = vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov);
	const uint8_t *src = (const uint8_t *)&old;

	if (n < 0)
		return false;
	for (int i = 0; i < n; i++) {
		if (!vb_guard_copy_tail(iov[i].iov_base, src, iov[i].iov_len))
			return false;
		src += iov[i].iov_len;
	}
	return true;
}

static bool is_atomic(const struct vb_swqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Completes requests in order up to the first that is not done. Under sq_lock. */
static enum vb_sq_status retire(struct vb_qp *qp)
{
	while (qp->sq_una != qp->sq_emit || vb_sq_at(qp, qp->sq_una)->state == VB_SWQE_DONE) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);

		if (qp->sq_una == qp->sq_head)
			break;
		if (w->state == VB_SWQE_SENT) {
			if (qp->ssn_una >= qp->acked_seen || w->opcode == IBV_WR_RDMA_READ)
				break;
			if (is_atomic(w)) {
				qp->rd_outstanding--;
				if (!take_atomic(qp, w)) {
					w->state = VB_SWQE_DONE;
					w->status = IBV_WC_LOC_PROT_ERR;
					return VB_SQ_FAILED;
				}
			}
			qp->ssn_una++;
		} else if (w->state == VB_SWQE_DONE) {
			if (w->status != IBV_WC_SUCCESS)
				return VB_SQ_FAILED;
			if (w->opcode == IBV_WR_RDMA_READ && w->slot) /* answered by the ring */
				qp->ssn_una++;
		} else {
			break;
		}
		if (w->flags & IBV_SEND_SIGNALED)
			vb_sq_tell(qp, w, IBV_WC_SUCCESS);
		vb_sq_retire(qp);
	}
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	return VB_SQ_GOOD;
}

static bool path_open(struct vb_qp *qp)
{
	if (qp->timer_kind != VB_TIMER_NONE)
		return false;
	if (vb_linked(qp))
		return true;
	vb_wait_retry(qp);
	return false;
}

static enum vb_sq_status emit_all(struct vb_qp *qp)
{
	while (qp->sq_emit != qp->sq_head) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);
		enum vb_emit r;

		if (w->state == VB_SWQE_DONE) { /* refused when it was posted */
			r = w->status == IBV_WC_SUCCESS ? VB_EMIT_OK : VB_EMIT_FAILED;
		} else {
			if ((w->flags & IBV_SEND_FENCE) && qp->rd_outstanding) /* IBA 10.8.3.3 */
				return VB_SQ_GOOD;
			r = vb_emit_one(qp, w);
		}
		if (r == VB_EMIT_BLOCKED)
			return VB_SQ_GOOD;
		if (r == VB_EMIT_FAILED)
			return VB_SQ_FAILED;
		qp->sq_emit++;
		if (w->state == VB_SWQE_DONE && retire(qp) == VB_SQ_FAILED)
			return VB_SQ_FAILED;
	}
	return VB_SQ_GOOD;
}

/* Adds the QP to the active list before it sends: the acknowledgement may arrive before this thread returns, and its
 * doorbell rings only once. */
static void expect_answers(struct vb_qp *qp)
{
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	if (qp->sq_una != qp->sq_head && !atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
}

enum vb_sq_status vb_local_kick_datagrams(struct vb_qp *qp)
{
	expect_answers(qp);
	if (qp->sq_emit == qp->sq_head)
		return VB_SQ_GOOD;
	enum vb_sq_status status = vb_emit_datagrams(qp);

	if (status == VB_SQ_GOOD)
		status = retire(qp);
	if (qp->tx_open)
		qp->path->datagrams_end(qp);
	return status;
}

enum vb_sq_status vb_local_kick(struct vb_qp *qp)
{
	expect_answers(qp);
	if (qp->sq_emit == qp->sq_head || !path_open(qp))
		return VB_SQ_GOOD;
	struct vb_peer *peer = qp->peer;
	uint64_t before = qp->last_ring_end;
	enum vb_sq_status status = emit_all(qp);

	if (status == VB_SQ_GOOD && qp->sq_emit != qp->sq_head && vb_want_space(peer))
		status = emit_all(qp);
	if (qp->last_ring_end != before || qp->sq_emit_off) {
		vb_peer_notify(peer);
		if (atomic_load_explicit(&peer->tx_low, memory_order_relaxed)) {
			vb_lock(&peer->tx_lock);
			vb_ring_prepare(peer);
			vb_unlock(&peer->tx_lock);
		}
	}
	return status;
}

/* --- failure --- */

/* Fails the oldest request. Under progress + sq_lock. */
static void fail_oldest(struct vb_qp *qp, enum ibv_wc_status status)
{
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);

	vb_stop_timer(qp);
	vb_sq_tell(qp, w, status);
	vb_sq_retire(qp);
	if ((int32_t)(qp->sq_emit - qp->sq_una) < 0)
		qp->sq_emit = qp->sq_una;
	qp->sq_emit_off = 0;
	if (qp->type == IBV_QPT_RC)
		vb_qp_error(qp);
	else
		vb_qp_sq_error(qp);
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
}

void vb_local_settle(struct vb_qp *qp)
{
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS && retire(qp) == VB_SQ_FAILED)
		fail_oldest(qp, vb_sq_at(qp, qp->sq_una)->status);
}

/* --- acknowledgements and NAKs --- */

/* The number of our requests that the peer has received. They are not repeated, even if they are not acknowledged: an
 * unanswered read delays the acknowledgement of requests behind it that were executed. */
static uint64_t taken(const struct vb_qp *qp)
{
	uint64_t n =
	        qp->remote ? qp->acked_base + atomic_load_explicit(&qp->remote->processed, memory_order_acquire) : 0;

	if (n > qp->ssn_emit) /* more than were sent: ignored */
		n = 0;
	if (n < qp->acked_seen)
		n = qp->acked_seen;
	return n < qp->ssn_una ? qp->ssn_una : n;
}

/* Goes back to the oldest request that the peer has not received, to send again from there. from is a count like
 * ssn_una. Each entry between sq_una and sq_emit has one PSN, so differences of counts are distances. */
static void rollback(struct vb_qp *qp, uint64_t from)
{
	uint32_t first = qp->sq_una + (uint32_t)(from - qp->ssn_una);

	for (uint32_t i = first; i != qp->sq_emit; i++) {
		struct vb_swqe *w = vb_sq_at(qp, i);

		if (w->state != VB_SWQE_SENT)
			continue;
		if (is_atomic(w) || w->opcode == IBV_WR_RDMA_READ)
			qp->rd_outstanding--;
		w->state = VB_SWQE_POSTED;
		w->direct = 0;
	}
	qp->sq_emit = first;
	qp->sq_emit_off = 0;
	qp->ssn_emit = from;
	VB_COUNT(retry, 1);
}

/* IBA table 45: RNR NAK timer field, in units of 10 us. */
static uint64_t rnr_ns(uint32_t code)
{
	static const uint32_t unit[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
	                                  48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
	                                  2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return unit[code & 31] * 10000ull;
}

/* Handles a NAK. Returns true if the QP has failed, false if requests will be repeated. */
static bool nak_fails_qp(struct vb_qp *qp, uint64_t nak)
{
	qp->nak_seen = (uint32_t)(nak >> 32);
	if (qp->sq_una == qp->sq_emit && !qp->sq_emit_off)
		return false; /* the NAK is for a request that has ended since */
	switch (nak & 0xff) {
	case VB_NAK_RNR:
		VB_COUNT(rnr_nak, 1);
		if (qp->attr.rnr_retry != 7) { /* 7: unlimited retries (IBA 9.7.5.2.8) */
			if (!qp->rnr_left) {
				fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
				return true;
			}
			qp->rnr_left--;
		}
		rollback(qp, taken(qp));
		qp->timer_kind = VB_TIMER_RNR;
		qp->deadline =
		        vb_now() + rnr_ns(atomic_load_explicit(&qp->remote->min_rnr_timer, memory_order_relaxed));
		vb_timer_armed(qp->node);
		return false;
	case VB_NAK_INV_REQ:
		fail_oldest(qp, IBV_WC_REM_INV_REQ_ERR);
		return true;
	case VB_NAK_ACCESS:
		fail_oldest(qp, IBV_WC_REM_ACCESS_ERR);
		return true;
	case VB_NAK_OP:
		fail_oldest(qp, IBV_WC_REM_OP_ERR);
		return true;
	case VB_NAK_SOURCE:
		fail_oldest(qp, IBV_WC_LOC_PROT_ERR);
		return true;
	default:
		return false;
	}
}

static void timer_expired(struct vb_qp *qp)
{
	bool retry = qp->timer_kind == VB_TIMER_RETRY;

	vb_stop_timer(qp);
	if (qp->type == IBV_QPT_UD) /* vb_emit_datagrams finds the datagrams that are due */
		return;
	if (qp->type == IBV_QPT_UC) {
		/* without a peer, unreliable requests are lost and complete (IBA 9.8.2) */
		if (retry && qp->sq_emit != qp->sq_head && !vb_linked(qp)) {
			VB_COUNT(drop_ud_path, 1);
			vb_emit_done(vb_sq_at(qp, qp->sq_emit));
			qp->sq_emit++;
			qp->sq_emit_off = 0;
		}
		return;
	}
	if (!retry)
		return;
	if (vb_timeout_ns(qp) || qp->gone) {
		if (!qp->retry_left || qp->gone) {
			fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
			return;
		}
		qp->retry_left--;
	}
	rollback(qp, taken(qp));
	qp->stall = 0;
	if (qp->remote && atomic_load_explicit(&qp->remote->gen, memory_order_acquire) != qp->remote_gen)
		qp->remote = NULL; /* vb_linked reads the peer's QP again */
}

/* Asks the broker for the peer's process, without waiting, if it is unknown or has ended. */
static void look_for_peer(struct vb_qp *qp, uint64_t now)
{
	int err;

	if (qp->type == IBV_QPT_UD || now < qp->meet_after)
		return;
	if (qp->peer && vb_peer_alive(qp->peer)) {
		if (!qp->remote && !vb_peer_ready(qp->peer)) {
			vb_peer_remind(qp->peer);
			qp->meet_after = now + MEET_AGAIN;
		}
		return;
	}
	if (qp->peer && qp->remote)
		return; /* the QP was connected and the other program has ended: the timer handles that */
	qp->peer = vb_peer_find(qp->node, qp->attr.dest_qp_num, &qp->attr.ah_attr.grh.dgid, 0, &err);
	qp->meet_after = now + MEET_AGAIN;
}

/* Reads the peer's acknowledgements. gone: its QP or program has ended, so requests that it executed but did not
 * acknowledge count too. */
static void take_acks(struct vb_qp *qp, bool gone)
{
	uint64_t executed = gone ? atomic_load_explicit(&qp->remote->executed, memory_order_acquire) : 0;
	uint64_t count = atomic_load_explicit(&qp->remote->acked, memory_order_acquire);

	if (executed > count)
		count = executed;
	if ((int32_t)(qp->ack_in - (uint32_t)count) > 0)
		count += qp->ack_in - (uint32_t)count;
	uint64_t acked = qp->acked_base + count;

	if (acked > qp->ssn_emit) /* more than were sent: ignored */
		acked = qp->acked_seen;
	if (acked > qp->acked_seen) {
		qp->acked_seen = acked;
		qp->retry_left = qp->attr.retry_cnt;
		qp->rnr_left = qp->attr.rnr_retry;
		qp->stall = 0;
		if (qp->timer_kind == VB_TIMER_RETRY)
			vb_stop_timer(qp);
	}
}

void vb_local_closing(struct vb_qp *qp)
{
	if (qp->type == IBV_QPT_RC && qp->peer && qp->remote &&
	    atomic_load_explicit(&qp->remote->gen, memory_order_acquire) - qp->remote_gen <= 1)
		take_acks(qp, true);
	vb_local_settle(qp);
}

/* Detects records that the peer consumed but neither executed nor refused. It dropped them, because its QP was not
 * ready. */
static void check_dropped(struct vb_qp *qp)
{
	if (qp->sq_una == qp->sq_emit || vb_sq_at(qp, qp->sq_una)->state != VB_SWQE_SENT ||
	    qp->timer_kind != VB_TIMER_NONE)
		return;
	if (taken(qp) > qp->ssn_una)
		return;
	if (atomic_load_explicit(&qp->peer->theirs->rx_head, memory_order_acquire) < vb_sq_at(qp, qp->sq_una)->ring_end)
		qp->stall = 0;
	else if (vb_ring_ready(qp->peer))
		return;
	else if (++qp->stall > 3)
		vb_wait_retry(qp);
}

/*
 * Sets the deadline of requests to a program that has ended. A hardware adapter would notice that by its retries, so
 * requests do not fail earlier: data of that program may still be in flight. They fail after GIVE_UP_MAX at the latest,
 * whatever the timeout, because no answer will come.
 */
static void give_up_later(struct vb_qp *qp)
{
	uint64_t total = vb_timeout_ns(qp) ? vb_timeout_ns(qp) * (qp->retry_left + 1u) : GIVE_UP_MAX;

	if (qp->timer_kind == VB_TIMER_RETRY && qp->gone)
		return;
	qp->gone = true;
	qp->timer_kind = VB_TIMER_RETRY;
	qp->deadline = vb_now() + (total < GIVE_UP_MAX ? total : GIVE_UP_MAX);
	vb_timer_armed(qp->node);
}

static void peer_died(struct vb_qp *qp)
{
	if (qp->type == IBV_QPT_RC) {
		take_acks(qp, true);
		if (retire(qp) == VB_SQ_FAILED)
			fail_oldest(qp, vb_sq_at(qp, qp->sq_una)->status);
		else if (qp->sq_una != qp->sq_head)
			give_up_later(qp);
		return;
	}
	if (qp->type == IBV_QPT_UC)
		while (qp->sq_emit != qp->sq_head)
			vb_emit_done(vb_sq_at(qp, qp->sq_emit++));
}

static void visit_locked(struct vb_qp *qp)
{
	uint64_t now;

	if (atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS &&
	    atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_SQD)
		return;
	now = qp->deadline || !qp->remote ? vb_now() : 0;
	look_for_peer(qp, now);
	if (qp->peer && qp->remote) {
		if (!vb_peer_alive(qp->peer)) {
			peer_died(qp);
		} else if (qp->type == IBV_QPT_RC) {
			/* the peer publishes acknowledgements, NAK and gen in this order, so they are read in the
			 * reverse order */
			uint32_t gens = atomic_load_explicit(&qp->remote->gen, memory_order_acquire) - qp->remote_gen;
			uint64_t nak = atomic_load_explicit(&qp->remote->nak, memory_order_acquire);

			/* 1: the peer's QP does not receive any more, but its fields are still of this connection */
			if (gens <= 1)
				take_acks(qp, gens);
			if (retire(qp) == VB_SQ_FAILED) {
				fail_oldest(qp, vb_sq_at(qp, qp->sq_una)->status);
				return;
			}
			if (gens <= 1 && nak && (uint32_t)(nak >> 32) != qp->nak_seen && nak_fails_qp(qp, nak))
				return;
			if (gens && qp->sq_una != qp->sq_head) {
				rollback(qp, qp->ssn_una);
				qp->remote = NULL;
				vb_wait_retry(qp);
			} else {
				check_dropped(qp);
			}
		}
	} else if (qp->timer_kind == VB_TIMER_RETRY && qp->type != IBV_QPT_UD && vb_linked(qp)) {
		vb_stop_timer(qp);
	}
	if (qp->deadline && now && now >= qp->deadline)
		timer_expired(qp);
	if (vb_sq_kick(qp) == VB_SQ_FAILED || retire(qp) == VB_SQ_FAILED)
		vb_local_settle(qp);
	vb_qp_check_drained(qp);
}

unsigned vb_local_visit(struct vb_qp *qp, bool finish)
{
	if (!atomic_load_explicit(&qp->sq_pending, memory_order_relaxed))
		return 0;
	if (finish)
		vb_lock(&qp->sq_lock);
	else if (!vb_trylock(&qp->sq_lock))
		return 0;
	uint32_t una = qp->sq_una, emit = qp->sq_emit, off = qp->sq_emit_off;

	visit_locked(qp);
	unsigned work = (una != qp->sq_una) + (emit != qp->sq_emit) + (off != qp->sq_emit_off);
	vb_unlock(&qp->sq_lock);
	return work;
}

uint64_t vb_local_deadline(struct vb_qp *qp)
{
	uint64_t at = 0;

	if (!atomic_load_explicit(&qp->sq_pending, memory_order_relaxed))
		return 0;
	vb_lock(&qp->sq_lock);
	if (qp->deadline || qp->stall) /* stall: records may have been dropped, which the next visit finds out */
		at = qp->deadline ? qp->deadline : vb_now() + STALL_LOOK;
	if (at && !qp->remote) { /* nothing notifies this process when the peer becomes ready */
		uint64_t soon = vb_now() + UNLINKED_LOOK;

		at = at < soon ? at : soon;
	}
	vb_unlock(&qp->sq_lock);
	return at;
}

bool vb_local_idle(const struct vb_qp *qp)
{
	return qp->sq_una == qp->sq_emit && !qp->sq_emit_off;
}

/* --- end of the queue pair --- */

void vb_local_closed(struct vb_qp *qp)
{
	atomic_store_explicit(&qp->shared->acked, atomic_load_explicit(&qp->executed, memory_order_relaxed),
	                      memory_order_release);
	if (qp->peer && vb_peer_alive(qp->peer))
		vb_peer_notify(qp->peer); /* threads of the peer that wait for this QP see that it has ended */
}

static void leave_acks(struct vb_qp *qp)
{
	struct vb_qp **q = &qp->node->acks;

	while (*q && *q != qp)
		q = &(*q)->acks_next;
	if (*q)
		*q = qp->acks_next;
	qp->on_acks = false;
}

void vb_local_reset(struct vb_qp *qp)
{
	leave_acks(qp);
	vb_active_collect(qp->node);
	vb_active_remove(qp);
	atomic_store(&qp->deadline, 0);
	qp->timer_kind = VB_TIMER_NONE;
	qp->peer = NULL;
	qp->remote = NULL;
	qp->sq_emit_off = 0;
	qp->last_ring_end = 0;
	qp->rd_outstanding = 0;
	qp->rd_slot = 0;
	qp->acked_seen = qp->ssn_una = qp->ssn_emit = 0;
	qp->ack_in = 0;
	qp->stall = 0;
	qp->gone = false;
	qp->processed = 0;
	qp->nak_state = false;
	qp->inread_head = qp->inread_tail = 0;
	atomic_store(&qp->ack_told, 0);
	atomic_store(&qp->executed,
	             0); /* shared->executed keeps its value until the next RTR, because the peer may still read it */
}

/* --- data and acknowledgements in records --- */

bool vb_local_ack(struct vb_qp *qp, uint32_t ack)
{
	if ((int32_t)(ack - qp->ack_in) <= 0)
		return false;
	qp->ack_in = ack;
	return true;
}

void vb_local_data(struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext, const uint8_t *payload)
{
	struct vb_qp *qp = peer->node->qps[VB_QP_INDEX(rec->dest & VB_QPN_MASK)];
	struct iovec iov[VB_MAX_SGE + 1];

	if (!qp || qp->qp.qp_num != (rec->dest & VB_QPN_MASK) || qp->peer != peer ||
	    qp->attr.dest_qp_num != (rec->src & VB_QPN_MASK))
		return;
	vb_lock(&qp->sq_lock);
	uint32_t delta = ((rec->psn & VB_PSN_MASK) - (uint32_t)(qp->attr.sq_psn + qp->ssn_una)) & VB_PSN_MASK;
	struct vb_swqe *w = NULL;

	/* each entry between una and emit has one PSN: LOCAL_INV and one-copy operations are never among them */
	if (delta < qp->sq_emit - qp->sq_una)
		w = vb_sq_at(qp, qp->sq_una + delta);
	if (!w || w->state != VB_SWQE_SENT || w->opcode != IBV_WR_RDMA_READ || w->psn != (rec->psn & VB_PSN_MASK) ||
	    ext->remote_addr > w->length || rec->length > w->length - ext->remote_addr)
		goto out;
	int n = vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov);
	bool ok = n >= 0 && vb_copy_to(iov, n, ext->remote_addr, payload, rec->length);

	if (!ok || ext->remote_addr + rec->length == w->length) {
		w->state = VB_SWQE_DONE;
		w->status = ok ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
		w->slot = 1; /* retire: the read has used a PSN */
		qp->rd_outstanding--;
		/* The peer executes all earlier requests before it answers a read. So the last data acknowledges them,
		 * and the read. */
		vb_local_ack(qp, (uint32_t)(qp->ssn_una - qp->acked_base + delta + 1));
	}
out:
	vb_unlock(&qp->sq_lock);
}
