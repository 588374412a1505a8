// cross_test.c - a subnet of two parts, as two processes have it: cables, datagrams and packets across, loops
// follows: IBA volume 1, 14.2.2 (directed routes), 14.2.5.6 (PortInfo), 16.1.3.5 (PortCounters), 18.2.4.3 (forwarding), 7.2
// SPDX-License-Identifier: MIT
#include "frame/header.h"
#include "two_switches.h"

enum { MLID = 0xc001 };

/* Host 0, host 1 and switch 0 are of part 0; host 2 and switch 1 of part 1. */
static struct part {
	struct vb_fabric *f;
	struct vb_fabric_node *sw[2];
	struct vb_fabric_port *host[3], *end; /* end: of the cable, port 3 of its own switch */
	struct vb_fabric_packet got;
	unsigned packets, copies, crossings;
	bool cut; /* what leaves is lost */
} part[2];

static struct part *other(const struct part *p)
{
	return &part[p == &part[0]];
}

static bool take_packet(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	struct part *p = own;

	p->packets++;
	p->got = *packet;
	return true;
}

static bool is_attached(void *own, struct vb_fabric_port *port, const struct vb_fabric_datagram *d)
{
	return true;
}

static void take_copy(void *own, struct vb_fabric_port *port, const struct vb_fabric_datagram *d)
{
	((struct part *)own)->copies++;
}

static void cross(void *own, struct vb_fabric_port *out, const uint8_t *bytes, size_t len, unsigned hops)
{
	struct part *p = own;
	struct vb_link_packet k;

	CHECK(out == p->end);
	p->crossings++;
	SAME(vb_link_decode(&k, bytes, len), VB_LINK_OK);
	SAME(k.len, len);
	SAME(vb_fabric_kind_of(&k, bytes), VB_FABRIC_IS_MAD);
	if (!p->cut)
		vb_fabric_arrive(other(p)->end, bytes, &k, VB_LINK_OK, hops);
}

static void cross_group(void *own, struct vb_fabric_port *out, const struct vb_fabric_datagram *d)
{
	struct part *p = own;
	struct vb_fabric_datagram copy = *d;

	copy.crossings++;
	if (++p->crossings < 16)
		vb_fabric_multicast_on(other(p)->end, &copy);
}

static const struct vb_fabric_ops ops = {.deliver = take_packet,
                                         .is_attached = is_attached,
                                         .deliver_to_group = take_copy,
                                         .cross = cross,
                                         .cross_group = cross_group};

/* What the two ends tell each other until nothing changes. */
static void tell(void)
{
	for (int i = 0; i < 6; i++) {
		const struct vb_fabric_end e = vb_fabric_end_of(part[i & 1].end);

		vb_fabric_end_told(part[!(i & 1)].end, &e);
	}
}

static void make_active(struct part *p)
{
	for (size_t i = 0; i < p->f->count; i++)
		for (unsigned k = 1; k <= p->f->nodes[i]->ports; k++)
			if (p->f->nodes[i]->port[k].peer && !p->f->nodes[i]->away)
				p->f->nodes[i]->port[k].info.state = VB_PORT_ACTIVE;
}

static void begin(void)
{
	memset(part, 0, sizeof(part));
	for (int i = 0; i < 2; i++) {
		struct part *p = &part[i];

		p->f = two_switches(p->sw, p->host);
		p->f->ops = &ops;
		p->f->own = p;
		for (size_t k = 0; k < p->f->count; k++)
			p->f->nodes[k]->port[1].info.phys =
			        p->f->nodes[k]->port[3 % (p->f->nodes[k]->ports + 1)].info.phys = VB_PHYS_POLLING;
		vb_fabric_give_away(p->sw[!i], other(p));
		for (int h = 0; h < 3; h++)
			if ((h == 2) != i)
				vb_fabric_give_away(p->host[h]->node, other(p));
		p->end = &p->sw[i]->port[3];
		vb_fabric_train_all(p->f);
	}
	SAME(part[0].end->info.state, VB_PORT_DOWN);
	tell();
	SAME(part[0].end->info.state, VB_PORT_INIT);
	SAME(part[1].end->info.state, VB_PORT_INIT);
	make_active(&part[0]);
	make_active(&part[1]);
}

static void end(void)
{
	vb_fabric_free(part[0].f);
	vb_fabric_free(part[1].f);
}

/* --- the states of the cable --- */

static void both_are(uint8_t state)
{
	SAME(part[0].end->info.state, state);
	SAME(part[1].end->info.state, state);
}

static void a_cable_that_is_cut_or_a_switch_that_is_off_takes_both_ends_down(void)
{
	begin();
	vb_fabric_cut(part[0].end, true);
	tell();
	both_are(VB_PORT_DOWN);
	vb_fabric_cut(part[0].end, false);
	tell();
	both_are(VB_PORT_INIT);
	vb_fabric_switch_off(part[1].sw[1], true);
	tell();
	both_are(VB_PORT_DOWN);
	vb_fabric_switch_off(part[1].sw[1], false);
	tell();
	both_are(VB_PORT_INIT);
	end();
}

/* The other end learns of both changes at once. */
static void a_short_fall_is_seen_by_the_other_end(void)
{
	begin();
	uint32_t downs = part[0].end->downs;

	vb_fabric_cut(part[1].end, true);
	vb_fabric_cut(part[1].end, false);
	SAME(part[0].end->info.state, VB_PORT_ACTIVE);
	tell();
	both_are(VB_PORT_INIT);
	SAME(part[0].end->downs, downs); /* so that the two do not go on for ever */
	make_active(&part[0]);
	make_active(&part[1]);
	tell();
	both_are(VB_PORT_ACTIVE);
	end();
}

static void silence_takes_the_port_down(void)
{
	begin();
	vb_fabric_end_told(part[0].end, NULL);
	SAME(part[0].end->info.state, VB_PORT_DOWN);
	CHECK(!vb_fabric_find(part[0].f, "s1")->off);
	tell();
	SAME(part[0].end->info.state, VB_PORT_INIT);
	end();
}

static void the_rate_is_what_both_ends_can(void)
{
	begin();
	part[1].end->info.width_enabled = 1;
	part[1].end->info.speed_enabled = 3;
	vb_fabric_cut(part[1].end, true);
	tell();
	vb_fabric_cut(part[1].end, false);
	tell();
	for (int i = 0; i < 2; i++) {
		SAME(part[i].end->info.width_active, 1);
		SAME(part[i].end->info.speed_active, 2);
	}
	end();
}

/* --- management --- */

static void ask(uint8_t mgmt_class, uint16_t attr, uint16_t dlid)
{
	struct vb_fabric_packet k = {.slid = 10, .dlid = dlid, .pkey = 0xffff, .hop_limit = 3};
	struct vb_smp smp = {.mad = {.base_version = 1,
	                             .mgmt_class = mgmt_class,
	                             .class_version = 1,
	                             .method = VB_MAD_GET,
	                             .tid = 77,
	                             .attr_id = attr},
	                     .dr_slid = VB_LID_DIRECTED,
	                     .dr_dlid = VB_LID_DIRECTED};

	if (mgmt_class == VB_MAD_CLASS_SM_DR) { /* from host 0 to host 2 */
		k.slid = k.dlid = VB_LID_DIRECTED;
		smp.mad.class_specific = 3;
		smp.initial[1] = 1;
		smp.initial[2] = 3;
		smp.initial[3] = 1;
	}
	if (mgmt_class == VB_MAD_CLASS_PM) {
		k.src_qpn = k.dst_qpn = VB_GSI_QPN;
		k.qkey = VB_GSI_QKEY;
	}
	vb_smp_encode(k.mad, &smp);
	vb_fabric_send(part[0].host[0], &k);
}

static void smps_go_across_and_come_back(void)
{
	struct vb_node_info info;
	struct vb_smp s;

	begin();
	ask(VB_MAD_CLASS_SM_DR, VB_SMP_NODE_INFO, 0);
	SAME(part[0].packets, 1);
	vb_smp_decode(&s, part[0].got.mad);
	vb_node_info_decode(&info, s.data);
	CHECK(info.node_guid == part[1].host[2]->node->guid && s.mad.tid == 77 && s.mad.method == VB_MAD_GET_RESP);
	SAME(s.back[1], 1);
	SAME(s.back[2], 3);
	ask(VB_MAD_CLASS_SM_LID, VB_SMP_NODE_INFO, 30);
	SAME(part[0].packets, 2);
	SAME(part[0].got.slid, 30);
	SAME(part[0].crossings + part[1].crossings, 4);
	SAME(part[0].end->counters.xmit_pkts, 2);
	SAME(part[1].end->counters.rcv_pkts, 2);
	SAME(part[1].end->counters.xmit_data, part[0].end->counters.rcv_data);
	/* management needs a link that is up, not Active; after a cut nothing arrives */
	part[1].end->info.state = part[0].end->info.state = VB_PORT_INIT;
	ask(VB_MAD_CLASS_SM_DR, VB_SMP_NODE_INFO, 0);
	SAME(part[0].packets, 3);
	vb_fabric_end_told(part[1].end, NULL);
	ask(VB_MAD_CLASS_SM_DR, VB_SMP_NODE_INFO, 0);
	SAME(part[0].packets, 3);
	SAME(part[1].f->drops.no_link, 1);
	end();
}

static void general_datagrams_go_across_if_ports_and_partitions_permit(void)
{
	begin();
	ask(VB_MAD_CLASS_PM, 0x0012, 30);
	SAME(part[0].packets, 1);
	SAME(part[0].got.slid, 30);
	part[1].end->info.state = VB_PORT_INIT;
	ask(VB_MAD_CLASS_PM, 0x0012, 30);
	SAME(part[0].packets, 1);
	SAME(part[1].f->drops.not_active, 1);
	part[1].end->info.state = VB_PORT_ARMED;
	ask(VB_MAD_CLASS_PM, 0x0012, 30);
	SAME(part[0].packets, 2);
	SAME(part[1].end->info.state, VB_PORT_ACTIVE);
	part[1].end->info.enforce = VB_ENFORCE_IN;
	part[1].end->pkeys = calloc(VB_FABRIC_SWITCH_PKEYS, sizeof(uint16_t));
	ask(VB_MAD_CLASS_PM, 0x0012, 30);
	SAME(part[0].packets, 2);
	SAME(part[1].end->counters.rcv_constraint, 1);
	end();
}

static void a_loop_over_two_parts_ends(void)
{
	begin();
	part[0].sw[0]->sw->lft[40] = part[1].sw[1]->sw->lft[40] = 3;
	ask(VB_MAD_CLASS_SM_LID, VB_SMP_NODE_INFO, 40);
	SAME(part[0].crossings + part[1].crossings, VB_FABRIC_HOPS_MOST);
	SAME(part[0].f->drops.hop_limit + part[1].f->drops.hop_limit, 1);
	end();
}

static void a_damaged_packet_is_dropped_where_it_comes_in(void)
{
	uint8_t bytes[400] = {0};
	struct vb_link_packet k;

	begin();
	struct vb_flow flow = {.slid = 10, .dlid = 30, .link = VB_LINK_LOCAL};
	const struct vb_ip_fields ip = {.hop_limit = 1};
	size_t len = vb_link_front(bytes, &flow, &ip, 280) + 280;

	vb_vcrc_encode(bytes, len);
	SAME(vb_link_decode(&k, bytes, len + VB_VCRC_LEN), VB_LINK_OK);
	vb_fabric_arrive(part[1].end, bytes, &k, VB_LINK_OK, 1); /* no such opcode, and no ICRC */
	SAME(part[1].f->drops.bad_packet, 1);
	vb_fabric_arrive(part[1].end, bytes, &k, VB_LINK_VCRC, 1);
	SAME(part[1].f->drops.bad_vcrc, 1);
	SAME(part[1].end->counters.rcv_errors, 2);
	end();
}

/* --- packets of queue pairs --- */

static uint8_t packet[512];
static struct vb_link_packet k;

static void build(uint16_t dlid)
{
	const struct vb_flow flow = {.slid = 10, .dlid = dlid, .link = VB_LINK_LOCAL};
	const struct vb_ip_fields ip = {.hop_limit = 1};
	size_t front = vb_link_front(packet, &flow, &ip, VB_BTH_LEN + 64 + VB_ICRC_LEN);
	struct vb_writer w = vb_writer(packet + front, VB_BTH_LEN);
	const struct vb_bth bth = {.opcode = 4, .pkey = 0xffff, .dest_qpn = 0x4711};

	vb_bth_encode(&w, &bth);
	vb_vcrc_encode(packet, front + VB_BTH_LEN + 64 + VB_ICRC_LEN);
	SAME(vb_link_decode(&k, packet, sizeof(packet)), VB_LINK_OK);
}

static void packets_go_across_and_both_ends_count_them(void)
{
	static struct vb_fabric_course there, on;

	begin();
	memset(&there, 0, sizeof(there));
	memset(&on, 0, sizeof(on));
	for (int i = 0; i < 3; i++) {
		build(30);
		struct vb_fabric_port *left = vb_fabric_carry(part[0].host[0], &there, packet, &k, VB_LINK_OK);

		CHECK(left && left->node->away && left->peer == part[0].end);
		SAME(there.hops, 1);
		CHECK(vb_fabric_carry_on(part[1].end, &on, packet, &k, VB_LINK_OK, there.hops) == part[1].host[2]);
	}
	SAME(part[0].end->counters.xmit_pkts, 3);
	SAME(part[1].end->counters.rcv_pkts, 3);
	SAME(part[1].host[2]->counters.rcv_pkts, 3);
	SAME(part[0].end->counters.xmit_data, part[1].end->counters.rcv_data);
	/* the switches that it has passed before count too */
	CHECK(vb_fabric_carry_on(part[1].end, &on, packet, &k, VB_LINK_OK, VB_FABRIC_HOPS_MOST - 1) == part[1].host[2]);
	CHECK(!vb_fabric_carry_on(part[1].end, &on, packet, &k, VB_LINK_OK, VB_FABRIC_HOPS_MOST));
	SAME(part[1].f->drops.hop_limit, 1);
	CHECK(!vb_fabric_carry_on(part[1].end, &on, packet, &k, VB_LINK_VCRC, 1));
	vb_fabric_end_told(part[1].end, NULL);
	CHECK(!vb_fabric_carry_on(part[1].end, &on, packet, &k, VB_LINK_OK, 1));
	SAME(part[1].f->drops.no_link, 1);
	end();
}

static void a_way_to_the_other_part_is_elsewhere(void)
{
	struct vb_fabric_way_key to2 = {.dlid = 30, .pkey = 0xffff, .both = true}, to1 = {.dlid = 20, .pkey = 0xffff};
	struct vb_fabric_way way[2];

	begin();
	SAME(vb_fabric_find_way(part[0].host[0], &to2, way), VB_WAY_ELSEWHERE);
	SAME(vb_fabric_find_way(part[1].host[2], &to1, way), VB_WAY_ELSEWHERE);
	SAME(vb_fabric_find_way(part[0].host[0], &to1, way), VB_WAY_OPEN);
	part[0].sw[0]->sw->lft[10] = part[0].sw[0]->sw->lft[11] = 3; /* the way back leaves this part */
	SAME(vb_fabric_find_way(part[0].host[0], &to1, way), VB_WAY_ELSEWHERE);
	to1.both = true;
	SAME(vb_fabric_find_way(part[0].host[0], &to1, way), VB_WAY_ELSEWHERE);
	vb_fabric_end_told(part[0].end, NULL);
	SAME(vb_fabric_find_way(part[0].host[0], &to2, way), VB_WAY_NO_LINK);
	end();
}

/* --- groups --- */

static void copies_cross_the_cable(void)
{
	static uint8_t grh[40] = {[24] = 0xff};
	struct vb_fabric_datagram d = {
	        .slid = 10, .dlid = MLID, .pkey = 0xffff, .src_qpn = 7, .length = 100, .bytes = 400, .grh = grh};

	begin();
	for (int i = 0; i < 2; i++) {
		part[i].sw[i]->sw->mft = calloc(VB_FABRIC_MFT_CAP, sizeof(uint16_t));
		CHECK(part[i].sw[i]->sw->mft);
		part[i].sw[i]->sw->mft[MLID - VB_LID_MULTICAST] = i ? 1 << 1 | 1 << 3 : 1 << 1 | 1 << 2 | 1 << 3;
	}
	vb_fabric_multicast(part[0].host[0], &d);
	SAME(part[0].copies, 2); /* itself, and host 1 */
	SAME(part[1].copies, 1);
	SAME(part[0].crossings, 1);
	SAME(part[1].crossings, 0); /* never back to where it came from */
	SAME(part[0].end->counters.multicast_xmit, 1);
	SAME(part[1].end->counters.multicast_rcv, 1);
	SAME(d.psn, part[0].f->group_turn);
	vb_fabric_end_told(part[1].end, NULL);
	vb_fabric_multicast(part[0].host[0], &d);
	SAME(part[1].copies, 1);
	SAME(part[1].f->drops.no_link, 1);
	end();
}

int main(void)
{
	RUN(a_cable_that_is_cut_or_a_switch_that_is_off_takes_both_ends_down);
	RUN(a_short_fall_is_seen_by_the_other_end);
	RUN(silence_takes_the_port_down);
	RUN(the_rate_is_what_both_ends_can);
	RUN(smps_go_across_and_come_back);
	RUN(general_datagrams_go_across_if_ports_and_partitions_permit);
	RUN(a_loop_over_two_parts_ends);
	RUN(a_damaged_packet_is_dropped_where_it_comes_in);
	RUN(packets_go_across_and_both_ends_count_them);
	RUN(a_way_to_the_other_part_is_elsewhere);
	RUN(copies_cross_the_cable);
	return 0;
}
