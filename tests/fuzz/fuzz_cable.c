// fuzz_cable.c - arbitrary datagrams from another fabric process, whose tag is right or not: packets, links, groups
// see: fabric/cable/cable.h
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/server/peer.h"
#include "fabric/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LFT = 64, DATAGRAM = 600 };

struct client {
	bool paused;
};

static struct {
	struct server s;
	struct peer peer;
	struct peer_end ends[2];
	size_t sent, given;
} w;

/* --- the parts of the server that are not there --- */

bool client_offer(struct client *c, const void *bytes, size_t len, size_t most)
{
	w.given += len;
	return true;
}

bool client_is_behind(const struct client *c)
{
	return false;
}

bool client_flush(struct client *c)
{
	return false;
}

void client_drop_waiting(struct client *c, void (*each)(void *arg, const uint8_t *bytes, size_t len), void *arg)
{
}

void client_pause(struct client *c, bool pause)
{
	c->paused = pause;
}

void peer_transmit(struct peer *p, const uint8_t *bytes, size_t len)
{
	assert(p->cable.up && len);
	w.sent += len;
}

static bool on_deliver(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	assert(!port->node->away);
	return false;
}

static bool is_attached(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	return true;
}

static void deliver_to_group(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	const struct group_message *m = d->own;

	assert(!p->node->away && m->head.length == d->length && d->length <= VB_FABRIC_PAYLOAD);
}

static const struct vb_fabric_ops ops = {.deliver = on_deliver,
                                         .is_attached = is_attached,
                                         .deliver_to_group = deliver_to_group,
                                         .cross = peer_cross,
                                         .cross_group = peer_cross_group};

/* --- what the cable asks --- */

static void on_send(void *own, const uint8_t *bytes, size_t len)
{
	struct vb_cable_head h;

	assert(vb_cable_head_decode(&h, bytes, len) == VB_CABLE_WELL_FORMED);
}

static uint64_t on_nonce(void *own)
{
	static uint64_t n;

	return ++n;
}

static void on_there(void *own, bool there)
{
	peer_drop(own);
}

static bool on_line(void *own, size_t i, struct vb_cable_line *line)
{
	*line = (struct vb_cable_line){.guid = i};
	return i < 60;
}

static bool on_told(void *own, const struct vb_cable_line *line)
{
	struct peer_end *e = peer_end_at(own, line->guid, line->port);

	if (e)
		vb_fabric_end_told(e->port, &line->end);
	return e;
}

static const struct vb_cable_ops cable_ops = {on_send, on_nonce, on_there, on_line, on_told, peer_packet};

/* A fat tree whose second spine and second leaf are away. */
static void set_up(void)
{
	struct vb_topology_error e;

	memset(&w, 0, sizeof(w));
	w.s.now = 1;
	w.s.fabric = vb_fabric_new(&ops, &w.s);
	assert(w.s.fabric && vb_topology_generate(w.s.fabric, "fat-tree:2,2,1", &e));
	w.s.peers = &w.peer;
	w.peer.server = &w.s;
	w.peer.datagram = DATAGRAM;
	w.peer.ends = w.ends;
	for (size_t i = 0; i < w.s.fabric->count; i++) {
		struct vb_fabric_node *n = w.s.fabric->nodes[i];

		if (!strcmp(n->desc, "spine2") || !strcmp(n->desc, "leaf4") || !strncmp(n->desc, "host2", 5))
			vb_fabric_give_away(n, &w.peer);
	}
	vb_fabric_train_all(w.s.fabric);
	for (size_t i = 0; i < w.s.fabric->count; i++) {
		struct vb_fabric_node *n = w.s.fabric->nodes[i];

		for (unsigned k = 1; k <= n->ports; k++) {
			struct vb_fabric_port *p = &n->port[k];

			if (p->peer && !n->away && p->peer->node->away) {
				const struct vb_fabric_end end = {.wants = true, .widths = 3, .speeds = 7};

				assert(w.peer.end_count < 2);
				w.ends[w.peer.end_count++].port = p;
				vb_fabric_end_told(p, &end);
			}
			p->info.state = VB_PORT_ACTIVE;
		}
		if (n->sw) {
			n->sw->lft = malloc(LFT);
			assert(n->sw->lft);
			for (unsigned k = 0; k < LFT; k++)
				n->sw->lft[k] = (uint8_t)(k % (n->ports + 1u));
			n->sw->lft_len = LFT;
			n->sw->info.lft_top = LFT - 1;
			n->sw->mft = calloc((size_t)(n->ports / 16 + 1) * VB_FABRIC_MFT_CAP, sizeof(uint16_t));
			assert(n->sw->mft);
			memset(n->sw->mft, 0xff, 16);
		} else {
			n->port[1].info.lid = 1;
		}
	}
	vb_cable_init(&w.peer.cable, &cable_ops, &w.peer, 1, "", 0, 1 << 16, 1 << 20);
}

/* The session of one who has the keys. */
static void meet(void)
{
	struct vb_cable *c = &w.peer.cable;

	c->up = true;
	c->room = 1 << 20;
	c->in = c->out = (struct vb_sip_key){{1, 2}};
}

static void seal_packet(uint8_t *record, size_t n)
{
	size_t len = 4 * ((n - VB_CABLE_RECORD - VB_VCRC_LEN) / 4);
	uint8_t *packet = record + VB_CABLE_RECORD;

	packet[0] &= 0xf0;
	packet[4] = (uint8_t)(len / 4 >> 8);
	packet[5] = (uint8_t)(len / 4);
	vb_vcrc_encode(packet, len);
	vb_cable_record(record, len + VB_VCRC_LEN, record[2]);
}

/* Each cable has one train with room for another record at most. */
static void check_trains(const struct train_queue *q)
{
	size_t n = 0, bytes = 0;

	for (const struct train *t = q->first; t; t = t->next, n++)
		bytes += t->len;
	assert(bytes == q->bytes && n <= bytes / (PEER_TRAIN - VB_CABLE_RECORD_MOST) + w.peer.end_count);
}

static void decode_questions(const uint8_t *data, size_t size)
{
	struct vb_cable_ask a;
	struct vb_cable_tell t;

	assert(!vb_cable_ask_decode(&a, data, size) || memchr(a.node, 0, sizeof(a.node)));
	assert(!vb_cable_tell_decode(&t, data, size) || t.len <= sizeof(t.bytes));
}

/* Each step: what, a length (2 bytes), so many bytes of a datagram. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	set_up();
	struct vb_cable *c = &w.peer.cable;

	for (size_t at = 0; at + 3 <= size;) {
		uint8_t d[VB_CABLE_HEADER + 8192], what = data[at];
		size_t n = (size_t)(data[at + 1] << 8 | data[at + 2]) % 8192;
		struct vb_cable_head h = {.kind = VB_CABLE_HELLO + what % 4, .seq = c->heard_seq + 1 + (what >> 6)};

		at += 3;
		n = n < size - at ? n : size - at;
		w.s.now += 10000000;
		if (what & 16) { /* as it is */
			decode_questions(data + at, n);
			vb_cable_input(c, data + at, n, w.s.now);
		} else {
			memcpy(d + VB_CABLE_HEADER, data + at, n);
			if (what & 4 && n > VB_CABLE_RECORD + 40)
				seal_packet(d + VB_CABLE_HEADER, n);
			h.first = what & 32 ? 0xffff : 0;
			h.port = w.ends[what >> 7].port->num;
			h.guid = w.ends[what >> 7].port->node->guid;
			vb_cable_head_encode(d, &h);
			if (!c->up)
				meet();
			vb_cable_seal(h.kind < VB_CABLE_STATUS ? &c->secret : &c->in, d, VB_CABLE_HEADER + n);
			vb_cable_input(c, d, VB_CABLE_HEADER + n, w.s.now);
		}
		at += n;
		peer_came_end(&w.peer);
		peer_data_time(&w.peer);
		peer_flush(&w.peer);
		vb_cable_time(c, w.s.now);
		check_trains(&w.peer.queue);
		assert(w.peer.queue.bytes <= 1 << 20 && w.peer.urgent.bytes == 0 && c->part_len <= sizeof(c->part));
	}
	peer_drop(&w.peer);
	vb_fabric_free(w.s.fabric);
	return 0;
}
