// rbd_reserve.c - the reservation that the gateways of an image share: its changes, on the loop's side
// follows: docs/ceph.md; backend/gateway.h
// SPDX-License-Identifier: MIT
#include "backend/rbd.h"

static void send_next_change(struct nb_rbd *d)
{
	if (d->change_sent || !d->changes)
		return;
	d->change_sent = true;
	nb_rbd_gateway_change(d->gateway, d->changes->data);
}

/* Takes the first out of the queue. */
static struct nb_request *take_change(struct nb_rbd *d)
{
	struct nb_request *r = d->changes;

	d->changes = r->next;
	if (d->change_sent)
		nb_rbd_gateway_forget(d->gateway);
	d->change_sent = false;
	return r;
}

void nb_rbd_change(struct nb_rbd *d, struct nb_request *r, uint64_t due)
{
	struct nb_request **at = &d->changes;

	if (!d->gateway) {
		r->done(r, ENOTSUP);
		return;
	}
	while (*at)
		at = &(*at)->next;
	r->moved = due;
	r->next = NULL;
	*at = r;
	send_next_change(d);
}

void nb_rbd_change_answered(struct nb_rbd *d, enum nr_result result)
{
	if (!d->change_sent)
		return;
	struct nb_request *r = take_change(d);

	((struct nr_change *)r->data)->result = result;
	send_next_change(d);
	r->done(r, 0);
}

/* The host is told to try again. A change that the cluster does not have then is not made later, but for one case: a
 * write of the state that is on its way is executed, unless another gateway has written the state meanwhile. */
uint64_t nb_rbd_changes_turn(struct nb_rbd *d, uint64_t now)
{
	struct nb_request *late = NULL, **end = &late;

	while (d->changes && d->changes->moved <= now) {
		*end = take_change(d);
		end = &(*end)->next;
		*end = NULL;
		d->b.late++;
	}
	send_next_change(d);
	for (struct nb_request *r; (r = late);) {
		late = r->next;
		r->done(r, NB_LATE);
	}
	return d->changes ? d->changes->moved : UINT64_MAX;
}

void nb_rbd_changes_end(struct nb_rbd *d)
{
	while (d->changes) {
		struct nb_request *r = take_change(d);

		r->done(r, NB_FENCED);
	}
}

/* A request that was answered late may still be at librbd, admitted by an older reservation. */
void nb_rbd_late_ended(struct nb_rbd *d)
{
	if (!d->gateway || d->late_bytes || d->told == d->enforced)
		return;
	d->told = d->enforced;
	nb_rbd_gateway_enforces(d->gateway, d->told);
}

void nb_rbd_reserved(struct nb_backend *b, uint64_t version)
{
	struct nb_rbd *d = (struct nb_rbd *)b;

	d->enforced = version;
	nb_rbd_late_ended(d);
}

void nb_rbd_announce(struct nb_backend *b, const struct nb_port *ports, uint32_t count)
{
	struct nb_rbd *d = (struct nb_rbd *)b;

	if (d->gateway)
		nb_rbd_gateway_announce(d->gateway, ports, count);
}
