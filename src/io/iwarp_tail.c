// iwarp_tail.c - the end of a stream: whoever made the connection is told, and what was said still arrives
// follows: RFC 5044, 7.4 (connection tear down); tcp(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/iwarp_path.h"

#define LINGER 2000000000ull /* ns: how long the peer has to take what is left, and to close its end */

/*
 * A socket that is closed while something unread stands in it resets the connection, and what is on its way to the peer is
 * lost. So it is shut down for sending first, and read until the peer has closed, too.
 */
struct vb_iwarp_tail {
	struct vb_watch watch; /* once it lingers */
	struct vb_node *node;
	enum { LIVES, ENDED, LINGERS } stage;
	void (*closed)(void *own, int status); /* NULL: nobody wants to know */
	void *own;
	int status;
	uint8_t *rest;
	size_t len, done;
	uint64_t until; /* ns */
	struct vb_iwarp_tail *next;
};

/* One list for the process: connections may be let go after their queue pair, and so after its node. */
static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_iwarp_tail *all;
static _Atomic uint64_t due; /* ns; 1: at once; 0: never */

struct vb_iwarp_tail *vb_iwarp_tail_new(struct vb_node *node, const struct vb_iwarp_stream *s)
{
	struct vb_iwarp_tail *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->watch.fd = s->fd;
	t->node = node;
	t->closed = s->closed;
	t->own = s->own;
	pthread_mutex_lock(&the_lock);
	t->next = all;
	all = t;
	pthread_mutex_unlock(&the_lock);
	return t;
}

static void forget(struct vb_iwarp_tail *t)
{
	pthread_mutex_lock(&the_lock);
	for (struct vb_iwarp_tail **p = &all; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	pthread_mutex_unlock(&the_lock);
	if (t->watch.fd >= 0)
		close(t->watch.fd);
	free(t->rest);
	free(t);
}

void vb_iwarp_tail_drop(struct vb_iwarp_tail *t)
{
	t->watch.fd = -1;
	forget(t);
}

void vb_iwarp_tail_end(struct vb_iwarp_tail *t, int status, uint8_t *rest, size_t len)
{
	pthread_mutex_lock(&the_lock);
	t->stage = ENDED;
	t->status = status;
	t->rest = rest;
	t->len = len;
	atomic_store(&due, 1);
	pthread_mutex_unlock(&the_lock);
	vb_qp1_wake(t->node);
}

/* --- what lingers --- */

/* Reads and drops what comes. false: the peer has closed, or the connection is gone. */
static bool drain(int fd)
{
	static uint8_t nowhere[65536]; /* written by one thread, read by none */

	for (int i = 0; i < 16; i++) {
		ssize_t n = recv(fd, nowhere, sizeof(nowhere), MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (!n)
			return false;
	}
	return true;
}

/* Sends the rest; once it is out, says that nothing follows. false: it cannot. */
static bool flush(struct vb_iwarp_tail *t)
{
	while (t->done < t->len) {
		ssize_t n = send(t->watch.fd, t->rest + t->done, t->len - t->done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		t->done += (size_t)n;
	}
	shutdown(t->watch.fd, SHUT_WR);
	return true;
}

static uint32_t interest(const struct vb_iwarp_tail *t)
{
	return EPOLLIN | (t->done < t->len ? EPOLLOUT : 0);
}

static void ready(struct vb_watch *w, uint32_t events)
{
	struct vb_iwarp_tail *t = (struct vb_iwarp_tail *)w; /* its first member */

	bool more = t->done < t->len;

	if ((more && !flush(t)) || !drain(w->fd)) {
		vb_watch_remove(t->node, w);
		forget(t);
	} else if (more && t->done == t->len) {
		vb_watch_change(t->node, w, interest(t));
	}
}

static void linger(struct vb_iwarp_tail *t)
{
	t->stage = LINGERS;
	t->until = vb_now() + LINGER;
	t->watch.fn = ready;
	if (!flush(t) || !drain(t->watch.fd) || vb_watch_add(t->node, &t->watch, interest(t)))
		forget(t);
}

/* --- in turn --- */

static struct vb_iwarp_tail *next_ended(struct vb_node *node)
{
	for (struct vb_iwarp_tail *t = all; t; t = t->next)
		if (t->node == node && t->stage == ENDED)
			return t;
	return NULL;
}

/* One whose time is up; else the time of the next, in *at. Under the_lock. */
static struct vb_iwarp_tail *next_late(struct vb_node *node, uint64_t now, uint64_t *at)
{
	*at = 0;
	for (struct vb_iwarp_tail *t = all; t; t = t->next) {
		if (t->node != node || t->stage != LINGERS)
			continue;
		if (t->until <= now)
			return t;
		if (!*at || t->until < *at)
			*at = t->until;
	}
	return NULL;
}

void vb_iwarp_tails(struct vb_node *node)
{
	uint64_t at = atomic_load(&due), now;
	struct vb_iwarp_tail *t;

	if (!at || (at > 1 && vb_now() < at))
		return;
	pthread_mutex_lock(&the_lock);
	while ((t = next_ended(node))) {
		pthread_mutex_unlock(&the_lock);
		if (t->closed)
			t->closed(t->own, t->status);
		linger(t);
		pthread_mutex_lock(&the_lock);
	}
	now = vb_now();
	while ((t = next_late(node, now, &at))) {
		pthread_mutex_unlock(&the_lock);
		vb_watch_remove(node, &t->watch);
		forget(t);
		pthread_mutex_lock(&the_lock);
	}
	atomic_store(&due, at);
	pthread_mutex_unlock(&the_lock);
}

uint64_t vb_iwarp_tails_at(void)
{
	return atomic_load(&due);
}

void vb_iwarp_tails_free(struct vb_node *node)
{
	struct vb_iwarp_tail *t;

	pthread_mutex_lock(&the_lock);
	do { /* nobody is told any more: whoever closes the last device holds locks of its own */
		for (t = all; t && t->node != node; t = t->next)
			;
		if (!t)
			break;
		pthread_mutex_unlock(&the_lock);
		flush(t);
		drain(t->watch.fd);
		forget(t);
		pthread_mutex_lock(&the_lock);
	} while (true);
	atomic_store(&due, 0);
	pthread_mutex_unlock(&the_lock);
}

void vb_iwarp_tails_in_child(void)
{
	pthread_mutex_init(&the_lock, NULL);
	for (struct vb_iwarp_tail *t = all; t; t = t->next)
		close(t->watch.fd); /* the parent's peer shall see the end of the parent */
	all = NULL;
	atomic_store(&due, 0);
}
