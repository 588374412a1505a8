// ring.c - selects io_uring or the thread pool
// follows: io_uring_setup(2), fallocate(2)
// SPDX-License-Identifier: MIT
#include "backend/ring_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int nb_ring_open(struct nb_ring **out, bool threads)
{
	if (!threads && !nb_ring_uring.open(out))
		return 0;
	return nb_ring_threads.open(out); /* a container's seccomp filter often forbids io_uring */
}

void nb_ring_close(struct nb_ring *ring)
{
	if (ring)
		ring->kind->close(ring);
}

int nb_ring_fd(const struct nb_ring *ring)
{
	return ring->fd;
}

const char *nb_ring_name(const struct nb_ring *ring)
{
	return ring->kind->name;
}

/* ---- messages of other threads ---- */

void nb_ring_post(struct nb_ring *ring, struct nb_post *p)
{
	const uint64_t one = 1;
	struct nb_post *head = __atomic_load_n(&ring->posts, __ATOMIC_RELAXED);

	do
		p->next = head;
	while (!__atomic_compare_exchange_n(&ring->posts, &head, p, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	/* whoever sent the first of several wakes the loop for all of them */
	if (!head && write(ring->fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort(); /* cannot fail: an eventfd of ours */
}

static void run_posts(struct nb_ring *ring)
{
	struct nb_post *last = __atomic_exchange_n(&ring->posts, NULL, __ATOMIC_ACQUIRE), *first = NULL;

	while (last) { /* in the order of sending */
		struct nb_post *next = last->next;

		last->next = first;
		first = last;
		last = next;
	}
	while (first) {
		struct nb_post *next = first->next;

		first->run(first);
		first = next;
	}
}

/* ---- deadlines ---- */

void nb_ring_clock(struct nb_ring *ring, struct nb_clock *c)
{
	c->next = ring->clocks;
	ring->clocks = c;
}

void nb_ring_unclock(struct nb_ring *ring, struct nb_clock *c)
{
	struct nb_clock **at = &ring->clocks;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	if (ring->next_clock == c) /* in the turn of another one */
		ring->next_clock = c->next;
}

uint64_t nb_ring_turn(struct nb_ring *ring, uint64_t now)
{
	uint64_t due = UINT64_MAX;

	for (struct nb_clock *c = ring->clocks; c; c = ring->next_clock) {
		ring->next_clock = c->next;
		uint64_t its = c->turn(c, now);

		due = its < due ? its : due;
	}
	return due;
}

void nb_ring_hold(struct nb_ring *ring)
{
	ring->held++;
}

void nb_ring_let_go(struct nb_ring *ring)
{
	ring->held--;
}

static uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool nb_ring_drain(struct nb_ring *ring, int ms)
{
	uint64_t until = clock_ms() + (uint64_t)ms;

	while (ring->held) {
		struct pollfd p = {.fd = ring->fd, .events = POLLIN};
		uint64_t now = clock_ms();

		if (now >= until)
			return false;
		poll(&p, 1, (int)(until - now));
		nb_ring_reap(ring);
	}
	return true;
}

/* ---- the kind's functions ---- */

void nb_ring_reap(struct nb_ring *ring)
{
	ring->kind->reap(ring); /* first: it resets the eventfd */
	run_posts(ring);
}

void nb_ring_flush(struct nb_ring *ring)
{
	ring->kind->flush(ring);
}

void nb_ring_submit(struct nb_ring *ring, struct nb_request *r)
{
	r->moved = 0;
	r->step = 0;
	r->next = NULL;
	ring->kind->submit(ring, r);
}

int nb_fallocate_mode(const struct nb_request *r)
{
	if (r->op == NB_ZERO && !r->may_punch)
		return FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
	return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
}
