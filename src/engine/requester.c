// requester.c - hands send queue entries to the path, and retires them in order
// follows: IBA volume 1, 9.7.5 (acknowledgements), 9.9 (errors), 10.8 (ordering), over rings in shared memory
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/mr.h"
#include "core/opcode.h"
#include "core/pd.h"
#include "engine/engine.h"
#include "engine/ring.h"
#include "util/guard.h"

struct vb_counters vb_counters;

enum emit { EMIT_OK, EMIT_BLOCKED, EMIT_FAILED };

/* Up to here a SEND's bytes are copied through the ring; from here on the receiver fetches them in one copy. */
#define PULL_MIN 8192u
/* Up to here an RDMA write goes by ring when earlier records of its QP are still on the way. */
#define RING_WRITE_MAX 4096u
/* A datagram is dropped when its receiver makes no room for so long, or cannot be met: the broker and a busy program may
 * need a while for that, as address resolution does on a network. */
#define UD_PATIENCE 100000000ull  /* ns */
#define GIVE_UP_MAX 1000000000ull /* ns: a program that has ended is given up after this, or after the QP's own retries */
#define UD_MEETING 3000000000ull  /* ns */

static struct vb_swqe *at(struct vb_qp *qp, uint32_t i)
{
	return &qp->swqe[i & qp->sq_mask];
}

int vb_gather(struct vb_qp *qp, const struct vb_swqe *w, uint32_t access, struct iovec *iov)
{
	uint32_t slot = (uint32_t)(w - qp->swqe);
	int n = 0;

	if (w->flags & IBV_SEND_INLINE) {
		if (w->length)
			iov[n++] = (struct iovec){qp->sinline + (size_t)slot * qp->sq_max_inline, w->length};
		return n;
	}
	for (uint32_t i = 0; i < w->num_sge; i++) {
		const struct ibv_sge *sge = &qp->ssge[(size_t)slot * qp->sq_max_sge + i];
		uint64_t va;

		if (!sge->length)
			continue;
		if (!vb_mr_check_local(qp->node, vb_pd_id(qp->pd), sge->lkey, sge->addr, sge->length, access, &va))
			return -1;
		iov[n++] = (struct iovec){(void *)(uintptr_t)va, sge->length};
	}
	return n;
}

/* --- which process, which queue pair --- */

/* Is the other end there and willing? Its state is looked at anew each time something is to go (a QP that is not yet
 * in RTR drops what it gets: the requester tries again, as on a wire). */
static bool linked(struct vb_qp *qp)
{
	struct vb_peer *peer = qp->peer;

	if (!peer || !vb_peer_alive(peer))
		return false;
	if (qp->remote)
		return atomic_load_explicit(&qp->remote->gen, memory_order_acquire) == qp->remote_gen;
	if (!vb_peer_ready(peer))
		return false;

	struct vb_qp_shared *r = vb_seg_qp(peer->seg, qp->attr.dest_qp_num);
	uint32_t gen = atomic_load_explicit(&r->gen, memory_order_acquire);
	uint64_t acked = atomic_load_explicit(&r->acked, memory_order_relaxed);

	if (!(gen & 1) || atomic_load(&r->qpn) != qp->attr.dest_qp_num || atomic_load(&r->type) != qp->type ||
	    atomic_load(&r->dest_qpn) != qp->qp.qp_num)
		return false;
	if (qp->type == IBV_QPT_RC &&
	    ((atomic_load(&r->rq_psn) + acked - qp->attr.sq_psn - qp->ssn_una) & 0xffffff)) /* IBA 9.7.1: PSNs must meet */
		return false;
	qp->remote = r;
	qp->remote_gen = gen;
	qp->acked_base = qp->ssn_una - acked;
	qp->nak_seen = (uint32_t)(atomic_load_explicit(&r->nak, memory_order_relaxed) >> 32);
	return true;
}

static uint64_t timeout_ns(const struct vb_qp *qp)
{
	return qp->attr.timeout ? 4096ull << qp->attr.timeout : 0;
}

/* Nothing more is emitted until the timer; then it counts as a retry. */
static void wait_retry(struct vb_qp *qp)
{
	if (qp->deadline)
		return;
	uint64_t t = timeout_ns(qp);

	qp->timer_kind = VB_TIMER_RETRY;
	qp->deadline = vb_now() + (t ? t : 100000000ull);
	vb_timer_armed(qp->node);
}

static void stop_timer(struct vb_qp *qp)
{
	qp->deadline = 0;
	qp->timer_kind = VB_TIMER_NONE;
}

/* --- records --- */

static void fill(struct vb_qp *qp, struct vb_rec *rec, unsigned type, unsigned flags, uint32_t psn, uint32_t length, uint32_t imm)
{
	uint64_t executed = atomic_load_explicit(&qp->executed, memory_order_relaxed);

	rec->dest = qp->attr.dest_qp_num | type << 24;
	rec->src = qp->qp.qp_num | flags << 24;
	rec->psn = psn | (atomic_load_explicit(&qp->shared->gen, memory_order_relaxed) & 0xff) << 24;
	rec->length = length;
	rec->ack = (uint32_t)executed;
	rec->imm = imm;
	if (qp->type == IBV_QPT_RC)
		atomic_store_explicit(&qp->ack_told, executed, memory_order_relaxed);
}

static uint32_t next_psn(const struct vb_qp *qp)
{
	return (uint32_t)(qp->attr.sq_psn + qp->ssn_emit) & 0xffffff;
}

/* Copies `n` bytes at `off` of the gathered message to dst. */
static bool copy_from(const struct iovec *iov, int niov, uint64_t off, uint8_t *dst, uint32_t n)
{
	for (int i = 0; i < niov && n; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		uint32_t piece = iov[i].iov_len - off < n ? (uint32_t)(iov[i].iov_len - off) : n;

		if (!vb_guard_copy(dst, (uint8_t *)iov[i].iov_base + off, piece))
			return false;
		dst += piece;
		n -= piece;
		off = 0;
	}
	return true;
}

static unsigned message_flags(const struct vb_swqe *w)
{
	unsigned f = w->flags & IBV_SEND_SOLICITED ? VB_RECF_SOLICITED : 0;

	if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		f |= VB_RECF_IMM;
	if (w->opcode == IBV_WR_SEND_WITH_INV)
		f |= VB_RECF_INV;
	return f;
}

static enum emit local_fault(struct vb_swqe *w, enum ibv_wc_status status)
{
	w->state = VB_SWQE_DONE;
	w->status = status;
	return EMIT_FAILED;
}

/* The payload of a SEND or a WRITE, in pieces, as the ring has room. qp->sq_emit_off remembers where it stopped. */
static enum emit emit_pieces(struct vb_qp *qp, struct vb_swqe *w, unsigned type)
{
	struct iovec iov[VB_MAX_SGE + 1];
	struct vb_peer *peer = qp->peer;
	uint32_t head = type == VB_REC_WRITE ? 64 : 32;
	int n = vb_gather(qp, w, 0, iov);

	if (n < 0)
		return local_fault(w, IBV_WC_LOC_PROT_ERR);
	do {
		uint32_t off = qp->sq_emit_off, left = w->length - off;
		uint32_t piece = left < VB_RING_RECORD_MAX / 2 ? left : VB_RING_RECORD_MAX / 2;
		unsigned flags = (off ? 0 : VB_RECF_FIRST) | (piece == left ? VB_RECF_LAST | message_flags(w) : 0);
		struct vb_rec *rec = vb_ring_reserve(peer, head + piece);

		if (!rec)
			return EMIT_BLOCKED;
		if (head == 64) {
			struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);

			ext->remote_addr = w->remote_addr + off;
			ext->rkey = w->rkey;
			ext->total = w->length;
		}
		if (!copy_from(iov, n, off, (uint8_t *)rec + head, piece))
			return local_fault(w, IBV_WC_LOC_PROT_ERR);
		fill(qp, rec, type, flags, next_psn(qp), piece, w->imm);
		vb_ring_commit(peer, head + piece);
		if (left > piece) {
			vb_peer_notify(peer);
			vb_ring_prepare(peer);
		}
		qp->sq_emit_off = off + piece;
	} while (qp->sq_emit_off < w->length);
	qp->sq_emit_off = 0;
	return EMIT_OK;
}

/* A SEND that the receiver fetches itself. */
static enum emit emit_pull(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	int n = vb_gather(qp, w, 0, iov);

	if (n < 0)
		return local_fault(w, IBV_WC_LOC_PROT_ERR);
	uint32_t bytes = (uint32_t)(n * sizeof(struct vb_rec_span));
	struct vb_rec *rec = vb_ring_reserve(qp->peer, 32 + 32 + bytes);

	if (!rec)
		return EMIT_BLOCKED;
	struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);
	struct vb_rec_span *span = (struct vb_rec_span *)(ext + 1);

	ext->total = w->length;
	for (int i = 0; i < n; i++)
		span[i] = (struct vb_rec_span){(uintptr_t)iov[i].iov_base, iov[i].iov_len};
	fill(qp, rec, VB_REC_PULL, VB_RECF_FIRST | VB_RECF_LAST | message_flags(w), next_psn(qp), bytes, w->imm);
	vb_ring_commit(qp->peer, 64 + bytes);
	return EMIT_OK;
}

/* A record of head and extension only. */
static enum emit emit_ext(struct vb_qp *qp, struct vb_swqe *w, unsigned type, unsigned flags)
{
	struct vb_rec *rec = vb_ring_reserve(qp->peer, 64);

	if (!rec)
		return EMIT_BLOCKED;
	struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);

	ext->remote_addr = w->remote_addr;
	ext->rkey = w->rkey;
	ext->total = type == VB_REC_ATOMIC ? w->slot : w->length;
	ext->compare_add = w->compare_add;
	ext->swap = w->swap;
	fill(qp, rec, type, flags | VB_RECF_FIRST | VB_RECF_LAST | message_flags(w), next_psn(qp), 0, w->imm);
	vb_ring_commit(qp->peer, 64);
	return EMIT_OK;
}

/* --- one work request --- */

/* Have all records of this QP been executed? Then a one-copy operation may start. */
static bool ring_settled(struct vb_qp *qp)
{
	if (qp->type == IBV_QPT_RC)
		return qp->sq_una == qp->sq_emit && !qp->sq_emit_off;
	/* without tx_lock: only looked at, not taken over */
	return (int64_t)(atomic_load_explicit(&qp->peer->theirs->rx_head, memory_order_acquire) - qp->last_ring_end) >= 0;
}

static enum emit sent(struct vb_qp *qp, struct vb_swqe *w, enum emit r)
{
	if (r != EMIT_OK)
		return r;
	w->ring_end = qp->last_ring_end = qp->peer->tx_tail;
	w->psn = next_psn(qp);
	qp->ssn_emit++;
	if (qp->type == IBV_QPT_RC) {
		w->state = VB_SWQE_SENT;
	} else {
		w->state = VB_SWQE_DONE;
		w->status = IBV_WC_SUCCESS;
	}
	return EMIT_OK;
}

static enum emit done(struct vb_swqe *w)
{
	w->state = VB_SWQE_DONE;
	w->status = IBV_WC_SUCCESS;
	return EMIT_OK;
}

static enum emit emit_send(struct vb_qp *qp, struct vb_swqe *w)
{
	struct vb_peer *peer = qp->peer;
	enum emit r;

	vb_lock(&peer->tx_lock);
	/* UC completes when it is handed over, so that its buffers may be reused: they cannot be fetched later. Nor can
	 * inline data and a message that has begun to go by ring. */
	if (w->length >= PULL_MIN && qp->type == IBV_QPT_RC && !(w->flags & IBV_SEND_INLINE) && !qp->sq_emit_off &&
	    atomic_load_explicit(&peer->theirs->can_pull, memory_order_relaxed))
		r = emit_pull(qp, w);
	else
		r = emit_pieces(qp, w, VB_REC_SEND);
	r = sent(qp, w, r);
	vb_unlock(&peer->tx_lock);
	return r;
}

static enum emit emit_by_ring(struct vb_qp *qp, struct vb_swqe *w, unsigned type, unsigned flags)
{
	enum emit r;

	vb_lock(&qp->peer->tx_lock);
	r = type == VB_REC_WRITE ? emit_pieces(qp, w, type) : emit_ext(qp, w, type, flags);
	r = sent(qp, w, r);
	vb_unlock(&qp->peer->tx_lock);
	return r;
}

static bool rd_atomic_full(struct vb_qp *qp)
{
	return qp->rd_outstanding >= qp->attr.max_rd_atomic || qp->rd_outstanding >= VB_RD_ATOM_SLOTS;
}

static enum emit counted(struct vb_qp *qp, enum emit r)
{
	if (r == EMIT_OK)
		qp->rd_outstanding++;
	return r;
}

/* RDMA write and read: by one copy where nothing of this QP is on the way and the peer's memory is open to us. */
static enum emit emit_rdma(struct vb_qp *qp, struct vb_swqe *w)
{
	bool is_read = w->opcode == IBV_WR_RDMA_READ, imm = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct iovec iov[VB_MAX_SGE + 1];
	bool may_copy = qp->peer->self || atomic_load_explicit(&qp->peer->copy_ok, memory_order_relaxed);

	if (is_read && !qp->attr.max_rd_atomic)
		return local_fault(w, IBV_WC_REM_INV_REQ_ERR);
	if (may_copy && !qp->sq_emit_off) {
		if (!ring_settled(qp)) {
			if (is_read || w->length > RING_WRITE_MAX)
				return EMIT_BLOCKED;
			return emit_by_ring(qp, w, VB_REC_WRITE, 0);
		}
		switch (w->direct ? VB_DIRECT_DONE : vb_direct(qp, w)) {
		case VB_DIRECT_DONE:
			w->direct = imm; /* the notice may have to wait for room; the data is there */
			return imm ? emit_by_ring(qp, w, VB_REC_NOTIFY, 0) : done(w);
		case VB_DIRECT_REFUSED:
			return emit_by_ring(qp, w, VB_REC_VERDICT, is_read ? VB_RECF_IS_READ : 0);
		case VB_DIRECT_FAULT:
			return emit_by_ring(qp, w, VB_REC_VERDICT, VB_RECF_FAULT | (is_read ? VB_RECF_IS_READ : 0));
		case VB_DIRECT_LOCAL:
			return local_fault(w, IBV_WC_LOC_PROT_ERR);
		case VB_DIRECT_GONE:
			return EMIT_BLOCKED;
		case VB_DIRECT_FORBIDDEN:
			break;
		}
	}
	if (!is_read)
		return emit_by_ring(qp, w, VB_REC_WRITE, 0);
	if (vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov) < 0) /* now: later requests must not go out before it fails */
		return local_fault(w, IBV_WC_LOC_PROT_ERR);
	if (rd_atomic_full(qp))
		return EMIT_BLOCKED;
	return counted(qp, emit_by_ring(qp, w, VB_REC_READ, 0));
}

static enum emit emit_atomic(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];

	if (w->length != 8)
		return local_fault(w, IBV_WC_LOC_LEN_ERR);
	if (vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov) < 0)
		return local_fault(w, IBV_WC_LOC_PROT_ERR);
	if (!qp->attr.max_rd_atomic)
		return local_fault(w, IBV_WC_REM_INV_REQ_ERR);
	if (rd_atomic_full(qp))
		return EMIT_BLOCKED;
	w->slot = (uint8_t)(qp->rd_slot % VB_RD_ATOM_SLOTS);
	enum emit r = counted(qp, emit_by_ring(qp, w, VB_REC_ATOMIC, w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? VB_RECF_FETCH_ADD : 0));

	if (r == EMIT_OK)
		qp->rd_slot++;
	return r;
}

/* A datagram goes to whoever its address handle names; one that finds nobody is lost, as datagrams are. */
static enum emit emit_ud(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	struct vb_peer *peer = atomic_load_explicit(&w->ah->last_peer, memory_order_acquire);
	uint32_t lane = VB_QP_LANE(w->ud_qpn);
	int err = 0, n;

	if (!peer || peer->lane != lane || !vb_peer_alive(peer)) {
		peer = vb_peer_find(qp->node, w->ud_qpn, &w->ah->attr.grh.dgid, 0, &err);
		if (!peer && err != EAGAIN)
			return done(w);
		if (peer)
			atomic_store_explicit(&w->ah->last_peer, peer, memory_order_release);
	}
	if (w->length > 4096)
		return local_fault(w, IBV_WC_LOC_LEN_ERR);
	n = vb_gather(qp, w, 0, iov);
	if (n < 0)
		return local_fault(w, IBV_WC_LOC_PROT_ERR);
	if (!peer || !vb_peer_ready(peer))
		goto wait;
	vb_lock(&peer->tx_lock);
	struct vb_rec *rec = vb_ring_reserve(peer, 64 + 40 + w->length);
	if (!rec && vb_want_space(peer))
		rec = vb_ring_reserve(peer, 64 + 40 + w->length);
	if (!rec) {
		vb_unlock(&peer->tx_lock);
		goto wait;
	}
	struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);
	uint8_t *payload = (uint8_t *)(ext + 1);
	bool ok = copy_from(iov, n, 0, payload + 40, w->length);

	if (ok) {
		vb_grh_build(payload, &w->ah->sgid, &w->ah->attr, w->length);
		fill(qp, rec, VB_REC_UD, VB_RECF_FIRST | VB_RECF_LAST | message_flags(w), 0, 40 + w->length, w->imm);
		rec->dest = w->ud_qpn | (uint32_t)VB_REC_UD << 24;
		ext->rkey = w->ud_qkey & 0x80000000u ? qp->attr.qkey : w->ud_qkey; /* IBA 10.2.5: controlled Q_Key */
		ext->total = w->length;
		vb_ring_commit(peer, 64 + 40 + w->length);
		vb_peer_notify(peer);
		vb_ring_prepare(peer);
	}
	vb_unlock(&peer->tx_lock);
	stop_timer(qp);
	return ok ? done(w) : local_fault(w, IBV_WC_LOC_PROT_ERR);
wait:
	if (!qp->deadline) {
		qp->timer_kind = VB_TIMER_RETRY;
		qp->deadline = vb_now() + (peer && vb_peer_ready(peer) ? UD_PATIENCE : UD_MEETING);
		vb_timer_armed(qp->node);
	}
	return EMIT_BLOCKED;
}

static enum emit emit_local_inv(struct vb_qp *qp, struct vb_swqe *w)
{
	if (qp->sq_una != qp->sq_emit) /* earlier requests may still use the region */
		return EMIT_BLOCKED;
	if (vb_mr_invalidate(qp->node, vb_pd_id(qp->pd), w->imm, false))
		return local_fault(w, IBV_WC_MW_BIND_ERR);
	return done(w);
}

static enum emit emit_one(struct vb_qp *qp, struct vb_swqe *w)
{
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		return emit_rdma(qp, w);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return emit_atomic(qp, w);
	case IBV_WR_LOCAL_INV:
		return emit_local_inv(qp, w);
	default:
		return emit_send(qp, w);
	}
}

/* --- completion --- */

static void push(struct vb_qp *qp, const struct vb_swqe *w, enum ibv_wc_status status)
{
	struct vb_cqe cqe = {
		.wc = {.wr_id = w->wr_id, .status = status, .opcode = vb_wr_lookup(w->opcode)->wc_opcode, .byte_len = w->length, .qp_num = qp->qp.qp_num},
	};

	vb_cq_push(qp->scq, &cqe, false);
}

/* What the peer's QP says an atomic returned, into the program's buffer. */
static bool take_atomic(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	uint64_t old = atomic_load_explicit(&qp->remote->atomic_result[w->slot % VB_RD_ATOM_SLOTS], memory_order_relaxed);
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

/* Completes from the oldest on, as long as they are done. Returns true when the oldest has failed. Under sq_lock. */
static bool retire(struct vb_qp *qp)
{
	while (qp->sq_una != qp->sq_emit || at(qp, qp->sq_una)->state == VB_SWQE_DONE) {
		struct vb_swqe *w = at(qp, qp->sq_una);

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
					return true;
				}
			}
			qp->ssn_una++;
		} else if (w->state == VB_SWQE_DONE) {
			if (w->status != IBV_WC_SUCCESS)
				return true;
			if (w->opcode == IBV_WR_RDMA_READ && w->slot) /* answered by ring */
				qp->ssn_una++;
		} else {
			break;
		}
		if (w->flags & IBV_SEND_SIGNALED)
			push(qp, w, IBV_WC_SUCCESS);
		qp->sq_una++;
	}
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	return false;
}

static bool path_open(struct vb_qp *qp)
{
	if (qp->timer_kind != VB_TIMER_NONE)
		return false;
	if (linked(qp))
		return true;
	wait_retry(qp);
	return false;
}

/* UD: every datagram has its own way; the oldest waits for its own at most UD_PATIENCE. */
static bool emit_all(struct vb_qp *qp)
{
	while (qp->sq_emit != qp->sq_head) {
		struct vb_swqe *w = at(qp, qp->sq_emit);
		enum emit r;

		if (w->state == VB_SWQE_DONE) { /* refused when it was posted */
			r = w->status == IBV_WC_SUCCESS ? EMIT_OK : EMIT_FAILED;
		} else if (qp->type == IBV_QPT_UD) {
			r = w->opcode == IBV_WR_LOCAL_INV ? emit_local_inv(qp, w) : emit_ud(qp, w);
		} else {
			if ((w->flags & IBV_SEND_FENCE) && qp->rd_outstanding) /* IBA 10.8.3.3 */
				return false;
			r = emit_one(qp, w);
		}
		if (r == EMIT_BLOCKED)
			return false;
		if (r == EMIT_FAILED)
			return true;
		qp->sq_emit++;
		if (w->state == VB_SWQE_DONE && retire(qp))
			return true;
	}
	return false;
}

bool vb_sq_kick(struct vb_qp *qp)
{
	bool failed = false;

	if (atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS)
		return false;
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
	/* Before anything goes out: its acknowledgement may be here before we are back, and nobody rings for it twice. */
	if (qp->sq_una != qp->sq_head && !atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
	if (qp->sq_emit != qp->sq_head) {
		if (qp->type == IBV_QPT_UD) {
			failed = emit_all(qp);
		} else if (path_open(qp)) {
			struct vb_peer *peer = qp->peer;
			uint64_t before = qp->last_ring_end;

			failed = emit_all(qp);
			if (!failed && qp->sq_emit != qp->sq_head && vb_want_space(peer))
				failed = emit_all(qp);
			if (qp->last_ring_end != before || qp->sq_emit_off) {
				vb_peer_notify(peer);
				if (atomic_load_explicit(&peer->tx_low, memory_order_relaxed)) {
					vb_lock(&peer->tx_lock);
					vb_ring_prepare(peer);
					vb_unlock(&peer->tx_lock);
				}
			}
		}
	}
	return failed;
}

/* --- failure --- */

/* The oldest request fails. Under progress + sq_lock. */
static void fail_oldest(struct vb_qp *qp, enum ibv_wc_status status)
{
	struct vb_swqe *w = at(qp, qp->sq_una);

	stop_timer(qp);
	push(qp, w, status);
	qp->sq_una++;
	if ((int32_t)(qp->sq_emit - qp->sq_una) < 0)
		qp->sq_emit = qp->sq_una;
	qp->sq_emit_off = 0;
	if (qp->type == IBV_QPT_RC)
		vb_qp_error(qp);
	else
		vb_qp_sq_error(qp);
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
}

static void settle_locked(struct vb_qp *qp)
{
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) != IBV_QPS_RTS)
		return;
	if (retire(qp))
		fail_oldest(qp, at(qp, qp->sq_una)->status);
}

void vb_path_settle(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	settle_locked(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

/* --- what comes back --- */

/* How many of our requests the other end has taken. Those are not repeated, acknowledged or not: a read may be waiting
 * for its answer, and what came behind it has been executed. */
static uint64_t taken(const struct vb_qp *qp)
{
	uint64_t n = qp->remote ? qp->acked_base + atomic_load_explicit(&qp->remote->processed, memory_order_acquire) : 0;

	if (n > qp->ssn_emit) /* of what was never sent: not believed */
		n = 0;
	if (n < qp->acked_seen)
		n = qp->acked_seen;
	return n < qp->ssn_una ? qp->ssn_una : n;
}

/* Back to the oldest request that was not taken (from: a count like ssn_una); everything from there goes out again.
 * Between sq_una and sq_emit each entry has its own PSN, so that counts are distances. */
static void rollback(struct vb_qp *qp, uint64_t from)
{
	uint32_t first = qp->sq_una + (uint32_t)(from - qp->ssn_una);

	for (uint32_t i = first; i != qp->sq_emit; i++) {
		struct vb_swqe *w = at(qp, i);

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
	static const uint32_t unit[32] = {65536, 1,   2,   3,   4,   6,   8,    12,   16,   24,   32,	  48,	 64,   96,   128,   192,
					  256,	 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return unit[code & 31] * 10000ull;
}

/* Returns true when the QP failed. */
static bool take_nak(struct vb_qp *qp, uint64_t nak)
{
	qp->nak_seen = (uint32_t)(nak >> 32);
	if (qp->sq_una == qp->sq_emit && !qp->sq_emit_off)
		return false; /* of something that has been given up since */
	switch (nak & 0xff) {
	case VB_NAK_RNR:
		VB_COUNT(rnr_nak, 1);
		if (qp->attr.rnr_retry != 7) { /* 7: without end (IBA 9.7.5.2.8) */
			if (!qp->rnr_left) {
				fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
				return true;
			}
			qp->rnr_left--;
		}
		rollback(qp, taken(qp));
		qp->timer_kind = VB_TIMER_RNR;
		qp->deadline = vb_now() + rnr_ns(atomic_load_explicit(&qp->remote->min_rnr_timer, memory_order_relaxed));
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

	stop_timer(qp);
	if (qp->type == IBV_QPT_UD || qp->type == IBV_QPT_UC) {
		/* nobody there: unreliable requests are lost, and complete (IBA 9.8.2) */
		if (retry && qp->sq_emit != qp->sq_head && (qp->type == IBV_QPT_UD || !linked(qp))) {
			VB_COUNT(drop_ud_path, 1);
			done(at(qp, qp->sq_emit));
			qp->sq_emit++;
			qp->sq_emit_off = 0;
		}
		return;
	}
	if (!retry)
		return;
	if (timeout_ns(qp) || qp->gone) {
		if (!qp->retry_left || qp->gone) {
			fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
			return;
		}
		qp->retry_left--;
	}
	rollback(qp, taken(qp));
	qp->stall = 0;
	if (qp->remote && atomic_load_explicit(&qp->remote->gen, memory_order_acquire) != qp->remote_gen)
		qp->remote = NULL; /* look at the other end anew */
}

/* The peer's process is not known yet, or a new one has its number: asks for it, without waiting. */
static void look_for_peer(struct vb_qp *qp, uint64_t now)
{
	int err;

	if (qp->type == IBV_QPT_UD || now < qp->meet_after)
		return;
	if (qp->peer && vb_peer_alive(qp->peer))
		return;
	if (qp->peer && qp->remote)
		return; /* it was connected, and the other program is gone: that is for the timer */
	qp->peer = vb_peer_find(qp->node, qp->attr.dest_qp_num, &qp->attr.ah_attr.grh.dgid, 0, &err);
	qp->meet_after = now + 1000000;
}

/* gone: the other end, or its program, has left; what it had executed by then counts too. */
static void take_acks(struct vb_qp *qp, bool gone)
{
	uint64_t executed = gone ? atomic_load_explicit(&qp->remote->executed, memory_order_acquire) : 0;
	uint64_t count = atomic_load_explicit(&qp->remote->acked, memory_order_acquire);

	if (executed > count)
		count = executed;
	if ((int32_t)(qp->ack_in - (uint32_t)count) > 0)
		count += qp->ack_in - (uint32_t)count;
	uint64_t acked = qp->acked_base + count;

	if (acked > qp->ssn_emit) /* of what was never sent: not believed */
		acked = qp->acked_seen;
	if (acked > qp->acked_seen) {
		qp->acked_seen = acked;
		qp->retry_left = qp->attr.retry_cnt;
		qp->rnr_left = qp->attr.rnr_retry;
		qp->stall = 0;
		if (qp->timer_kind == VB_TIMER_RETRY)
			stop_timer(qp);
	}
}

/* Consumed but neither executed nor refused: dropped, because the QP there was not ready. */
static void check_dropped(struct vb_qp *qp)
{
	if (qp->sq_una == qp->sq_emit || at(qp, qp->sq_una)->state != VB_SWQE_SENT || qp->timer_kind != VB_TIMER_NONE)
		return;
	if (taken(qp) > qp->ssn_una)
		return;
	if (atomic_load_explicit(&qp->peer->theirs->rx_head, memory_order_acquire) < at(qp, qp->sq_una)->ring_end)
		qp->stall = 0;
	else if (vb_ring_ready(qp->peer))
		return;
	else if (++qp->stall > 3)
		wait_retry(qp);
}

/*
 * The other program has ended. An adapter would find that out by its retries: not before, since a program may be done
 * with its work while something that it sent is still on the way. Nor much later, whatever the timeout: nobody answers.
 */
static void give_up_later(struct vb_qp *qp)
{
	uint64_t total = timeout_ns(qp) ? timeout_ns(qp) * (qp->retry_left + 1u) : GIVE_UP_MAX;

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
		if (retire(qp))
			fail_oldest(qp, at(qp, qp->sq_una)->status);
		else if (qp->sq_una != qp->sq_head)
			give_up_later(qp);
		return;
	}
	if (qp->type == IBV_QPT_UC)
		while (qp->sq_emit != qp->sq_head)
			done(at(qp, qp->sq_emit++));
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
			/* published in the order acknowledgements, NAK, gen: read the other way round, so that none is missed */
			uint32_t gens = atomic_load_explicit(&qp->remote->gen, memory_order_acquire) - qp->remote_gen;
			uint64_t nak = atomic_load_explicit(&qp->remote->nak, memory_order_acquire);

			if (gens <= 1) /* 1: it has left the receiving states, and what it says is still about us */
				take_acks(qp, gens);
			if (retire(qp)) {
				fail_oldest(qp, at(qp, qp->sq_una)->status);
				return;
			}
			if (gens <= 1 && nak && (uint32_t)(nak >> 32) != qp->nak_seen && take_nak(qp, nak))
				return;
			if (gens && qp->sq_una != qp->sq_head) {
				rollback(qp, qp->ssn_una);
				qp->remote = NULL;
				wait_retry(qp);
			} else {
				check_dropped(qp);
			}
		}
	} else if (qp->timer_kind == VB_TIMER_RETRY && qp->type != IBV_QPT_UD && linked(qp)) {
		stop_timer(qp);
	}
	if (qp->deadline && now && now >= qp->deadline)
		timer_expired(qp);
	if (vb_sq_kick(qp) || retire(qp))
		settle_locked(qp);
	vb_qp_check_drained(qp);
}

unsigned vb_requester_visit(struct vb_qp *qp, bool wait)
{
	if (!atomic_load_explicit(&qp->sq_pending, memory_order_relaxed))
		return 0;
	if (wait)
		vb_lock(&qp->sq_lock);
	else if (!vb_trylock(&qp->sq_lock))
		return 0;
	uint32_t una = qp->sq_una, emit = qp->sq_emit, off = qp->sq_emit_off;

	visit_locked(qp);
	unsigned work = (una != qp->sq_una) + (emit != qp->sq_emit) + (off != qp->sq_emit_off);
	vb_unlock(&qp->sq_lock);
	return work;
}

uint64_t vb_requester_deadline(struct vb_node *node)
{
	uint64_t earliest = 0, soon = 0;

	for (struct vb_qp *qp = node->active; qp; qp = qp->active_next) {
		uint64_t d = 0;

		if (!atomic_load_explicit(&qp->sq_pending, memory_order_relaxed))
			continue;
		vb_lock(&qp->sq_lock);
		if (qp->deadline || qp->stall) /* stalled: looks dropped, so look again */
			d = qp->deadline ? qp->deadline : vb_now() + 200000;
		if (d && !qp->remote) {
			/* the other end may become ready without a word: look before the time is up */
			if (!soon)
				soon = vb_now() + 2000000;
			if (d > soon)
				d = soon;
		}
		vb_unlock(&qp->sq_lock);
		if (!d)
			continue;
		if (!earliest || d < earliest)
			earliest = d;
	}
	return earliest;
}

bool vb_requester_ack(struct vb_qp *qp, uint32_t ack)
{
	if ((int32_t)(ack - qp->ack_in) <= 0)
		return false;
	qp->ack_in = ack;
	return true;
}

void vb_requester_data(struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext, const uint8_t *payload)
{
	struct vb_qp *qp = peer->node->qps[VB_QP_INDEX(rec->dest & 0xffffff)];
	struct iovec iov[VB_MAX_SGE + 1];

	if (!qp || qp->qp.qp_num != (rec->dest & 0xffffff) || qp->peer != peer || qp->attr.dest_qp_num != (rec->src & 0xffffff))
		return;
	vb_lock(&qp->sq_lock);
	uint32_t delta = ((rec->psn & 0xffffff) - (uint32_t)(qp->attr.sq_psn + qp->ssn_una)) & 0xffffff;
	struct vb_swqe *w = NULL;

	/* between una and emit every entry has its PSN: LOCAL_INV and one-copy operations never stand among them */
	if (delta < qp->sq_emit - qp->sq_una)
		w = at(qp, qp->sq_una + delta);
	if (!w || w->state != VB_SWQE_SENT || w->opcode != IBV_WR_RDMA_READ || w->psn != (rec->psn & 0xffffff) ||
	    ext->remote_addr > w->length || rec->length > w->length - ext->remote_addr)
		goto out;
	int n = vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov);
	uint64_t off = ext->remote_addr;
	uint32_t left = rec->length;
	bool ok = n >= 0;

	for (int i = 0; ok && i < n && left; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		uint32_t piece = iov[i].iov_len - off < left ? (uint32_t)(iov[i].iov_len - off) : left;

		ok = vb_guard_copy((uint8_t *)iov[i].iov_base + off, payload, piece);
		payload += piece;
		left -= piece;
		off = 0;
	}
	if (!ok || ext->remote_addr + rec->length == w->length) {
		w->state = VB_SWQE_DONE;
		w->status = ok ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
		w->slot = 1; /* it took a PSN */
		qp->rd_outstanding--;
		/* all requests before a read have been executed before it answers; the read itself is acknowledged too */
		vb_requester_ack(qp, (uint32_t)(qp->ssn_una - qp->acked_base + delta + 1));
	}
out:
	vb_unlock(&qp->sq_lock);
}

/* --- who is looked after by the completer --- */

void vb_active_add(struct vb_qp *qp)
{
	struct vb_node *node = qp->node;

	if (atomic_exchange(&qp->on_active, true))
		return;
	struct vb_qp *head = atomic_load_explicit(&node->active_new, memory_order_relaxed);

	do
		qp->active_new_next = head;
	while (!atomic_compare_exchange_weak_explicit(&node->active_new, &head, qp, memory_order_release, memory_order_relaxed));
}

void vb_active_collect(struct vb_node *node)
{
	if (!atomic_load_explicit(&node->active_new, memory_order_relaxed))
		return;
	struct vb_qp *qp = atomic_exchange_explicit(&node->active_new, NULL, memory_order_acquire);

	while (qp) {
		struct vb_qp *next = qp->active_new_next;

		qp->active_idle = 0;
		qp->active_next = node->active;
		qp->active_prev = &node->active;
		if (qp->active_next)
			qp->active_next->active_prev = &qp->active_next;
		node->active = qp;
		qp = next;
	}
}

void vb_active_remove(struct vb_qp *qp)
{
	if (!qp->active_prev)
		return;
	if (qp->node->active_cursor == qp)
		qp->node->active_cursor = qp->active_next;
	*qp->active_prev = qp->active_next;
	if (qp->active_next)
		qp->active_next->active_prev = qp->active_prev;
	qp->active_prev = NULL;
	atomic_store(&qp->on_active, false);
}
