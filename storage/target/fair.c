// fair.c - a queue that serves those who wait in it by turns: deficit round robin
// follows: Shreedhar, Varghese, Efficient Fair Queuing Using Deficit Round Robin (1995)
// SPDX-License-Identifier: MIT
#include "target/fair.h"

#include <stddef.h>

static struct nt_place **flow_bucket(const struct nt_fair *f, const void *host)
{
	uint64_t h = ((uintptr_t)f ^ (uintptr_t)host * 31) * 0x9e3779b97f4a7c15u;

	return &f->flows->buckets[(h >> 32) % NT_FLOW_BUCKETS];
}

static struct nt_place **find_flow(const struct nt_fair *f, const void *host)
{
	struct nt_place **at = flow_bucket(f, host);

	while (*at && ((*at)->in != f || (*at)->host != host))
		at = &(*at)->chain;
	return at;
}

static void begin_turn(struct nt_fair *f, struct nt_place *p)
{
	f->turn = p;
	p->credit += (int64_t)NT_QUANTUM * p->weight;
}

/* A host that comes back is served after all others. */
static void new_flow(struct nt_fair *f, struct nt_place *p, struct nt_place **at)
{
	p->chain = NULL;
	*at = p;
	p->last = p;
	p->credit = 0;
	if (!f->turn) {
		p->left = p->right = p;
		begin_turn(f, p);
		return;
	}
	p->right = f->turn;
	p->left = f->turn->left;
	p->left->right = p;
	p->right->left = p;
}

void nt_fair_enter(struct nt_fair *f, struct nt_place *p, const void *host, uint32_t weight, uint64_t bytes)
{
	struct nt_place **at = find_flow(f, host), *first = *at;

	p->in = f;
	p->host = host;
	p->weight = weight ? weight : 1;
	p->cost = NT_COST + (uint32_t)(bytes < NT_COST_MAX ? bytes : NT_COST_MAX);
	p->next = NULL;
	f->count++;
	if (!first) {
		p->prev = NULL;
		new_flow(f, p, at);
		return;
	}
	p->prev = first->last;
	first->last->next = p;
	first->last = p;
}

struct nt_place *nt_fair_next(struct nt_fair *f)
{
	while (f->turn && f->turn->credit < f->turn->cost)
		begin_turn(f, f->turn->right);
	return f->turn;
}

/* The host has nothing that waits any more, and its credit ends. */
static void end_flow(struct nt_fair *f, struct nt_place *p)
{
	*find_flow(f, p->host) = p->chain;
	if (p->right == p) {
		f->turn = NULL;
		return;
	}
	p->left->right = p->right;
	p->right->left = p->left;
	if (f->turn == p)
		begin_turn(f, p->right);
}

/* The next one of the host takes the place of the first. */
static void pass_place_on(struct nt_fair *f, struct nt_place *p)
{
	struct nt_place *n = p->next;

	*find_flow(f, p->host) = n;
	n->chain = p->chain;
	n->last = p->last;
	n->credit = p->credit;
	n->prev = NULL;
	n->right = p->right == p ? n : p->right;
	n->left = p->left == p ? n : p->left;
	n->right->left = n;
	n->left->right = n;
	if (f->turn == p)
		f->turn = n;
}

void nt_fair_leave(struct nt_place *p)
{
	struct nt_fair *f = p->in;

	if (p->prev) {
		struct nt_place *first = *find_flow(f, p->host);

		p->prev->next = p->next;
		if (p->next)
			p->next->prev = p->prev;
		else
			first->last = p->prev;
	} else if (p->next) {
		pass_place_on(f, p);
	} else {
		end_flow(f, p);
	}
	f->count--;
	p->in = NULL;
}

void nt_fair_serve(struct nt_place *p)
{
	p->credit -= p->cost;
	nt_fair_leave(p);
}
