// gateway.c - which of several targets writes to an image: what one of them does next
// follows: docs/ceph.md
// SPDX-License-Identifier: MIT
#include "backend/gateway.h"

#include <string.h>

static bool same(const char *a, const char *b)
{
	return !strcmp(a, b);
}

struct ng_gateway *ng_find(struct ng_state *s, const char *name)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (same(s->gateways[i].name, name))
			return &s->gateways[i];
	return NULL;
}

/* ---- leases ---- */

static struct ng_lease *find_lease(struct ng *g, const char *client)
{
	for (uint32_t i = 0; i < NG_GATEWAYS; i++)
		if (*client && same(g->leases[i].client, client))
			return &g->leases[i];
	return NULL;
}

static void note_beat(struct ng *g, const struct ng_gateway *w, uint64_t now, struct ng_lease *out)
{
	const struct ng_lease *old = find_lease(g, w->client);

	if (old && old->beat == w->beat) {
		*out = *old;
		return;
	}
	if (old && same(g->fenced, w->client)) /* it writes: somebody has lifted the blocklist */
		*g->fenced = 0;
	if (same(g->silent, w->client))
		*g->silent = 0;
	*out = (struct ng_lease){.beat = w->beat, .at = now, .moved = old};
	memcpy(out->client, w->client, NG_CLIENT);
}

void ng_saw(struct ng *g, const struct ng_state *s, uint64_t asked, uint64_t now)
{
	struct ng_lease leases[NG_GATEWAYS] = {0};

	for (uint32_t i = 0; i < s->count; i++)
		if (*s->gateways[i].client)
			note_beat(g, &s->gateways[i], now, &leases[i]);
	memcpy(g->leases, leases, sizeof(leases));
	if (!g->looked)
		g->began = now;
	g->looked = true;
	g->asked = asked;
	g->seen = *s;
}

/* Its beat has not changed for the time of a lease, up to the beginning of the last read: a cluster that answers late, or
 * a halt of this program, counts for nobody. A connection that no gateway has any more is over. */
static bool has_failed(struct ng *g, const char *client)
{
	const struct ng_lease *l = find_lease(g, client);

	return !l || (g->asked > l->at && g->asked - l->at >= NG_LEASE_MS);
}

static bool is_alive(struct ng *g, const char *name)
{
	const struct ng_gateway *w = ng_find(&g->seen, name);

	return w && *w->client && !has_failed(g, w->client);
}

/* Its lease is over, or the cluster has confirmed that it takes nothing of it any more. */
static bool is_gone(struct ng *g, const char *client)
{
	return has_failed(g, client) || same(client, g->fenced);
}

/* An owner that has missed a beat, and does not answer either, is not waited for any longer. One that lives after all loses
 * no write by that: it is blocklisted, tells its hosts, and joins again. */
static bool owner_lives(struct ng *g)
{
	const char *client = g->seen.owner_client;
	const struct ng_lease *l = find_lease(g, client);

	if (l && same(client, g->silent) && g->asked > l->at && g->asked - l->at >= NG_SILENT_MS)
		return false;
	return is_alive(g, g->seen.owner);
}

/* ---- joining ---- */

static bool slot_is_taken(const struct ng_state *s, uint16_t slot)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->gateways[i].slot == slot)
			return true;
	return false;
}

/* A place of its own, or that of a gateway that has left or failed. The owner's connection may have writes left, so its
 * place stays. NULL: there is none. */
static struct ng_gateway *find_place(struct ng *g)
{
	struct ng_state *s = &g->next;

	if (s->count < NG_GATEWAYS) {
		struct ng_gateway *w = &s->gateways[s->count];

		*w = (struct ng_gateway){0};
		while (slot_is_taken(s, w->slot))
			w->slot++;
		s->count++;
		return w;
	}
	for (uint32_t i = 0; i < NG_GATEWAYS; i++) {
		struct ng_gateway *w = &s->gateways[i];

		if (!*w->client || (!same(w->client, s->owner_client) && has_failed(g, w->client)))
			return w;
	}
	return NULL;
}

enum others { NOBODY, PERHAPS, SOMEBODY };

/* Whether another gateway lives. One that has not failed yet, and has not moved since this one looks, may be dead. */
static enum others others_live(struct ng *g)
{
	bool perhaps = false;

	for (uint32_t i = 0; i < g->seen.count; i++) {
		const struct ng_gateway *w = &g->seen.gateways[i];

		if (!*w->client || same(w->name, g->name) || has_failed(g, w->client))
			continue;
		if (find_lease(g, w->client)->moved)
			return SOMEBODY;
		perhaps = true;
	}
	return perhaps ? PERHAPS : NOBODY;
}

/* What does not persist ends with the last gateway. False: it is not known yet whether there is one. */
static bool judge_power(struct ng *g)
{
	struct nr_state *s = &g->next.reservations;

	if (*g->before || s->persists || !s->count)
		return true;
	enum others others = others_live(g);

	if (others == NOBODY)
		nr_power_lost(s);
	return others != PERHAPS;
}

/* Hosts take the paths to all gateways for one disk. NG_WRITE: all that live have the configuration of this one. */
static enum ng_act compare_others(struct ng *g)
{
	enum ng_act act = NG_WRITE;

	for (uint32_t i = 0; i < g->seen.count; i++) {
		const struct ng_gateway *w = &g->seen.gateways[i];

		if (!*w->client || same(w->name, g->name) || has_failed(g, w->client) || !*w->serves || !*g->serves ||
		    same(w->serves, g->serves))
			continue;
		if (find_lease(g, w->client)->moved) {
			memcpy(g->other, w->name, NG_NAME);
			return NG_DIFFERS;
		}
		act = NG_WAIT; /* perhaps it has failed */
	}
	return act;
}

static enum ng_act join_others(struct ng *g)
{
	struct ng_gateway *me = ng_find(&g->next, g->name);
	const struct ng_lease *l = me ? find_lease(g, me->client) : NULL;
	enum ng_act fits = compare_others(g);

	if (l && !same(l->client, g->before) && l->moved)
		return NG_TAKEN;
	if (l && !same(l->client, g->before) && !has_failed(g, l->client))
		return NG_WAIT;
	if (fits != NG_WRITE)
		return fits;
	if (!me && !(me = find_place(g)))
		return g->asked - g->began < NG_LEASE_MS + NG_BEAT_MS ? NG_WAIT : NG_FULL;
	if (!judge_power(g))
		return NG_WAIT;
	memcpy(me->name, g->name, NG_NAME);
	memcpy(me->client, g->client, NG_CLIENT);
	memcpy(me->serves, g->serves, NB_SERVES);
	me->beat++;
	me->change = 0;
	me->port_count = 0;
	me->enforces = g->next.reservations.version; /* it has admitted nothing yet */
	g->news = true;
	return NG_WRITE;
}

/* ---- the owner ---- */

static void set_owner(struct ng *g, const char *name, const char *client)
{
	memset(g->next.owner, 0, NG_NAME);
	memset(g->next.owner_client, 0, NG_CLIENT);
	memcpy(g->next.owner, name, strlen(name));
	memcpy(g->next.owner_client, client, strlen(client));
	g->next.epoch++;
	if (same(g->next.wanted, name))
		*g->next.wanted = 0;
	g->news = true;
}

static void forget_wish(struct ng *g)
{
	*g->next.wanted = 0;
	g->news = true;
}

static void give_way(struct ng *g, uint64_t now)
{
	const struct ng_gateway *w = ng_find(&g->next, g->next.wanted);

	g->role = NG_OWNER;
	if (!*g->next.wanted)
		return;
	if (same(g->next.wanted, g->name) || !is_alive(g, g->next.wanted)) {
		forget_wish(g);
		return;
	}
	if (now - g->owner_since < NG_HOLD_MS)
		return;
	g->role = NG_DRAINING;
	if (g->drained)
		set_owner(g, w->name, w->client);
}

static void ask_for_it(struct ng *g, uint64_t now)
{
	bool wants = g->want_until > now, asks = same(g->next.wanted, g->name);

	g->role = wants ? NG_MOVING : NG_STANDBY;
	if (asks && !wants)
		forget_wish(g);
	if (asks || !wants || (*g->next.wanted && is_alive(g, g->next.wanted)))
		return;
	memcpy(g->next.wanted, g->name, NG_NAME);
	g->news = true;
}

static enum ng_act care_for_owner(struct ng *g, uint64_t now)
{
	const char *client = g->seen.owner_client;

	if (same(client, g->client)) {
		give_way(g, now);
		return NG_WAIT;
	}
	/* one that has come back by another connection goes before others */
	if (*client && !same(g->seen.owner, g->name) && owner_lives(g)) {
		ask_for_it(g, now);
		return NG_WAIT;
	}
	g->role = NG_MOVING;
	if (*client && !same(client, g->fenced)) {
		memcpy(g->victim, client, NG_CLIENT);
		return NG_FENCE;
	}
	set_owner(g, g->name, g->client);
	return NG_WAIT;
}

static void leave_others(struct ng *g)
{
	struct ng_gateway *me = ng_find(&g->next, g->name);

	if (same(g->seen.owner_client, g->client)) {
		g->role = NG_DRAINING;
		if (!g->drained)
			return;
		set_owner(g, "", "");
	}
	if (same(g->next.wanted, g->name))
		*g->next.wanted = 0;
	*me->client = 0;
	g->news = true;
}

/* ---- the reservation ---- */

/* Every gateway that lives enforces this version, and the owner lives, or there is none. */
static bool all_enforce(struct ng *g, uint64_t version)
{
	const char *owner = g->seen.owner_client;
	bool owned = *owner;

	for (uint32_t i = 0; i < g->seen.count; i++) {
		const struct ng_gateway *w = &g->seen.gateways[i];

		if (!*w->client || (has_failed(g, w->client) && !same(w->client, g->client)))
			continue;
		if (w->enforces < version)
			return false;
		owned &= !same(w->client, owner);
	}
	return !owned;
}

static void answer_change(struct ng *g, enum nr_result result)
{
	g->change.result = result;
	g->answered = g->change_number;
}

/* The state has the number of a change that is made, also if the answer to the write of the state was lost. */
static void care_for_change(struct ng *g, struct ng_gateway *me)
{
	if (me->enforces < g->enforces) {
		me->enforces = g->enforces;
		g->news = true;
	}
	if (!g->change_number || g->answered == g->change_number)
		return;
	if (g->made != g->change_number && me->change == g->change_number) {
		g->made = g->change_number;
		g->version = g->seen.reservations.version;
	}
	if (g->made == g->change_number) {
		if (all_enforce(g, g->version))
			answer_change(g, NR_OK);
		return;
	}
	enum nr_result result = nr_apply(&g->next.reservations, &g->change);

	if (result != NR_OK) {
		answer_change(g, result);
		return;
	}
	me->change = g->change_number;
	g->news = true;
}

static void care_for_entry(struct ng *g, struct ng_gateway *me)
{
	if (!same(me->serves, g->serves)) {
		memcpy(me->serves, g->serves, NB_SERVES);
		g->news = true;
	}
	if (me->port_count == g->port_count && !memcmp(me->ports, g->ports, sizeof(*g->ports) * g->port_count))
		return;
	me->port_count = g->port_count;
	memcpy(me->ports, g->ports, sizeof(g->ports));
	g->news = true;
}

uint32_t ng_others(struct ng *g, struct nb_port ports[NG_PORTS])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->seen.count; i++) {
		const struct ng_gateway *w = &g->seen.gateways[i];

		if (!*w->client || same(w->name, g->name) || is_gone(g, w->client))
			continue;
		for (uint32_t k = 0; k < w->port_count; k++) {
			ports[n] = w->ports[k];
			ports[n++].id = (uint16_t)((w->slot + 1u) << 8 | w->ports[k].id);
		}
	}
	return n;
}

enum ng_act ng_decide(struct ng *g, uint64_t now)
{
	struct ng_gateway *me;
	enum ng_act act = NG_WAIT;

	g->next = g->seen;
	g->news = false;
	g->drained &= g->role == NG_DRAINING;
	if (g->role == NG_JOINING)
		return join_others(g);
	me = ng_find(&g->next, g->name);
	if (g->role == NG_LEFT || !me || !same(me->client, g->client)) {
		g->role = g->role == NG_LEFT ? NG_LEFT : NG_OUT;
		return NG_WAIT;
	}
	if (g->leaving) {
		leave_others(g);
	} else {
		act = care_for_owner(g, now);
		care_for_entry(g, me);
		care_for_change(g, me);
	}
	if (act != NG_WAIT || (!g->news && now - g->beat_at < NG_BEAT_MS))
		return act;
	me->beat++;
	return NG_WRITE;
}

void ng_wrote(struct ng *g, uint64_t now)
{
	bool was = same(g->seen.owner_client, g->client), is = same(g->next.owner_client, g->client);

	g->beat_at = now;
	if (is && !was)
		g->owner_since = now;
	if (is != was)
		g->want_until = 0;
	if (was && !is)
		g->lost_at = now;
	if (is && !was)
		g->role = NG_OWNER;
	else if (g->role == NG_JOINING || (was && !is))
		g->role = NG_STANDBY;
	if (g->leaving && !*ng_find(&g->next, g->name)->client)
		g->role = NG_LEFT;
	ng_saw(g, &g->next, g->asked, now);
}

void ng_fenced(struct ng *g)
{
	memcpy(g->fenced, g->victim, NG_CLIENT);
}

/* Writes that still come after it has handed over are those of hosts that learn of it. They go elsewhere. */
void ng_want(struct ng *g, uint64_t now)
{
	if (!g->lost_at || now - g->lost_at >= NG_HOLD_MS)
		g->want_until = now + NG_WANT_MS;
}

/* It looks more often than the owner writes, and still more often if that is late. */
uint32_t ng_pause(struct ng *g, uint64_t now)
{
	const struct ng_lease *l = find_lease(g, g->seen.owner_client);

	if (g->change_number && g->answered != g->change_number)
		return 100;
	if (g->role == NG_OWNER)
		return NG_BEAT_MS;
	return g->role == NG_STANDBY && l && now - l->at < 2 * NG_BEAT_MS ? 400 : 100;
}
