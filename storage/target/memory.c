// memory.c - gives requests memory of the pool: each peer has a share, and those that wait are served by turns
// see: target/slow.c (requests to namespaces whose media complete nothing)
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/core.h"

/* These parts of the memory are for the data of capsules whose commands wait for a limit: of all hosts, and of one. */
#define PARKED 8u
#define PARKED_OF_ONE 32u

/* Parts of the memory, in sixteenths: what requests leave free for those that are more urgent. */
#define PARTS 16u
#define FOR_CAPSULES 4u /* … those that fetch their data leave */
#define FOR_SECONDS 3u  /* … those with their data in the capsule leave for the second of fused commands */
#define FOR_USUAL 1u    /* … all leave while slow namespaces have more than their half */

static uint32_t room_for(const struct nt_request *r)
{
	return nt_pool_room(r->length) * (r->info->two_buffers ? 2 : 1);
}

/* What the first of the pair waits for. */
static bool completes_pair(const struct nt_request *r)
{
	return r->sqe.fuse == NV_FUSE_SECOND && r->queue->qid;
}

/*
 * True for requests that get memory from the reserve. Data in a capsule stops all reading of its connection until it
 * has a buffer, and the commands that would free memory may be behind it. Where the medium completes nothing, it has to
 * wait all the same.
 */
static bool is_urgent(const struct nt_request *r)
{
	return r->pace == NT_USUAL && (r->in_capsule || completes_pair(r));
}

uint32_t nt_memory_of_slow(const struct nt_target *t)
{
	return t->memory / 2;
}

/* The pool may be used up to there. Before a namespace is found to be slow, its requests may have taken more than half:
 * then the others have most of the reserve. */
static uint32_t limit_of(const struct nt_request *r)
{
	const struct nt_target *t = r->queue->target;
	bool much = t->slow_memory > nt_memory_of_slow(t);
	uint32_t left = !is_urgent(r)       ? (much && r->pace == NT_USUAL ? FOR_USUAL : FOR_CAPSULES)
	                : completes_pair(r) ? 0
	                : much              ? 0
	                                    : FOR_SECONDS;

	return t->memory - t->memory / PARTS * left;
}

/* Its peer has used its share, which lets a single request through in any case. */
static bool share_is_used(const struct nt_request *r)
{
	const struct nt_target *t = r->queue->target;
	uint32_t has = r->queue->owner->memory[r->pace], share = r->pace == NT_SLOW ? t->slow_part : t->share;

	return !is_urgent(r) && has && has + room_for(r) > share;
}

static void charge_memory(struct nt_request *r, uint32_t room)
{
	r->queue->owner->memory[r->pace] += room;
	if (r->pace == NT_SLOW)
		r->queue->target->slow_memory += room;
	if (r->queue->ctrl)
		r->queue->ctrl->memory += room;
}

static bool take_memory(struct nt_request *r)
{
	struct nt_target *t = r->queue->target;
	struct nt_pool *p = t->pool;
	uint32_t room = room_for(r);

	if (nt_pool_used(p) + room > limit_of(r) ||
	    (r->pace == NT_SLOW && t->slow_memory + room > nt_memory_of_slow(t)))
		return false;
	r->data = nt_pool_get(p, r->length);
	if (r->data && r->info->two_buffers && !(r->other = nt_pool_get(p, r->length))) {
		nt_pool_put(p, r->data, r->length);
		r->data = NULL;
	}
	if (!r->data)
		return false;
	r->room = r->length;
	charge_memory(r, room);
	return true;
}

static struct nt_line *line_of(struct nt_request *r)
{
	return is_urgent(r) ? &r->queue->target->urgent : &r->queue->owner->lines[r->pace].line;
}

static void append_peer(struct nt_target *t, struct nt_peer *p, enum nt_pace pace)
{
	struct nt_peer_line *l = &p->lines[pace];

	l->next = NULL;
	l->back = t->in_line_end[pace];
	*l->back = p;
	t->in_line_end[pace] = &l->next;
}

static void remove_peer(struct nt_target *t, struct nt_peer *p, enum nt_pace pace)
{
	struct nt_peer_line *l = &p->lines[pace];

	*l->back = l->next;
	if (l->next)
		l->next->lines[pace].back = l->back;
	else
		t->in_line_end[pace] = l->back;
}

/* Queues a request for memory. A peer without waiting requests is appended to the waiting peers. */
static void wait_for_memory(struct nt_request *r)
{
	struct nt_line *l = line_of(r);
	struct nt_target *t = r->queue->target;
	struct nt_peer *p = r->queue->owner;

	if (!l->first && l == &p->lines[r->pace].line)
		append_peer(t, p, r->pace);
	if (r->pace == NT_SLOW && !r->io.since)
		r->io.since = t->now; /* the host waits for the medium from now on */
	r->state = NT_MEMORY;
	r->next = NULL;
	r->back = l->end;
	*l->end = r;
	l->end = &r->next;
}

void nt_memory_unwait(struct nt_request *r)
{
	struct nt_line *l = line_of(r);
	struct nt_peer *p = r->queue->owner;

	*r->back = r->next;
	if (r->next)
		r->next->back = r->back;
	else
		l->end = r->back;
	if (!l->first && l == &p->lines[r->pace].line)
		remove_peer(r->queue->target, p, r->pace);
}

/* True if others wait before it. To a slow namespace only those of its own peer do. */
static bool is_behind(const struct nt_request *r)
{
	const struct nt_target *t = r->queue->target;

	if (r->pace == NT_SLOW)
		return r->queue->owner->lines[NT_SLOW].line.first;
	return t->urgent.first || t->in_line[NT_USUAL];
}

static enum nt_pace pace_of(const struct nt_request *r)
{
	return r->queue->qid && r->ns && r->ns->slow ? NT_SLOW : NT_USUAL;
}

bool nt_memory_get(struct nt_request *r)
{
	r->pace = pace_of(r);
	if (!is_behind(r) && !share_is_used(r) && take_memory(r))
		return true;
	wait_for_memory(r);
	nt_memory_serve(r->queue->target);
	return false;
}

/* Moves a peer to the end of the waiting peers if it still has waiting requests. */
static void next_peer(struct nt_target *t, struct nt_peer *p, enum nt_pace pace)
{
	if (!p->lines[pace].line.first)
		return;
	remove_peer(t, p, pace);
	append_peer(t, p, pace);
}

/* A peer that has used its share is skipped. */
static struct nt_request *next_of_peers(struct nt_target *t, enum nt_pace pace)
{
	struct nt_peer *p = t->in_line[pace];

	while (p && share_is_used(p->lines[pace].line.first))
		p = p->lines[pace].next;
	struct nt_request *r = p && take_memory(p->lines[pace].line.first) ? p->lines[pace].line.first : NULL;

	if (r) {
		nt_memory_unwait(r);
		next_peer(t, p, pace);
	}
	return r;
}

/* Gives memory to the next request and returns it: urgent requests first, then those of the peers in turn. If a request
 * waits for the pool, only urgent ones may pass it, and those to slow namespaces, which have a part of their own. */
static struct nt_request *next_served(struct nt_target *t)
{
	struct nt_request *r = t->urgent.first;

	if (r) {
		if (!take_memory(r))
			return NULL;
		nt_memory_unwait(r);
		return r;
	}
	r = next_of_peers(t, NT_USUAL);
	return r ? r : next_of_peers(t, NT_SLOW);
}

void nt_memory_serve(struct nt_target *t)
{
	if (t->serving)
		return;
	t->serving = true;
	for (struct nt_request *r; (r = next_served(t));)
		nt_start(r);
	t->serving = false;
}

/* The buffers of a request are no longer its own. They count for nobody. */
static void uncharge(struct nt_request *r)
{
	uint32_t room = nt_pool_room(r->room) * (r->other ? 2 : 1);

	charge_memory(r, -room);
	if (r->parked) {
		r->queue->target->parked -= room;
		r->queue->ctrl->account->parked -= room;
		r->parked = false;
	}
	r->room = 0;
	r->data = r->other = NULL;
}

void nt_memory_give(struct nt_request *r)
{
	struct nt_target *t = r->queue->target;

	if (!r->room)
		return;
	nt_pool_put(t->pool, r->data, r->room);
	if (r->other)
		nt_pool_put(t->pool, r->other, r->room);
	uncharge(r);
	nt_memory_serve(t);
}

static void free_late(struct nb_late *l)
{
	struct nt_target *t = l->owner;

	for (size_t i = 0; i < sizeof(l->memory) / sizeof(*l->memory); i++)
		if (l->memory[i].at) {
			nt_pool_put(t->pool, l->memory[i].at, l->memory[i].length);
			t->slow_memory -= nt_pool_room(l->memory[i].length);
		}
	nt_memory_serve(t);
}

static void add_late(struct nb_late *l, void *at, uint32_t length)
{
	struct nt_target *t = l->owner;
	size_t i = 0;

	while (l->memory[i].at)
		i++;
	l->memory[i].at = at;
	l->memory[i].length = length;
	t->slow_memory += nt_pool_room(length);
}

void nt_memory_leave(struct nt_request *r, struct nb_late *l)
{
	if (!r->room)
		return;
	l->owner = r->queue->target;
	l->free = free_late;
	add_late(l, r->data, r->room);
	if (r->other)
		add_late(l, r->other, r->room);
	uncharge(r);
	nt_memory_serve(r->queue->target); /* its peer has more of its share again */
}

/* Of a request that is not free. */
static uint32_t room_of(const struct nt_request *r)
{
	return r->room ? nt_pool_room(r->room) * (r->other ? 2 : 1) : 0;
}

void nt_memory_pace(struct nt_request *r, enum nt_pace pace)
{
	uint32_t room = room_of(r);

	if (r->pace == pace)
		return;
	if (r->state == NT_MEMORY) {
		nt_memory_unwait(r);
		r->pace = (uint8_t)pace;
		wait_for_memory(r);
		return;
	}
	charge_memory(r, -room);
	r->pace = (uint8_t)pace;
	charge_memory(r, room);
}

void nt_queue_recount(struct nt_queue *q, struct nt_peer *to)
{
	struct nt_peer *from = q->owner;

	for (uint32_t i = 0; i <= (q->requests ? q->entries : 0u); i++) {
		struct nt_request *r = i ? &q->requests[i - 1] : &q->first;
		uint32_t room = r->state != NT_FREE ? room_of(r) : 0;
		bool waits = r->state == NT_MEMORY;

		if (waits)
			nt_memory_unwait(r);
		from->memory[r->pace] -= room;
		to->memory[r->pace] += room;
		q->owner = to;
		if (waits)
			wait_for_memory(r);
		q->owner = from;
	}
}

bool nt_memory_park(struct nt_request *r)
{
	struct nt_target *t = r->queue->target;
	struct nt_account *a = r->queue->ctrl->account;
	uint32_t room = room_for(r);

	r->pace = pace_of(r);
	if (t->parked + room > t->memory / PARKED || a->parked + room > t->memory / PARKED_OF_ONE || is_behind(r) ||
	    nt_pool_used(t->pool) + room > t->memory - t->memory / PARTS * FOR_CAPSULES || !take_memory(r))
		return false;
	t->parked += room;
	a->parked += room;
	r->parked = true;
	r->state = NT_FETCH;
	r->queue->ops->fetch(r);
	return true;
}
