// sim_test.c - thousands of simulated connections over networks that lose, double, reorder, repeat and forge
// SPDX-License-Identifier: MIT
#include "sim.h"

#include "../../support/check.h"

static uint64_t first_seed = 1, seeds = 1000, seed;

/* To repeat one simulation: sim_test SEED 1. */
static void say_seed(void)
{
	if (seed)
		fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
}

static struct sim_result run_all(struct sim_plan plan)
{
	struct sim_result sum = {0};

	for (uint64_t i = 0; i < seeds; i++) {
		plan.seed = seed = first_seed + i;
		struct sim_result r = sim_run(&plan);

		sum.established += r.established;
		sum.refused += r.refused;
		sum.failed += r.failed;
		sum.sidr += r.sidr;
		sum.steps += r.steps;
	}
	seed = 0;
	printf("%u established, %u times refused, %u given up, %u resolved, %u steps\n", sum.established, sum.refused,
	       sum.failed, sum.sidr, sum.steps);
	CHECK(sum.established && sum.sidr);
	return sum;
}

static void on_a_good_network_every_attempt_ends_as_both_sides_decided(void)
{
	run_all((struct sim_plan){.max_delay = 100000, .attempts = 20, .places = 32, .checked = true});
}

static void nothing_is_established_twice_when_datagrams_come_twice_and_in_any_order(void)
{
	run_all((struct sim_plan){
	        .dup = 40, .max_delay = 9000000, .attempts = 20, .places = 16, .checked = true, .loss = 1});
}

static void a_network_that_loses_a_third_still_connects(void)
{
	run_all((struct sim_plan){
	        .loss = 33, .dup = 10, .max_delay = 3000000, .attempts = 20, .places = 16, .checked = true});
}

static void a_network_that_loses_nearly_all_leaves_nothing_behind(void)
{
	run_all((struct sim_plan){
	        .loss = 85, .dup = 5, .max_delay = 3000000, .attempts = 20, .places = 16, .checked = true});
}

static void old_datagrams_again_change_nothing(void)
{
	run_all((struct sim_plan){
	        .loss = 5, .replay = 30, .max_delay = 20000000, .attempts = 20, .places = 16, .checked = true});
}

static void a_small_table_refuses_and_recovers(void)
{
	run_all((struct sim_plan){
	        .loss = 10, .dup = 10, .max_delay = 3000000, .attempts = 60, .places = 4, .checked = true});
}

static void queue_pairs_that_connect_again_too_early_end_in_order(void)
{
	run_all((struct sim_plan){
	        .loss = 20, .dup = 10, .reuse = 50, .max_delay = 3000000, .attempts = 40, .places = 16});
}

static void forged_datagrams_leave_nothing_behind(void)
{
	run_all((struct sim_plan){.loss = 5,
	                          .dup = 5,
	                          .replay = 20,
	                          .forged = 60,
	                          .reuse = 10,
	                          .max_delay = 3000000,
	                          .attempts = 30,
	                          .places = 16});
}

int main(int argc, char **argv)
{
	atexit(say_seed);
	if (argc > 1)
		first_seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		seeds = strtoull(argv[2], NULL, 0);
	RUN(on_a_good_network_every_attempt_ends_as_both_sides_decided);
	RUN(nothing_is_established_twice_when_datagrams_come_twice_and_in_any_order);
	RUN(a_network_that_loses_a_third_still_connects);
	RUN(a_network_that_loses_nearly_all_leaves_nothing_behind);
	RUN(old_datagrams_again_change_nothing);
	RUN(a_small_table_refuses_and_recovers);
	RUN(queue_pairs_that_connect_again_too_early_end_in_order);
	RUN(forged_datagrams_leave_nothing_behind);
	return 0;
}
