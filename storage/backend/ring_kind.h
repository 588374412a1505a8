// ring_kind.h - the two implementations of a ring
// SPDX-License-Identifier: MIT
#ifndef NB_RING_KIND_H
#define NB_RING_KIND_H

#include "backend/ring.h"

struct nb_ring_kind {
	const char *name;
	int (*open)(struct nb_ring **out);
	void (*close)(struct nb_ring *ring);
	void (*submit)(struct nb_ring *ring, struct nb_request *r);
	void (*flush)(struct nb_ring *ring);
	void (*reap)(struct nb_ring *ring);
};

struct nb_ring {
	const struct nb_ring_kind *kind;
	int fd;                               /* an eventfd */
	struct nb_post *posts;                /* the last one first; atomic */
	struct nb_clock *clocks, *next_clock; /* next_clock: whose turn is next in nb_ring_turn */
	uint32_t held;
};

extern const struct nb_ring_kind nb_ring_uring, nb_ring_threads;

/* the mode of fallocate for an operation */
int nb_fallocate_mode(const struct nb_request *r);

#endif
