// guest_self.c - this process is a guest: it gets the topology from another one, and has one channel adapter of it
// see: fabric/cable/cable.h; docs/infiniband.md, "A program on another host"
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "fabric/server/peer.h"
#include "fabric/topology.h"

enum { ASK_AGAIN_MS = 200, ASKS = 20, REFUSED_ASKS = 5 };
#define PATIENCE (VB_CABLE_SILENCE + 1000000000u) /* ns: the guest before us may have ended a moment ago */

static const char *const answers[] = {
#define X(name, text) text,
        VB_CABLE_ANSWERS(X)
#undef X
};

struct fetch {
	struct peer *peer;
	struct vb_sip_key key, strangers;
	struct vb_cable_ask ask;
	struct vb_cable_tell tell;
	bool refused;   /* by ICMP: nobody listens there */
	uint64_t until; /* so long we wait for a channel adapter that is taken */
	struct vb_cable_text text;
};

static int guest_fails(const struct peer *p, const char *why)
{
	fprintf(stderr, "verbena-fabric: %s, port %s: %s\n", p->host, p->port, why);
	return -1;
}

/* --- one question --- */

/* An answer to one of our questions? */
static bool hear(struct fetch *f, int ms)
{
	struct pollfd fd = {.fd = f->peer->fd, .events = POLLIN};
	uint8_t d[VB_CABLE_ASK_LEN + 1];
	ssize_t n = poll(&fd, 1, ms) > 0 ? recv(fd.fd, d, sizeof(d), MSG_DONTWAIT) : -1;

	f->refused = f->refused || (n < 0 && errno == ECONNREFUSED);
	if (n <= 0 || !vb_cable_tell_decode(&f->tell, d, (size_t)n) || f->tell.nonce != f->ask.nonce)
		return false;
	return vb_cable_is_sealed(&f->key, d, (size_t)n) ||
	       (f->tell.answer == VB_CABLE_BAD_SECRET && vb_cable_is_sealed(&f->strangers, d, (size_t)n));
}

/* If nobody listens there, somebody may a moment later. */
static int ask_once(struct fetch *f)
{
	f->refused = false;
	vb_cable_ask_encode(f->peer->ask, &f->key, &f->ask);
	for (int i = 0; i < (f->refused ? REFUSED_ASKS : ASKS); i++) {
		if (send(f->peer->fd, f->peer->ask, sizeof(f->peer->ask), MSG_NOSIGNAL) < 0)
			f->refused = f->refused || errno == ECONNREFUSED;
		for (uint64_t until = server_now() + ASK_AGAIN_MS * 1000000ull, now; (now = server_now()) < until;)
			if (hear(f, (int)((until - now) / 1000000 + 1)) && f->tell.at == f->ask.at)
				return 0;
	}
	return guest_fails(f->peer, f->refused ? "no fabric process listens there"
	                                       : "no fabric process that takes guests (--guests) answers there");
}

static int ask(struct fetch *f)
{
	while (!ask_once(f)) {
		if (f->tell.answer == VB_CABLE_YES)
			return 0;
		if (f->tell.answer != VB_CABLE_TAKEN || server_now() >= f->until)
			return guest_fails(f->peer, f->tell.answer < VB_CABLE_ANSWERS_MOST
			                                    ? answers[f->tell.answer]
			                                    : "an answer of another version");
		poll(NULL, 0, ASK_AGAIN_MS);
	}
	return -1;
}

/* --- the topology --- */

static void ask_for_pieces(struct fetch *f)
{
	uint8_t d[VB_CABLE_ASK_LEN];

	while (vb_cable_text_next(&f->text, &f->ask.at)) {
		vb_cable_ask_encode(d, &f->key, &f->ask);
		send(f->peer->fd, d, sizeof(d), MSG_NOSIGNAL);
	}
}

/* The pieces behind the first. 0; EAGAIN: it is another text now; ETIMEDOUT. */
static int fetch_rest(struct fetch *f)
{
	uint64_t heard = server_now(), now;

	for (int silent = 0; !vb_cable_text_is_whole(&f->text) && silent < ASKS;) {
		ask_for_pieces(f);
		if (hear(f, ASK_AGAIN_MS)) {
			if (f->tell.answer != VB_CABLE_YES || !vb_cable_text_take(&f->text, &f->tell))
				return EAGAIN;
			heard = server_now();
			silent = 0;
		}
		now = server_now();
		if (now - heard >= ASK_AGAIN_MS * 1000000ull) {
			vb_cable_text_again(&f->text);
			heard = now;
			silent++;
		}
	}
	return vb_cable_text_is_whole(&f->text) ? 0 : ETIMEDOUT;
}

static int fetch_text(struct fetch *f)
{
	int rc = EAGAIN;

	for (int again = 0; again < ASKS && rc == EAGAIN; again++) {
		vb_cable_text_free(&f->text);
		f->ask.at = 0;
		if (ask(f))
			return -1;
		if (!vb_cable_text_begin(&f->text, &f->tell))
			return guest_fails(f->peer, "its topology is too large");
		rc = fetch_rest(f);
	}
	return !rc ? 0
	           : guest_fails(f->peer, rc == EAGAIN ? "its topology changes all the time" : "it has fallen silent");
}

static bool take_addresses(struct server *s, char *text)
{
	char *line, *rest = NULL;

	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *tab = strchr(line, '\t');
		struct vb_fabric_node *n = tab ? vb_fabric_find(s->fabric, tab + 1) : NULL;

		if (!n)
			continue;
		*tab = '\0';
		if (ctl_address(s, n, line, stderr))
			return false;
	}
	return true;
}

static int read_text(struct server *s, struct fetch *f)
{
	struct vb_topology_error e = {0};
	size_t topology = strlen(f->text.bytes);

	if (!vb_topology_read(s->fabric, f->text.bytes, topology, &e))
		return guest_fails(f->peer, e.reason);
	return topology == f->text.whole || take_addresses(s, f->text.bytes + topology + 1)
	               ? 0
	               : guest_fails(f->peer, "its addresses cannot be read");
}

/* --- later: the other process has been started again, or has given us up --- */

void guest_told(struct peer *p, const uint8_t *bytes, size_t len)
{
	struct vb_cable_tell t;

	if (p->complained || !vb_cable_tell_decode(&t, bytes, len) || !t.answer || t.answer >= VB_CABLE_ANSWERS_MOST ||
	    !vb_cable_is_sealed(&p->cable.secret, bytes, len))
		return;
	p->complained = true;
	guest_fails(p, answers[t.answer]);
}

/* --- start --- */

/* Any port of ours: the other process answers where we ask from. */
static int connect_host(struct peer *p)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *to = NULL;
	int rc = getaddrinfo(p->host, p->port, &hints, &to);

	p->fd = rc ? -1 : peer_socket(to, NULL);
	rc = p->fd < 0 ? guest_fails(p, rc && rc != EAI_SYSTEM ? gai_strerror(rc) : strerror(errno)) : 0;
	if (to)
		freeaddrinfo(to);
	return rc;
}

int guest_start(struct server *s, const char *host, const char **own, const struct peer_settings *o)
{
	struct fetch f = {.key = vb_cable_key(o->secret, o->secret_len), .strangers = vb_cable_key(NULL, 0)};
	char text[320];

	snprintf(text, sizeof(text), "%.300s=*", host);
	if (!peer_add(s, text) || strlen(*own) >= sizeof(f.ask.node)) {
		fprintf(stderr, "verbena-fabric: --join %s: it is written as HOST[:PORT], and --own has one name\n",
		        host);
		return -1;
	}
	f.peer = s->peers;
	f.peer->nodes = "*";
	f.until = server_now() + PATIENCE;
	strcpy(f.ask.node, *own);
	if (getrandom(&f.ask.nonce, sizeof(f.ask.nonce), 0) != sizeof(f.ask.nonce))
		return guest_fails(f.peer, strerror(errno));
	int rc = connect_host(f.peer) || fetch_text(&f) || read_text(s, &f) ? -1 : 0;

	vb_cable_text_free(&f.text);
	const struct vb_fabric_node *n = rc ? NULL : vb_fabric_find(s->fabric, *own);

	if (!rc && !n)
		rc = guest_fails(f.peer, answers[VB_CABLE_NO_NODE]);
	if (rc)
		return rc;
	*own = n->id;
	f.ask.at = VB_CABLE_TAKE;
	rc = ask(&f);
	f.peer->asks = !rc;
	return rc;
}
