// slow.c - finds namespaces whose media complete nothing: their requests share a part of the memory, all others go on
// see: target/memory.c; docs/storage.md, "Slow namespaces"
// SPDX-License-Identifier: MIT
#include "target/core.h"

#define SLOW_MS 1000u /* without an answer */
#define LOOK_MS 250u

/* All requests to a namespace. A queue that is closing is still its controller's. */
static void set_pace(struct nt_namespace *ns, enum nt_pace pace)
{
	for (const struct nt_controller *c = ns->subsystem->controllers; c; c = c->next)
		for (uint32_t i = 1; i <= NT_QUEUES_MAX; i++) {
			struct nt_queue *q = c->queues[i];

			for (uint32_t k = 0; q && q->in_use && k < q->entries; k++) {
				struct nt_request *r = &q->requests[k];

				if (r->state != NT_FREE && r->state != NT_RESPOND && r->ns == ns && !r->aside)
					nt_memory_pace(r, pace);
			}
		}
}

/* ms: then it is slow, unless the medium answers. */
static uint64_t slow_at(const struct nt_namespace *ns)
{
	uint64_t since = ns->answered > ns->at_medium_since ? ns->answered : ns->at_medium_since;

	return ns->at_medium ? since + SLOW_MS : UINT64_MAX;
}

/* Returns when to look again. */
static uint64_t look_at_ns(struct nt_namespace *ns, uint64_t now)
{
	if (ns->answers != ns->backend->answers)
		ns->answered = now;
	ns->answers = ns->backend->answers;
	bool slow = ns->slow ? ns->answered < ns->slow_since : now >= slow_at(ns);

	if (slow && !ns->slow)
		ns->slow_since = now;
	if (slow != ns->slow) {
		ns->slow = slow;
		set_pace(ns, slow ? NT_SLOW : NT_USUAL);
	}
	return slow ? now + LOOK_MS : slow_at(ns);
}

/* Each peer that is admitted to a subsystem may have as much, whoever came first. */
static uint32_t part_of_one(const struct nt_target *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		for (const struct nt_peer *p = t->peers[i]; p; p = p->next)
			n += p->queues > p->guests + p->discovery;
	return nt_memory_of_slow(t) / (n ? n : 1);
}

static bool is_expired(const struct nt_request *r)
{
	uint32_t wait = r->ns->backend->wait_ms;

	return wait && r->queue->target->now >= r->io.since + wait;
}

static struct nt_request *first_expired(const struct nt_target *t)
{
	for (const struct nt_peer *p = t->in_line[NT_SLOW]; p; p = p->lines[NT_SLOW].next)
		for (struct nt_request *r = p->lines[NT_SLOW].line.first; r; r = r->next)
			if (is_expired(r))
				return r;
	return NULL;
}

/* The host would give up a request that waits for longer than the medium would. */
static void answer_expired(struct nt_target *t)
{
	for (struct nt_request *r; (r = first_expired(t));) {
		r->ns->backend->late++;
		nt_fail(r, NV_INTERNAL_PATH);
	}
}

uint64_t nt_slow_tick(struct nt_target *t)
{
	if (!t->at_medium && !t->slow && !t->in_line[NT_SLOW])
		return UINT64_MAX;
	if (t->now < t->slow_due)
		return t->slow_due;
	t->slow_due = t->now + (t->in_line[NT_SLOW] ? LOOK_MS : SLOW_MS);
	t->slow = 0;
	for (const struct nt_subsystem *s = t->subsystems; s; s = s->next)
		for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
			if (s->ns[i]) {
				uint64_t due = look_at_ns(s->ns[i], t->now);

				t->slow_due = due < t->slow_due ? due : t->slow_due;
				t->slow += s->ns[i]->slow;
			}
	t->slow_part = part_of_one(t);
	answer_expired(t);
	nt_memory_serve(t);
	return t->at_medium || t->slow || t->in_line[NT_SLOW] ? t->slow_due : UINT64_MAX;
}
