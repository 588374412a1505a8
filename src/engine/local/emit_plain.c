// emit_plain.c - writes runs of plain SENDs to our ring to the peer: the most frequent requests
// follows: IBA volume 1, 9.7.3 (requester), 10.8 (ordering); docs/same-host.md
// SPDX-License-Identifier: MIT
#include "core/mr.h"
#include "core/pd.h"
#include "engine/local/requester.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "util/guard.h"

/* Is it a SEND whose data lies in the ring, in one record? */
static inline bool is_plain(const struct vb_swqe *w)
{
	return (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM) && w->state == VB_SWQE_POSTED &&
	       w->length - 1 < VB_CHOICE_MIN - 1 && !(w->flags & IBV_SEND_FENCE) &&
	       (w->num_sge == 1 || (w->flags & IBV_SEND_INLINE));
}

/* Its bytes, or NULL. */
static inline const void *bytes_of(struct vb_qp *qp, const struct vb_swqe *w)
{
	uint64_t va;

	if (w->flags & IBV_SEND_INLINE)
		return vb_sq_inline(qp, qp->sq_emit);
	const struct ibv_sge *sge = vb_sq_sges(qp, qp->sq_emit);

	return vb_mr_check_local(qp->node, vb_pd_id(qp->pd), sge->lkey, sge->addr, sge->length, 0, &va)
	               ? (const void *)(uintptr_t)va
	               : NULL;
}

/* Writes the request at sq_emit. False, with nothing sent: the way of all others has to judge it. Under tx_lock. */
static inline bool write_one(struct vb_qp *qp, struct vb_peer *peer, struct vb_swqe *w, bool reliable)
{
	uint32_t length = w->length, head = vb_rec_send_head(length), size = vb_ring_size(head + length);
	uint32_t psn = (uint32_t)(qp->attr.sq_psn + qp->local.ssn_emit) & VB_PSN_MASK;
	struct vb_rec *rec = vb_ring_reserve(peer, head + length);
	const void *from = rec ? bytes_of(qp, w) : NULL;

	if (!from || !vb_guard_copy((uint8_t *)rec + head, from, length))
		return false;
	vb_rec_fill(qp, rec, VB_REC_SEND, VB_RECF_FIRST | VB_RECF_LAST | vb_local_message_flags(w), psn, length,
	            w->imm);
	vb_ring_publish(peer, peer->tx_tail, size);
	w->ring_end = peer->tx_tail;
	w->psn = psn;
	w->state = reliable ? VB_SWQE_SENT : VB_SWQE_DONE; /* status is IBV_WC_SUCCESS since it was posted */
	qp->local.ssn_emit++;
	vb_local_count_sent(qp, w);
	return true;
}

void vb_local_emit_plain(struct vb_qp *qp, uint32_t end)
{
	struct vb_peer *peer = qp->local.peer;
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);
	bool reliable = vb_qp_is_reliable(qp);

	if (!is_plain(w) || qp->local.owed || qp->local.sq_emit_off)
		return;
	vb_lock(&peer->tx_lock);
	uint32_t begin = qp->sq_emit;

	while (write_one(qp, peer, w, reliable)) {
		qp->local.last_ring_end = peer->tx_tail;
		qp->sq_emit++;
		if (qp->sq_emit == end)
			break;
		w = vb_sq_at(qp, qp->sq_emit);
		if (!is_plain(w))
			break;
	}
	vb_unlock(&peer->tx_lock);
	if (!reliable && qp->sq_emit != begin)
		(void)vb_local_retire_done(qp); /* none of them has failed */
}
