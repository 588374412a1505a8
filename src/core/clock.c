// clock.c - the adapter's clock, which completion timestamps use
// follows: ibv_query_rt_values_ex(3)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <time.h>

#include "core/cq.h"
#include "core/node.h"
#include "core/verbs.h"
#include "util/units.h"

#define STEP VB_US(10) /* ns: a smaller difference is a measuring error, a larger one means that the clock was set */
#define TRIES 16

static int64_t wall_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Measures how far the wall clock is ahead, with the fastest of several readings. *width is the duration of that
 * reading, which bounds its error. */
static int64_t measure_offset(uint64_t *width)
{
	int64_t ahead = 0;

	*width = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t before = vb_now();
		int64_t wall = wall_now();
		uint64_t took = vb_now() - before;

		if (took < *width) {
			*width = took;
			ahead = wall - (int64_t)(before + took / 2);
		}
	}
	return ahead;
}

/*
 * The kernel slews both clocks alike, so their difference changes only when the wall clock is set. The difference is
 * stored, so that the time between two completions is the same on both clocks.
 */
uint64_t vb_wall_clock(uint64_t at)
{
	static _Atomic int64_t kept; /* 0: not measured yet */
	int64_t ahead = atomic_load_explicit(&kept, memory_order_relaxed);
	uint64_t width;

	if (ahead && llabs(wall_now() - (int64_t)vb_now() - ahead) < STEP)
		return at + (uint64_t)ahead;
	int64_t measured = measure_offset(&width);

	if (!ahead) { /* the first thread that has measured stores the result for all */
		if (!atomic_compare_exchange_strong(&kept, &ahead, measured))
			measured = ahead;
		return at + (uint64_t)measured;
	}
	if (width >= STEP || llabs(measured - ahead) < STEP)
		return at + (uint64_t)ahead;
	atomic_store_explicit(&kept, measured, memory_order_relaxed);
	return at + (uint64_t)measured;
}

/* Like other providers, this leaves tv_sec at 0 and puts raw ticks into tv_nsec: here nanoseconds. */
int vb_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t wanted = values->comp_mask;

	values->comp_mask = wanted & IBV_VALUES_MASK_RAW_CLOCK;
	if (values->comp_mask)
		values->raw_clock = (struct timespec){.tv_sec = 0, .tv_nsec = (long)vb_now()};
	return 0;
}
