// peer_data.c - packets to and from another fabric process: what waits for credit, and where what comes in goes
// follows: IBA volume 1, 7.9 (flow control), 18.2.5.4 (lifetime of a packet at the head of a queue)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/server/peer.h"
#include "frame/header.h"

/*
 * The other process says how much its socket holds and how far it has taken packets. What it has no room for waits here:
 * LINK_QUEUE bytes, and meanwhile no more is read from the programs that have sent them. After STUCK it is discarded, or
 * after HELD if the other process says meanwhile that it is held up.
 * Management datagrams wait for no credit, as those of VL 15 on a link; URGENT bytes of them are kept.
 */
#define URGENT (256u << 10)
#define STUCK 1000000000u /* ns; the other process may not have the processor */
/* ns; so long it may say that it is held up. Processes that wait for one another go on then. */
#define HELD 60000000000u

enum {
	CROSSINGS_MOST = 16, /* of a datagram to a group */
	TOLD_EVERY = 16,     /* datagrams */
	BEHIND = 65536,      /* bytes that wait: then senders wait too */
};

/* --- to the other process --- */

static void discarded(struct vb_fabric_port *out, size_t packets)
{
	out->node->fabric->drops.queue_full += packets;
	out->counters.xmit_discards += packets;
}

static void drop_train(struct train_queue *q)
{
	struct train *t = q->first;

	q->first = t->next;
	if (!q->first)
		q->last = NULL;
	q->bytes -= t->len;
	free(t);
}

/* The last one of a cable. NULL: it has none. */
static struct train *last_of(const struct train_queue *q, const struct vb_fabric_port *out)
{
	struct train *last = NULL;

	if (q->last && q->last->out == out)
		return q->last;
	for (struct train *t = q->first; t; t = t->next)
		if (t->out == out)
			last = t;
	return last;
}

/* Packets keep their order within a cable alone. So no cable has two trains that are less than nearly full. */
static struct train *train_for(struct train_queue *q, struct vb_fabric_port *out, size_t len)
{
	struct train *t = last_of(q, out);

	if (t && t->len + len <= sizeof(t->records))
		return t;
	t = malloc(sizeof(*t));
	if (!t)
		return NULL;
	t->next = NULL;
	t->out = out;
	t->len = t->packets = 0;
	if (q->last)
		q->last->next = t;
	else
		q->first = t;
	return q->last = t;
}

/* False: it was discarded. */
static bool add_packet(struct peer *p, struct train_queue *q, size_t most, struct vb_fabric_port *out,
                       const uint8_t *bytes, size_t len, unsigned hops)
{
	size_t record = VB_CABLE_RECORD + len;
	struct train *t = p->cable.up && q->bytes + record <= most ? train_for(q, out, record) : NULL;

	if (!t) {
		discarded(out, 1);
		return false;
	}
	vb_cable_record(t->records + t->len, len, hops);
	memcpy(t->records + t->len + VB_CABLE_RECORD, bytes, len);
	t->len += record;
	t->packets++;
	q->bytes += record;
	return true;
}

bool peer_offer(struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops)
{
	struct peer *p = out->peer->node->where;

	add_packet(p, &p->queue, LINK_QUEUE, out, bytes, len, hops);
	if (p->queue.bytes >= PEER_TRAIN)
		peer_flush(p);
	if (p->queue.bytes <= BEHIND)
		return false;
	p->is_awaited = true;
	return true;
}

static void send_train(struct peer *p, const struct train *t)
{
	static uint8_t out[PEER_TRAIN + PEER_TRAIN / VB_CABLE_BODY_LEAST * VB_CABLE_HEADER + VB_CABLE_HEADER];
	const struct vb_fabric_port *end = t->out->peer;

	peer_transmit(
	        p, out,
	        vb_cable_pack(&p->cable, out, sizeof(out), p->datagram, end->node->guid, end->num, t->records, t->len));
}

static bool waits(const struct peer *p)
{
	return p->waits_for || p->waits_way || p->waits_late;
}

static void take_again(struct peer *p)
{
	if (waits(p))
		return;
	p->cable.holds = false;
	p->cable.taken_seq = p->cable.heard_seq;
	vb_cable_tell(&p->cable, false);
}

/* There is room again in the queue to this peer. */
static void go_on(struct peer *to)
{
	if (!to->is_awaited)
		return;
	to->is_awaited = false;
	late_go_on(to->server, &to->line);
	if (to->line.first) { /* what has come first goes first */
		to->is_awaited = true;
		return;
	}
	links_go_on(to->server, to);
	for (struct peer *p = to->server->peers; p; p = p->next)
		if (p->waits_way == to) {
			p->waits_way = NULL;
			take_again(p);
		}
}

/* The queue waits for credit. anew: from this moment on. */
static void wait_for_credit(struct peer *p, bool anew)
{
	uint64_t now = p->server->now;

	if (anew)
		p->held_until = now + HELD;
	if (anew || (p->cable.is_held && now < p->held_until))
		p->stuck_until = now + STUCK;
}

void peer_flush(struct peer *p)
{
	size_t body = p->datagram - VB_CABLE_HEADER;
	bool moved = false;

	for (; p->urgent.first; drop_train(&p->urgent))
		send_train(p, p->urgent.first);
	for (struct train *t; (t = p->queue.first) != NULL; drop_train(&p->queue)) {
		if (vb_cable_credit(&p->cable, p->datagram) < (t->len + body - 1) / body)
			break;
		send_train(p, t);
		moved = true;
	}
	if (!p->queue.first)
		p->stuck_until = 0;
	else
		wait_for_credit(p, moved || !p->stuck_until);
	if (p->queue.bytes <= BEHIND)
		go_on(p);
}

void peer_drop(struct peer *p)
{
	for (; p->queue.first; drop_train(&p->queue))
		discarded(p->queue.first->out, p->queue.first->packets);
	for (; p->urgent.first; drop_train(&p->urgent))
		discarded(p->urgent.first->out, p->urgent.first->packets);
	p->stuck_until = 0;
	go_on(p);
}

bool peer_has_room(const struct peer *p)
{
	return !p->cable.up || p->queue.bytes <= BEHIND; /* what cannot be sent is discarded at once */
}

void peer_lines_up(struct peer *p)
{
	p->is_awaited = true;
}

void peer_is_late(struct peer *p, ssize_t bytes)
{
	bool waited = p->waits_late;

	p->late += (size_t)bytes;
	p->waits_late = late_is_too_much(p->server, p->late, waited);
	if (waited && !p->waits_late)
		take_again(p);
}

void peer_cross(void *own, struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops)
{
	struct peer *p = out->peer->node->where;

	add_packet(p, &p->urgent, URGENT, out, bytes, len, hops);
}

void peer_cross_group(void *own, struct vb_fabric_port *out, const struct vb_fabric_datagram *d)
{
	uint8_t bytes[GROUP_PACKET_MOST];

	if (d->crossings >= CROSSINGS_MOST)
		out->node->fabric->drops.hop_limit++;
	else
		peer_offer(out, bytes, group_encode(bytes, d), d->crossings + 1u);
}

/* --- from the other process --- */

/* The programs' packets that have come in, as a train. */
static uint8_t run[VB_FABRIC_TRAIN];

static void end_run(struct peer *p)
{
	struct link *to = p->run_to;

	p->run_to = NULL;
	if (!to || !link_give(to, run, p->run_len) || p->waits_for)
		return;
	p->waits_for = to;
	p->waits_until = link_await(to);
}

static void add_to_run(struct peer *p, struct link *to, const uint8_t *bytes, size_t len)
{
	if (p->run_to != to || p->run_len + len > sizeof(run)) {
		end_run(p);
		p->run_to = to;
		p->run_len = 0;
	}
	memcpy(run + p->run_len, bytes, len);
	p->run_len += len;
}

static bool was_seen(struct peer_end *e, const struct vb_fabric_datagram *d)
{
	uint64_t id = (uint64_t)d->slid << 48 | (uint64_t)(d->src_qpn & 0xffffff) << 24 | d->psn;

	for (unsigned i = 0; i < PEER_SEEN; i++)
		if (e->seen[i] == id)
			return true;
	e->seen[e->next_seen++ % PEER_SEEN] = id;
	return false;
}

static void take_group_packet(struct peer *p, struct peer_end *e, unsigned crossings, const uint8_t *bytes,
                              const struct vb_link_packet *k, enum vb_link_verdict verdict)
{
	struct vb_fabric_datagram d;
	struct group_message m;

	if (verdict == VB_LINK_VCRC) {
		e->port->counters.rcv_errors++;
		p->server->fabric->drops.bad_vcrc++;
		return;
	}
	if (!group_decode(&d, &m, bytes, k)) {
		e->port->counters.rcv_errors++;
		p->server->fabric->drops.bad_packet++;
		return;
	}
	d.crossings = (uint8_t)crossings;
	if (was_seen(e, &d)) /* tables lead round in a circle */
		p->server->fabric->drops.hop_limit++;
	else
		vb_fabric_multicast_on(e->port, &d);
}

static void take_data_packet(struct peer *p, struct peer_end *e, unsigned hops, uint8_t *bytes,
                             const struct vb_link_packet *k, enum vb_link_verdict verdict)
{
	if (p->late > LINK_LATE + LINK_QUEUE) { /* it ignores its credit: its window is less than LINK_QUEUE */
		p->server->fabric->drops.queue_full++;
		return;
	}
	struct vb_fabric_port *end = vb_fabric_carry_on(e->port, &e->course, bytes, k, verdict, hops);

	if (!end)
		return;
	bool leaves = end->node->away;
	struct link *to = leaves ? NULL : link_at(end, bytes + k->transport_at);

	if (!leaves && !to)
		p->server->fabric->drops.nobody++;
	else if (e->course.due || late_waits(to, end))
		late_put(p->server,
		         &(struct late_packet){.due = e->course.due ? e->course.due : p->server->now,
		                               .to = to,
		                               .by = p,
		                               .end = end,
		                               .hops = hops + e->course.hops},
		         bytes, k->len);
	else if (to)
		add_to_run(p, to, bytes, k->len);
	else if (peer_offer(end->peer, bytes, k->len, hops + e->course.hops))
		p->waits_way = end->node->where;
}

struct peer_end *peer_end_at(struct peer *p, uint64_t guid, uint8_t port)
{
	for (size_t n = 0; n < p->end_count; n++) {
		struct peer_end *e = &p->ends[p->last_end];

		if (e->port->node->guid == guid && e->port->num == port)
			return e;
		p->last_end = (p->last_end + 1) % p->end_count;
	}
	return NULL;
}

bool peer_packet(void *own, uint64_t guid, uint8_t port, unsigned hops, uint8_t *bytes, size_t len)
{
	struct peer *p = own;
	struct peer_end *e = peer_end_at(p, guid, port);
	struct vb_link_packet k;
	enum vb_link_verdict verdict = vb_link_decode(&k, bytes, len);

	if (!e)
		return false;
	if (k.len != len || (verdict != VB_LINK_OK && verdict != VB_LINK_VCRC)) {
		e->port->counters.rcv_errors++;
		p->server->fabric->drops.bad_packet++;
		return true;
	}
	switch (vb_fabric_kind_of(&k, bytes)) {
	case VB_FABRIC_IS_MAD:
		vb_fabric_arrive(e->port, bytes, &k, verdict, hops);
		break;
	case VB_FABRIC_IS_GROUP:
		take_group_packet(p, e, hops, bytes, &k, verdict);
		break;
	case VB_FABRIC_IS_DATA:
		take_data_packet(p, e, hops, bytes, &k, verdict);
		break;
	}
	return true;
}

void peer_came_end(struct peer *p)
{
	end_run(p);
	p->cable.holds = waits(p);
	if (p->cable.holds)
		return;
	p->cable.taken_seq = p->cable.heard_seq;
	if (p->came < TOLD_EVERY)
		return;
	p->came = 0;
	vb_cable_tell(&p->cable, false);
}

/* --- waiting --- */

void peers_caught_up(struct server *s, const struct link *l)
{
	for (struct peer *p = s->peers; p; p = p->next)
		if (p->waits_for == l) {
			p->waits_for = NULL;
			take_again(p);
		}
}

void peers_wait_until(struct server *s, const struct link *l, uint64_t until)
{
	for (struct peer *p = s->peers; p; p = p->next)
		if (p->waits_for == l)
			p->waits_until = until;
}

void peer_data_time(struct peer *p)
{
	if (p->waits_for && p->waits_until <= p->server->now)
		link_stall(p->waits_for);
	if (!p->stuck_until || p->stuck_until > p->server->now)
		return;
	wait_for_credit(p, false);
	if (p->stuck_until <= p->server->now)
		peer_drop(p);
}

uint64_t peer_data_deadline(const struct peer *p)
{
	uint64_t due = p->waits_for ? p->waits_until : UINT64_MAX;

	return p->stuck_until && p->stuck_until < due ? p->stuck_until : due;
}
