// late.c - packets that are still on their way, because cables on it have a latency or a rate
// see: docs/infiniband.md, "Packet by packet"
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/server/peer.h"

enum { ALL_MOST = 64 << 20, PACKET_MOST = 4 * VB_LRH_WORDS_MOST + VB_VCRC_LEN /* bytes */ };

struct late {
	struct late *next; /* in the order of due */
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
	count(s, p, -1);
	return p;
}

void late_time(struct server *s)
{
	while (s->late_packets && s->late_packets->is.due <= s->now) {
		struct late *p = take_first(s);

		if (p->is.to)
			link_arrives(p->is.from, p->is.to, p->bytes, p->len);
		else if (p->is.end->node->away)
			link_leaves(p->is.from, p->is.end->peer, p->bytes, p->len, p->is.hops);
		else /* it was a guest's, and has come back */
			vb_fabric_discard(p->is.end, 1);
		free(p);
	}
}

uint64_t late_deadline(const struct server *s)
{
	return s->late_packets ? s->late_packets->is.due : UINT64_MAX;
}

void late_forget(struct server *s, const struct link *l)
{
	struct late **at = &s->late_packets;

	s->late_last = NULL;
	while (*at) {
		struct late *p = *at;

		if (p->is.from == l)
			p->is.from = NULL;
		if (p->is.to != l) {
			s->late_last = p;
			at = &p->next;
			continue;
		}
		*at = p->next;
		count(s, p, -1);
		free(p);
	}
}

void late_free(struct server *s)
{
	while (s->late_packets)
		free(take_first(s));
}
