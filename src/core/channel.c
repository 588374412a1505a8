// channel.c - completion channels: the descriptor that a program sleeps on
// follows: IBA volume 1, 11.4.2.2 (completion notification); ibv_create_comp_channel(3), ibv_get_cq_event(3)
// SPDX-License-Identifier: MIT
#include "core/channel.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/event_fd.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"

struct ibv_comp_channel *vb_create_comp_channel(struct ibv_context *context)
{
	struct vb_channel *ch = calloc(1, sizeof(*ch));
	int err = ch ? vb_event_fd_open(&ch->ch.fd, &ch->event_fd) : ENOMEM;

	if (err) {
		free(ch);
		errno = err;
		return NULL;
	}
	ch->ch.context = context;
	ch->made.context = context;
	vb_lock_init(&ch->lock, VB_RANK_CHANNEL);
	vb_context_hold(vb_ctx(context));
	return &ch->ch;
}

int vb_destroy_comp_channel(struct ibv_comp_channel *ibch)
{
	struct vb_channel *ch = vb_channel(ibch);
	struct vb_context *ctx = vb_ctx(ibch->context);

	if (!vb_channel_is_sound(ibch))
		return ENOENT;
	if (__atomic_load_n(&ibch->refcnt, __ATOMIC_ACQUIRE))
		return EBUSY;
	vb_event_fd_close(ibch->fd, ch->event_fd);
	vb_object_free(ch, &ch->made);
	vb_context_drop(ctx);
	return 0;
}

/* Under ch->lock. */
static void channel_enqueue(struct vb_channel *ch, struct vb_cq *cq)
{
	cq->ch_next = NULL;
	if (ch->head)
		ch->tail->ch_next = cq;
	else
		ch->head = cq;
	ch->tail = cq;
}

void vb_channel_notify(struct vb_channel *ch, struct vb_cq *cq)
{
	vb_lock(&ch->lock);
	if (!cq->ch_pending++)
		channel_enqueue(ch, cq);
	vb_unlock(&ch->lock);
	vb_event_fd_add(ch->event_fd);
}

/* Takes the oldest event and returns its CQ. A CQ with more events moves to the end of the queue. */
static struct vb_cq *channel_dequeue(struct vb_channel *ch)
{
	vb_lock(&ch->lock);
	struct vb_cq *cq = ch->head;

	if (cq) {
		ch->head = cq->ch_next;
		if (--cq->ch_pending)
			channel_enqueue(ch, cq);
		atomic_fetch_add(&cq->events_taken, 1); /* a destroyer reads it under ch->lock */
	}
	vb_unlock(&ch->lock);
	return cq;
}

void vb_channel_forget(struct vb_channel *ch, struct vb_cq *cq)
{
	vb_lock(&ch->lock);
	uint32_t n = cq->ch_pending;
	struct vb_cq *rest = ch->head;

	ch->head = NULL;
	for (struct vb_cq *next; rest; rest = next) {
		next = rest->ch_next;
		if (rest != cq)
			channel_enqueue(ch, rest);
	}
	cq->ch_pending = 0;
	vb_event_fd_remove(ch->event_fd, n);
	vb_unlock(&ch->lock);
}

int vb_get_cq_event(struct ibv_comp_channel *ibch, struct ibv_cq **cq, void **cq_context)
{
	struct vb_channel *ch = vb_channel(ibch);
	struct ibv_context *context = (struct ibv_context *)ch->made.context;
	struct vb_cq *ready;

	if (!context) { /* destroyed; the kernel would read a closed descriptor */
		errno = EBADF;
		return -1;
	}
	do {
		int err = vb_event_fd_take(vb_ctx(context)->node, ibch->fd, ch->event_fd);

		if (err) {
			errno = err;
			return -1;
		}
		ready = channel_dequeue(ch);
	} while (!ready); /* the event is gone if its CQ was destroyed meanwhile */
	*cq = &ready->cq;
	*cq_context = ready->cq.cq_context;
	return 0;
}

void vb_ack_cq_events(struct ibv_cq *ibcq, unsigned int nevents)
{
	struct vb_cq *cq = vb_cq(ibcq);

	vb_mutex_lock(&cq->ack_lock, VB_RANK_ACK);
	cq->events_acked += nevents;
	ibcq->comp_events_completed += nevents;
	pthread_cond_broadcast(&cq->ack_cond);
	vb_mutex_unlock(&cq->ack_lock);
}
