// requester.h - what the parts of the same-host requester know of each other
// follows: IBA volume 1, 9.7.5, 9.9, 10.8, over rings in shared memory
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_REQUESTER_H
#define VB_ENGINE_LOCAL_REQUESTER_H

#include "core/sq.h"
#include "engine/local/local.h"

enum vb_emit {
	VB_EMIT_OK,
	VB_EMIT_BLOCKED,
	VB_EMIT_FAILED, /* the entry is DONE, with its status */
};

/* Hands one entry over to its way; emit.c. Under sq_lock. */
enum vb_emit vb_emit_one(struct vb_qp *qp, struct vb_swqe *w);
/* Hands over every datagram whose path is open. VB_SQ_FAILED: the one at sq_emit has failed. datagram.c. Under
 * sq_lock. */
enum vb_sq_status vb_emit_datagrams(struct vb_qp *qp);

/* Is the other end there and willing? Its state is looked at anew each time something is to go (a QP that is not yet
 * in RTR drops what it gets: the requester tries again, as on a wire). */
bool vb_linked(struct vb_qp *qp);
/* 0: for ever */
uint64_t vb_timeout_ns(const struct vb_qp *qp);
/* Nothing more is emitted until the timer; then it counts as a retry. */
void vb_wait_retry(struct vb_qp *qp);

static inline void vb_stop_timer(struct vb_qp *qp)
{
	qp->deadline = 0;
	qp->timer_kind = VB_TIMER_NONE;
}

static inline enum vb_emit vb_emit_done(struct vb_swqe *w)
{
	w->state = VB_SWQE_DONE;
	w->status = IBV_WC_SUCCESS;
	return VB_EMIT_OK;
}

static inline enum vb_emit vb_emit_fault(struct vb_swqe *w, enum ibv_wc_status status)
{
	w->state = VB_SWQE_DONE;
	w->status = status;
	return VB_EMIT_FAILED;
}

static inline unsigned vb_message_flags(const struct vb_swqe *w)
{
	unsigned f = w->flags & IBV_SEND_SOLICITED ? VB_RECF_SOLICITED : 0;

	if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		f |= VB_RECF_IMM;
	if (w->opcode == IBV_WR_SEND_WITH_INV)
		f |= VB_RECF_INV;
	return f;
}

/* The head of a record from this QP. Under tx_lock. */
void vb_rec_fill(struct vb_qp *qp, struct vb_rec *rec, unsigned type, unsigned flags, uint32_t psn, uint32_t length,
                 uint32_t imm);

#endif
