// hold.c - takes the place of a medium that other machines share while it is opened in another way
// see: docs/storage.md
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/server.h"

#define WAIT_MS 20000 /* as the medium, if the configuration does not say */

/* Its requests wait for the new medium, in order. Where other gateways may change the reservation meanwhile, they do not:
 * hosts are told to try again. */
struct held {
	struct nb_backend b;
	struct nb_ring *ring;
	struct nb_clock clock;
	struct nb_request *first, **end;
	struct nr_state reservations;
};

static struct held *held_of(struct nb_backend *b)
{
	return (struct held *)(void *)b;
}

static void held_submit(struct nb_backend *b, struct nb_request *r)
{
	struct held *h = held_of(b);

	if (b->access == NB_MOVING) {
		r->done(r, NB_ELSEWHERE);
		return;
	}
	r->moved = (r->since ? r->since : nt_now()) + WAIT_MS;
	r->next = NULL;
	*h->end = r;
	h->end = &r->next;
}

static struct nb_request *first_request(struct held *h)
{
	struct nb_request *r = h->first;

	h->first = r->next;
	if (!h->first)
		h->end = &h->first;
	return r;
}

static uint64_t held_turn(struct nb_clock *c, uint64_t now)
{
	struct held *h = (struct held *)(void *)((uint8_t *)c - offsetof(struct held, clock));

	while (h->first && h->first->moved <= now) {
		struct nb_request *r = first_request(h);

		h->b.late++;
		r->done(r, NB_LATE);
	}
	return h->first ? h->first->moved : UINT64_MAX;
}

static void held_close(struct nb_backend *b)
{
	struct held *h = held_of(b);

	while (h->first) {
		struct nb_request *r = first_request(h);

		if (b->successor)
			nb_submit(b->successor, r);
		else
			r->done(r, NB_FENCED);
	}
	nb_ring_unclock(h->ring, &h->clock);
	free(b->identity);
	free(h);
}

static const struct nb_kind kind = {.name = "rbd", .submit = held_submit, .close = held_close};

bool nt_is_held(const struct nt_namespace *ns)
{
	return ns->backend->kind == &kind;
}

bool nt_hold_medium(struct nt_server *sv, struct nt_namespace *ns)
{
	const struct nb_backend *old = ns->backend;
	struct held *h = calloc(1, sizeof(*h));
	char *identity = old->identity ? strdup(old->identity) : NULL;

	if (!h || (old->identity && !identity)) {
		free(h);
		free(identity);
		return false;
	}
	h->b = (struct nb_backend){.kind = &kind,
	                           .size = old->size,
	                           .block = old->block,
	                           .readonly = old->readonly,
	                           .zeros_after_discard = old->zeros_after_discard,
	                           .identity = identity,
	                           .identity_anywhere = old->identity_anywhere,
	                           .compare_write = old->compare_write,
	                           .ordered = true,
	                           .access = old->parts ? NB_MOVING : NB_HERE,
	                           .part = old->part,
	                           .parts = old->parts,
	                           .boundary = old->boundary,
	                           .wait_ms = WAIT_MS,
	                           .late = old->late};
	if (old->reservations) {
		h->reservations = *old->reservations;
		h->b.reservations = &h->reservations;
	}
	h->end = &h->first;
	h->ring = sv->ring;
	h->clock.turn = held_turn;
	nb_ring_clock(h->ring, &h->clock);
	nt_namespace_replace(ns, &h->b);
	return true;
}
