// cq.c - completion queues: create, resize, destroy
// follows: IBA volume 1, 11.2.6 (completion queue); ibv_create_cq(3), ibv_resize_cq(3)
// SPDX-License-Identifier: MIT
#include "core/cq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/async.h"
#include "core/channel.h"
#include "core/context.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"

/* The number of slots for this many entries: rounded up to a power of two, like the size of a work queue. So a CQ and a
 * work queue that were requested with the same size still have the same size. */
static uint32_t slots_for(uint32_t cqe)
{
	uint32_t n = 1;

	while (n < cqe)
		n *= 2;
	return n;
}

static void init_locks(struct vb_cq *cq)
{
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	pthread_mutex_init(&cq->ack_lock, NULL);
	pthread_cond_init(&cq->ack_cond, NULL);
	vb_lock_init(&cq->lock, VB_RANK_CQ);
	vb_lock_init(&cq->poll_lock, VB_RANK_PROGRAM);
}

/* The list shows a person what there is. */
static void enter_list(struct vb_cq *cq)
{
	struct vb_node *node = cq->node;

	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	if (!node->cqs)
		node->cqs_end = &node->cqs;
	cq->prev = node->cqs_end;
	*node->cqs_end = cq;
	node->cqs_end = &cq->next;
	vb_mutex_unlock(&node->ctx_lock);
}

/* Its errors still count for the adapter. */
static void leave_list(struct vb_cq *cq)
{
	struct vb_node *node = cq->node;
	struct vb_device *dev = vb_ctx((struct ibv_context *)cq->made.context)->dev;

	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	*cq->prev = cq->next;
	if (cq->next)
		cq->next->prev = cq->prev;
	else
		node->cqs_end = cq->prev;
	for (int i = 0; i < 4; i++)
		dev->ended_cqs[i / 2][i % 2] += cq->errors[i / 2][i % 2];
	vb_mutex_unlock(&node->ctx_lock);
}

/* The ring of a CQ in this domain (or NULL). *theirs: the same, if the program has allocated it. Untouched pages take no
 * memory. */
static int ring_alloc(struct vb_pd *domain, uint32_t slots, struct vb_cqe **ring, void **theirs)
{
	int err = vb_memory_ask(domain, slots * sizeof(**ring), VB_RESOURCE_CQ, theirs);

	if (err)
		return err;
	*ring = *theirs ? *theirs : calloc(slots, sizeof(**ring));
	return *ring ? 0 : ENOMEM;
}

static void ring_free(struct vb_pd *domain, struct vb_cqe *ring, void *theirs)
{
	if (theirs)
		vb_memory_give(domain, theirs, VB_RESOURCE_CQ);
	else
		free(ring);
}

struct vb_cq *vb_cq_new(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel,
                        uint32_t comp_vector, struct vb_pd *domain)
{
	static _Atomic uint32_t last;
	struct vb_context *ctx = vb_ctx(context);

	if (!cqe || cqe > VB_MAX_CQE || comp_vector >= (uint32_t)context->num_comp_vectors ||
	    (channel && (channel->context != context || !vb_channel_is_sound(channel)))) {
		errno = EINVAL;
		return NULL;
	}
	int err = vb_context_fault(ctx, VB_FAULT_CREATE_CQ);

	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_cq *cq = calloc(1, sizeof(*cq));
	uint32_t slots = slots_for(cqe);

	err = cq ? ring_alloc(domain, slots, &cq->ring, &cq->theirs) : ENOMEM;
	if (!err && atomic_fetch_add(&ctx->node->cq_count, 1) >= VB_MAX_CQ) {
		atomic_fetch_sub(&ctx->node->cq_count, 1);
		ring_free(domain, cq->ring, cq->theirs);
		err = ENOMEM;
	}
	if (err) {
		free(cq);
		errno = err;
		return NULL;
	}
	cq->domain = domain;
	if (domain)
		atomic_fetch_add(&domain->users, 1);
	cq->cq.context = context;
	cq->cq.handle = vb_handle_next(&last);
	cq->made = VB_MADE(cq->cq);
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = (int)slots;
	cq->node = ctx->node;
	cq->capacity = slots;
	cq->mask = slots - 1;
	init_locks(cq);
	if (channel) {
		cq->channel = vb_channel(channel);
		__atomic_fetch_add(&channel->refcnt, 1, __ATOMIC_ACQ_REL);
	}
	vb_context_hold(ctx);
	enter_list(cq);
	return cq;
}

struct ibv_cq *vb_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
                            int comp_vector)
{
	struct vb_cq *cq =
	        vb_cq_new(context, cqe < 0 ? 0 : (uint32_t)cqe, cq_context, channel, (uint32_t)comp_vector, NULL);

	return cq ? &cq->cq : NULL;
}

/* Keeps the entries in the queue and their order. */
int vb_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct vb_cq *cq = vb_cq(ibcq);

	if (!vb_cq_is_sound(ibcq) || cqe < 1 || cqe > VB_MAX_CQE)
		return EINVAL;
	uint32_t slots = slots_for((uint32_t)cqe);
	struct vb_cqe *ring, *old;
	void *theirs, *old_theirs;
	int err = ring_alloc(cq->domain, slots, &ring, &theirs);

	if (err)
		return err;
	old = ring;
	old_theirs = theirs;
	vb_lock(&cq->lock);
	uint32_t head = atomic_load(&cq->head), n = atomic_load(&cq->tail) - head;
	bool fits = n <= (uint32_t)cqe; /* cqe is the requested size, not the rounded one */

	if (fits) {
		for (uint32_t i = 0; i < n; i++)
			ring[i] = cq->ring[(head + i) & cq->mask];
		old = cq->ring;
		old_theirs = cq->theirs;
		cq->ring = ring;
		cq->theirs = theirs;
		cq->mask = slots - 1;
		cq->capacity = slots;
		ibcq->cqe = (int)slots;
		atomic_store(&cq->head, 0);
		atomic_store(&cq->tail, n);
	}
	vb_unlock(&cq->lock);
	ring_free(cq->domain, old, old_theirs);
	return fits ? 0 : EINVAL;
}

/* Not in cq_poll.c, so that vb_cq_push stays as it is. */
void vb_cq_overflow(struct vb_cq *cq)
{
	vb_lock(&cq->lock);
	bool raise = !atomic_exchange(&cq->overrun, true);
	vb_unlock(&cq->lock);
	if (!raise)
		return;
	vb_async_raise(VB_CONTEXT_OF(cq), IBV_EVENT_CQ_ERR, cq);
	atomic_fetch_or(&cq->node->attention, VB_ATTEND_OVERRUN);
	vb_timer_armed(cq->node);
}

/* Waits until the program has acknowledged all events of the CQ. The CQ has no queue pairs any more, so none are
 * added. */
static void wait_acked(struct vb_cq *cq)
{
	VB_MAY_WAIT();
	vb_mutex_lock(&cq->ack_lock, VB_RANK_ACK);
	while (cq->events_acked != atomic_load(&cq->events_taken))
		pthread_cond_wait(&cq->ack_cond, &cq->ack_lock);
	vb_mutex_unlock(&cq->ack_lock);
}

int vb_destroy_cq(struct ibv_cq *ibcq)
{
	struct vb_cq *cq = vb_cq(ibcq);
	struct vb_context *ctx = vb_ctx(ibcq->context);

	if (!vb_cq_is_sound(ibcq))
		return ENOENT;
	if (atomic_load(&cq->users))
		return EBUSY;
	vb_cq_moderation_end(cq);
	if (cq->channel)
		vb_channel_forget(cq->channel, cq);
	wait_acked(cq);
	leave_list(cq);
	vb_async_forget(ctx, IBV_EVENT_CQ_ERR, cq);
	if (cq->channel)
		__atomic_fetch_sub(&cq->channel->ch.refcnt, 1, __ATOMIC_ACQ_REL);
	pthread_mutex_destroy(&cq->cq.mutex);
	pthread_cond_destroy(&cq->cq.cond);
	pthread_mutex_destroy(&cq->ack_lock);
	pthread_cond_destroy(&cq->ack_cond);
	ring_free(cq->domain, cq->ring, cq->theirs);
	if (cq->domain)
		atomic_fetch_sub(&cq->domain->users, 1);
	vb_object_free(cq, &cq->made);
	atomic_fetch_sub(&ctx->node->cq_count, 1);
	vb_context_drop(ctx);
	return 0;
}
