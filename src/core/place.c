// place.c - the two operations that place data with a promise: ATOMIC WRITE and FLUSH
// follows: IBA annexes A19 (memory placement extensions: FLUSH), A20 (ATOMIC WRITE)
// SPDX-License-Identifier: MIT
#include "core/place.h"

#include "core/buffer.h"
#include "core/newer.h"
#include "core/pd.h"
#include "util/guard.h"

enum ibv_wc_status vb_sq_take_word(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];

	if (w->length != VB_ATOMIC_WRITE_LEN)
		return IBV_WC_LOC_LEN_ERR;
	if (w->slot) /* taken before, or by ibv_wr_atomic_write */
		return IBV_WC_SUCCESS;
	int n = vb_gather(qp, w, 0, iov);
	uint64_t value;

	if (n < 0 || !vb_copy_from(iov, n, 0, &value, sizeof(value)))
		return IBV_WC_LOC_PROT_ERR;
	w->swap = value;
	w->slot = 1;
	return IBV_WC_SUCCESS;
}

uint32_t vb_flush_access(uint8_t type)
{
	return (type & VB_IBV_FLUSH_GLOBAL ? VB_IBV_ACCESS_FLUSH_GLOBAL : 0u) |
	       (type & VB_IBV_FLUSH_PERSISTENT ? VB_IBV_ACCESS_FLUSH_PERSISTENT : 0u);
}

enum vb_word_result vb_own_word(struct vb_qp *qp, uint32_t key, uint64_t va, uint64_t value)
{
	uint64_t at;

	if (!vb_own_memory(qp, key, va, sizeof(value), IBV_ACCESS_REMOTE_WRITE, &at))
		return VB_WORD_DENIED;
	if ((at | va) & (sizeof(value) - 1))
		return VB_WORD_MISALIGNED;
	/* the tail of an aligned word is the whole word: one store, with release */
	return vb_guard_copy_tail((void *)(uintptr_t)at, &value, sizeof(value)) ? VB_WORD_STORED : VB_WORD_DENIED;
}

/* The region of a persistent flush does not exist: ibv_reg_mr refuses that right. So a fence is all there is to do. */
bool vb_own_flush(struct vb_qp *qp, uint32_t key, uint64_t va, uint64_t length, struct vb_feth flush)
{
	struct vb_mr_view view;
	uint64_t at;

	if (!vb_mr_read_shared(qp->node->seg, key, &view))
		return false;
	if (flush.level == VB_IBV_FLUSH_MR) {
		va = view.iova;
		length = view.length;
	}
	if (!vb_mr_view_allows(&view, vb_pd_id(qp->pd), qp->qp.qp_num, va, length, vb_flush_access(flush.type), &at))
		return false;
	atomic_thread_fence(memory_order_seq_cst);
	return true;
}
