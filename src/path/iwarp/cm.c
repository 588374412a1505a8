// cm.c - connections of iWARP queue pairs: TCP listeners and connections, and streams for queue pairs
// follows: RFC 5044, 7 (connection setup); RFC 6581 (enhanced connection setup)
// SPDX-License-Identifier: MIT
#include "path/iwarp/exchange.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/qp.h"
#include "core/verbs.h"
#include "core/seg.h"
#include "frame/net.h"
#include "util/log.h"
#include "util/units.h"

#define EXPORT __attribute__((visibility("default")))

static struct vb_iwcm *only; /* the instance, for vb_iwcm_stats */
static unsigned speed = 1;

/* --- queues: each connection is in one of them, behind those that joined it earlier --- */

static const uint64_t limits[VB_IWCM_QUEUES] = {
        [VB_IWCM_HALF_OPEN] = VB_S(5),
        [VB_IWCM_ASKING] = VB_S(30),
        [VB_IWCM_RETRYING] = VB_MS(40),
        /* deviates: by RFC 5044, 7.1, the responder waits without limit. Then programs whose server sends first, like
         * ucmatose, would hang. But it waits for a while, because siw treats data that arrives before it has read the
         * reply as an error. */
        [VB_IWCM_HOLDING] = VB_MS(500),
        [VB_IWCM_LINGERING] = VB_S(2),
        [VB_IWCM_TIMEWAIT] = VB_S(1),
};

static void unqueue_conn(struct vb_iwcm_conn *c)
{
	struct vb_iwcm_queue *q = &c->cm->queues[c->queue];

	if (c->prev)
		c->prev->next = c->next;
	else
		q->first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		q->last = c->prev;
	q->n--;
}

static void enqueue_conn(struct vb_iwcm_conn *c, enum vb_iwcm_queue_name name)
{
	struct vb_iwcm_queue *q = &c->cm->queues[name];

	c->queue = (uint8_t)name;
	c->since = vb_now();
	c->next = NULL;
	c->prev = q->last;
	if (q->last)
		q->last->next = c;
	else
		q->first = c;
	q->last = c;
	q->n++;
}

void vb_iwcm_move(struct vb_iwcm_conn *c, enum vb_iwcm_queue_name name)
{
	if (c->queue == VB_IWCM_HALF_OPEN && c->listener) {
		c->listener->half_open--;
		c->listener = NULL;
	}
	unqueue_conn(c);
	enqueue_conn(c, name);
}

/* --- connections --- */

struct vb_iwcm_conn *vb_iwcm_conn_new(struct vb_iwcm *cm, int fd, enum vb_iwcm_queue_name queue)
{
	struct vb_iwcm_conn *c = calloc(1, sizeof(*c));

	if (c)
		c->x = calloc(1, sizeof(*c->x));
	if (!c || !c->x) {
		free(c);
		return NULL;
	}
	c->cm = cm;
	c->watch.fd = fd;
	c->watch.fn = vb_iwcm_ready;
	enqueue_conn(c, queue);
	return c;
}

/* Marks the connection dead. The progress thread releases its resources. */
void vb_iwcm_drop(struct vb_iwcm_conn *c)
{
	c->own = NULL;
	if (c->tie)
		c->tie->conn = NULL;
	c->tie = NULL;
	vb_iwcm_move(c, VB_IWCM_DEAD);
}

static void reap_listeners(struct vb_iwcm *cm)
{
	for (struct vb_iwcm_listener **at = &cm->listeners, *l; (l = *at);) {
		if (!l->closed) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		vb_watch_remove(cm->node, &l->watch);
		close(l->watch.fd);
		free(l);
	}
}

void vb_iwcm_reap(struct vb_iwcm *cm)
{
	struct vb_iwcm_conn *c;

	while ((c = cm->queues[VB_IWCM_DEAD].first)) {
		unqueue_conn(c);
		if (c->watch.fd >= 0) {
			vb_watch_remove(cm->node, &c->watch);
			close(c->watch.fd);
		}
		free(c->x);
		free(c);
	}
	if (cm->closed_listeners)
		reap_listeners(cm);
	cm->closed_listeners = false;
}

/* Called after a refusal was sent. Closing at once could reset the connection before the refusal arrives. */
void vb_iwcm_linger(struct vb_iwcm_conn *c)
{
	struct vb_iwcm_queue *q = &c->cm->queues[VB_IWCM_LINGERING];

	c->own = NULL;
	c->state = VB_IWCM_STATE_LINGER;
	shutdown(c->watch.fd, SHUT_WR);
	vb_iwcm_move(c, VB_IWCM_LINGERING);
	if (q->n > VB_IWCM_LINGER_MAX)
		vb_iwcm_drop(q->first);
	if (c->watched ? vb_watch_change(c->cm->node, &c->watch, EPOLLIN) : vb_iwcm_watch(c, EPOLLIN))
		vb_iwcm_drop(c);
}

int vb_iwcm_watch(struct vb_iwcm_conn *c, uint32_t events)
{
	int err = vb_watch_add(c->cm->node, &c->watch, events);

	c->watched = !err;
	return err;
}

/* Called by the progress thread. */
void vb_iwcm_unwatch(struct vb_iwcm_conn *c)
{
	if (c->watched)
		vb_watch_remove(c->cm->node, &c->watch);
	c->watched = false;
}

/* --- addresses --- */

static void put_end(const struct sockaddr_storage *ss, uint8_t gid[16], uint16_t *port, uint32_t *ifindex)
{
	const struct sockaddr_in6 *sin6 = (const void *)ss;

	vb_gid_of_sockaddr(gid, (const struct sockaddr *)ss);
	*port = ntohs(sin6->sin6_port); /* the port has the same offset in both families */
	if (ss->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr))
		*ifindex = sin6->sin6_scope_id;
}

bool vb_iwcm_learn_ends(struct vb_iwcm_conn *c)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t a = sizeof(here), b = sizeof(there);

	if (getsockname(c->watch.fd, (struct sockaddr *)&here, &a) ||
	    getpeername(c->watch.fd, (struct sockaddr *)&there, &b))
		return false;
	put_end(&here, c->ends.local, &c->ends.local_port, &c->ends.ifindex);
	put_end(&there, c->ends.remote, &c->ends.remote_port, &c->ends.ifindex);
	return true;
}

static void set_int(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

static void set_tos(int fd, const struct sockaddr_storage *ss, uint8_t tos)
{
	if (tos && ss->ss_family == AF_INET6)
		set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, tos);
	else if (tos)
		set_int(fd, IPPROTO_IP, IP_TOS, tos);
}

static int tcp_socket(const struct sockaddr_storage *ss, uint8_t tos)
{
	int fd = socket(ss->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);

	if (fd < 0)
		return -1;
	set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_tos(fd, ss, tos);
	return fd;
}

/* --- listening --- */

static void on_incoming(struct vb_watch *w, uint32_t events)
{
	struct vb_iwcm_listener *l = (struct vb_iwcm_listener *)w;
	struct vb_iwcm *cm = l->cm;

	cm->ops->lock();
	if (!l->closed)
		vb_iwcm_take_connections(l);
	vb_iwcm_reap(cm);
	cm->ops->unlock();
}

static int listen_at(struct vb_iwcm_listener *l, const struct vb_iwcm_addresses *at, bool v4, bool v6_only, uint8_t tos)
{
	static const uint8_t any[16];
	struct sockaddr_storage ss = {0};
	socklen_t len = sizeof(struct sockaddr_in);

	if (memcmp(at->local, any, sizeof(any)) != 0) {
		len = vb_gid_to_sockaddr(&ss, at->local, at->local_port, at->ifindex);
	} else {
		ss.ss_family = v4 ? AF_INET : AF_INET6;
		len = v4 ? len : sizeof(struct sockaddr_in6);
		((struct sockaddr_in *)&ss)->sin_port = htons(at->local_port);
	}
	l->watch.fd = tcp_socket(&ss, tos);
	if (l->watch.fd < 0)
		return errno;
	if (ss.ss_family == AF_INET6)
		set_int(l->watch.fd, IPPROTO_IPV6, IPV6_V6ONLY, v6_only);
	if (bind(l->watch.fd, (struct sockaddr *)&ss, len) || listen(l->watch.fd, SOMAXCONN))
		return errno;
	return vb_watch_add(l->cm->node, &l->watch, EPOLLIN);
}

EXPORT int vb_iwcm_listen(struct vb_iwcm *cm, const struct vb_iwcm_addresses *at, bool v4, bool v6_only, uint8_t tos,
                          void *own, struct vb_iwcm_listener **out)
{
	struct vb_iwcm_listener *l = calloc(1, sizeof(*l));

	if (!l)
		return ENOMEM;
	*l = (struct vb_iwcm_listener){.watch = {.fd = -1, .fn = on_incoming}, .cm = cm, .own = own};
	int err = listen_at(l, at, v4, v6_only, tos);

	if (err) {
		if (l->watch.fd >= 0)
			close(l->watch.fd);
		free(l);
		return err;
	}
	l->next = cm->listeners;
	cm->listeners = l;
	cm->stats.listening++;
	*out = l;
	return 0;
}

/* Releases the port. The progress thread closes the descriptor, because it may be about to use it. */
EXPORT void vb_iwcm_unlisten(struct vb_iwcm_listener *l)
{
	struct vb_iwcm *cm = l->cm;

	for (struct vb_iwcm_conn *c = cm->queues[VB_IWCM_HALF_OPEN].first, *next; c; c = next) {
		next = c->next;
		if (c->listener == l)
			vb_iwcm_drop(c);
	}
	shutdown(l->watch.fd, SHUT_RDWR);
	l->closed = true;
	l->own = NULL;
	cm->closed_listeners = true;
	cm->stats.listening--;
}

/* --- the active side --- */

static int begin_connect(struct vb_iwcm_conn *c)
{
	struct sockaddr_storage from = {0}, to = {0};
	const struct vb_iwcm_addresses *e = &c->ends;
	socklen_t from_len = vb_gid_to_sockaddr(&from, e->local, e->local_port, e->ifindex);
	socklen_t to_len = vb_gid_to_sockaddr(&to, e->remote, e->remote_port, e->ifindex);
	int fd = c->watch.fd = tcp_socket(&to, c->tos);

	if (fd < 0)
		return errno;
	if (bind(fd, (struct sockaddr *)&from, from_len))
		return errno;
	if (connect(fd, (struct sockaddr *)&to, to_len) && errno != EINPROGRESS)
		return errno;
	c->state = VB_IWCM_STATE_CONNECTING;
	return vb_iwcm_watch(c, EPOLLOUT);
}

int vb_iwcm_connect_tcp(struct vb_iwcm_conn *c)
{
	int err = begin_connect(c);

	if ((err != EADDRINUSE && err != EADDRNOTAVAIL) || !c->any_port || !c->ends.local_port)
		return err;
	close(c->watch.fd);
	c->ends.local_port = 0;
	return begin_connect(c);
}

EXPORT int vb_iwcm_connect(struct vb_iwcm *cm, const struct vb_iwcm_addresses *ends, bool any_port,
                           const struct vb_iwcm_offer *offer, void *own, struct vb_iwcm_conn **out)
{
	struct vb_iwcm_conn *c;

	if (offer->len[0] + offer->len[1] > VB_IWCM_PRIVATE_MAX)
		return EINVAL;
	c = vb_iwcm_conn_new(cm, -1, VB_IWCM_ASKING);
	if (!c)
		return ENOMEM;
	c->active = true;
	c->own = own;
	c->ends = *ends;
	c->any_port = any_port;
	c->tos = offer->tos;
	vb_iwcm_compose_request(c, offer);
	int err = vb_iwcm_connect_tcp(c);

	if (err) {
		vb_iwcm_drop(c);
		return err;
	}
	cm->stats.asked++;
	*out = c;
	return 0;
}

/* --- streams --- */

static void tell_end(struct vb_iwcm_conn *c)
{
	c->cm->ops->closed(c->own, c->over_err);
	if (c->queue != VB_IWCM_DEAD)
		vb_iwcm_move(c, VB_IWCM_TIMEWAIT);
}

static void on_closed(void *own, int status)
{
	struct vb_iwcm_tie *tie = own;
	struct vb_iwcm *cm = tie->cm;

	cm->ops->lock();
	struct vb_iwcm_conn *c = tie->conn;

	cm->stats.ended++;
	if (c) {
		c->tie = NULL;
		c->over = true;
		c->over_err = status;
		if (c->owner_knows)
			tell_end(c);
	}
	vb_iwcm_reap(cm);
	cm->ops->unlock();
	free(tie);
}

/* RFC 6581, 9.3: sends the peer a Terminate. */
static int fail_attach(struct vb_iwcm_conn *c, int err)
{
	vb_iwcm_say_terminate(c, VB_TERM_MPA_CATASTROPHIC);
	c->state = VB_IWCM_STATE_REFUSED;
	return err;
}

/* Called without the lock, with the queue pair held. */
static int attach_to(struct vb_qp *qp, struct vb_iwcm_conn *c)
{
	struct vb_iwcm_tie *tie = malloc(sizeof(*tie));
	struct vb_iwarp_stream s = c->stream;

	if (!tie)
		return fail_attach(c, ENOMEM);
	*tie = (struct vb_iwcm_tie){.cm = c->cm, .conn = c};
	s.fd = c->watch.fd;
	s.initiator = c->active;
	s.closed = on_closed;
	s.own = tie;
	c->watch.fd = -1;
	c->state = VB_IWCM_STATE_STREAM;
	c->qpn = qp->made.handle;
	c->tie = tie;
	int err = vb_iwarp_attach(qp, &s);

	if (err) {
		c->tie = NULL;
		free(tie);
		c->watch.fd = s.fd;
		return fail_attach(c, err);
	}
	__atomic_fetch_add(&c->cm->stats.streams, 1, __ATOMIC_RELAXED);
	free(c->x);
	c->x = NULL;
	return 0;
}

static int attach_stream(struct vb_iwcm_conn *c, uint32_t qpn)
{
	struct vb_qp *qp = vb_iwcm_hold_qp(c->cm->node, qpn);

	if (!qp)
		return fail_attach(c, EINVAL);
	int err = attach_to(qp, c);

	vb_qp_drop(qp);
	return err;
}

EXPORT int vb_iwcm_accept(struct vb_iwcm_conn *c, uint32_t qpn, const struct vb_iwcm_offer *offer)
{
	if (c->state != VB_IWCM_STATE_REQUESTED || offer->len[0] + offer->len[1] > VB_IWCM_PRIVATE_MAX)
		return EINVAL;
	struct vb_qp *qp = vb_iwcm_hold_qp(c->cm->node, qpn);

	if (!qp)
		return EINVAL;
	int err = vb_iwcm_reply(c, offer);

	if (!err)
		err = attach_to(qp, c);
	vb_qp_drop(qp);
	return err;
}

EXPORT int vb_iwcm_start(struct vb_iwcm_conn *c, uint32_t qpn)
{
	return c->state == VB_IWCM_STATE_REPLIED ? attach_stream(c, qpn) : EINVAL;
}

EXPORT void vb_iwcm_owner_knows(struct vb_iwcm_conn *c)
{
	c->owner_knows = true;
	if (!c->over && c->stream.waits_for_initiator && c->stream.expect_rtr == VB_IW_RTR_NONE)
		vb_iwcm_move(c, VB_IWCM_HOLDING);
	if (c->over)
		tell_end(c);
}

EXPORT int vb_iwcm_reject(struct vb_iwcm_conn *c, const void *data, size_t len)
{
	if (c->state != VB_IWCM_STATE_REQUESTED || len > VB_IWCM_PRIVATE_MAX)
		return EINVAL;
	c->cm->stats.refused++;
	vb_iwcm_refuse(c, data, len);
	c->state = VB_IWCM_STATE_REFUSED;
	return 0;
}

EXPORT int vb_iwcm_disconnect(struct vb_iwcm_conn *c)
{
	c->cm->ops->lock();
	bool lives = c->tie, streams = c->state == VB_IWCM_STATE_STREAM;
	c->cm->ops->unlock();
	struct vb_qp *qp = lives ? vb_iwcm_hold_qp(c->cm->node, c->qpn) : NULL;

	if (!qp)
		return streams ? 0 : EINVAL;
	vb_iwarp_disconnect(qp);
	vb_qp_drop(qp);
	return 0;
}

EXPORT void vb_iwcm_release(struct vb_iwcm_conn *c)
{
	if (c->state == VB_IWCM_STATE_REQUESTED)
		vb_iwcm_reject(c, NULL, 0);
	if (c->state == VB_IWCM_STATE_REFUSED)
		vb_iwcm_linger(c);
	else
		vb_iwcm_drop(c);
}

EXPORT void vb_iwcm_addresses(const struct vb_iwcm_conn *c, struct vb_iwcm_addresses *out)
{
	*out = c->ends;
}

EXPORT void vb_iwcm_depths(const struct vb_iwcm_conn *c, uint16_t *ird, uint16_t *ord)
{
	*ird = c->stream.ird;
	*ord = c->stream.ord;
}

/* --- open and close --- */

EXPORT int vb_iwcm_open(const struct vb_iwcm_ops *ops, struct vb_iwcm **out)
{
	struct vb_iwcm *cm = calloc(1, sizeof(*cm));
	int err = cm ? vb_node_get(&cm->node) : ENOMEM;

	if (err) {
		free(cm);
		return err;
	}
	cm->ops = ops;
	vb_iwcm_wishes(cm);
	*out = only = cm;
	return 0;
}

/* Does not free the instance, because its node is not freed either. */
EXPORT void vb_iwcm_in_child(struct vb_iwcm *cm)
{
	for (int i = 0; i < VB_IWCM_QUEUES; i++)
		for (struct vb_iwcm_conn *c = cm->queues[i].first; c; c = c->next)
			if (c->watch.fd >= 0)
				close(c->watch.fd);
	for (struct vb_iwcm_listener *l = cm->listeners; l; l = l->next)
		close(l->watch.fd);
	only = NULL;
}

EXPORT uint64_t vb_iwcm_deadline(const struct vb_iwcm *cm)
{
	uint64_t first = cm->paused_until;

	if (cm->queues[VB_IWCM_DEAD].first || cm->closed_listeners)
		return 1;
	for (int i = 0; i < VB_IWCM_QUEUES; i++) {
		const struct vb_iwcm_conn *c = limits[i] ? cm->queues[i].first : NULL;
		uint64_t due = c ? c->since + limits[i] / speed : 0;

		if (due && (!first || due < first))
			first = due;
	}
	return first;
}

static void resume_listeners(struct vb_iwcm *cm)
{
	cm->paused_until = 0;
	for (struct vb_iwcm_listener *l = cm->listeners; l; l = l->next)
		if (l->paused && !l->closed)
			l->paused = vb_watch_change(cm->node, &l->watch, EPOLLIN) != 0;
}

EXPORT void vb_iwcm_timeout(struct vb_iwcm *cm, uint64_t now)
{
	struct vb_iwcm_conn *c;

	for (int i = 0; i < VB_IWCM_QUEUES; i++)
		while (limits[i] && (c = cm->queues[i].first) && c->since + limits[i] / speed <= now)
			vb_iwcm_expire(c);
	if (cm->paused_until && cm->paused_until <= now)
		resume_listeners(cm);
	vb_iwcm_reap(cm);
}

/* --- statistics --- */

EXPORT void vb_iwcm_stats(struct vb_iwcm_stats *out)
{
	*out = (struct vb_iwcm_stats){0};
	if (!only)
		return;
	only->ops->lock();
	*out = only->stats;
	for (int i = 0; i < VB_IWCM_QUEUES; i++)
		out->live += only->queues[i].n;
	only->ops->unlock();
}

EXPORT void vb_iwcm_hurry(unsigned by)
{
	speed = by ? by : 1;
}
