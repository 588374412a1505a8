// threads.c - a ring of a few blocking threads, for hosts where io_uring is forbidden
// follows: pthreads(7), preadv2(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backend/ring_kind.h"

#define WORKERS 4

struct queue {
	struct nb_request *first, **end;
};

struct threads {
	struct nb_ring ring;
	pthread_mutex_t lock; /* guards all below; r->step carries the result from worker to reaper */
	pthread_cond_t more;
	struct queue todo, done;
	bool stop;
	int workers;
	pthread_t worker[WORKERS];
};

static void queue_push(struct queue *q, struct nb_request *r)
{
	r->next = NULL;
	*q->end = r;
	q->end = &r->next;
}

static struct nb_request *queue_pop(struct queue *q)
{
	struct nb_request *r = q->first;

	if (r && !(q->first = r->next))
		q->end = &q->first;
	return r;
}

static int move_data(struct nb_request *r)
{
	while (r->moved < r->length) {
		struct iovec v = {(uint8_t *)r->data + r->moved, r->length - r->moved};
		off_t at = (off_t)(r->offset + r->moved);
		ssize_t n = r->op == NB_READ ? preadv2(r->fd, &v, 1, at, 0)
		                             : pwritev2(r->fd, &v, 1, at, r->fua ? RWF_DSYNC : 0);

		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return errno;
		if (!n)
			return EIO; /* the file is shorter than its namespace */
		r->moved += n > 0 ? (uint64_t)n : 0;
	}
	return 0;
}

static int perform_request(struct nb_request *r)
{
	if (r->op == NB_READ || r->op == NB_WRITE)
		return move_data(r);
	if (r->op != NB_FLUSH && fallocate(r->fd, nb_fallocate_mode(r), (off_t)r->offset, (off_t)r->length))
		return errno;
	return (r->op == NB_FLUSH || r->fua) && fdatasync(r->fd) ? errno : 0;
}

static void *worker_main(void *arg)
{
	struct threads *t = arg;
	const uint64_t one = 1;

	pthread_mutex_lock(&t->lock);
	for (;;) {
		struct nb_request *r = queue_pop(&t->todo);

		if (!r) {
			if (t->stop)
				break;
			pthread_cond_wait(&t->more, &t->lock);
			continue;
		}
		pthread_mutex_unlock(&t->lock);
		r->step = perform_request(r);
		pthread_mutex_lock(&t->lock);
		bool first = !t->done.first;

		queue_push(&t->done, r);
		if (first && write(t->ring.fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
			abort(); /* cannot fail: an eventfd of ours */
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void threads_close(struct nb_ring *ring)
{
	struct threads *t = (struct threads *)ring;

	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->more);
	pthread_mutex_unlock(&t->lock);
	while (t->workers)
		pthread_join(t->worker[--t->workers], NULL);
	pthread_cond_destroy(&t->more);
	pthread_mutex_destroy(&t->lock);
	if (ring->fd >= 0)
		close(ring->fd);
	free(t);
}

static int threads_open(struct nb_ring **out)
{
	struct threads *t = calloc(1, sizeof(*t));
	int error;

	if (!t)
		return ENOMEM;
	t->ring.kind = &nb_ring_threads;
	t->todo.end = &t->todo.first;
	t->done.end = &t->done.first;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->more, NULL);
	t->ring.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = t->ring.fd < 0 ? errno : 0;
	while (!error && t->workers < WORKERS)
		if (!(error = pthread_create(&t->worker[t->workers], NULL, worker_main, t)))
			t->workers++;
	if (t->workers)
		error = 0; /* fewer threads are enough */
	if (error)
		threads_close(&t->ring);
	else
		*out = &t->ring;
	return error;
}

static void threads_submit(struct nb_ring *ring, struct nb_request *r)
{
	struct threads *t = (struct threads *)ring;

	pthread_mutex_lock(&t->lock);
	queue_push(&t->todo, r);
	pthread_cond_signal(&t->more);
	pthread_mutex_unlock(&t->lock);
}

static void threads_flush(struct nb_ring *ring)
{
}

static void threads_reap(struct nb_ring *ring)
{
	struct threads *t = (struct threads *)ring;
	uint64_t count;

	while (read(ring->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	for (;;) {
		pthread_mutex_lock(&t->lock);
		struct nb_request *r = queue_pop(&t->done);

		pthread_mutex_unlock(&t->lock);
		if (!r)
			return;
		r->done(r, r->step);
	}
}

const struct nb_ring_kind nb_ring_threads = {"threads",      threads_open,  threads_close,
                                             threads_submit, threads_flush, threads_reap};
