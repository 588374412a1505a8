// tail.c - the end of a stream: notifies the connection's owner, and delivers data that was sent
// follows: RFC 5044, 7 (connection teardown); tcp(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "capture/capture.h"
#include "path/iwarp/path.h"
#include "util/units.h"

#define LINGER VB_S(2)     /* ns: how long the peer may take to accept the rest of the data and to close */
#define PARTING VB_MS(500) /* ns: how long an ending program waits until its peers have received all data */
#define LOOK_MIN VB_MS(1)  /* ns: interval of checks whether a peer has received all data; it grows */
#define LOOK_MAX VB_MS(16)

/*
 * Closing a socket with unread data resets the connection, and data in flight to the peer is lost. So the socket is
 * shut down for sending first, and read until the peer closes, too. It is not shut down before the peer has
 * acknowledged all data. If siw receives the last message and the FIN in one segment, or both while it is sending, it
 * may end the connection first and drop the message. Its program would wait for that message forever.
 */
struct vb_iwarp_tail {
	struct vb_watch watch; /* must be first; watched while it lingers */
	struct vb_node *node;
	enum { LIVES, ENDED, LINGERS } stage;
	void (*closed)(void *own, int status); /* NULL: not needed */
	void *own;
	int status;
	uint8_t *rest;
	size_t len, done;
	uint64_t until;   /* ns: end of the lingering */
	uint64_t look_at; /* ns: when to check whether to shut down; 0: shut down, or a rest must be sent first */
	uint64_t pause;
	struct vb_iwarp_tail *next;
};

/* One list for the process, because connections may be released after their queue pair, and so after its node. */
static struct vb_lock the_lock = VB_LOCK_INITIALIZER(VB_RANK_TAILS);
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
	vb_lock(&the_lock);
	t->next = all;
	all = t;
	vb_unlock(&the_lock);
	return t;
}

static void forget_tail(struct vb_iwarp_tail *t)
{
	vb_lock(&the_lock);
	for (struct vb_iwarp_tail **p = &all; *p; p = &(*p)->next) {
		if (*p == t) {
			*p = t->next;
			break;
		}
	}
	vb_unlock(&the_lock);
	if (t->watch.fd >= 0)
		close(t->watch.fd);
	free(t->rest);
	free(t);
}

void vb_iwarp_tail_drop(struct vb_iwarp_tail *t)
{
	t->watch.fd = -1;
	forget_tail(t);
}

void vb_iwarp_tail_end(struct vb_iwarp_tail *t, int status, uint8_t *rest, size_t len)
{
	struct vb_node *node = t->node;

	vb_lock(&the_lock);
	t->stage = ENDED;
	t->status = status;
	t->rest = rest;
	t->len = len;
	atomic_store(&due, 1);
	vb_unlock(&the_lock); /* from here on the progress thread owns it and may free it */
	vb_progress_wake(node);
}

/* --- lingering sockets --- */

/* Reads and drops data. Returns false if the peer has closed, or the connection has ended. */
static bool drain_socket(int fd)
{
	static uint8_t nowhere[65536]; /* never read */

	for (int i = 0; i < 16; i++) {
		ssize_t n = recv(fd, nowhere, sizeof(nowhere), MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (!n)
			return false;
	}
	return true;
}

/* Has the peer acknowledged all data, or has the connection ended? */
static bool has_all(int fd)
{
	struct pollfd p = {.fd = fd};
	int left = 0;

	return poll(&p, 1, 0) > 0 || ioctl(fd, SIOCOUTQ, &left) || !left;
}

/* Called when all data is sent: shuts down for sending if the peer has all of it, otherwise checks again later. */
static void say_end(struct vb_iwarp_tail *t, uint64_t now)
{
	if (has_all(t->watch.fd)) {
		shutdown(t->watch.fd, SHUT_WR);
		t->look_at = 0;
		return;
	}
	t->pause = !t->pause ? LOOK_MIN : t->pause < LOOK_MAX ? 2 * t->pause : LOOK_MAX;
	t->look_at = now + t->pause;
}

/* Sends the rest. Returns false on failure. */
static bool send_rest(struct vb_iwarp_tail *t)
{
	while (t->done < t->len) {
		uint64_t time = vb_capturing() ? vb_capture_now() : 0;
		ssize_t n = send(t->watch.fd, t->rest + t->done, t->len - t->done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (time)
			vb_capture_tcp(VB_CAPTURE_OUT, time, t->watch.fd, &(struct iovec){t->rest + t->done, (size_t)n},
			               1, (size_t)n, 0);
		t->done += (size_t)n;
	}
	t->look_at = 1;
	return true;
}

static uint32_t tail_interest(const struct vb_iwarp_tail *t)
{
	return EPOLLIN | (t->done < t->len ? EPOLLOUT : 0);
}

static void tail_ready(struct vb_watch *w, uint32_t events)
{
	struct vb_iwarp_tail *t = (struct vb_iwarp_tail *)w; /* its first member */

	bool more = t->done < t->len;

	if ((more && !send_rest(t)) || !drain_socket(w->fd)) {
		vb_watch_remove(t->node, w);
		forget_tail(t);
	} else if (more && t->done == t->len) {
		vb_watch_change(t->node, w, tail_interest(t));
		atomic_store(&due, 1);
	}
}

static void tail_linger(struct vb_iwarp_tail *t)
{
	t->watch.fn = tail_ready;
	if (!send_rest(t) || !drain_socket(t->watch.fd) || vb_watch_add(t->node, &t->watch, tail_interest(t)))
		forget_tail(t);
}

/* --- the list --- */

static struct vb_iwarp_tail *next_ended(struct vb_node *node)
{
	for (struct vb_iwarp_tail *t = all; t; t = t->next)
		if (t->node == node && t->stage == ENDED)
			return t;
	return NULL;
}

/* Serves lingering tails that are due. Returns one whose time is over, or NULL with the time of the next in *at. Under
 * the_lock. */
static struct vb_iwarp_tail *next_late(struct vb_node *node, uint64_t now, uint64_t *at)
{
	*at = 0;
	for (struct vb_iwarp_tail *t = all; t; t = t->next) {
		if (t->node != node || t->stage != LINGERS)
			continue;
		if (t->until <= now)
			return t;
		if (t->look_at && t->look_at <= now)
			say_end(t, now);
		uint64_t next = t->look_at ? t->look_at : t->until;

		if (!*at || next < *at)
			*at = next;
	}
	return NULL;
}

void vb_iwarp_tails(struct vb_node *node)
{
	uint64_t at = atomic_load(&due), now;
	struct vb_iwarp_tail *t;

	if (!at || (at > 1 && vb_now() < at))
		return;
	vb_lock(&the_lock);
	while ((t = next_ended(node))) {
		t->stage = LINGERS;
		t->until = vb_now() + LINGER;
		vb_unlock(&the_lock);
		VB_HOLDS_NO_LOCK();
		if (t->closed)
			t->closed(t->own, t->status);
		tail_linger(t);
		vb_lock(&the_lock);
	}
	now = vb_now();
	while ((t = next_late(node, now, &at))) {
		vb_unlock(&the_lock);
		vb_watch_remove(node, &t->watch);
		forget_tail(t);
		vb_lock(&the_lock);
	}
	atomic_store(&due, next_ended(node) ? 1 : at); /* a stream may have ended while the lock was released */
	vb_unlock(&the_lock);
}

uint64_t vb_iwarp_tails_at(void)
{
	return atomic_load(&due);
}

/* Has each peer received all data? alone: there is no progress thread any more. Under the_lock. */
static bool all_have(struct vb_node *node, bool alone)
{
	for (struct vb_iwarp_tail *t = all; t; t = t->next) {
		if (t->node != node)
			continue;
		if (alone && (!send_rest(t) || !drain_socket(t->watch.fd)))
			continue; /* broken */
		if ((!alone && t->stage == ENDED) || t->done < t->len || !has_all(t->watch.fd))
			return false;
	}
	return true;
}

static void wait_for_all(struct vb_node *node, bool alone)
{
	uint64_t until = vb_now() + PARTING;
	struct timespec ts = {0, LOOK_MIN};
	bool have;

	VB_MAY_WAIT();
	do {
		have = false;
		/* at exit the owner of the lock may never continue, because a signal handler may have called exit() */
		if (alone)
			vb_lock(&the_lock);
		if (alone || vb_trylock(&the_lock)) {
			have = all_have(node, alone);
			vb_unlock(&the_lock);
		}
		if (!have)
			nanosleep(&ts, NULL);
	} while (!have && vb_now() < until);
}

void vb_iwarp_tails_wait(struct vb_node *node)
{
	wait_for_all(node, false);
}

void vb_iwarp_tails_free(struct vb_node *node)
{
	struct vb_iwarp_tail *t;

	wait_for_all(node, true);
	vb_lock(&the_lock);
	do { /* makes no callbacks, because the thread that closes the last device may hold locks of its own */
		for (t = all; t && t->node != node; t = t->next)
			;
		if (!t)
			break;
		vb_unlock(&the_lock);
		send_rest(t);
		drain_socket(t->watch.fd);
		forget_tail(t);
		vb_lock(&the_lock);
	} while (true);
	atomic_store(&due, 0);
	vb_unlock(&the_lock);
}

void vb_iwarp_tails_in_child(void)
{
	atomic_store(&the_lock.held, 0);
	for (struct vb_iwarp_tail *t = all; t; t = t->next)
		close(t->watch.fd); /* otherwise the peer would not notice when the parent closes */
	all = NULL;
	atomic_store(&due, 0);
}
