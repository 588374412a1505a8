// ring.h - makes blocking calls by io_uring, or by a few threads if that is forbidden
// follows: io_uring(7)
// SPDX-License-Identifier: MIT
#ifndef NB_RING_H
#define NB_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

/* One thread uses a ring, apart from nb_ring_post: it submits and reaps. threads: use threads, not io_uring. 0 or errno. */
int nb_ring_open(struct nb_ring **out, bool threads);
void nb_ring_close(struct nb_ring *ring); /* when no call is in progress */

/* A descriptor that is readable when a request is done; nb_ring_reap then calls its done(). nb_ring_flush starts
 * everything that is queued. */
int nb_ring_fd(const struct nb_ring *ring);
void nb_ring_reap(struct nb_ring *ring);
void nb_ring_flush(struct nb_ring *ring);
const char *nb_ring_name(const struct nb_ring *ring);

/* A message of any thread to the thread of the ring, which calls run from nb_ring_reap. The memory is the sender's until
 * then, and run may free it. nb_ring_post uses the ring until it returns, perhaps after run: whoever closes the ring
 * waits for the sender first. */
struct nb_post {
	struct nb_post *next;
	void (*run)(struct nb_post *p);
};

void nb_ring_post(struct nb_ring *ring, struct nb_post *p);

/* Something with deadlines. turn returns the next one, UINT64_MAX if there is none. Times are ms of the monotonic
 * clock. */
struct nb_clock {
	struct nb_clock *next;
	uint64_t (*turn)(struct nb_clock *c, uint64_t now);
};

void nb_ring_clock(struct nb_ring *ring, struct nb_clock *c);
void nb_ring_unclock(struct nb_ring *ring, struct nb_clock *c);
uint64_t nb_ring_turn(struct nb_ring *ring, uint64_t now); /* calls all turns; returns the earliest deadline */

/* Closing of a medium that other machines share takes time, and goes on behind nb_close. These count it. False: it has
 * not ended within ms. */
void nb_ring_hold(struct nb_ring *ring);
void nb_ring_let_go(struct nb_ring *ring);
bool nb_ring_drain(struct nb_ring *ring, int ms);

/* Performs r->op on r->fd for the file backends. r->done is called at the end, with all bytes moved or with an
 * error. */
void nb_ring_submit(struct nb_ring *ring, struct nb_request *r);

#endif
