// execute.c - executes a request of a connected peer: SEND, RDMA write, atomic, and what a requester could not judge
// follows: IBA volume 1, 9.7.3 to 9.7.4 (responder), 9.8.2 (UC)
// SPDX-License-Identifier: MIT
#include "core/cntr.h"
#include "core/pd.h"
#include "core/rq.h"
#include "core/tm.h"
#include "engine/local/responder.h"
#include "frame/net.h"
#include "util/guard.h"

/* --- the receive --- */

/* Where a datagram comes from. */
static void name_source(const struct vb_qp *qp, const struct vb_local_req *q, struct ibv_wc *wc)
{
	if (q && VB_REC_UD_IS_IB(&q->ext)) {
		wc->wc_flags |= VB_REC_UD_GRH(&q->ext) ? IBV_WC_GRH : 0;
		wc->sl = VB_REC_UD_SL(&q->ext);
		wc->slid = VB_REC_UD_SLID(&q->ext);
		wc->dlid_path_bits = VB_REC_UD_PATH_BITS(&q->ext);
		wc->pkey_index = qp->attr.pkey_index;
		return;
	}
	wc->wc_flags |= IBV_WC_GRH;
	wc->sl = q && q->rec.length >= VB_GRH_LEN && q->payload[0] >> 4 != 6 ? VB_SL_IPV4 : VB_SL_IPV6;
}

void vb_local_receive_complete(struct vb_qp *qp, struct vb_local_req *q, enum ibv_wc_status status,
                               enum ibv_wc_opcode opcode, uint32_t length)
{
	struct vb_cqe cqe = {
	        .wc = {.wr_id = qp->inbound->wqe.wr_id,
	               .status = status,
	               .opcode = opcode,
	               .byte_len = length,
	               .qp_num = qp->qp.qp_num,
	               .src_qp = q ? q->rec.src & VB_QPN_MASK : 0},
	        .receive = vb_rq_of(qp),
	};

	if (__builtin_expect(qp->xrc.initiator != 0, 0)) { /* a guest: the connection is its target's */
		cqe.wc.qp_num = qp->attr.dest_qp_num;
		cqe.wc.src_qp = q ? qp->xrc.initiator : 0;
	}
	if (q && (q->flags & VB_RECF_IMM)) {
		cqe.wc.wc_flags |= IBV_WC_WITH_IMM;
		cqe.wc.imm_data = q->rec.imm;
	}
	if (q && (q->flags & VB_RECF_INV)) {
		cqe.wc.wc_flags |= IBV_WC_WITH_INV;
		cqe.wc.invalidated_rkey = q->rec.imm;
	}
	if (qp->type == IBV_QPT_UD)
		name_source(qp, q, &cqe.wc);
	if (__builtin_expect(qp->inbound->kind != VB_TM_PLAIN, 0))
		vb_tm_complete(qp, &cqe);
	if (__builtin_expect(qp->rq_counted, 0))
		vb_cntr_received(qp, status, 1, length);
	qp->inbound->active = false;
	vb_cq_push(qp->rcq, &cqe, q && (q->flags & VB_RECF_SOLICITED));
}

/* --- requests --- */

/* Stores a large piece, and measures what that costs: for the class of messages of one piece, or of several. The last
 * piece of several may be too short for that. Out of the way of small messages. */
static __attribute__((noinline)) enum vb_verdict scatter_measured(struct vb_qp *qp, struct vb_local_req *q)
{
	unsigned class = (q->flags & (VB_RECF_FIRST | VB_RECF_LAST)) != (VB_RECF_FIRST | VB_RECF_LAST);
	struct vb_cost *cost = &q->peer->ring_cost[class];
	uint64_t begin = vb_cost_begin(cost);
	enum vb_verdict v = vb_local_scatter(qp, q->payload, q->rec.length);

	if (v == VB_VERDICT_OK && vb_cost_end(cost, begin, q->rec.length))
		atomic_store_explicit(&q->peer->ours->costs[class].ring, cost->ns, memory_order_relaxed);
	return v;
}

/* On a network a message of up to the path MTU is a single packet. */
static inline bool take_for_send(struct vb_qp *qp, const struct vb_local_req *q)
{
	if (qp->srq && __builtin_expect(qp->srq->rq.tagged, 0))
		return vb_tm_take(qp, q->payload, q->rec.length,
		                  (q->flags & VB_RECF_LAST) && q->rec.length <= 128u << qp->attr.path_mtu);
	return vb_receive_take(qp);
}

static enum vb_verdict do_send(struct vb_qp *qp, struct vb_local_req *q)
{
	if (q->flags & VB_RECF_FIRST) {
		/* UC: the previous message was incomplete, and its receive is reused (IBA 9.8.2.2) */
		if (qp->inbound->active)
			qp->inbound->offset = 0;
		else if (!take_for_send(qp, q))
			return VB_VERDICT_RNR;
	} else if (!qp->inbound->active) {
		return VB_VERDICT_DROP;
	}
	if (q->rec.length > qp->inbound->wqe.length || qp->inbound->offset > qp->inbound->wqe.length - q->rec.length)
		return VB_VERDICT_TOO_LONG;

	enum vb_verdict v = q->rec.length < VB_CHOICE_MIN ? vb_local_scatter(qp, q->payload, q->rec.length)
	                                                  : scatter_measured(qp, q);

	if (v != VB_VERDICT_OK)
		return v;
	qp->local.received_bytes[0] += q->rec.length;
	if (!(q->flags & VB_RECF_LAST))
		return VB_VERDICT_OK;
	v = vb_local_invalidate_sent(qp, q);
	if (v != VB_VERDICT_OK)
		return v;
	uint32_t length = qp->inbound->offset;

	vb_local_count_taken(qp);
	vb_local_receive_complete(qp, q, IBV_WC_SUCCESS, IBV_WC_RECV, length);
	return VB_VERDICT_OK;
}

/* The immediate of an RDMA write consumes a receive (IBA 9.7.4.1.1). */
static inline enum vb_verdict complete_write_imm(struct vb_qp *qp, struct vb_local_req *q, uint32_t length)
{
	if (!qp->inbound->active && !vb_receive_take(qp))
		return VB_VERDICT_RNR;
	vb_local_count_taken(qp);
	vb_local_receive_complete(qp, q, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM, length);
	return VB_VERDICT_OK;
}

/* Does this part of an RDMA write take a receive before its key is checked? On a network the packet with the immediate
 * does. It is also the first packet if the message is a single packet. So both paths consume the same receives. */
static bool receives_first(const struct vb_qp *qp, const struct vb_local_req *q)
{
	unsigned ends = q->flags & (VB_RECF_LAST | VB_RECF_IMM);

	if (ends != (VB_RECF_LAST | VB_RECF_IMM))
		return false;
	return !(q->flags & VB_RECF_FIRST) || q->ext.total <= 128u << qp->attr.path_mtu;
}

/* Stores data that the sender may withdraw. The claim is published before, so either this process sees that the record
 * is held, or the sender sees the claim. The fence between is the sender's membarrier(2) (withdraw.c). */
static enum vb_placed place_data(struct vb_local_req *q, uint64_t va)
{
	struct vb_slot_shared *ours = q->peer->ours;

	atomic_store_explicit(&ours->claimed, q->end, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	enum vb_placed placed =
	        vb_guard_place((void *)(uintptr_t)va, q->payload, q->rec.length,
	                       (const _Atomic uint32_t *)&q->in_ring->dest, q->rec.dest, &ours->placed, q->end);

	if (placed != VB_PLACE_DONE)
		atomic_store_explicit(&ours->claimed, atomic_load_explicit(&ours->placed, memory_order_relaxed),
		                      memory_order_release);
	q->held = placed == VB_PLACE_HELD;
	return placed;
}

/* Has the sender taken the record back since it was read? Then it may have executed the write itself, and this program may
 * have ended the key. */
static bool is_taken_back(struct vb_local_req *q)
{
	q->held = q->flags & VB_RECF_MAY_HOLD && atomic_load_explicit((const _Atomic uint32_t *)&q->in_ring->dest,
	                                                              memory_order_acquire) != q->rec.dest;
	return q->held;
}

static enum vb_verdict do_write(struct vb_qp *qp, struct vb_local_req *q)
{
	bool last = q->flags & VB_RECF_LAST;
	uint64_t va;

	if (q->type != VB_REC_WRITTEN && !vb_local_allows(qp, IBV_ACCESS_REMOTE_WRITE))
		return VB_VERDICT_INVALID;
	if (q->rec.length && q->type != VB_REC_WRITTEN) {
		bool receives = receives_first(qp, q);
		enum vb_verdict refused = receives ? VB_VERDICT_ACCESS : VB_VERDICT_DENIED;

		if (receives && !qp->inbound->active && !vb_receive_take(qp))
			return VB_VERDICT_RNR; /* before the data is stored, because the retry sends it again */
		/* the check of the first piece covers the whole message (IBA 9.7.4.1.5) */
		uint32_t checked =
		        (q->flags & VB_RECF_FIRST) && q->ext.total > q->rec.length ? q->ext.total : q->rec.length;

		if (!vb_own_memory(qp, q->ext.rkey, q->ext.remote_addr, checked, IBV_ACCESS_REMOTE_WRITE, &va))
			return is_taken_back(q) ? VB_VERDICT_HELD : refused;
		if (last && (q->flags & VB_RECF_IMM) && !qp->inbound->active && !vb_receive_take(qp))
			return VB_VERDICT_RNR;
		if ((q->flags & VB_RECF_MAY_HOLD) && qp->type == IBV_QPT_RC && vb_guard_can_place()) {
			enum vb_placed placed = place_data(q, va);

			if (placed != VB_PLACE_DONE)
				return placed == VB_PLACE_HELD ? VB_VERDICT_HELD : refused;
		} else if (!(last ? vb_guard_copy_tail : vb_guard_copy)((void *)(uintptr_t)va, q->payload,
		                                                        q->rec.length)) {
			return refused;
		}
		VB_COUNT_PROGRESS(ring_bytes, q->rec.length);
	}
	qp->local.received_bytes[0] += q->rec.length;
	if (!last)
		return VB_VERDICT_OK;
	if (q->flags & VB_RECF_IMM)
		return complete_write_imm(qp, q, q->ext.total);
	atomic_store_explicit(&qp->local.written, atomic_load_explicit(&qp->local.written, memory_order_relaxed) + 1,
	                      memory_order_relaxed);
	vb_local_count_taken(qp);
	return VB_VERDICT_OK;
}

static enum vb_verdict do_atomic(struct vb_qp *qp, struct vb_local_req *q)
{
	uint64_t va, old;

	/* IBA C9-86: a misaligned address is an invalid request */
	if (!qp->attr.max_dest_rd_atomic || !vb_local_allows(qp, IBV_ACCESS_REMOTE_ATOMIC) || (q->ext.remote_addr & 7))
		return VB_VERDICT_INVALID;
	if (!vb_own_memory(qp, q->ext.rkey, q->ext.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC, &va))
		return VB_VERDICT_DENIED;
	if (va & 7)
		return VB_VERDICT_INVALID;
	if (!(q->flags & VB_RECF_FETCH_ADD
	              ? vb_guard_add((uint64_t *)(uintptr_t)va, q->ext.compare_add, &old)
	              : vb_guard_cas((uint64_t *)(uintptr_t)va, q->ext.compare_add, q->ext.swap, &old)))
		return VB_VERDICT_DENIED;
	atomic_store_explicit(&qp->shared->atomic_result[VB_REC_SLOT(&q->ext) % VB_RD_ATOM_SLOTS], old,
	                      memory_order_relaxed);
	vb_local_count_taken(qp);
	return VB_VERDICT_OK;
}

/* Judges a one-copy operation that the requester's own check refused, so that both ends reach the state that the
 * specification requires. */
static enum vb_verdict do_verdict(struct vb_qp *qp, struct vb_local_req *q)
{
	uint32_t access = q->flags & VB_RECF_IS_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	uint64_t va;

	if (!vb_local_allows(qp, access))
		return VB_VERDICT_INVALID;
	if (receives_first(qp, q) && !qp->inbound->active && !vb_receive_take(qp))
		return VB_VERDICT_RNR;
	if (!(q->flags & VB_RECF_FAULT) &&
	    /* allowed now, after a re-registration: the requester tries again */
	    (!q->ext.total || vb_own_memory(qp, q->ext.rkey, q->ext.remote_addr, q->ext.total, access, &va)))
		return VB_VERDICT_DROP;
	return receives_first(qp, q) ? VB_VERDICT_ACCESS : VB_VERDICT_DENIED;
}

enum vb_verdict vb_local_execute(struct vb_qp *qp, struct vb_local_req *q)
{
	switch (q->type) {
	case VB_REC_SEND:
		return do_send(qp, q);
	case VB_REC_PULL:
		return vb_local_pull(qp, q);
	case VB_REC_WRITE:
	case VB_REC_WRITTEN:
		return do_write(qp, q);
	case VB_REC_NOTIFY:
		qp->local.received_bytes[0] += q->ext.total;
		return complete_write_imm(qp, q, q->ext.total);
	case VB_REC_READ:
		return vb_qp_is_reliable(qp) ? vb_local_accept_read(qp, q) : VB_VERDICT_DROP;
	case VB_REC_ATOMIC:
		return vb_qp_is_reliable(qp) ? do_atomic(qp, q) : VB_VERDICT_DROP;
	case VB_REC_ATOMIC_WRITE:
		return vb_qp_is_reliable(qp) ? vb_local_atomic_write(qp, q) : VB_VERDICT_DROP;
	case VB_REC_FLUSH:
		return vb_qp_is_reliable(qp) ? vb_local_flush(qp, q) : VB_VERDICT_DROP;
	case VB_REC_VERDICT:
		return do_verdict(qp, q);
	default:
		return VB_VERDICT_DROP;
	}
}
