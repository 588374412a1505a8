// tcp.c - the NVMe/TCP transport: accepts and ends connections
// follows: NVMe/TCP transport specification 1.0, 3.1 (connections), 3.4 (shutdown)
// SPDX-License-Identifier: MIT
#include "target/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "target/tcp_conn.h"

#define LINGER_MS 2000 /* time for the remaining output when a connection ends */
#define SWEEP_MS 1000
#define ACCEPT_RETRY_MS 200

/* ---- calls by the core ---- */

static void tcp_ops_close(struct nt_queue *q)
{
	nt_conn_end(nt_conn_of(q));
}

/* The core has dropped its last reference. */
static void tcp_ops_gone(struct nt_queue *q)
{
	struct nt_conn *c = nt_conn_of(q);

	if (c->next)
		c->next->prev = c->prev;
	if (c->prev)
		c->prev->next = c->next;
	else
		c->tcp->conns = c->next;
	c->tcp->count--;
	free(c);
}

static const struct nt_ops ops = {.name = "tcp",
                                  .trtype = NV_TRTYPE_TCP,
                                  .fetch = nt_conn_fetch,
                                  .respond = nt_conn_respond,
                                  .close = tcp_ops_close,
                                  .gone = tcp_ops_gone};

/* ---- connections ---- */

void nt_conn_dirty(struct nt_conn *c)
{
	if (c->dirty || c->closed)
		return;
	c->dirty = true;
	c->next_dirty = c->tcp->dirty;
	c->tcp->dirty = c;
}

void nt_conn_fail(struct nt_conn *c)
{
	c->failed = true;
	nt_conn_dirty(c);
}

void nt_conn_end(struct nt_conn *c)
{
	if (c->ending)
		return;
	c->ending = true;
	c->ending_at = c->tcp->target->now;
	c->rx = NT_RX_OFF;
	nt_conn_dirty(c);
}

static void close_tcp_conn(struct nt_conn *c)
{
	nt_loop_remove(c->tcp->loop, &c->watch);
	nt_conn_unwrap(c);
	/* discard unread input, because it would turn our last message into a reset */
	shutdown(c->watch.fd, SHUT_WR);
	for (int i = 0; i < 16 && recv(c->watch.fd, c->in, sizeof(c->in), MSG_DONTWAIT) > 0; i++)
		;
	close(c->watch.fd);
	c->watch.fd = -1;
	c->closed = true;
	nt_queue_close(&c->q); /* may free the connection */
}

static bool has_output(const struct nt_conn *c)
{
	return c->own_len || c->tx_first || nt_conn_unsent(c);
}

/* Handles a connection that is marked dirty because it may have changed: sends, continues reading, or ends it. */
static void settle_tcp_conn(struct nt_conn *c)
{
	bool more = false;

	if (!c->failed)
		nt_conn_flush(c);
	if (c->failed || (c->ending && !has_output(c))) {
		close_tcp_conn(c);
		return;
	}
	/* reading was paused, and the buffer or TLS has data */
	if ((c->in_at < c->in_len || nt_conn_unread(c)) && c->rx != NT_RX_PAUSED && c->rx != NT_RX_OFF) {
		nt_conn_receive(c);
		more = true;
	}
	c->dirty = false;
	if (more || c->failed)
		nt_conn_dirty(c);
	nt_loop_change(c->tcp->loop, &c->watch,
	               (c->rx == NT_RX_PAUSED || c->rx == NT_RX_OFF ? 0u : (uint32_t)EPOLLIN) |
	                       (has_output(c) ? (uint32_t)EPOLLOUT : 0u));
}

static void tcp_conn_ready(struct nt_watch *w, uint32_t events)
{
	struct nt_conn *c = (struct nt_conn *)(void *)((uint8_t *)w - offsetof(struct nt_conn, watch));

	if (events & (EPOLLERR | EPOLLHUP))
		nt_conn_fail(c);
	else if ((events & EPOLLIN) || c->tls) /* TLS may have to write in order to read */
		nt_conn_receive(c);
	nt_conn_dirty(c);
}

/* Ends connections that take too long for a message. */
static void sweep_tcp_conn(struct nt_conn *c, uint64_t now)
{
	const struct nt_tcp_limits *l = &c->tcp->limits;
	bool late = c->ending ? now - c->ending_at > LINGER_MS : !c->q.connected && now - c->began > l->hello_ms;

	if (c->rx_since && c->rx != NT_RX_PAUSED && c->rx != NT_RX_OFF)
		late |= now - c->rx_since > l->stall_ms;
	if (c->tx_since)
		late |= now - c->tx_since > l->stall_ms;
	for (uint32_t slot = 0; c->fetching && slot <= c->q.entries; slot++) {
		struct nt_request *r = nt_slot(&c->q, slot);

		if (r && r->state == NT_FETCH && nt_item(r)->r2t)
			late |= now - nt_item(r)->since > 2ull * l->stall_ms;
	}
	if (late)
		nt_conn_fail(c);
}

uint64_t nt_tcp_turn(struct nt_tcp *p)
{
	uint64_t now = p->target->now;

	if (now - p->swept >= SWEEP_MS) {
		p->swept = now;
		for (struct nt_conn *c = p->conns; c; c = c->next)
			if (!c->closed)
				sweep_tcp_conn(c, now);
	}
	if (p->accept_again && p->accept_again <= now && !p->stopped) {
		p->accept_again = 0;
		nt_loop_change(p->loop, &p->watch, EPOLLIN);
	}
	/* settling one connection may make others dirty, so repeat this, within a limit */
	for (int rounds = 0; p->dirty && rounds < 8; rounds++) {
		struct nt_conn *c = p->dirty, *next;

		p->dirty = NULL;
		for (; c; c = next) {
			next = c->next_dirty;
			settle_tcp_conn(c);
		}
	}
	if (p->dirty)
		return now;
	return p->accept_again ? p->accept_again : p->conns ? p->swept + SWEEP_MS : UINT64_MAX;
}

/* ---- new connections ---- */

static void name_tcp_ends(struct nt_conn *c, const struct sockaddr_storage *peer, socklen_t peer_len, char *address,
                          size_t size)
{
	struct sockaddr_storage own;
	socklen_t own_len = sizeof(own);
	char host[256], service[32];

	address[0] = 0;
	if (!getsockname(c->watch.fd, (struct sockaddr *)&own, &own_len))
		getnameinfo((struct sockaddr *)&own, own_len, address, (socklen_t)size, NULL, 0, NI_NUMERICHOST);
	if (peer_len && !getnameinfo((const struct sockaddr *)peer, peer_len, host, sizeof(host), service,
	                             sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(c->q.peer, sizeof(c->q.peer), "%s port %s", host, service);
}

static void plain_ipv4(char *address)
{
	if (!strncmp(address, "::ffff:", 7) && strchr(address, '.'))
		memmove(address, address + 7, strlen(address + 7) + 1);
}

int nt_tcp_serve(struct nt_tcp *p, int fd)
{
	struct nt_conn *c = calloc(1, sizeof(*c));
	struct sockaddr_storage peer = {0};
	socklen_t peer_len = sizeof(peer);
	const int one = 1;
	char address[257];

	if (!c)
		return ENOMEM;
	c->tcp = p;
	c->watch = (struct nt_watch){.fd = fd, .events = EPOLLIN, .ready = tcp_conn_ready};
	c->tx_end = &c->tx_first;
	c->began = p->target->now;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	nt_queue_open(&c->q, p->target, &ops, &p->port, NT_TCP_INLINE, NULL);
	if (getpeername(fd, (struct sockaddr *)&peer, &peer_len))
		peer_len = 0;
	if (!nt_peer_join(&c->q, peer_len ? (struct sockaddr *)&peer : NULL)) {
		free(c);
		return ECONNREFUSED;
	}
	name_tcp_ends(c, &peer, peer_len, address, sizeof(address));
	plain_ipv4(address);
	memcpy(c->q.address, address, sizeof(c->q.address));
	c->q.way = "TCP";
	int error = nt_loop_add(p->loop, &c->watch);

	if (error) {
		nt_peer_leave(&c->q);
		free(c);
		return error;
	}
	c->next = p->conns;
	if (c->next)
		c->next->prev = c;
	p->conns = c;
	p->count++;
	return 0;
}

static void accept_hosts(struct nt_watch *w, uint32_t events)
{
	struct nt_tcp *p = (struct nt_tcp *)(void *)((uint8_t *)w - offsetof(struct nt_tcp, watch));

	for (int i = 0; i < 16; i++) {
		int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
				p->accept_again = p->target->now + ACCEPT_RETRY_MS;
				nt_loop_change(p->loop, w, 0);
			}
			return;
		}
		if (p->count >= p->limits.connections || nt_tcp_serve(p, fd))
			close(fd);
	}
}

/* ---- the listener ---- */

static int listen_tcp(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int one = 1, zero = 0;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a->ai_family == AF_INET6) /* :: serves IPv4, too */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 128))
		return fd;
	int error = errno;

	close(fd);
	errno = error;
	return -1;
}

static void describe_tcp_port(struct nt_tcp *p)
{
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);

	if (getsockname(p->watch.fd, (struct sockaddr *)&own, &len))
		return;
	getnameinfo((struct sockaddr *)&own, len, p->port.address, sizeof(p->port.address), p->port.service,
	            sizeof(p->port.service), NI_NUMERICHOST | NI_NUMERICSERV);
	p->port.trtype = NV_TRTYPE_TCP;
	p->port.adrfam = own.ss_family == AF_INET6 ? NV_ADRFAM_IPV6 : NV_ADRFAM_IPV4;
	p->port.any = own.ss_family == AF_INET6
	                      ? IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)(void *)&own)->sin6_addr)
	                      : ((struct sockaddr_in *)(void *)&own)->sin_addr.s_addr == htonl(INADDR_ANY);
}

int nt_tcp_open(struct nt_loop *l, struct nt_target *t, const char *address, uint16_t port,
                const struct nt_tcp_limits *limits, struct nt_tcp **out)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *list;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(address, service, &hints, &list))
		return EADDRNOTAVAIL;
	struct nt_tcp *p = calloc(1, sizeof(*p));
	int error = p ? 0 : ENOMEM;

	if (p) {
		p->loop = l;
		p->target = t;
		p->limits = *limits;
		p->watch = (struct nt_watch){.fd = listen_tcp(list), .events = EPOLLIN, .ready = accept_hosts};
		error = p->watch.fd < 0 ? errno : nt_loop_add(l, &p->watch);
	}
	freeaddrinfo(list);
	if (error) {
		if (p && p->watch.fd >= 0)
			close(p->watch.fd);
		free(p);
		return error;
	}
	describe_tcp_port(p);
	nt_port_add(t, &p->port);
	*out = p;
	return 0;
}

#define SECTYPE_TLS_1_3 2u
#define TREQ_REQUIRED 1u
#define TREQ_NOT_REQUIRED 2u

void nt_tcp_secure(struct nt_tcp *p, enum nt_tls security)
{
	p->security = security;
	p->port.tsas[0] = security ? SECTYPE_TLS_1_3 : 0;
	p->port.treq = !security ? 0 : security == NT_TLS_REQUIRED ? TREQ_REQUIRED : TREQ_NOT_REQUIRED;
}

uint16_t nt_tcp_port(const struct nt_tcp *p)
{
	return (uint16_t)strtoul(p->port.service, NULL, 10);
}

const char *nt_tcp_address(const struct nt_tcp *p)
{
	return p->port.address;
}

uint32_t nt_tcp_connections(const struct nt_tcp *p)
{
	return p->count;
}

uint64_t nt_tcp_copied(const struct nt_tcp *p)
{
	return p->copied;
}

void nt_tcp_stop(struct nt_tcp *p)
{
	if (p->stopped)
		return;
	p->stopped = true;
	nt_loop_remove(p->loop, &p->watch);
	close(p->watch.fd);
	nt_port_remove(p->target, &p->port);
}

bool nt_tcp_close(struct nt_tcp *p)
{
	nt_tcp_stop(p);
	for (struct nt_conn *c = p->conns, *next; c; c = next) {
		next = c->next;
		if (!c->closed)
			nt_conn_fail(c);
	}
	nt_tcp_turn(p);
	if (p->conns)
		return false;
	free(p);
	return true;
}
