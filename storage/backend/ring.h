// ring.h - makes blocking calls by io_uring, or by a few threads if that is forbidden
// follows: io_uring(7)
// SPDX-License-Identifier: MIT
#ifndef NB_RING_H
#define NB_RING_H

#include <stdbool.h>

#include "backend/backend.h"

/* One thread uses a ring: it submits and reaps. threads: use threads, not io_uring. 0 or errno. */
int nb_ring_open(struct nb_ring **out, bool threads);
void nb_ring_close(struct nb_ring *ring); /* when no call is in progress */

/* A descriptor that is readable when a request is done; nb_ring_reap then calls its done(). nb_ring_flush starts
 * everything that is queued. */
int nb_ring_fd(const struct nb_ring *ring);
void nb_ring_reap(struct nb_ring *ring);
void nb_ring_flush(struct nb_ring *ring);
const char *nb_ring_name(const struct nb_ring *ring);

/* Performs r->op on r->fd for the file backends. r->done is called at the end, with all bytes moved or with an
 * error. */
void nb_ring_submit(struct nb_ring *ring, struct nb_request *r);

#endif
