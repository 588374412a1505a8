// choice_test.c - how large SENDs travel on one host: what copies cost, and the choice that follows from it
// see: src/engine/local/choice.h
// SPDX-License-Identifier: MIT
#include "engine/local/choice.h"

#include <stdlib.h>

#include "../../support/check.h"
#include "clock.h"

/* One copy of 64 KiB that takes ns. */
static bool copy(struct vb_cost *c, uint64_t ns)
{
	uint64_t begin = vb_cost_begin(c);

	now += ns;
	return begin && vb_cost_end(c, begin, 65536);
}

static void the_first_copies_are_measured_then_one_in_sixteen(void)
{
	struct vb_cost c = {0};
	unsigned measured = 0;

	for (int i = 0; i < 8; i++)
		CHECK(copy(&c, 5000));
	for (int i = 0; i < 160; i++)
		measured += copy(&c, 5000);
	SAME(measured, 10);
	CHECK(c.ns >= 5000 && c.ns <= 5001);
}

static void the_cost_is_that_of_64_kib(void)
{
	struct vb_cost c = {0};
	uint64_t begin = vb_cost_begin(&c);

	now += 1000;
	CHECK(vb_cost_end(&c, begin, 16384));
	CHECK(c.ns >= 4000 && c.ns <= 4001);
	CHECK(!vb_cost_end(&c, begin, 0));
}

static void an_interrupted_copy_counts_little(void)
{
	struct vb_cost c = {0};

	for (int i = 0; i < 4; i++)
		copy(&c, 4000);
	copy(&c, 4000000000ull);
	CHECK(c.ns < 4600);
	copy(&c, 4000);
	CHECK(c.ns < 4200);
}

static void a_lasting_change_is_learnt(void)
{
	struct vb_cost c = {0};

	for (int i = 0; i < 8; i++)
		copy(&c, 4000);
	for (int i = 0; i < 16 * 16; i++)
		copy(&c, 12000);
	CHECK(c.ns > 11000);
	for (int i = 0; i < 16 * 8; i++)
		copy(&c, 3000);
	CHECK(c.ns < 3100);
}

/* Sends so many. Copies cost the sender `put` and the receiver `take` by the ring, and `fetch` in one copy. Returns how
 * many travelled in the ring. */
static unsigned sends(struct vb_choice *c, struct vb_send_costs *theirs, unsigned n, uint32_t put, uint32_t take,
                      uint32_t fetch)
{
	unsigned in_ring = 0;

	while (n--) {
		if (vb_choose(c, theirs) == VB_SEND_RING) {
			copy(&c->ring, put);
			theirs->ring = take;
			in_ring++;
		} else {
			theirs->fetch = fetch;
		}
	}
	return in_ring;
}

static void the_cheaper_way_is_learnt(void)
{
	struct vb_send_costs theirs = {0}, dear = {0};
	struct vb_choice c = {0}, d = {0};

	sends(&c, &theirs, 64, 1500, 1600, 4700);
	CHECK(sends(&c, &theirs, 1000, 1500, 1600, 4700) > 950);
	sends(&d, &dear, 64, 4300, 4400, 2800);
	CHECK(sends(&d, &dear, 1000, 4300, 4400, 2800) < 50);
}

static void the_slower_end_counts(void)
{
	struct vb_send_costs theirs = {0};
	struct vb_choice c = {0};

	sends(&c, &theirs, 64, 1500, 6000, 4700);
	CHECK(sends(&c, &theirs, 1000, 1500, 6000, 4700) < 50);
}

static void the_choice_does_not_swing(void)
{
	struct vb_send_costs theirs = {0};
	struct vb_choice c = {0};
	unsigned before = lines;

	for (int i = 0; i < 100; i++)
		sends(&c, &theirs, 32, 4000, i & 1 ? 4400 : 4000, 4200);
	SAME(lines, before);
}

static void a_change_of_the_machine_is_noticed(void)
{
	struct vb_send_costs theirs = {0};
	struct vb_choice c = {0};

	sends(&c, &theirs, 1000, 4300, 4400, 2800);
	SAME(c.way, VB_SEND_FETCHED);
	sends(&c, &theirs, 60000, 1500, 1600, 4700);
	SAME(c.way, VB_SEND_RING);
	sends(&c, &theirs, 60000, 4300, 4400, 2800);
	SAME(c.way, VB_SEND_FETCHED);
}

static void the_other_way_is_tried_seldom(void)
{
	struct vb_send_costs theirs = {0};
	struct vb_choice c = {0};

	sends(&c, &theirs, 1000, 1500, 1600, 4700);
	CHECK(100000 - sends(&c, &theirs, 100000, 1500, 1600, 4700) < 100);
}

/* A peer may write anything to its segment. */
static void any_costs_of_the_peer_give_a_way(void)
{
	struct vb_choice c = {0};
	struct vb_send_costs theirs;

	srand(1);
	for (int i = 0; i < 100000; i++) {
		theirs.fetch = (uint32_t)rand() * (uint32_t)(i % 3);
		theirs.ring = i % 5 ? (uint32_t)rand() : UINT32_MAX;
		enum vb_send_way way = vb_choose(&c, &theirs);

		CHECK(way == VB_SEND_RING || way == VB_SEND_FETCHED);
		if (way == VB_SEND_RING)
			copy(&c.ring, (uint64_t)rand());
	}
}

int main(void)
{
	unsetenv("VERBENA_SENDS");
	RUN(the_first_copies_are_measured_then_one_in_sixteen);
	RUN(the_cost_is_that_of_64_kib);
	RUN(an_interrupted_copy_counts_little);
	RUN(a_lasting_change_is_learnt);
	RUN(the_cheaper_way_is_learnt);
	RUN(the_slower_end_counts);
	RUN(the_choice_does_not_swing);
	RUN(a_change_of_the_machine_is_noticed);
	RUN(the_other_way_is_tried_seldom);
	RUN(any_costs_of_the_peer_give_a_way);
	return 0;
}
