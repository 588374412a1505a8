// qp1_late.c - requests that come before a program listens that has bound the port, or closes its listener to make the next
// one; and what comes before programs have come back from the broker before us
// follows: IBA volume 1, 12.6.7.2 (REJ, code 8); deviates: such a port refuses a little later
// SPDX-License-Identifier: MIT
#include <string.h>

#include "broker/qp1.h"
#include "broker/session.h"

/* To bind and to listen is a system call each with a kernel, and a broker's turn each with us. */
#define CLOSED_MS 3000
#define PATIENCE_MS 1500
/* Until who has asked repeats it: librdmacm after 4.8 s. */
#define RETURN_PATIENCE_MS 4500

void vb_gsi_late_closed(struct vb_broker *b, uint16_t port)
{
	struct vb_gsi_late *l = &b->gsi->late;

	l->closed[l->next_closed++ % VB_GSI_CLOSED] =
		(struct vb_gsi_closed){.until = vb_broker_now_ms() + CLOSED_MS, .port = port};
}

/* Whatever its port space: a program meets its peer by a connection, and goes on with datagrams at the same port. */
static bool was_closed_now(const struct vb_gsi_late *l, uint16_t port, int64_t now)
{
	for (int i = 0; i < VB_GSI_CLOSED; i++)
		if (l->closed[i].until > now && l->closed[i].port == port)
			return true;
	return false;
}

/* 0: it may not wait. */
static int64_t patience(const struct vb_broker *b, uint16_t port_space, uint16_t port, int64_t now)
{
	if (vb_gsi_some_are_missing(b))
		return RETURN_PATIENCE_MS;
	if (was_closed_now(&b->gsi->late, port, now) || vb_service_bound(&b->gsi->services, port_space, port))
		return PATIENCE_MS;
	return 0;
}

bool vb_gsi_late_keep(struct vb_broker *b, uint16_t port_space, uint16_t port, const struct vb_msg_cm_mad *m)
{
	struct vb_gsi_late *l = &b->gsi->late;
	int64_t now = vb_broker_now_ms(), ms = patience(b, port_space, port, now);

	if (l->n == VB_GSI_LATE || !ms)
		return false;
	l->held[l->n++] = (struct vb_gsi_held){.until = now + ms, .port_space = port_space, .port = port, .msg = *m};
	return true;
}

void vb_gsi_late_keep_for(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m)
{
	struct vb_gsi_late *l = &b->gsi->late;

	if (l->n >= VB_GSI_LATE / 2) /* the other half is for requests: who is told of a death is told again */
		b->gsi->counters.absent++;
	else
		l->held[l->n++] = (struct vb_gsi_held){
			.until = vb_broker_now_ms() + RETURN_PATIENCE_MS, .lane = lane, .msg = *m};
}

static struct vb_gsi_held take(struct vb_gsi_late *l, uint32_t i)
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
		    !vb_gsi_to_service(b, port_space, port, &l->held[i].msg))
			i++;
		else
			take(l, i);
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
		struct vb_gsi_held held = take(l, i);

		vb_gsi_to_member(b, lane, &held.msg);
	}
}

static void give_up(struct vb_broker *b, const struct vb_gsi_held *held)
{
	if (held->lane)
		b->gsi->counters.absent++;
	else
		vb_gsi_refuse(b, &held->msg);
}

int64_t vb_gsi_late_due(struct vb_broker *b, int64_t now)
{
	struct vb_gsi_late *l = &b->gsi->late;
	int64_t when = 0;

	for (uint32_t i = 0; i < l->n;) {
		if (l->held[i].until <= now) {
			struct vb_gsi_held held = take(l, i);

			give_up(b, &held);
			continue;
		}
		if (!when || l->held[i].until < when)
			when = l->held[i].until;
		i++;
	}
	return when;
}
