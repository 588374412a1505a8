// sim.h - two hosts whose programs connect, wait, reject, disconnect and end, and a bad network between them
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CM_SIM_H
#define VB_TEST_CM_SIM_H

#include <stdbool.h>
#include <stdint.h>

/* Probabilities are percentages. */
struct sim_plan {
	uint64_t seed;
	unsigned loss, dup;
	uint64_t max_delay;      /* ns: later datagrams may arrive earlier */
	unsigned replay, forged; /* with each datagram: also an old one; one with a changed bit, or noise */
	unsigned reuse;          /* a queue pair may connect again before the last connection has ended */
	unsigned attempts;
	uint32_t places;
	bool checked; /* outcomes are predictable: nothing is forged, and no queue pair is used twice */
};

struct sim_result {
	unsigned established, refused, failed, sidr, steps;
};

/* Ends the program if an invariant is violated. */
struct sim_result sim_run(const struct sim_plan *plan);

#endif
