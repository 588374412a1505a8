// queue_ops.c - callbacks of the RoCE and iWARP engines for a queue pair's queues and memory
// follows: IBA volume 1, 10.3 to 10.8; engine/roce/roce.h
// SPDX-License-Identifier: MIT
#include "path/queue_ops.h"

#include <arpa/inet.h>

#include "core/cntr.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/mw.h"
#include "core/place.h"
#include "core/sq.h"
#include "core/tm.h"
#include "util/guard.h"

/* --- the send queue --- */

static const struct {
	uint8_t verb, flags;
} verbs[] = {
        [IBV_WR_SEND] = {VB_VERB_SEND, 0},
        [IBV_WR_SEND_WITH_IMM] = {VB_VERB_SEND, VB_WORK_IMM},
        [IBV_WR_SEND_WITH_INV] = {VB_VERB_SEND, VB_WORK_INV},
        [IBV_WR_RDMA_WRITE] = {VB_VERB_WRITE, 0},
        [IBV_WR_RDMA_WRITE_WITH_IMM] = {VB_VERB_WRITE, VB_WORK_IMM},
        [IBV_WR_RDMA_READ] = {VB_VERB_READ, 0},
        [IBV_WR_ATOMIC_CMP_AND_SWP] = {VB_VERB_CMP_SWAP, 0},
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = {VB_VERB_FETCH_ADD, 0},
        [IBV_WR_LOCAL_INV] = {VB_VERB_LOCAL_INV, 0},
        [VB_IBV_WR_FLUSH] = {VB_VERB_FLUSH, 0},
        [IBV_WR_ATOMIC_WRITE] = {VB_VERB_ATOMIC_WRITE, 0},
        [IBV_WR_BIND_MW] = {VB_VERB_LOCAL_INV, 0},
};

static struct vb_swqe *swqe_of(struct vb_qp *qp, const struct vb_work *work)
{
	return vb_sq_at(qp, (uint32_t)work->cookie);
}

/* Checks the memory for the response to a READ or an atomic, so that an error shows before the request is sent. */
static void check_answer_target(struct vb_qp *qp, struct vb_swqe *w, bool atomic)
{
	struct iovec iov[VB_MAX_SGE + 1];

	if (atomic && w->length != 8)
		w->status = IBV_WC_LOC_LEN_ERR;
	else if (vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov) < 0)
		w->status = IBV_WC_LOC_PROT_ERR;
	else
		return;
	w->state = VB_SWQE_DONE;
}

/* What a flush or an atomic write is made of. */
static __attribute__((noinline)) void fill_placed(struct vb_qp *qp, struct vb_swqe *w, struct vb_work *work)
{
	if (w->opcode == VB_IBV_WR_FLUSH) {
		work->imm = vb_feth_word(vb_swqe_feth(w));
		work->length = (uint32_t)w->swap;
		return;
	}
	enum ibv_wc_status status = vb_sq_take_word(qp, w);

	work->swap_add = w->swap;
	if (status == IBV_WC_SUCCESS)
		return;
	w->status = (uint8_t)status;
	w->state = VB_SWQE_DONE;
}

__attribute__((hot)) bool vb_queue_next_send(void *own, struct vb_work *work)
{
	struct vb_qp *qp = own;

	if (qp->sq_emit == qp->sq_head)
		return false;
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_emit);
	bool atomic = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	bool add = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	*work = (struct vb_work){
	        .cookie = qp->sq_emit,
	        .remote_addr = w->remote_addr,
	        .compare = atomic ? w->compare_add : 0,
	        .swap_add = atomic ? add ? w->compare_add : w->swap : 0,
	        .rkey = w->rkey,
	        .imm = verbs[w->opcode].flags & VB_WORK_IMM ? ntohl(w->imm) : w->imm,
	        .length = w->length,
	        .srqn = qp->type == IBV_QPT_XRC_SEND ? qp->xrc.srqns[qp->sq_emit & qp->sq_mask] : 0,
	        .verb = verbs[w->opcode].verb,
	        .flags = verbs[w->opcode].flags,
	};
	if (w->flags & IBV_SEND_SOLICITED)
		work->flags |= VB_WORK_SOLICITED;
	if (w->flags & IBV_SEND_FENCE)
		work->flags |= VB_WORK_FENCE;
	if (w->state != VB_SWQE_DONE && (atomic || w->opcode == IBV_WR_RDMA_READ))
		check_answer_target(qp, w, atomic);
	else if (w->state != VB_SWQE_DONE && w->opcode >= VB_IBV_WR_FLUSH)
		fill_placed(qp, w, work);
	/* The request failed in check_answer_target or when it was posted. An impossible length makes the engine fail it, in
	 * order. */
	if (w->state == VB_SWQE_DONE)
		work->length = UINT32_MAX;
	qp->sq_emit++;
	return true;
}

static enum ibv_wc_status wc_status(enum vb_work_status status)
{
	static const enum ibv_wc_status of[] = {
#define X(name, text) [VB_WORK_##name] = IBV_WC_##name,
	        VB_WORK_STATUSES(X)
#undef X
	};

	return of[status];
}

__attribute__((hot)) void vb_queue_complete_send(void *own, const struct vb_work *work, enum vb_work_status status)
{
	struct vb_qp *qp = own;
	struct vb_swqe *w = swqe_of(qp, work);

	if (__builtin_expect(status == VB_WORK_WR_FLUSH_ERR, 0) && vb_mw_finish(qp, w))
		status =
		        VB_WORK_SUCCESS; /* it has begun, so no request before it is left, and this is under progress */
	if ((w->flags & VB_SEND_TOLD) || status != VB_WORK_SUCCESS)
		vb_sq_tell(qp, w,
		           status == VB_WORK_LOC_LEN_ERR && w->state == VB_SWQE_DONE ? w->status : wc_status(status));
	vb_sq_retire(qp);
	atomic_store_explicit(&qp->sq_pending, qp->sq_head - qp->sq_una, memory_order_relaxed);
}

/* Returns the length of the memory region that holds the first sge; 0 for inline data. */
static uint64_t region_length(struct vb_qp *qp, const struct vb_swqe *w)
{
	const struct ibv_sge *sge = &qp->ssge[(size_t)(w - qp->swqe) * qp->sq_max_sge];

	if (w->flags & IBV_SEND_INLINE || !w->num_sge)
		return 0;
	return atomic_load_explicit(&vb_seg_mr_of(qp->node->seg, sge->lkey)->length, memory_order_relaxed);
}

__attribute__((hot)) const struct vb_known *vb_queue_pieces(struct vb_qp *qp, struct vb_known *k,
                                                            const struct vb_work *work, uint32_t access)
{
	if (k->gathered && k->cookie == (uint32_t)work->cookie && k->access == access)
		return k;
	k->n = vb_gather(qp, swqe_of(qp, work), access, k->iov);
	k->gathered = k->n >= 0;
	k->region = k->n == 1 ? region_length(qp, swqe_of(qp, work)) : 0;
	k->cookie = (uint32_t)work->cookie;
	k->access = access;
	return k->gathered ? k : NULL;
}

enum vb_local vb_queue_local(struct vb_qp *qp, const struct vb_work *work)
{
	static const enum vb_local of[] = {
	        [VB_MW_FAILED] = VB_LOCAL_FAILED, [VB_MW_DONE] = VB_LOCAL_DONE, [VB_MW_LATER] = VB_LOCAL_LATER};

	return of[vb_mw_execute(qp, swqe_of(qp, work))];
}

/* --- the receive queue --- */

__attribute__((hot)) bool vb_queue_take_receive(void *own, uint32_t *room)
{
	struct vb_qp *qp = own;

	if (!qp->inbound->active && !vb_receive_take(qp))
		return false;
	qp->inbound->offset = 0;
	*room = qp->inbound->wqe.length;
	return true;
}

bool vb_queue_take_tagged(void *own, const uint8_t *payload, uint32_t len, bool single, uint32_t *room)
{
	struct vb_qp *qp = own;

	if (!qp->inbound->active && !vb_tm_take(qp, payload, len, single))
		return false;
	qp->inbound->offset = 0;
	*room = qp->inbound->wqe.length;
	return true;
}

/* Where a datagram of an InfiniBand link comes from. */
static void name_link(struct vb_qp *qp, const struct vb_receipt *r, struct ibv_wc *wc)
{
	struct vb_device *dev = vb_qp_device(qp);

	wc->wc_flags |= r->local ? 0 : IBV_WC_GRH;
	wc->sl = r->sl;
	wc->slid = r->slid;
	wc->dlid_path_bits = dev ? vb_ib_path_bits(dev, r->dlid) : 0;
	wc->pkey_index = qp->attr.pkey_index;
}

__attribute__((hot)) void vb_queue_complete_receive(void *own, const struct vb_receipt *r)
{
	struct vb_qp *qp = own;
	struct vb_cqe cqe = {
	        .wc = {.wr_id = qp->inbound->wqe.wr_id,
	               .status = wc_status(r->status),
	               .opcode = r->write_imm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
	               .byte_len = r->status == VB_WORK_SUCCESS ? r->length : 0,
	               .qp_num = qp->qp.qp_num,
	               .src_qp = qp->type == IBV_QPT_UD ? r->src_qpn : qp->attr.dest_qp_num},
	        .receive = vb_rq_of(qp),
	};

	if (r->flags & VB_WORK_IMM) {
		cqe.wc.wc_flags |= IBV_WC_WITH_IMM;
		cqe.wc.imm_data = htonl(r->imm);
	}
	if (r->flags & VB_WORK_INV) {
		cqe.wc.wc_flags |= IBV_WC_WITH_INV;
		cqe.wc.invalidated_rkey = r->imm;
	}
	if (qp->type == IBV_QPT_UD && qp->ib) {
		name_link(qp, r, &cqe.wc);
	} else if (qp->type == IBV_QPT_UD) {
		cqe.wc.wc_flags |= IBV_WC_GRH;
		cqe.wc.sl = r->ipv4 ? VB_SL_IPV4 : VB_SL_IPV6;
	}
	if (__builtin_expect(qp->inbound->kind != VB_TM_PLAIN, 0))
		vb_tm_complete(qp, &cqe);
	if (__builtin_expect(qp->rq_counted, 0))
		vb_cntr_received(qp, cqe.wc.status, 1, cqe.wc.byte_len);
	qp->inbound->active = false;
	vb_cq_push(qp->rcq, &cqe, r->solicited || r->status != VB_WORK_SUCCESS);
}

/* --- memory that the peer addresses by R_Key --- */

__attribute__((hot)) bool vb_queue_find_region(struct vb_qp *qp, struct vb_known *k, uint32_t rkey)
{
	if (!k->found || k->rkey != rkey) {
		k->found = vb_mr_read_shared(qp->node->seg, rkey, &k->view);
		k->rkey = rkey;
	}
	return k->found;
}

__attribute__((hot)) uint32_t vb_ibv_access_of(enum vb_right right)
{
	static const uint32_t access[] = {[VB_RIGHT_WRITE] = IBV_ACCESS_REMOTE_WRITE,
	                                  [VB_RIGHT_READ] = IBV_ACCESS_REMOTE_READ,
	                                  [VB_RIGHT_ATOMIC] = IBV_ACCESS_REMOTE_ATOMIC};

	return access[right];
}

uint8_t vb_rights_of(unsigned ibv_access)
{
	return (uint8_t)((ibv_access & IBV_ACCESS_REMOTE_WRITE ? VB_RIGHT_WRITE : 0) |
	                 (ibv_access & IBV_ACCESS_REMOTE_READ ? VB_RIGHT_READ : 0) |
	                 (ibv_access & IBV_ACCESS_REMOTE_ATOMIC ? VB_RIGHT_ATOMIC : 0) |
	                 (ibv_access & VB_IBV_ACCESS_FLUSH_GLOBAL ? VB_RIGHT_FLUSH_GLOBAL : 0) |
	                 (ibv_access & VB_IBV_ACCESS_FLUSH_PERSISTENT ? VB_RIGHT_FLUSH_PERSISTENT : 0));
}

enum vb_memory_result vb_queue_atomic(void *own, bool add, const struct vb_atomic *a, uint64_t *original)
{
	uint64_t at;

	if (!vb_own_memory(own, a->rkey, a->va, 8, IBV_ACCESS_REMOTE_ATOMIC, &at))
		return VB_MEMORY_DENIED;
	if ((at & 7) || (a->va & 7))
		return VB_MEMORY_MISALIGNED;
	uint64_t *word = (uint64_t *)(uintptr_t)at;
	bool done =
	        add ? vb_guard_add(word, a->swap_add, original) : vb_guard_cas(word, a->compare, a->swap_add, original);

	return done ? VB_MEMORY_OK : VB_MEMORY_DENIED;
}

enum vb_memory_result vb_queue_atomic_write(void *own, uint32_t rkey, uint64_t va, uint64_t value)
{
	static const uint8_t of[] = {[VB_WORD_STORED] = VB_MEMORY_OK,
	                             [VB_WORD_DENIED] = VB_MEMORY_DENIED,
	                             [VB_WORD_MISALIGNED] = VB_MEMORY_MISALIGNED};

	return (enum vb_memory_result)of[vb_own_word(own, rkey, va, value)];
}

bool vb_queue_flush(void *own, const struct vb_reth *range, struct vb_feth flush)
{
	return vb_own_flush(own, range->rkey, range->va, range->length, flush);
}

bool vb_queue_invalidate(struct vb_qp *qp, uint32_t rkey)
{
	return !vb_mw_invalidate_sent(qp, rkey);
}
