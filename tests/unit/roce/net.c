// net.c - a network that loses, doubles, reorders, damages and delays packets, in the same way for the same seed
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "net.h"

uint64_t net_random(struct net *net)
{
	uint64_t z = net->random += 0x9e3779b97f4a7c15ull; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t net_below(struct net *net, uint32_t n)
{
	return n ? (uint32_t)(net_random(net) % n) : 0;
}

static bool before(const struct net_packet *a, const struct net_packet *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void push(struct net *net, struct net_packet *p)
{
	uint32_t i = net->count++;

	while (i && before(p, net->heap[(i - 1) / 2])) {
		net->heap[i] = net->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	net->heap[i] = p;
}

struct net_packet *net_take(struct net *net)
{
	struct net_packet *first = net->heap[0], *last = net->heap[--net->count];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < net->count) {
		if (child + 1 < net->count && before(net->heap[child + 1], net->heap[child]))
			child++;
		if (!before(net->heap[child], last))
			break;
		net->heap[i] = net->heap[child];
		i = child;
	}
	net->heap[i] = last;
	return first;
}

const struct net_packet *net_next(const struct net *net)
{
	return net->count ? net->heap[0] : NULL;
}

static bool chance(struct net *net, uint32_t of_10000)
{
	return net_below(net, 10000) < of_10000;
}

static void deliver(struct net *net, int to, const uint8_t *bytes, size_t len, uint64_t at)
{
	struct net_link *link = &net->link[to];

	if (net->count == NET_IN_FLIGHT)
		return;
	struct net_packet *p = malloc(sizeof(*p));

	p->at = at + link->delay + (link->jitter ? net_random(net) % link->jitter : 0);
	if (chance(net, link->late))
		p->at += net_random(net) % (link->late_by + 1);
	p->number = net->number++;
	p->len = (uint32_t)len;
	p->to = (uint8_t)to;
	p->marked = chance(net, link->mark);
	memcpy(p->bytes, bytes, len);
	if (chance(net, link->damage))
		p->bytes[net_below(net, p->len)] ^= (uint8_t)(1 + net_below(net, 255));
	push(net, p);
}

void net_send(struct net *net, int to, const uint8_t *bytes, size_t len, uint64_t now)
{
	struct net_link *link = &net->link[to];
	uint64_t at = now;

	net->sent++;
	if (chance(net, link->lose) || (now >= link->dead_from && now < link->dead_to)) {
		net->lost++;
		return;
	}
	if (link->bits_per_us) {
		uint64_t start = link->free_at > now ? link->free_at : now;

		if (link->queue && (start - now) * link->bits_per_us / 8000 > link->queue) {
			net->lost++;
			return;
		}
		at = link->free_at = start + (len + 60) * 8000 / link->bits_per_us;
	}
	deliver(net, to, bytes, len, at);
	if (chance(net, link->twice))
		deliver(net, to, bytes, len, at);
}
