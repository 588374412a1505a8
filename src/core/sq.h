// sq.h - a send queue: filled by ibv_post_send and the ibv_wr_ functions
// follows: IBA volume 1, 10.8.2 (send queue), 11.4.1.1 (post send request)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_SQ_H
#define VB_CORE_SQ_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/opcode.h"
#include "core/qp.h"
#include "core/tm.h"
#include "frame/fields.h"

static inline struct vb_swqe *vb_sq_at(struct vb_qp *qp, uint32_t i)
{
	return &qp->swqe[i & qp->sq_mask];
}

static inline struct ibv_sge *vb_sq_sges(struct vb_qp *qp, uint32_t i)
{
	return &qp->ssge[(size_t)(i & qp->sq_mask) * qp->sq_max_sge];
}

static inline uint8_t *vb_sq_inline(struct vb_qp *qp, uint32_t i)
{
	return qp->sinline + (size_t)(i & qp->sq_mask) * qp->sq_max_inline;
}

static inline uint8_t *vb_sq_tso(struct vb_qp *qp, const struct vb_swqe *w)
{
	return qp->stso + (size_t)(w - qp->swqe) * qp->sq_max_tso;
}

/* Copies the headers of a TSO request into the queue. 0 or EINVAL. Under sq_lock or wr_lock. */
static inline int vb_sq_take_tso(struct vb_qp *qp, struct vb_swqe *w, const void *head, uint16_t len, uint16_t mss)
{
	if (!head || !len || len > qp->sq_max_tso || !mss)
		return EINVAL;
	memcpy(vb_sq_tso(qp, w), head, len);
	w->imm = len;
	w->rkey = mss;
	return 0;
}

/* A copy of a datagram that waits for its receiver. A hardware adapter sends within microseconds, and programs rely on
 * that: UCX reuses a buffer when the receiver has answered the datagram or a later one, even if the send has not
 * completed. */
struct vb_held {
	struct vb_ah ah;
	uint8_t bytes[];
};

/* UD: frees the copy of a datagram that was sent, lost or flushed. Under sq_lock. */
static inline void vb_sq_release(struct vb_swqe *w)
{
	if (__builtin_expect(w->held != NULL, 0)) {
		free(w->held);
		w->held = NULL;
	}
	w->until = 0;
}

/* UD: frees the copies of all outstanding datagrams. Under sq_lock. qp_flush.c */
void vb_sq_drop_held(struct vb_qp *qp);

/* IBA 11.4.1.1: sends may be posted from RTS on; in SQE and ERR they are flushed. */
static inline bool vb_sq_accepts(uint8_t state)
{
	return state >= IBV_QPS_RTS;
}

/* Is the slot of entry i free? The previous entry of the slot must have been executed, and its completion, if any,
 * polled (IBA 10.8.5.1: until then it is outstanding). Under sq_lock or wr_lock. */
static inline bool vb_sq_has_room(struct vb_qp *qp, uint32_t i)
{
	uint32_t una = __atomic_load_n(&qp->sq_una, __ATOMIC_ACQUIRE);

	return i - una < qp->sq_max_wr && !atomic_load_explicit(&vb_sq_at(qp, i)->in_cq, memory_order_acquire);
}

/* Retires the oldest request. Its completion, if any, was pushed before. Under sq_lock. */
static inline void vb_sq_retire(struct vb_qp *qp)
{
	__atomic_store_n(&qp->sq_una, qp->sq_una + 1, __ATOMIC_RELEASE);
}

/* For vb_sq_tell: the rare queue pairs. Returns whether the entry has a completion. Under sq_lock. qp_flush.c */
bool vb_sq_tell_apart(struct vb_qp *qp, struct vb_swqe *w, enum ibv_wc_status status);

/* Pushes the completion of an entry. The entry keeps its slot until the completion leaves the queue. Under sq_lock. */
static inline void vb_sq_tell(struct vb_qp *qp, struct vb_swqe *w, enum ibv_wc_status status)
{
	struct vb_cqe cqe = {
	        .wc = {.wr_id = w->wr_id,
	               .status = status,
	               .opcode = vb_wr_lookup(w->opcode)->wc_opcode,
	               .byte_len = status == IBV_WC_SUCCESS ? w->length : 0,
	               .qp_num = qp->qp.qp_num},
	        .send = w,
	};

	if (__builtin_expect(status != IBV_WC_SUCCESS, 0))
		vb_qp_show_error(qp);
	if (__builtin_expect(qp->sq_apart, 0) && !vb_sq_tell_apart(qp, w, status))
		return;
	atomic_store_explicit(&w->in_cq, true, memory_order_relaxed);
	vb_cq_push(qp->scq, &cqe, false);
}

/* Appends the entry at sq_head. The caller has set all fields but psn, length, state and status. Under sq_lock. */
static inline void vb_sq_append(struct vb_qp *qp, struct vb_swqe *w, uint64_t length)
{
	w->psn = qp->psn_next;
	qp->psn_next = (qp->psn_next + 1) & VB_PSN_MASK;
	w->length = (uint32_t)length;
	w->state = VB_SWQE_POSTED;
	w->status = IBV_WC_SUCCESS;
	if (__builtin_expect(length > qp->max_msg, 0)) { /* IBA 10.7.1, 11.6.2: completes with an error, in order */
		w->state = VB_SWQE_DONE;
		w->status = IBV_WC_LOC_LEN_ERR;
		w->num_sge = 0;
		w->length = 0;
	}
	qp->sq_head++;
}

/* Called after the last append: sends as much as possible. state: the QP's state when the requests were checked.
 * Releases sq_lock. */
void vb_sq_submit(struct vb_qp *qp, uint8_t state);

#endif
