// ring.h - makes blocking calls by io_uring, or by a few threads if that is forbidden
// follows: io_uring(7)
// SPDX-License-Identifier: MIT
#ifndef NB_RING_H
#define NB_RING_H

#include <stdbool.h>

#include "backend/backend.h"

/* One thread uses it: the one that submits is the one that reaps. threads: do not even try io_uring. 0 or errno. */
int nb_ring_open(struct nb_ring **out, bool threads);
void nb_ring_close(struct nb_ring *ring); /* no call is in progress */

/* Readable when something is done: then nb_ring_reap calls its done(). What was queued starts with nb_ring_flush at the
 * latest. */
int nb_ring_fd(const struct nb_ring *ring);
void nb_ring_reap(struct nb_ring *ring);
void nb_ring_flush(struct nb_ring *ring);
const char *nb_ring_name(const struct nb_ring *ring);

/* What the file backends ask for: r->op on r->fd; r->done is called in the end, with all bytes moved or an error. */
void nb_ring_submit(struct nb_ring *ring, struct nb_request *r);

#endif
