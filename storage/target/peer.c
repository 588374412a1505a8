// peer.c - charges connections and memory to peers, and limits each peer's share
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

/* Shares of all n connections: */
#define OF_ONE(n) ((n) - (n) / 4)      /* of one peer */
#define GUESTS_OF_ONE(n) ((n) / 4)     /* of one peer, not admitted yet */
#define GUESTS(n) ((n) / 2)            /* of all peers, not admitted yet */
#define DISCOVERY_OF_ONE(n) ((n) / 16) /* of one peer, to the discovery service */
#define DISCOVERY(n) ((n) / 4)         /* of all peers, to the discovery service */
#define LEAST 4u                       /* minimum for the discovery service */

#define TRIES 256u     /* failed authentications of a peer at once, … */
#define FORGETS_MS 64u /* … and after that one per this time */

static uint32_t at_least(uint32_t least, uint32_t n)
{
	return n < least ? least : n;
}

/* At least a whole controller: Linux opens the connections of all queues before it sends Connect on the first. */
void nt_peers_limit(struct nt_target *t, uint32_t connections, uint32_t of_one)
{
	uint32_t controller = t->queues + 1u;

	t->limits = (struct nt_peer_limits){.of_one = of_one ? of_one : at_least(controller, OF_ONE(connections)),
	                                    .guests_of_one = at_least(controller, GUESTS_OF_ONE(connections)),
	                                    .guests = at_least(controller, GUESTS(connections)),
	                                    .discovery_of_one = at_least(LEAST, DISCOVERY_OF_ONE(connections)),
	                                    .discovery = at_least(LEAST, DISCOVERY(connections))};
}

/* ---- the list of peers ---- */

/* An IPv4 address or an IPv6 /64, because a host can use any address of its /64. */
static void peer_name(const struct sockaddr *from, char name[NV_NQN_SIZE])
{
	struct in6_addr a = {0};

	name[0] = 0;
	if (from && from->sa_family == AF_INET6)
		a = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
	if (from && from->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)from)->sin_addr, name, NV_NQN_SIZE);
	else if (from && from->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a))
		inet_ntop(AF_INET, a.s6_addr + 12, name, NV_NQN_SIZE);
	else if (from && from->sa_family == AF_INET6) {
		memset(a.s6_addr + 8, 0, 8);
		inet_ntop(AF_INET6, &a, name, NV_NQN_SIZE);
	}
}

static struct nt_peer **peer_bucket(struct nt_target *t, const char *name)
{
	uint32_t h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return &t->peers[(h ^ h >> 16) % NT_PEER_BUCKETS];
}

static uint32_t recent_tries(const struct nt_target *t, struct nt_peer *p)
{
	uint64_t n = (t->now - p->tries_at) / FORGETS_MS;

	p->tries = n < p->tries ? p->tries - (uint32_t)n : 0;
	p->tries_at = p->tries ? p->tries_at + n * FORGETS_MS : t->now;
	return p->tries;
}

/* False while a peer has failed authentications: it is remembered for a while without a connection. */
static bool is_forgotten(const struct nt_target *t, struct nt_peer *p)
{
	return !p->queues && !recent_tries(t, p);
}

static struct nt_peer *get_peer(struct nt_target *t, const char *name, bool proven)
{
	struct nt_peer **at = peer_bucket(t, name), *p;

	while ((p = *at)) {
		if (p->proven == proven && !strcmp(p->name, name))
			break;
		if (is_forgotten(t, p)) {
			*at = p->next;
			free(p);
		} else {
			at = &p->next;
		}
	}
	at = peer_bucket(t, name);
	if (p || !(p = calloc(1, sizeof(*p))))
		return p;
	strcpy(p->name, name);
	p->proven = proven;
	for (int i = 0; i < NT_PACES; i++)
		p->lines[i].line.end = &p->lines[i].line.first;
	p->next = *at;
	*at = p;
	return p;
}

/* Frees the peer once its last queue has ended. */
static void put_peer(struct nt_target *t, struct nt_peer *p)
{
	struct nt_peer **at = peer_bucket(t, p->name);

	if (!is_forgotten(t, p))
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

/* ---- guests: connections not admitted to a subsystem yet, or to the discovery service ---- */

static uint32_t *count_of(struct nt_peer *p, enum nt_guest kind)
{
	return kind == NT_GUEST_DISCOVERY ? &p->discovery : &p->guests;
}

static void guest_leaves(struct nt_queue *q)
{
	struct nt_target *t = q->target;

	if (!q->guest)
		return;
	--*count_of(q->owner, q->guest);
	t->guest_count[q->guest]--;
	*q->guest_back = q->guest_next;
	if (q->guest_next)
		q->guest_next->guest_back = q->guest_back;
	else
		t->guests_end = q->guest_back;
	q->guest = NT_GUEST_NONE;
}

static void guest_comes(struct nt_queue *q, enum nt_guest kind)
{
	struct nt_target *t = q->target;

	++*count_of(q->owner, kind);
	t->guest_count[kind]++;
	q->guest = kind;
	q->guest_next = NULL;
	q->guest_back = t->guests_end;
	*t->guests_end = q;
	t->guests_end = &q->guest_next;
}

/* Frees a place: the peer with the most guests loses its oldest connection, unless the newcomer's peer has as many. */
static bool make_guest_room(struct nt_target *t, struct nt_peer *for_whom, enum nt_guest kind)
{
	struct nt_queue *oldest = NULL;
	uint32_t most = *count_of(for_whom, kind) + 1;

	for (struct nt_queue *q = t->guests; q; q = q->guest_next)
		if (q->guest == kind && *count_of(q->owner, kind) > most) {
			most = *count_of(q->owner, kind);
			oldest = q;
		}
	if (!oldest)
		return false;
	guest_leaves(oldest);
	oldest->ops->close(oldest);
	return true;
}

static bool room_for_guest(struct nt_target *t, struct nt_peer *p, enum nt_guest kind)
{
	uint32_t of_one = kind == NT_GUEST_DISCOVERY ? t->limits.discovery_of_one : t->limits.guests_of_one,
	         all = kind == NT_GUEST_DISCOVERY ? t->limits.discovery : t->limits.guests;

	return *count_of(p, kind) < of_one && (t->guest_count[kind] < all || make_guest_room(t, p, kind));
}

/* ---- the stages of a queue ---- */

bool nt_peer_join(struct nt_queue *q, const struct sockaddr *from)
{
	char name[NV_NQN_SIZE];

	peer_name(from, name);
	struct nt_peer *p = get_peer(q->target, name, false);

	if (!p)
		return false;
	if (p->queues >= q->target->limits.of_one || !room_for_guest(q->target, p, NT_GUEST_STRANGER)) {
		put_peer(q->target, p);
		return false;
	}
	p->queues++;
	q->owner = p;
	guest_comes(q, NT_GUEST_STRANGER);
	return true;
}

bool nt_peer_discovers(struct nt_queue *q)
{
	if (!room_for_guest(q->target, q->owner, NT_GUEST_DISCOVERY))
		return false;
	guest_leaves(q);
	guest_comes(q, NT_GUEST_DISCOVERY);
	return true;
}

/* Moves a connection from the account of its address to that of its host. */
static bool change_owner(struct nt_queue *q, const char *hostnqn)
{
	struct nt_peer *from = q->owner, *to = get_peer(q->target, hostnqn, true);

	if (to == from)
		return true;
	if (!to || to->queues >= q->target->limits.of_one ||
	    (q->guest == NT_GUEST_DISCOVERY && to->discovery >= q->target->limits.discovery_of_one)) {
		if (to)
			put_peer(q->target, to);
		return false;
	}
	enum nt_guest guest = q->guest;

	guest_leaves(q);
	to->queues++;
	nt_queue_recount(q, to);
	q->owner = to;
	if (guest == NT_GUEST_DISCOVERY)
		guest_comes(q, guest);
	from->queues--;
	put_peer(q->target, from);
	return true;
}

bool nt_peer_in(struct nt_queue *q, const char *hostnqn)
{
	if (q->guest == NT_GUEST_STRANGER)
		guest_leaves(q);
	return !(q->proven || q->only_host) || change_owner(q, hostnqn);
}

bool nt_peer_tries(struct nt_queue *q)
{
	if (recent_tries(q->target, q->owner) >= TRIES)
		return false;
	q->owner->tries++;
	return true;
}

void nt_peer_succeeds(struct nt_queue *q)
{
	q->owner->tries -= q->owner->tries > 0;
}

void nt_peers_forget(struct nt_target *t)
{
	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		while (t->peers[i]) {
			struct nt_peer *p = t->peers[i];

			t->peers[i] = p->next;
			free(p);
		}
}

void nt_peer_leave(struct nt_queue *q)
{
	struct nt_peer *p = q->owner;

	if (!p)
		return;
	guest_leaves(q);
	q->owner = NULL;
	p->queues--;
	put_peer(q->target, p);
}
