// plain.c - takes runs of plain SENDs from a ring: the most frequent records, checked and counted together
// follows: IBA volume 1, 9.7.3 to 9.7.4 (responder), 9.8.2 (UC); docs/same-host.md
// SPDX-License-Identifier: MIT
#include <string.h>

#include "core/cntr.h"
#include "core/cq.h"
#include "core/inbound.h"
#include "core/mr.h"
#include "core/pd.h"
#include "core/rq.h"
#include "engine/local/pingpong.h"
#include "engine/local/responder.h"
#include "engine/local/ring.h"
#include "util/guard.h"

#define RUN 16u /* the most records of a run: as many completions as programs usually poll for */
#define RARE ((uint32_t)(VB_RECF_SOLICITED | VB_RECF_IMM) << 24) /* flags in which records of a run may differ */
#define WHOLE ((uint32_t)(VB_RECF_FIRST | VB_RECF_LAST) << 24)

/* What the records of a run have in common. */
struct run {
	struct vb_peer *peer;
	struct vb_qp *qp;
	uint32_t dest, src;
	uint32_t psn; /* as in the next record */
	uint64_t bytes;
};

/* Loads the record at pos, all but its mark, if it is a whole SEND of one piece, and published. Returns its size, or 0:
 * the way of all others has to judge it. */
static inline uint32_t load_plain(const struct vb_peer *peer, uint64_t pos, struct vb_rec *rec)
{
	const uint8_t *at = peer->rx + (pos & VB_RING_MASK);
	uint64_t mark = atomic_load_explicit((_Atomic uint64_t *)at, memory_order_acquire);

	memcpy((char *)rec + 8, at + 8, sizeof(*rec) - 8);
	/* a run does not contain the end of the ring, and lengths are short, so that nothing overflows */
	uint32_t size = (uint32_t)mark * VB_LINE, left = VB_RING_BYTES - (uint32_t)(pos & VB_RING_MASK);

	if (mark >> 32 != (uint32_t)(pos / VB_LINE) || (uint32_t)mark > left / VB_LINE ||
	    rec->length - 1 >= VB_CHOICE_MIN - 1 || size < vb_rec_send_head(rec->length) + rec->length ||
	    (rec->src & ~RARE & 0xff000000u) != WHOLE)
		return 0;
	return size;
}

static inline bool takes_requests(const struct vb_qp *qp)
{
	unsigned state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || (state == IBV_QPS_RTR && qp->comm_est_raised);
}

/* Has the queue pair nothing to do but take the next request? One without a first contact has, as have those in rare
 * states. */
static inline bool takes_plain(const struct vb_qp *qp, uint32_t psn)
{
	if (!takes_requests(qp) || qp->srq || qp->inbound->active || qp->inbound->dropped || vb_local_is_held(qp))
		return false;
	return qp->type == IBV_QPT_UC || ((psn & VB_PSN_MASK) == qp->local.epsn && !qp->local.nak_state);
}

/* Finds the receiver of the first record, and what the record acknowledges. False: it begins no run. */
static inline bool begin_run(struct run *r, struct vb_peer *peer, const struct vb_rec *rec)
{
	struct vb_node *node = peer->node;
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(rec->dest & VB_QPN_MASK)], memory_order_relaxed);

	if (vb_rec_top(rec->dest) != VB_REC_SEND || !qp || qp->qp.qp_num != (rec->dest & VB_QPN_MASK) ||
	    (qp->type != IBV_QPT_RC && qp->type != IBV_QPT_UC) || !qp->path->ring ||
	    !vb_local_is_of_peer(qp, peer, rec) || qp->local.peer != peer || !takes_plain(qp, rec->psn))
		return false;
	/* a request of ours must complete before the peer's answer to it is received */
	if (qp->type == IBV_QPT_RC && vb_local_ack(qp, rec->ack) &&
	    atomic_load_explicit(&qp->sq_pending, memory_order_relaxed)) {
		vb_local_acked(qp);
		if (!takes_requests(qp)) /* an error has ended this QP */
			return false;
	}
	*r = (struct run){.peer = peer, .qp = qp, .dest = rec->dest, .src = rec->src & ~RARE, .psn = rec->psn};
	return true;
}

/* Does the record continue the run? One that completes requests of this side does not. */
static inline bool continues(const struct run *r, const struct vb_rec *rec)
{
	struct vb_qp *qp = r->qp;

	if (rec->dest != r->dest || (rec->src & ~RARE) != r->src)
		return false;
	if (qp->type == IBV_QPT_UC)
		return vb_rec_top(rec->psn) == vb_rec_top(r->psn); /* the same generation */
	if (rec->psn != r->psn)
		return false;
	return rec->ack == qp->local.ack_in || !atomic_load_explicit(&qp->sq_pending, memory_order_relaxed) ||
	       (int32_t)(rec->ack - qp->local.ack_in) <= 0;
}

/* Stores the data in the receive if that has one piece with room for it. */
static inline bool store(const struct run *r, uint32_t slot, const struct vb_rec *rec, const uint8_t *payload)
{
	const struct vb_rq *rq = &r->qp->rq;
	const struct ibv_sge *sge = &rq->sge[(size_t)slot * rq->max_sge];
	uint64_t va;

	return rq->wqe[slot].num_sge == 1 && rec->length <= sge->length &&
	       vb_mr_check_local(r->qp->node, vb_pd_id(r->qp->pd), sge->lkey, sge->addr, rec->length,
	                         IBV_ACCESS_LOCAL_WRITE, &va) &&
	       vb_guard_copy_tail((void *)(uintptr_t)va, payload, rec->length);
}

/* Takes n receives, counts and acknowledges n requests, and then tells the program. */
static inline void end_run(const struct run *r, const struct vb_received *received, unsigned n)
{
	struct vb_qp *qp = r->qp;
	struct vb_rq *rq = &qp->rq;

	atomic_store_explicit(&rq->head, atomic_load_explicit(&rq->head, memory_order_relaxed) + n,
	                      memory_order_release);
	VB_COUNT_PROGRESS(ring_bytes, r->bytes);
	qp->local.received_bytes[0] += r->bytes;
	qp->local.taken += n;
	qp->local.epsn = (qp->local.epsn + n) & VB_PSN_MASK;
	vb_local_update_ackable(qp);
	if (__builtin_expect(qp->rq_counted, 0))
		vb_cntr_received(qp, IBV_WC_SUCCESS, n, r->bytes);
	vb_cq_push_received(qp->rcq, qp->qp.qp_num, r->src & VB_QPN_MASK, rq, received, n);
}

unsigned vb_local_take_plain(struct vb_peer *peer, struct vb_cq *cq, unsigned want)
{
	struct vb_received received[RUN];
	struct vb_rec rec;
	struct run r;
	uint64_t pos = peer->rx_head;
	uint32_t size = load_plain(peer, pos, &rec);
	unsigned n = 0;

	if (!size || !begin_run(&r, peer, &rec))
		return 0;
	struct vb_rq *rq = &r.qp->rq;
	uint32_t head = atomic_load_explicit(&rq->head, memory_order_relaxed);
	uint32_t there = atomic_load_explicit(&rq->tail, memory_order_acquire) - head;
	unsigned most = cq == r.qp->rcq && want < RUN ? want : RUN;

	if (most > there)
		most = there;
	while (most) {
		const uint8_t *at = peer->rx + (pos & VB_RING_MASK);
		uint32_t slot = (head + n) & rq->mask;

		__builtin_prefetch(at + size);
		if (!store(&r, slot, &rec, at + vb_rec_send_head(rec.length)))
			break;
		if (r.qp->type == IBV_QPT_RC)
			vb_local_ack(r.qp, rec.ack);
		received[n++] = (struct vb_received){.wr_id = rq->wqe[slot].wr_id,
		                                     .length = rec.length,
		                                     .imm = rec.imm,
		                                     .with_imm = rec.src & (uint32_t)VB_RECF_IMM << 24,
		                                     .solicited = rec.src & (uint32_t)VB_RECF_SOLICITED << 24};
		r.bytes += rec.length;
		r.psn = vb_rec_word((r.psn + 1) & VB_PSN_MASK, vb_rec_top(r.psn));
		pos += size;
		/* looks at no record in vain. The sender may write while this process reads, so the consumed position is
		 * published in time */
		if (n == most || (pos ^ peer->rx_head) / (VB_RING_BYTES / 8))
			break;
		size = load_plain(peer, pos, &rec);
		if (!size || !continues(&r, &rec))
			break;
	}
	if (n) {
		peer->rx_head = pos;
		end_run(&r, received, n);
	}
	return n;
}
