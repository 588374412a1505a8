// rule.c - whether a rule of fault injection acts on a packet, a request or a call
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include "fault/rule.h"

#include <string.h>

#define SECOND 1000000000ull

/* xorshift64*: one generator for each rule, so that the hits of a rule depend on its own subjects alone */
uint32_t vb_fault_draw(struct vb_fault_rule *r)
{
	r->random ^= r->random >> 12;
	r->random ^= r->random << 25;
	r->random ^= r->random >> 27;
	return (uint32_t)(r->random * 0x2545f4914f6cdd1dull >> 32);
}

void vb_fault_begin(struct vb_fault_rule *r, unsigned id, uint64_t now, uint64_t seed)
{
	r->id = id;
	r->start = now;
	r->seen = r->hits = r->free_at = 0;
	memset(r->recent, 0, sizeof(r->recent));
	if (!r->has_seed)
		r->seed = seed;
	r->random = r->seed * 0x9e3779b97f4a7c15ull;
	if (!r->random) /* the one state that the generator cannot leave */
		r->random = 0x9e3779b97f4a7c15ull;
}

enum vb_fault_class vb_fault_class_of(const struct vb_fault_rule *r)
{
	return vb_fault_class_named(r->action);
}

bool vb_fault_in_force(const struct vb_fault_rule *r, uint64_t now)
{
	uint64_t age = now > r->start ? now - r->start : 0;

	return age >= r->after && (r->lasts == VB_FAULT_ALWAYS || age - r->after < r->lasts) && r->hits < r->count;
}

static bool rule_matches(const struct vb_fault_rule *r, const struct vb_fault_subject *s)
{
	if (s->path && !(r->paths & s->path))
		return false;
	if (s->dir && !(r->dirs & s->dir))
		return false;
	/* a receive must be named: a rule without op= is for what the program sends */
	if ((r->kinds || s->kind == VB_FAULT_KIND_RECV) && !(r->kinds >> s->kind & 1))
		return false;
	if (r->opcode >= 0 && r->opcode != s->opcode)
		return false;
	if (r->qpn >= 0 && r->qpn != s->qpn)
		return false;
	if (r->has_peer && (!s->peer || memcmp(r->peer, s->peer, sizeof(r->peer)) != 0))
		return false;
	return !r->device[0] || (s->device && !strcmp(r->device, s->device));
}

static bool is_chosen(struct vb_fault_rule *r)
{
	if (r->nth)
		return r->seen == r->nth;
	if (r->every)
		return r->seen % r->every == 0;
	if (r->p >= 0)
		return vb_fault_draw(r) < r->p * 4294967296.0;
	return true;
}

bool vb_fault_hits(struct vb_fault_rule *r, const struct vb_fault_subject *s, uint64_t now)
{
	if (!vb_fault_in_force(r, now) || !rule_matches(r, s))
		return false;
	r->seen++;
	if (!is_chosen(r))
		return false;
	r->recent[r->hits++ % VB_FAULT_RECENT] = r->seen;
	return true;
}

uint64_t vb_fault_pace(struct vb_fault_rule *r, uint32_t len, uint64_t now)
{
	uint64_t start = r->free_at > now ? r->free_at : now;

	r->free_at = start + (uint64_t)((double)len * 8 * SECOND / (double)r->value);
	return start - now;
}
