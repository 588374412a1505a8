// place.c - the responder's part of ATOMIC WRITE and FLUSH
// follows: IBA annexes A19 (FLUSH), A20 (ATOMIC WRITE), over rings in shared memory
// SPDX-License-Identifier: MIT
#include "core/place.h"

#include "engine/local/responder.h"

enum vb_verdict vb_local_atomic_write(struct vb_qp *qp, const struct vb_local_req *q)
{
	if (!qp->attr.max_dest_rd_atomic || !vb_local_allows(qp, IBV_ACCESS_REMOTE_WRITE))
		return VB_VERDICT_INVALID;
	switch (vb_own_word(qp, q->ext.rkey, q->ext.remote_addr, q->ext.swap)) {
	case VB_WORD_DENIED:
		return VB_VERDICT_DENIED;
	case VB_WORD_MISALIGNED:
		return VB_VERDICT_INVALID;
	default:
		break;
	}
	qp->local.received_bytes[0] += VB_ATOMIC_WRITE_LEN;
	vb_local_count_taken(qp);
	return VB_VERDICT_OK;
}

enum vb_verdict vb_local_flush(struct vb_qp *qp, const struct vb_local_req *q)
{
	struct vb_feth flush = vb_feth_of((uint32_t)q->ext.compare_add);

	if (!qp->attr.max_dest_rd_atomic || !vb_feth_is_known(flush) || q->ext.swap > VB_FLUSH_MAX ||
	    !vb_local_allows(qp, vb_flush_access(flush.type)))
		return VB_VERDICT_INVALID;
	if (!vb_own_flush(qp, q->ext.rkey, q->ext.remote_addr, q->ext.swap, flush))
		return VB_VERDICT_DENIED;
	vb_local_count_taken(qp);
	return VB_VERDICT_OK;
}
