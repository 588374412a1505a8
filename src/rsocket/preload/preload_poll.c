// preload_poll.c - poll and select over a program's descriptors, some of which are rsockets
// follows: poll(2), select(2)
// SPDX-License-Identifier: MIT
#undef _FORTIFY_SOURCE
#include "rsocket/preload/preload.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/select.h>
#include <time.h>

static bool any_of(struct pollfd *fds, nfds_t n)
{
	struct pre_sock *s;

	for (nfds_t i = 0; i < n && pre_any(); i++) {
		s = fds[i].fd < 0 ? NULL : pre_get(fds[i].fd);
		if (s) {
			pre_put(s);
			return true;
		}
	}
	return false;
}

struct mixed {
	nfds_t n;
	struct pollfd *real;
	struct pre_sock **held;
	bool many;
};

static void give_back(struct mixed *m)
{
	int saved = errno;

	for (nfds_t i = 0; m->held && i < m->n; i++)
		if (m->held[i])
			pre_put(m->held[i]);
	if (m->many) {
		free(m->real);
		free(m->held);
	}
	errno = saved;
}

enum { FEW = 16 }; /* sets of this size need no allocator, which a signal handler may have interrupted */

/* also: a further descriptor that ends the wait, or -1. */
static int poll_mixed(struct pollfd *fds, nfds_t n, int timeout, int also)
{
	PRE_ERRNO;
	struct pollfd real[FEW];
	struct pre_sock *held[FEW] = {0};
	__attribute__((cleanup(give_back))) struct mixed m = {.n = n, .real = real, .held = held, .many = n >= FEW};
	int r;

	if (m.many) {
		m.real = calloc(n + 1, sizeof(struct pollfd));
		m.held = calloc(n + 1, sizeof(struct pre_sock *));
	}

	if (!m.real || !m.held)
		return -1;
	for (nfds_t i = 0; i < n; i++) {
		m.held[i] = fds[i].fd < 0 ? NULL : pre_take(fds[i].fd);
		m.real[i] = fds[i];
		if (m.held[i])
			m.real[i].fd = m.held[i]->rs >= 0 ? m.held[i]->rs : m.held[i]->plain;
	}
	m.real[n] = (struct pollfd){.fd = also, .events = POLLIN};
	r = rpoll(m.real, n + (also >= 0), timeout);
	if (r > 0 && also >= 0)
		r -= m.real[n].revents != 0;
	for (nfds_t i = 0; r >= 0 && i < n; i++)
		fds[i].revents = m.real[i].revents;
	errno_.good = r >= 0;
	return r;
}

PRE_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	pre_init();
	return any_of(fds, n) ? poll_mixed(fds, n, timeout, -1) : pre_real.poll(fds, n, timeout);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);
PRE_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	return room / sizeof(*fds) < n ? (abort(), -1) : poll(fds, n, timeout);
}

static int ms_of(const struct timespec *t)
{
	int64_t ms;

	if (!t)
		return -1;
	ms = (int64_t)t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000;
	return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

int64_t pre_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int poll_masked(struct pollfd *fds, nfds_t n, int timeout, const sigset_t *mask)
{
	PRE_ERRNO;
	int64_t end = pre_now_ms() + timeout;
	struct pre_mask m;
	bool interrupted;
	int r, fd;

	if (!mask)
		return poll_mixed(fds, n, timeout, -1);
	do {
		fd = pre_mask_begin(&m, mask);
		r = poll_mixed(fds, n, timeout, fd);
		interrupted = pre_mask_end(&m, fd);
		if (timeout > 0)
			timeout = end > pre_now_ms() ? (int)(end - pre_now_ms()) : 0;
	} while (!r && !interrupted && timeout);
	if (!r && interrupted) {
		errno = EINTR;
		r = -1;
	}
	errno_.good = r >= 0;
	return r;
}

/* librdmacm calls ppoll when it sleeps without a lock (rs_wait.c); in poll it may hold one. */
static int sleep_below(struct pollfd *fds, nfds_t n, const struct timespec *timeout)
{
	int r = -1, err = EINTR;

	if (pre_fall_asleep()) {
		r = pre_real.ppoll(fds, n, timeout, NULL);
		err = errno;
	}
	pre_wake_up();
	errno = err;
	return r;
}

PRE_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	pre_init();
	if (pre_me.inside && !mask)
		return sleep_below(fds, n, timeout);
	if (!any_of(fds, n))
		return pre_real.ppoll(fds, n, timeout, mask);
	return poll_masked(fds, n, ms_of(timeout), mask);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t room);
PRE_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
                           size_t room)
{
	return room / sizeof(*fds) < n ? (abort(), -1) : ppoll(fds, n, timeout, mask);
}

/* Turns the three sets into one list. */
static nfds_t to_poll(int n, const fd_set *r, const fd_set *w, const fd_set *x, struct pollfd *fds)
{
	nfds_t count = 0;

	for (int fd = 0; fd < n; fd++) {
		short events = (short)((r && FD_ISSET(fd, r) ? POLLIN : 0) | (w && FD_ISSET(fd, w) ? POLLOUT : 0) |
		                       (x && FD_ISSET(fd, x) ? POLLPRI : 0));

		if (events)
			fds[count++] = (struct pollfd){.fd = fd, .events = events};
	}
	return count;
}

static int set_if(fd_set *set, const struct pollfd *p, short asked, short got)
{
	if (!set || !(p->events & asked) || !(p->revents & got))
		return 0;
	FD_SET(p->fd, set);
	return 1;
}

static int select_mixed(struct pollfd *fds, nfds_t n, fd_set *r, fd_set *w, fd_set *x, int timeout,
                        const sigset_t *mask)
{
	int count = poll_masked(fds, n, timeout, mask);

	if (count < 0)
		return -1;
	for (nfds_t i = 0; i < n; i++) {
		if (fds[i].revents & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
	}
	if (r)
		FD_ZERO(r);
	if (w)
		FD_ZERO(w);
	if (x)
		FD_ZERO(x);
	count = 0;
	for (nfds_t i = 0; i < n; i++) {
		count += set_if(r, &fds[i], POLLIN, POLLIN | POLLHUP | POLLERR);
		count += set_if(w, &fds[i], POLLOUT, POLLOUT | POLLERR);
		count += set_if(x, &fds[i], POLLPRI, POLLPRI);
	}
	return count;
}

static void free_list(struct pollfd **fds)
{
	int saved = errno;

	free(*fds);
	errno = saved;
}

static int select_masked(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *timeout, const sigset_t *mask)
{
	__attribute__((cleanup(free_list))) struct pollfd *fds = calloc((size_t)n + 1, sizeof(*fds));
	nfds_t count;

	if (!fds)
		return -1;
	count = to_poll(n, r, w, x, fds);
	if (!any_of(fds, count))
		return pre_real.pselect(n, r, w, x, timeout, mask);
	return select_mixed(fds, count, r, w, x, ms_of(timeout), mask);
}

PRE_EXPORT int select(int n, fd_set *restrict r, fd_set *restrict w, fd_set *restrict x,
                      struct timeval *restrict timeout)
{
	struct timespec ts;
	int64_t left;
	int got;

	pre_init();
	if (!pre_any() || n < 0 || n > FD_SETSIZE)
		return pre_real.select(n, r, w, x, timeout);
	if (!timeout)
		return select_masked(n, r, w, x, NULL, NULL);
	/* select accepts more than 999,999 microseconds, pselect does not */
	ts = (struct timespec){timeout->tv_sec + timeout->tv_usec / 1000000, timeout->tv_usec % 1000000 * 1000};
	left = pre_now_ms() + ms_of(&ts);
	got = select_masked(n, r, w, x, &ts, NULL);
	left -= pre_now_ms();
	*timeout =
	        left > 0 ? (struct timeval){left / 1000, left % 1000 * 1000} : (struct timeval){0}; /* as Linux does */
	return got;
}

PRE_EXPORT int pselect(int n, fd_set *restrict r, fd_set *restrict w, fd_set *restrict x,
                       const struct timespec *restrict timeout, const sigset_t *restrict mask)
{
	pre_init();
	if (!pre_any() || n < 0 || n > FD_SETSIZE)
		return pre_real.pselect(n, r, w, x, timeout, mask);
	return select_masked(n, r, w, x, timeout, mask);
}
