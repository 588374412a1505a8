// cm_members.c - the multicast groups that programs have joined, learned from their questions: a port leaves with its last program
// follows: IBA volume 1, 15.2.5.17 (MCMemberRecord)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "fabric/server/cm.h"
#include "frame/sa.h"

enum { MEMBERS_MOST = VB_FABRIC_GROUPS };

struct cm_member {
	struct cm_member *next;
	uint32_t users; /* ids of the program */
	uint8_t mgid[16], join_state;
};

static struct cm_member **member_place(struct cm *cm, const struct vb_sa_member *m)
{
	struct cm_member **at = &cm->members;

	while (*at && ((*at)->join_state != m->join_state || memcmp((*at)->mgid, m->mgid, sizeof(m->mgid)) != 0))
		at = &(*at)->next;
	return at;
}

/* Has any program of this port joined so? */
static bool port_is_member(const struct cm *own, const struct vb_sa_member *m)
{
	for (struct cm *cm = own->server->cms; cm; cm = cm->next)
		if (cm->port == own->port && *member_place(cm, m))
			return true;
	return false;
}

static unsigned members_of(const struct cm *cm)
{
	unsigned n = 0;

	for (const struct cm_member *m = cm->members; m; m = m->next)
		n++;
	return n;
}

/* A membership that cannot be remembered does not come about. */
static bool member_add(struct cm *cm, const struct vb_sa_member *m)
{
	struct cm_member **at = member_place(cm, m);

	if (!*at && members_of(cm) < MEMBERS_MOST)
		*at = calloc(1, sizeof(**at));
	if (!*at)
		return false;
	memcpy((*at)->mgid, m->mgid, sizeof(m->mgid));
	(*at)->join_state = m->join_state;
	(*at)->users++;
	return true;
}

/* Returns true if the port is to leave. */
static bool member_remove(struct cm *cm, const struct vb_sa_member *m)
{
	struct cm_member **at = member_place(cm, m), *old = *at;

	if (!old || --old->users)
		return false;
	*at = old->next;
	free(old);
	return !port_is_member(cm, m);
}

bool cm_members_ask(struct cm *cm, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_sa_member m;

	switch (vb_sa_member_asked(mad, &m)) {
	case VB_MAD_SET:
		return member_add(cm, &m);
	case VB_SA_DELETE:
		return member_remove(cm, &m);
	default:
		return true;
	}
}

void cm_members_end(struct cm *cm)
{
	struct vb_fabric_port *p = cm->port;

	while (cm->members) {
		struct cm_member *old = cm->members;
		struct vb_sa_member m = {.join_state = old->join_state};
		struct vb_writer w = vb_writer(m.port_gid, sizeof(m.port_gid));
		uint8_t mad[VB_MAD_LEN];

		memcpy(m.mgid, old->mgid, sizeof(m.mgid));
		vb_put64(&w, p->info.gid_prefix);
		vb_put64(&w, p->guid);
		cm->members = old->next;
		free(old);
		if (port_is_member(cm, &m))
			continue;
		vb_sa_member_query(mad, 0, VB_SA_DELETE, VB_SA_MEMBER_NAME, &m);
		cm_ask(cm, mad, 0);
	}
}
