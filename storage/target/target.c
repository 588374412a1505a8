// target.c - subsystems, namespaces, hosts and ports
// follows: NVM Express Base 1.4, 1.4 (theory of operation), 7.9; NVMe over Fabrics 1.1, 1.5.2
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

int nt_target_init(struct nt_target *t, uint32_t memory)
{
	memset(t, 0, sizeof(*t));
	t->urgent.end = &t->urgent.first;
	for (int i = 0; i < NT_PACES; i++)
		t->in_line_end[i] = &t->in_line[i];
	t->guests_end = &t->guests;
	nt_peers_limit(t, NT_CONNECTIONS, 0);
	t->queues = 16;
	t->generation = 1;
	snprintf(t->firmware, sizeof(t->firmware), "%s", VB_VERSION);
	t->pool = nt_pool_open(memory);
	if (!t->pool)
		return ENOMEM;
	t->memory = memory / NT_POOL_BLOCK_MAX * NT_POOL_BLOCK_MAX;
	t->share = memory / 4 > 2 * NT_TRANSFER_MAX ? memory / 4 : 2 * NT_TRANSFER_MAX;
	struct nt_subsystem *s = nt_subsystem_add(t, NV_DISCOVERY_NQN);

	if (!s) {
		nt_pool_close(t->pool);
		return ENOMEM;
	}
	s->any_host = s->discovery = true;
	return 0;
}

void nt_target_fini(struct nt_target *t)
{
	while (t->subsystems)
		nt_subsystem_remove(t->subsystems);
	nt_referrals_clear(t);
	nt_accounts_forget(t);
	nt_peers_forget(t);
	nt_pool_close(t->pool);
}

/* ---- subsystems ---- */

struct nt_subsystem *nt_subsystem_find(struct nt_target *t, const char *nqn)
{
	struct nt_subsystem *s = t->subsystems;

	while (s && strcmp(s->nqn, nqn))
		s = s->next;
	return s;
}

struct nt_subsystem *nt_subsystem_add(struct nt_target *t, const char *nqn)
{
	struct nt_subsystem *s, **at = &t->subsystems;
	uint8_t id[16];

	if (strlen(nqn) >= NV_NQN_SIZE || !nv_nqn_valid(nqn, NV_NQN_SIZE) || nt_subsystem_find(t, nqn) ||
	    !(s = calloc(1, sizeof(*s))))
		return NULL;
	s->target = t;
	strcpy(s->nqn, nqn);
	nv_uuid_from(nqn, 0, id);
	for (int i = 0; i < 10; i++)
		snprintf(s->serial + 2 * i, 3, "%02x", id[i]);
	strcpy(s->model, "Verbena target");
	for (int i = 1; i <= (int)NT_ANA_GROUPS; i++)
		s->ana[i] = NV_ANA_OPTIMIZED;
	s->ana[NT_ANA_FENCED] = NV_ANA_INACCESSIBLE;
	s->ana[NT_ANA_OTHER] = NV_ANA_NON_OPTIMIZED;
	s->ana[NT_ANA_MOVING] = NV_ANA_CHANGE;
	nt_subsystem_ids(s, 1, NT_ID_MAX);
	while (*at)
		at = &(*at)->next;
	*at = s;
	nt_event_discovery(t);
	return s;
}

static void free_host(struct nt_host *h)
{
	explicit_bzero(h, sizeof(*h));
	free(h);
}

static void free_subsystem(struct nt_subsystem *s)
{
	nt_losses_forget(s);
	for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
		if (s->ns[i])
			nt_namespace_remove(s->ns[i]);
	while (s->hosts) {
		struct nt_host *h = s->hosts;

		s->hosts = h->next;
		free_host(h);
	}
	free(s);
}

void nt_subsystem_put(struct nt_subsystem *s)
{
	if (s->removed && !s->controllers)
		free_subsystem(s);
}

void nt_subsystem_remove(struct nt_subsystem *s)
{
	struct nt_subsystem **at = &s->target->subsystems;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->removed = true;
	nt_event_discovery(s->target);
	for (struct nt_controller *c = s->controllers; c; c = c->next)
		nt_controller_end(c);
	nt_subsystem_put(s);
}

static struct nt_host **find_host(struct nt_subsystem *s, const char *hostnqn)
{
	struct nt_host **at = &s->hosts;

	while (*at && strcmp((*at)->nqn, hostnqn))
		at = &(*at)->next;
	return at;
}

bool nt_allowed(const struct nt_subsystem *s, const char *hostnqn)
{
	return s->any_host || *find_host((struct nt_subsystem *)(uintptr_t)s, hostnqn);
}

bool nt_subsystem_allow(struct nt_subsystem *s, const char *hostnqn)
{
	struct nt_host **at = find_host(s, hostnqn);

	if (*at)
		return true;
	if (strlen(hostnqn) >= NV_NQN_SIZE || !nv_nqn_valid(hostnqn, NV_NQN_SIZE) || !(*at = calloc(1, sizeof(**at))))
		return false;
	strcpy((*at)->nqn, hostnqn);
	nt_event_discovery(s->target);
	return true;
}

/* Ends connections of hosts that are no longer allowed. */
static void end_strangers(struct nt_subsystem *s)
{
	for (struct nt_controller *c = s->controllers; c; c = c->next)
		if (!nt_allowed(s, c->hostnqn))
			nt_controller_end(c);
	nt_event_discovery(s->target);
}

void nt_subsystem_disallow(struct nt_subsystem *s, const char *hostnqn)
{
	struct nt_host **at = find_host(s, hostnqn), *h = *at;

	if (!h)
		return;
	*at = h->next;
	free_host(h);
	end_strangers(s);
}

void nt_subsystem_any_host(struct nt_subsystem *s, bool any)
{
	if (s->any_host == any)
		return;
	s->any_host = any;
	end_strangers(s);
}

void nt_subsystem_ids(struct nt_subsystem *s, uint16_t first, uint16_t last)
{
	s->first_id = first;
	s->last_id = last;
	if (s->next_id < first || s->next_id > last)
		s->next_id = first;
}

static bool same_secrets(const struct nt_secrets *a, const struct nt_secrets *b)
{
	return nv_secret_same(&a->host, &b->host) && nv_secret_same(&a->controller, &b->controller) &&
	       nv_secret_same(&a->tls, &b->tls) && a->hashes == b->hashes && a->groups == b->groups;
}

void nt_subsystem_secrets(struct nt_subsystem *s, const char *hostnqn, const struct nt_secrets *secrets)
{
	struct nt_host *h = *find_host(s, hostnqn);

	if (!h || same_secrets(&h->secrets, secrets))
		return;
	h->secrets = *secrets;
	for (struct nt_controller *c = s->controllers; c; c = c->next)
		if (!strcmp(c->hostnqn, hostnqn))
			nt_controller_end(c);
}

void nt_subsystem_auth(struct nt_subsystem *s, bool required)
{
	s->auth_required = required;
	for (struct nt_controller *c = s->controllers; required && c; c = c->next)
		if (!nt_secrets_of(s, c->hostnqn)) /* this host has no secret */
			nt_controller_end(c);
}

const struct nt_secrets *nt_secrets_of(const struct nt_subsystem *s, const char *hostnqn)
{
	const struct nt_host *h = *find_host((struct nt_subsystem *)(uintptr_t)s, hostnqn);

	return h && h->secrets.host.length ? &h->secrets : NULL;
}

bool nt_tls_secret(const struct nt_target *t, const char *hostnqn, const char *subnqn, struct nv_secret *out)
{
	bool discovery = !strcmp(subnqn, NV_DISCOVERY_NQN);

	for (struct nt_subsystem *s = t->subsystems; s; s = s->next) {
		const struct nt_host *h = discovery || !strcmp(s->nqn, subnqn) ? *find_host(s, hostnqn) : NULL;

		if (!h || !h->secrets.tls.length)
			continue;
		*out = h->secrets.tls;
		return true;
	}
	return false;
}

static void ana_changed(struct nt_subsystem *s)
{
	s->ana_changes++;
	for (struct nt_controller *c = s->controllers; c; c = c->next)
		nt_event(c, NV_AEN_ANA_CHANGED);
}

uint32_t nt_ana_group(const struct nt_namespace *ns)
{
	static const uint32_t groups[] = {
	        [NB_OTHER] = NT_ANA_OTHER, [NB_MOVING] = NT_ANA_MOVING, [NB_AWAY] = NT_ANA_FENCED};
	const struct nb_backend *b = ns->backend;

	return b->fenced ? NT_ANA_FENCED : b->access == NB_HERE ? ns->ana_group : groups[b->access];
}

void nt_ana_set(struct nt_subsystem *s, uint32_t group, enum nv_ana_state state)
{
	if (!group || group > NT_ANA_GROUPS || s->ana[group] == state)
		return;
	s->ana[group] = (uint8_t)state;
	ana_changed(s);
}

/* ---- namespaces ---- */

struct nt_namespace *nt_ns_get(struct nt_subsystem *s, uint32_t nsid)
{
	struct nt_namespace *ns = nsid && nsid <= NT_NAMESPACES_MAX ? s->ns[nsid] : NULL;

	if (ns)
		ns->users++;
	return ns;
}

void nt_ns_put(struct nt_namespace *ns)
{
	if (--ns->users || !ns->removed)
		return;
	nb_close(ns->backend);
	free(ns);
}

static uint8_t shift_of(uint32_t block)
{
	uint8_t shift = 9;

	while (1u << shift < block)
		shift++;
	return shift;
}

static bool uuid_taken(const struct nt_target *t, const uint8_t uuid[16])
{
	for (const struct nt_subsystem *s = t->subsystems; s; s = s->next)
		for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
			if (s->ns[i] && !memcmp(s->ns[i]->uuid, uuid, 16))
				return true;
	return false;
}

/* A medium has the same UUID wherever it is served. If it is served twice here, the second namespace gets another,
 * because hosts refuse two namespaces with one UUID. */
static void make_uuid(const struct nt_subsystem *s, uint32_t nsid, const struct nb_backend *b, uint8_t uuid[16])
{
	nv_uuid_from(s->nqn, nsid, uuid);
	if (!b->identity)
		return;
	uint64_t names = nv_get64(uuid);

	nv_uuid_from(b->identity, b->identity_anywhere ? 0 : names, uuid);
	if (b->identity_anywhere && uuid_taken(s->target, uuid))
		nv_uuid_from(b->identity, names, uuid);
}

/* Once, not for each request. */
static void report_trouble(const struct nt_namespace *ns, enum nb_change what)
{
	const struct nb_backend *b = ns->backend;
	const struct nt_subsystem *s = ns->subsystem;

	if (!s->target->say)
		return;
	if (what == NB_SLOW)
		s->target->say("%s, namespace %u: requests get no answer: its cluster is slow or gone; hosts are told "
		               "to try again",
		               s->nqn, ns->nsid);
	else if (what == NB_FULL)
		s->target->say("%s, namespace %u: its pool is full: writes that need space wait for it", s->nqn,
		               ns->nsid);
	else if (what == NB_NOT_IN)
		s->target->say("%s, namespace %u: it cannot be opened again yet: %s", s->nqn, ns->nsid, b->trouble);
	else if (b->fenced)
		s->target->say("%s, namespace %u: its cluster has shut this target out; hosts are told to use another",
		               s->nqn, ns->nsid);
	else if (b->access == NB_AWAY)
		s->target->say("%s, namespace %u: its cluster does not answer; hosts are told to use another target",
		               s->nqn, ns->nsid);
}

static void medium_changed(struct nb_backend *b, enum nb_change what)
{
	struct nt_namespace *ns = b->owner;
	struct nt_subsystem *s = ns->subsystem;

	if (what == NB_RESERVED) {
		nt_reserve_changed(ns, false);
		return;
	}
	if (what == NB_PORTS) {
		nt_event_discovery(s->target);
		return;
	}
	if (ns->removed) {
		nb_close(what == NB_LET_IN ? b->successor : NULL);
		return;
	}
	if (what == NB_RESIZED) {
		nt_event_ns(s, ns->nsid);
		return;
	}
	if (what == NB_LET_IN) {
		nt_namespace_replace(ns, b->successor);
		return;
	}
	report_trouble(ns, what);
	if (what == NB_SHUT_OUT || what == NB_MOVED)
		ana_changed(s);
}

static void take_medium(struct nt_namespace *ns, struct nb_backend *b)
{
	ns->backend = b;
	b->owner = ns;
	b->changed = medium_changed;
}

void nt_namespace_replace(struct nt_namespace *ns, struct nb_backend *b)
{
	struct nb_backend *old = ns->backend;
	bool other = b->size != old->size || b->readonly != old->readonly, listed = old->parts || b->parts;

	take_medium(ns, b);
	ns->answered = ns->subsystem->target->now; /* what waited goes to the new one */
	/* first: what ends with the old one says how far the new one is in force */
	nt_reserve_changed(ns, !old->reservations);
	nb_close(old);
	nt_announce(ns->subsystem->target);
	if (listed)
		nt_event_discovery(ns->subsystem->target);
	if (other)
		nt_event_ns(ns->subsystem, ns->nsid);
	ana_changed(ns->subsystem);
}

struct nt_namespace *nt_namespace_add(struct nt_subsystem *s, uint32_t nsid, struct nb_backend *b,
                                      const uint8_t uuid[16])
{
	struct nt_namespace *ns;

	if (s->discovery || !nsid || nsid > NT_NAMESPACES_MAX || s->ns[nsid] || !(ns = calloc(1, sizeof(*ns))))
		return NULL;
	ns->subsystem = s;
	take_medium(ns, b);
	ns->nsid = nsid;
	ns->ana_group = 1;
	ns->users = 1;
	ns->block_shift = shift_of(b->block);
	if (uuid)
		memcpy(ns->uuid, uuid, 16);
	else
		make_uuid(s, nsid, b, ns->uuid);
	memcpy(ns->nguid, ns->uuid, 16);
	nt_gate_open(&ns->gate, s->target);
	ns->turns.flows = &s->target->flows;
	nt_reserve_open(ns);
	s->ns[nsid] = ns;
	nt_announce(s->target);
	if (b->parts) /* the discovery log has the ports of its other gateways */
		nt_event_discovery(s->target);
	nt_event_ns(s, nsid);
	return ns;
}

void nt_namespace_remove(struct nt_namespace *ns)
{
	struct nt_subsystem *s = ns->subsystem;

	s->ns[ns->nsid] = NULL;
	ns->removed = true;
	nt_gate_lift(&ns->gate);
	if (!s->removed)
		nt_event_ns(s, ns->nsid);
	if (!s->removed && ns->backend->parts)
		nt_event_discovery(s->target);
	nt_ns_put(ns);
}

int nt_namespace_resize(struct nt_namespace *ns, uint64_t size)
{
	uint64_t old = ns->backend->size;
	int error = nb_resize(ns->backend, size);

	if (!error && ns->backend->size != old)
		nt_event_ns(ns->subsystem, ns->nsid);
	return error;
}

/* ---- ports ---- */

void nt_port_add(struct nt_target *t, struct nt_port *p)
{
	struct nt_port **at = &t->ports;
	uint16_t id = 0;

	for (; *at; at = &(*at)->next)
		id = (*at)->id > id ? (*at)->id : id;
	p->id = (uint16_t)(id + 1);
	p->next = NULL;
	*at = p;
	nt_announce(t);
	nt_event_discovery(t);
}

void nt_port_remove(struct nt_target *t, struct nt_port *p)
{
	struct nt_port **at = &t->ports;

	while (*at && *at != p)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = p->next;
	nt_announce(t);
	nt_event_discovery(t);
}

bool nt_referral_add(struct nt_target *t, const struct nt_port *p)
{
	struct nt_referral *r = calloc(1, sizeof(*r)), **at = &t->referrals;

	if (!r)
		return false;
	r->port = *p;
	while (*at)
		at = &(*at)->next;
	*at = r;
	nt_event_discovery(t);
	return true;
}

void nt_referrals_clear(struct nt_target *t)
{
	if (!t->referrals)
		return;
	while (t->referrals) {
		struct nt_referral *r = t->referrals;

		t->referrals = r->next;
		free(r);
	}
	nt_event_discovery(t);
}
