// discard.c - closes descriptors from programs of other users without blocking on them
// follows: unix(7) (SCM_RIGHTS), socket(7) (SO_LINGER), close(2), unshare(2)
// SPDX-License-Identifier: MIT
#include "broker/server/discard.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES 65536
#define MAX_PENDING 256

static void close_fds(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Signals stay blocked: the program's own threads handle them. */
bool vb_thread_start(void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;

	if (pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started = !pthread_create(&thread, &attr, run, arg);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return started;
}

struct handover {
	sem_t has_copies, others_closed;
};

static void wait_semaphore(sem_t *sem)
{
	while (sem_wait(sem))
		;
}

static void *hold_copies(void *arg)
{
	struct handover *h = arg;

	(void)!unshare(CLONE_FILES); /* if refused, the broker's own close is the last one, and may block */
	sem_post(&h->has_copies);
	wait_semaphore(&h->others_closed);
	sem_destroy(&h->has_copies);
	sem_destroy(&h->others_closed);
	free(h);
	return NULL; /* the copies are closed as the thread exits: an exiting thread does not linger */
}

static void close_in_thread(const int *fds, int n)
{
	struct handover *h = calloc(1, sizeof(*h));

	if (!h || sem_init(&h->has_copies, 0, 0) || sem_init(&h->others_closed, 0, 0) ||
	    !vb_thread_start(hold_copies, h)) {
		free(h);
		close_fds(fds, n);
		return;
	}
	wait_semaphore(&h->has_copies);
	close_fds(fds, n);
	sem_post(&h->others_closed);
}

static _Thread_local struct {
	int n, fds[MAX_PENDING];
} pending;

void vb_discard_flush(void)
{
	if (pending.n)
		close_in_thread(pending.fds, pending.n);
	pending.n = 0;
}

void vb_discard(const int *fds, int n)
{
	for (int i = 0; i < n; i++) {
		if (fds[i] < 0)
			continue;
		if (pending.n == MAX_PENDING)
			vb_discard_flush();
		pending.fds[pending.n++] = fds[i];
	}
}
