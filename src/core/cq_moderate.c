// cq_moderate.c - moderation of completion events: one event for several completions
// follows: ibv_modify_cq(3)
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "core/channel.h"
#include "core/cq.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"
#include "util/units.h"

/* An event is due at this time. Any lock may be held. */
static void note_due(struct vb_node *node, uint64_t at)
{
	uint64_t before = atomic_load(&node->moderate_at);

	while ((!before || at < before) && !atomic_compare_exchange_weak(&node->moderate_at, &before, at))
		;
	vb_timer_at(node, at);
}

/* Forgets the completions that wait for an event, and disarms the CQ. Under cq->lock. */
static void take_event(struct vb_cq *cq)
{
	cq->moderation.seen = 0;
	cq->moderation.due = 0;
	atomic_store_explicit(&cq->armed, 0, memory_order_relaxed);
}

static void raise_event(struct vb_cq *cq)
{
	if (cq->channel)
		vb_channel_notify(cq->channel, cq);
}

bool vb_cq_event_waits(struct vb_cq *cq)
{
	struct vb_moderation *m = &cq->moderation;

	if (++m->seen >= m->count) {
		m->seen = 0;
		m->due = 0;
		return false;
	}
	if (m->seen == 1) {
		m->due = vb_now() + m->period;
		note_due(cq->node, m->due);
	}
	return true;
}

/* Returns when the CQ's next event is due, or 0. */
static uint64_t raise_if_due(struct vb_cq *cq, uint64_t now)
{
	vb_lock(&cq->lock);
	uint64_t due = cq->moderation.due;
	bool raise = due && due <= now;
	if (raise)
		take_event(cq);
	vb_unlock(&cq->lock);
	if (!raise)
		return due;
	raise_event(cq);
	return 0;
}

void vb_cq_raise_due(struct vb_node *node)
{
	uint64_t at = atomic_load(&node->moderate_at), next = 0;

	if (!at)
		return;
	uint64_t now = vb_now();
	if (now < at)
		return;
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	atomic_store(&node->moderate_at, 0); /* before the CQs are read: a later completion sets it again */
	for (struct vb_cq *cq = node->moderated; cq; cq = cq->moderation.next) {
		uint64_t due = raise_if_due(cq, now);

		if (due && (!next || due < next))
			next = due;
	}
	vb_mutex_unlock(&node->ctx_lock);
	if (next)
		note_due(node, next);
}

/* Under ctx_lock. */
static void list_enter(struct vb_cq *cq)
{
	struct vb_moderation *m = &cq->moderation;
	struct vb_node *node = cq->node;

	if (m->prev)
		return;
	m->next = node->moderated;
	m->prev = &node->moderated;
	if (m->next)
		m->next->moderation.prev = &m->next;
	node->moderated = cq;
}

void vb_cq_moderation_end(struct vb_cq *cq)
{
	struct vb_moderation *m = &cq->moderation;

	vb_mutex_lock(&cq->node->ctx_lock, VB_RANK_CONTEXTS);
	if (m->prev) {
		*m->prev = m->next;
		if (m->next)
			m->next->moderation.prev = m->prev;
		m->prev = NULL;
	}
	vb_mutex_unlock(&cq->node->ctx_lock);
}

/* Sets the moderation. Completions that wait already get their event now if the new numbers say so. */
static void set_moderation(struct vb_cq *cq, uint32_t count, uint64_t period)
{
	struct vb_moderation *m = &cq->moderation;
	uint64_t due = 0;

	vb_lock(&cq->lock);
	m->count = count;
	m->period = period;
	bool raise = m->seen && m->seen >= count;
	if (raise) {
		take_event(cq);
	} else if (m->seen && vb_now() + period < m->due) {
		m->due = due = vb_now() + period;
	}
	vb_unlock(&cq->lock);
	if (raise)
		raise_event(cq);
	if (due)
		note_due(cq->node, due);
}

/* A count of 0 or 1, or a period of 0, is an event per completion: the adapter would have nothing to wait for. */
int vb_modify_cq(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr)
{
	struct vb_cq *cq = vb_cq(ibcq);

	if (!vb_cq_is_sound(ibcq) || attr->attr_mask != IBV_CQ_ATTR_MODERATE)
		return EINVAL;
	if (attr->moderate.cq_count < 2 || !attr->moderate.cq_period) {
		set_moderation(cq, 0, 0);
		vb_cq_moderation_end(cq);
		return 0;
	}
	vb_mutex_lock(&cq->node->ctx_lock, VB_RANK_CONTEXTS);
	list_enter(cq);
	vb_mutex_unlock(&cq->node->ctx_lock);
	set_moderation(cq, attr->moderate.cq_count, VB_US(attr->moderate.cq_period));
	return 0;
}
