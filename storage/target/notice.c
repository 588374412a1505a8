// notice.c - what registrants of a reservation learn: a log page for each controller, and events
// follows: NVM Express Base 1.4, 5.14.1.9.1 (reservation notification), 5.21.1.20 (its mask), 8.8
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

/* A host that has lost its registration learns only that. Base 1.4, 8.8.7 */
static bool concerns(const struct nr_notice *n, const struct nr_host *h, const struct nr_state *before,
                     const struct nr_state *after)
{
	if (!memcmp(&n->by, h, sizeof(*h)) || !nr_find(before, h))
		return false;
	if (n->event == NR_PREEMPTED) /* all registrations have ended */
		return true;
	return !nr_find(after, h) == (n->event == NR_REGISTRATION_PREEMPTED);
}

/* If the log is full, the new page is lost, as its counter shows. Base 1.4, 5.14.1.9.1 */
static void add_notice(struct nt_controller *c, const struct nt_namespace *ns, uint8_t event)
{
	if (c->notice_mask[ns->nsid] & 1u << event)
		return;
	if (!++c->notices_made)
		c->notices_made = 1;
	if (c->notice_count < NT_NOTICES)
		c->notices[c->notice_count++] =
		        (struct nt_notice){.number = c->notices_made, .nsid = ns->nsid, .event = event};
	nt_event(c, NV_AEN_RESERVATION);
}

void nt_notices(struct nt_namespace *ns, const struct nr_state *next)
{
	const struct nr_state *before = &ns->reserve.state;

	for (uint32_t i = 0; i < next->notice_count; i++) {
		const struct nr_notice *n = &next->notices[i];

		if (n->version <= before->version)
			continue;
		for (struct nt_controller *c = ns->subsystem->controllers; c; c = c->next)
			if (!c->dying && concerns(n, &c->who, before, next))
				add_notice(c, ns, n->event);
	}
}

uint8_t *nt_notice_log(struct nt_request *r, size_t *len)
{
	const struct nt_controller *c = r->queue->ctrl;
	uint8_t *d = calloc(1, 64);

	*len = 64;
	if (!d || !c->notice_count)
		return d;
	nv_put64(d, c->notices[0].number);
	d[8] = c->notices[0].event;
	d[9] = (uint8_t)(c->notice_count - 1);
	nv_put32(d + 12, c->notices[0].nsid);
	return d;
}

/* Each read takes one page. The event comes again as long as there are more. */
void nt_notice_read(struct nt_controller *c)
{
	if (!c->notice_count)
		return;
	memmove(c->notices, c->notices + 1, sizeof(*c->notices) * --c->notice_count);
	if (c->notice_count)
		nt_event(c, NV_AEN_RESERVATION);
}
