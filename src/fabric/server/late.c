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
	struct late *next; /* of its line */
	struct late_packet is;
	size_t len;
	uint8_t bytes[];
};

/* --- a heap: links of different latencies mix their packets, so a list would be walked for each --- */

struct late_due {
	uint64_t due, turn; /* turn: those that are due at one time go on in the order in which they came */
	struct late *packet;
};

static bool is_before(const struct late_due *a, const struct late_due *b)
{
	return a->due != b->due ? a->due < b->due : a->turn < b->turn;
}

static bool heap_has_room(struct late_heap *h)
{
	size_t room = h->room ? 2 * h->room : 64;
	struct late_due *more = h->count < h->room ? NULL : realloc(h->first, room * sizeof(*more));

	if (more) {
		h->first = more;
		h->room = room;
	}
	return h->count < h->room;
}

/* The place `at` is free: d goes there, or to where one of those above it was. */
static void move_up(struct late_heap *h, size_t at, struct late_due d)
{
	for (; at && is_before(&d, &h->first[(at - 1) / 2]); at = (at - 1) / 2)
		h->first[at] = h->first[(at - 1) / 2];
	h->first[at] = d;
}

/* The same with those below it. */
static void move_down(struct late_heap *h, size_t at, struct late_due d)
{
	for (size_t below; (below = 2 * at + 1) < h->count; at = below) {
		below += below + 1 < h->count && is_before(&h->first[below + 1], &h->first[below]);
		if (!is_before(&h->first[below], &d))
			break;
		h->first[at] = h->first[below];
	}
	h->first[at] = d;
}

static struct late *take_first(struct late_heap *h)
{
	struct late *p = h->first[0].packet;

	if (--h->count)
		move_down(h, 0, h->first[h->count]);
	return p;
}

/* After packets were taken out anywhere. */
static void heap_order(struct late_heap *h)
{
	for (size_t i = h->count / 2; i--;)
		move_down(h, i, h->first[i]);
}

/* --- what is under way --- */

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
	struct late_heap *h = &s->late_heap;
	struct late *p = s->fabric->late_full || !heap_has_room(h) ? NULL : malloc(sizeof(*p) + len);

	if (!p) {
		vb_fabric_discard(k->end, 1);
		return;
	}
	*p = (struct late){.is = *k, .len = len};
	memcpy(p->bytes, bytes, len);
	move_up(h, h->count++, (struct late_due){k->due, h->turn++, p});
	count(s, p, 1);
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
	while (s->late_heap.count && s->late_heap.first->due <= s->now) {
		struct late *p = take_first(&s->late_heap);
		struct late_line *line = line_for(p->is.to, p->is.end);

		if (line && (line->first || !has_place(p)))
			line_up(line, p);
		else
			go(s, p);
	}
}

uint64_t late_deadline(const struct server *s)
{
	return s->late_heap.count ? s->late_heap.first->due : UINT64_MAX;
}

/* --- the end of a program, or a peer --- */

static void forget(struct late *p, const struct link *l, const struct peer *by)
{
	if (l && p->is.from == l)
		p->is.from = NULL;
	if (by && p->is.by == by)
		p->is.by = NULL;
}

static void forget_in_line(const struct late_line *line, const struct link *l, const struct peer *by)
{
	for (struct late *p = line->first; p; p = p->next)
		forget(p, l, by);
}

/* Wherever it is. The lines of peers have packets of programs, too. */
static void forget_sender(struct server *s, const struct link *l, const struct peer *by)
{
	for (size_t i = 0; i < s->late_heap.count; i++)
		forget(s->late_heap.first[i].packet, l, by);
	for (struct link *o = s->links; o; o = link_next(o))
		forget_in_line(link_line(o), l, by);
	for (struct peer *o = s->peers; o; o = o->next)
		forget_in_line(&o->line, l, by);
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
	struct late_heap *h = &s->late_heap;
	size_t kept = 0;

	forget_sender(s, l, NULL);
	drop_line(s, link_line(l));
	for (size_t i = 0; i < h->count; i++)
		if (h->first[i].packet->is.to == l)
			drop(s, h->first[i].packet);
		else
			h->first[kept++] = h->first[i];
	if (kept == h->count)
		return;
	h->count = kept;
	heap_order(h);
}

void late_forget_peer(struct server *s, struct peer *p)
{
	forget_sender(s, NULL, p);
	drop_line(s, &p->line);
}

void late_free(struct server *s)
{
	while (s->late_heap.count)
		drop(s, take_first(&s->late_heap));
	free(s->late_heap.first);
	s->late_heap = (struct late_heap){.first = NULL};
}
