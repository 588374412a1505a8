// pace_test.c - how large RDMA operations travel on one host: trials, what they measure, and the choice
// see: src/engine/local/pace.h
// SPDX-License-Identifier: MIT
#include "engine/local/pace.h"

#include <stdlib.h>

#include "../../support/check.h"
#include "clock.h"

#define KIB64 65536u

/* One operation at a time: copies of 64 KiB take `copy` ns, and those in the ring `ring`. Returns how many of n
 * travelled in the ring. */
static unsigned run(struct vb_pace *p, unsigned n, uint64_t copy, uint64_t ring)
{
	unsigned in_ring = 0;

	for (; n; n--) {
		enum vb_rdma_way way = vb_pace_way(p);
		uint64_t begun = vb_pace_sent(p);

		now += way == VB_RDMA_RING ? ring : copy;
		vb_pace_done(p, way, begun, KIB64);
		in_ring += way == VB_RDMA_RING;
	}
	return in_ring;
}

static void a_program_with_few_operations_makes_no_trial(void)
{
	struct vb_pace p = {0};

	SAME(run(&p, 16, 4000, 1000), 0);
}

static void the_faster_way_is_taken_and_said_once(void)
{
	struct vb_pace p = {0};

	lines = 0;
	SAME(run(&p, 16 + 24 + 24, 4000, 2000), 24);
	SAME(p.way, VB_RDMA_RING);
	SAME(lines, 1);
	SAME(run(&p, 500, 4000, 2000), 500);
	run(&p, 100000, 4000, 2000);
	SAME(lines, 1);
	SAME(p.way, VB_RDMA_RING);
}

static void copies_stay_if_the_ring_is_not_faster_by_a_fifth(void)
{
	struct vb_pace p = {0};

	run(&p, 10000, 4000, 3300);
	SAME(p.way, VB_RDMA_COPY);
	struct vb_pace q = {.way = VB_RDMA_RING};

	run(&q, 10000, 3300, 4000);
	SAME(q.way, VB_RDMA_RING);
}

static void the_choice_follows_the_machine(void)
{
	struct vb_pace p = {0};

	run(&p, 5000, 4000, 2000);
	SAME(p.way, VB_RDMA_RING);
	run(&p, 70000, 2000, 4000);
	SAME(p.way, VB_RDMA_COPY);
}

static void trials_become_rare_while_nothing_changes(void)
{
	struct vb_pace p = {0};

	run(&p, 500000, 1000, 4000);
	CHECK(run(&p, 100000, 1000, 4000) <= 2 * 24);
}

/* Eight in flight: each lasts 8000 ns, but one completes every 1000. */
static void operations_that_overlap_count_once(void)
{
	struct vb_pace p = {0};
	uint64_t begun[8] = {0};

	run(&p, 16, 1500, 0);
	for (unsigned i = 0; i < 24; i++) {
		SAME(vb_pace_way(&p), VB_RDMA_RING);
		if (i >= 8)
			vb_pace_done(&p, VB_RDMA_RING, begun[i % 8], KIB64);
		begun[i % 8] = vb_pace_sent(&p);
		now += 1000;
	}
	for (unsigned i = 0; i < 8; i++, now += 1000)
		vb_pace_done(&p, VB_RDMA_RING, begun[i], KIB64);
	run(&p, 24, 1500, 0);
	SAME(p.way, VB_RDMA_RING);
}

static void after_a_failure_copies_for_long(void)
{
	struct vb_pace p = {0};

	run(&p, 1000, 4000, 2000);
	SAME(p.way, VB_RDMA_RING);
	vb_pace_failed(&p);
	SAME(run(&p, 4000, 4000, 2000), 0);
	vb_pace_failed(&p);
	SAME(run(&p, 16000, 4000, 2000), 0);
}

static void a_failure_in_a_trial_ends_it(void)
{
	struct vb_pace p = {0};

	run(&p, 16 + 5, 4000, 2000);
	vb_pace_failed(&p);
	SAME(run(&p, 1000, 4000, 2000), 0);
}

static void the_environment_forces_a_way(void)
{
	const char *way = getenv("VERBENA_RDMA");
	struct vb_pace p = {0};
	unsigned in_ring = run(&p, 10000, 4000, 2000);

	if (!strcmp(way, "ring"))
		SAME(in_ring, 10000);
	else if (!strcmp(way, "copy"))
		SAME(in_ring, 0);
	else
		CHECK(in_ring > 4500 && in_ring < 5500);
}

int main(void)
{
	if (getenv("VERBENA_RDMA")) {
		the_environment_forces_a_way();
		printf("ok the environment forces a way: %s\n", getenv("VERBENA_RDMA"));
		return 0;
	}
	a_program_with_few_operations_makes_no_trial();
	the_faster_way_is_taken_and_said_once();
	copies_stay_if_the_ring_is_not_faster_by_a_fifth();
	the_choice_follows_the_machine();
	trials_become_rare_while_nothing_changes();
	operations_that_overlap_count_once();
	after_a_failure_copies_for_long();
	a_failure_in_a_trial_ends_it();
	printf("ok large RDMA operations travel the faster way, and by copies where the peer does not take part\n");
	return 0;
}
