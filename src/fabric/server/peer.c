// peer.c - the other processes of a fabric: their sockets, and the states of the cables to them
// follows: udp(7), UDP_SEGMENT and UDP_GRO; ip(7), IP_MTU
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "fabric/server/peer.h"

enum {
	SOCKET_ROOM = 4 << 20, /* what the kernel is asked for; it gives less to a program that is not root */
	READS = 32,            /* in one turn */
	DATAGRAM_MOST = 8192,
	DATAGRAM_LEAST = VB_CABLE_BODY_LEAST + VB_CABLE_HEADER,
	IP4_UDP = 28,
	IP6_UDP = 48,
	WINDOW_MOST = 896 << 10, /* what the queues behind the socket take: 1 MiB */
	WINDOW_LEAST = 96 << 10, /* to send: a train in the shortest datagrams, as a credit counts them */
};

/* --- datagrams --- */

static int family_of(int fd)
{
	int family = AF_INET;

	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &(socklen_t){sizeof(family)});
	return family;
}

/* As many bytes as fit the interface, so that no datagram is cut on the first link. */
static void measure_path(struct peer *p)
{
	bool v6 = family_of(p->fd) == AF_INET6;
	int mtu = 1280;

	getsockopt(p->fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &(socklen_t){sizeof(mtu)});
	mtu -= v6 ? IP6_UDP : IP4_UDP;
	p->datagram = mtu > DATAGRAM_MOST ? DATAGRAM_MOST : mtu < DATAGRAM_LEAST ? DATAGRAM_LEAST : (size_t)mtu;
}

/* What cannot be sent is lost, as on the way. */
static void count_unsent(struct peer *p, size_t datagrams)
{
	p->cable.counts.unsent += datagrams;
	if (errno == EMSGSIZE)
		measure_path(p);
}

static void send_one(struct peer *p, const uint8_t *bytes, size_t len)
{
	if (send(p->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		count_unsent(p, 1);
}

/* Returns false if the kernel or the interface cannot do this. */
static bool send_segments(struct peer *p, const uint8_t *bytes, size_t len)
{
	char control[CMSG_SPACE(sizeof(uint16_t))] __attribute__((aligned(8))) = {0};
	struct iovec iov = {(void *)bytes, len};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&h);

	c->cmsg_level = IPPROTO_UDP;
	c->cmsg_type = UDP_SEGMENT;
	c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
	memcpy(CMSG_DATA(c), &(uint16_t){(uint16_t)p->datagram}, sizeof(uint16_t));
	if (sendmsg(p->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return true;
	if (errno == EINVAL || errno == EIO || errno == EOPNOTSUPP || errno == ENOPROTOOPT)
		return false;
	count_unsent(p, (len + p->datagram - 1) / p->datagram);
	return true;
}

void peer_transmit(struct peer *p, const uint8_t *bytes, size_t len)
{
	enum { SEGMENTS_MOST = 64 };
	size_t each = p->datagram;

	if (len > each && len <= SEGMENTS_MOST * each && !p->no_segments) {
		if (send_segments(p, bytes, len))
			return;
		p->no_segments = true;
	}
	for (size_t at = 0; at < len; at += each)
		send_one(p, bytes + at, len - at < each ? len - at : each);
}

static size_t segment_of(struct msghdr *h, size_t whole)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		int size = 0;

		if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO)
			continue;
		memcpy(&size, CMSG_DATA(c), sizeof(size));
		return size > 0 ? (size_t)size : whole;
	}
	return whole;
}

static void look_at_refusals(struct peer *p)
{
	const struct vb_cable_counts *c = &p->cable.counts;
	bool version = c->bad_version > p->bad_versions;

	if (p->complained || p->cable.up)
		return;
	p->complained = version || c->other_topology > p->other_topologies;
	if (p->complained)
		fprintf(stderr, "verbena-fabric: %s: %s\n", p->host,
		        version ? "another version of verbena-fabric" : "its topology is another one");
}

void peer_event(struct peer *p)
{
	static uint8_t bytes[65536];
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));

	for (int i = 0; i < READS; i++) {
		struct iovec iov = {bytes, sizeof(bytes)};
		struct msghdr h = {
		        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(p->fd, &h, MSG_DONTWAIT);

		if (n < 0 && (errno == ECONNREFUSED || errno == EINTR)) /* by ICMP: it is not there yet */
			continue;
		if (n < 0)
			break;
		size_t each = segment_of(&h, (size_t)n);

		if (p->guest && !p->cable.up) /* the answer to its question may be lost */
			guests_asked(p->server, p->fd, bytes, (size_t)n, &p->from, p->from_len);
		if (p->asks && !p->cable.up)
			guest_told(p, bytes, (size_t)n);
		for (size_t at = 0; at < (size_t)n; at += each, p->came++)
			vb_cable_input(&p->cable, bytes + at, (size_t)n - at < each ? (size_t)n - at : each,
			               p->server->now);
	}
	look_at_refusals(p);
	peer_came_end(p);
}

/* --- what the cable asks --- */

static void on_send(void *own, const uint8_t *bytes, size_t len)
{
	struct peer *p = own;

	if (p->asks && !p->cable.up)
		send_one(p, p->ask, sizeof(p->ask));
	send_one(p, bytes, len);
}

static uint64_t on_nonce(void *own)
{
	uint64_t n = 0;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		abort(); /* main.c has had random numbers before */
	return n;
}

static void on_there(void *own, bool there)
{
	struct peer *p = own;

	fprintf(stderr, "verbena-fabric: %s is %s\n", p->host, there ? "there" : "gone");
	p->complained = false;
	p->leave_at = p->server->now;
	p->bad_versions = p->cable.counts.bad_version;
	p->other_topologies = p->cable.counts.other_topology;
	peer_drop(p);
	measure_path(p);
	for (size_t i = 0; i < p->end_count; i++) {
		memset(p->ends[i].seen, 0, sizeof(p->ends[i].seen));
		if (!there)
			vb_fabric_end_told(p->ends[i].port, NULL);
	}
}

static bool on_line(void *own, size_t i, struct vb_cable_line *line)
{
	struct peer *p = own;

	if (i >= p->end_count)
		return false;
	struct peer_end *e = &p->ends[i];

	e->told = vb_fabric_end_of(e->port);
	*line = (struct vb_cable_line){.guid = e->port->peer->node->guid, .port = e->port->peer->num, .end = e->told};
	return true;
}

static bool on_told(void *own, const struct vb_cable_line *line)
{
	struct peer_end *e = peer_end_at(own, line->guid, line->port);

	if (e)
		vb_fabric_end_told(e->port, &line->end);
	return e;
}

static const struct vb_cable_ops cable_ops = {.send = on_send,
                                              .nonce = on_nonce,
                                              .is_there = on_there,
                                              .line = on_line,
                                              .told = on_told,
                                              .packet = peer_packet};

/* --- start and end --- */

static void ask_for_room(int fd, int option, int forced)
{
	int size = SOCKET_ROOM;

	if (setsockopt(fd, SOL_SOCKET, forced, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, option, &size, sizeof(size));
}

/* What the kernel has given. It counts twice what it was asked for, because a datagram takes more than its bytes. */
static uint32_t room_of(int fd, int option)
{
	int size = 0;

	getsockopt(fd, SOL_SOCKET, option, &size, &(socklen_t){sizeof(size)});
	return size / 2 < WINDOW_MOST ? (uint32_t)size / 2 : WINDOW_MOST;
}

/* The kernel takes datagrams of the connected address alone. Several peers have sockets of one port. */
int peer_socket(const struct addrinfo *to, const struct addrinfo *from)
{
	const int on = 1, fragments = IP_PMTUDISC_DONT;
	int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	ask_for_room(fd, SO_RCVBUF, SO_RCVBUFFORCE);
	ask_for_room(fd, SO_SNDBUF, SO_SNDBUFFORCE);
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
	if (to->ai_family == AF_INET) /* a router may cut what is too long for a later link */
		setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &fragments, sizeof(fragments));
	if ((!from || (!setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) &&
	               !bind(fd, from->ai_addr, from->ai_addrlen))) &&
	    !connect(fd, to->ai_addr, to->ai_addrlen))
		return fd;
	int saved = errno;

	close(fd);
	errno = saved;
	return -1;
}

static int connect_peer(struct peer *p, const char *address, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *to = NULL, *from = NULL;
	int rc = getaddrinfo(p->host, p->port, &hints, &to);

	hints.ai_flags = AI_PASSIVE;
	hints.ai_family = to ? to->ai_family : AF_UNSPEC;
	if (!rc)
		rc = getaddrinfo(address, port, &hints, &from);
	p->fd = rc ? -1 : peer_socket(to, from);
	if (p->fd < 0)
		fprintf(stderr, "verbena-fabric: %s: %s\n", p->host,
		        rc && rc != EAI_SYSTEM ? gai_strerror(rc) : strerror(errno));
	if (to)
		freeaddrinfo(to);
	if (from)
		freeaddrinfo(from);
	return p->fd < 0 ? -1 : 0;
}

int peer_open(struct peer *p, const struct peer_settings *o, uint64_t digest)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
	uint32_t send_room;

	if ((p->fd < 0 && connect_peer(p, o->address, o->port)) ||
	    epoll_ctl(p->server->epoll, EPOLL_CTL_ADD, p->fd, &e))
		return -1;
	measure_path(p);
	send_room = room_of(p->fd, SO_SNDBUF);
	vb_cable_init(&p->cable, &cable_ops, p, digest, o->secret, o->secret_len, room_of(p->fd, SO_RCVBUF),
	              send_room < WINDOW_LEAST ? WINDOW_LEAST : send_room);
	return 0;
}

int peers_open(struct server *s, const struct peer_settings *o)
{
	uint64_t digest = s->peers ? peers_digest(s) : 0;

	for (struct peer *p = s->peers; p; p = p->next)
		if (peer_open(p, o, digest))
			return -1;
	return s->takes_guests ? guests_open(s, o) : 0;
}

void peer_free(struct peer *p)
{
	if (p->server) /* of one that has been in the list */
		late_forget_peer(p->server, p);
	if (p->fd >= 0)
		close(p->fd);
	free(p->ends);
	free(p);
}

void peers_close(struct server *s)
{
	guests_close(s);
	while (s->peers) {
		struct peer *p = s->peers;

		s->peers = p->next;
		late_forget_peer(s, p); /* else packets of its line would go to its queue */
		peer_drop(p);
		peer_free(p);
	}
}

struct peer *peer_of(const struct server *s, const void *what)
{
	struct peer *p = s->peers;

	while (p && p != what)
		p = p->next;
	return p;
}

/* --- time --- */

static bool ends_differ(const struct vb_fabric_end *a, const struct vb_fabric_end *b)
{
	return a->wants != b->wants || a->widths != b->widths || a->speeds != b->speeds ||
	       a->ext_speeds != b->ext_speeds || a->downs != b->downs;
}

void peers_time(struct server *s)
{
	for (struct peer *p = s->peers; p; p = p->next) {
		vb_cable_time(&p->cable, s->now);
		peer_data_time(p);
	}
}

/* The end of a turn: what it has changed is told, and what it has brought is sent. */
void peers_tell(struct server *s)
{
	for (struct peer *p = s->peers; p; p = p->next) {
		bool news = false;

		for (size_t i = 0; p->cable.up && !news && i < p->end_count; i++) {
			const struct vb_fabric_end now = vb_fabric_end_of(p->ends[i].port);

			news = ends_differ(&now, &p->ends[i].told);
		}
		if (news)
			vb_cable_tell(&p->cable, true);
		peer_flush(p);
	}
}

uint64_t peers_deadline(const struct server *s)
{
	uint64_t due = UINT64_MAX;

	for (const struct peer *p = s->peers; p; p = p->next) {
		uint64_t beat = vb_cable_deadline(&p->cable), data = peer_data_deadline(p);

		due = beat < due ? beat : due;
		due = data < due ? data : due;
	}
	return due;
}

int ctl_peers(struct server *s, char **w, FILE *out)
{
	for (const struct peer *p = s->peers; p; p = p->next) {
		const struct vb_cable_counts *c = &p->cable.counts;

		fprintf(out, "%s %s cables %zu datagram %zu sent %llu received %llu sessions %llu", p->host,
		        p->cable.up ? "up" : "down", p->end_count, p->datagram, (unsigned long long)c->sent,
		        (unsigned long long)c->received, (unsigned long long)c->sessions);
#define X(name) fprintf(out, " " #name " %llu", (unsigned long long)c->name);
		VB_CABLE_DROPS(X)
#undef X
		fputc('\n', out);
	}
	return 0;
}
