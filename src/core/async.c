// async.c - asynchronous events: a queue per context
// follows: IBA volume 1, 11.6.3 (affiliated and unaffiliated events); ibv_get_async_event(3)
// SPDX-License-Identifier: MIT
#include "core/async.h"

#include <errno.h>
#include <stdlib.h>

#include "core/event_fd.h"
#include "core/node.h"
#include "core/verbs.h"
#include "core/wq.h"
#include "util/log.h"

struct vb_async {
	struct ibv_async_event event;
	struct vb_async *next;
};

enum element { NONE, QP, CQ, SRQ, WQ };

static enum element element_of(enum ibv_event_type type)
{
	static const uint8_t kind[] = {
	        [IBV_EVENT_CQ_ERR] = CQ,
	        [IBV_EVENT_QP_FATAL] = QP,
	        [IBV_EVENT_QP_REQ_ERR] = QP,
	        [IBV_EVENT_QP_ACCESS_ERR] = QP,
	        [IBV_EVENT_COMM_EST] = QP,
	        [IBV_EVENT_SQ_DRAINED] = QP,
	        [IBV_EVENT_PATH_MIG] = QP,
	        [IBV_EVENT_PATH_MIG_ERR] = QP,
	        [IBV_EVENT_QP_LAST_WQE_REACHED] = QP,
	        [IBV_EVENT_SRQ_ERR] = SRQ,
	        [IBV_EVENT_SRQ_LIMIT_REACHED] = SRQ,
	        [IBV_EVENT_WQ_FATAL] = WQ,
	};

	return (unsigned)type < sizeof(kind) ? kind[type] : NONE;
}

/* The event counters of an object. */
struct acks {
	_Atomic uint32_t *taken;
	uint32_t *acked, *public_count;
	pthread_mutex_t *lock;
	pthread_cond_t *cond;
};

static bool acks_of(const struct ibv_async_event *ev, struct acks *a)
{
	struct vb_qp *qp = vb_qp(ev->element.qp);
	struct vb_cq *cq = vb_cq(ev->element.cq);
	struct vb_srq *srq = vb_srq(ev->element.srq);
	struct vb_wq *wq = (struct vb_wq *)ev->element.wq;

	switch (element_of(ev->event_type)) {
	case QP:
		*a = (struct acks){&qp->async_taken, &qp->async_acked, &qp->qp.events_completed, &qp->ack_lock,
		                   &qp->ack_cond};
		return true;
	case CQ:
		*a = (struct acks){&cq->async_taken, &cq->async_acked, &cq->cq.async_events_completed, &cq->ack_lock,
		                   &cq->ack_cond};
		return true;
	case SRQ:
		*a = (struct acks){&srq->async_taken, &srq->async_acked, &srq->srq.events_completed, &srq->ack_lock,
		                   &srq->ack_cond};
		return true;
	case WQ:
		*a = (struct acks){&wq->async_taken, &wq->async_acked, &wq->wq.events_completed, &wq->ack_lock,
		                   &wq->ack_cond};
		return true;
	default:
		return false;
	}
}

static bool event_equals(const struct ibv_async_event *a, const struct ibv_async_event *b)
{
	if (a->event_type != b->event_type)
		return false;
	return element_of(a->event_type) == NONE ? a->element.port_num == b->element.port_num
	                                         : a->element.qp == b->element.qp;
}

/* The queued event that equals ev, or NULL. Each event is queued only once. Under async_lock. */
static struct vb_async **event_find(struct vb_context *ctx, const struct ibv_async_event *ev)
{
	struct vb_async **at = &ctx->async_head;

	while (*at && !event_equals(&(*at)->event, ev))
		at = &(*at)->next;
	return *at ? at : NULL;
}

/* Under async_lock. */
static void event_append(struct vb_context *ctx, struct vb_async *a)
{
	a->next = NULL;
	*ctx->async_tail = a;
	ctx->async_tail = &a->next;
}

/* Moves a repeated event to the end, so that the last event of a port shows its current state. Under async_lock. */
static void say_last(struct vb_context *ctx, struct vb_async **at)
{
	struct vb_async *a = *at;

	if (!a->next)
		return;
	*at = a->next;
	event_append(ctx, a);
}

static void raise_for(struct vb_context *ctx, enum ibv_event_type type, void *element)
{
	struct vb_async *a = calloc(1, sizeof(*a));

	if (!a) {
		vb_log(VB_LOG_ERROR, "no memory: asynchronous event %d is lost", type);
		return;
	}
	a->event.event_type = type;
	if (element_of(type) == NONE)
		a->event.element.port_num = (int)(intptr_t)element;
	else
		a->event.element.qp = element;
	vb_lock(&ctx->async_lock);
	struct vb_async **before = event_find(ctx, &a->event);

	if (before && element_of(type) == NONE)
		say_last(ctx, before);
	if (!before) {
		event_append(ctx, a);
		vb_event_fd_add(ctx->async_event_fd);
	}
	vb_unlock(&ctx->async_lock);
	if (before)
		free(a);
}

/* An XRC target's events go to all who have opened it. */
void vb_async_raise(struct vb_context *ctx, enum ibv_event_type type, void *element)
{
	struct vb_qp *qp = element_of(type) == QP ? element : NULL, *h = qp ? qp->xrc.handles : NULL;

	if (qp && !h && qp->type == IBV_QPT_XRC_RECV && !qp->xrc.far)
		return; /* its last handle has gone, and nobody would free the event */
	if (!h)
		raise_for(ctx, type, element);
	for (; h; h = h->xrc.handles) {
		if (h->xrc.tell)
			h->xrc.tell(h, type);
		else
			raise_for(VB_CONTEXT_OF(h), type, h);
	}
}

/* Takes the oldest event. It is counted as taken under async_lock, before a destroyer can read the counter. */
static bool event_take(struct vb_context *ctx, struct ibv_async_event *event)
{
	struct acks acks;

	vb_lock(&ctx->async_lock);
	struct vb_async *a = ctx->async_head;

	if (a) {
		ctx->async_head = a->next;
		if (!a->next)
			ctx->async_tail = &ctx->async_head;
		*event = a->event;
		if (acks_of(event, &acks))
			atomic_fetch_add(acks.taken, 1);
	}
	vb_unlock(&ctx->async_lock);
	free(a);
	return a;
}

int vb_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct vb_context *ctx = vb_ctx(context);

	do {
		int err = vb_event_fd_take(ctx->node, context->async_fd, ctx->async_event_fd);

		if (err) {
			errno = err;
			return -1;
		}
	} while (!event_take(ctx, event)); /* the event is gone if its object was destroyed meanwhile */
	return 0;
}

void vb_ack_async_event(struct ibv_async_event *event)
{
	struct acks a;

	if (!acks_of(event, &a))
		return;
	vb_mutex_lock(a.lock, VB_RANK_ACK);
	(*a.acked)++;
	(*a.public_count)++;
	pthread_cond_broadcast(a.cond);
	vb_mutex_unlock(a.lock);
}

/* Drops the queued events of element (NULL: all events). */
static void drop_events(struct vb_context *ctx, const void *element)
{
	unsigned n = 0;

	vb_lock(&ctx->async_lock);
	ctx->async_tail = &ctx->async_head;
	for (struct vb_async *a = ctx->async_head, *next; a; a = next) {
		next = a->next;
		if (!element || (element_of(a->event.event_type) != NONE && a->event.element.qp == element)) {
			free(a);
			n++;
		} else {
			*ctx->async_tail = a;
			ctx->async_tail = &a->next;
		}
	}
	*ctx->async_tail = NULL;
	vb_event_fd_remove(ctx->async_event_fd, n);
	vb_unlock(&ctx->async_lock);
}

void vb_async_clear(struct vb_context *ctx)
{
	drop_events(ctx, NULL);
}

void vb_async_forget(struct vb_context *ctx, enum ibv_event_type kind, void *element)
{
	struct ibv_async_event ev = {.element.qp = element, .event_type = kind};
	struct acks a;

	drop_events(ctx, element);
	if (!acks_of(&ev, &a))
		return;
	VB_MAY_WAIT();
	vb_mutex_lock(a.lock, VB_RANK_ACK);
	while (atomic_load(a.taken) != *a.acked)
		pthread_cond_wait(a.cond, a.lock);
	vb_mutex_unlock(a.lock);
}
