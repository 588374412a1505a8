// cq.h - completion queues, inside core/
// follows: IBA volume 1, 10.8.5, 11.2.6 (completion queues)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CQ_H
#define VB_CORE_CQ_H

#include "core/core.h"
#include "core/rq.h"
#include "core/tm.h"

/* Takes up to n completions from the queue, without making progress. Returns how many. */
uint32_t vb_cq_pop(struct vb_cq *cq, uint32_t n, struct vb_cqe *out);
/* A SEND that a receive of rq has taken, as its completion needs it. */
struct vb_received {
	uint64_t wr_id;
	uint32_t length, imm;
	bool with_imm, solicited;
};
/* Pushes the completions of n SENDs from src_qp, in order. Under progress. */
void vb_cq_push_received(struct vb_cq *cq, uint32_t qpn, uint32_t src_qp, struct vb_rq *rq,
                         const struct vb_received *received, unsigned n);
/* Removes the completions of a queue pair that goes back to RESET, or is destroyed. */
void vb_cq_clean(struct vb_cq *cq, uint32_t qpn);
/* Removes the completions of an XRC SRQ's receives. */
void vb_cq_clean_receives(struct vb_cq *cq, const struct vb_rq *rq);
/* Makes a CQ, for ibv_create_cq and ibv_create_cq_ex; domain: its parent domain, or NULL. NULL with errno on failure. */
struct vb_cq *vb_cq_new(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel,
                        uint32_t comp_vector, struct vb_pd *domain);
/* Converts the time `at` of CLOCK_MONOTONIC to CLOCK_REALTIME, both in ns. clock.c */
uint64_t vb_wall_clock(uint64_t at);
/* Sets the functions of extended polling. cq_ex.c */
void vb_cq_ex_fill(struct vb_cq *cq);
/* Counts a completion for which a moderated CQ is armed. Returns whether its event waits for more completions, or for the
 * period. Under cq->lock. cq_moderate.c */
bool vb_cq_event_waits(struct vb_cq *cq);
/* The CQ's events are not moderated any more. No spin lock held. cq_moderate.c */
void vb_cq_moderation_end(struct vb_cq *cq);
/* A completion that was polled: if it is a receive, it ends as the rules of fault injection say. cq_faulty.c */
void vb_cq_judge(struct vb_cq *cq, struct ibv_wc *wc);

/* Called when an entry leaves the queue, polled or not: the slot of its request is free again. Under cq->lock. */
static inline void vb_cqe_leaves(const struct vb_cqe *cqe)
{
	if (__builtin_expect(!cqe->send, 0))
		return;
	if (!(cqe->wc.opcode & IBV_WC_RECV))
		atomic_store_explicit(&cqe->send->in_cq, false, memory_order_release);
	else if (__builtin_expect(cqe->wc.opcode < IBV_WC_TM_ADD, 1))
		vb_rq_give_back(cqe->receive);
	else if (!(cqe->wc.wc_flags & IBV_WC_TM_MATCH))
		vb_tm_leaves(cqe->receive, cqe->wc.opcode);
}

static inline bool vb_cq_empty(const struct vb_cq *cq)
{
	return atomic_load_explicit(&cq->head, memory_order_relaxed) ==
	       atomic_load_explicit(&cq->tail, memory_order_acquire);
}

#endif
