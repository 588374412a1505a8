// choice.c - chooses how a large SEND travels: in the ring, or fetched by the receiver in one copy
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "engine/local/choice.h"

#include <string.h>

#include "core/node.h"
#include "util/env.h"
#include "util/log.h"

#define FIRST_COPIES 8u /* all of these are measured */
#define SAMPLE 16u      /* later every so many */
#define FIRST_SENDS 16u /* SENDs that try both ways, four by four */
#define LOOK_MIN 256u   /* SENDs until the other way is tried again; doubles up to LOOK_MAX */
#define LOOK_MAX 16384u
#define LOOK_SENDS 2u /* SENDs of one such trial */

uint64_t vb_cost_begin(struct vb_cost *c)
{
	uint32_t n = c->copies++;

	return n < FIRST_COPIES || n % SAMPLE == 0 ? vb_now() : 0;
}

bool vb_cost_end(struct vb_cost *c, uint64_t begin, uint64_t bytes)
{
	if (!begin || !bytes)
		return false;
	uint64_t ns = (vb_now() - begin) * 65536 / bytes;
	uint32_t sample = ns < 1u << 30 ? (uint32_t)ns + 1 : 1u << 30;

	if (!c->ns)
		c->ns = sample;
	else if (sample < c->ns)
		c->ns = c->ns / 4 + sample - sample / 4;
	else if (sample - c->ns > c->ns / 8) /* interrupted, or dearer from now on: grows step by step */
		c->ns += c->ns / 8 + 1;
	else
		c->ns = sample;
	return true;
}

enum vb_forced vb_forced_way(const char *variable, const char *copy, _Atomic int *known)
{
	int f = atomic_load_explicit(known, memory_order_relaxed);

	if (__builtin_expect(!f, 0)) {
		const char *text = vb_env(variable);

		f = !text                     ? VB_LEARN
		    : !strcmp(text, "ring")   ? VB_FORCE_RING
		    : !strcmp(text, copy)     ? VB_FORCE_COPY
		    : !strcmp(text, "random") ? VB_FORCE_RANDOM
		                              : VB_LEARN;
		atomic_store_explicit(known, f, memory_order_relaxed);
	}
	return (enum vb_forced)f;
}

static enum vb_send_way other_way(enum vb_send_way way)
{
	return way == VB_SEND_FETCHED ? VB_SEND_RING : VB_SEND_FETCHED;
}

/* Compares the two ways, where both have been measured. Data in the ring is copied by both programs at the same time,
 * so the slower of the two counts. */
static void compare_ways(struct vb_choice *c, const struct vb_send_costs *theirs)
{
	uint64_t fetch = atomic_load_explicit(&theirs->fetch, memory_order_relaxed);
	uint64_t ring = atomic_load_explicit(&theirs->ring, memory_order_relaxed);

	if (!fetch || !ring || !c->ring.ns)
		return;
	if (ring < c->ring.ns)
		ring = c->ring.ns;
	if (c->way == VB_SEND_FETCHED ? ring * 5 > fetch * 4 : fetch * 5 > ring * 4)
		return;
	c->way = other_way(c->way);
	c->interval = LOOK_MIN;
	c->look = c->sends + LOOK_MIN;
	vb_log(VB_LOG_INFO, "large SENDs: %s now; ns per 64 KiB: %u in the ring, %u fetched",
	       c->way == VB_SEND_RING ? "in the ring" : "fetched by the receiver", (unsigned)ring, (unsigned)fetch);
}

enum vb_send_way vb_choose(struct vb_choice *c, const struct vb_send_costs *theirs)
{
	static _Atomic int known;
	uint32_t n = c->sends++;

	switch (vb_forced_way("VERBENA_SENDS", "fetch", &known)) {
	case VB_FORCE_RING:
		return VB_SEND_RING;
	case VB_FORCE_COPY:
		return VB_SEND_FETCHED;
	case VB_FORCE_RANDOM:
		return (n * 2654435761u) >> 31 ? VB_SEND_RING : VB_SEND_FETCHED;
	case VB_LEARN:
		break;
	}
	if (n < FIRST_SENDS) {
		c->look = FIRST_SENDS + LOOK_MIN;
		c->interval = LOOK_MIN;
		return n & 4 ? VB_SEND_RING : VB_SEND_FETCHED;
	}
	if (n - c->look < LOOK_SENDS)
		return other_way(c->way);
	if (n - c->look == LOOK_SENDS) {
		c->interval = c->interval < LOOK_MAX ? c->interval * 2 : LOOK_MAX;
		c->look = n + c->interval;
	}
	if (n % FIRST_SENDS == 0)
		compare_ways(c, theirs);
	return c->way;
}
