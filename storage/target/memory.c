// memory.c - gives requests memory of the pool: each peer has a share, and those that wait are served by turns
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/core.h"

/* These parts of the memory are for the data of capsules whose commands wait for a limit: of all hosts, and of one. */
#define PARKED 8u
#define PARKED_OF_ONE 32u

static uint32_t room_for(const struct nt_request *r)
{
	return nt_pool_room(r->length) * (r->info->two_buffers ? 2 : 1);
}

/*
 * True for requests that get memory from the reserve. Data in a capsule stops all reading of its connection until it
 * has a buffer, and the commands that would free memory may be behind it. The second of two fused commands is what the
 * first one waits for.
 */
static bool is_urgent(const struct nt_request *r)
{
	return r->in_capsule || (r->sqe.fuse == NV_FUSE_SECOND && r->queue->qid);
}

bool nt_memory_over(const struct nt_request *r)
{
	const struct nt_peer *p = r->queue->owner;

	return !is_urgent(r) && p->memory && p->memory + room_for(r) > r->queue->target->share;
}

static void charge_memory(struct nt_request *r, uint32_t room)
{
	r->queue->owner->memory += room;
	if (r->queue->ctrl)
		r->queue->ctrl->memory += room;
}

bool nt_memory_take(struct nt_request *r)
{
	struct nt_target *t = r->queue->target;
	struct nt_pool *p = t->pool;

	if (!is_urgent(r) && nt_pool_used(p) + room_for(r) > t->memory - t->memory / 4)
		return false;
	r->data = nt_pool_get(p, r->length);
	if (r->data && r->info->two_buffers && !(r->other = nt_pool_get(p, r->length))) {
		nt_pool_put(p, r->data, r->length);
		r->data = NULL;
	}
	if (!r->data)
		return false;
	r->room = r->length;
	charge_memory(r, room_for(r));
	return true;
}

static struct nt_line *line_of(struct nt_request *r)
{
	return is_urgent(r) ? &r->queue->target->urgent : &r->queue->owner->line;
}

/* Queues a request for memory. A peer without waiting requests is appended to the waiting peers. */
void nt_memory_wait(struct nt_request *r)
{
	struct nt_line *l = line_of(r);
	struct nt_target *t = r->queue->target;
	struct nt_peer *p = r->queue->owner;

	if (!l->first && l == &p->line) {
		p->line_next = NULL;
		p->line_back = t->in_line_end;
		*t->in_line_end = p;
		t->in_line_end = &p->line_next;
	}
	r->state = NT_MEMORY;
	r->next = NULL;
	r->back = l->end;
	*l->end = r;
	l->end = &r->next;
}

void nt_memory_unwait(struct nt_request *r)
{
	struct nt_line *l = line_of(r);
	struct nt_target *t = r->queue->target;
	struct nt_peer *p = r->queue->owner;

	*r->back = r->next;
	if (r->next)
		r->next->back = r->back;
	else
		l->end = r->back;
	if (l->first || l != &p->line)
		return;
	*p->line_back = p->line_next;
	if (p->line_next)
		p->line_next->line_back = p->line_back;
	else
		t->in_line_end = p->line_back;
}

/* Moves a peer to the end of the waiting peers if it still has waiting requests. */
static void next_peer(struct nt_target *t, struct nt_peer *p)
{
	if (!p->line.first || !p->line_next)
		return;
	*p->line_back = p->line_next;
	p->line_next->line_back = p->line_back;
	p->line_next = NULL;
	p->line_back = t->in_line_end;
	*t->in_line_end = p;
	t->in_line_end = &p->line_next;
}

/* Gives memory to the next request and returns it: urgent requests first, then those of the peers in turn. A peer that
 * has used its share is skipped. If a request waits for the pool, only urgent ones may pass it. */
static struct nt_request *next_served(struct nt_target *t)
{
	struct nt_request *r = t->urgent.first;

	if (r) {
		if (!nt_memory_take(r))
			return NULL;
		nt_memory_unwait(r);
		return r;
	}
	struct nt_peer *p = t->in_line;

	while (p && nt_memory_over(p->line.first))
		p = p->line_next;
	r = p && nt_memory_take(p->line.first) ? p->line.first : NULL;
	if (r) {
		nt_memory_unwait(r);
		next_peer(t, p);
	}
	return r;
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
		if (l->memory[i].at)
			nt_pool_put(t->pool, l->memory[i].at, l->memory[i].length);
	nt_memory_serve(t);
}

static void add_late(struct nb_late *l, void *at, uint32_t length)
{
	size_t i = 0;

	while (l->memory[i].at)
		i++;
	l->memory[i].at = at;
	l->memory[i].length = length;
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

void nt_queue_recount(struct nt_queue *q, struct nt_peer *to)
{
	struct nt_peer *from = q->owner;

	for (uint32_t i = 0; i <= (q->requests ? q->entries : 0u); i++) {
		struct nt_request *r = i ? &q->requests[i - 1] : &q->first;
		uint32_t room = r->room && r->state != NT_FREE ? nt_pool_room(r->room) * (r->other ? 2 : 1) : 0;
		bool waits = r->state == NT_MEMORY;

		if (waits)
			nt_memory_unwait(r);
		from->memory -= room;
		to->memory += room;
		q->owner = to;
		if (waits)
			nt_memory_wait(r);
		q->owner = from;
	}
}

bool nt_memory_park(struct nt_request *r)
{
	struct nt_target *t = r->queue->target;
	struct nt_account *a = r->queue->ctrl->account;
	uint32_t room = room_for(r);

	if (t->parked + room > t->memory / PARKED || a->parked + room > t->memory / PARKED_OF_ONE || t->urgent.first ||
	    t->in_line || nt_pool_used(t->pool) + room > t->memory - t->memory / 4 || !nt_memory_take(r))
		return false;
	t->parked += room;
	a->parked += room;
	r->parked = true;
	r->state = NT_FETCH;
	r->queue->ops->fetch(r);
	return true;
}
