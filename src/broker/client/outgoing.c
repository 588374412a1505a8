// outgoing.c - sends messages to the broker from any thread, in order, and queues them while the socket is full
// SPDX-License-Identifier: MIT
#include "broker/client/outgoing.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "broker/client/network.h"
#include "util/calls.h"
#include "util/lock.h"

struct vb_outgoing {
	struct vb_outgoing *next;
	size_t len;
	char bytes[];
};

struct vb_msg_head vb_outgoing_head(uint8_t type, size_t len)
{
	return (struct vb_msg_head){.type = type, .version = VB_PROTO_VERSION, .len = (uint32_t)len};
}

/* Caller holds the lock. */
static void watch_for_room(struct vb_broker_client *c, bool want)
{
	struct epoll_event ev = {.events = EPOLLIN | (want ? EPOLLOUT : 0), .data.fd = c->sock};

	if (want != c->want_out && !epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, c->sock, &ev))
		c->want_out = want;
}

int vb_outgoing_send(int sock, const void *msg, size_t len)
{
	int cancel;

	vb_cancel_defer(&cancel); /* the caller may hold any lock */
	ssize_t n = send(sock, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	vb_cancel_restore(cancel);
	if (n >= 0)
		return 0;
	return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM ? EAGAIN : EPIPE;
}

static int send_gids(struct vb_broker_client *c)
{
	struct {
		struct vb_msg_set_gids m;
		uint8_t gids[VB_MAX_GIDS][16];
	} out;
	size_t len = sizeof(out.m) + c->ngids * 16ull;

	out.m = (struct vb_msg_set_gids){.head = vb_outgoing_head(VB_MSG_SET_GIDS, len), .n = c->ngids};
	memcpy(out.gids, c->gids, c->ngids * 16ull);
	return vb_outgoing_send(c->sock, &out, len);
}

static int send_roce_request(struct vb_broker_client *c)
{
	struct vb_msg_head m = vb_outgoing_head(VB_MSG_ROCE, sizeof(m));

	return vb_outgoing_send(c->sock, &m, sizeof(m));
}

void vb_outgoing_drop(struct vb_broker_client *c)
{
	for (struct vb_outgoing *p; (p = c->pending);) {
		c->pending = p->next;
		free(p);
	}
	c->pending_tail = &c->pending;
}

void vb_outgoing_flush(struct vb_broker_client *c)
{
	struct vb_outgoing *p;
	int err = 0;

	if (c->gids_due) {
		err = send_gids(c);
		c->gids_due = err == EAGAIN;
	}
	if (!err && c->roce_due) {
		err = send_roce_request(c);
		c->roce_due = err == EAGAIN;
	}
	while (!err && (p = c->pending)) {
		err = vb_outgoing_send(c->sock, p->bytes, p->len);
		if (err)
			break;
		c->pending = p->next;
		if (!c->pending)
			c->pending_tail = &c->pending;
		free(p);
	}
	watch_for_room(c, err == EAGAIN);
}

int vb_broker_set_gids(struct vb_broker_client *c, const union ibv_gid *gids, size_t n)
{
	if (n > VB_MAX_GIDS)
		return EINVAL;
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	if (n)
		memcpy(c->gids, gids, n * 16);
	c->ngids = (uint32_t)n;
	c->gids_due = true;
	if (c->state == ATTACHED)
		vb_outgoing_flush(c);
	vb_mutex_unlock(&c->lock);
	/* after the change: a client that is made now copies the new ones */
	struct vb_broker_client *network = atomic_load_explicit(&c->network, memory_order_acquire);
	return network ? vb_broker_set_gids(network, gids, n) : 0;
}

/* Caller holds the lock. */
static int queue_message(struct vb_broker_client *c, const void *msg, size_t len)
{
	struct vb_outgoing *p = malloc(sizeof(*p) + len);

	if (!p)
		return ENOMEM;
	p->next = NULL;
	p->len = len;
	memcpy(p->bytes, msg, len);
	*c->pending_tail = p;
	c->pending_tail = &p->next;
	vb_outgoing_flush(c);
	return 0;
}

/* Sends a message behind those that are queued. Returns 0, ENOTCONN or ENOMEM. */
static int post_message(struct vb_broker_client *c, const void *msg, size_t len)
{
	int err;

	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	if (c->state != ATTACHED)
		err = ENOTCONN;
	else if (c->gids_due || c->roce_due || c->pending)
		err = queue_message(c, msg, len);
	else
		err = vb_outgoing_send(c->sock, msg, len);
	if (err == EAGAIN)
		err = queue_message(c, msg, len);
	vb_mutex_unlock(&c->lock);
	return err == EPIPE ? ENOTCONN : err;
}

int vb_broker_meet(struct vb_broker_client *c, uint64_t tag, uint32_t qpn, const union ibv_gid *dgid)
{
	struct vb_msg_meet m = {.head = vb_outgoing_head(VB_MSG_MEET, sizeof(m)), .tag = tag, .qpn = qpn};

	memcpy(m.dgid, dgid, 16);
	return post_message(c, &m, sizeof(m));
}

int vb_broker_post(struct vb_broker_client *c, uint8_t type, void *msg, size_t len, bool lossy)
{
	struct vb_msg_head head = vb_outgoing_head(type, len);
	int err;

	c = vb_client_of_network(c);
	memcpy(msg, &head, sizeof(head));
	if (!lossy)
		return post_message(c, msg, len);
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	err = c->state == ATTACHED ? vb_outgoing_send(c->sock, msg, len) : ENOTCONN;
	vb_mutex_unlock(&c->lock);
	return err == EPIPE ? ENOTCONN : err;
}

int vb_broker_roce(struct vb_broker_client *c)
{
	int err = ENOTCONN;

	c = vb_client_of_network(c);
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	if (c->state == ATTACHED) {
		c->roce_due = true;
		vb_outgoing_flush(c);
		err = 0;
	}
	vb_mutex_unlock(&c->lock);
	return err;
}
