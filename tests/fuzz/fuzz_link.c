// fuzz_link.c - arbitrary trains of packets from programs, through switches with arbitrary tables: what arrives is well formed
// follows: IBA volume 1, 7.7 (LRH), 7.8 (VCRC), 18.2.4.3 (forwarding)
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/server/server.h"
#include "fabric/topology.h"
#include "frame/header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HOSTS = 4, LFT = 64, PACKET_MOST = 600 };

/* A program: some of its sockets are full. */
struct client {
	bool full, paused;
	size_t waits;
};

static void all_well_formed(const uint8_t *bytes, size_t len)
{
	struct vb_link_packet p;
	struct vb_ip_fields ip;
	struct vb_flow flow;

	for (size_t at = 0; at < len; at += p.len) {
		enum vb_link_verdict verdict = vb_link_decode(&p, bytes + at, len - at);

		assert(verdict == VB_LINK_OK && p.lrh.vl != VB_VL_MANAGEMENT);
		vb_link_addresses(&flow, &ip, &p, bytes + at);
		assert(vb_bth_dest_qpn(bytes + at + p.transport_at) > VB_GSI_QPN);
	}
}

bool client_offer(struct client *c, const void *bytes, size_t len, size_t most)
{
	all_well_formed(bytes, len);
	if (!c->full)
		return true;
	if (c->waits + len > most)
		return false;
	c->waits += len;
	return true;
}

bool client_is_behind(const struct client *c)
{
	return c->waits;
}

void client_drop_waiting(struct client *c, void (*each)(void *arg, const uint8_t *bytes, size_t len), void *arg)
{
	static const uint8_t packet[] = {0, 2, 0, 30, 0, 7, 0, 17};

	if (c->waits)
		each(arg, packet, sizeof(packet));
	c->waits = 0;
}

bool client_flush(struct client *c)
{
	return false;
}

void client_pause(struct client *c, bool pause)
{
	c->paused = pause;
}

bool peer_offer(struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops)
{
	assert(false); /* no node is away */
	return false;
}

void peers_wait_until(struct server *s, const struct link *l, uint64_t until)
{
}

void peers_caught_up(struct server *s, const struct link *l)
{
}

bool peer_has_room(const struct peer *p)
{
	return true;
}

void peer_lines_up(struct peer *p)
{
}

void peer_is_late(struct peer *p, ssize_t bytes)
{
}

static bool on_deliver(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	return false;
}

static const struct vb_fabric_ops ops = {.deliver = on_deliver};

struct world {
	struct server s;
	struct client client[HOSTS];
	struct link *link[HOSTS];
	struct vb_fabric_port *port[HOSTS];
};

static void set_up(struct world *w)
{
	struct vb_topology_error e;
	unsigned n = 0;

	w->s.fabric = vb_fabric_new(&ops, NULL);
	assert(w->s.fabric && vb_topology_generate(w->s.fabric, "torus:2,2,1", &e));
	vb_fabric_train_all(w->s.fabric);
	for (size_t i = 0; i < w->s.fabric->count; i++) {
		struct vb_fabric_node *node = w->s.fabric->nodes[i];

		for (unsigned k = 1; k <= node->ports; k++)
			if (node->port[k].peer)
				node->port[k].info.state = VB_PORT_ACTIVE;
		if (node->sw) {
			node->sw->lft = malloc(LFT);
			assert(node->sw->lft);
			memset(node->sw->lft, 1, LFT);
			node->sw->lft_len = LFT;
			node->sw->info.lft_top = LFT - 1;
			continue;
		}
		w->port[n] = &node->port[1];
		w->port[n++]->info.lid = (uint16_t)n;
	}
	assert(n == HOSTS);
	for (unsigned i = 0; i < HOSTS; i++) {
		struct vb_fabric_link_ask ask = {.verb = VB_FABRIC_LINK, .port = 1, .qpn = 0x1000 * i, .mask = 0xf000};

		memcpy(ask.node, w->port[i]->node->id, strlen(w->port[i]->node->id) + 1);
		assert(!link_open(&w->s, &ask, &w->client[i], &w->link[i]));
		assert(link_open(&w->s, &ask, &w->client[i], &w->link[i]) == EADDRINUSE);
	}
}

static void send_raw(struct world *w, uint8_t from, const uint8_t *bytes, size_t n)
{
	uint8_t copy[256];

	memcpy(copy, bytes, n);
	link_take(w->link[from % HOSTS], copy, n);
}

/* Headers from the input, with a length and a VCRC that are right. */
static void send_packet(struct world *w, uint8_t from, const uint8_t *bytes, size_t n)
{
	uint8_t packet[PACKET_MOST] = {0};
	size_t len = 4 * ((VB_LINK_FRONT_MAX + VB_BTH_LEN + VB_ICRC_LEN + n) / 4);

	memcpy(packet, bytes, n);
	packet[0] &= 0xf0;
	packet[1] |= VB_LNH_BTH;
	packet[4] = (uint8_t)(len / 4 >> 8);
	packet[5] = (uint8_t)(len / 4);
	packet[6] = 0;
	packet[7] = (uint8_t)(1 + from % HOSTS);
	if ((packet[1] & 3) == VB_LNH_GRH) {
		packet[8] = 0x60;
		packet[12] = (uint8_t)((len - VB_LINK_FRONT_MAX) >> 8);
		packet[13] = (uint8_t)(len - VB_LINK_FRONT_MAX);
		packet[14] = VB_GRH_NEXT_HEADER;
	}
	vb_vcrc_encode(packet, len);
	link_take(w->link[from % HOSTS], packet, len + VB_VCRC_LEN);
}

/* What a subnet manager or an administrator does. */
static void change(struct world *w, uint8_t what, uint8_t a, uint8_t b)
{
	struct vb_fabric *f = w->s.fabric;
	struct vb_fabric_node *n = f->nodes[a % f->count];
	struct vb_fabric_port *p = vb_fabric_port(n, 1 + a / 16 % n->ports);
	unsigned maps = n->sw ? n->ports + 1u : 1;

	switch (what % 7) {
	case 0:
		if (n->sw)
			n->sw->lft[b % LFT] = (uint8_t)(b / LFT + a / 16);
		break;
	case 1:
		vb_fabric_cut(p, b & 1);
		break;
	case 2:
		p->info.state = b & 1 ? VB_PORT_ACTIVE : VB_PORT_ARMED;
		break;
	case 3:
		if (!p->sl2vl)
			p->sl2vl = calloc(maps, 8);
		if (p->sl2vl)
			p->sl2vl[b % (8 * maps)] = a;
		break;
	case 5:
		vb_fabric_set_pace(p, b & 15, (uint64_t)(b >> 4) * 10000000);
		break;
	case 4:
		p->info.enforce = b & (VB_ENFORCE_IN | VB_ENFORCE_OUT);
		p->info.neighbor_mtu = b >> 4 & 7;
		break;
	default:
		p->info.lid = n->sw ? 0 : 1 + (b & 7);
	}
	f->changes++;
}

/* Each step: what, who, a length, so many bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = {.s.now = 1};

	set_up(&w);
	for (size_t at = 0; at + 3 <= size;) {
		uint8_t what = data[at], who = data[at + 1];
		size_t n = data[at + 2] < size - at - 3 ? data[at + 2] : size - at - 3;
		const uint8_t *bytes = data + at + 3;

		at += 3 + n;
		w.s.now += 1000000;
		if (what < 96)
			send_packet(&w, who, bytes, n);
		else if (what < 160)
			send_raw(&w, who, bytes, n);
		else if (what < 240)
			change(&w, what, who, n ? bytes[0] : 0);
		else if (!(w.client[who % HOSTS].full = what & 1)) {
			w.client[who % HOSTS].waits = 0;
			link_caught_up(w.link[who % HOSTS]);
		}
		w.s.now += n > 200 ? 300000000 : 0;
		w.s.fabric->now = w.s.now;
		late_time(&w.s);
		links_time(&w.s);
	}
	for (unsigned i = 0; i < HOSTS; i++)
		link_close(w.link[i]);
	late_free(&w.s);
	assert(!w.s.links && !w.s.late_bytes);
	vb_fabric_free(w.s.fabric);
	return 0;
}
