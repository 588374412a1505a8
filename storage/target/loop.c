// loop.c - the event loop: one thread waits for descriptors
// follows: epoll(7), clock_gettime(2)
// SPDX-License-Identifier: MIT
#include "target/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64

struct nt_loop {
	int fd, n;
	struct epoll_event events[BATCH]; /* events of the present iteration */
};

struct nt_loop *nt_loop_open(void)
{
	struct nt_loop *l = calloc(1, sizeof(*l));

	if (l && (l->fd = epoll_create1(EPOLL_CLOEXEC)) < 0) {
		free(l);
		l = NULL;
	}
	return l;
}

void nt_loop_close(struct nt_loop *l)
{
	if (!l)
		return;
	close(l->fd);
	free(l);
}

int nt_loop_add(struct nt_loop *l, struct nt_watch *w)
{
	struct epoll_event e = {.events = w->events, .data.ptr = w};

	return epoll_ctl(l->fd, EPOLL_CTL_ADD, w->fd, &e) ? errno : 0;
}

void nt_loop_change(struct nt_loop *l, struct nt_watch *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = w};

	if (w->events == events)
		return;
	w->events = events;
	epoll_ctl(l->fd, EPOLL_CTL_MOD, w->fd, &e);
}

void nt_loop_remove(struct nt_loop *l, struct nt_watch *w)
{
	epoll_ctl(l->fd, EPOLL_CTL_DEL, w->fd, NULL);
	for (int i = 0; i < l->n; i++)
		if (l->events[i].data.ptr == w)
			l->events[i].data.ptr = NULL;
}

void nt_loop_once(struct nt_loop *l, int timeout_ms, uint64_t *now)
{
	int n = epoll_wait(l->fd, l->events, BATCH, timeout_ms);

	*now = nt_now();
	l->n = n > 0 ? n : 0;
	for (int i = 0; i < l->n; i++) {
		struct nt_watch *w = l->events[i].data.ptr;

		if (w)
			w->ready(w, l->events[i].events);
	}
	l->n = 0;
}

uint64_t nt_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
