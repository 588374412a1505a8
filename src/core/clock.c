// clock.c - the adapter's clock, as completion timestamps count it
// follows: ibv_query_rt_values_ex(3)
// SPDX-License-Identifier: MIT
#include "core/node.h"
#include "core/verbs.h"

/* Providers leave the seconds at 0 and put raw ticks into tv_nsec: ours are nanoseconds. */
int vb_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t wanted = values->comp_mask;

	values->comp_mask = wanted & IBV_VALUES_MASK_RAW_CLOCK;
	if (values->comp_mask)
		values->raw_clock = (struct timespec){.tv_sec = 0, .tv_nsec = (long)vb_now()};
	return 0;
}
