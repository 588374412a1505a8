// requester.c - the send queue on one host: sends requests, completes them in order, visits queue pairs that wait
// follows: IBA volume 1, 9.7.5 (acknowledgements), 9.9 (errors), 10.8 (ordering), over rings in shared memory
// SPDX-License-Identifier: MIT

#include "core/opcode.h"
#include "engine/local/frames.h"
#include "engine/local/pingpong.h"
#include "engine/local/relay.h"
#include "engine/local/requester.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "util/guard.h"
#include "util/units.h"

#define STALL_LOOK VB_US(200)  /* ns: next visit of a QP whose records may have been dropped */
#define MEET_AGAIN VB_MS(1)    /* ns: pause between two questions to the broker about the peer's process */
#define UNLINKED_LOOK VB_MS(2) /* ns: next visit of a QP whose peer is not ready yet */
#define LOOKS 8u /* visits per look at what is rarer than acknowledgements and NAKs: lost records, an ended program */

/* --- completion --- */

/* Copies the result of an atomic from the peer's segment to the program's buffer. */
static bool take_atomic(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	uint64_t old = atomic_load_explicit(&qp->local.remote->atomic_result[w->slot % VB_RD_ATOM_SLOTS],
	                                    memory_order_relaxed);
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

enum vb_sq_status vb_local_retire_done(struct vb_qp *qp)
{
	if (vb_local_is_shown(qp))
		vb_local_show_answers(qp);
	while (qp->sq_una != qp->sq_head) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);

		if (vb_local_is_held(qp) && vb_local_pingpong_holds(qp))
			break;
		if (w->state == VB_SWQE_SENT) {
			if (qp->sq_una == qp->sq_emit || qp->local.ssn_una >= qp->local.acked_seen ||
			    w->opcode == IBV_WR_RDMA_READ)
				break;
			if (vb_local_is_atomic(w)) {
				qp->local.rd_outstanding--;
				if (!take_atomic(qp, w)) {
					w->state = VB_SWQE_DONE;
					w->status = IBV_WC_LOC_PROT_ERR;
					return VB_SQ_FAILED;
				}
			} else if (vb_local_is_placed(w)) {
				qp->local.rd_outstanding--;
			}
			if (w->opcode == IBV_WR_RDMA_WRITE && w->slot && w->begun)
				vb_local_rdma_done(qp, w, VB_RDMA_RING, w->begun);
			qp->local.ssn_una++;
		} else if (w->state == VB_SWQE_DONE) {
			if (w->status != IBV_WC_SUCCESS)
				return VB_SQ_FAILED;
			if (w->slot && (w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_RDMA_WRITE))
				qp->local.ssn_una++; /* it travelled in the ring */
		} else {
			break;
		}
		if (w->flags & VB_SEND_TOLD)
			vb_sq_tell(qp, w, IBV_WC_SUCCESS);
		vb_sq_retire(qp);
	}
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	return VB_SQ_GOOD;
}

static bool path_open(struct vb_qp *qp)
{
	if (qp->local.timer_kind != VB_TIMER_NONE)
		return false;
	if (__builtin_expect(!qp->local.cut, 1) && vb_local_linked(qp) && !vb_local_is_apart(qp))
		return true;
	vb_local_wait_retry(qp);
	return false;
}

/* Nobody hears what an unreliable queue pair sends where no way leads: its requests complete (IBA 9.8.2). */
static __attribute__((noinline, cold)) enum vb_sq_status lose_until(struct vb_qp *qp, uint32_t end)
{
	vb_local_stop_timer(qp);
	qp->local.sq_emit_off = 0;
	while (qp->sq_emit != end) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);

		if (w->state != VB_SWQE_DONE && vb_local_needs_no_peer(w))
			break;
		if (w->state != VB_SWQE_DONE) {
			VB_COUNT(drop_ud_path, 1);
			vb_local_emit_done(w);
		}
		qp->sq_emit++;
		if (vb_local_retire_done(qp) == VB_SQ_FAILED)
			return VB_SQ_FAILED;
	}
	return VB_SQ_GOOD;
}

static inline __attribute__((always_inline)) enum vb_sq_status emit_until(struct vb_qp *qp, uint32_t end)
{
	for (;;) {
		vb_local_emit_plain(qp, end);
		if (qp->sq_emit == end)
			return VB_SQ_GOOD;
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);
		enum vb_emit r;

		if (w->state == VB_SWQE_DONE) { /* refused when it was posted */
			r = w->status == IBV_WC_SUCCESS ? VB_EMIT_OK : VB_EMIT_FAILED;
		} else {
			if ((w->flags & IBV_SEND_FENCE) &&
			    qp->local.rd_outstanding != qp->local.rd_withdrawn) /* IBA 10.8.3.3 */
				return VB_SQ_GOOD;
			r = vb_local_is_shown(qp) ? vb_local_emit_shown(qp, w) : vb_local_emit_one(qp, w);
			if (r == VB_EMIT_OK)
				vb_local_count_sent(qp, w);
		}
		if (r == VB_EMIT_BLOCKED)
			return VB_SQ_GOOD;
		if (r == VB_EMIT_FAILED)
			return VB_SQ_FAILED;
		qp->sq_emit++;
		if (w->state == VB_SWQE_DONE && vb_local_retire_done(qp) == VB_SQ_FAILED)
			return VB_SQ_FAILED;
		if (qp->sq_emit == end)
			return VB_SQ_GOOD;
	}
}

/* Adds the QP to the active list before it sends: the acknowledgement may arrive before this thread returns, and its
 * doorbell rings only once. */
static inline __attribute__((always_inline)) void expect_answers(struct vb_qp *qp)
{
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	if (qp->sq_una != qp->sq_head && !atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
}

enum vb_sq_status vb_local_kick_datagrams_until(struct vb_qp *qp, uint32_t end)
{
	expect_answers(qp);
	if (qp->sq_emit == end)
		return VB_SQ_GOOD;
	enum vb_sq_status status = vb_local_emit_datagrams(qp, end);

	if (status == VB_SQ_GOOD)
		status = vb_local_retire_done(qp);
	if (qp->datagram.tx_open)
		qp->path->datagrams_end(qp);
	return status;
}

enum vb_sq_status vb_local_kick_datagrams(struct vb_qp *qp)
{
	return vb_local_kick_datagrams_until(qp, qp->sq_head);
}

/* Without a peer: executes the oldest requests if they need none. */
static __attribute__((noinline, cold)) enum vb_sq_status kick_alone(struct vb_qp *qp, uint32_t end)
{
	while (qp->sq_emit != end && qp->sq_una == qp->sq_emit) {
		struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);

		if (w->state == VB_SWQE_DONE || !vb_local_needs_no_peer(w))
			break;
		enum vb_emit r = vb_local_emit_one(qp, w);

		if (r == VB_EMIT_BLOCKED)
			break;
		if (r == VB_EMIT_FAILED)
			return VB_SQ_FAILED;
		qp->sq_emit++;
		if (vb_local_retire_done(qp) == VB_SQ_FAILED)
			return VB_SQ_FAILED;
	}
	if (qp->sq_una == qp->sq_head && qp->local.timer_kind == VB_TIMER_RETRY)
		vb_local_stop_timer(qp);
	return VB_SQ_GOOD;
}

static inline __attribute__((always_inline)) enum vb_sq_status kick_until(struct vb_qp *qp, uint32_t end)
{
	expect_answers(qp);
	if (qp->sq_emit == end)
		return VB_SQ_GOOD;
	if (!path_open(qp)) {
		if (qp->type == IBV_QPT_UC && (qp->local.cut || vb_local_is_apart(qp)) &&
		    lose_until(qp, end) == VB_SQ_FAILED)
			return VB_SQ_FAILED;
		return kick_alone(qp, end);
	}
	struct vb_peer *peer = qp->local.peer;
	uint64_t before = qp->local.last_ring_end;

	if (__builtin_expect(vb_local_is_held(qp), 0))
		vb_local_pingpong_release(qp);
	enum vb_sq_status status = emit_until(qp, end);

	if (status == VB_SQ_GOOD && qp->sq_emit != end && vb_ring_want_space(peer))
		status = emit_until(qp, end);
	if (qp->local.last_ring_end != before || qp->local.sq_emit_off) {
		vb_peer_notify(peer);
		if (atomic_load_explicit(&peer->tx_low, memory_order_relaxed)) {
			vb_lock(&peer->tx_lock);
			vb_ring_prepare(peer);
			vb_unlock(&peer->tx_lock);
		}
	}
	return status;
}

enum vb_sq_status vb_local_kick(struct vb_qp *qp)
{
	return kick_until(qp, qp->sq_head);
}

enum vb_sq_status vb_local_kick_until(struct vb_qp *qp, uint32_t end)
{
	return kick_until(qp, end);
}

/* --- failure --- */

void vb_local_fail_oldest(struct vb_qp *qp, enum ibv_wc_status status)
{
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_una);

	vb_local_stop_timer(qp);
	vb_local_release_held(qp);
	vb_sq_tell(qp, w, status);
	vb_sq_retire(qp);
	if ((int32_t)(qp->sq_emit - qp->sq_una) < 0)
		qp->sq_emit = qp->sq_una;
	qp->local.sq_emit_off = 0;
	if (vb_qp_is_reliable(qp))
		vb_qp_error(qp);
	else
		vb_qp_sq_error(qp);
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
}

void vb_local_settle(struct vb_qp *qp)
{
	unsigned state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	vb_local_pingpong_release(qp);
	if ((state == IBV_QPS_RTS || state == IBV_QPS_SQD) && vb_local_retire_done(qp) == VB_SQ_FAILED)
		vb_local_fail_oldest(qp, vb_sq_at(qp, qp->sq_una)->status);
}

/* --- acknowledgements --- */

void vb_local_end_hold(struct vb_qp *qp)
{
	if (__builtin_expect(!vb_local_is_held(qp), 1))
		return;
	vb_local_pingpong_release(qp);
	(void)vb_local_retire_done(qp); /* a request that is held has not failed */
}

/* Asks the broker for the peer's process, without waiting, if it is unknown or has ended. */
static void look_for_peer(struct vb_qp *qp, uint64_t now)
{
	int err;

	if (qp->type == IBV_QPT_UD || qp->local.cut || now < qp->local.meet_after)
		return;
	if (qp->local.peer && vb_peer_alive(qp->local.peer)) {
		if (!qp->local.remote && !vb_peer_ready(qp->local.peer)) {
			vb_peer_remind(qp->local.peer);
			qp->local.meet_after = now + MEET_AGAIN;
		}
		return;
	}
	if (qp->local.peer && qp->local.remote)
		return; /* the QP was connected and the other program has ended: the timer handles that */
	qp->local.peer = vb_peer_find(qp->node, qp->attr.dest_qp_num, &qp->met, 0, &err);
	qp->local.meet_after = now + MEET_AGAIN;
}

void vb_local_take_acks(struct vb_qp *qp, bool gone)
{
	uint64_t executed = gone ? atomic_load_explicit(&qp->local.remote->executed, memory_order_acquire) : 0;
	uint64_t count = atomic_load_explicit(&qp->local.remote->acked, memory_order_acquire);

	if (executed > count)
		count = executed;
	qp->local.acked_read = (uint32_t)count;
	qp->local.ack_in_read = qp->local.ack_in;
	if ((int32_t)(qp->local.ack_in - (uint32_t)count) > 0)
		count += qp->local.ack_in - (uint32_t)count;
	uint64_t acked = qp->local.acked_base + count;

	if (acked > qp->local.ssn_emit) /* more than were sent: ignored */
		acked = qp->local.acked_seen;
	if (acked > qp->local.acked_seen) {
		qp->local.acked_seen = acked;
		qp->local.retry_left = qp->attr.retry_cnt;
		qp->local.rnr_left = qp->attr.rnr_retry;
		qp->local.stall = 0;
		if (qp->local.timer_kind == VB_TIMER_RETRY)
			vb_local_stop_timer(qp);
		if (qp->local.rd_withdrawn && acked >= qp->local.withdrawn_end) {
			qp->local.rd_outstanding -= qp->local.rd_withdrawn;
			qp->local.rd_withdrawn = 0;
			atomic_store_explicit(&qp->shared->withdrawn, 0, memory_order_relaxed);
		}
	}
}

bool vb_local_reads_withdrawn(struct vb_qp *qp)
{
	if (__builtin_expect(!qp->local.rd_withdrawn, 1))
		return false;
	vb_local_take_acks(qp, false);
	return qp->local.rd_withdrawn;
}

void vb_local_closing(struct vb_qp *qp)
{
	if (vb_qp_is_reliable(qp) && qp->local.peer && qp->local.remote &&
	    atomic_load_explicit(&qp->local.remote->gen, memory_order_acquire) - qp->local.remote_gen <= 1)
		vb_local_take_acks(qp, true);
	vb_local_settle(qp);
}

static void visit_locked(struct vb_qp *qp)
{
	uint64_t now;

	if (atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS &&
	    atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_SQD)
		return;
	now = qp->local.deadline || qp->local.look || !qp->local.remote ? vb_now() : 0;
	look_for_peer(qp, now);
	if (qp->local.peer && qp->local.remote) {
		if (!vb_peer_alive(qp->local.peer)) {
			vb_local_peer_died(qp);
		} else if (vb_qp_is_reliable(qp)) {
			/* the peer publishes acknowledgements, NAK and gen in this order, so they are read in the
			 * reverse order */
			uint32_t gens = atomic_load_explicit(&qp->local.remote->gen, memory_order_acquire) -
			                qp->local.remote_gen;
			uint64_t nak = atomic_load_explicit(&qp->local.remote->nak, memory_order_acquire);

			/* 1: the peer's QP does not receive any more, but its fields are still of this connection */
			if (gens <= 1)
				vb_local_take_acks(qp, gens);
			if (gens)
				vb_local_pingpong_release(qp);
			if (vb_local_retire_done(qp) == VB_SQ_FAILED ||
			    (qp->local.look && !gens && vb_local_look(qp, now) == VB_SQ_FAILED)) {
				vb_local_fail_oldest(qp, vb_sq_at(qp, qp->sq_una)->status);
				return;
			}
			if (gens <= 1 && nak && VB_RING_NAK_COUNTER(nak) != qp->local.nak_seen &&
			    (vb_local_nak_is_early(qp, nak) || !vb_local_handle_nak(qp, nak)))
				return;
			if (gens && qp->sq_una != qp->sq_head) {
				vb_local_go_back_to(qp, qp->local.ssn_una);
				qp->local.remote = NULL;
				vb_local_wait_retry(qp);
			} else {
				vb_local_check_dropped(qp);
			}
		}
	} else if (qp->local.timer_kind == VB_TIMER_RETRY && qp->type != IBV_QPT_UD && vb_local_linked(qp)) {
		vb_local_stop_timer(qp);
	}
	if (qp->local.deadline && now && now >= qp->local.deadline)
		vb_local_timer_expired(qp);
	if (vb_sq_kick(qp) == VB_SQ_FAILED || vb_local_retire_done(qp) == VB_SQ_FAILED)
		vb_local_settle(qp);
	vb_qp_check_drained(qp);
}

/* Is there nothing to look after but requests that are in the ring? Under sq_lock. */
static inline bool only_awaits_acks(const struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS && qp->local.remote &&
	       qp->sq_emit == qp->sq_head && !atomic_load_explicit(&qp->local.deadline, memory_order_relaxed) &&
	       !qp->local.look && !vb_local_is_held(qp) && !qp->local.owed;
}

/* Has the peer published no acknowledgement, no NAK and no end of its QP since the last visit? Under progress + sq_lock. */
static inline bool nothing_published(const struct vb_qp *qp)
{
	struct vb_qp_shared *r = qp->local.remote;

	return (uint32_t)atomic_load_explicit(&r->acked, memory_order_relaxed) == qp->local.acked_read &&
	       qp->local.ack_in == qp->local.ack_in_read &&
	       VB_RING_NAK_COUNTER(atomic_load_explicit(&r->nak, memory_order_relaxed)) == qp->local.nak_seen &&
	       atomic_load_explicit(&r->gen, memory_order_relaxed) == qp->local.remote_gen;
}

unsigned vb_local_visit(struct vb_qp *qp, bool finish)
{
	if (!atomic_load_explicit(&qp->sq_pending, memory_order_relaxed))
		return 0;
	if (finish)
		vb_lock(&qp->sq_lock);
	else if (!vb_trylock(&qp->sq_lock))
		return 0;
	/* a poll in vain comes back to the program soon, and to the ring */
	if (!finish && only_awaits_acks(qp) && nothing_published(qp) && ++qp->local.looks % LOOKS != 0) {
		vb_unlock(&qp->sq_lock);
		return 0;
	}
	uint32_t una = qp->sq_una, emit = qp->sq_emit, off = qp->local.sq_emit_off;

	visit_locked(qp);
	unsigned work = (una != qp->sq_una) + (emit != qp->sq_emit) + (off != qp->local.sq_emit_off);
	vb_unlock(&qp->sq_lock);
	return work;
}

void vb_local_acked(struct vb_qp *qp)
{
	vb_lock(&qp->sq_lock);
	if (__builtin_expect(only_awaits_acks(qp), 1)) {
		vb_local_take_acks(qp, false);
		if (vb_local_retire_done(qp) == VB_SQ_FAILED)
			vb_local_fail_oldest(qp, vb_sq_at(qp, qp->sq_una)->status);
	} else {
		visit_locked(qp);
	}
	vb_unlock(&qp->sq_lock);
}

uint64_t vb_local_deadline(struct vb_qp *qp)
{
	uint64_t at = 0;

	if (!atomic_load_explicit(&qp->sq_pending, memory_order_relaxed))
		return 0;
	vb_lock(&qp->sq_lock);
	if (qp->local.deadline ||
	    qp->local.stall) /* stall: records may have been dropped, which the next visit finds out */
		at = qp->local.deadline ? qp->local.deadline : vb_now() + STALL_LOOK;
	if (at && !qp->local.remote) { /* nothing notifies this process when the peer becomes ready */
		uint64_t soon = vb_now() + UNLINKED_LOOK;

		at = at < soon ? at : soon;
	}
	if (qp->local.look && (!at || qp->local.look < at))
		at = qp->local.look;
	uint64_t until = atomic_load_explicit(&qp->local.pingpong.until, memory_order_relaxed);
	if (until && (!at || until < at))
		at = until;
	vb_unlock(&qp->sq_lock);
	return at;
}

bool vb_local_resolved(const struct vb_qp *qp)
{
	return qp->local.remote || (qp->local.peer && vb_peer_alive(qp->local.peer));
}

bool vb_local_idle(const struct vb_qp *qp)
{
	return qp->sq_una == qp->sq_emit && !qp->local.sq_emit_off;
}

void vb_local_next_psns(const struct vb_qp *qp, uint32_t *sq_psn, uint32_t *rq_psn)
{
	*sq_psn = (uint32_t)(qp->attr.sq_psn + qp->local.ssn_emit) & VB_PSN_MASK;
	*rq_psn = qp->local.epsn;
}

/* --- data in records --- */

void vb_local_data(struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext, const uint8_t *payload)
{
	struct vb_qp *qp = peer->node->qps[VB_QP_INDEX(rec->dest & VB_QPN_MASK)];
	struct iovec iov[VB_MAX_SGE + 1];

	if (qp && qp->type == IBV_QPT_XRC_RECV) {
		vb_relay_data(qp, peer, rec, ext, payload);
		return;
	}
	if (!qp || qp->qp.qp_num != (rec->dest & VB_QPN_MASK) || qp->local.peer != peer ||
	    qp->attr.dest_qp_num != (rec->src & VB_QPN_MASK))
		return;
	vb_lock(&qp->sq_lock);
	uint32_t delta = ((rec->psn & VB_PSN_MASK) - (uint32_t)(qp->attr.sq_psn + qp->local.ssn_una)) & VB_PSN_MASK;
	struct vb_swqe *w = NULL;

	/* each entry between una and emit has one PSN: local operations and one-copy operations are never among them */
	if (delta < qp->sq_emit - qp->sq_una)
		w = vb_sq_at(qp, qp->sq_una + delta);
	if (!w || w->state != VB_SWQE_SENT || w->opcode != IBV_WR_RDMA_READ || w->psn != (rec->psn & VB_PSN_MASK) ||
	    ext->remote_addr > w->length || rec->length > w->length - ext->remote_addr)
		goto out;
	qp->local.read_data++;
	int n = vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov);
	bool ok = n >= 0 && vb_copy_to(iov, n, ext->remote_addr, payload, rec->length);

	if (!ok || ext->remote_addr + rec->length == w->length) {
		w->state = VB_SWQE_DONE;
		w->status = ok ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
		w->slot = 1; /* retire: the read has used a PSN */
		qp->local.rd_outstanding--;
		if (w->begun)
			vb_local_rdma_done(qp, w, VB_RDMA_RING, w->begun);
		/* The peer executes all earlier requests before it answers a read. So the last data acknowledges them,
		 * and the read. */
		vb_local_ack(qp, (uint32_t)(qp->local.ssn_una - qp->local.acked_base + delta + 1));
	}
out:
	vb_unlock(&qp->sq_lock);
}
