// cm_members.c - the multicast groups of programs: their port joins again for a new subnet manager, and leaves with the last one
// follows: IBA volume 1, 15.2.5.17 (MCMemberRecord), 14.4.11 (client reregistration)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/server/cm.h"
#include "frame/sa.h"

enum {
	MEMBERS_MOST = VB_FABRIC_GROUPS,
	ANSWER_MS = 1000,
	TRIES = 60, /* of a join that is refused: the new manager may not know all ports yet */
};
#define PAUSE 500000000u /* ns: between two tries */
#define OURS 0xffff0000u /* low halves of transactions from here on are of this file: programs count from 1 */

struct cm_member {
	struct cm_member *next;
	uint32_t users;             /* ids of the program */
	uint8_t join_state;         /* as the program has asked */
	struct vb_sa_member record; /* as the manager has answered; its mlid is 0 before that */
	uint32_t question;          /* the join that is made again and has no answer yet; 0: none */
	uint64_t due;               /* when it is made again; 0: it is not */
	unsigned tries;
};

static struct cm_member **member_place(struct cm *cm, const struct vb_sa_member *m)
{
	struct cm_member **at = &cm->members;

	while (*at && ((*at)->join_state != m->join_state || memcmp((*at)->record.mgid, m->mgid, sizeof(m->mgid)) != 0))
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

	if (!cm->members)
		cm->joined_for = cm_manager_of(cm->port);
	if (!*at && members_of(cm) < MEMBERS_MOST)
		*at = calloc(1, sizeof(**at));
	if (!*at)
		return false;
	memcpy((*at)->record.mgid, m->mgid, sizeof(m->mgid));
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

/* The membership of this port, as the manager of now names it. */
static struct vb_sa_member record_for(const struct cm *cm, const struct cm_member *old)
{
	const struct vb_fabric_port *p = cm->port;
	struct vb_sa_member m = old->record;
	struct vb_writer w = vb_writer(m.port_gid, sizeof(m.port_gid));

	vb_put64(&w, p->info.gid_prefix);
	vb_put64(&w, p->guid);
	m.join_state = old->join_state;
	return m;
}

void cm_members_end(struct cm *cm)
{
	while (cm->members) {
		struct cm_member *old = cm->members;
		struct vb_sa_member m = record_for(cm, old);
		uint8_t mad[VB_MAD_LEN];

		cm->members = old->next;
		free(old);
		if (port_is_member(cm, &m))
			continue;
		vb_sa_member_query(mad, 0, VB_SA_DELETE, VB_SA_MEMBER_NAME, &m);
		cm_ask(cm, mad, 0);
	}
}

/* --- a new subnet manager, or one that has forgotten --- */

struct cm_manager cm_manager_of(const struct vb_fabric_port *p)
{
	return (struct cm_manager){.reregisters = p->reregisters, .lid = p->info.sm_lid};
}

static bool is_another(const struct cm *cm)
{
	const struct cm_manager now = cm_manager_of(cm->port);

	return cm->members && (now.reregisters != cm->joined_for.reregisters || now.lid != cm->joined_for.lid);
}

static void ask_after(struct cm *cm, struct cm_member *m, uint64_t ns)
{
	struct server *s = cm->server;

	m->due = s->now + ns;
	if (m->due < s->members_due)
		s->members_due = m->due;
}

/* The manager is asked for the MLID that the group had: queue pairs are attached to it, and senders know it. A group that
 * is there already keeps its own. */
static void join_again(struct cm *cm, struct cm_member *m)
{
	const struct vb_sa_member want = record_for(cm, m);
	uint8_t mad[VB_MAD_LEN];

	m->question = OURS | (cm->server->next_join++ & ~OURS);
	m->due = 0;
	vb_sa_member_query(mad, m->question, VB_MAD_SET, VB_SA_MEMBER_NAME | VB_SA_MEMBER_NEW, &want);
	if (!cm_ask(cm, mad, ANSWER_MS))
		return;
	m->question = 0;
	ask_after(cm, m, PAUSE);
}

void cm_members_time(struct cm *cm)
{
	bool another = is_another(cm);

	if (another)
		cm->joined_for = cm_manager_of(cm->port);
	for (struct cm_member *m = cm->members; m; m = m->next) {
		if (another && m->record.mlid) {
			m->tries = 0;
			m->question = 0; /* the one before may have got it */
			m->due = cm->server->now;
		}
		if (m->due && m->due <= cm->server->now)
			join_again(cm, m);
	}
}

uint64_t cm_members_deadline(const struct cm *cm)
{
	uint64_t due = UINT64_MAX;

	for (const struct cm_member *m = cm->members; m; m = m->next)
		due = m->due && m->due < due ? m->due : due;
	return due;
}

/* The program's queue pairs are not in the group any more. It may join once more. */
static void lose(struct cm *cm, struct cm_member *m)
{
	struct vb_fabric_sa_is is = {.verb = VB_FABRIC_MEMBER_LOST, .error = ENETRESET};

	vb_sa_member_query(is.mad, 0, VB_MAD_SET, VB_SA_MEMBER_NAME, &m->record);
	client_post(cm->client, &is, sizeof(is));
	m->record.mlid = 0;
}

static void joined_again(struct cm *cm, struct cm_member *m, int error, uint16_t status, const struct vb_sa_member *got)
{
	m->question = 0;
	if (error) { /* the manager is silent */
		ask_after(cm, m, 1);
	} else if (!status) {
		if (got->mlid != m->record.mlid)
			lose(cm, m);
	} else if (++m->tries < TRIES) {
		ask_after(cm, m, PAUSE);
	} else {
		lose(cm, m);
	}
}

/* What a program has joined first: its record has what is needed to make the group anew. */
static void learn(struct cm *cm, const struct vb_sa_member *got)
{
	for (struct cm_member *m = cm->members; m; m = m->next)
		if (!memcmp(m->record.mgid, got->mgid, sizeof(got->mgid)))
			m->record = *got;
}

bool cm_members_answered(struct cm *cm, int error, const uint8_t *mad, size_t len)
{
	struct vb_reader r = vb_reader(mad, len);
	struct vb_sa_member got = {0};
	uint16_t status = 0;

	vb_take(&r, 12);
	uint32_t question = vb_get32(&r);
	bool answered = !error && vb_sa_member_answer(mad, len, &status, &got);

	if (r.failed)
		return false;
	if (question < OURS) {
		if (answered && !status && vb_ib_is_group_lid(got.mlid))
			learn(cm, &got);
		return false;
	}
	for (struct cm_member *m = cm->members; m; m = m->next)
		if (m->question == question) {
			joined_again(cm, m, answered ? 0 : error ? error : EPROTO, status, &got);
			break;
		}
	return true;
}
