// rq.h - a receive queue: filled by the program, emptied by the responder
// follows: IBA volume 1, 10.8.3 (receive queue); 10.2.9 (shared receive queue)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_RQ_H
#define VB_CORE_RQ_H

#include "core/core.h"

static inline struct vb_rq *vb_rq_of(struct vb_qp *qp)
{
	return qp->srq ? &qp->srq->rq : &qp->rq;
}

/* Copies the oldest receive, which stays in the queue. *sges points into the queue, until vb_rq_advance. Returns false
 * if there is none. Under progress. */
static inline bool vb_rq_peek(const struct vb_rq *rq, struct vb_rwqe *wqe, struct ibv_sge **sges)
{
	uint32_t head = atomic_load_explicit(&rq->head, memory_order_relaxed);

	if (head == atomic_load_explicit(&rq->tail, memory_order_acquire))
		return false;
	*wqe = rq->wqe[head & rq->mask];
	*sges = &rq->sge[(size_t)(head & rq->mask) * rq->max_sge];
	return true;
}

/* Removes the oldest receive from the queue. vb_rq_give_back frees its slot later. Under progress. */
static inline void vb_rq_advance(struct vb_rq *rq)
{
	atomic_store_explicit(&rq->head, atomic_load_explicit(&rq->head, memory_order_relaxed) + 1,
	                      memory_order_release);
}

/* Frees the slot of a removed receive. Under the lock of the CQ in which it completed, or under progress if it did not
 * complete. */
static inline void vb_rq_give_back(struct vb_rq *rq)
{
	if (__builtin_expect(rq->shared, 0))
		atomic_fetch_add_explicit(&rq->polled, 1, memory_order_release);
	else
		atomic_store_explicit(&rq->polled, atomic_load_explicit(&rq->polled, memory_order_relaxed) + 1,
		                      memory_order_release);
}

static inline uint32_t vb_rq_count(const struct vb_rq *rq)
{
	uint32_t head = atomic_load_explicit(&rq->head, memory_order_acquire);

	return atomic_load_explicit(&rq->tail, memory_order_acquire) - head;
}

/* Appends a chain of receives. Returns 0, EINVAL (too many sges) or ENOMEM (full). On failure *bad_wr is the first
 * receive that was not appended. Under rq->lock. */
int vb_rq_post(struct vb_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* The smallest power of two >= n. */
static inline uint32_t vb_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

#endif
