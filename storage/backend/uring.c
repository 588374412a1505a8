// uring.c - a ring that uses io_uring
// follows: io_uring(7), io_uring_enter(2), pwritev2(2) for RWF_DSYNC
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "backend/ring_kind.h"

#define ENTRIES 256
#define MOVE_MAX (1u << 30)

struct uring {
	struct nb_ring ring;
	struct io_uring u;
	struct nb_request *held, **held_end; /* requests for which there was no entry */
};

static int uring_open(struct nb_ring **out)
{
	struct uring *g = calloc(1, sizeof(*g));

	if (!g)
		return ENOMEM;
	int error = -io_uring_queue_init(ENTRIES, &g->u, 0);

	if (error) {
		free(g);
		return error;
	}
	g->ring.kind = &nb_ring_uring;
	g->ring.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = g->ring.fd < 0 ? errno : -io_uring_register_eventfd(&g->u, g->ring.fd);
	if (error) {
		if (g->ring.fd >= 0)
			close(g->ring.fd);
		io_uring_queue_exit(&g->u);
		free(g);
		return error;
	}
	g->held_end = &g->held;
	*out = &g->ring;
	return 0;
}

static void uring_close(struct nb_ring *ring)
{
	struct uring *g = (struct uring *)ring;

	io_uring_queue_exit(&g->u);
	close(ring->fd);
	free(g);
}

/* Prepares the next step of a request: its own operation, then, for NB_ZERO or NB_DISCARD with fua, a flush. */
static void prepare_sqe(struct io_uring_sqe *sqe, struct nb_request *r)
{
	uint64_t at = r->offset + r->moved, left = r->length - r->moved;
	unsigned n = left < MOVE_MAX ? (unsigned)left : MOVE_MAX;

	if (r->op == NB_FLUSH || r->step) {
		io_uring_prep_fsync(sqe, r->fd, IORING_FSYNC_DATASYNC);
	} else if (r->op == NB_READ) {
		io_uring_prep_read(sqe, r->fd, (uint8_t *)r->data + r->moved, n, at);
	} else if (r->op == NB_WRITE) {
		io_uring_prep_write(sqe, r->fd, (uint8_t *)r->data + r->moved, n, at);
		sqe->rw_flags = r->fua ? RWF_DSYNC : 0;
	} else {
		io_uring_prep_fallocate(sqe, r->fd, nb_fallocate_mode(r), (off_t)r->offset, (off_t)r->length);
	}
	io_uring_sqe_set_data(sqe, r);
}

static void uring_submit(struct nb_ring *ring, struct nb_request *r)
{
	struct uring *g = (struct uring *)ring;
	struct io_uring_sqe *sqe = g->held ? NULL : io_uring_get_sqe(&g->u);

	if (!sqe && !g->held) {
		io_uring_submit(&g->u);
		sqe = io_uring_get_sqe(&g->u);
	}
	if (sqe) {
		prepare_sqe(sqe, r);
		return;
	}
	r->next = NULL;
	*g->held_end = r;
	g->held_end = &r->next;
}

static void uring_flush(struct nb_ring *ring)
{
	struct uring *g = (struct uring *)ring;

	do {
		while (g->held) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&g->u);

			if (!sqe)
				break;
			struct nb_request *r = g->held;

			if (!(g->held = r->next))
				g->held_end = &g->held;
			prepare_sqe(sqe, r);
		}
	} while (io_uring_sq_ready(&g->u) && io_uring_submit(&g->u) > 0 && g->held);
}

/* True if the request is finished. */
static bool request_finished(struct nb_request *r, int result, int *error)
{
	*error = result < 0 ? -result : 0;
	if (*error == EINTR || *error == EAGAIN) {
		*error = 0;
		return false;
	}
	if (*error)
		return true;
	if (r->op == NB_READ || r->op == NB_WRITE) {
		*error = result ? 0 : EIO; /* the file is shorter than its namespace */
		r->moved += (uint64_t)result;
		return *error || r->moved >= r->length;
	}
	return r->op == NB_FLUSH || !r->fua || r->step++;
}

static void uring_reap(struct nb_ring *ring)
{
	struct uring *g = (struct uring *)ring;
	struct io_uring_cqe *cqe;
	uint64_t count;

	while (read(ring->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	while (!io_uring_peek_cqe(&g->u, &cqe)) {
		struct nb_request *r = io_uring_cqe_get_data(cqe);
		int error, result = cqe->res;

		io_uring_cqe_seen(&g->u, cqe);
		if (request_finished(r, result, &error))
			r->done(r, error);
		else
			uring_submit(ring, r);
	}
}

const struct nb_ring_kind nb_ring_uring = {"io_uring", uring_open, uring_close, uring_submit, uring_flush, uring_reap};
