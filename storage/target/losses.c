// losses.c - data that hosts wrote and did not flush, and a medium lost: each host's next flush reports it once
// follows: NVM Express Base 1.4, 6.8 (Flush); fsync(2): an error is reported once
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/core.h"

/*
 * A medium reports lost data once, to the first flush after the loss; the next flush succeeds. So losses are numbered,
 * and the target stores the last one that each controller was told of. It keeps that when the connection breaks,
 * because the host returns with the flush that was not answered.
 */
void nt_lost(struct nt_namespace *ns)
{
	ns->lost = ++ns->subsystem->target->losses;
}

static bool is_untold(const struct nt_controller *c, const struct nt_namespace *ns)
{
	return ns->lost > c->losses_before && ns->lost > c->told_lost[ns->nsid];
}

/* A new flush shows that earlier answers have arrived. An answer lost with a broken connection reported nothing. */
void nt_flush_comes(struct nt_controller *c, const struct nt_namespace *ns)
{
	c->told_lost[ns->nsid] = c->telling[ns->nsid];
}

bool nt_tell_loss(struct nt_controller *c, const struct nt_namespace *ns)
{
	c->telling[ns->nsid] = ns->lost;
	return is_untold(c, ns);
}

/* The number up to which the host knows all losses. */
static uint64_t known_losses(const struct nt_controller *c)
{
	uint64_t n = c->subsystem->target->losses;

	for (uint32_t i = 1; n && i <= NT_NAMESPACES_MAX; i++) {
		const struct nt_namespace *ns = c->subsystem->ns[i];

		if (ns && is_untold(c, ns) && ns->lost <= n)
			n = ns->lost - 1;
	}
	return n;
}

static struct nt_gone *find_gone(const struct nt_controller *c)
{
	struct nt_target *t = c->subsystem->target;

	for (uint32_t i = 0; i < NT_GONE_MAX; i++)
		if (t->gone[i].subsystem == c->subsystem && nt_is_of_host(c, t->gone[i].hostnqn, t->gone[i].hostid))
			return &t->gone[i];
	return NULL;
}

/* A new host may be one that was forgotten. A needless report of a loss is better than a missing one. */
static uint64_t known_to_strangers(const struct nt_subsystem *s)
{
	return s->forgot && s->forgot_known < s->target->losses ? s->forgot_known : s->target->losses;
}

/* Called when the controller is enabled, not at Connect: only an authenticated host can enable it. */
void nt_losses_begin(struct nt_controller *c)
{
	if (c->knows)
		return;
	c->knows = true;
	struct nt_gone *g = find_gone(c);
	uint64_t n = g ? g->known : known_to_strangers(c->subsystem);

	if (g && !--g->n)
		g->subsystem = NULL;

	/* the end of an earlier connection may not have been noticed yet */
	for (const struct nt_controller *o = c->subsystem->controllers; o; o = o->next)
		if (o != c && o->knows && nt_is_of_host(o, c->hostnqn, c->who.id) && known_losses(o) < n)
			n = known_losses(o);
	c->losses_before = n;
}

static void forget_gone(struct nt_gone *g)
{
	struct nt_subsystem *s = g->subsystem;

	if (!s->forgot || g->known < s->forgot_known)
		s->forgot_known = g->known;
	s->forgot = true;
	g->subsystem = NULL;
}

/* A free entry, or the oldest one. */
static struct nt_gone *new_gone(struct nt_target *t)
{
	for (uint32_t i = 0; i < NT_GONE_MAX; i++) {
		struct nt_gone *g = &t->gone[t->next_gone++ % NT_GONE_MAX];

		if (!g->subsystem)
			return g;
	}
	struct nt_gone *g = &t->gone[t->next_gone++ % NT_GONE_MAX];

	forget_gone(g);
	return g;
}

/* Does nothing for a host that has shut down, which flushed, or was never enabled, and wrote nothing. */
void nt_losses_end(struct nt_controller *c)
{
	struct nt_target *t = c->subsystem->target;
	bool flushed = (c->csts & NV_CSTS_SHST) == NV_CSTS_SHST_DONE && known_losses(c) == t->losses;

	if (!c->knows)
		return;
	c->knows = false;
	if (flushed)
		return;
	struct nt_gone *g = find_gone(c);

	if (!g) {
		g = new_gone(t);
		*g = (struct nt_gone){.subsystem = c->subsystem, .known = known_losses(c)};
		memcpy(g->hostid, c->who.id, sizeof(g->hostid));
		strcpy(g->hostnqn, c->hostnqn);
	}
	if (known_losses(c) < g->known)
		g->known = known_losses(c);
	g->n++;
}

void nt_losses_forget(const struct nt_subsystem *s)
{
	for (uint32_t i = 0; i < NT_GONE_MAX; i++)
		if (s->target->gone[i].subsystem == s)
			s->target->gone[i].subsystem = NULL;
}
