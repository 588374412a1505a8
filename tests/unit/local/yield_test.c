// yield_test.c - when a polling program gives way to others that want its core
// see: src/node/yield.h
// SPDX-License-Identifier: MIT
#include "node/yield.h"

#include <string.h>

#include "../../support/check.h"
#include "core/core.h"
#include "core/node.h"
#include "node/io.h"

static uint64_t now;
static struct vb_cq cq;
static struct vb_node node;

uint64_t vb_now(void)
{
	return now += 100;
}

bool vb_awaits_network(struct vb_io *io)
{
	return io;
}

/* A program whose core others want, as its last sched_yield has shown. */
static void begin(void)
{
	memset(&cq, 0, sizeof(cq));
	memset(&node, 0, sizeof(node));
	now = 1000000000;
	node.yield_every = 16;
	node.crowded = true;
}

static void a_program_that_polls_in_vain_naps_for_longer_each_time(void)
{
	begin();
	for (unsigned i = 0; i < 3; i++, now += 20000000) {
		SAME(vb_yield(&node, &cq, 16), true);
		SAME(node.naps, i + 1);
	}
}

/* It posts writes that are executed at once, or waits for events, and polls until the queue is empty. */
static void a_program_whose_completions_come_without_its_polls_does_not_nap(void)
{
	begin();
	SAME(vb_yield(&node, &cq, 16), true);
	for (unsigned i = 0; i < 100; i++, now += 20000000) {
		cq.tail++;
		SAME(vb_yield(&node, &cq, 16), false);
		SAME(node.naps, 0);
		SAME(node.empty_polls, 0);
	}
	SAME(vb_yield(&node, &cq, 16), true);
	SAME(node.naps, 1);
}

static void completions_that_a_poll_has_found_do_not_delay_the_next_yield(void)
{
	begin();
	cq.tail++;
	vb_yield_not(&node, &cq);
	SAME(vb_yield(&node, &cq, 16), true);
}

static void a_poll_after_which_the_progress_thread_has_work_gives_way_in_any_case(void)
{
	begin();
	cq.tail++;
	SAME(vb_yield(&node, &cq, VB_YIELD_NOW + 1), true);
}

int main(void)
{
	RUN(a_program_that_polls_in_vain_naps_for_longer_each_time);
	RUN(a_program_whose_completions_come_without_its_polls_does_not_nap);
	RUN(completions_that_a_poll_has_found_do_not_delay_the_next_yield);
	RUN(a_poll_after_which_the_progress_thread_has_work_gives_way_in_any_case);
	return 0;
}
