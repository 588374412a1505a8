// cm_late.c - requests that come between the close of a listener and the start of the next one wait for it
// follows: IBA volume 1, 12.6.7.2 (REJ, reason 8). deviates: a port whose listener is about to listen rejects late
// see: broker/server/gsi_late.c, which does the same for Ethernet, with shares of users
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/server/cm.h"

enum { LATE_MOST = 256, LATE_EACH = 64 /* for one number of a port */ };
#define CLOSED_NS 3000000000u
#define PATIENCE_NS 1500000000u

/* In the order of their ends. */
struct cm_late {
	struct cm_late *next;
	uint64_t until;
	struct vb_fabric_port *port;
	uint16_t number;
	struct vb_fabric_cm_mad m;
};

void cm_late_closed(struct server *s, const struct vb_fabric_port *p, uint16_t number)
{
	s->closed[s->next_closed++ % VB_FABRIC_CLOSED] =
	        (struct cm_closed){.until = s->now + CLOSED_NS, .port = p, .number = number};
}

/* In any port space: a program may meet its peer by a connection and go on with datagrams at the same port. */
static bool closed_lately(const struct server *s, const struct vb_fabric_port *p, uint16_t number)
{
	for (unsigned i = 0; i < VB_FABRIC_CLOSED; i++)
		if (s->closed[i].port == p && s->closed[i].number == number && s->closed[i].until > s->now)
			return true;
	return false;
}

bool cm_late_keep(struct server *s, struct vb_fabric_port *p, const struct vb_cm_route_info *info,
                  const struct vb_fabric_cm_mad *m)
{
	struct cm_late **at = &s->late;
	unsigned n = 0, each = 0;

	if (!cm_may_listen(s, p, info) && !closed_lately(s, p, info->port))
		return false;
	for (; *at; at = &(*at)->next, n++)
		each += (*at)->port == p && (*at)->number == info->port;
	if (n < LATE_MOST && each < LATE_EACH)
		*at = calloc(1, sizeof(**at));
	if (!*at)
		return false;
	**at = (struct cm_late){.until = s->now + PATIENCE_NS, .port = p, .number = info->port, .m = *m};
	return true;
}

void cm_late_listening(struct server *s, const struct vb_fabric_port *p)
{
	struct vb_cm_route_info info;

	for (struct cm_late **at = &s->late, *late; (late = *at);) {
		vb_cm_route(late->m.mad, VB_MAD_LEN, &info);
		struct cm *cm = late->port == p ? cm_listener(s, p, &info) : NULL;

		if (!cm) {
			at = &late->next;
			continue;
		}
		*at = late->next;
		cm_give(cm, &late->m);
		free(late);
	}
}

/* Takes the first one away before its answer brings others. */
static void refuse_first(struct server *s)
{
	struct cm_late *late = s->late;

	s->late = late->next;
	cm_refuse(late->port, &late->m);
	free(late);
}

void cms_time(struct server *s)
{
	uint64_t due = UINT64_MAX;

	while (s->late && s->late->until <= s->now)
		refuse_first(s);
	if (s->fabric->changes == s->members_changes && s->now < s->members_due)
		return;
	s->members_changes = s->fabric->changes;
	for (struct cm *cm = s->cms; cm; cm = cm->next)
		cm_members_time(cm);
	for (const struct cm *cm = s->cms; cm; cm = cm->next) {
		uint64_t one = cm_members_deadline(cm);

		due = one < due ? one : due;
	}
	s->members_due = due;
}

uint64_t cms_deadline(const struct server *s)
{
	uint64_t due = s->late ? s->late->until : UINT64_MAX;

	return due < s->members_due ? due : s->members_due;
}

void cms_end(struct server *s)
{
	while (s->late) {
		struct cm_late *late = s->late;

		s->late = late->next;
		free(late);
	}
}
