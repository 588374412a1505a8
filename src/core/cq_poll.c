// cq_poll.c - adds completions to a CQ, polls them, and requests notification
// follows: IBA volume 1, 10.8.5 (returning completions), 11.4.2 (poll, request notification); ibv_poll_cq(3)
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "core/channel.h"
#include "core/cq.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"
#include "util/log.h"

/* Makes room for one completion. If the CQ overruns, its behaviour is undefined, but the adapter must report the
 * overrun (IBA C11-39). */
static bool cq_make_room(struct vb_cq *cq, bool *raise)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);

	if (atomic_load_explicit(&cq->overrun, memory_order_relaxed))
		return false;
	if (atomic_load_explicit(&cq->tail, memory_order_relaxed) - head < cq->capacity)
		return true;
	if (cq->ignore_overrun) {
		vb_cqe_leaves(&cq->ring[head & cq->mask]);
		atomic_store_explicit(&cq->head, head + 1, memory_order_relaxed);
		return true;
	}
	atomic_store_explicit(&cq->overrun, true, memory_order_relaxed);
	return !(*raise = true);
}

/* Disarms the CQ if it is armed for this completion. Returns whether to raise an event. */
static bool cq_disarm(struct vb_cq *cq, bool solicited)
{
	int armed = atomic_load_explicit(&cq->armed, memory_order_relaxed);

	if (!armed || (armed == 1 && !solicited))
		return false;
	if (cq->moderation.count && vb_cq_event_waits(cq))
		return false;
	atomic_store_explicit(&cq->armed, 0, memory_order_relaxed);
	return true;
}

/* Raises the CQ error. The next progress takes its queue pairs to ERR, because this is called under their locks. */
static void tell_overrun(struct vb_cq *cq)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		vb_log(VB_LOG_ERROR,
		       "a completion queue of %u entries has overrun, and its queue pairs go to ERR: the program must poll it "
		       "sooner, or create it with room for all outstanding requests (cqe of ibv_create_cq)",
		       cq->capacity);
	vb_async_raise(VB_CONTEXT_OF(cq), IBV_EVENT_CQ_ERR, cq);
	atomic_fetch_or(&cq->node->attention, VB_ATTEND_OVERRUN);
	vb_timer_armed(cq->node);
}

__attribute__((hot)) void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe, bool solicited)
{
	bool raise = false, notify = false;

	vb_lock(&cq->lock);
	if (cq_make_room(cq, &raise)) {
		uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
		struct vb_cqe *slot = &cq->ring[tail & cq->mask];

		*slot = *cqe;
		if (cq->want_timestamp && !slot->timestamp)
			slot->timestamp = vb_now();
		atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
		if (__builtin_expect(cqe->wc.status != IBV_WC_SUCCESS, 0)) {
			cq->errors[(cqe->wc.opcode & IBV_WC_RECV) != 0][cqe->wc.status == IBV_WC_WR_FLUSH_ERR]++;
			solicited = true;
		}
		notify = cq_disarm(cq, solicited);
	} else {
		vb_cqe_leaves(cqe);
	}
	vb_unlock(&cq->lock);
	if (notify && cq->channel)
		vb_channel_notify(cq->channel, cq);
	if (raise)
		tell_overrun(cq);
}

void vb_cq_push_received(struct vb_cq *cq, uint32_t qpn, uint32_t src_qp, struct vb_rq *rq,
                         const struct vb_received *received, unsigned n)
{
	bool raise = false, notify = false;

	vb_lock(&cq->lock);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++) {
		const struct vb_received *r = &received[i];

		if (!cq_make_room(cq, &raise)) {
			vb_rq_give_back(rq);
			continue;
		}
		cq->ring[tail & cq->mask] = (struct vb_cqe){.wc = {.wr_id = r->wr_id,
		                                                   .opcode = IBV_WC_RECV,
		                                                   .byte_len = r->length,
		                                                   .imm_data = r->with_imm ? r->imm : 0,
		                                                   .qp_num = qpn,
		                                                   .src_qp = src_qp,
		                                                   .wc_flags = r->with_imm ? IBV_WC_WITH_IMM : 0},
		                                            .timestamp = cq->want_timestamp ? vb_now() : 0,
		                                            .receive = rq};
		atomic_store_explicit(&cq->tail, ++tail, memory_order_release);
		notify |= cq_disarm(cq, r->solicited);
	}
	vb_unlock(&cq->lock);
	if (notify && cq->channel)
		vb_channel_notify(cq->channel, cq);
	if (raise)
		tell_overrun(cq);
}

uint32_t vb_cq_pop(struct vb_cq *cq, uint32_t n, struct vb_cqe *out)
{
	vb_lock(&cq->lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t there = atomic_load_explicit(&cq->tail, memory_order_relaxed) - head;

	if (n > there)
		n = there;
	for (uint32_t i = 0; i < n; i++) {
		out[i] = cq->ring[(head + i) & cq->mask];
		vb_cqe_leaves(&out[i]);
	}
	atomic_store_explicit(&cq->head, head + n, memory_order_relaxed);
	vb_unlock(&cq->lock);
	return n;
}

static __attribute__((hot)) int pop_wc(struct vb_cq *cq, uint32_t n, struct ibv_wc *wc)
{
	if (vb_cq_empty(cq))
		return 0;
	vb_lock(&cq->lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t there = atomic_load_explicit(&cq->tail, memory_order_relaxed) - head;

	if (n > there)
		n = there;
	for (uint32_t i = 0; i < n; i++) {
		const struct vb_cqe *cqe = &cq->ring[(head + i) & cq->mask];

		wc[i] = cqe->wc;
		vb_cqe_leaves(cqe);
	}
	atomic_store_explicit(&cq->head, head + n, memory_order_relaxed);
	vb_unlock(&cq->lock);
	return (int)n;
}

__attribute__((hot)) int vb_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct vb_cq *cq = vb_cq(ibcq);

	if (num_entries <= 0)
		return 0;
	int n = pop_wc(cq, (uint32_t)num_entries, wc);

	if (n)
		return n;
	vb_progress(cq->node, cq, (unsigned)num_entries);
	return pop_wc(cq, (uint32_t)num_entries, wc);
}

/* "Next completion" overrides "next solicited" (IBA 11.4.2.2). Only completions that are added from now on count. */
int vb_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct vb_cq *cq = vb_cq(ibcq);
	int want = solicited_only ? 1 : 2;

	if (!vb_cq_is_sound(ibcq))
		return EINVAL;
	vb_lock(&cq->lock);
	if (atomic_load_explicit(&cq->armed, memory_order_relaxed) < want)
		atomic_store_explicit(&cq->armed, want, memory_order_relaxed);
	vb_unlock(&cq->lock);
	atomic_store_explicit(&cq->node->idle_polls, 0, memory_order_relaxed);
	if (atomic_load_explicit(&cq->node->owner, memory_order_relaxed) == VB_OWNER_POLLER ||
	    atomic_load(&cq->node->held_completions))
		vb_progress_handover(cq->node);
	return 0;
}

/* Removes the completions of a queue pair, or of the receives of rq if that is not NULL. */
static void cq_remove(struct vb_cq *cq, uint32_t qpn, const struct vb_rq *rq)
{
	vb_lock(&cq->lock);
	uint32_t head = atomic_load(&cq->head), tail = atomic_load(&cq->tail), keep = head;

	for (uint32_t i = head; i != tail; i++) {
		struct vb_cqe *cqe = &cq->ring[i & cq->mask];

		bool tagged = cqe->wc.opcode >= IBV_WC_TM_ADD && (cqe->wc.wc_flags & IBV_WC_TM_MATCH);

		if (rq ? (cqe->wc.opcode & IBV_WC_RECV) && !tagged && cqe->receive == rq : cqe->wc.qp_num == qpn)
			vb_cqe_leaves(cqe);
		else
			cq->ring[keep++ & cq->mask] = *cqe;
	}
	atomic_store(&cq->tail, keep);
	vb_unlock(&cq->lock);
}

void vb_cq_clean(struct vb_cq *cq, uint32_t qpn)
{
	cq_remove(cq, qpn, NULL);
}

void vb_cq_clean_receives(struct vb_cq *cq, const struct vb_rq *rq)
{
	cq_remove(cq, 0, rq);
}
