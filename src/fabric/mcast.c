// mcast.c - the way of a datagram to a multicast group: copies by the switches' tables, delivery at each end
// follows: IBA volume 1, 18.2.4.2 (SL to VL), 18.2.4.3, 14.2.5.4 (default ports), 14.2.5.12 (tables), 10.9 (partitions), 7.2.7
// SPDX-License-Identifier: MIT
#include "fabric/internal.h"
#include "frame/fields.h"

struct copies {
	struct vb_fabric *f;
	const struct vb_fabric_datagram *d;
	struct vb_fabric_port *first, **last; /* ports where a copy has arrived, by group_next */
};

#define LOST(c, why) ((void)(c)->f->drops.why++)

/* What the traps about P_Keys say of it. */
static struct vb_fabric_packet packet_of(const struct vb_fabric_datagram *d)
{
	struct vb_fabric_packet k = {.slid = d->slid,
	                             .dlid = d->dlid,
	                             .pkey = d->pkey,
	                             .sl = d->sl,
	                             .src_qpn = d->src_qpn,
	                             .dst_qpn = VB_QPN_MULTICAST,
	                             .grh = true};

	memcpy(k.sgid, d->grh + 8, sizeof(k.sgid));
	memcpy(k.dgid, d->grh + 24, sizeof(k.dgid));
	return k;
}

static bool partition_lets_pass(struct vb_fabric_port *p, const struct vb_fabric_datagram *d, uint8_t way)
{
	if (vb_fabric_lets_pass(p, d->pkey, way))
		return true;
	struct vb_fabric_packet k = packet_of(d);

	return vb_fabric_may_pass(p, &k, way);
}

/* The programs of a port, which check P_Keys and Q_Keys of their queue pairs. 9.6.1: what nobody is attached for is dropped
 * before its P_Key is looked at. */
static void arrive(struct copies *c, struct vb_fabric_port *p)
{
	const struct vb_fabric_datagram *d = c->d;

	if (!c->f->ops->is_attached(c->f->own, p, d)) {
		LOST(c, nobody);
		return;
	}
	if (!vb_fabric_pkey_matches(p, d->pkey)) {
		struct vb_fabric_packet k = packet_of(d);

		vb_fabric_bad_pkey(p, &k);
		LOST(c, bad_pkey);
		return;
	}
	c->f->ops->deliver_to_group(c->f->own, p, d);
}

static void count_copy(const struct copies *c, struct vb_fabric_port *out, struct vb_fabric_port *in)
{
	uint32_t bytes = c->d->bytes;

	out->counters.xmit_pkts++;
	out->counters.multicast_xmit++;
	out->counters.xmit_data += bytes / 4;
	in->counters.rcv_pkts++;
	in->counters.multicast_rcv++;
	in->counters.rcv_data += bytes / 4;
	if (c->f->captures)
		c->f->ops->show_group(c->f->own, out, c->d);
}

/* The receiving half of a link. Where tables lead round in a circle, a copy ends at the port where one was before, so that
 * there is no storm. */
static void enter_port(struct copies *c, struct vb_fabric_port *out, struct vb_fabric_port *in)
{
	if (!vb_fabric_takes_data(in)) {
		LOST(c, not_active);
	} else if (!partition_lets_pass(in, c->d, VB_ENFORCE_IN)) {
		LOST(c, bad_pkey);
	} else if (in->group_turn == c->f->group_turn) {
		LOST(c, hop_limit);
	} else {
		vb_fabric_data_came(in);
		count_copy(c, out, in);
		in->group_turn = c->f->group_turn;
		in->group_next = NULL;
		*c->last = in;
		c->last = &in->group_next;
	}
}

/* from: where it has come into the node of out; out itself at the start. */
static void send_copy(struct copies *c, struct vb_fabric_port *from, struct vb_fabric_port *out)
{
	struct vb_fabric_port *in = out->peer;

	if (!in || !vb_fabric_is_up(out) || in->node->off) {
		LOST(c, no_link);
	} else if (out->info.state != VB_PORT_ACTIVE) {
		out->counters.xmit_discards++;
		LOST(c, not_active);
	} else if (c->d->length > vb_fabric_mtu_bytes(out)) { /* 16.1.3.5: PortXmitDiscards */
		out->counters.xmit_discards++;
		LOST(c, too_long);
	} else if (!vb_fabric_has_vl(out, vb_fabric_vl_of(out, from, c->d->sl))) {
		out->counters.xmit_discards++;
		LOST(c, bad_vl);
	} else if (!partition_lets_pass(out, c->d, VB_ENFORCE_OUT)) {
		LOST(c, bad_pkey);
	} else if (in->node->away) {
		count_copy(c, out, in);
		c->f->ops->cross_group(c->f->own, out, c->d);
	} else {
		enter_port(c, out, in);
	}
}

/* 14.2.5.4: where the table has no entry, all goes to the primary port, and what comes from there to the other one. */
static void send_by_default(struct copies *c, struct vb_fabric_port *in)
{
	const struct vb_switch_info *i = &in->node->sw->info;
	uint8_t num = in->num == i->default_mcast_primary ? i->default_mcast_other : i->default_mcast_primary;
	struct vb_fabric_port *out = num ? vb_fabric_port(in->node, num) : NULL;

	if (out && out != in) {
		send_copy(c, in, out);
		return;
	}
	in->counters.rcv_relay_errors++;
	LOST(c, no_route);
}

/* Port 0 has no queue pairs of programs. */
static void send_on(struct copies *c, struct vb_fabric_port *in)
{
	struct vb_fabric_node *n = in->node;
	const struct vb_fabric_switch *sw = n->sw;
	unsigned entry = c->d->dlid - VB_LID_MULTICAST;
	bool any = false;

	if (entry >= VB_FABRIC_MFT_CAP || (sw->info.mft_top && c->d->dlid > sw->info.mft_top)) {
		send_by_default(c, in);
		return;
	}
	for (unsigned num = 0; sw->mft && num <= n->ports; num++) {
		if (!(sw->mft[num / 16 * VB_FABRIC_MFT_CAP + entry] >> num % 16 & 1))
			continue;
		any = true;
		if (num && num != in->num) /* never back to where it came from */
			send_copy(c, in, &n->port[num]);
	}
	if (!any) {
		in->counters.rcv_relay_errors++;
		LOST(c, no_route);
	}
}

static void send_all_on(struct copies *c)
{
	for (struct vb_fabric_port *p = c->first; p; p = p->group_next) {
		if (p->node->sw)
			send_on(c, p);
		else
			arrive(c, p);
	}
}

void vb_fabric_multicast(struct vb_fabric_port *from, struct vb_fabric_datagram *d)
{
	struct copies c = {.f = from->node->fabric, .d = d, .last = &c.first};
	bool held = vb_fabric_hold(c.f);

	d->psn = (uint32_t)(++c.f->group_turn & 0xffffff);
	if (from->node->off || !vb_fabric_is_up(from) || from->info.state != VB_PORT_ACTIVE) {
		LOST(&c, not_active);
	} else {
		from->group_turn = c.f->group_turn; /* what comes back here has had its turn */
		if (c.f->ops->is_attached(c.f->own, from,
		                          d)) /* 10.5: an adapter also delivers to its own queue pairs */
			arrive(&c, from);
		send_copy(&c, from, from);
		send_all_on(&c);
	}
	vb_fabric_let_go(c.f, held);
}

void vb_fabric_multicast_on(struct vb_fabric_port *in, struct vb_fabric_datagram *d)
{
	struct copies c = {.f = in->node->fabric, .d = d, .last = &c.first};
	bool held = vb_fabric_hold(c.f);

	c.f->group_turn++;
	if (in->node->off || !vb_fabric_is_up(in))
		LOST(&c, no_link);
	else
		enter_port(&c, in->peer, in);
	send_all_on(&c);
	vb_fabric_let_go(c.f, held);
}
