// emit.c - writes send queue entries to our ring to the peer, or copies their data
// follows: IBA volume 1, 9.7.3 (requester), 10.8 (ordering), over rings in shared memory
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/ib.h"
#include "core/mr.h"
#include "core/mw.h"
#include "core/opcode.h"
#include "core/pd.h"
#include "core/place.h"
#include "engine/local/pingpong.h"
#include "engine/local/requester.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "util/guard.h"
#include "util/units.h"

#define RETRY_PAUSE VB_MS(100) /* ns: retry interval of a QP without a timeout */
/* RDMA writes of up to this length use the ring while earlier records of their QP are in flight. */
#define RING_WRITE_MAX 4096u

/* --- the peer's process and queue pair --- */

/* An XRC initiator sends to a target; the others have peers of their own type. */
static uint32_t type_of_peer(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : qp->type;
}

bool vb_local_link(struct vb_qp *qp)
{
	struct vb_peer *peer = qp->local.peer;

	if (!peer || !vb_peer_alive(peer))
		return false;
	if (!vb_peer_ready(peer))
		return false;

	struct vb_qp_shared *r = vb_seg_qp(peer->seg, qp->attr.dest_qp_num);
	uint32_t gen = atomic_load_explicit(&r->gen, memory_order_acquire);
	uint64_t acked = atomic_load_explicit(&r->acked, memory_order_relaxed);
	uint32_t partition = atomic_load(&r->partition);

	if (!(gen & 1) || atomic_load(&r->qpn) != qp->attr.dest_qp_num || atomic_load(&r->type) != type_of_peer(qp) ||
	    atomic_load(&r->dest_qpn) != qp->qp.qp_num ||
	    !vb_ib_partitions_match(partition, atomic_load(&qp->shared->partition)) ||
	    !vb_ib_takes_from(partition, qp->local.way))
		return false;
	/* IBA 9.7.1: the requester's next PSN must be the responder's expected PSN */
	if (vb_qp_is_reliable(qp) &&
	    ((atomic_load(&r->rq_psn) + acked - qp->attr.sq_psn - qp->local.ssn_una) & VB_PSN_MASK))
		return false;
	qp->local.remote = r;
	qp->local.remote_gen = gen;
	qp->local.remote_partition = partition;
	qp->local.acked_base = qp->local.ssn_una - acked;
	qp->local.nak_seen = VB_RING_NAK_COUNTER(atomic_load_explicit(&r->nak, memory_order_relaxed));
	return true;
}

bool vb_local_look_apart(struct vb_qp *qp)
{
	uint32_t theirs = atomic_load_explicit(&qp->local.remote->partition, memory_order_relaxed),
	         ours = atomic_load_explicit(&qp->shared->partition, memory_order_relaxed);

	if (!vb_ib_partitions_match(theirs, ours) || !vb_ib_takes_from(theirs, qp->local.way))
		return true;
	qp->local.remote_partition = theirs;
	return false;
}

uint64_t vb_local_timeout_ns(const struct vb_qp *qp)
{
	return qp->attr.timeout ? 4096ull << qp->attr.timeout : 0;
}

void vb_local_wait_retry(struct vb_qp *qp)
{
	if (qp->local.deadline)
		return;
	uint64_t t = vb_local_timeout_ns(qp);

	qp->local.timer_kind = VB_TIMER_RETRY;
	qp->local.deadline = vb_now() + (t ? t : RETRY_PAUSE);
	vb_timer_armed(qp->node);
}

/* --- records --- */

static uint32_t next_psn(const struct vb_qp *qp)
{
	return (uint32_t)(qp->attr.sq_psn + qp->local.ssn_emit) & VB_PSN_MASK;
}

/* Copies the next piece of a large message, and measures what that costs. Out of the way of small messages. */
static __attribute__((noinline)) bool copy_measured(struct vb_peer *peer, const struct vb_swqe *w,
                                                    const struct iovec *iov, int n, uint32_t off, uint8_t *to,
                                                    uint32_t piece)
{
	struct vb_cost *cost = &peer->choice[vb_choice_class(w->length)].ring;
	uint64_t begin = piece < VB_CHOICE_MIN ? 0 : vb_cost_begin(cost);
	bool ok = vb_copy_from(iov, n, off, to, piece);

	vb_cost_end(cost, begin, piece);
	return ok;
}

/* Writes the payload of a SEND or a WRITE in pieces, until the ring is full. local.sq_emit_off is the offset of the
 * next piece. */
static enum vb_emit emit_pieces(struct vb_qp *qp, struct vb_swqe *w, unsigned type)
{
	struct iovec iov[VB_MAX_SGE + 1];
	struct vb_peer *peer = qp->local.peer;
	int n = vb_gather(qp, w, 0, iov);

	if (n < 0)
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	do {
		uint32_t off = qp->local.sq_emit_off, left = w->length - off;
		uint32_t piece = left < VB_RING_PIECE ? left : VB_RING_PIECE;
		unsigned flags =
		        (off ? 0 : VB_RECF_FIRST) | (piece == left ? VB_RECF_LAST | vb_local_message_flags(w) : 0);
		uint32_t head = type == VB_REC_WRITE ? vb_rec_rdma_head(piece) : vb_rec_send_head(piece);
		struct vb_rec *rec = vb_ring_reserve(peer, head + piece);

		if (!rec)
			return VB_EMIT_BLOCKED;
		if (type == VB_REC_WRITE) {
			struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);

			ext->remote_addr = w->remote_addr + off;
			ext->rkey = w->rkey;
			ext->total = w->length;
		}
		uint8_t *to = (uint8_t *)rec + head;

		if (!(w->length < VB_CHOICE_MIN ? vb_copy_from(iov, n, off, to, piece)
		                                : copy_measured(peer, w, iov, n, off, to, piece)))
			return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
		if (type == VB_REC_WRITE && w->slot)
			flags |= VB_RECF_MAY_HOLD;
		vb_rec_fill(qp, rec, type, flags, next_psn(qp), piece, w->imm);
		vb_ring_commit(peer, head + piece);
		if (left > piece) {
			vb_peer_notify(peer);
			vb_ring_prepare(peer);
		}
		qp->local.sq_emit_off = off + piece;
	} while (qp->local.sq_emit_off < w->length);
	qp->local.sq_emit_off = 0;
	return VB_EMIT_OK;
}

/* Writes the last record of a write that was withdrawn when only a part of it was in the ring. Returns false if there is
 * no room. */
static bool emit_owed(struct vb_qp *qp)
{
	if (!(qp->local.owed & ~VB_LOCAL_SHOWN))
		return true;
	struct vb_rec *rec = vb_ring_reserve(qp->local.peer, VB_REC_HEAD_EXT);

	if (!rec)
		return false;
	memset(rec + 1, 0, sizeof(struct vb_rec_ext));
	vb_rec_fill(qp, rec, VB_REC_WRITTEN, VB_RECF_LAST, qp->local.owed & VB_PSN_MASK, 0, 0);
	vb_ring_commit(qp->local.peer, VB_REC_HEAD_EXT);
	qp->local.owed &= VB_LOCAL_SHOWN;
	return true;
}

/* Writes the record of a SEND whose data the receiver fetches. */
static enum vb_emit emit_pull(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	int n = vb_gather(qp, w, 0, iov);

	if (n < 0)
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	uint32_t bytes = (uint32_t)(n * sizeof(struct vb_rec_span));
	struct vb_rec *rec = vb_ring_reserve(qp->local.peer, VB_REC_HEAD_EXT + bytes);

	if (!rec)
		return VB_EMIT_BLOCKED;
	struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);
	struct vb_rec_span *span = (struct vb_rec_span *)(ext + 1);

	ext->total = w->length;
	for (int i = 0; i < n; i++)
		span[i] = (struct vb_rec_span){(uintptr_t)iov[i].iov_base, iov[i].iov_len};
	vb_rec_fill(qp, rec, VB_REC_PULL, VB_RECF_FIRST | VB_RECF_LAST | vb_local_message_flags(w), next_psn(qp), bytes,
	            w->imm);
	vb_ring_commit(qp->local.peer, VB_REC_HEAD_EXT + bytes);
	return VB_EMIT_OK;
}

/* Writes a record that has only a head and an extension. */
static enum vb_emit emit_ext(struct vb_qp *qp, struct vb_swqe *w, unsigned type, unsigned flags)
{
	struct vb_rec *rec = vb_ring_reserve(qp->local.peer, VB_REC_HEAD_EXT);

	if (!rec)
		return VB_EMIT_BLOCKED;
	struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);

	ext->remote_addr = w->remote_addr;
	ext->rkey = w->rkey;
	ext->total = type == VB_REC_ATOMIC ? w->slot : w->length;
	ext->compare_add = w->compare_add;
	ext->swap = w->swap;
	vb_rec_fill(qp, rec, type, flags | VB_RECF_FIRST | VB_RECF_LAST | vb_local_message_flags(w), next_psn(qp), 0,
	            w->imm);
	vb_ring_commit(qp->local.peer, VB_REC_HEAD_EXT);
	return VB_EMIT_OK;
}

/* --- one work request --- */

/* Have all records of this QP been executed? Then a one-copy operation may start. */
static bool ring_settled(struct vb_qp *qp)
{
	if (vb_qp_is_reliable(qp))
		return qp->sq_una == qp->sq_emit && !qp->local.sq_emit_off;
	/* read without tx_lock, so not stored in tx_head */
	return (int64_t)(atomic_load_explicit(&qp->local.peer->theirs->rx_head, memory_order_acquire) -
	                 qp->local.last_ring_end) >= 0;
}

static enum vb_emit mark_sent(struct vb_qp *qp, struct vb_swqe *w, enum vb_emit r)
{
	if (r != VB_EMIT_OK)
		return r;
	w->ring_end = qp->local.last_ring_end = qp->local.peer->tx_tail;
	w->psn = next_psn(qp);
	qp->local.ssn_emit++;
	if (vb_qp_is_reliable(qp)) {
		w->state = VB_SWQE_SENT;
	} else {
		w->state = VB_SWQE_DONE;
		w->status = IBV_WC_SUCCESS;
	}
	return VB_EMIT_OK;
}

/* Is any of its memory out of reach of the receiver? */
static bool is_by_owner(const struct vb_qp *qp, const struct vb_swqe *w)
{
	const struct ibv_sge *sge = &qp->ssge[(size_t)(w - qp->swqe) * qp->sq_max_sge];

	for (uint32_t i = 0; i < w->num_sge; i++)
		if (atomic_load_explicit(&vb_seg_mr_of(qp->node->seg, sge[i].lkey)->access, memory_order_relaxed) &
		    VB_MR_BY_OWNER)
			return true;
	return false;
}

/* Is this large SEND fetched by the receiver? UC requests complete when they are in the ring, and then the program may
 * reuse their buffers. So their data cannot be fetched later, nor can inline data, nor a message that is already partly
 * in the ring. Within one process a single thread would make both copies of a message in the ring. Under tx_lock. */
static __attribute__((noinline)) bool is_fetched(const struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_peer *peer = qp->local.peer;
	unsigned class = vb_choice_class(w->length);

	/* the target passes what is for another process on, and cannot pass this memory on */
	if (qp->type == IBV_QPT_XRC_SEND && VB_QP_LANE(qp->xrc.srqns[w - qp->swqe]) != VB_QP_LANE(qp->attr.dest_qp_num))
		return false;
	if (!vb_qp_is_reliable(qp) || (w->flags & IBV_SEND_INLINE) || qp->local.sq_emit_off ||
	    !atomic_load_explicit(&peer->theirs->can_pull, memory_order_relaxed))
		return false;
	if (peer->self)
		return true;
	return !is_by_owner(qp, w) && vb_choose(&peer->choice[class], &peer->theirs->costs[class]) == VB_SEND_FETCHED;
}

static enum vb_emit emit_send(struct vb_qp *qp, struct vb_swqe *w)
{
	struct vb_peer *peer = qp->local.peer;
	enum vb_emit r = VB_EMIT_BLOCKED;

	vb_lock(&peer->tx_lock);
	if (__builtin_expect(qp->local.owed, 0) && !emit_owed(qp))
		r = VB_EMIT_BLOCKED;
	else if (__builtin_expect(w->length >= VB_CHOICE_MIN, 0) && is_fetched(qp, w))
		r = emit_pull(qp, w);
	else
		r = emit_pieces(qp, w, VB_REC_SEND);
	r = mark_sent(qp, w, r);
	vb_unlock(&peer->tx_lock);
	return r;
}

static enum vb_emit emit_by_ring(struct vb_qp *qp, struct vb_swqe *w, unsigned type, unsigned flags)
{
	enum vb_emit r;

	vb_lock(&qp->local.peer->tx_lock);
	if (__builtin_expect(qp->local.owed, 0) && !emit_owed(qp))
		r = VB_EMIT_BLOCKED;
	else
		r = type == VB_REC_WRITE ? emit_pieces(qp, w, type) : emit_ext(qp, w, type, flags);
	r = mark_sent(qp, w, r);
	vb_unlock(&qp->local.peer->tx_lock);
	return r;
}

static bool rd_atomic_full(struct vb_qp *qp)
{
	return qp->local.rd_outstanding >= qp->attr.max_rd_atomic || qp->local.rd_outstanding >= VB_RD_ATOM_SLOTS;
}

/* How does this large read or write travel? Under sq_lock. */
static enum vb_rdma_way way_of(struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_peer *peer = qp->local.peer;

	vb_lock(&peer->tx_lock);
	enum vb_rdma_way way = vb_pace_way(vb_pace_of(peer, w));

	vb_unlock(&peer->tx_lock);
	return way;
}

/* May this read or write travel in the ring? If the peer's memory is mapped here, the requester copies alone, unless
 * VERBENA_RDMA says otherwise. */
static bool has_choice(struct vb_qp *qp, const struct vb_swqe *w)
{
	if (qp->local.peer->self || qp->type != IBV_QPT_RC)
		return false;
	return vb_pace_forced() == VB_LEARN ? !vb_local_is_mapped(qp, w->rkey) : true;
}

/* Does the peer answer this read in the ring? Only if it takes as many at a time as this QP may send. */
static bool is_read_by_ring(struct vb_qp *qp, const struct vb_swqe *w)
{
	return w->length >= VB_PACE_MIN && has_choice(qp, w) && !vb_local_reads_withdrawn(qp) &&
	       atomic_load_explicit(&qp->local.remote->max_dest_rd_atomic, memory_order_relaxed) >=
	               qp->attr.max_rd_atomic &&
	       way_of(qp, w) == VB_RDMA_RING;
}

/* Does the peer store this write's data? Only if it can be withdrawn. */
static bool is_write_by_ring(struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_peer *peer = qp->local.peer;

	if (qp->local.sq_emit_off)
		return w->slot;
	if (w->length <= VB_PINGPONG_MAX)
		return has_choice(qp, w) && vb_local_pingpong_answers(qp, w);
	return w->length >= VB_PACE_MIN && has_choice(qp, w) &&
	       atomic_load_explicit(&peer->theirs->can_place, memory_order_relaxed) && qp->node->membarrier &&
	       !peer->fence && way_of(qp, w) == VB_RDMA_RING;
}

static uint64_t rdma_is_sent(struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_peer *peer = qp->local.peer;

	if (w->length < VB_PACE_MIN)
		return 0;
	vb_lock(&peer->tx_lock);
	uint64_t begun = vb_pace_sent(vb_pace_of(peer, w));

	vb_unlock(&peer->tx_lock);
	return begun;
}

static enum vb_emit emit_write_by_ring(struct vb_qp *qp, struct vb_swqe *w)
{
	bool begins = !qp->local.sq_emit_off;

	w->slot = 1;
	vb_local_pingpong_hold(qp, w);
	enum vb_emit r = emit_by_ring(qp, w, VB_REC_WRITE, 0);

	if (!begins)
		return r;
	if (r == VB_EMIT_OK || (r == VB_EMIT_BLOCKED && qp->local.sq_emit_off)) {
		w->begun = rdma_is_sent(qp, w);
		if (!vb_local_is_held(qp))
			vb_local_expect_work(qp, w->length <= VB_PINGPONG_MAX ? VB_WITHDRAW_SOON : VB_WITHDRAW_AFTER);
	} else {
		w->slot = 0; /* nothing of it is in the ring */
	}
	return r;
}

static enum vb_emit count_rd(struct vb_qp *qp, enum vb_emit r)
{
	if (r == VB_EMIT_OK)
		qp->local.rd_outstanding++;
	return r;
}

/* The peer takes no part in the copy. Its counters read ours. */
static __attribute__((noinline)) void count_copied(struct vb_qp *qp, bool is_read, uint32_t length)
{
	_Atomic uint64_t *bytes = &qp->shared->copied[is_read];

	qp->local.sent.messages++;
	atomic_store_explicit(bytes, atomic_load_explicit(bytes, memory_order_relaxed) + length, memory_order_relaxed);
}

/* Does the responder have to see this read or write before its data moves? It refuses reads if it accepts none. A write
 * with immediate of one packet finds its receive before it is stored, as on a network. And the first request in RTR is an
 * event. */
static bool is_for_responder(const struct vb_qp *qp, const struct vb_swqe *w)
{
	if (__builtin_expect(atomic_load_explicit(&qp->local.remote->unheard, memory_order_relaxed), 0))
		return true;
	switch (w->opcode) {
	case IBV_WR_RDMA_READ:
		return !atomic_load_explicit(&qp->local.remote->max_dest_rd_atomic, memory_order_relaxed);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return w->length <= 128u << qp->attr.path_mtu && !w->data_written;
	default:
		return false;
	}
}

/* Executes an RDMA write or read by one copy, if nothing of this QP is in flight and the peer's memory is accessible.
 * Otherwise uses the ring, as XRC does: the protection domain depends on the SRQ, which the peer knows. */
static enum vb_emit emit_rdma(struct vb_qp *qp, struct vb_swqe *w)
{
	bool is_read = w->opcode == IBV_WR_RDMA_READ, imm = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct iovec iov[VB_MAX_SGE + 1];
	bool may_copy = qp->type != IBV_QPT_XRC_SEND &&
	                (qp->local.peer->self || atomic_load_explicit(&qp->local.peer->copy_ok, memory_order_relaxed));

	if (is_read && !qp->attr.max_rd_atomic)
		return vb_local_emit_fault(w, IBV_WC_LOC_QP_OP_ERR);
	if (is_for_responder(qp, w))
		may_copy = false;
	if (!qp->local.sq_emit_off)
		w->slot = 0; /* it may have been in the ring before, and be sent again */
	if (may_copy && w->opcode == IBV_WR_RDMA_WRITE && is_write_by_ring(qp, w)) {
		enum vb_emit r = emit_write_by_ring(qp, w);

		/* if the ring has no room, one copy need not wait for the peer */
		if (r != VB_EMIT_BLOCKED || !ring_settled(qp))
			return r;
	}
	if (may_copy && !qp->local.sq_emit_off && !(is_read && is_read_by_ring(qp, w))) {
		if (!ring_settled(qp)) {
			if (is_read || w->length > RING_WRITE_MAX)
				return VB_EMIT_BLOCKED;
			/* it must not wait for the peer's program if those before it need not */
			if (!imm && qp->type == IBV_QPT_RC && vb_local_may_withdraw_all(qp))
				return emit_write_by_ring(qp, w);
			return emit_by_ring(qp, w, VB_REC_WRITE, 0);
		}
		uint64_t begun = imm ? 0 : rdma_is_sent(qp, w);

		vb_local_pingpong_hold(qp, w); /* before the copy, after which the peer may answer at once */
		enum vb_direct_result done = w->data_written ? VB_DIRECT_DONE : vb_local_direct(qp, w);
		if (done != VB_DIRECT_DONE)
			vb_local_pingpong_release(qp);
		switch (done) {
		case VB_DIRECT_DONE:
			if (!imm) {
				count_copied(qp, is_read, w->length);
				vb_local_rdma_done(qp, w, VB_RDMA_COPY, begun);
			}
			/* the data is written; the record of the immediate may have to wait for room */
			w->data_written = imm;
			return imm ? emit_by_ring(qp, w, VB_REC_NOTIFY, 0) : vb_local_emit_done(w);
		case VB_DIRECT_REFUSED:
			return emit_by_ring(qp, w, VB_REC_VERDICT, is_read ? VB_RECF_IS_READ : 0);
		case VB_DIRECT_FAULT:
			return emit_by_ring(qp, w, VB_REC_VERDICT, VB_RECF_FAULT | (is_read ? VB_RECF_IS_READ : 0));
		case VB_DIRECT_LOCAL:
			return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
		case VB_DIRECT_GONE:
			return VB_EMIT_BLOCKED;
		case VB_DIRECT_FORBIDDEN:
			may_copy = false;
			break;
		}
	}
	if (!is_read)
		return emit_by_ring(qp, w, VB_REC_WRITE, 0);
	/* checked now, because later requests must not be sent if this one fails */
	if (vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov) < 0)
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	if (rd_atomic_full(qp))
		return VB_EMIT_BLOCKED;
	enum vb_emit r = count_rd(qp, emit_by_ring(qp, w, VB_REC_READ, 0));

	w->begun = 0;
	if (r == VB_EMIT_OK && may_copy) {
		w->begun = rdma_is_sent(qp, w);
		vb_local_expect_work(qp, VB_WITHDRAW_AFTER);
	}
	return r;
}

static enum vb_emit emit_atomic(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];

	if (w->length != 8)
		return vb_local_emit_fault(w, IBV_WC_LOC_LEN_ERR);
	if (vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov) < 0)
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	if (!qp->attr.max_rd_atomic)
		return vb_local_emit_fault(w, IBV_WC_LOC_QP_OP_ERR);
	if (rd_atomic_full(qp))
		return VB_EMIT_BLOCKED;
	w->slot = (uint8_t)(qp->local.rd_slot % VB_RD_ATOM_SLOTS);
	enum vb_emit r = count_rd(qp, emit_by_ring(qp, w, VB_REC_ATOMIC,
	                                           w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? VB_RECF_FETCH_ADD : 0));

	if (r == VB_EMIT_OK)
		qp->local.rd_slot++;
	return r;
}

/* The peer executes both in order, and acknowledges them like other requests. They count as reads do (A19, A20). */
static __attribute__((noinline)) enum vb_emit emit_placed(struct vb_qp *qp, struct vb_swqe *w)
{
	bool is_word = w->opcode == IBV_WR_ATOMIC_WRITE;
	enum ibv_wc_status status = is_word ? vb_sq_take_word(qp, w) : IBV_WC_SUCCESS;

	if (status != IBV_WC_SUCCESS)
		return vb_local_emit_fault(w, status);
	if (!qp->attr.max_rd_atomic)
		return vb_local_emit_fault(w, IBV_WC_LOC_QP_OP_ERR);
	if (rd_atomic_full(qp))
		return VB_EMIT_BLOCKED;
	return count_rd(qp, emit_by_ring(qp, w, is_word ? VB_REC_ATOMIC_WRITE : VB_REC_FLUSH, 0));
}

static enum vb_emit emit_local(struct vb_qp *qp, struct vb_swqe *w)
{
	if (qp->sq_una != qp->sq_emit) /* earlier requests may still use the region */
		return VB_EMIT_BLOCKED;
	switch (vb_mw_execute(qp, w)) {
	case VB_MW_DONE:
		return vb_local_emit_done(w);
	case VB_MW_LATER:
		return VB_EMIT_BLOCKED;
	default:
		return vb_local_emit_fault(w, IBV_WC_MW_BIND_ERR);
	}
}

enum vb_emit vb_local_emit_one(struct vb_qp *qp, struct vb_swqe *w)
{
	if (vb_local_needs_no_peer(w))
		return emit_local(qp, w);
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		return emit_rdma(qp, w);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return emit_atomic(qp, w);
	case VB_IBV_WR_FLUSH:
	case IBV_WR_ATOMIC_WRITE:
		return emit_placed(qp, w);
	default:
		return emit_send(qp, w);
	}
}
