// yielded.c - a poll that has let other threads run returns what has arrived meanwhile
// follows: ibv_poll_cq(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define ROUNDS 40u
/* A poll does not look again while another thread makes progress. That is rare. */
#define MISSES_MAX (ROUNDS / 2)

/* The other side. While a poll yields, it sends a message. */
static _Atomic int sender = -1;

/* Replaces the C library's for the adapter's library too. */
__attribute__((visibility("default"))) int sched_yield(void)
{
	int fd = atomic_load(&sender) < 0 ? -1 : atomic_exchange(&sender, -1);
	char sent;

	if (fd >= 0) {
		tell(fd, "y", 1);
		hear(fd, &sent, 1);
	}
	return (int)syscall(SYS_sched_yield);
}

static void sends(int fd, void *arg)
{
	struct dev d;
	struct link l;
	char yields;

	dev_open(&d);
	link_open(&l, &d, &(struct conf){0}, fd);
	for (unsigned i = 0; i < ROUNDS; i++) {
		hear(fd, &yields, 1);
		POST(&l, .op = IBV_WR_SEND, .id = i);
		tell(fd, "s", 1);
		expect(l.scq, i, IBV_WC_SUCCESS);
	}
	meet_up(fd);
}

/* Returns whether the poll during which the message came has found it. */
static bool found_by_the_same_poll(struct link *l, int fd)
{
	uint64_t end = now_ms() + PATIENCE;
	struct ibv_wc wc;
	int n = 0;

	for (int i = 0; i < 2000; i++) /* the program polls, so its progress thread does not */
		CHECK(!ibv_poll_cq(l->rcq, 1, &wc));
	atomic_store(&sender, fd);
	while (atomic_load(&sender) >= 0) {
		CHECK(now_ms() < end);
		n = ibv_poll_cq(l->rcq, 1, &wc);
		CHECK(n == 0 || (n == 1 && atomic_load(&sender) < 0));
	}
	if (!n)
		wc = wait_wc(l->rcq);
	CHECK(wc.status == IBV_WC_SUCCESS);
	return n;
}

static void a_message_that_comes_during_a_yield(void)
{
	struct peer p = start(sends, NULL);
	unsigned missed = 0;
	struct dev d;
	struct link l;

	dev_open(&d);
	link_open(&l, &d, &(struct conf){0}, p.fd);
	for (unsigned i = 0; i < ROUNDS; i++) {
		post_recv(&l, i, NULL, 0, 0);
		missed += !found_by_the_same_poll(&l, p.fd);
	}
	if (missed > MISSES_MAX)
		CHECK_FAILED("%u of %u polls returned nothing, though a message came while they yielded", missed,
		             ROUNDS);
	meet_up(p.fd);
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a poll returns the message that came while it yielded", a_message_that_comes_during_a_yield, 0},
	};

	return RUN_TESTS(argc, argv, tests);
}
