// apply.c - changes a running server to a new configuration
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/server.h"

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* ---- namespaces ---- */

const struct nt_config_subsystem *nt_config_find_subsystem(const struct nt_config *c, const char *nqn)
{
	for (size_t i = 0; i < c->subsystem_count; i++)
		if (!strcmp(c->subsystems[i].nqn, nqn))
			return &c->subsystems[i];
	return NULL;
}

const struct nt_config_ns *nt_config_find_ns(const struct nt_config_subsystem *s, uint32_t nsid)
{
	for (size_t i = 0; s && i < s->ns_count; i++)
		if (s->ns[i].nsid == nsid)
			return &s->ns[i];
	return NULL;
}

#define IDS (NT_ID_MAX / 16) /* of each gateway */

/* Controllers of one subsystem have different ids, whichever gateway they are at. Without a range in the configuration
 * it is the part that the first shared medium gives. */
void nt_apply_ids(struct nt_subsystem *s, const struct nt_config_subsystem *c)
{
	const struct nb_backend *b = NULL;

	for (uint32_t i = 1; i <= NT_NAMESPACES_MAX && !(b && b->parts); i++)
		b = s->ns[i] ? s->ns[i]->backend : NULL;
	bool shared = b && b->parts && b->parts <= 16;

	if (c->first_id || !shared)
		nt_subsystem_ids(s, c->first_id ? c->first_id : 1, c->last_id ? c->last_id : NT_ID_MAX);
	else
		nt_subsystem_ids(s, (uint16_t)(b->part * IDS + 1), (uint16_t)((b->part + 1) * IDS));
}

/* Nobody waits for a medium that other machines share. */
static unsigned open_ns(struct nt_server *sv, struct nt_subsystem *s, const struct nt_config_ns *c)
{
	return (nt_opens_later(sv, c) ? nt_open_later(sv, s, c, 0) : nt_apply_ns(sv, s, c)) != 0;
}

/* The same disk for its hosts, which find its namespace all the time. */
static bool stays(struct nt_server *sv, const struct nt_namespace *ns, const struct nt_config_ns *was,
                  const struct nt_config_ns *wanted)
{
	return wanted && nt_opens_later(sv, was) && nt_opens_later(sv, wanted) && same_text(was->path, wanted->path) &&
	       was->block == wanted->block && was->has_uuid == wanted->has_uuid &&
	       !memcmp(was->uuid, wanted->uuid, 16) && !ns->backend->fenced;
}

static unsigned apply_ns(struct nt_server *sv, struct nt_subsystem *s, const struct nt_config_subsystem *old,
                         const struct nt_config_subsystem *new)
{
	unsigned wrong = 0;

	for (size_t i = 0; old && i < old->ns_count; i++) {
		struct nt_namespace *ns = s->ns[old->ns[i].nsid];
		const struct nt_config_ns *c = nt_config_find_ns(new, old->ns[i].nsid);

		if (!ns || nt_same_ns(&old->ns[i], c))
			continue;
		if (!stays(sv, ns, &old->ns[i], c) || !(nt_is_held(ns) || nt_hold_medium(sv, ns, c->wait_ms)))
			nt_namespace_remove(ns);
	}
	nt_listeners_let_go();
	for (size_t i = 0; i < new->ns_count; i++) {
		const struct nt_config_ns *c = &new->ns[i];
		struct nt_namespace *ns = s->ns[c->nsid];

		if (nt_config_find_ns(new, c->nsid) != c) {
			nt_say("%s, namespace %u: there is one", s->nqn, c->nsid);
			wrong++;
			continue;
		}
		if (!ns || nt_is_held(ns) || (ns->backend->fenced && !ns->backend->returns)) {
			wrong += open_ns(sv, s, c);
			continue;
		}
		int error = nt_namespace_resize(ns, c->size);

		nt_limit_namespace(ns, &c->limits);
		if (error) {
			nt_say("%s, namespace %u: cannot set this size: %s", s->nqn, c->nsid, strerror(error));
			wrong++;
		}
	}
	return wrong;
}

/* ---- subsystems ---- */

static bool has_host(const struct nt_config_subsystem *c, const char *nqn)
{
	for (size_t i = 0; i < c->host_count; i++)
		if (!strcmp(c->hosts[i].nqn, nqn))
			return true;
	return false;
}

static unsigned apply_hosts(struct nt_subsystem *s, const struct nt_config_subsystem *c)
{
	unsigned wrong = 0;

	for (size_t i = 0; i < c->host_count; i++)
		if (!nt_subsystem_allow(s, c->hosts[i].nqn)) {
			nt_say("%s: %s is not a valid name of a host", s->nqn, c->hosts[i].nqn);
			wrong++;
		}
	for (size_t i = 0; i < c->host_count; i++)
		nt_subsystem_secrets(s, c->hosts[i].nqn, &c->hosts[i].secrets);
	nt_subsystem_auth(s, c->auth_required);
	nt_subsystem_any_host(s, c->any_host);
	for (struct nt_host *h = s->hosts, *next; h; h = next) {
		next = h->next;
		if (!has_host(c, h->nqn))
			nt_subsystem_disallow(s, h->nqn);
	}
	return wrong;
}

static void set_text(char *at, const char *text, size_t size)
{
	if (text) {
		strncpy(at, text, size - 1);
		at[size - 1] = 0;
	}
}

static unsigned apply_subsystem(struct nt_server *sv, const struct nt_config_subsystem *old,
                                const struct nt_config_subsystem *new)
{
	struct nt_subsystem *s = nt_subsystem_find(&sv->target, new->nqn);

	if (!s) {
		s = nt_subsystem_add(&sv->target, new->nqn);
		old = NULL;
	}
	if (!s || s->discovery) {
		nt_say("%s: cannot create the subsystem", new->nqn);
		return 1;
	}
	set_text(s->serial, new->serial, sizeof(s->serial));
	set_text(s->model, new->model, sizeof(s->model));
	unsigned wrong = apply_hosts(s, new) + apply_ns(sv, s, old, new);

	nt_apply_ids(s, new);
	return wrong;
}

/* ---- addresses ---- */

static bool same_address(const struct nt_config_address *a, const struct nt_config_address *b)
{
	return same_text(a->transport, b->transport) && same_text(a->address, b->address) && a->port == b->port &&
	       a->tls == b->tls;
}

static bool is_listed(const struct nt_config_address *list, size_t n, const struct nt_config_address *a)
{
	for (size_t i = 0; i < n; i++)
		if (same_address(&list[i], a))
			return true;
	return false;
}

static unsigned add_listener(struct nt_server *sv, const struct nt_config_address *a,
                             const struct nt_tcp_limits *limits)
{
	struct nt_listener *l = calloc(1, sizeof(*l)), **at = &sv->listeners;
	int error = l ? nt_listener_open(l, sv, a, limits) : ENOMEM;

	/* iWARP shares TCP's port numbers. If TCP uses the port, take any other; the discovery log has its number */
	if (error == EADDRINUSE && a->optional) {
		struct nt_config_address other = *a;

		other.port = 0;
		error = nt_listener_open(l, sv, &other, limits);
	}
	if (error) {
		if (error != ENODEV || !a->second)
			nt_say("%s, port %u, %s: %s", a->address, a->port, a->transport, strerror(error));
		free(l);
		return !a->optional;
	}
	l->where = (struct nt_config_address){
	        .transport = strdup(a->transport), .address = strdup(a->address), .port = a->port, .tls = a->tls};
	while (*at)
		at = &(*at)->next;
	*at = l;
	return 0;
}

static void apply_announce(struct nt_target *t, const struct nt_config *c)
{
	t->announce_only = c->announce;
	if (c->announce)
		set_text(t->announce, c->announce, sizeof(t->announce));
	else
		nt_reachable_address(false, t->announce, sizeof(t->announce));
}

static unsigned apply_listeners(struct nt_server *sv, const struct nt_config *new)
{
	unsigned wrong = 0;

	for (struct nt_listener *l = sv->listeners; l; l = l->next)
		if (!l->leaving && !is_listed(new->listen, new->listen_count, &l->where)) {
			l->leaving = true;
			nt_listener_stop(l);
		}
	for (size_t i = 0; i < new->listen_count; i++) {
		struct nt_listener *l = sv->listeners;

		while (l && (l->leaving || !same_address(&l->where, &new->listen[i])))
			l = l->next;
		if (!l)
			wrong += add_listener(sv, &new->listen[i], &new->limits);
	}
	return wrong;
}

void nt_listeners_turn(struct nt_server *s, uint64_t *next)
{
	for (struct nt_listener **at = &s->listeners; *at;) {
		struct nt_listener *l = *at;
		uint64_t due = nt_listener_turn(l);

		*next = due < *next ? due : *next;
		if (!l->leaving || !nt_listener_close(l)) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		free(l->where.transport);
		free(l->where.address);
		free(l);
	}
}

static void apply_referrals(struct nt_server *sv, const struct nt_config *new)
{
	bool changed = new->referral_count != sv->config.referral_count;

	for (size_t i = 0; !changed && i < new->referral_count; i++)
		changed = !same_address(&new->referrals[i], &sv->config.referrals[i]);
	if (!changed)
		return;
	nt_referrals_clear(&sv->target);
	for (size_t i = 0; i < new->referral_count; i++) {
		const struct nt_config_address *a = &new->referrals[i];
		struct nt_port p = {.trtype = strcmp(a->transport, "tcp") ? NV_TRTYPE_RDMA : NV_TRTYPE_TCP,
		                    .adrfam = strchr(a->address, ':') ? NV_ADRFAM_IPV6 : NV_ADRFAM_IPV4};

		set_text(p.address, a->address, sizeof(p.address));
		for (unsigned k = 10000, n = 0; k; k /= 10)
			if (a->port >= k || k == 1)
				p.service[n++] = (char)('0' + a->port / k % 10);
		nt_referral_add(&sv->target, &p);
	}
}

static bool has_limits(const void *config, const char *nqn)
{
	const struct nt_config *c = config;

	for (size_t i = 0; i < c->host_limit_count; i++)
		if (!strcmp(c->host_limits[i].nqn, nqn))
			return true;
	return false;
}

/* A limit that the control socket has set ends, too. No host is without its limits in between, because all that waits
 * would go. */
static unsigned apply_host_limits(struct nt_target *t, const struct nt_config *c)
{
	unsigned wrong = 0;

	for (size_t i = 0; i < c->host_limit_count; i++)
		wrong += !nt_limit_host(t, c->host_limits[i].nqn, &c->host_limits[i].limits);
	nt_limit_each_host(t, &c->each_host);
	nt_limit_hosts_forget(t, has_limits, c);
	return wrong;
}

unsigned nt_apply(struct nt_server *s, struct nt_config *config)
{
	unsigned wrong = 0;

	s->target.queues = (uint16_t)config->queues;
	nt_peers_limit(&s->target, config->limits.connections, config->connections_per_host);
	wrong += apply_host_limits(&s->target, config);
	for (size_t i = 0; i < s->config.subsystem_count; i++) {
		struct nt_subsystem *gone = nt_config_find_subsystem(config, s->config.subsystems[i].nqn)
		                                    ? NULL
		                                    : nt_subsystem_find(&s->target, s->config.subsystems[i].nqn);

		if (gone && !gone->discovery)
			nt_subsystem_remove(gone);
	}
	for (size_t i = 0; i < config->subsystem_count; i++)
		wrong += apply_subsystem(s, nt_config_find_subsystem(&s->config, config->subsystems[i].nqn),
		                         &config->subsystems[i]);
	apply_referrals(s, config);
	apply_announce(&s->target, config);
	wrong += apply_listeners(s, config);
	nt_announce(&s->target);
	nt_config_free(&s->config);
	s->config = *config;
	memset(config, 0, sizeof(*config));
	return wrong;
}
