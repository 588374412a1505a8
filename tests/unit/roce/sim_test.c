// sim_test.c - random work over a bad network is completed once and in order; also seeds that once found a bug
// usage: sim_test [first last [-v]]: these seeds only
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#ifdef VB_SANITIZED /* six times as slow */
#define SEEDS 500
#else
#define SEEDS 3000
#endif

static struct sim sim;

static struct vb_roce_stats total;
static unsigned keeps[4]; /* pairs, by what they found out about the peer */

static void add(const struct vb_roce_stats *stats)
{
#define X(name, text) total.name += stats->name;
	VB_ROCE_COUNTERS(X)
#undef X
}

/* Checks that the run has incremented each counter. */
static void report(void)
{
#define X(name, text) printf("%12llu %s\n", (unsigned long long)total.name, text);
	VB_ROCE_COUNTERS(X)
#undef X
	printf("%12u peers keep what comes ahead, %u do not, of %u nothing is known\n", keeps[VB_ROCE_KEEPS],
	       keeps[VB_ROCE_KEEPS_NOT], keeps[VB_ROCE_KEEPS_UNKNOWN] + keeps[VB_ROCE_KEEPS_TRIAL]);
}

static bool run(uint64_t seed, bool verbose)
{
	sim_init(&sim, seed);
	sim.verbose = verbose;
	bool ok = sim_run(&sim);

	if (!ok)
		fprintf(stderr, "seed %llu (mode %d), %llu events, %llu ns: %s\n", (unsigned long long)seed, sim.mode,
		        (unsigned long long)sim.events, (unsigned long long)sim.now, sim.problem);
	for (int id = 0; id < 2; id++)
		add(&sim.node[id].qp.stats), keeps[sim.node[id].qp.rq.keeps]++;
	sim_free(&sim);
	return ok;
}

/* Each of these once failed, for the reason given. */
static const struct {
	uint64_t seed;
	const char *found;
} regressions[] = {
        {1944, "patience grew beyond the retry timer, and eight tries through 20 % loss were spent"},
        {3297, "patience was multiplied beyond the retry timer, and each retry was a single try"},
        {35112, "the same, where round trips were known well"},
};

int main(int argc, char **argv)
{
	uint64_t first = 1, last = SEEDS, bad = 0;

	if (argc > 2) {
		first = strtoull(argv[1], NULL, 10);
		last = strtoull(argv[2], NULL, 10);
	}
	for (size_t i = 0; argc < 3 && i < sizeof(regressions) / sizeof(regressions[0]); i++) {
		if (!run(regressions[i].seed, false)) {
			fprintf(stderr, "again: %s\n", regressions[i].found);
			bad++;
		}
	}
	for (uint64_t seed = first; seed <= last && bad < 10; seed++)
		bad += !run(seed, argc > 3);
	report();
	printf("%s seeds %llu to %llu\n", bad ? "FAILED" : "ok", (unsigned long long)first, (unsigned long long)last);
	return bad != 0;
}
