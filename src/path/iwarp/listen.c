// listen.c - accepts the TCP connections of a listener, as many as may be without a complete request
// follows: accept(2); RFC 5044, 7.1 (MPA request and reply frames)
// SPDX-License-Identifier: MIT
#include "path/iwarp/exchange.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/units.h"

#define TAKEN_AT_ONCE 32
#define PAUSE_NS VB_MS(100)

static struct vb_iwcm_conn *next_half_open(const struct vb_iwcm_listener *l, struct vb_iwcm_conn *c)
{
	while (c && c->listener != l)
		c = c->next;
	return c;
}

static unsigned from_same_host(const struct vb_iwcm_listener *l, const struct vb_iwcm_conn *c)
{
	struct vb_iwcm_conn *i = next_half_open(l, l->cm->queues[VB_IWCM_HALF_OPEN].first);
	unsigned n = 0;

	for (; i; i = next_half_open(l, i->next))
		n += !memcmp(i->ends.remote, c->ends.remote, sizeof(c->ends.remote));
	return n;
}

/* Closes a connection without a complete request: the oldest one of the host that has most of them, so that no host
 * displaces another. */
static void drop_half_open(struct vb_iwcm_listener *l)
{
	struct vb_iwcm_conn *c = next_half_open(l, l->cm->queues[VB_IWCM_HALF_OPEN].first), *victim = NULL;
	unsigned most = 0, n;

	for (; c && most <= l->half_open / 2; c = next_half_open(l, c->next)) {
		n = from_same_host(l, c);
		if (n > most) {
			most = n;
			victim = c;
		}
	}
	if (!victim)
		return;
	l->cm->stats.crowded_out++;
	vb_iwcm_drop(victim);
}

static void take_connection(struct vb_iwcm_listener *l, int fd)
{
	struct vb_iwcm_conn *c = vb_iwcm_conn_new(l->cm, fd, VB_IWCM_HALF_OPEN);
	int one = 1;

	if (!c) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->state = VB_IWCM_STATE_AWAITS_REQUEST;
	c->listener = l;
	l->half_open++;
	l->cm->stats.accepted++;
	if (!vb_iwcm_learn_ends(c) || vb_iwcm_watch(c, EPOLLIN)) {
		vb_iwcm_drop(c);
		return;
	}
	vb_iwcm_read_request(c); /* the request has often arrived already */
}

/* Called when there are no descriptors or no memory: further connections wait in the kernel. */
static void pause_listening(struct vb_iwcm_listener *l)
{
	l->paused = !vb_watch_change(l->cm->node, &l->watch, 0);
	l->cm->paused_until = vb_now() + PAUSE_NS;
}

void vb_iwcm_take_connections(struct vb_iwcm_listener *l)
{
	for (int i = 0; i < TAKEN_AT_ONCE && !l->closed; i++) {
		int fd = accept4(l->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
			pause_listening(l);
		if (fd < 0 && errno != ECONNABORTED && errno != EINTR)
			return;
		if (fd < 0)
			continue;
		if (l->half_open >= VB_IWCM_HALF_OPEN_MAX)
			drop_half_open(l);
		take_connection(l, fd);
	}
}
