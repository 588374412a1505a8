// walk.c - the way of a datagram: directed routes, forwarding tables, delivery at its end
// follows: IBA volume 1, 14.2.2 (directed routes: C14-9, C14-13), 18.2.4.3 (linear forwarding), 10.9 (partitions), 13.5.3
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/internal.h"

#define STEPS_MOST 300 /* two directed parts and two LID-routed ones, each at its longest */
#define QUEUE_MOST 65536

enum step { GO_ON, ENDED };

struct walk {
	struct vb_fabric *f;
	struct vb_fabric_flight *fl;
	struct vb_fabric_port *at; /* where it has arrived, or where it starts */
	bool starts;
	unsigned lid_hops;
};

static enum step ended_because(uint64_t *counter)
{
	++*counter;
	return ENDED;
}
#define DROPPED(w, why) ended_because(&(w)->f->drops.why)

static void show_datagram(const struct walk *w, struct vb_fabric_port *out)
{
	uint8_t bytes[VB_FABRIC_MAD_PACKET];

	if (w->fl->is_smp)
		vb_smp_encode(w->fl->packet.mad, &w->fl->smp);
	w->f->ops->show(w->f->own, out, bytes, vb_fabric_encode(bytes, &w->fl->packet));
}

static void count_transmit(const struct walk *w, struct vb_fabric_port *out, struct vb_fabric_port *in)
{
	enum { WORDS = (8 + 12 + 8 + VB_MAD_LEN + 4) / 4 }; /* LRH, BTH, DETH, MAD, ICRC */

	out->counters.xmit_pkts++;
	out->counters.unicast_xmit++;
	out->counters.xmit_data += WORDS;
	in->counters.rcv_pkts++;
	in->counters.unicast_rcv++;
	in->counters.rcv_data += WORDS;
	if (w->f->captures)
		show_datagram(w, out);
}

/* --- partitions --- */

static void pkey_trap(struct vb_fabric_port *p, const struct vb_fabric_packet *k, unsigned trap)
{
	uint8_t details[VB_NOTICE_DETAILS] = {0};
	struct vb_writer w = vb_writer(details, sizeof(details));

	vb_put16(&w, trap == VB_TRAP_SWITCH_PKEY ? 7 : 0); /* 259: LIDs, P_Key and queue pairs are valid */
	vb_put16(&w, k->slid);
	vb_put16(&w, k->dlid);
	if (trap == VB_TRAP_SWITCH_PKEY)
		vb_put16(&w, k->pkey);
	else
		vb_put32(&w, trap == VB_TRAP_BAD_QKEY ? k->qkey : k->pkey);
	vb_put32(&w, (uint32_t)k->sl << 28 | k->src_qpn);
	vb_put32(&w, k->dst_qpn);
	if (trap == VB_TRAP_SWITCH_PKEY) {
		vb_put_bytes(&w, k->sgid, 16);
		vb_put_bytes(&w, k->dgid, 16);
		vb_put16(&w, p->node->port[0].info.lid);
		vb_put8(&w, p->num);
	}
	vb_fabric_trap_about(p, trap, details);
}

/* A switch that enforces partitions on a port: 14.2.5.6, PartitionEnforcementInbound and -Outbound. */
bool vb_fabric_may_pass(struct vb_fabric_port *p, const struct vb_fabric_packet *k, uint8_t way)
{
	if (vb_fabric_lets_pass(p, k->pkey, way))
		return true;
	if (way == VB_ENFORCE_IN)
		p->counters.rcv_constraint++;
	else
		p->counters.xmit_constraint++;
	pkey_trap(p, k, VB_TRAP_SWITCH_PKEY);
	return false;
}

void vb_fabric_bad_pkey(struct vb_fabric_port *p, const struct vb_fabric_packet *k)
{
	p->info.pkey_violations += p->info.pkey_violations < 0xffff;
	pkey_trap(p, k, VB_TRAP_BAD_PKEY);
}

/* --- one hop --- */

/* Into a port that takes data. False: a switch's port does not let its P_Key pass. */
static bool gmp_enters(struct walk *w, struct vb_fabric_port *in)
{
	vb_fabric_data_came(in);
	return vb_fabric_may_pass(in, &w->fl->packet, VB_ENFORCE_IN);
}

/* By a cable to another process. */
static enum step leave(struct walk *w, struct vb_fabric_port *out)
{
	uint8_t bytes[VB_FABRIC_MAD_PACKET];

	if (w->fl->is_smp)
		vb_smp_encode(w->fl->packet.mad, &w->fl->smp);
	count_transmit(w, out, out->peer);
	w->f->ops->cross(w->f->own, out, bytes, vb_fabric_encode(bytes, &w->fl->packet), w->lid_hops);
	return ENDED;
}

/* By a cable from another process. */
static bool comes_in(struct walk *w)
{
	struct vb_fabric_port *in = w->at;

	if (in->node->off || !vb_fabric_is_up(in)) {
		VB_DROP(w->f, no_link);
		return false;
	}
	if (!w->fl->is_smp && !vb_fabric_takes_data(in)) {
		VB_DROP(w->f, not_active);
		return false;
	}
	if (!w->fl->is_smp && !gmp_enters(w, in)) {
		VB_DROP(w->f, bad_pkey);
		return false;
	}
	count_transmit(w, in->peer, in);
	return true;
}

static enum step transmit(struct walk *w, struct vb_fabric_port *out)
{
	struct vb_fabric_port *in = out ? out->peer : NULL;

	if (!out || !in || !vb_fabric_is_up(out))
		return DROPPED(w, no_link);
	if (!w->fl->is_smp) {
		if (out->info.state != VB_PORT_ACTIVE) {
			out->counters.xmit_discards++;
			return DROPPED(w, not_active);
		}
		if (!in->node->away && !vb_fabric_takes_data(in))
			return DROPPED(w, not_active);
		if (!vb_fabric_may_pass(out, &w->fl->packet, VB_ENFORCE_OUT))
			return DROPPED(w, bad_pkey);
	}
	if (in->node->away)
		return leave(w, out);
	if (!w->fl->is_smp && !gmp_enters(w, in))
		return DROPPED(w, bad_pkey);
	count_transmit(w, out, in);
	w->at = in;
	w->starts = false;
	return GO_ON;
}

/* --- at the end of the way --- */

static struct vb_fabric_packet turned(const struct vb_fabric_packet *k, const struct vb_fabric_port *p)
{
	struct vb_fabric_packet r = *k;

	r.slid = k->dlid >= VB_LID_MULTICAST ? p->info.lid : k->dlid;
	r.dlid = k->slid;
	r.src_qpn = k->dst_qpn;
	r.dst_qpn = k->src_qpn;
	if (k->grh) {
		memcpy(r.sgid, k->dgid, 16);
		memcpy(r.dgid, k->sgid, 16);
	}
	return r;
}

/* 13.4.7: a Get or Set that no agent takes. Vendors' classes stay silent. */
static void refuse(struct walk *w, struct vb_fabric_port *p)
{
	enum { CLASSES = 0x09 };
	struct vb_fabric_packet r = turned(&w->fl->packet, p);

	if (r.mad[1] >= CLASSES || (r.mad[3] != VB_MAD_GET && r.mad[3] != VB_MAD_SET))
		return;
	r.mad[3] = VB_MAD_GET_RESP;
	r.mad[4] = 0;
	r.mad[5] = VB_MAD_BAD_ATTR;
	vb_fabric_launch(p, &r, NULL);
}

/* To the programs of the port. */
static void to_programs(struct walk *w, struct vb_fabric_port *p)
{
	struct vb_fabric_packet *k = &w->fl->packet;

	if (w->fl->is_smp)
		vb_smp_encode(k->mad, &w->fl->smp);
	if (w->f->ops->deliver(w->f->own, p, k))
		return;
	DROPPED(w, nobody);
	if (!w->fl->is_smp)
		refuse(w, p);
}

static enum step end_smp(struct walk *w)
{
	struct vb_fabric_port *p = vb_fabric_end_port(w->at);
	struct vb_smp *s = &w->fl->smp;

	if (!vb_sma_takes(s)) {
		to_programs(w, p);
		return ENDED;
	}
	if (!vb_sma_answer(w->at, s))
		return ENDED;
	struct vb_fabric_packet k = turned(&w->fl->packet, p);
	if (s->mad.mgmt_class == VB_MAD_CLASS_SM_DR) {
		s->mad.status |= VB_SMP_RETURNING;
		k.slid = s->dr_dlid == VB_LID_DIRECTED ? VB_LID_DIRECTED : p->info.lid;
		/* a LID-routed part after the directed one: the way back begins with it */
		k.dlid = s->dr_dlid == VB_LID_DIRECTED ? VB_LID_DIRECTED : w->fl->packet.slid;
	}
	vb_fabric_launch(w->at, &k, s);
	return ENDED;
}

static enum step end_gmp(struct walk *w)
{
	struct vb_fabric_port *p = vb_fabric_end_port(w->at);
	struct vb_fabric_packet *k = &w->fl->packet;

	if (!vb_fabric_pkey_matches(p, k->pkey)) {
		vb_fabric_bad_pkey(p, k);
		return DROPPED(w, bad_pkey);
	}
	if (k->dst_qpn == VB_GSI_QPN && k->qkey != VB_GSI_QKEY) {
		p->info.qkey_violations += p->info.qkey_violations < 0xffff;
		pkey_trap(p, k, VB_TRAP_BAD_QKEY);
		return DROPPED(w, bad_qkey);
	}
	if (k->mad[1] == VB_MAD_CLASS_PM && !(k->mad[3] & VB_MAD_RESPONSE) && k->dst_qpn == VB_GSI_QPN) {
		struct vb_fabric_packet r = turned(k, p);

		if (vb_pma_answer(p, r.mad))
			vb_fabric_launch(p, &r, NULL);
		return ENDED;
	}
	to_programs(w, p);
	return ENDED;
}

/* --- directed routes; hop is the hop pointer, hops the hop count --- */

static enum step directed_out(struct walk *w)
{
	struct vb_smp *s = &w->fl->smp;
	struct vb_fabric_node *n = w->at->node;
	uint8_t hop = vb_smp_hop(s), hops = vb_smp_hops(s);

	if (hops >= VB_SMP_HOPS || hop > hops + 1)
		return DROPPED(w, bad_path);
	if (hop == hops + 1 || !hops) /* C14-9:5 */
		return end_smp(w);
	if (hop && hop < hops && !n->sw)
		return DROPPED(w, bad_path); /* C14-9:2: only a switch passes it on */
	if (hop)
		s->back[hop] = w->at->num;
	vb_smp_set_hop(s, ++hop);
	if (hop == hops + 1) { /* C14-9:3: the directed part ends here */
		if (s->dr_dlid == VB_LID_DIRECTED)
			return end_smp(w);
		w->fl->packet.slid = vb_fabric_end_port(w->at)->info.lid;
		w->fl->packet.dlid = s->dr_dlid;
		return GO_ON;
	}
	struct vb_fabric_port *out = vb_fabric_port(n, s->initial[hop]);

	if (!out || (n->sw && !out->num) || (!n->sw && w->starts && out != w->at))
		return DROPPED(w, bad_path);
	return transmit(w, out);
}

static enum step directed_back(struct walk *w)
{
	struct vb_smp *s = &w->fl->smp;
	struct vb_fabric_node *n = w->at->node;
	uint8_t hop = vb_smp_hop(s), hops = vb_smp_hops(s);

	if (hops >= VB_SMP_HOPS || hop > hops + 1)
		return DROPPED(w, bad_path);
	if (!hops || !hop) /* C14-13:4 */
		return end_smp(w);
	if (hop == 1 && !w->starts) { /* C14-13:3 */
		vb_smp_set_hop(s, 0);
		if (s->dr_slid == VB_LID_DIRECTED)
			return end_smp(w);
		w->fl->packet.slid = vb_fabric_end_port(w->at)->info.lid;
		w->fl->packet.dlid = s->dr_slid;
		return GO_ON;
	}
	if (hop <= hops && !n->sw) /* C14-13:2 */
		return DROPPED(w, bad_path);
	vb_smp_set_hop(s, --hop);
	struct vb_fabric_port *out = vb_fabric_port(n, s->back[hop]);

	if (!hop) { /* the whole route was one hop: it starts where it ends */
		w->at = out ? out : w->at;
		return end_smp(w);
	}
	if (!out || (n->sw && !out->num) || (!n->sw && w->starts && out != w->at))
		return DROPPED(w, bad_path);
	return transmit(w, out);
}

/* --- a step: what a node does with what it has --- */

static bool is_directed_here(const struct walk *w)
{
	const struct vb_fabric_packet *k = &w->fl->packet;
	const struct vb_fabric_port *end = vb_fabric_end_port(w->at);

	return w->fl->is_smp && w->fl->smp.mad.mgmt_class == VB_MAD_CLASS_SM_DR &&
	       (k->dlid == VB_LID_DIRECTED || vb_fabric_is_lid_of(end, k->dlid));
}

static enum step by_lid(struct walk *w)
{
	struct vb_fabric_node *n = w->at->node;
	struct vb_fabric_port *end = vb_fabric_end_port(w->at), *out;
	uint16_t dlid = w->fl->packet.dlid;

	if (vb_fabric_is_lid_of(end, dlid))
		return w->fl->is_smp ? end_smp(w) : end_gmp(w);
	if (!n->sw)
		return w->starts ? transmit(w, w->at) : DROPPED(w, not_for_us);
	if (++w->lid_hops > VB_FABRIC_HOPS_MOST)
		return DROPPED(w, hop_limit);
	out = vb_fabric_lft_port(n, dlid);
	if (!out || !out->num) {
		w->at->counters.rcv_relay_errors++;
		return DROPPED(w, no_route);
	}
	return transmit(w, out);
}

static enum step next_step(struct walk *w)
{
	const struct vb_fabric_packet *k = &w->fl->packet;

	if (w->at->node->off)
		return DROPPED(w, no_link);
	if (is_directed_here(w)) {
		w->fl->packet.dlid = VB_LID_DIRECTED;
		return w->fl->smp.mad.status & VB_SMP_RETURNING ? directed_back(w) : directed_out(w);
	}
	if (!k->dlid || k->dlid >= VB_LID_MULTICAST)
		return DROPPED(w, no_route);
	return by_lid(w);
}

static void run_flight(struct vb_fabric *f, struct vb_fabric_flight *fl)
{
	struct walk w = {.f = f, .fl = fl, .at = fl->from, .starts = !fl->came_in, .lid_hops = fl->hops};
	unsigned steps = 0;

	if (fl->came_in && !comes_in(&w))
		return;
	while (next_step(&w) == GO_ON)
		if (++steps > STEPS_MOST) {
			VB_DROP(f, hop_limit);
			return;
		}
}

static bool queue_grow(struct vb_fabric *f)
{
	size_t room = f->queue_room ? 2 * f->queue_room : 64;
	struct vb_fabric_flight *q = room > QUEUE_MOST ? NULL : malloc(room * sizeof(*q));

	if (!q)
		return false;
	for (size_t i = 0; i < f->queue_len; i++)
		q[i] = f->queue[(f->queue_head + i) % f->queue_room];
	free(f->queue);
	f->queue = q;
	f->queue_head = 0;
	f->queue_room = room;
	return true;
}

/* Returns room for one more at the end of the queue, or NULL. */
static struct vb_fabric_flight *queue_flight(struct vb_fabric *f)
{
	if (f->queue_len == f->queue_room && !queue_grow(f)) {
		VB_DROP(f, queue_full);
		return NULL;
	}
	return &f->queue[(f->queue_head + f->queue_len++) % f->queue_room];
}

void vb_fabric_launch(struct vb_fabric_port *from, const struct vb_fabric_packet *packet, const struct vb_smp *smp)
{
	struct vb_fabric *f = from->node->fabric;
	struct vb_fabric_flight *fl = queue_flight(f);

	if (!fl)
		return;
	fl->from = from;
	fl->came_in = false;
	fl->hops = 0;
	fl->packet = *packet;
	fl->is_smp = smp != NULL;
	if (smp)
		fl->smp = *smp;
	vb_fabric_let_go(f, vb_fabric_hold(f));
}

void vb_fabric_launch_flight(struct vb_fabric *f, const struct vb_fabric_flight *from)
{
	struct vb_fabric_flight *fl = queue_flight(f);

	if (!fl)
		return;
	*fl = *from;
	vb_fabric_let_go(f, vb_fabric_hold(f));
}

bool vb_fabric_hold(struct vb_fabric *f)
{
	bool held = !f->running;

	f->running = true;
	return held;
}

void vb_fabric_let_go(struct vb_fabric *f, bool held)
{
	if (!held)
		return;
	while (f->queue_len) {
		struct vb_fabric_flight one = f->queue[f->queue_head];

		f->queue_head = (f->queue_head + 1) % f->queue_room;
		f->queue_len--;
		run_flight(f, &one);
	}
	f->running = false;
}

void vb_fabric_send(struct vb_fabric_port *from, const struct vb_fabric_packet *packet)
{
	struct vb_fabric *f = from->node->fabric;
	uint8_t mgmt_class = packet->mad[1];
	bool is_smp = mgmt_class == VB_MAD_CLASS_SM_DR || mgmt_class == VB_MAD_CLASS_SM_LID;
	struct vb_smp smp;

	/* 13.5.3: subnet management is of queue pair 0 alone */
	if (is_smp != (packet->dst_qpn == VB_SMI_QPN)) {
		VB_DROP(f, bad_class);
		return;
	}
	if (is_smp)
		vb_smp_decode(&smp, packet->mad);
	vb_fabric_launch(from, packet, is_smp ? &smp : NULL);
}
