// controller.c - controllers: ids, properties, keep-alive timers, deletion
// follows: NVM Express Base 1.4, 3.1, 7.6 (initialization and shutdown), 7.12 (keep alive); NVMe over Fabrics 1.1, 3.5
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

#define DISCOVERY_KATO 120000u /* the longest idle time of a discovery controller without a timer */
#define KATO_SLACK 1000u       /* the granularity that Identify reports (KAS) */

struct nt_controller *nt_controller_find(struct nt_target *t, uint16_t id)
{
	struct nt_controller *c = t->by_id[id % 256];

	while (c && c->id != id)
		c = c->chain;
	return c;
}

bool nt_controller_known(struct nt_target *t, uint16_t id)
{
	const struct nt_controller *c = nt_controller_find(t, id);

	return c && !c->dying;
}

static uint16_t take_id(struct nt_subsystem *s)
{
	for (uint32_t tries = s->first_id; tries <= s->last_id; tries++) {
		uint16_t id = s->next_id;

		s->next_id = id == s->last_id ? s->first_id : id + 1;
		if (!nt_controller_find(s->target, id))
			return id;
	}
	return 0;
}

struct nt_controller *nt_controller_open(struct nt_subsystem *s, struct nt_queue *q, const char *hostnqn)
{
	struct nt_target *t = s->target;
	uint16_t id = take_id(s);
	struct nt_controller *c = id ? calloc(1, sizeof(*c)) : NULL;

	if (!c || !(c->account = nt_account_join(t, hostnqn))) {
		free(c);
		return NULL;
	}
	strcpy(c->hostnqn, hostnqn);
	c->id = id;
	c->subsystem = s;
	c->chain = t->by_id[id % 256];
	t->by_id[id % 256] = c;
	struct nt_controller **at = &s->controllers;

	while (*at)
		at = &(*at)->next;
	*at = c;
	c->admin = c->queues[0] = q;
	c->attached = 1;
	c->seen = c->connected_at = t->now;
	c->granted = s->discovery ? 0 : t->queues < NT_QUEUES_MAX ? t->queues : NT_QUEUES_MAX;
	nt_features_reset(c);
	t->alive_due = 0;
	q->ctrl = c;
	return c;
}

static void free_if_unused(struct nt_controller *c)
{
	struct nt_subsystem *s = c->subsystem;
	struct nt_controller **at = &s->target->by_id[c->id % 256];

	if (c->attached || c->flushes)
		return;
	nt_losses_end(c);
	while (*at != c)
		at = &(*at)->chain;
	*at = c->chain;
	at = &s->controllers;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	nt_account_leave(s->target, c->account);
	free(c);
	nt_subsystem_put(s);
}

static bool leave_unproven(struct nt_queue *q)
{
	struct nt_queue **at = &q->ctrl->unproven;

	while (*at && *at != q)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = q->next;
	q->next = NULL;
	return true;
}

/* Any host can name a controller and its host. So a queue that has not authenticated takes no place of the
 * controller's. */
void nt_controller_unproven(struct nt_queue *q)
{
	q->next = q->ctrl->unproven;
	q->ctrl->unproven = q;
}

bool nt_controller_place(struct nt_queue *q)
{
	struct nt_controller *c = q->ctrl;

	if (c->queues[q->qid])
		return c->queues[q->qid] == q;
	leave_unproven(q);
	c->queues[q->qid] = q;
	c->seen = q->target->now;
	return true;
}

void nt_controller_detach(struct nt_queue *q)
{
	struct nt_controller *c = q->ctrl;

	if (!leave_unproven(q))
		c->queues[q->qid] = NULL;
	q->ctrl = NULL;
	if (!q->qid)
		c->admin = NULL;
	c->attached--;
	free_if_unused(c);
}

static void close_io_queues(struct nt_controller *c)
{
	for (uint32_t i = 1; i <= NT_QUEUES_MAX; i++)
		if (c->queues[i] && !c->queues[i]->closing)
			c->queues[i]->ops->close(c->queues[i]);
	for (struct nt_queue *q = c->unproven; q; q = q->next)
		if (!q->closing)
			q->ops->close(q);
}

/* Compares both names: a host authenticates its NQN, but not its identifier. */
bool nt_is_of_host(const struct nt_controller *c, const char *hostnqn, const uint8_t *hostid)
{
	return !memcmp(c->who.id, hostid, sizeof(c->who.id)) && !strcmp(c->hostnqn, hostnqn);
}

void nt_controller_end(struct nt_controller *c)
{
	if (c->dying)
		return;
	c->dying = true;
	c->csts = (c->csts & ~NV_CSTS_RDY) | NV_CSTS_CFS;
	close_io_queues(c);
	if (c->admin && !c->admin->closing)
		c->admin->ops->close(c->admin);
}

void nt_auth_begin(struct nt_queue *q)
{
	struct nt_target *t = q->target;

	if (q->auth_due)
		return;
	q->auth_due = t->now + NT_AUTH_MS;
	if (!t->auth_due || q->auth_due < t->auth_due)
		t->auth_due = q->auth_due;
}

static void tick_auth_of(struct nt_queue *q, struct nt_target *t)
{
	if (!q || !q->auth_due || q->closing)
		return;
	if (q->auth_due > t->now)
		t->auth_due = !t->auth_due || q->auth_due < t->auth_due ? q->auth_due : t->auth_due;
	else if (q->qid)
		q->ops->close(q);
	else
		nt_controller_end(q->ctrl);
}

static void tick_auth_all(struct nt_controller *c, struct nt_target *t)
{
	for (uint32_t i = 0; i <= NT_QUEUES_MAX && !c->dying; i++)
		tick_auth_of(c->queues[i], t);
	for (struct nt_queue *q = c->unproven; q && !c->dying; q = q->next)
		tick_auth_of(q, t);
}

/* Ends connections that must authenticate, or have begun to, and do not finish in time. */
static uint64_t tick_auth(struct nt_target *t)
{
	if (t->auth_due && t->auth_due <= t->now) {
		t->auth_due = 0;
		for (struct nt_subsystem *s = t->subsystems; s; s = s->next)
			for (struct nt_controller *c = s->controllers; c; c = c->next)
				tick_auth_all(c, t);
	}
	return t->auth_due ? t->auth_due : UINT64_MAX;
}

/* Ends the wait of hosts for a medium that does not finish their earlier requests. */
static uint64_t tick_connects(struct nt_target *t)
{
	uint64_t next = UINT64_MAX;
	bool due = false;

	for (const struct nt_request *r = t->connects; r; r = r->next) {
		due |= r->at <= t->now;
		if (r->at > t->now && r->at < next)
			next = r->at;
	}
	if (due)
		nt_connects_again(t);
	return next;
}

/* Ends controllers whose host is silent. The times only move away, so they are looked at when the earliest has come. */
static uint64_t tick_alive(struct nt_target *t)
{
	if (t->alive_due > t->now)
		return t->alive_due;
	t->alive_due = UINT64_MAX;
	for (struct nt_subsystem *s = t->subsystems; s; s = s->next)
		for (struct nt_controller *c = s->controllers; c; c = c->next) {
			uint32_t kato = c->kato ? c->kato : s->discovery ? DISCOVERY_KATO : 0;
			uint64_t due = c->seen + kato + KATO_SLACK;

			if (c->dying || !kato)
				continue;
			if (due <= t->now)
				nt_controller_end(c);
			else if (due < t->alive_due)
				t->alive_due = due;
		}
	return t->alive_due;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t nt_target_tick(struct nt_target *t)
{
	return earlier(earlier(tick_auth(t), tick_connects(t)),
	               earlier(earlier(tick_alive(t), nt_slow_tick(t)), nt_qos_due(t)));
}

/* ---- properties ---- */

uint64_t nt_controller_cap(void)
{
	return (NT_IO_ENTRIES_MAX - 1) | 1u << 16 /* CQR */ | 30u << 24 /* TO: 15 s */ |
	       (uint64_t)1 << 37 /* CSS: NVM */;
}

/* A flush that a normal shutdown waits for. */
struct flush {
	struct nb_request io;
	struct nt_controller *ctrl;
	struct nt_namespace *ns;
};

static void shut_down_more(struct nt_controller *c)
{
	if (--c->flushes)
		return;
	c->csts = (c->csts & ~NV_CSTS_SHST) | NV_CSTS_SHST_DONE;
	free_if_unused(c);
}

static void shutdown_flushed(struct nb_request *io, int error)
{
	struct flush *f = (struct flush *)(void *)((uint8_t *)io - offsetof(struct flush, io));
	struct nt_controller *c = f->ctrl;

	if (error)
		nt_lost(f->ns);
	nt_ns_put(f->ns);
	free(f);
	shut_down_more(c);
}

static void shut_down(struct nt_controller *c)
{
	if (c->csts & NV_CSTS_SHST)
		return;
	c->csts = (c->csts & ~NV_CSTS_SHST) | NV_CSTS_SHST_BUSY;
	c->flushes++; /* counts this loop itself */
	for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++) {
		struct nt_namespace *ns = c->subsystem->ns[i];
		struct flush *f = ns && ns->backend->volatile_cache ? calloc(1, sizeof(*f)) : NULL;

		if (!f)
			continue;
		f->ctrl = c;
		f->ns = nt_ns_get(c->subsystem, i);
		f->io = (struct nb_request){.op = NB_FLUSH, .done = shutdown_flushed};
		c->flushes++;
		nb_submit(ns->backend, &f->io);
	}
	shut_down_more(c);
}

static void enable_controller(struct nt_controller *c, uint32_t cc)
{
	uint32_t css = cc >> 4 & 7, mps = cc >> 7 & 0xf, ams = cc >> 11 & 7, iosqes = cc >> 16 & 0xf,
	         iocqes = cc >> 20 & 0xf;
	bool sizes = c->subsystem->discovery || (iosqes == 6 && iocqes == 4);

	if (css || mps || ams || !sizes) {
		c->csts |= NV_CSTS_CFS;
		return;
	}
	c->csts = NV_CSTS_RDY;
	if (!c->subsystem->discovery)
		nt_losses_begin(c);
	c->seen = c->subsystem->target->now;
}

void nt_controller_configure(struct nt_controller *c, uint32_t cc)
{
	uint32_t before = c->cc;

	c->cc = cc;
	if ((cc & NV_CC_EN) && !(before & NV_CC_EN))
		enable_controller(c, cc);
	if (!(cc & NV_CC_EN) && (before & NV_CC_EN)) { /* a controller reset ends the I/O queues. Base 1.4, 7.3.2 */
		close_io_queues(c);
		nt_features_reset(c);
		if ((c->csts & NV_CSTS_SHST) == NV_CSTS_SHST_DONE)
			nt_losses_end(c);
		c->csts &= ~(NV_CSTS_RDY | NV_CSTS_CFS | NV_CSTS_SHST);
	}
	if ((cc & NV_CC_SHN) && !(before & NV_CC_SHN))
		shut_down(c);
	if (!(cc & NV_CC_SHN) && (before & NV_CC_SHN) && !c->flushes)
		c->csts &= ~NV_CSTS_SHST;
}
