// opening.c - opens the media of namespaces: at the start in turn, later while the loop serves hosts
// see: docs/storage.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/server.h"

/* A namespace whose medium is being opened. */
struct nt_pending {
	struct nb_opening opening;
	struct nt_pending *next;
	struct nt_server *server;
	char *nqn;
	struct nt_config_ns config; /* a copy */
	uint64_t asker;             /* of the control socket; 0: the configuration file */
};

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

bool nt_same_ns(const struct nt_config_ns *a, const struct nt_config_ns *b)
{
	return a && b && same_text(a->kind, b->kind) && same_text(a->path, b->path) && a->block == b->block &&
	       a->readonly == b->readonly && a->buffered == b->buffered && a->has_uuid == b->has_uuid &&
	       !memcmp(a->uuid, b->uuid, 16) && same_text(a->ceph_conf, b->ceph_conf) &&
	       same_text(a->ceph_user, b->ceph_user) && same_text(a->ceph_keyring, b->ceph_keyring) &&
	       same_text(a->gateway, b->gateway) && a->wait_ms == b->wait_ms && a->ana_group == b->ana_group &&
	       (a->size == b->size || strcmp(a->kind, "memory"));
}

/* ---- what is opened ---- */

struct words {
	char serves[NB_SERVES];
};

static struct nb_config medium_of(const char *nqn, const struct nt_config_ns *c, struct words *w)
{
	char uuid[NV_UUID_TEXT] = "own";

	if (c->has_uuid)
		nv_uuid_format(c->uuid, uuid);
	snprintf(w->serves, sizeof(w->serves), "nsid=%u,uuid=%s,nqn=%s", c->nsid, uuid, nqn);
	return (struct nb_config){.kind = c->kind,
	                          .path = c->path,
	                          .size = c->size,
	                          .block = c->block,
	                          .readonly = c->readonly,
	                          .buffered = c->buffered,
	                          .ceph_conf = c->ceph_conf,
	                          .ceph_user = c->ceph_user,
	                          .ceph_keyring = c->ceph_keyring,
	                          .gateway = c->gateway,
	                          .serves = w->serves,
	                          .wait_ms = c->wait_ms};
}

static void report(const char *nqn, const struct nt_config_ns *c, int error, const char *why)
{
	nt_say("%s, namespace %u (%s%s%s): %s", nqn, c->nsid, c->kind, c->path ? " " : "", c->path ? c->path : "",
	       *why ? why : strerror(error));
}

/* Takes the medium. 0, or an errno value that has been reported. */
static int serve_medium(struct nt_server *sv, struct nt_subsystem *s, const struct nt_config_ns *c,
                        struct nb_backend *b)
{
	struct nt_namespace *ns = nt_namespace_add(s, c->nsid, b, c->has_uuid ? c->uuid : NULL);
	const struct nt_config_subsystem *of = nt_config_find_subsystem(&sv->config, s->nqn);

	if (!ns) {
		nb_close(b);
		nt_say("%s, namespace %u: there is one", s->nqn, c->nsid);
		return EEXIST;
	}
	ns->ana_group = c->ana_group;
	nt_limit_namespace(ns, &c->limits);
	if (of)
		nt_apply_ids(s, of);
	return 0;
}

/* A medium that has shut us out lets us in again as another client. Another image may have its name now. */
static int serve_again(struct nt_server *sv, struct nt_namespace *ns, const struct nt_config_ns *c,
                       struct nb_backend *b)
{
	struct nt_subsystem *s = ns->subsystem;
	const struct nt_config_subsystem *of = nt_config_find_subsystem(&sv->config, s->nqn);
	bool held = nt_is_held(ns);

	if (!held && (!ns->backend->fenced || ns->backend->returns)) { /* it has come back meanwhile */
		nb_close(b);
		return 0;
	}
	if (!same_text(b->identity, ns->backend->identity)) {
		nt_namespace_remove(ns);
		return serve_medium(sv, s, c, b);
	}
	if (held) {
		ns->backend->successor = b;
		ns->ana_group = c->ana_group;
	}
	nt_namespace_replace(ns, b);
	nt_limit_namespace(ns, &c->limits);
	if (of) /* it may have become a gateway, or another one */
		nt_apply_ids(s, of);
	return 0;
}

/* A medium for which the start of the target waits. */
struct awaited {
	struct nb_opening opening;
	struct nt_server *server;
	bool done, given_up; /* given_up: the target ends, and whoever calls back frees it */
	int error;
	struct nb_backend *b;
};

static void awaited_opened(struct nb_opening *o, int error, struct nb_backend *b)
{
	struct awaited *a = (struct awaited *)(void *)o;

	if (a->given_up) {
		a->server->awaited--;
		nb_close(b);
		free(a);
		return;
	}
	a->error = error;
	a->b = b;
	a->done = true;
}

/* Namespaces come in the order of the configuration, one after the other: a medium that is served twice has the same
 * UUIDs each time. The control socket is answered meanwhile. */
static int await_medium(struct nt_server *sv, const struct nb_config *c, struct nb_backend **b)
{
	if (sv->stop)
		return ECANCELED;
	struct awaited *a = calloc(1, sizeof(*a));

	if (!a)
		return ENOMEM;
	a->server = sv;
	a->opening.done = awaited_opened;
	int error = nb_open_later(c, sv->ring, &a->opening);

	sv->awaited++;
	while (!error && !a->done && !sv->stop) {
		nb_ring_flush(sv->ring);
		nb_ring_turn(sv->ring, nt_now());
		nt_loop_once(sv->loop, 100, &sv->target.now);
	}
	if (!error && !a->done) {
		a->given_up = true;
		return ECANCELED;
	}
	sv->awaited--;
	if (!error && !(error = a->error))
		*b = a->b;
	memcpy(c->why, a->opening.why, NB_WHY);
	free(a);
	return error;
}

int nt_apply_ns(struct nt_server *sv, struct nt_subsystem *s, const struct nt_config_ns *c)
{
	struct words w;
	char why[NB_WHY] = "";
	struct nb_backend *b = NULL;
	struct nb_config medium = medium_of(s->nqn, c, &w);

	medium.why = why;
	int error = strcmp(c->kind, "rbd") ? nb_open(&medium, sv->ring, &b) : await_medium(sv, &medium, &b);

	if (error) {
		if (error != ECANCELED || !sv->stop)
			report(s->nqn, c, error, why);
		return error;
	}
	return s->ns[c->nsid] ? serve_again(sv, s->ns[c->nsid], c, b) : serve_medium(sv, s, c, b);
}

/* ---- later ---- */

static bool copy_word(char **to, const char *from)
{
	return !from || (*to = strdup(from));
}

static bool copy_ns(struct nt_config_ns *to, const struct nt_config_ns *from)
{
	*to = *from;
	to->kind = to->path = to->ceph_conf = to->ceph_user = to->ceph_keyring = to->gateway = NULL;
	if (copy_word(&to->kind, from->kind) && copy_word(&to->path, from->path) &&
	    copy_word(&to->ceph_conf, from->ceph_conf) && copy_word(&to->ceph_user, from->ceph_user) &&
	    copy_word(&to->ceph_keyring, from->ceph_keyring) && copy_word(&to->gateway, from->gateway))
		return true;
	nt_config_free_ns(to);
	return false;
}

static void free_pending(struct nt_pending *p)
{
	nt_config_free_ns(&p->config);
	free(p->nqn);
	free(p);
}

static struct nt_pending **find_pending(struct nt_server *sv, const char *nqn, uint32_t nsid)
{
	struct nt_pending **at = &sv->pending;

	while (*at && ((*at)->config.nsid != nsid || strcmp((*at)->nqn, nqn) != 0))
		at = &(*at)->next;
	return at;
}

bool nt_is_opening(struct nt_server *sv, const char *nqn, uint32_t nsid)
{
	return *find_pending(sv, nqn, nsid);
}

uint32_t nt_opening_count(const struct nt_server *sv)
{
	uint32_t n = sv->awaited;

	for (const struct nt_pending *p = sv->pending; p; p = p->next)
		n++;
	return n;
}

static void say_reread(struct nt_server *sv)
{
	if (!sv->reread || sv->pending)
		return;
	nt_say(sv->wrong ? "the configuration was read again; %u items failed" : "the configuration was read again",
	       sv->wrong);
	sv->reread = false;
	sv->wrong = 0;
}

void nt_reread(struct nt_server *sv, unsigned wrong)
{
	sv->wrong = (sv->reread ? sv->wrong : 0) + wrong;
	sv->reread = true;
	say_reread(sv);
}

static void answer_asker(struct nt_server *sv, const struct nt_pending *p, int error)
{
	char *text = NULL;

	if (asprintf(&text, error ? "error: namespace %u (%s %.200s): %.250s\n" : "ok\n", p->config.nsid,
	             p->config.kind, p->config.path, *p->opening.why ? p->opening.why : strerror(error)) < 0)
		text = NULL;
	nt_control_answer(sv->control, p->asker, text);
}

/* Only its size may have changed meanwhile. */
static int take_opened(struct nt_server *sv, struct nt_subsystem *s, const struct nt_pending *p,
                       const struct nt_config_ns *c, struct nb_backend *b)
{
	int error = s->ns[c->nsid] ? serve_again(sv, s->ns[c->nsid], c, b) : serve_medium(sv, s, c, b);

	if (!error && c->size != p->config.size && (error = nt_namespace_resize(s->ns[c->nsid], c->size)))
		nt_say("%s, namespace %u: cannot set this size: %s", s->nqn, c->nsid, strerror(error));
	return error;
}

/* It is not opened: what waits for it would wait in vain. */
static int fail_opening(struct nt_subsystem *s, const struct nt_config_ns *c, int error, const char *why)
{
	report(s->nqn, c, error, why);
	if (s->ns[c->nsid] && nt_is_held(s->ns[c->nsid]))
		nt_namespace_remove(s->ns[c->nsid]);
	return error;
}

/* The configuration may have changed meanwhile: then it decides what is opened now. */
static void opened(struct nb_opening *o, int error, struct nb_backend *b)
{
	struct nt_pending *p = (struct nt_pending *)(void *)o;
	struct nt_server *sv = p->server;
	struct nt_subsystem *s = nt_subsystem_find(&sv->target, p->nqn);
	const struct nt_config_ns *c = nt_config_find_ns(nt_config_find_subsystem(&sv->config, p->nqn), p->config.nsid);
	bool wanted = s && !sv->stop && nt_same_ns(c, &p->config);

	/* what it is to follow has not ended yet: it is tried again, and requests wait */
	if (wanted && error == EALREADY && s->ns[c->nsid] && nt_is_held(s->ns[c->nsid]))
		wanted = false;
	*find_pending(sv, p->nqn, p->config.nsid) = p->next;
	if (wanted && error)
		fail_opening(s, c, error, o->why);
	else if (wanted)
		error = take_opened(sv, s, p, c, b);
	else
		nb_close(b);
	if (wanted && error && p->asker) /* what was to be added is in the configuration only if it is served */
		nt_config_drop_ns(&sv->config, p->nqn, p->config.nsid);
	else if (wanted)
		sv->wrong += error != 0;
	else if (s && !sv->stop && c && (!s->ns[c->nsid] || nt_is_held(s->ns[c->nsid])))
		sv->wrong += nt_open_later(sv, s, c, 0) != 0;
	if (p->asker)
		answer_asker(sv, p, wanted ? error : ECANCELED);
	free_pending(p);
	say_reread(sv);
}

int nt_open_later(struct nt_server *sv, struct nt_subsystem *s, const struct nt_config_ns *c, uint64_t asker)
{
	struct words w;

	if (nt_is_opening(sv, s->nqn, c->nsid)) /* opened() looks what is wanted then */
		return 0;
	struct nt_pending *p = calloc(1, sizeof(*p));
	bool copied = p && copy_ns(&p->config, c) && (p->nqn = strdup(s->nqn));

	if (!copied) {
		if (p)
			free_pending(p);
		return fail_opening(s, c, ENOMEM, "");
	}
	p->server = sv;
	p->opening.done = opened;
	p->asker = asker;
	p->next = sv->pending;
	sv->pending = p;
	struct nb_config medium = medium_of(s->nqn, &p->config, &w);
	int error = nb_open_later(&medium, sv->ring, &p->opening);

	if (!error)
		return 0;
	sv->pending = p->next;
	fail_opening(s, c, error, p->opening.why);
	free_pending(p);
	return error;
}

bool nt_opens_later(const struct nt_server *sv, const struct nt_config_ns *c)
{
	return sv->serving && !strcmp(c->kind, "rbd");
}
