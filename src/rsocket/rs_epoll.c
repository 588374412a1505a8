// rs_epoll.c - repoll_create, repoll_ctl, repoll_wait: a set of descriptors that is kept between calls
// follows: rsocket(7) of rdma-core 65; epoll(7)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Later headers declare these. */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* The set's descriptor is an eventfd: a unique number that close() frees. */
struct set {
	struct set *next;
	int epfd;
	unsigned version, generation, users; /* version: of the list, accessed atomically */
	bool gone;
	struct pollfd *fds;
	epoll_data_t *data;
	unsigned count, room;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set *sets; /* lock guards the sets and their contents */

static struct set *find_set(int epfd)
{
	struct set *s = sets;

	while (s && (s->epfd != epfd || s->generation != rs_fork_generation))
		s = s->next;
	return s;
}

/* In a child: forgets the sets, which are the parent's. Another thread of the parent may have been changing them. */
void rs_epoll_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	sets = NULL;
}

RS_EXPORT int repoll_create(int flags)
{
	struct set *s = calloc(1, sizeof(*s));

	if (!s)
		return -1;
	s->generation = rs_fork_generation;
	s->epfd = eventfd(0, flags & EPOLL_CLOEXEC ? EFD_CLOEXEC : 0);
	if (s->epfd < 0) {
		free(s);
		return -1;
	}
	vb_mutex_lock(&lock, VB_RANK_RS_EPOLL);
	s->next = sets;
	sets = s;
	vb_mutex_unlock(&lock);
	return s->epfd;
}

static bool grow_set(struct set *s)
{
	unsigned room = s->room ? 2 * s->room : 16;
	struct pollfd *fds = realloc(s->fds, room * sizeof(*fds));
	epoll_data_t *data;

	if (!fds)
		return false;
	s->fds = fds;
	data = realloc(s->data, room * sizeof(*data));
	if (!data)
		return false;
	s->data = data;
	s->room = room;
	return true;
}

static int change_set(struct set *s, int op, int fd, const struct epoll_event *event)
{
	unsigned i = 0;

	while (i < s->count && s->fds[i].fd != fd)
		i++;
	if (op == EPOLL_CTL_ADD && i < s->count)
		return EEXIST;
	if (op != EPOLL_CTL_ADD && i == s->count)
		return ENOENT;
	if (op == EPOLL_CTL_DEL) {
		s->fds[i] = s->fds[--s->count];
		s->data[i] = s->data[s->count];
		return 0;
	}
	if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD)
		return EINVAL;
	if (!event)
		return EFAULT;
	if (i == s->room && !grow_set(s))
		return ENOMEM;
	s->count += op == EPOLL_CTL_ADD;
	s->fds[i] = (struct pollfd){.fd = fd, .events = (short)(event->events & 0x7FFF)};
	s->data[i] = event->data;
	return 0;
}

RS_EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct set *s;
	int err = EBADF;

	if (fd >= 0) {
		vb_mutex_lock(&lock, VB_RANK_RS_EPOLL);
		s = find_set(epfd);
		err = !s || epfd == fd ? EINVAL : change_set(s, op, fd, event);
		if (!err)
			__atomic_fetch_add(&s->version, 1, __ATOMIC_RELEASE);
		vb_mutex_unlock(&lock);
	}
	if (!err)
		rs_wake_all();
	return err ? rs_fail(err) : 0;
}

static void release_set(struct set *s)
{
	if (s->users || !s->gone)
		return;
	free(s->fds);
	free(s->data);
	free(s);
}

/* Matches the results for the polled list to the present entries of the set. */
static int collect_results(struct set *s, const struct pollfd *seen, unsigned n, struct epoll_event *out, int max)
{
	int got = 0;

	for (unsigned i = 0; i < n && i < s->count && got < max; i++)
		if (seen[i].revents && s->fds[i].fd == seen[i].fd)
			out[got++] = (struct epoll_event){.events = (uint16_t)seen[i].revents, .data = s->data[i]};
	return got;
}

struct waiting {
	struct set *set;
	struct pollfd *fds;
};

static void called_off(void *arg)
{
	struct waiting *w = arg;

	vb_mutex_lock(&lock, VB_RANK_RS_EPOLL);
	w->set->users--;
	release_set(w->set);
	vb_mutex_unlock(&lock);
	free(w->fds);
}

static int poll_list(struct set *s, struct pollfd *fds, unsigned n, const struct rs_deadline *d, unsigned version)
{
	struct waiting w = {s, fds};
	int r;

	pthread_cleanup_push(called_off, &w);
	r = rs_poll_until(fds, n, d, &s->version, version);
	pthread_cleanup_pop(0);
	return r;
}

RS_EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	struct rs_deadline d = rs_deadline_ms(timeout);
	struct pollfd *fds;
	struct set *s;
	unsigned n, version;
	int r = 0;

	if (maxevents <= 0)
		return rs_fail(EINVAL);
	vb_mutex_lock(&lock, VB_RANK_RS_EPOLL);
	s = find_set(epfd);
	if (s)
		s->users++;
	while (s && !r && !s->gone) {
		n = s->count;
		version = s->version;
		fds = calloc(n + 1, sizeof(*fds));
		if (fds && n)
			memcpy(fds, s->fds, n * sizeof(*fds));
		vb_mutex_unlock(&lock);
		r = fds ? poll_list(s, fds, n, &d, version) : -1;
		vb_mutex_lock(&lock, VB_RANK_RS_EPOLL);
		if (r > 0)
			r = collect_results(s, fds, n, events, maxevents);
		free(fds);
		if (!r && !rs_deadline_left(&d))
			break;
	}
	if (s) {
		s->users--;
		release_set(s);
	}
	vb_mutex_unlock(&lock);
	return s ? r : rs_fail(EINVAL);
}

/* The part of rclose for a set. */
bool rs_epoll_close(int epfd)
{
	struct set **at, *s;

	vb_mutex_lock(&lock, VB_RANK_RS_EPOLL);
	s = find_set(epfd);
	for (at = &sets; s && *at != s; at = &(*at)->next)
		;
	if (s) {
		*at = s->next;
		s->gone = true;
		__atomic_fetch_add(&s->version, 1, __ATOMIC_RELEASE);
		release_set(s);
	}
	vb_mutex_unlock(&lock);
	if (!s)
		return false;
	rs_wake_all();
	close(epfd);
	return true;
}
