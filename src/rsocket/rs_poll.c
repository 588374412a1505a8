// rs_poll.c - rpoll and rselect, over rsockets and other descriptors together
// follows: rsocket(7), poll(2), select(2)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static short ready_stream(struct rsocket *rs, short events)
{
	short r = 0;

	if (rs->rx.unread || !rs->can_read)
		r |= POLLIN | POLLRDNORM;
	if (!rs->can_read)
		r |= POLLRDHUP;
	if (rs_can_send(rs) || !rs->can_write)
		r |= POLLOUT | POLLWRNORM;
	r &= events;
	/* Programs treat a hang-up as the end, so it is reported only when all data before it has been read. */
	if (rs->state == RS_DISCONNECTED && !(rs->rx.unread && (r & POLLIN)))
		r |= POLLHUP;
	else if (rs->state == RS_FAILED)
		r |= POLLERR | POLLHUP;
	return r;
}

short rs_ready(struct rsocket *rs, short events)
{
	if (rs->closed)
		return POLLNVAL;
	if (rs->type == SOCK_DGRAM)
		return (short)(events & ((rs_dgram_readable(rs) ? POLLIN | POLLRDNORM : 0) |
		                         (rs_dgram_writable(rs) ? POLLOUT | POLLWRNORM : 0)));
	switch (rs->state) {
	case RS_LISTENING:
		if (rs->deaf)
			return (short)(POLLHUP | (events & (POLLIN | POLLRDNORM | POLLRDHUP)));
		return (short)(events & (rs->accept_head ? POLLIN | POLLRDNORM : 0));
	case RS_CONNECTED:
	case RS_DISCONNECTED:
	case RS_FAILED:
		return ready_stream(rs, events);
	case RS_REFUSED:
		return (short)((events & (POLLIN | POLLOUT)) | POLLERR | POLLHUP);
	case RS_INIT:
	case RS_BOUND:
		return (short)(POLLHUP | (events & POLLOUT));
	default:
		return 0;
	}
}

/* Polls everything once, without sleeping. */
static int check_fds(struct pollfd *fds, nfds_t n)
{
	struct rsocket *rs;
	int ready = 0;

	for (nfds_t i = 0; i < n; i++) {
		fds[i].revents = 0;
		rs = fds[i].fd < 0 ? NULL : rs_find(fds[i].fd);
		if (rs) {
			vb_mutex_lock(&rs->lock, VB_RANK_RS);
			rs_process(rs);
			fds[i].revents = rs_ready(rs, fds[i].events);
			vb_mutex_unlock(&rs->lock);
			rs_put(rs);
		} else {
			poll(&fds[i], 1, 0);
		}
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* The descriptor that poll(2) waits for in place of an rsocket. */
static int stand_in(struct rsocket *rs)
{
	if (rs->type == SOCK_DGRAM)
		return rs_dgram_wait_fd(rs);
	return rs->channel && rs->state >= RS_CONNECTED ? rs->channel->fd : -1;
}

/* Registers this thread as a watcher, arms, and polls once more: later events wake it. */
static int watch_all(struct pollfd *fds, nfds_t n, struct pollfd *real, struct rsocket **held)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct rsocket *rs = held[i] = fds[i].fd < 0 ? NULL : rs_find(fds[i].fd);

		real[i] = (struct pollfd){.fd = fds[i].fd, .events = fds[i].events};
		if (!rs)
			continue;
		vb_mutex_lock(&rs->lock, VB_RANK_RS);
		rs->watchers++;
		rs_arm(rs);
		rs_process(rs);
		fds[i].revents = rs_ready(rs, fds[i].events);
		ready += fds[i].revents != 0;
		real[i] = (struct pollfd){.fd = stand_in(rs), .events = POLLIN};
		vb_mutex_unlock(&rs->lock);
	}
	return ready;
}

static void unwatch_all(nfds_t n, struct pollfd *real, struct rsocket **held)
{
	for (nfds_t i = 0; i < n; i++) {
		struct rsocket *rs = held[i];

		if (!rs)
			continue;
		vb_mutex_lock(&rs->lock, VB_RANK_RS);
		rs->watchers--;
		if (real[i].revents)
			rs_drain(rs);
		vb_mutex_unlock(&rs->lock);
		rs_put(rs);
	}
}

struct watched {
	nfds_t n;
	struct pollfd *real;
	struct rsocket **held;
};

/* Ends the wait, also if the thread is cancelled. */
static void end_watch(void *arg)
{
	struct watched *w = arg;

	unwatch_all(w->n, w->real, w->held);
	rs_sleeper_end();
	free(w->real);
	free(w->held);
}

static int poll_doze(struct pollfd *fds, nfds_t n, const struct rs_deadline *d, const unsigned *version, unsigned was)
{
	struct watched w = {n, calloc(n + 1, sizeof(struct pollfd)), calloc(n + 1, sizeof(struct rsocket *))};
	int wake, r = -1, err = ENOMEM;
	bool woken = rs_sleeper_begin(&wake);

	if (woken && w.real && w.held) {
		w.real[n] = (struct pollfd){.fd = wake, .events = POLLIN};
		r = watch_all(fds, n, w.real, w.held);
		if (!r && version && __atomic_load_n(version, __ATOMIC_ACQUIRE) != was)
			r = 1;
		if (!r)
			r = rs_poll_soft(w.real, n + 1, rs_deadline_left(d), end_watch, &w);
		err = r < 0 ? errno : 0;
	} else {
		w.n = 0;
	}
	end_watch(&w);
	errno = err;
	return r;
}

static int poll_until(struct pollfd *fds, nfds_t nfds, const struct rs_deadline *d, const unsigned *version,
                      unsigned was)
{
	struct timespec t, start;
	int r;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		r = check_fds(fds, nfds);
		if (r || !rs_deadline_left(d) || (version && __atomic_load_n(version, __ATOMIC_ACQUIRE) != was))
			return r;
		clock_gettime(CLOCK_MONOTONIC, &t);
		if ((t.tv_sec - start.tv_sec) * 1000000 + (t.tv_nsec - start.tv_nsec) / 1000 < rs_spin_us) {
			sched_yield();
			continue;
		}
		if (poll_doze(fds, nfds, d, version, was) < 0)
			return -1;
	}
}

int rs_poll_until(struct pollfd *fds, nfds_t nfds, const struct rs_deadline *d, const unsigned *version, unsigned was)
{
	int r;

	rs_firm();
	r = poll_until(fds, nfds, d, version, was);
	rs_soft();
	return r;
}

RS_EXPORT int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct rs_deadline d = rs_deadline_ms(timeout);

	return rs_poll_until(fds, nfds, &d, NULL, 0);
}

static int from_select(int nfds, const fd_set *r, const fd_set *w, const fd_set *x, struct pollfd *fds)
{
	int n = 0;

	for (int fd = 0; fd < nfds; fd++) {
		short events = 0;

		if (r && FD_ISSET(fd, r))
			events |= POLLIN;
		if (w && FD_ISSET(fd, w))
			events |= POLLOUT;
		if (x && FD_ISSET(fd, x))
			events |= POLLPRI;
		if (events)
			fds[n++] = (struct pollfd){.fd = fd, .events = events};
	}
	return n;
}

static int to_select(const struct pollfd *fds, int n, fd_set *r, fd_set *w, fd_set *x)
{
	int count = 0;

	for (int i = 0; i < n; i++) {
		const struct pollfd *p = &fds[i];

		if (r && (p->events & POLLIN) && (p->revents & (POLLIN | POLLHUP | POLLERR))) {
			FD_SET(p->fd, r);
			count++;
		}
		if (w && (p->events & POLLOUT) && (p->revents & (POLLOUT | POLLERR))) {
			FD_SET(p->fd, w);
			count++;
		}
		if (x && (p->events & POLLPRI) && (p->revents & (POLLPRI | POLLERR))) {
			FD_SET(p->fd, x);
			count++;
		}
	}
	return count;
}

RS_EXPORT int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	struct rs_deadline d = {0};
	struct pollfd *fds;
	int n, r;

	if (nfds < 0 || nfds > FD_SETSIZE)
		return rs_fail(EINVAL);
	fds = calloc((size_t)nfds + 1, sizeof(*fds));
	if (!fds)
		return -1;
	if (timeout)
		d = rs_deadline_ms((int64_t)timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
	n = from_select(nfds, readfds, writefds, exceptfds, fds);
	pthread_cleanup_push(free, fds);
	r = rs_poll_until(fds, (nfds_t)n, &d, NULL, 0);
	pthread_cleanup_pop(0);
	for (int i = 0; r > 0 && i < n; i++)
		if (fds[i].revents & POLLNVAL)
			r = rs_fail(EBADF);
	if (r >= 0) {
		if (readfds)
			FD_ZERO(readfds);
		if (writefds)
			FD_ZERO(writefds);
		if (exceptfds)
			FD_ZERO(exceptfds);
		r = to_select(fds, n, readfds, writefds, exceptfds);
	}
	free(fds);
	return r;
}
