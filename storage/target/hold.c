// hold.c - takes the place of a medium that other machines share while it is opened in another way
// see: docs/storage.md
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/server.h"

/* Its requests wait for the new medium, in order. If other gateways serve the medium, they may change the reservation
 * meanwhile: then no request waits, and hosts are told to try again. */
struct held {
	struct nb_backend b;
	const struct nt_server *server;
	struct nb_clock clock;
	struct nb_request *first, **end;
	struct nr_state reservations;
	struct nb_port others[]; /* the discovery log has them meanwhile */
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
	if (!r->since) /* it has one limit for both media */
		r->since = nt_now();
	r->moved = r->since + h->b.wait_ms;
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
	const struct nt_namespace *ns = h->b.owner;
	bool vain = ns->removed || h->server->stop; /* no other medium comes */
	struct nb_request *late = NULL, **end = &late;

	while (h->first && (vain || h->first->moved <= now)) {
		*end = first_request(h);
		end = &(*end)->next;
		*end = NULL;
		h->b.late++;
	}
	uint64_t next = late ? now : h->first ? h->first->moved : UINT64_MAX;

	for (struct nb_request *r; (r = late);) { /* the last one of a removed namespace frees h */
		late = r->next;
		r->done(r, NB_LATE);
	}
	return next;
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
	nb_ring_unclock(h->server->ring, &h->clock);
	free(b->identity);
	free(h);
}

static const struct nb_kind kind = {.name = "rbd", .submit = held_submit, .close = held_close};

bool nt_is_held(const struct nt_namespace *ns)
{
	return ns->backend->kind == &kind;
}

bool nt_hold_medium(struct nt_server *sv, struct nt_namespace *ns, uint32_t wait_ms)
{
	const struct nb_backend *old = ns->backend;
	struct held *h = calloc(1, sizeof(*h) + old->other_count * sizeof(*h->others));
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
	                           .wait_ms = wait_ms ? wait_ms : NB_WAIT_MS,
	                           .late = old->late};
	if (old->reservations) {
		h->reservations = *old->reservations;
		h->b.reservations = &h->reservations;
	}
	if (old->other_count)
		memcpy(h->others, old->others, old->other_count * sizeof(*h->others));
	h->b.others = h->others;
	h->b.other_count = old->other_count;
	h->end = &h->first;
	h->server = sv;
	h->clock.turn = held_turn;
	nb_ring_clock(sv->ring, &h->clock);
	nt_namespace_replace(ns, &h->b);
	return true;
}
