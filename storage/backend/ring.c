// ring.c - selects io_uring or the thread pool
// follows: io_uring_setup(2), fallocate(2)
// SPDX-License-Identifier: MIT
#include "backend/ring_kind.h"

#include <fcntl.h>
#include <linux/falloc.h>

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

void nb_ring_reap(struct nb_ring *ring)
{
	ring->kind->reap(ring);
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
