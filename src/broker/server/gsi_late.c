// gsi_late.c - keeps requests until their service listens, and MADs until their program is back from an earlier broker
// follows: IBA volume 1, section 12.6.7.2 (REJ, reason 8). deviates: a port whose listener is about to listen rejects late
// SPDX-License-Identifier: MIT
#include <string.h>
#include <unistd.h>

#include "broker/server/gsi.h"
#include "broker/server/session.h"

/* A program that replaces its listener, or binds and then listens, needs a broker's turn for each step. So a request
 * waits PATIENCE_MS if the port is bound, or if its listener was closed less than CLOSED_MS ago. */
#define CLOSED_MS 3000
#define PATIENCE_MS 1500
/* Until the requester repeats its message: librdmacm does so after 4.8 s. */
#define RETURN_PATIENCE_MS 4500

/* Reuses the entry of the same port. Else, if the user has as many as he may have, the one of his that expires first.
 * Else the one that expires first. */
static struct vb_gsi_closed *closed_slot(struct vb_gsi_late *l, uid_t uid, uint16_t port, int64_t now)
{
	struct vb_gsi_closed *first = &l->closed[0], *his = NULL;
	uint32_t n = 0;

	for (struct vb_gsi_closed *c = l->closed; c < l->closed + VB_GSI_CLOSED; c++) {
		if (c->until < first->until)
			first = c;
		if (c->until <= now || c->uid != uid)
			continue;
		if (c->port == port)
			return c;
		if (!his || c->until < his->until)
			his = c;
		n++;
	}
	return n >= VB_GSI_CLOSED_USER ? his : first;
}

void vb_gsi_late_closed(struct vb_broker *b, uid_t uid, uint16_t port)
{
	int64_t now = vb_broker_now_ms();

	*closed_slot(&b->gsi->late, uid, port, now) =
	        (struct vb_gsi_closed){.until = now + CLOSED_MS, .port = port, .uid = uid};
}

/* In any port space: a program may meet its peer by a connection and go on with datagrams at the same port. */
static const struct vb_gsi_closed *closed_lately(const struct vb_gsi_late *l, uint16_t port, int64_t now)
{
	for (int i = 0; i < VB_GSI_CLOSED; i++)
		if (l->closed[i].until > now && l->closed[i].port == port)
			return &l->closed[i];
	return NULL;
}

/* Sets how long the request may wait, 0: not at all, and which user it counts against. */
static void set_patience(const struct vb_broker *b, struct vb_gsi_held *h, int64_t now, int64_t *ms)
{
	const struct vb_gsi_closed *closed = closed_lately(&b->gsi->late, h->port, now);
	const struct vb_binding *bound = vb_service_bound(&b->gsi->services, h->port_space, h->port);

	*ms = vb_gsi_some_are_missing(b) ? RETURN_PATIENCE_MS : closed || bound ? PATIENCE_MS : 0;
	if (!closed && !bound)
		return;
	h->charged = true;
	h->payer = bound ? bound->uid : closed->uid;
}

/* A request from this host counts against its sender: nobody uses up another user's places. */
static void charge_sender(struct vb_gsi_held *h)
{
	if (h->msg.ifindex)
		return;
	h->charged = true;
	h->payer = h->scope.uid;
}

static bool has_late_slot(const struct vb_gsi_late *l, const struct vb_gsi_held *h)
{
	uid_t us = geteuid();
	uint32_t his = 0, all = 0;

	if (!h->charged || h->payer == us)
		return true;
	for (uint32_t i = 0; i < l->n; i++) {
		all += l->held[i].charged && l->held[i].payer != us;
		his += l->held[i].charged && l->held[i].payer == h->payer;
	}
	return his < VB_GSI_LATE_USER && all < VB_GSI_LATE - VB_GSI_LATE / 8;
}

static uint32_t held_for(const struct vb_gsi_late *l, uint16_t port_space, uint16_t port)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->n; i++)
		n += !l->held[i].lane && l->held[i].port == port && l->held[i].port_space == port_space;
	return n;
}

bool vb_gsi_late_keep(struct vb_broker *b, uint16_t port_space, uint16_t port, const struct vb_msg_cm_mad *m,
                      const struct vb_gsi_scope *scope)
{
	struct vb_gsi_held h = {.port_space = port_space, .port = port, .scope = *scope, .msg = *m};
	struct vb_gsi_late *l = &b->gsi->late;
	int64_t now = vb_broker_now_ms(), ms;

	set_patience(b, &h, now, &ms);
	charge_sender(&h);
	if (l->n == VB_GSI_LATE || !ms || held_for(l, port_space, port) >= VB_GSI_LATE_EACH || !has_late_slot(l, &h))
		return false;
	h.until = now + ms;
	l->held[l->n++] = h;
	return true;
}

void vb_gsi_late_keep_for(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m,
                          const struct vb_gsi_scope *scope)
{
	struct vb_gsi_held h = {
	        .until = vb_broker_now_ms() + RETURN_PATIENCE_MS, .lane = lane, .scope = *scope, .msg = *m};
	struct vb_gsi_late *l = &b->gsi->late;

	charge_sender(&h);
	/* the other half is for requests; a DREQ that is dropped here is repeated */
	if (l->n >= VB_GSI_LATE / 2 || !has_late_slot(l, &h))
		b->gsi->counters.absent++;
	else
		l->held[l->n++] = h;
}

static struct vb_gsi_held late_take(struct vb_gsi_late *l, uint32_t i)
{
	struct vb_gsi_held held = l->held[i];

	memmove(&l->held[i], &l->held[i + 1], (--l->n - i) * sizeof(l->held[0]));
	return held;
}

void vb_gsi_late_listening(struct vb_broker *b, uint16_t port_space, uint16_t port)
{
	struct vb_gsi_late *l = &b->gsi->late;

	for (uint32_t i = 0; i < l->n;) {
		if (l->held[i].lane || l->held[i].port != port || l->held[i].port_space != port_space ||
		    !vb_gsi_to_service(b, port_space, port, &l->held[i].msg, &l->held[i].scope))
			i++;
		else
			late_take(l, i);
	}
}

void vb_gsi_late_returned(struct vb_broker *b, uint32_t lane)
{
	struct vb_gsi_late *l = &b->gsi->late;

	for (uint32_t i = 0; i < l->n;) {
		if (l->held[i].lane != lane) {
			i++;
			continue;
		}
		struct vb_gsi_held held = late_take(l, i);

		vb_gsi_to_member(b, lane, &held.msg, &held.scope);
	}
}

static void late_expire(struct vb_broker *b, const struct vb_gsi_held *held)
{
	if (held->lane)
		b->gsi->counters.absent++;
	else
		vb_gsi_refuse(b, &held->msg, &held->scope);
}

int64_t vb_gsi_late_due(struct vb_broker *b, int64_t now)
{
	struct vb_gsi_late *l = &b->gsi->late;
	int64_t when = 0;

	for (uint32_t i = 0; i < l->n;) {
		if (l->held[i].until <= now) {
			struct vb_gsi_held held = late_take(l, i);

			late_expire(b, &held);
			continue;
		}
		if (!when || l->held[i].until < when)
			when = l->held[i].until;
		i++;
	}
	return when;
}
