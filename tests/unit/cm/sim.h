// sim.h - two hosts whose programs connect, hesitate, refuse, part and go away, and a bad network between them
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CM_SIM_H
#define VB_TEST_CM_SIM_H

#include <stdbool.h>
#include <stdint.h>

/* Chances are per cent. */
struct sim_plan {
	uint64_t seed;
	unsigned loss, dup;
	uint64_t max_delay;      /* ns: what is sent later may arrive earlier */
	unsigned replay, forged; /* with each datagram: an old one again; one with a changed bit, or noise */
	unsigned reuse;          /* a queue pair connects again, without asking whether the last connection has ended */
	unsigned attempts;
	uint32_t places;
	bool checked; /* outcomes can be told: nothing is forged, no queue pair is used twice */
};

struct sim_result {
	unsigned established, refused, failed, sidr, steps;
};

/* Ends the program if an invariant does not hold. */
struct sim_result sim_run(const struct sim_plan *plan);

#endif
