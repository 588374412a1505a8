// guest.c - guests: processes on other hosts that have one channel adapter each; they come and go
// see: fabric/cable/cable.h; docs/infiniband.md, "A program on another host"
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fabric/server/peer.h"
#include "fabric/topology.h"

#define GREETING_WAIT 5000000000ull /* ns: so long a guest that has been taken may be silent */
enum { READS = 32, GUESTS_MOST = 4096 };

struct guests {
	struct server *server;
	int fd; /* for those that are not taken yet */
	const struct peer_settings *settings;
	struct vb_sip_key key, strangers;
	char *text; /* the topology, a zero byte, and the table of addresses */
	size_t len;
	size_t nodes;       /* when it was made */
	uint64_t addresses; /* address_changes then */
	uint64_t digest;
};

/* --- what they are told --- */

static bool make_text(struct guests *g)
{
	struct server *s = g->server;
	FILE *out;

	if (g->text && g->nodes == s->fabric->count && g->addresses == s->address_changes)
		return true;
	free(g->text);
	g->text = NULL;
	out = open_memstream(&g->text, &g->len);
	if (!out)
		return false;
	vb_topology_print(s->fabric, out);
	size_t topology = (size_t)ftell(out);
	fputc('\0', out);
	address_print(s, out);
	fclose(out);
	g->nodes = s->fabric->count;
	g->addresses = s->address_changes;
	g->digest = topology_digest(g->text, topology);
	return true;
}

/* --- who may come --- */

static bool comes_from(const struct peer *p, const struct sockaddr_storage *from, socklen_t len)
{
	return p->guest && p->from_len == len && !memcmp(&p->from, from, len);
}

static enum vb_cable_answer refusal_of(const struct server *s, const struct vb_fabric_node *n)
{
	if (!n || n->type != VB_NODE_CA)
		return VB_CABLE_NO_NODE;
	if (n->away || node_has_programs(s, n))
		return VB_CABLE_TAKEN;
	for (unsigned k = 1; k <= n->ports; k++)
		if (n->port[k].peer && n->port[k].peer->node->away)
			return VB_CABLE_ELSEWHERE;
	return VB_CABLE_YES;
}

static unsigned guests_of(const struct server *s)
{
	unsigned n = 0;

	for (const struct peer *p = s->peers; p; p = p->next)
		n += p->guest != NULL;
	return n;
}

static bool name_peer(struct peer *p, const struct sockaddr_storage *from, socklen_t len)
{
	static const char mapped[] = "::ffff:";
	char host[sizeof(p->host)];

	if (getnameinfo((const struct sockaddr *)from, len, host, sizeof(host), p->port, sizeof(p->port),
	                NI_NUMERICHOST | NI_NUMERICSERV | NI_DGRAM))
		return false;
	snprintf(p->host, sizeof(p->host), "%s",
	         !strncmp(host, mapped, sizeof(mapped) - 1) && strchr(host, '.') ? host + sizeof(mapped) - 1 : host);
	memcpy(&p->from, from, len);
	p->from_len = len;
	return true;
}

/* It has the node from now on. */
static enum vb_cable_answer admit(struct guests *g, struct vb_fabric_node *n, const struct sockaddr_storage *from,
                                  socklen_t len)
{
	struct server *s = g->server;
	struct peer *p = guests_of(s) < GUESTS_MOST ? calloc(1, sizeof(*p)) : NULL;

	if (!p)
		return VB_CABLE_TROUBLE;
	p->server = s;
	p->fd = -1;
	p->guest = n;
	p->leave_at = s->now + GREETING_WAIT;
	vb_fabric_hand_over(n, p);
	if (!name_peer(p, from, len) || peer_find_ends(p) || peer_open(p, g->settings, g->digest)) {
		vb_fabric_take_back(n);
		peer_free(p);
		return VB_CABLE_TROUBLE;
	}
	p->next = s->peers;
	s->peers = p;
	return VB_CABLE_YES;
}

static enum vb_cable_answer take_guest(struct guests *g, struct vb_fabric_node *n, const struct sockaddr_storage *from,
                                       socklen_t len)
{
	enum vb_cable_answer answer;

	for (const struct peer *p = g->server->peers; p; p = p->next)
		if (comes_from(p, from, len))
			return p->guest == n ? VB_CABLE_YES : VB_CABLE_TAKEN;
	answer = refusal_of(g->server, n);
	return answer == VB_CABLE_YES ? admit(g, n, from, len) : answer;
}

/* --- questions --- */

/* The socket of a guest that has been taken is connected, and may be of another family than the address by which it came. */
static void tell_guest(const struct guests *g, int fd, const struct vb_sip_key *key, const struct vb_cable_tell *t,
                       const struct sockaddr_storage *to, socklen_t len)
{
	uint8_t d[VB_CABLE_ASK_LEN];
	bool connected = fd != g->fd;

	sendto(fd, d, vb_cable_tell_encode(d, key, t), MSG_DONTWAIT | MSG_NOSIGNAL,
	       connected ? NULL : (const struct sockaddr *)to, connected ? 0 : len);
}

static void answer_ask(struct guests *g, int fd, const struct vb_cable_ask *a, const struct sockaddr_storage *from,
                       socklen_t len)
{
	struct vb_fabric_node *n = vb_fabric_find(g->server->fabric, a->node);
	struct vb_cable_tell t = {.nonce = a->nonce, .at = a->at, .answer = VB_CABLE_TROUBLE};

	if (make_text(g)) {
		t.answer = a->at == VB_CABLE_TAKE ? take_guest(g, n, from, len)
		           : a->at                ? VB_CABLE_YES
		                                  : refusal_of(g->server, n);
		t.whole = (uint32_t)g->len;
	}
	if (t.answer == VB_CABLE_YES && a->at < t.whole) {
		t.len = t.whole - a->at < VB_CABLE_PIECE ? t.whole - a->at : VB_CABLE_PIECE;
		memcpy(t.bytes, g->text + a->at, t.len);
	}
	tell_guest(g, fd, &g->key, &t, from, len);
}

void guests_asked(struct server *s, int fd, const uint8_t *bytes, size_t n, const struct sockaddr_storage *from,
                  socklen_t len)
{
	struct guests *g = s->guests;
	struct vb_cable_ask a;

	if (!g || !vb_cable_ask_decode(&a, bytes, n))
		return;
	if (vb_cable_is_sealed(&g->key, bytes, n)) {
		answer_ask(g, fd, &a, from, len);
		return;
	}
	s->strangers++;
	tell_guest(g, fd, &g->strangers,
	           &(struct vb_cable_tell){.nonce = a.nonce, .at = a.at, .answer = VB_CABLE_BAD_SECRET}, from, len);
}

void guests_event(struct server *s)
{
	static uint8_t bytes[65536];
	struct guests *g = s->guests;

	for (int i = 0; i < READS; i++) {
		struct sockaddr_storage from = {0};
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(g->fd, bytes, sizeof(bytes), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			guests_asked(s, g->fd, bytes, (size_t)n, &from, len);
	}
}

/* --- those that leave --- */

void guests_leave(struct server *s)
{
	for (struct peer **at = &s->peers, *p; (p = *at);) {
		if (!p->guest || p->cable.up || p->leave_at > s->now) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		peer_drop(p);
		vb_fabric_take_back(p->guest);
		peer_free(p);
	}
}

/* --- start and end --- */

static int bind_socket(const struct addrinfo *at)
{
	const int on = 1, off = 0;
	int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (at->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) && !bind(fd, at->ai_addr, at->ai_addrlen))
		return fd;
	int saved = errno;

	close(fd);
	errno = saved;
	return -1;
}

/* All addresses: those of IPv4 too, or alone where there is no IPv6. */
static int open_door(const struct peer_settings *o)
{
	const int families[] = {AF_INET6, AF_INET};
	int fd = -1, rc = 0;

	for (int i = 0; i < 2 && fd < 0; i++) {
		struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_PASSIVE, .ai_family = families[i]},
		                *at = NULL;

		rc = getaddrinfo(o->address, o->port, &hints, &at);
		fd = rc ? -1 : bind_socket(at);
		if (at)
			freeaddrinfo(at);
	}
	if (fd < 0)
		fprintf(stderr, "verbena-fabric: port %s for guests: %s\n", o->port,
		        rc ? gai_strerror(rc) : strerror(errno));
	return fd;
}

int guests_open(struct server *s, const struct peer_settings *o)
{
	struct guests *g = calloc(1, sizeof(*g));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = &s->guests};

	if (!g)
		return -1;
	s->guests = g;
	*g = (struct guests){.server = s,
	                     .fd = open_door(o),
	                     .settings = o,
	                     .key = vb_cable_key(o->secret, o->secret_len),
	                     .strangers = vb_cable_key(NULL, 0)};
	return g->fd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, g->fd, &e) ? -1 : 0;
}

void guests_close(struct server *s)
{
	if (!s->guests)
		return;
	if (s->guests->fd >= 0)
		close(s->guests->fd);
	free(s->guests->text);
	free(s->guests);
	s->guests = NULL;
}
