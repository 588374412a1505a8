// link.c - programs that send and receive packets on a port: their trains, and the queue at the end of each way
// follows: IBA volume 1, 7.9 (flow control), 18.2.5.4 (lifetime of a packet at the head of a queue, stalled lanes)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "fabric/server/server.h"
#include "frame/fields.h"
#include "frame/header.h"

/*
 * A program that does not read fast enough gets what its socket holds, and LINK_QUEUE bytes that wait here. While these
 * wait, no more is read from the programs that have sent them: their own sockets fill, and they wait. So nothing is
 * lost. It ends when the patience for that program does: what waits is discarded, and so is all that follows, until the
 * program reads again.
 *
 * Others wait for LINK_LIFETIME at most. What the program reads buys more time, LINK_WORTH for a byte, and so do times in which
 * nobody waits, a part of them. So those who send to a program that hardly reads are not held up by it for long.
 */
struct link {
	struct server *server;
	struct link *next, **at;           /* of the server */
	struct link *next_here, **at_here; /* of the port */
	struct client *client;
	struct vb_fabric_port *port;
	uint32_t qpn, mask;
	struct vb_fabric_course course;
	struct link *waits_for;       /* it has sent what waits there */
	const struct peer *waits_way; /* so too */
	uint64_t waits_until;
	uint64_t patience, counted_at; /* ns: so long others wait for it, from counted_at on */
	bool awaited;
	bool stalled;
	size_t late; /* bytes that it has sent and that have not arrived yet */
	bool waits_late;
	struct late_line line; /* for it */
	uint64_t line_until;   /* then what waits in its line is discarded, unless the program reads */
};

static struct link *link_for(const struct vb_fabric_port *p, uint32_t qpn)
{
	struct link *l = p->links;

	while (l && (qpn & l->mask) != l->qpn)
		l = l->next_here;
	return l;
}

/* Would both get packets for one queue pair? */
static bool is_taken(const struct vb_fabric_port *p, const struct vb_fabric_link_ask *ask)
{
	for (const struct link *l = p->links; l; l = l->next_here)
		if (((l->qpn ^ ask->qpn) & l->mask & ask->mask) == 0)
			return true;
	return false;
}

int link_open(struct server *s, const struct vb_fabric_link_ask *ask, struct client *c, struct link **link)
{
	struct vb_fabric_node *n = server_ca(s, ask->node);
	struct vb_fabric_port *p = n ? vb_fabric_port(n, ask->port) : NULL;

	if (!p)
		return ENODEV;
	if (ask->qpn & ~ask->mask)
		return EINVAL;
	if (is_taken(p, ask))
		return EADDRINUSE;
	struct link *l = calloc(1, sizeof(*l));
	if (!l)
		return ENOMEM;
	*l = (struct link){.server = s,
	                   .next = s->links,
	                   .at = &s->links,
	                   .next_here = p->links,
	                   .at_here = (struct link **)&p->links,
	                   .client = c,
	                   .port = p,
	                   .qpn = ask->qpn,
	                   .mask = ask->mask,
	                   .patience = LINK_LIFETIME,
	                   .counted_at = s->now};
	if (l->next)
		l->next->at = &l->next;
	if (l->next_here)
		l->next_here->at_here = &l->next_here;
	s->links = p->links = l;
	*link = l;
	return 0;
}

/* --- waiting --- */

static void count_patience(struct link *l)
{
	enum { REGAINED = 8 }; /* of so much time in which nobody waits, one part */
	uint64_t t = l->server->now - l->counted_at, more = l->patience + t / REGAINED;

	l->counted_at = l->server->now;
	if (l->awaited)
		l->patience -= t < l->patience ? t : l->patience;
	else
		l->patience = more < LINK_LIFETIME ? more : LINK_LIFETIME;
}

/* Until when others wait for it. */
static uint64_t end_of_patience(const struct link *l)
{
	struct server *s = l->server;
	uint64_t until = s->now + l->patience;

	if (until < s->links_due)
		s->links_due = until;
	return until;
}

uint64_t link_await(struct link *l)
{
	count_patience(l);
	l->awaited = true;
	return end_of_patience(l);
}

static void settle_pause(struct link *l)
{
	client_pause(l->client, l->waits_for || l->waits_way || l->waits_late);
}

static void hold_back(struct link *l, struct link *until_it_reads)
{
	if (l->waits_for || l->waits_way)
		return;
	l->waits_for = until_it_reads;
	l->waits_until = link_await(until_it_reads);
	settle_pause(l);
}

static void hold_for_credit(struct link *l, const struct peer *way)
{
	if (l->waits_for || l->waits_way)
		return;
	l->waits_way = way;
	settle_pause(l);
}

static void release_link(struct link *l)
{
	l->waits_for = NULL;
	l->waits_way = NULL;
	settle_pause(l);
}

/* A link takes no more than it sends. */
void link_is_late(struct link *l, ssize_t bytes)
{
	l->late += (size_t)bytes;
	l->waits_late = late_is_too_much(l->server, l->late, l->waits_late);
	settle_pause(l);
}

struct late_line *link_line(struct link *l)
{
	return &l->line;
}

struct link *link_next(const struct link *l)
{
	return l->next;
}

bool link_has_room(const struct link *l)
{
	return !client_is_behind(l->client);
}

void link_lines_up(struct link *from, struct link *to)
{
	to->line_until = link_await(to);
	if (from)
		hold_back(from, to);
}

static void release_waiting(struct link *l)
{
	for (struct link *o = l->server->links; o; o = o->next)
		if (o->waits_for == l)
			release_link(o);
	peers_caught_up(l->server, l);
}

void link_caught_up(struct link *l)
{
	count_patience(l);
	l->awaited = false;
	late_go_on(l->server, &l->line);
	if (l->line.first || client_is_behind(l->client)) /* what has come first goes first */
		l->line_until = link_await(l);
	else
		release_waiting(l);
}

void link_reads(struct link *l, size_t bytes)
{
	uint64_t until;

	count_patience(l);
	l->patience += bytes * LINK_WORTH;
	if (l->patience > LINK_LIFETIME)
		l->patience = LINK_LIFETIME;
	l->line_until = until = end_of_patience(l);
	for (struct link *o = l->server->links; o; o = o->next)
		if (o->waits_for == l)
			o->waits_until = until;
	peers_wait_until(l->server, l, until);
}

void links_go_on(struct server *s, const struct peer *p)
{
	for (struct link *o = s->links; o; o = o->next)
		if (o->waits_way == p)
			release_link(o);
}

static void discard_train(void *arg, const uint8_t *bytes, size_t len)
{
	struct link *l = arg;
	struct vb_lrh h;
	uint64_t n = 0;

	for (size_t at = 0; at + VB_LRH_LEN <= len; n++) {
		vb_lrh_decode(&h, bytes + at);
		at += 4u * h.words + VB_VCRC_LEN;
	}
	vb_fabric_discard(l->port, n);
}

/* epoll tells of room in its socket only when the program has read three quarters of what that holds. */
void link_stall(struct link *l)
{
	if (client_flush(l->client))
		return;
	l->stalled = true;
	client_drop_waiting(l->client, discard_train, l);
	link_caught_up(l);
}

static uint64_t least_deadline(const struct server *s)
{
	uint64_t due = UINT64_MAX;

	for (const struct link *l = s->links; l; l = l->next) {
		if (l->waits_for && l->waits_until < due)
			due = l->waits_until;
		if (l->line.first && l->line_until < due)
			due = l->line_until;
	}
	return due;
}

void links_time(struct server *s)
{
	if (s->now < s->links_due)
		return;
	for (struct link *l = s->links; l; l = l->next)
		if (l->waits_for && l->waits_until <= s->now)
			link_stall(l->waits_for);
		else if (l->line.first && l->line_until <= s->now)
			link_stall(l);
	s->links_due = least_deadline(s);
}

uint64_t links_deadline(const struct server *s)
{
	return s->links_due;
}

void link_close(struct link *l)
{
	late_forget(l->server, l);
	release_waiting(l);
	*l->at = l->next;
	if (l->next)
		l->next->at = l->at;
	*l->at_here = l->next_here;
	if (l->next_here)
		l->next_here->at_here = l->at_here;
	free(l);
}

/* --- trains --- */

/* Packets of a train that end at the same program. */
struct run {
	struct link *to;
	const uint8_t *bytes;
	size_t len;
};

struct link *link_at(const struct vb_fabric_port *p, const uint8_t *bth)
{
	return link_for(p, vb_bth_dest_qpn(bth));
}

bool link_give(struct link *to, const uint8_t *bytes, size_t len)
{
	if (client_offer(to->client, bytes, len, to->stalled ? 0 : LINK_QUEUE))
		to->stalled = false;
	else
		discard_train(to, bytes, len);
	return client_is_behind(to->client);
}

static void deliver(struct link *from, const struct run *r)
{
	if (r->to && link_give(r->to, r->bytes, r->len))
		hold_back(from, r->to);
}

void link_arrives(struct link *from, struct link *to, const uint8_t *bytes, size_t len)
{
	if (link_give(to, bytes, len) && from)
		hold_back(from, to);
}

void link_leaves(struct link *from, struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops)
{
	if (peer_offer(out, bytes, len, hops) && from)
		hold_for_credit(from, out->peer->node->where);
}

/* The program that gets the packet now. NULL: nobody, it has left for another process, or it is late. */
static struct link *receiver_of(struct link *l, uint8_t *bytes, const struct vb_link_packet *p,
                                enum vb_link_verdict verdict)
{
	struct vb_fabric_port *end = vb_fabric_carry(l->port, &l->course, bytes, p, verdict);
	bool leaves = end && end->node->away;
	struct link *to = end && !leaves ? link_at(end, bytes + p->transport_at) : NULL;

	if (end && !leaves && !to)
		l->server->fabric->drops.nobody++;
	if ((to || leaves) && (l->course.due || late_waits(to, end))) {
		late_put(l->server,
		         &(struct late_packet){.due = l->course.due ? l->course.due : l->server->now,
		                               .from = l,
		                               .to = to,
		                               .end = end,
		                               .hops = l->course.hops},
		         bytes, p->len);
		return NULL;
	}
	if (leaves)
		link_leaves(l, end->peer, bytes, p->len, l->course.hops);
	return to;
}

void link_take(struct link *l, uint8_t *bytes, size_t n)
{
	struct run run = {.to = NULL};
	struct vb_link_packet p;

	for (size_t at = 0; at < n; at += p.len) {
		enum vb_link_verdict verdict = vb_link_decode(&p, bytes + at, n - at);

		if (!p.len) { /* where the next one begins is unknown */
			l->server->fabric->drops.bad_packet++;
			break;
		}
		struct link *to = receiver_of(l, bytes + at, &p, verdict);

		if (to != run.to || !to) {
			deliver(l, &run);
			run = (struct run){.to = to, .bytes = bytes + at};
		}
		run.len += p.len;
	}
	deliver(l, &run);
}
