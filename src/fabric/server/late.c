// late.c - packets that are still on their way, because cables on it have a latency or a rate
// see: docs/infiniband.md, "Packet by packet"
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/server/peer.h"

enum {
	ALL_MOST = 64 << 20, /* bytes, as the next two */
	PACKET_MOST = 4 * VB_LRH_WORDS_MOST + VB_VCRC_LEN,
	STEP = 64 << 10, /* a sender that had too much goes on when it has so much less */
};

/*
 * A packet that is due goes on if there is room at its place: the program reads, or the queue to the other process is short.
 * Otherwise it waits in the line of that place. Its bytes stay those of its sender, which is not read while it has too many: so
 * a sender gets no further than the slowest link or reader on its way, and nothing is lost.
 */
struct late {
	struct late *next; /* in the order of due, or of its line */
	struct late_packet is;
	size_t len;
	uint8_t bytes[];
};

/* The place behind all that is due earlier, or at the same time. Most are due after the last one. */
static struct late **place_for(struct server *s, uint64_t due)
{
	struct late **at = s->late_last && s->late_last->is.due <= due ? &s->late_last->next : &s->late_packets;

	while (*at && (*at)->is.due <= due)
		at = &(*at)->next;
	return at;
}

/* One more, or (sign -1) less. */
static void count(struct server *s, const struct late *p, ssize_t sign)
{
	ssize_t len = (ssize_t)p->len;

	s->late_bytes += (size_t)(sign * ((ssize_t)sizeof(*p) + len));
	s->fabric->late_full = s->late_bytes > ALL_MOST - PACKET_MOST;
	if (p->is.from)
		link_is_late(p->is.from, sign * len);
	else if (p->is.by)
		peer_is_late(p->is.by, sign * len);
}

/* Each sender may have half of what is free. So many senders to slow links find some room, and memory is bounded. */
bool late_is_too_much(const struct server *s, size_t bytes, bool before)
{
	size_t share = s->late_bytes < ALL_MOST ? (ALL_MOST - s->late_bytes) / 2 : 0;

	if (share > LINK_LATE)
		share = LINK_LATE;
	return bytes && bytes + (before ? STEP : 0) > share;
}

void late_put(struct server *s, const struct late_packet *k, const uint8_t *bytes, size_t len)
{
	struct late *p = s->fabric->late_full ? NULL : malloc(sizeof(*p) + len);
	struct late **at = place_for(s, k->due);

	if (!p) {
		vb_fabric_discard(k->end, 1);
		return;
	}
	*p = (struct late){.next = *at, .is = *k, .len = len};
	memcpy(p->bytes, bytes, len);
	*at = p;
	if (!p->next)
		s->late_last = p;
	count(s, p, 1);
}

static struct late *take_first(struct server *s)
{
	struct late *p = s->late_packets;

	s->late_packets = p->next;
	if (!p->next)
		s->late_last = NULL;
	return p;
}

/* --- lines --- */

/* NULL: it goes nowhere. It was for a guest, whose node has come back. */
static struct late_line *line_for(struct link *to, const struct vb_fabric_port *end)
{
	if (to)
		return link_line(to);
	return end->node->away ? &((struct peer *)end->node->where)->line : NULL;
}

bool late_waits(struct link *to, const struct vb_fabric_port *end)
{
	const struct late_line *line = line_for(to, end);

	return line && line->first;
}

static bool has_place(const struct late *p)
{
	return p->is.to ? link_has_room(p->is.to) : !p->is.end->node->away || peer_has_room(p->is.end->node->where);
}

static void line_up(struct late_line *line, struct late *p)
{
	p->next = NULL;
	if (line->first)
		line->last->next = p;
	else
		line->first = p;
	line->last = p;
	if (p->is.to)
		link_lines_up(p->is.from, p->is.to);
	else
		peer_lines_up(p->is.end->node->where);
}

/* Frees it. */
static void go(struct server *s, struct late *p)
{
	count(s, p, -1);
	if (p->is.to)
		link_arrives(p->is.from, p->is.to, p->bytes, p->len);
	else if (p->is.end->node->away)
		link_leaves(p->is.from, p->is.end->peer, p->bytes, p->len, p->is.hops);
	else
		vb_fabric_discard(p->is.end, 1);
	free(p);
}

void late_go_on(struct server *s, struct late_line *line)
{
	while (line->first && has_place(line->first)) {
		struct late *p = line->first;

		line->first = p->next;
		go(s, p);
	}
}

void late_time(struct server *s)
{
	while (s->late_packets && s->late_packets->is.due <= s->now) {
		struct late *p = take_first(s);
		struct late_line *line = line_for(p->is.to, p->is.end);

		if (line && (line->first || !has_place(p)))
			line_up(line, p);
		else
			go(s, p);
	}
}

uint64_t late_deadline(const struct server *s)
{
	return s->late_packets ? s->late_packets->is.due : UINT64_MAX;
}

/* --- the end of a program, or a peer --- */

static void forget(struct late *p, const struct link *l, const struct peer *by)
{
	for (; p; p = p->next) {
		if (l && p->is.from == l)
			p->is.from = NULL;
		if (by && p->is.by == by)
			p->is.by = NULL;
	}
}

/* In all lines. Those of peers have packets of programs, too. */
static void forget_in_lines(struct server *s, const struct link *l, const struct peer *by)
{
	for (struct link *o = s->links; o; o = link_next(o))
		forget(link_line(o)->first, l, by);
	for (struct peer *o = s->peers; o; o = o->next)
		forget(o->line.first, l, by);
}

static void drop(struct server *s, struct late *p)
{
	count(s, p, -1);
	free(p);
}

static void drop_line(struct server *s, struct late_line *line)
{
	while (line->first) {
		struct late *p = line->first;

		line->first = p->next;
		drop(s, p);
	}
}

void late_forget(struct server *s, struct link *l)
{
	struct late **at = &s->late_packets;

	forget(s->late_packets, l, NULL);
	forget_in_lines(s, l, NULL);
	drop_line(s, link_line(l));
	s->late_last = NULL;
	while (*at) {
		struct late *p = *at;

		if (p->is.to != l) {
			s->late_last = p;
			at = &p->next;
			continue;
		}
		*at = p->next;
		drop(s, p);
	}
}

void late_forget_peer(struct server *s, struct peer *p)
{
	forget(s->late_packets, NULL, p);
	forget_in_lines(s, NULL, p);
	drop_line(s, &p->line);
}

void late_free(struct server *s)
{
	while (s->late_packets)
		drop(s, take_first(s));
}
