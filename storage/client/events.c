// events.c - asynchronous events of the target: the namespace has changed, or its accessibility has
// follows: NVM Express Base 1.4, 5.2 (asynchronous events), 5.14.1.5 (changed namespaces), 8.20 (asymmetric access)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define TYPE(result) ((result)&7)
#define INFO(result) ((result) >> 8 & 0xff)

static struct vn_link link_to(struct vn_path *p, char *why)
{
	return (struct vn_link){.transport = p->transport,
	                        .options = &p->disk->options,
	                        .deadline = vn_patience(p),
	                        .stop = &p->disk->stop,
	                        .why = why};
}

static void ask_for_event(struct vn_queue *admin, struct vn_cmd *c)
{
	memset(c, 0, sizeof(*c));
	c->sqe.opcode = NV_ADMIN_ASYNC_EVENT;
	vn_queue_submit(admin, c);
	admin->transport->kick(admin);
}

void vn_events_begin(struct vn_association *a)
{
	if (a->event || a->admin->error || !a->limits.events)
		return; /* the disk works without events, too */
	a->event = calloc(1, sizeof(*a->event));
	if (a->event)
		ask_for_event(a->admin, a->event);
}

bool vn_event_came(const struct vn_association *a, uint32_t *result)
{
	const struct vn_cmd *c = a->event;

	if (!c || !c->done || c->cqe.status || a->admin->error)
		return false;
	*result = (uint32_t)c->cqe.result;
	return true;
}

void vn_event_again(struct vn_association *a)
{
	if (!a->admin->error)
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

static void look_again(struct vn_path *p)
{
	struct vn_disk *d = p->disk;
	struct vn_info info = {.nsid = d->info.nsid};
	struct vn_names names;
	struct vn_limits lim; /* the limits from opening stay in use */
	char why[120];
	struct vn_link l = link_to(p, why);

	if (vn_ctl_namespace(&l, p->now.admin, &lim, &info, &names))
		return; /* if the namespace is gone, requests will fail */
	vn_lock(d);
	if (vn_same_disk(d, &info, &names))
		vn_resize(d, info.size);
	else
		vn_lost(p);
	pthread_mutex_unlock(&d->lock);
}

/* Where the target does not say, the namespace counts as accessible: the commands' own status tells. */
void vn_ask_access(struct vn_path *p)
{
	struct vn_disk *d = p->disk;
	uint8_t state = NV_ANA_OPTIMIZED;
	char why[120];
	struct vn_link l = link_to(p, why);

	vn_lock(d);
	p->stale = false; /* what is refused from now on makes it stale again */
	pthread_mutex_unlock(&d->lock);
	bool failed = p->now.limits.ana && vn_ctl_access(&l, p->now.admin, d->info.nsid, &state);

	vn_lock(d);
	if (failed)
		p->stale = vn_several(d); /* if the connection is not broken, it is asked again */
	else if (p->up)
		vn_set_access(p, state);
	vn_issue(d);
	pthread_mutex_unlock(&d->lock);
	vn_wake(d);
}

/* Sends again the commands that wait for the namespace to be accessible. */
static void resend_waiting(struct vn_disk *d)
{
	vn_lock(d);
	vn_resend(d);
	pthread_mutex_unlock(&d->lock);
	vn_wake(d);
}

/* Reads the log page, so that the target reports the next event, too. */
static void take_disk_event(struct vn_path *p, uint32_t result)
{
	char why[120];
	struct vn_link l = link_to(p, why);

	if (TYPE(result) != NV_AEN_NOTICE)
		return;
	if (INFO(result) == NV_AEN_ANA_CHANGED) {
		if (p->now.limits.ana)
			vn_ask_access(p);
		else if (vn_ctl_read_log(&l, p->now.admin, NV_LOG_ANA))
			return;
		resend_waiting(p->disk);
	} else if (INFO(result) == NV_AEN_NS_CHANGED && !vn_ctl_read_log(&l, p->now.admin, NV_LOG_CHANGED_NS)) {
		look_again(p);
	}
}

void vn_events_look(struct vn_path *p)
{
	uint32_t result;

	if (!vn_event_came(&p->now, &result))
		return;
	take_disk_event(p, result);
	vn_event_again(&p->now);
}
