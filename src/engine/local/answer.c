// answer.c - the responder's answers to RDMA reads: data in the ring, piece by piece
// follows: IBA volume 1, 9.7.5.1.9 (RDMA READ responses), over rings in shared memory
// SPDX-License-Identifier: MIT
#include "core/mr.h"
#include "engine/local/relay.h"
#include "engine/local/responder.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "util/guard.h"

bool vb_local_is_withdrawn(const struct vb_qp *qp, const struct vb_peer *peer, uint32_t psn)
{
	uint32_t last =
	        atomic_load_explicit(&vb_seg_qp(peer->seg, qp->attr.dest_qp_num)->withdrawn, memory_order_acquire);

	return __builtin_expect(last != 0, 0) && ((last - psn) & VB_PSN_MASK) < VB_PSN_HALF;
}

enum vb_verdict vb_local_accept_read(struct vb_qp *qp, struct vb_local_req *q)
{
	uint64_t va = 0;
	bool granted = !q->ext.total || q->there ||
	               vb_own_memory(qp, q->ext.rkey, q->ext.remote_addr, q->ext.total, IBV_ACCESS_REMOTE_READ, &va);

	/* asked after the look at the key, which this program may end as soon as the peer has withdrawn the read */
	if (vb_local_is_withdrawn(qp, q->peer, qp->local.epsn)) {
		vb_local_count_taken(qp);
		return VB_VERDICT_OK;
	}
	if (!vb_local_allows(qp, IBV_ACCESS_REMOTE_READ))
		return VB_VERDICT_INVALID;
	if (!granted)
		return VB_VERDICT_DENIED;
	if (qp->local.inread_tail - qp->local.inread_head >= VB_RD_ATOM_SLOTS ||
	    /* more than max_dest_rd_atomic (IBA C9-59) */
	    qp->local.inread_tail - qp->local.inread_head >= qp->attr.max_dest_rd_atomic)
		return VB_VERDICT_INVALID;
	qp->local.inread[qp->local.inread_tail++ % VB_RD_ATOM_SLOTS] = (struct vb_inread){.index = qp->local.taken,
	                                                                                  .addr = q->ext.remote_addr,
	                                                                                  .key = q->ext.rkey,
	                                                                                  .psn = qp->local.epsn,
	                                                                                  .length = q->ext.total,
	                                                                                  .srqn = q->rec.ack};
	vb_local_count_taken(qp);
	vb_local_serve_reads(qp);
	return VB_VERDICT_OK;
}

/* Copies the next piece of the answer. The protection domain of an XRC request is that of the SRQ that it names. */
static enum vb_relay_result fetch_piece(struct vb_qp *qp, const struct vb_inread *r, uint8_t *to, uint32_t piece)
{
	enum vb_xrc_place place = qp->type == IBV_QPT_XRC_RECV ? vb_xrc_select_answer(qp, r->srqn) : VB_XRC_HERE;
	uint64_t va = 0;

	if (place == VB_XRC_THERE)
		return vb_relay_read(qp, r->index, r->srqn, r->key, r->addr + r->offset, r->length - r->offset, to,
		                     piece);
	return place == VB_XRC_HERE &&
	                       vb_own_memory(qp, r->key, r->addr + r->offset, piece, IBV_ACCESS_REMOTE_READ, &va) &&
	                       vb_guard_copy(to, (const void *)(uintptr_t)va, piece)
	               ? VB_RELAY_DATA
	               : VB_RELAY_GONE;
}

/* The data of a piece that is in another process is fetched before there is a place for it in the ring. */
static bool is_here(struct vb_qp *qp, const struct vb_inread *r, uint32_t piece)
{
	return qp->type != IBV_QPT_XRC_RECV || !piece || vb_xrc_select_answer(qp, r->srqn) != VB_XRC_THERE ||
	       vb_relay_read(qp, r->index, r->srqn, r->key, r->addr + r->offset, r->length - r->offset, NULL, piece) !=
	               VB_RELAY_WAIT;
}

static void inread_done(struct vb_qp *qp)
{
	qp->local.inread_head++;
	vb_local_update_ackable(qp);
}

void vb_local_serve_reads(struct vb_qp *qp)
{
	struct vb_peer *peer = qp->local.peer;

	while (qp->local.inread_head != qp->local.inread_tail) {
		struct vb_inread *r = &qp->local.inread[qp->local.inread_head % VB_RD_ATOM_SLOTS];
		uint32_t piece = r->length - r->offset < VB_RING_PIECE ? r->length - r->offset : VB_RING_PIECE;

		if (vb_local_is_withdrawn(qp, peer, r->psn)) {
			inread_done(qp);
			continue;
		}
		if (!is_here(qp, r, piece))
			return; /* vb_relay_data calls again */
		vb_lock(&peer->tx_lock);
		uint32_t head = vb_rec_rdma_head(piece);
		struct vb_rec *rec = vb_ring_reserve(peer, head + piece);
		if (!rec && vb_ring_want_space(peer))
			rec = vb_ring_reserve(peer, head + piece);
		if (!rec) {
			vb_unlock(&peer->tx_lock);
			break;
		}
		struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);
		bool ok = !piece || fetch_piece(qp, r, (uint8_t *)rec + head, piece) == VB_RELAY_DATA;

		if (ok) {
			ext->remote_addr = r->offset;
			ext->rkey = 0;
			ext->total = r->length;
			rec->dest = vb_rec_word(qp->attr.dest_qp_num, VB_REC_READ_DATA);
			rec->src = qp->qp.qp_num;
			rec->psn = r->psn;
			rec->length = piece;
			rec->ack = 0;
			vb_ring_commit(peer, head + piece);
			vb_peer_notify(peer);
			vb_ring_prepare(peer);
		}
		vb_unlock(&peer->tx_lock);
		if (!ok && vb_local_is_withdrawn(qp, peer, r->psn)) /* meanwhile; then its region may be gone */
			continue;
		if (!ok) {
			vb_local_refuse_read(qp);
			return;
		}
		r->offset += piece;
		qp->local.received_bytes[1] += piece;
		if (r->offset == r->length)
			inread_done(qp);
	}
	if (qp->local.inread_head != qp->local.inread_tail)
		vb_local_ack_later(qp); /* keeps the QP in the list of vb_local_publish_acks, which tries again */
	else if (__builtin_expect(qp->local.refusal, 0))
		vb_local_reads_served(qp);
}
