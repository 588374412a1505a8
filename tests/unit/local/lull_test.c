// lull_test.c - when a polling program looks at a ring on one host: trials, what they measure, and the choice
// see: src/engine/local/lull.h
// SPDX-License-Identifier: MIT
#include "engine/local/lull.h"

#include <stdlib.h>

#include "../../support/check.h"
#include "clock.h"

#define POLL 30u /* ns */

/* A sender that needs `each` ns for a record. A look that finds its ring empty delays the next record by `stall` ns. It
 * has at most `window` records in the ring. */
struct stream {
	uint64_t each, stall;
	unsigned window;
	uint64_t next; /* when its next record is there */
	unsigned there;
	bool stalled;
};

static void send_until_now(struct stream *s)
{
	for (; s->next <= now; s->next += s->each) {
		if (s->there == s->window) {
			s->next = now + s->each;
			break;
		}
		s->there++;
		s->stalled = false;
	}
}

/* The program polls for 16 completions until n records have come. Returns how many polls left the ring alone. */
static unsigned run(struct vb_lull *l, struct stream *s, unsigned n)
{
	unsigned alone = 0;

	for (unsigned taken = 0; taken < n;) {
		now += POLL;
		send_until_now(s);
		if (vb_lull_now(l)) {
			alone++;
			continue;
		}
		unsigned found = s->there < 16 ? s->there : 16;

		s->there -= found;
		taken += found;
		if (found < 16 && !s->stalled) {
			s->next += s->stall;
			s->stalled = true;
		}
		if (found)
			vb_lull_look(l, found, 16);
	}
	return alone;
}

static void a_program_that_sends_to_and_fro_finds_each_record_at_once(void)
{
	struct vb_lull l = {0};
	struct stream s = {.each = 400, .window = 1, .next = now};

	SAME(run(&l, &s, 100000), 0);
	SAME(l.on, false);
}

static void a_stream_that_looks_slow_down_gets_lulls(void)
{
	struct vb_lull l = {0};
	struct stream s = {.each = 10, .stall = 100, .window = 128, .next = now};

	lines = 0;
	run(&l, &s, 20000);
	SAME(l.on, true);
	SAME(lines, 1);
	CHECK(run(&l, &s, 1000) > 0);
	run(&l, &s, 100000);
	SAME(l.on, true);
	SAME(lines, 1);
}

static void a_stream_that_lulls_slow_down_has_none(void)
{
	struct vb_lull l = {0};
	struct stream s = {.each = 20, .window = 4, .next = now};

	run(&l, &s, 100000);
	SAME(l.on, false);
}

static void a_slow_stream_has_no_trials(void)
{
	struct vb_lull l = {0};
	unsigned alone = 0;

	for (unsigned i = 0; i < 100000; i++) {
		now += 2000;
		alone += vb_lull_now(&l);
		vb_lull_look(&l, 2, 16);
	}
	SAME(alone, 0);
}

static void lulls_end_with_the_stream(void)
{
	struct vb_lull l = {0};
	struct stream s = {.each = 10, .stall = 100, .window = 128, .next = now};

	run(&l, &s, 20000);
	SAME(l.on, true);
	s.window = 1;
	run(&l, &s, 3000); /* a trial may have to end first */
	SAME(l.on, false);
	while (vb_lull_now(&l))
		now += POLL;
	SAME(run(&l, &s, 3000), 0);
}

static void a_lull_lasts_two_microseconds_at_most(void)
{
	struct vb_lull l = {.on = true, .goal = 1u << 30};

	vb_lull_look(&l, 5, 16);
	SAME(vb_lull_now(&l), true);
	now += 2000;
	SAME(vb_lull_now(&l), false);
	vb_lull_look(&l, 16, 16);
	SAME(vb_lull_now(&l), false);
	vb_lull_look(&l, 4, 4); /* the program wanted no more */
	SAME(vb_lull_now(&l), false);
}

int main(void)
{
	a_program_that_sends_to_and_fro_finds_each_record_at_once();
	a_stream_that_looks_slow_down_gets_lulls();
	a_stream_that_lulls_slow_down_has_none();
	a_slow_stream_has_no_trials();
	lulls_end_with_the_stream();
	a_lull_lasts_two_microseconds_at_most();
	printf("ok a ring to which a stream comes is left alone for moments, if that is faster\n");
	return 0;
}
