// sim_test.c - random work over a connection that splits bytes at random is completed once and in order
// usage: sim_test [first last [-v]]: these seeds only; sim_test -n COUNT: seeds 1 to COUNT
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define SEEDS 2000

static struct sim sim;
static struct vb_iw_stats total;
static unsigned ended[SIM_MODES][2]; /* streams: alive at the end, or ended */

static void add(const struct vb_iw_stats *stats)
{
#define X(name, text) total.name += stats->name;
	VB_IW_COUNTERS(X)
#undef X
}

/* Checks that the run has incremented each counter. */
static void report(void)
{
#define X(name, text) printf("%12llu %s\n", (unsigned long long)total.name, text);
	VB_IW_COUNTERS(X)
#undef X
	for (int mode = 0; mode < SIM_MODES; mode++)
		printf("mode %d: %u streams live, %u are over\n", mode, ended[mode][0], ended[mode][1]);
}

static bool run(uint64_t seed, bool verbose)
{
	sim_init(&sim, seed);
	sim.verbose = verbose;
	bool ok = sim_run(&sim);

	if (!ok)
		fprintf(stderr, "seed %llu (mode %d), %llu steps: %s\n", (unsigned long long)seed, sim.mode,
		        (unsigned long long)sim.steps, sim.problem);
	for (int id = 0; id < 2; id++) {
		add(&sim.node[id].qp.stats);
		ended[sim.mode][vb_iw_over(&sim.node[id].qp)]++;
	}
	sim_free(&sim);
	return ok;
}

int main(int argc, char **argv)
{
	uint64_t first = 1, last = SEEDS, bad = 0;

	if (argc > 2 && !strcmp(argv[1], "-n")) {
		last = strtoull(argv[2], NULL, 10);
	} else if (argc > 2) {
		first = strtoull(argv[1], NULL, 10);
		last = strtoull(argv[2], NULL, 10);
	}
	for (uint64_t seed = first; seed <= last && bad < 10; seed++)
		bad += !run(seed, argc > 3);
	report();
	printf("%s seeds %llu to %llu\n", bad ? "FAILED" : "ok", (unsigned long long)first, (unsigned long long)last);
	return bad != 0;
}
