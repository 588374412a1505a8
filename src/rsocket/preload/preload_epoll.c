// preload_epoll.c - epoll with rsockets among its descriptors
// follows: epoll(7)
// SPDX-License-Identifier: MIT
#include "rsocket/preload/preload.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/calls.h"
#include "util/lock.h"

/*
 * The kernel's epoll set contains the descriptors that are not rsockets. The rsockets are kept here, and rpoll waits
 * for them and for the epoll descriptor together. An edge-triggered event is reported again if the program has read, or
 * has found no room to write, since the last report.
 */
struct entry {
	struct pre_late late;
	struct entry *next;
	struct pre_sock *sock;
	int fd; /* the program's descriptor */
	struct epoll_event ev;
	uint32_t told;
	unsigned reads, blocks;
};
struct set {
	struct pre_late late;
	struct set *next;
	int epfd, kick; /* kick: an eventfd in the kernel's set that ends waits */
	struct entry *entries;
	unsigned count;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set *sets; /* guarded by lock */

static void lock_sets(void)
{
	vb_mutex_lock(&lock, VB_RANK_PRE_EPOLL);
}

static void unlock_sets(void)
{
	vb_mutex_unlock(&lock);
}

__attribute__((constructor)) static void follow_epoll_forks(void)
{
	pre_init(); /* registers the table's handlers first, so that fork() takes that spin lock after the mutexes */
	pthread_atfork(lock_sets, unlock_sets, unlock_sets);
}

/* Takes the lock. A thread is not cancelled while it holds it. */
static int hold_sets(void)
{
	int cancel;

	pre_enter();
	vb_cancel_defer(&cancel);
	vb_mutex_lock(&lock, VB_RANK_PRE_EPOLL);
	return cancel;
}

static void let_go(int cancel)
{
	vb_mutex_unlock(&lock);
	vb_cancel_restore(cancel);
	pre_leave();
}

static struct set *find_set(int epfd)
{
	struct set *s = sets;

	while (s && s->epfd != epfd)
		s = s->next;
	return s;
}

static struct set *find_or_make(int epfd)
{
	struct set *s = find_set(epfd);
	struct epoll_event ev = {.events = EPOLLIN};

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->epfd = epfd;
	s->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ev.data.ptr = s;
	if (s->kick < 0 || pre_real.epoll_ctl(epfd, EPOLL_CTL_ADD, s->kick, &ev)) {
		if (s->kick >= 0)
			pre_real.close(s->kick);
		free(s);
		return NULL;
	}
	s->next = sets;
	return sets = s;
}

static void kick_set(struct set *s)
{
	uint64_t one = 1;

	(void)!pre_real.write(s->kick, &one, sizeof(one));
}

void pre_epoll_kick(struct pre_sock *sock)
{
	const int cancel = hold_sets();
	for (struct set *s = sets; s; s = s->next)
		for (struct entry *e = s->entries; e; e = e->next)
			if (e->sock == sock && (e->ev.events & EPOLLET)) {
				kick_set(s);
				break;
			}
	let_go(cancel);
}

static struct entry **entry_at(struct set *s, int fd)
{
	struct entry **at = &s->entries;

	while (*at && (*at)->fd != fd)
		at = &(*at)->next;
	return at;
}

static void arm_entry(struct entry *e, const struct epoll_event *ev)
{
	e->ev = *ev;
	e->told = 0;
}

static void free_entry(struct pre_late *l)
{
	free((char *)l - offsetof(struct entry, late));
}

static void free_set(struct pre_late *l)
{
	free((char *)l - offsetof(struct set, late));
}

/* The caller holds a reference of sock. The entry takes none of its own. */
static int change_entry(struct set *s, int op, int fd, struct epoll_event *ev, struct pre_sock *sock)
{
	struct entry **at = entry_at(s, fd), *e = *at;

	if (op == EPOLL_CTL_ADD ? e != NULL : !e)
		return op == EPOLL_CTL_ADD ? EEXIST : ENOENT;
	if (op == EPOLL_CTL_ADD) {
		e = calloc(1, sizeof(*e));
		if (!e)
			return ENOMEM;
		e->sock = sock;
		e->fd = fd;
		*at = e;
		s->count++;
		__atomic_fetch_add(&sock->refs_by_epoll, 1, __ATOMIC_RELAXED);
	}
	if (op != EPOLL_CTL_DEL) {
		arm_entry(e, ev);
		return 0;
	}
	*at = e->next;
	s->count--;
	__atomic_fetch_sub(&e->sock->refs_by_epoll, 1, __ATOMIC_RELAXED);
	pre_end(&e->late, free_entry);
	return 0;
}

PRE_EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct pre_sock *sock;
	struct set *s;
	int err = ENOMEM;

	pre_init();
	sock = pre_take(fd);
	if (!sock)
		return pre_real.epoll_ctl(epfd, op, fd, ev);
	const int cancel = hold_sets();
	s = find_or_make(epfd);
	if (s)
		err = change_entry(s, op, fd, ev, sock);
	if (!err)
		kick_set(s);
	let_go(cancel);
	/* The entry needs no reference: the program's descriptor has one, and closing it removes the entry first. */
	pre_put(sock);
	if (err)
		errno = err;
	return err ? -1 : 0;
}

static void forget_set(struct set **at)
{
	struct set *s = *at;

	*at = s->next;
	while (s->entries)
		change_entry(s, EPOLL_CTL_DEL, s->entries->fd, NULL, NULL);
	pre_real.close(s->kick);
	pre_end(&s->late, free_set);
}

/* The program closes fd, which is an rsocket or an epoll set. */
void pre_epoll_forget(int fd)
{
	const int cancel = hold_sets();
	for (struct set **at = &sets; *at;) {
		if ((*at)->epfd == fd) {
			forget_set(at);
			continue;
		}
		if (*entry_at(*at, fd))
			change_entry(*at, EPOLL_CTL_DEL, fd, NULL, NULL);
		at = &(*at)->next;
	}
	let_go(cancel);
}

void pre_epoll_forget_range(unsigned first, unsigned last)
{
	const int cancel = hold_sets();
	for (struct set **at = &sets; *at;) {
		if ((unsigned)(*at)->epfd >= first && (unsigned)(*at)->epfd <= last)
			forget_set(at);
		else
			at = &(*at)->next;
	}
	let_go(cancel);
}

static uint32_t told_still(struct entry *e)
{
	unsigned reads = __atomic_load_n(&e->sock->in_reads, __ATOMIC_ACQUIRE);
	unsigned blocks = __atomic_load_n(&e->sock->out_blocks, __ATOMIC_ACQUIRE);

	if (e->reads != reads)
		e->told &= ~(uint32_t)(EPOLLIN | EPOLLRDNORM | EPOLLRDHUP);
	if (e->blocks != blocks)
		e->told &= ~(uint32_t)(EPOLLOUT | EPOLLWRNORM);
	e->reads = reads;
	e->blocks = blocks;
	return e->told;
}

static struct pollfd entry_pollfd(struct entry *e)
{
	uint32_t events = e->ev.events & 0xFFFF;

	if (e->ev.events & EPOLLET) {
		uint32_t told = told_still(e);

		events &= ~told;
		if (told & (EPOLLHUP | EPOLLERR))
			return (struct pollfd){.fd = -1};
	}
	if (e->ev.events & (1u << 29)) /* one-shot, and reported already */
		return (struct pollfd){.fd = -1};
	return (struct pollfd){.fd = e->sock->rs >= 0 ? e->sock->rs : e->sock->plain, .events = (short)events};
}

/* Builds the list for rpoll, with two more places for the kernel's set and for a signal. NULL: the set has no rsockets,
 * or there is no memory. */
static struct pollfd *set_pollfds(int epfd, unsigned *count)
{
	struct pollfd *fds = NULL;
	struct set *s;

	const int cancel = hold_sets();
	s = find_set(epfd);
	*count = 0;
	if (s && s->count)
		fds = calloc(s->count + 2, sizeof(*fds));
	if (fds) {
		for (struct entry *e = s->entries; e; e = e->next)
			fds[(*count)++] = entry_pollfd(e);
		fds[*count] = (struct pollfd){.fd = epfd, .events = POLLIN};
	}
	let_go(cancel);
	return fds;
}

static void report_entry(struct entry *e, short revents, struct epoll_event *out)
{
	*out = (struct epoll_event){.events = (uint16_t)revents, .data = e->ev.data};
	if (e->ev.events & EPOLLET)
		e->told |= (uint16_t)revents;
	if (e->ev.events & EPOLLONESHOT)
		e->ev.events |= 1u << 29;
}

static int collect_events(int epfd, const struct pollfd *fds, unsigned count, struct epoll_event *out, int max)
{
	struct set *s;
	unsigned i = 0;
	int n = 0;

	const int cancel = hold_sets();
	s = find_set(epfd);
	for (struct entry *e = s ? s->entries : NULL; e && i < count && n < max; e = e->next, i++) {
		int now = e->sock->rs >= 0 ? e->sock->rs : e->sock->plain;

		/* The list may have changed in between. The next call reports what is missed here. */
		if (fds[i].revents && fds[i].fd == now)
			report_entry(e, fds[i].revents, &out[n++]);
	}
	let_go(cancel);
	return n;
}

/* Removes our own descriptor from the kernel's events. */
static int strip_kick(int epfd, struct epoll_event *ev, int n)
{
	struct set *s;
	uint64_t value;
	int kept = 0;

	const int cancel = hold_sets();
	s = find_set(epfd);
	for (int i = 0; i < n; i++) {
		if (s && ev[i].data.ptr == s)
			(void)!pre_real.read(s->kick, &value, sizeof(value));
		else
			ev[kept++] = ev[i];
	}
	let_go(cancel);
	return kept;
}

static void free_list(struct pollfd **fds)
{
	int saved = errno;

	free(*fds);
	errno = saved;
}

/* Waits once for the rsockets, the kernel's set and a signal together. */
static int poll_once(int epfd, struct pollfd *fds, unsigned count, struct epoll_event *ev, int max, int timeout,
                     int also)
{
	int n, more;

	fds[count + 1] = (struct pollfd){.fd = also, .events = POLLIN};
	n = rpoll(fds, count + 1 + (also >= 0), timeout);
	if (n <= 0)
		return n;
	n = collect_events(epfd, fds, count, ev, max);
	if (n < max && fds[count].revents) {
		more = pre_real.epoll_pwait(epfd, ev + n, max - n, 0, NULL);
		n += more > 0 ? strip_kick(epfd, ev + n, more) : 0;
	}
	return n;
}

static int wait_once(int epfd, struct epoll_event *ev, int max, int timeout, const sigset_t *mask, bool *interrupted)
{
	unsigned count;
	__attribute__((cleanup(free_list))) struct pollfd *fds = set_pollfds(epfd, &count);
	struct pre_mask m;
	int n, fd;

	if (!fds) {
		n = pre_real.epoll_pwait(epfd, ev, max, timeout, mask);
		return n > 0 ? strip_kick(epfd, ev, n) : n;
	}
	if (!mask)
		return poll_once(epfd, fds, count, ev, max, timeout, -1);
	fd = pre_mask_begin(&m, mask);
	n = poll_once(epfd, fds, count, ev, max, timeout, fd);
	*interrupted = pre_mask_end(&m, fd);
	return n;
}

PRE_EXPORT int epoll_pwait(int epfd, struct epoll_event *ev, int max, int timeout, const sigset_t *mask)
{
	PRE_ERRNO;
	int64_t end = pre_now_ms() + timeout;
	bool interrupted = false;
	int n, left = timeout;

	pre_init();
	if (max <= 0)
		return pre_real.epoll_pwait(epfd, ev, max, timeout, mask);
	do {
		n = wait_once(epfd, ev, max, left, mask, &interrupted);
		if (timeout > 0)
			left = end > pre_now_ms() ? (int)(end - pre_now_ms()) : 0;
	} while (!n && left && !interrupted);
	if (!n && interrupted) {
		errno = EINTR;
		n = -1;
	}
	errno_.good = n >= 0;
	return n;
}

PRE_EXPORT int epoll_wait(int epfd, struct epoll_event *ev, int max, int timeout)
{
	return epoll_pwait(epfd, ev, max, timeout, NULL);
}
