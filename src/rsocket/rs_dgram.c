// rs_dgram.c - sending and receiving datagrams
// follows: rdma-core docs/rsocket ("Datagram Overview"); POSIX sendto(), recvfrom()
// SPDX-License-Identifier: MIT
#include "rsocket/rs_dgram.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A system call, because the preload library would make it an rsocket. */
int rs_plain_socket(int domain)
{
	return (int)syscall(SYS_socket, domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

int rs_dgram_open(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram = calloc(1, sizeof(*d));
	int fd;

	if (!d)
		return ENOMEM;
	d->tail = &d->head;
	d->look_last = &d->looking;
	d->epfd = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	fd = d->epfd < 0 ? -1 : rs_plain_socket(rs->domain);
	if (fd < 0)
		return errno;
	return rs_publish(rs, fd);
}

/* Allocates the queues at first use, when their sizes are known; rs->lock is held. */
int rs_dgram_start(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram;
	uint32_t by_memory = rs->config.send_size / RS_UD_MAX;

	if (d->started)
		return 0;
	d->sq = rs->config.sq < by_memory ? rs->config.sq : by_memory;
	by_memory = rs->config.recv_size / RS_UD_MAX;
	d->rq = rs->config.rq < by_memory ? rs->config.rq : by_memory;
	d->send_buf = rs_pages((size_t)d->sq * RS_UD_MAX);
	d->slots = calloc(d->sq, sizeof(*d->slots));
	if (!d->send_buf || !d->slots)
		return ENOMEM;
	for (uint32_t i = 0; i < d->sq; i++)
		d->slots[i].next_free = i + 1 < d->sq ? (int)i + 1 : -1;
	d->started = true;
	rs->can_read = rs->can_write = true;
	return rs_service_add(rs, RS_WATCH_UDP, rs->fd);
}

int rs_dgram_bind(struct rsocket *rs, const union rs_addr *addr)
{
	int err;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = bind(rs->fd, &addr->sa, rs_addr_len(addr)) ? errno : rs_dgram_start(rs);
	vb_mutex_unlock(&rs->lock);
	return err;
}

int rs_dgram_connect(struct rsocket *rs, const union rs_addr *addr)
{
	struct rs_dest *t;
	int err;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = rs_dgram_start(rs);
	if (!err && connect(rs->fd, &addr->sa, rs_addr_len(addr)))
		err = errno;
	if (!err)
		err = rs_dest_get(rs, addr, &t);
	if (!err) {
		rs->dgram->peer = *addr;
		rs->dgram->connected = true;
	}
	vb_mutex_unlock(&rs->lock);
	return err;
}

bool rs_dgram_readable(struct rsocket *rs)
{
	return rs->dgram->head || rs->closed || (rs->dgram->started && !rs->can_read);
}

bool rs_dgram_writable(struct rsocket *rs)
{
	return !rs->dgram->started || rs->dgram->free_slot >= 0 || rs->closed;
}

int rs_dgram_wait_fd(struct rsocket *rs)
{
	return rs->dgram->epfd;
}

bool rs_dgram_has_qp(struct rsocket *rs)
{
	return rs->dgram->qps;
}

static void release_gram(struct rsocket *rs, struct rs_gram *g)
{
	if (g->qp) {
		rs_dqp_post(g->qp, g);
	} else {
		rs->dgram->by_udp--;
		free(g);
	}
}

/* Delivers to the program, unless it is connected to another peer. */
void rs_gram_queue(struct rsocket *rs, struct rs_gram *g)
{
	struct rs_dgram *d = rs->dgram;

	if (!rs->can_read || (d->connected && !rs_addr_equal(&d->peer, &g->from))) {
		release_gram(rs, g);
		return;
	}
	g->next = NULL;
	*d->tail = g;
	d->tail = &g->next;
	rs_wake(rs);
}

static void gram_received(struct rsocket *rs, struct rs_dqp *qp, const struct ibv_wc *wc)
{
	struct rs_gram *g = &qp->grams[(uint32_t)wc->wr_id];
	size_t head;

	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		return;
	if (wc->status == IBV_WC_SUCCESS && wc->byte_len > RS_UD_GRH) {
		g->len = wc->byte_len - RS_UD_GRH;
		head = rs_ud_decode(&g->from, g->data, g->len);
		if (head) {
			g->data += head;
			g->len -= (uint32_t)head;
			rs_gram_queue(rs, g);
			return;
		}
	}
	rs_dqp_post(qp, g);
}

static void gram_sent(struct rs_dgram *d, uint32_t slot)
{
	d->slots[slot].to->in_flight--;
	d->slots[slot].next_free = d->free_slot;
	d->free_slot = (int)slot;
	d->sends--;
}

void rs_dgram_process(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram;
	struct ibv_wc wc[16];
	bool news = false;
	int n;

	for (struct rs_dqp *qp = d->qps; qp; qp = qp->next) {
		while ((n = ibv_poll_cq(qp->cq, 16, wc)) > 0) {
			news = true;
			for (int i = 0; i < n; i++) {
				if (wc[i].wr_id >> 32 == RS_WR_RECV)
					gram_received(rs, qp, &wc[i]);
				else
					gram_sent(d, (uint32_t)wc[i].wr_id);
			}
		}
	}
	if (news)
		rs_wake(rs);
}

void rs_dgram_arm(struct rsocket *rs)
{
	for (struct rs_dqp *qp = rs->dgram->qps; qp; qp = qp->next)
		if (!qp->armed)
			qp->armed = !ibv_req_notify_cq(qp->cq, 0);
}

void rs_dgram_drain(struct rsocket *rs)
{
	struct ibv_cq *cq;
	void *context;

	for (struct rs_dqp *qp = rs->dgram->qps; qp; qp = qp->next) {
		struct pollfd p = {.fd = qp->channel->fd, .events = POLLIN};

		while (poll(&p, 1, 0) > 0 && !ibv_get_cq_event(qp->channel, &cq, &context)) {
			ibv_ack_cq_events(cq, 1);
			qp->armed = false;
		}
	}
}

static ssize_t send_ud(struct rsocket *rs, struct rs_dest *t, struct rs_cursor *c)
{
	struct rs_dgram *d = rs->dgram;
	uint32_t slot = (uint32_t)d->free_slot;
	uint8_t *to = d->send_buf + slot * RS_UD_MAX;
	size_t len = c->left, head = rs_ud_encode(to, &t->qp->local);
	struct ibv_sge sge = {(uintptr_t)to, (uint32_t)(head + len), t->qp->send_mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = rs_wr_id(RS_WR_DATA, slot),
	                               .sg_list = &sge,
	                               .num_sge = 1,
	                               .opcode = IBV_WR_SEND,
	                               .send_flags = sge.length <= t->qp->inline_max ? IBV_SEND_INLINE : 0,
	                               .wr.ud = {t->ah, t->qpn, RDMA_UDP_QKEY}};
	int err;

	rs_cursor_get(c, to + head, len);
	err = ibv_post_send(t->qp->id->qp, &wr, &bad);
	if (err)
		return rs_fail(err);
	d->free_slot = d->slots[slot].next_free;
	d->slots[slot].to = t;
	t->in_flight++;
	d->sends++;
	return (ssize_t)len;
}

static ssize_t send_to(struct rsocket *rs, struct rs_cursor *c, int flags, const union rs_addr *to)
{
	struct rs_deadline until = rs_deadline_tv(&rs->send_timeout);
	struct rs_dest *t;
	int err = rs_dgram_start(rs);

	if (!err && !to && !rs->dgram->connected)
		err = EDESTADDRREQ;
	if (!err && !rs->can_write)
		err = EPIPE;
	if (!err)
		err = rs_wait_soft(rs, rs_dgram_writable, rs_nonblocking(rs, flags), &until, NULL);
	if (!err && rs->closed)
		err = EBADF;
	if (!err)
		err = rs_dest_get(rs, to ? to : &rs->dgram->peer, &t);
	if (err)
		return rs_fail(err);
	/* The datagram is too long for one packet, or the peer's queue pair is not known yet. */
	if (!rs_dest_has_ud(t) || c->left + RS_UD_HEADER_MAX > t->qp->mtu)
		return rs_udp_send(rs, t, c, RS_DATA, flags | (rs_nonblocking(rs, flags) ? MSG_DONTWAIT : 0));
	return send_ud(rs, t, c);
}

ssize_t rs_dgram_send(struct rsocket *rs, struct rs_cursor *c, int flags, const union rs_addr *to)
{
	ssize_t n;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	n = send_to(rs, c, flags, to);
	vb_mutex_unlock(&rs->lock);
	return n;
}

static ssize_t take_datagram(struct rsocket *rs, struct rs_cursor *c, int flags, union rs_addr *from, bool *truncated)
{
	struct rs_dgram *d = rs->dgram;
	struct rs_gram *g = d->head;
	size_t n = g->len < c->left ? g->len : c->left;
	ssize_t len = flags & MSG_TRUNC ? (ssize_t)g->len : (ssize_t)n;

	*truncated = n < g->len;
	*from = g->from;
	rs_cursor_put(c, g->data, n);
	if (flags & MSG_PEEK)
		return len;
	d->head = g->next;
	if (!d->head)
		d->tail = &d->head;
	release_gram(rs, g);
	return len;
}

ssize_t rs_dgram_recv(struct rsocket *rs, struct rs_cursor *c, int flags, union rs_addr *from, bool *truncated)
{
	struct rs_deadline until = rs_deadline_tv(&rs->recv_timeout);
	ssize_t n = -1;
	int err;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	err = rs_dgram_start(rs);
	if (!err)
		err = rs_wait_soft(rs, rs_dgram_readable, rs_nonblocking(rs, flags), &until, NULL);
	if (!err && rs->closed)
		err = EBADF;
	if (!err && rs->dgram->head)
		n = take_datagram(rs, c, flags, from, truncated);
	else if (!err) { /* shut down */
		*from = (union rs_addr){.sa.sa_family = (sa_family_t)rs->domain};
		n = 0;
	}
	vb_mutex_unlock(&rs->lock);
	return err ? rs_fail(err) : n;
}

int rs_dgram_shutdown(struct rsocket *rs, int how)
{
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs_dgram_start(rs);
	if (how != SHUT_WR)
		rs->can_read = false;
	if (how != SHUT_RD)
		rs->can_write = false;
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);
	return 0;
}

static bool all_sent(struct rsocket *rs)
{
	return !rs->dgram->sends;
}

/* The last call on the rsocket; rs->lock is held. */
void rs_dgram_close(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram;
	struct rs_deadline until = rs_deadline_ms(1000);

	while (rs_wait(rs, all_sent, false, &until) == EINTR)
		;
	rs_service_del(rs->fd);
	for (struct rs_gram *g = d->head, *next; g; g = next) {
		next = g->next;
		if (!g->qp)
			free(g);
	}
	d->head = NULL;
	d->tail = &d->head;
	rs_dest_drop_all(rs);
	rs_dqp_drop_all(rs);
	d->free_slot = -1;
	rs_retract(rs);
	close(rs->fd);
}

void rs_dgram_free(struct rsocket *rs)
{
	struct rs_dgram *d = rs->dgram;

	if (d->epfd >= 0)
		close(d->epfd);
	free(d->send_buf);
	free(d->slots);
	free(d);
}
