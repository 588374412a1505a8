// rbd_fake_gateway.h - gateways on the calls in place of librados and librbd: opened, waited for, used
// see: rbd_fake.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_RBD_FAKE_GATEWAY_H
#define VB_TEST_STORAGE_RBD_FAKE_GATEWAY_H

#include <poll.h>
#include <time.h>

#include "../../support/check.h"
#include "host.h"
#include "rbd_fake.h"

static struct nb_ring *ring;

static inline uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline void one_turn(int ms)
{
	struct pollfd p = {.fd = nb_ring_fd(ring), .events = POLLIN};

	poll(&p, 1, ms);
	nb_ring_reap(ring);
	nb_ring_turn(ring, clock_ms());
}

/* Two options that differ make two connections. */
static inline int open_as(const char *name, char why[NB_WHY], struct nb_backend **b)
{
	struct nb_config c = {
	        .kind = "rbd", .path = "p/i", .wait_ms = 60000, .gateway = name, .ceph_user = name, .why = why};

	*why = 0;
	return nb_open(&c, ring, b);
}

static inline struct nb_backend *gateway(const char *name)
{
	struct nb_backend *b;
	char why[NB_WHY];

	SAME(open_as(name, why, &b), 0);
	return b;
}

static inline void until_access(struct nb_backend *b, enum nb_access access)
{
	for (int ms = 0; ms < LONG_MS && b->access != access; ms += 10)
		one_turn(10);
	SAME(b->access, access);
}

static inline void all_closed(void)
{
	CHECK(nb_ring_drain(ring, LONG_MS));
	SAME(images, 0);
	SAME(connections, 0);
	fake_put_object(NULL);
}

struct action {
	struct nb_request r;
	bool done;
	int error;
};

static inline void action_done(struct nb_request *r, int error)
{
	struct action *a = (struct action *)(void *)r;

	a->done = true;
	a->error = error;
}

static inline void begin(struct action *a, struct nb_backend *b, enum nb_op op, void *data)
{
	*a = (struct action){.r = {.op = op, .length = 4096, .data = data, .done = action_done}};
	nb_submit(b, &a->r);
}

static inline int act(struct nb_backend *b, enum nb_op op, void *data)
{
	struct action a;

	begin(&a, b, op, data);
	for (int ms = 0; ms < LONG_MS && !a.done; ms += 10)
		one_turn(10);
	CHECK(a.done);
	return a.error;
}

#endif
