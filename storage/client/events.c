// events.c - asynchronous events of the target: the namespace has changed, or its accessibility has
// follows: NVM Express Base 1.4, 5.2 (asynchronous events), 5.14.1.5 (changed namespaces), 8.20 (asymmetric access)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define TYPE(result) ((result)&7)
#define INFO(result) ((result) >> 8 & 0xff)

static struct vn_link link_to(struct vn_disk *d, char *why)
{
	return (struct vn_link){.transport = d->transport,
	                        .options = &d->options,
	                        .deadline = vn_now() + d->options.connect_ms,
	                        .stop = &d->stop,
	                        .why = why};
}

static void ask_for_event(struct vn_queue *admin, struct vn_cmd *c)
{
	memset(c, 0, sizeof(*c));
	c->sqe.opcode = NV_ADMIN_ASYNC_EVENT;
	vn_queue_submit(admin, c);
	admin->transport->kick(admin);
}

void vn_events_begin(struct vn_disk *d)
{
	struct vn_association *a = &d->now;

	if (a->event || a->admin->error || !a->limits.events)
		return; /* the disk works without events, too */
	a->event = calloc(1, sizeof(*a->event));
	if (a->event)
		ask_for_event(a->admin, a->event);
}

void vn_events_end(struct vn_association *a)
{
	if (a->event && !a->event->done) {
		a->admin->transport->cut(a->admin);
		vn_queue_release(a->admin, a->event);
	}
	free(a->event);
	a->event = NULL;
}

bool vn_same_disk(const struct vn_disk *d, const struct vn_info *is, const struct vn_names *names)
{
	return d->info.block_size == is->block_size && !memcmp(d->info.uuid, is->uuid, sizeof(is->uuid)) &&
	       !memcmp(&d->names, names, sizeof(*names));
}

void vn_resize(struct vn_disk *d, uint64_t size)
{
	__atomic_store_n(&d->info.size, size, __ATOMIC_RELAXED); /* the caller's vn_info is this memory */
}

static void look_again(struct vn_disk *d)
{
	struct vn_info info = {.nsid = d->info.nsid};
	struct vn_names names;
	struct vn_limits lim; /* the limits from opening stay in use */
	char why[120];
	struct vn_link l = link_to(d, why);

	if (vn_ctl_namespace(&l, d->now.admin, &lim, &info, &names))
		return; /* if the namespace is gone, requests will fail */
	pthread_mutex_lock(&d->lock);
	if (vn_same_disk(d, &info, &names))
		vn_resize(d, info.size);
	else
		vn_lost(d);
	pthread_mutex_unlock(&d->lock);
}

/* Sends again the commands that wait for the namespace to be accessible. */
static void resend_waiting(struct vn_disk *d)
{
	pthread_mutex_lock(&d->lock);
	for (struct vn_cmd *c = d->again.first; c; c = c->next)
		c->due = 0;
	pthread_mutex_unlock(&d->lock);
	vn_wake(d);
}

/* Reads the log page, so that the target reports the next event, too. */
static void take_disk_event(struct vn_disk *d, uint32_t result)
{
	uint8_t log = INFO(result) == NV_AEN_ANA_CHANGED ? NV_LOG_ANA : NV_LOG_CHANGED_NS;
	char why[120];
	struct vn_link l = link_to(d, why);

	if (TYPE(result) != NV_AEN_NOTICE || (INFO(result) != NV_AEN_ANA_CHANGED && INFO(result) != NV_AEN_NS_CHANGED))
		return;
	if (vn_ctl_read_log(&l, d->now.admin, log))
		return;
	if (log == NV_LOG_ANA)
		resend_waiting(d);
	else
		look_again(d);
}

void vn_events_look(struct vn_disk *d)
{
	struct vn_cmd *c = d->now.event;

	if (!c || !c->done || c->cqe.status || d->now.admin->error)
		return;
	take_disk_event(d, (uint32_t)c->cqe.result);
	if (!d->now.admin->error)
		ask_for_event(d->now.admin, c);
}
