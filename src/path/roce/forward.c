// forward.c - forwards packets that arrive on our socket for another program of this host, by ring
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/proto/proto.h"
#include "capture/capture.h"
#include "engine/local/ring.h"
#include "path/roce/roce.h"
#include "util/units.h"

/* The broker's introduction takes time, more if the other program is busy. Packets are held until then, so that the
 * first ones are not lost. */
#define HELD_MAX 128     /* the most packets held */
#define HELD_GROUPS 64   /* … to groups: a program that is stopped gets all of them, and leaves room for others */
#define PATIENCE VB_S(3) /* ns; a packet held for longer is dropped */
#define AGAIN VB_US(500) /* ns; pause between attempts */

struct vb_roce_waiting {
	struct vb_roce_waiting *next;
	uint64_t until;
	uint32_t qpn;
	uint32_t len;
	struct vb_roce_arrival a;
	uint8_t bytes[];
};

enum route { ROUTE_HERE, ROUTE_SOON, ROUTE_NONE };

/* Finds the peer that owns this QP number's lane. ROUTE_HERE: its ring is ready; ROUTE_SOON: try again later. */
static enum route find_ring(struct vb_node *node, const struct vb_roce_arrival *a, uint32_t qpn, struct vb_peer **out)
{
	struct vb_peer *p = atomic_load_explicit(&node->peers[VB_QP_LANE(qpn)], memory_order_acquire);
	union ibv_gid dgid;
	int err = 0;

	memcpy(dgid.raw, a->flow.dst, VB_GID_LEN);
	if (!p || !vb_peer_alive(p))
		p = vb_peer_find(node, qpn, &dgid, 0, &err);
	*out = p;
	if (!p)
		return err == EAGAIN ? ROUTE_SOON : ROUTE_NONE;
	if (!p->self && !vb_peer_ready(p))
		vb_peer_remind(p);
	return p->self ? ROUTE_NONE : vb_peer_ready(p) ? ROUTE_HERE : ROUTE_SOON;
}

static bool write_record(struct vb_peer *p, const struct vb_roce_arrival *a, uint32_t qpn, const uint8_t *bytes,
                         size_t len)
{
	uint32_t size = (uint32_t)(sizeof(struct vb_rec) + sizeof(*a) + len);

	vb_lock(&p->tx_lock);
	struct vb_rec *rec = vb_ring_reserve(p, size);

	if (rec) {
		memcpy(rec + 1, a, sizeof(*a));
		memcpy((uint8_t *)(rec + 1) + sizeof(*a), bytes, len);
		rec->dest = vb_rec_word(qpn, VB_REC_PACKET);
		rec->src = rec->psn = rec->ack = rec->imm = 0;
		rec->length = (uint32_t)(sizeof(*a) + len);
		vb_ring_commit(p, size);
		vb_peer_notify(p);
		vb_ring_prepare(p);
	}
	vb_unlock(&p->tx_lock);
	return rec != NULL;
}

/* --- held packets --- */

static bool waits_already(const struct vb_roce_sockets *s, uint32_t qpn)
{
	for (const struct vb_roce_waiting *h = s->held; h; h = h->next)
		if (VB_QP_LANE(h->qpn) == VB_QP_LANE(qpn))
			return true;
	return false;
}

static bool hold_packet(struct vb_node *node, const struct vb_roce_arrival *a, uint32_t qpn, const uint8_t *bytes,
                        size_t len)
{
	struct vb_roce_sockets *s = node->io->roce;
	struct vb_roce_waiting *h = s->held_count < HELD_MAX ? malloc(sizeof(*h) + len) : NULL, **last = &s->held;

	if (!h)
		return false;
	*h = (struct vb_roce_waiting){.until = a->now + PATIENCE, .qpn = qpn, .len = (uint32_t)len, .a = *a};
	memcpy(h->bytes, bytes, len);
	while (*last)
		last = &(*last)->next;
	*last = h;
	s->held_count++;
	s->held_at = a->now + AGAIN;
	vb_timer_at(node, s->held_at);
	return true;
}

/* Forwards or drops the packet. Returns false if it must stay held. */
static bool deliver_held(struct vb_node *node, const struct vb_roce_waiting *h, uint64_t now)
{
	struct vb_peer *p;
	enum route route = find_ring(node, &h->a, h->qpn, &p);

	if (route == ROUTE_HERE && write_record(p, &h->a, h->qpn, h->bytes, h->len)) {
		VB_COUNT(forwarded, 1);
		return true;
	}
	if (route != ROUTE_NONE && now < h->until)
		return false;
	VB_COUNT(drop_forward, 1);
	return true;
}

void vb_roce_forward_held(struct vb_node *node)
{
	struct vb_roce_sockets *s = node->io->roce;
	uint64_t now = vb_now();

	if (now < s->held_at)
		return;
	for (struct vb_roce_waiting **at = &s->held; *at;) {
		struct vb_roce_waiting *h = *at;

		if (!deliver_held(node, h, now)) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		s->held_count--;
		free(h);
	}
	s->held_at = s->held ? now + AGAIN : 0;
}

uint64_t vb_roce_forward_due(const struct vb_node *node)
{
	const struct vb_roce_sockets *s = node->io->roce;

	return atomic_load_explicit(&node->io->transport[VB_TRANSPORT_ROCE].users, memory_order_relaxed) ? s->held_at
	                                                                                                 : 0;
}

void vb_roce_forward_free(struct vb_roce_sockets *s)
{
	while (s->held) {
		struct vb_roce_waiting *h = s->held;

		s->held = h->next;
		free(h);
	}
}

/* --- to and from the ring --- */

void vb_roce_forward(struct vb_node *node, const struct vb_roce_arrival *a, uint32_t qpn, const uint8_t *bytes,
                     size_t len)
{
	enum route route = ROUTE_NONE;
	struct vb_peer *p;

	if (VB_QP_LANE(qpn) && len <= VB_ROCE_PACKET_MAX + VB_ICRC_LEN)
		route = waits_already(node->io->roce, qpn) ? ROUTE_SOON : find_ring(node, a, qpn, &p);
	if (route == ROUTE_SOON && hold_packet(node, a, qpn, bytes, len))
		return;
	if (route == ROUTE_HERE && write_record(p, a, qpn, bytes, len))
		VB_COUNT(forwarded, 1);
	else
		VB_COUNT(drop_forward, 1);
}

bool vb_roce_sharing(const struct vb_roce_sockets *s)
{
	return s && !s->relayed && !s->framed && s->nlanes && s->nlanes != VB_LANE_COUNT;
}

void vb_roce_forward_group(struct vb_node *node, const struct vb_roce_arrival *a, const uint8_t *bytes, size_t len)
{
	const struct vb_roce_sockets *s = node->io->roce;

	if (!vb_roce_sharing(s) || !vb_gid_is_multicast(a->flow.dst))
		return;
	uint32_t ours = vb_lane_socket(s->nlanes, s->split, node->lane);

	for (uint32_t lane = 1; lane < VB_LANE_COUNT; lane++) {
		struct vb_peer *p = atomic_load_explicit(&node->peers[lane], memory_order_acquire);

		if (!p || p->self || vb_lane_socket(s->nlanes, s->split, lane) != ours || !vb_peer_alive(p))
			continue;
		if (vb_peer_ready(p) || s->held_count < HELD_GROUPS)
			vb_roce_forward(node, a, lane << VB_LANE_SHIFT, bytes, len);
		else
			VB_COUNT(drop_forward, 1);
	}
}

void vb_roce_take_forwarded(struct vb_node *node, const uint8_t *record, uint32_t length)
{
	uint8_t bytes[VB_ROCE_PACKET_MAX + VB_ICRC_LEN];
	struct vb_roce_arrival a;
	size_t len = length - sizeof(a);

	if (length < sizeof(a) + VB_BTH_LEN + VB_ICRC_LEN || len > sizeof(bytes) || !node->io->roce->rx) {
		VB_COUNT(drop_malformed, 1);
		return;
	}
	memcpy(&a, record, sizeof(a));
	a.now = vb_now();
	memcpy(bytes, record + sizeof(a), len); /* copy before the checks: the peer can change the record */
	if (vb_capturing()) {
		const struct iovec iov = {bytes, len};

		vb_capture_roce(&(struct vb_capture_of){.direction = VB_CAPTURE_IN,
		                                        .time = vb_capture_now(),
		                                        .qpn = vb_bth_dest_qpn(bytes)},
		                &a.flow, &a.ip, &iov, 1, 0, len);
	}
	a.flow.link = VB_LINK_UDP;
	vb_roce_packet(node, node->io->roce->rx, &a, bytes, len);
	vb_roce_answer_batch(node->io->roce->rx);
}
