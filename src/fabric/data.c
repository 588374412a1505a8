// data.c - packets of programs on their way through the switches: forwarding, virtual lanes, partitions, counters
// follows: IBA volume 1, 7.6 (virtual lanes), 7.7 (LRH), 7.2.7 (link states), 18.2.4.3 (forwarding), 18.2.4.2 (SL to VL), 10.9
// SPDX-License-Identifier: MIT
#include "fabric/internal.h"

#include <stdlib.h>

#include "frame/fields.h"
#include "frame/header.h"

enum { OVERHEAD = 124 /* bytes of a packet beside its payload at most: 7.7.8 */ };

struct trip {
	struct vb_fabric *f;
	const uint8_t *bytes;
	const struct vb_link_packet *p;
	struct vb_fabric_course *c;
	unsigned hops; /* before it came to this process */
};

static bool lost(uint64_t *why, uint64_t *counter)
{
	++*why;
	if (counter)
		++*counter;
	return false;
}
#define LOST(t, why, counter) lost(&(t)->f->drops.why, counter)

static struct vb_fabric_packet key_fields(const struct trip *t)
{
	const uint8_t *bth = t->bytes + t->p->transport_at;
	struct vb_fabric_packet k = {.slid = t->p->lrh.slid,
	                             .dlid = t->p->lrh.dlid,
	                             .pkey = t->c->pkey,
	                             .sl = t->p->lrh.sl,
	                             .dst_qpn = vb_bth_dest_qpn(bth)};

	if (t->p->global) {
		memcpy(k.sgid, t->bytes + VB_LRH_LEN + 8, VB_GID_LEN);
		memcpy(k.dgid, t->bytes + VB_LRH_LEN + 24, VB_GID_LEN);
	}
	return k;
}

/* Does a switch's port let it pass? */
static bool passes(const struct trip *t, struct vb_fabric_port *p, uint8_t way)
{
	if (vb_fabric_lets_pass(p, t->c->pkey, way))
		return true;
	const struct vb_fabric_packet k = key_fields(t);

	return vb_fabric_may_pass(p, &k, way) || LOST(t, bad_pkey, NULL);
}

/* The receiving half of a link. */
static bool enters(const struct trip *t, struct vb_fabric_port *in)
{
	if (!vb_fabric_takes_data(in))
		return LOST(t, not_active, NULL);
	vb_fabric_data_came(in);
	return passes(t, in, VB_ENFORCE_IN);
}

static void note_link(struct vb_fabric_course *c, struct vb_fabric_port *out, struct vb_fabric_port *in)
{
	c->way.port[c->way.ports++] = out;
	c->way.port[c->way.ports++] = in;
	c->way.end = in;
}

/* Out of one port, into its peer. `in` is where it has come into this node; the port itself at the start. */
static bool cross_link(const struct trip *t, struct vb_fabric_port *in, struct vb_fabric_port *out)
{
	struct vb_fabric_course *c = t->c;
	struct vb_fabric_port *peer = out->peer;
	uint32_t longest = vb_fabric_mtu_bytes(out) + OVERHEAD;

	if (!peer || !vb_fabric_is_up(out) || peer->node->off)
		return LOST(t, no_link, &out->counters.xmit_discards);
	if (out->info.state != VB_PORT_ACTIVE)
		return LOST(t, not_active, &out->counters.xmit_discards);
	if (4u * t->p->lrh.words > longest)
		return LOST(t, too_long, &out->counters.xmit_discards);
	c->vl = vb_fabric_vl_of(out, in, t->p->lrh.sl);
	if (!vb_fabric_has_vl(out, c->vl)) /* 18.2.4.2: VL 15 in a table means that the packet is discarded */
		return LOST(t, bad_vl, &out->counters.xmit_discards);
	if (!passes(t, out, VB_ENFORCE_OUT))
		return false;
	if (!peer->node->away && !enters(t, peer))
		return false;
	if (longest < c->longest)
		c->longest = longest;
	note_link(c, out, peer);
	return true;
}

/* Through the switches to the port where it ends, or to one that is away. */
static bool pass_switches(const struct trip *t)
{
	struct vb_fabric_way *w = &t->c->way;
	uint16_t dlid = t->p->lrh.dlid;

	for (unsigned *hops = &t->c->hops; w->end->node->sw && !w->end->node->away; ++*hops) {
		struct vb_fabric_port *out = vb_fabric_lft_port(w->end->node, dlid);

		if (t->hops + *hops >= VB_FABRIC_HOPS_MOST)
			return LOST(t, hop_limit, &w->end->counters.rcv_relay_errors);
		if (!out || !out->num) /* port 0 of a switch has no queue pairs for data */
			return LOST(t, no_route, &w->end->counters.rcv_relay_errors);
		if (!cross_link(t, w->end, out))
			return false;
	}
	return w->end->node->away || vb_fabric_is_lid_of(w->end, dlid) || LOST(t, not_for_us, NULL);
}

/* From the port of the program that sends. */
static bool travel(const struct trip *t, struct vb_fabric_port *from)
{
	uint16_t dlid = t->p->lrh.dlid;

	if (from->node->off || !vb_fabric_is_up(from))
		return LOST(t, no_link, &from->counters.xmit_discards);
	if (from->info.state != VB_PORT_ACTIVE)
		return LOST(t, not_active, &from->counters.xmit_discards);
	if (vb_fabric_is_lid_of(from, dlid)) /* 17.2.2: a port also reaches itself */
		return true;
	if (!cross_link(t, from, from))
		return false;
	return pass_switches(t);
}

/* From the port where another process's packet comes in. */
static bool travel_on(const struct trip *t, struct vb_fabric_port *in)
{
	if (in->node->off || !vb_fabric_is_up(in))
		return LOST(t, no_link, NULL);
	if (4u * t->p->lrh.words > vb_fabric_mtu_bytes(in) + OVERHEAD)
		return LOST(t, too_long, &in->counters.rcv_errors);
	if (!enters(t, in))
		return false;
	note_link(t->c, in->peer, in);
	return pass_switches(t);
}

/* What the port at the end checks in each packet: partition, and the GID that names it. */
static bool arrives(const struct trip *t, struct vb_fabric_port *end)
{
	if (t->p->global && !vb_fabric_has_gid(end, t->bytes + VB_LRH_LEN + 24))
		return LOST(t, not_for_us, NULL);
	if (vb_fabric_pkey_matches(end, t->c->pkey))
		return true;
	const struct vb_fabric_packet k = key_fields(t);

	vb_fabric_bad_pkey(end, &k);
	return LOST(t, bad_pkey, NULL);
}

/* What the first port checks: the packet is its own, whole, and of a program. */
static bool departs(const struct trip *t, struct vb_fabric_port *from, enum vb_link_verdict verdict)
{
	const struct vb_lrh *h = &t->p->lrh;

	if (verdict == VB_LINK_VCRC)
		return LOST(t, bad_vcrc, &(from->peer ? from->peer : from)->counters.rcv_errors);
	if (verdict != VB_LINK_OK || h->vl == VB_VL_MANAGEMENT || !vb_fabric_is_lid_of(from, h->slid) ||
	    vb_bth_dest_qpn(t->bytes + t->p->transport_at) <= VB_GSI_QPN) /* management is for umad alone: 13.5.3 */
		return LOST(t, bad_packet, NULL);
	return (h->dlid && h->dlid < VB_LID_MULTICAST) || LOST(t, no_route, NULL);
}

static bool is_known(const struct trip *t)
{
	const struct vb_fabric_course *c = t->c;
	const struct vb_lrh *h = &t->p->lrh;

	return c->changes == t->f->changes + 1 && c->lrh.dlid == h->dlid && c->lrh.slid == h->slid &&
	       c->lrh.sl == h->sl && 4u * h->words <= c->longest && t->hops + c->hops <= VB_FABRIC_HOPS_MOST;
}

static void enter_vl(uint8_t *bytes, const struct vb_link_packet *p, uint8_t vl)
{
	if (p->lrh.vl == vl)
		return;
	bytes[0] = (uint8_t)(vl << 4 | (bytes[0] & 15));
	vb_vcrc_encode(bytes, p->len - VB_VCRC_LEN);
}

/* Each link that it has passed, with the lane that it had there. */
static void show_on_links(const struct trip *t)
{
	uint8_t bytes[4 * VB_LRH_WORDS_MOST + VB_VCRC_LEN];
	const struct vb_fabric_way *w = &t->c->way;

	memcpy(bytes, t->bytes, t->p->len);
	for (unsigned i = 0; i < w->ports; i += 2) {
		struct vb_fabric_port *out = w->port[i];

		if (!out->node->away) { /* otherwise it has come in with its lane */
			uint8_t vl = vb_fabric_vl_of(out, i ? w->port[i - 1] : out, t->p->lrh.sl);

			bytes[0] = (uint8_t)(vl << 4 | (bytes[0] & 15));
			vb_vcrc_encode(bytes, t->p->len - VB_VCRC_LEN);
		}
		t->f->ops->show(t->f->own, out, bytes, t->p->len);
	}
}

/* Each link begins with a packet when it has sent those before it, and when the packet has come. Packets keep their order on it, also
 * while its rate and latency change. */
static void take_time(const struct trip *t)
{
	const struct vb_fabric_way *w = &t->c->way;
	uint64_t at = t->f->now;

	for (unsigned i = 0; i < w->ports; i += 2) {
		struct vb_fabric_pace *pace = w->port[i]->pace;

		if (!pace)
			continue;
		if (at < pace->free_at)
			at = pace->free_at;
		at += pace->mbit ? t->p->len * 8000 / pace->mbit : 0;
		uint64_t left = at;

		at += pace->latency;
		if (at < pace->arrives_at)
			at = pace->arrives_at;
		if (t->f->late_full && at > t->f->now)
			continue;
		pace->free_at = left;
		pace->arrives_at = at;
	}
	t->c->due = at > t->f->now ? at : 0;
}

/* By the way that is known, or by one that is found now, from where it starts or has come in. */
static struct vb_fabric_port *go(const struct trip *t, struct vb_fabric_port *from, uint8_t *bytes,
                                 bool (*along)(const struct trip *t, struct vb_fabric_port *from))
{
	struct vb_fabric_course *c = t->c;
	const struct vb_link_packet *p = t->p;
	uint16_t pkey = (uint16_t)(bytes[p->transport_at + 2] << 8 | bytes[p->transport_at + 3]);
	bool known = is_known(t) && c->pkey == pkey, whole = known;

	if (!known) {
		*c = (struct vb_fabric_course){
		        .lrh = p->lrh, .pkey = pkey, .longest = UINT32_MAX, .vl = p->lrh.vl, .way.end = from};
		whole = along(t, from);
		c->changes = whole ? t->f->changes + 1 : 0;
	}
	vb_fabric_count(c->way.port, c->way.ports, 1, 4u * p->lrh.words);
	if (__builtin_expect(t->f->captures, 0))
		show_on_links(t);
	c->due = 0;
	if (__builtin_expect(t->f->paces, 0))
		take_time(t);
	if (!whole || (!c->way.end->node->away && !arrives(t, c->way.end)))
		return NULL;
	enter_vl(bytes, p, c->vl);
	return c->way.end;
}

struct vb_fabric_port *vb_fabric_carry(struct vb_fabric_port *from, struct vb_fabric_course *c, uint8_t *bytes,
                                       const struct vb_link_packet *p, enum vb_link_verdict verdict)
{
	const struct trip t = {.f = from->node->fabric, .bytes = bytes, .p = p, .c = c};

	return departs(&t, from, verdict) ? go(&t, from, bytes, travel) : NULL;
}

struct vb_fabric_port *vb_fabric_carry_on(struct vb_fabric_port *in, struct vb_fabric_course *c, uint8_t *bytes,
                                          const struct vb_link_packet *p, enum vb_link_verdict verdict, unsigned hops)
{
	const struct trip t = {.f = in->node->fabric, .bytes = bytes, .p = p, .c = c, .hops = hops};

	if (verdict == VB_LINK_VCRC)
		lost(&t.f->drops.bad_vcrc, &in->counters.rcv_errors);
	else if (verdict != VB_LINK_OK || p->lrh.vl == VB_VL_MANAGEMENT)
		lost(&t.f->drops.bad_packet, &in->counters.rcv_errors);
	else
		return go(&t, in, bytes, travel_on);
	return NULL;
}

bool vb_fabric_set_pace(struct vb_fabric_port *p, uint32_t mbit, uint64_t latency)
{
	struct vb_fabric *f = p->node->fabric;

	if (!p->pace && (mbit || latency)) {
		p->pace = calloc(1, sizeof(*p->pace));
		if (!p->pace)
			return false;
		f->paces++;
	} else if (p->pace && !mbit && !latency && p->pace->arrives_at <= f->now) {
		free(p->pace);
		p->pace = NULL;
		f->paces--;
	}
	if (p->pace) {
		p->pace->mbit = mbit;
		p->pace->latency = latency;
	}
	return true;
}

void vb_fabric_discard(struct vb_fabric_port *end, uint64_t packets)
{
	end->node->fabric->drops.queue_full += packets;
	(end->peer ? end->peer : end)->counters.xmit_discards += packets;
}
