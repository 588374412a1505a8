// event.c - asynchronous events: each is sent once, and again only after the host has read its log page
// follows: NVM Express Base 1.4, 5.2; NVMe over Fabrics 1.1, 4.3 (discovery log change)
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/core.h"

static const struct kind {
	uint32_t info; /* the type in the second byte; 0: Notice */
	uint8_t log;
	uint32_t enable; /* 0: notice.c has looked at a mask of its own */
} kinds[] = {
        {NV_AEN_NS_CHANGED, NV_LOG_CHANGED_NS, NV_AEC_NS_CHANGED},
        {NV_AEN_ANA_CHANGED, NV_LOG_ANA, NV_AEC_ANA_CHANGED},
        {NV_AEN_DISCOVERY_CHANGED, NV_LOG_DISCOVERY, NV_AEC_DISCOVERY_CHANGED},
        {NV_AEN_RESERVATION, NV_LOG_RESERVATION, 0},
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

static void deliver_events(struct nt_controller *c)
{
	for (uint32_t i = 0; i < KINDS && c->aer_count; i++) {
		if (!(c->pending & ~c->masked & 1u << i))
			continue;
		struct nt_request *r = c->aers[--c->aer_count];

		c->pending &= ~(1u << i);
		c->masked |= 1u << i;
		uint32_t type = kinds[i].info >> 8;

		r->cqe.result =
		        (type ? type : NV_AEN_NOTICE) | (kinds[i].info & 0xff) << 8 | (uint32_t)kinds[i].log << 16;
		nt_complete(r, 0);
	}
}

void nt_event(struct nt_controller *c, uint32_t info)
{
	if (c->dying)
		return;
	for (uint32_t i = 0; i < KINDS; i++)
		if (kinds[i].info == info && (!kinds[i].enable || (c->events & kinds[i].enable)))
			c->pending |= 1u << i;
	deliver_events(c);
}

void nt_event_read(struct nt_controller *c, uint32_t info)
{
	for (uint32_t i = 0; i < KINDS; i++)
		if (kinds[i].info == info)
			c->masked &= ~(1u << i);
	deliver_events(c);
}

/* Keeps the list in increasing order. Base 1.4, 4.10 */
static void note_change(struct nt_controller *c, uint32_t nsid)
{
	uint32_t n = 0, most = sizeof(c->changed_ns) / sizeof(*c->changed_ns);

	if (c->changed_count > most)
		return;
	while (n < c->changed_count && c->changed_ns[n] < nsid)
		n++;
	if (n < c->changed_count && c->changed_ns[n] == nsid)
		return;
	if (c->changed_count++ == most)
		return;
	memmove(c->changed_ns + n + 1, c->changed_ns + n, (c->changed_count - 1 - n) * sizeof(*c->changed_ns));
	c->changed_ns[n] = nsid;
}

void nt_event_ns(struct nt_subsystem *s, uint32_t nsid)
{
	for (struct nt_controller *c = s->controllers; c; c = c->next) {
		note_change(c, nsid);
		nt_event(c, NV_AEN_NS_CHANGED);
	}
}

void nt_event_discovery(struct nt_target *t)
{
	t->generation++;
	for (struct nt_subsystem *s = t->subsystems; s; s = s->next)
		for (struct nt_controller *c = s->discovery ? s->controllers : NULL; c; c = c->next)
			nt_event(c, NV_AEN_DISCOVERY_CHANGED);
}

/* ---- the command ---- */

uint16_t nt_async_event_check(struct nt_request *r)
{
	return r->queue->ctrl->aer_count >= NT_AERS ? NV_AER_LIMIT | NV_DNR : 0;
}

void nt_async_event(struct nt_request *r)
{
	struct nt_controller *c = r->queue->ctrl;

	nt_hold(r);
	c->aers[c->aer_count++] = r;
	deliver_events(c);
}

bool nt_event_forget(struct nt_controller *c, const struct nt_request *r)
{
	for (uint32_t i = 0; i < c->aer_count; i++) {
		if (c->aers[i] != r)
			continue;
		c->aers[i] = c->aers[--c->aer_count];
		return true;
	}
	return false;
}

bool nt_event_drop(struct nt_controller *c, uint16_t cid)
{
	for (uint32_t i = 0; i < c->aer_count; i++) {
		struct nt_request *r = c->aers[i];

		if (r->sqe.cid != cid)
			continue;
		nt_event_forget(c, r);
		nt_release(r);
		return true;
	}
	return false;
}
