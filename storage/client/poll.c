// poll.c - decides which thread polls: vn_poll and synchronous requests
// follows: epoll(7), eventfd(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"

#define BYTES_US 4096u /* polling is extended by a microsecond per this many outstanding bytes … */
#define SPINS 8u       /* … up to this many times spin_us */
#define LOOKS 16u      /* polls between two reads of the clock */
#define VAIN_MAX 6u    /* at least one sleep in 64 is preceded by polling */

/* A thread that waits for one request. It polls if no other thread does. */
struct vn_waiter {
	struct vn_waiter *next, **at; /* in d->waiters */
	struct vn_disk *disk;
	pthread_cond_t cond;
	bool done;
	int error;
};

void vn_wake(struct vn_disk *d)
{
	eventfd_write(d->wake, 1);
}

static void poll_queues(struct vn_disk *d)
{
	bool all = d->look_all;

	d->look_all = false;
	for (unsigned k = 0; k < d->n_paths; k++) {
		struct vn_path *p = &d->paths[k];

		for (unsigned i = 0; i < p->now.n && p->up; i++) {
			struct vn_queue *q = p->now.io[i];

			if (p != d->use && !q->busy && !all) /* a path in reserve: its end can wait */
				continue;
			q->transport->progress(q);
			if (q->error)
				vn_lost(p);
		}
	}
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t patience_us(const struct vn_disk *d)
{
	uint64_t us = d->options.spin_us, most = (uint64_t)SPINS * us;

	for (unsigned i = 0; d->use && i < d->use->now.n; i++)
		us += d->use->now.io[i]->bytes / BYTES_US;
	return us < most ? us : most;
}

/* Polls for a while. True if there was work. Lets waiting threads take the lock. */
static bool look_for_a_while(struct vn_disk *d, uint64_t deadline)
{
	uint64_t until = now_us() + patience_us(d), answered = d->answered;

	if (deadline < until / 1000)
		until = deadline * 1000;
	for (unsigned n = 1; n % LOOKS || now_us() < until; n++) {
		poll_queues(d);
		if (d->answered != answered || d->done.first || d->again.first || !d->use)
			return true;
		if (n % LOOKS && !atomic_load_explicit(&d->wanting, memory_order_relaxed))
			continue;
		pthread_mutex_unlock(&d->lock);
		sched_yield(); /* the target may need this core */
		vn_lock(d);
	}
	return false;
}

/* Polls before a sleep. The more often that is useless, the more rarely it is done, so it costs little where answers
 * take long or requests are few. */
static bool spin_before_sleep(struct vn_disk *d, uint64_t deadline)
{
	if (!d->options.spin_us || !d->use || !d->use->transport->spins || d->again.first)
		return false;
	if (d->skip) {
		d->skip--;
		return false;
	}
	if (look_for_a_while(d, deadline)) {
		d->vain = 0;
		return true;
	}
	d->vain += d->vain < VAIN_MAX;
	d->skip = (1u << d->vain) - 1;
	return false;
}

static bool arm_queues(struct vn_disk *d)
{
	bool again = false;

	for (unsigned k = 0; k < d->n_paths; k++) {
		struct vn_path *p = &d->paths[k];

		for (unsigned i = 0; i < p->now.n && p->up; i++)
			again |= p->now.io[i]->transport->arm(p->now.io[i]);
	}
	d->look_all |= again;
	return again;
}

/* Sleeps, without the lock, until there may be work or until the deadline (ms). */
static void sleep_on(struct vn_disk *d, uint64_t deadline)
{
	struct epoll_event e[8];
	eventfd_t n;
	int k;

	if (spin_before_sleep(d, deadline) || arm_queues(d))
		return;
	pthread_mutex_unlock(&d->lock);
	k = epoll_wait(d->epoll, e, 8, deadline == UINT64_MAX ? -1 : vn_left(deadline));
	vn_lock(d);
	for (int i = 0; i < k; i++)
		if (e[i].data.fd == d->wake)
			eventfd_read(d->wake, &n);
		else
			d->look_all = true;
}

static void step_down(struct vn_disk *d)
{
	d->polling = false;
	if (d->waiters)
		pthread_cond_signal(&d->waiters->cond);
	pthread_cond_broadcast(&d->cond);
}

static int poll_and_issue(struct vn_disk *d)
{
	int n = 0;

	poll_queues(d);
	do
		vn_issue(d); /* first the waiting commands, then those that callbacks have started */
	while (vn_callbacks(d, &n));
	return n;
}

static void wait_for_turn(struct vn_disk *d, uint64_t until)
{
	struct timespec t = {.tv_sec = (time_t)(until / 1000), .tv_nsec = (long)(until % 1000) * 1000000};

	if (until == UINT64_MAX)
		pthread_cond_wait(&d->cond, &d->lock);
	else
		pthread_cond_timedwait(&d->cond, &d->lock, &t);
}

static int poll_as_the_one(struct vn_disk *d, uint64_t until)
{
	eventfd_t x;
	int n;

	d->polling = true;
	if (d->fd_given) { /* the wake-up is for this call; the program itself may sleep on the descriptor */
		eventfd_read(d->wake, &x);
		d->look_all = true;
	}
	while (!(n = poll_and_issue(d)) && vn_now() < until)
		sleep_on(d, until);
	step_down(d);
	return n;
}

int vn_poll(struct vn_disk *d, int timeout_ms)
{
	uint64_t until = timeout_ms < 0 ? UINT64_MAX : timeout_ms ? vn_now() + (uint64_t)timeout_ms : 0;
	int n = 0;

	vn_lock(d);
	for (;;) {
		if (!d->polling) {
			n = poll_as_the_one(d, until);
			break;
		}
		vn_issue(d);
		if (!until || vn_now() >= until)
			break;
		wait_for_turn(d, until);
	}
	if (!n && !timeout_ms && d->fd_given && arm_queues(d)) /* arms the descriptor of vn_fd */
		vn_wake(d);
	pthread_mutex_unlock(&d->lock);
	return n;
}

int vn_fd(struct vn_disk *d)
{
	vn_lock(d);
	bool first = !d->fd_given;

	d->fd_given = true;
	pthread_mutex_unlock(&d->lock);
	if (first)
		vn_wake(d); /* nothing is armed yet, so the program must call vn_poll first */
	return d->epoll;
}

/* ---- synchronous requests ---- */

static void waited_for(void *arg, int error)
{
	struct vn_waiter *w = arg;
	struct vn_disk *d = w->disk;

	vn_lock(d);
	w->error = error;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&d->lock);
}

static void stand_in_line(struct vn_disk *d, struct vn_waiter *w)
{
	w->next = d->waiters;
	w->at = &d->waiters;
	if (w->next)
		w->next->at = &w->next;
	d->waiters = w;
	pthread_cond_wait(&w->cond, &d->lock);
	*w->at = w->next;
	if (w->next)
		w->next->at = w->at;
}

static int finish_wait(struct vn_waiter *w, int e)
{
	struct vn_disk *d = w->disk;

	if (!e) {
		vn_lock(d);
		while (!w->done) {
			if (d->polling) {
				stand_in_line(d, w);
				continue;
			}
			d->polling = true;
			while (poll_and_issue(d), !w->done)
				sleep_on(d, UINT64_MAX);
			step_down(d);
		}
		if (!d->polling) /* no thread polls now */
			step_down(d);
		pthread_mutex_unlock(&d->lock);
		e = w->error;
	}
	pthread_cond_destroy(&w->cond);
	return e;
}

static void begin_wait(struct vn_waiter *w, struct vn_disk *d)
{
	*w = (struct vn_waiter){.disk = d};
	pthread_cond_init(&w->cond, NULL);
}

int vn_read_wait(struct vn_disk *d, void *buffer, size_t length, uint64_t offset)
{
	struct vn_waiter w;

	begin_wait(&w, d);
	return finish_wait(&w, vn_read(d, buffer, length, offset, 0, waited_for, &w));
}

int vn_write_wait(struct vn_disk *d, const void *buffer, size_t length, uint64_t offset, unsigned flags)
{
	struct vn_waiter w;

	begin_wait(&w, d);
	return finish_wait(&w, vn_write(d, buffer, length, offset, flags, waited_for, &w));
}

int vn_compare_wait(struct vn_disk *d, const void *buffer, size_t length, uint64_t offset)
{
	struct vn_waiter w;

	begin_wait(&w, d);
	return finish_wait(&w, vn_compare(d, buffer, length, offset, 0, waited_for, &w));
}

int vn_write_zeroes_wait(struct vn_disk *d, uint64_t length, uint64_t offset, unsigned flags)
{
	struct vn_waiter w;

	begin_wait(&w, d);
	return finish_wait(&w, vn_write_zeroes(d, length, offset, flags, waited_for, &w));
}

int vn_discard_wait(struct vn_disk *d, uint64_t length, uint64_t offset)
{
	struct vn_waiter w;

	begin_wait(&w, d);
	return finish_wait(&w, vn_discard(d, length, offset, 0, waited_for, &w));
}

int vn_flush_wait(struct vn_disk *d)
{
	struct vn_waiter w;

	begin_wait(&w, d);
	return finish_wait(&w, vn_flush(d, 0, waited_for, &w));
}
