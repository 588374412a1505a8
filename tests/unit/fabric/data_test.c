// data_test.c - packets of programs through switches: where they end, why they do not, and what the ports count
// follows: IBA volume 1, 7.6 (virtual lanes), 7.7 (LRH), 18.2.4.3 (linear forwarding), 10.9 (partitions), 16.1.3.5
// SPDX-License-Identifier: MIT
#include "frame/header.h"
#include "two_switches.h"

static struct {
	struct vb_fabric *f;
	struct vb_fabric_node *sw[2];
	struct vb_fabric_port *host[3];
	struct vb_fabric_course course;
	uint8_t bytes[8192];
	size_t len; /* to the VCRC */
	struct vb_flow flow;
	uint16_t pkey;
	uint32_t qpn;
} t;

/* Packets go from host 0 to host 2. */
static void begin(void)
{
	memset(&t, 0, sizeof(t));
	t.f = two_switches(t.sw, t.host);
	t.flow = (struct vb_flow){.slid = 10, .dlid = 30, .link = VB_LINK_LOCAL};
	t.pkey = 0xffff;
	t.qpn = 0x4711;
}

static void end(void)
{
	vb_fabric_free(t.f);
}

/* A packet from host 0 with this many bytes of payload. */
static void build(size_t payload)
{
	const struct vb_ip_fields ip = {.hop_limit = 1};
	size_t front = vb_link_front(t.bytes, &t.flow, &ip, VB_BTH_LEN + payload + VB_ICRC_LEN);
	struct vb_writer w = vb_writer(t.bytes + front, VB_BTH_LEN);
	const struct vb_bth bth = {.opcode = 4, .pkey = t.pkey, .dest_qpn = t.qpn};

	vb_bth_encode(&w, &bth);
	memset(t.bytes + front + VB_BTH_LEN, 7, payload + VB_ICRC_LEN);
	t.len = front + VB_BTH_LEN + payload + VB_ICRC_LEN;
	vb_vcrc_encode(t.bytes, t.len);
}

static struct vb_fabric_port *carried(void)
{
	struct vb_link_packet p;
	enum vb_link_verdict verdict = vb_link_decode(&p, t.bytes, t.len + VB_VCRC_LEN);

	return vb_fabric_carry(t.host[0], &t.course, t.bytes, &p, verdict);
}

static struct vb_fabric_port *sent(void)
{
	build(64);
	return carried();
}

/* The program changes what a manager's Set would change. */
static void changed(void)
{
	t.f->changes++;
}

static void a_packet_goes_by_the_tables_and_all_ports_count(void)
{
	struct vb_link_packet p;

	begin();
	for (int i = 0; i < 3; i++)
		CHECK(sent() == t.host[2]);
	struct vb_fabric_port *way[] = {t.host[0],         &t.sw[0]->port[1], &t.sw[0]->port[3],
	                                &t.sw[1]->port[3], &t.sw[1]->port[1], t.host[2]};
	for (int i = 0; i < 6; i++) {
		SAME(i & 1 ? way[i]->counters.rcv_pkts : way[i]->counters.xmit_pkts, 3);
		SAME(i & 1 ? way[i]->counters.rcv_data : way[i]->counters.xmit_data, 3 * (8 + 12 + 64 + 4) / 4);
	}
	SAME(t.sw[0]->port[2].counters.xmit_pkts, 0);
	SAME(vb_link_decode(&p, t.bytes, t.len + VB_VCRC_LEN), VB_LINK_OK);
	t.flow.dlid = 11; /* itself, by another of its LIDs */
	CHECK(sent() == t.host[0]);
	t.flow.dlid = 21;
	t.flow.slid = 11;
	CHECK(sent() == t.host[1]);
	end();
}

static void a_wrong_vcrc_is_an_error_of_the_first_link(void)
{
	begin();
	build(64);
	t.bytes[40] ^= 4;
	CHECK(!carried());
	SAME(t.f->drops.bad_vcrc, 1);
	SAME(t.sw[0]->port[1].counters.rcv_errors, 1);
	SAME(t.host[0]->counters.xmit_pkts, 0);
	end();
}

static void what_no_program_may_send_is_dropped(void)
{
	begin();
	t.flow.slid = 20; /* another host's */
	CHECK(!sent());
	t.flow.slid = 10;
	t.qpn = 1;
	CHECK(!sent());
	t.qpn = 0x4711;
	build(64);
	t.bytes[0] = 0xf0; /* VL 15 */
	vb_vcrc_encode(t.bytes, t.len);
	CHECK(!carried());
	build(64);
	t.bytes[1] &= 0xfc; /* a raw packet */
	CHECK(!carried());
	SAME(t.f->drops.bad_packet, 4);
	t.flow.dlid = 0xc001;
	CHECK(!sent());
	t.flow.dlid = 0;
	CHECK(!sent());
	SAME(t.f->drops.no_route, 2);
	SAME(t.host[0]->counters.xmit_pkts, 0);
	end();
}

static void a_loop_ends(void)
{
	begin();
	t.sw[1]->sw->lft[30] = 3;
	CHECK(!sent());
	SAME(t.f->drops.hop_limit, 1);
	SAME(t.sw[0]->port[3].counters.xmit_pkts + t.sw[1]->port[3].counters.xmit_pkts, VB_FABRIC_HOPS_MOST);
	CHECK(!sent());
	SAME(t.f->drops.hop_limit, 2);
	end();
}

static void a_missing_route_counts_where_it_is_missing(void)
{
	begin();
	t.sw[1]->sw->lft[30] = 255;
	CHECK(!sent());
	SAME(t.f->drops.no_route, 1);
	SAME(t.sw[1]->port[3].counters.rcv_relay_errors, 1);
	SAME(t.sw[0]->port[3].counters.xmit_pkts, 1);
	t.sw[1]->sw->lft[30] = 1;
	t.sw[0]->sw->lft[30] = 2; /* to another host */
	CHECK(!sent());
	SAME(t.f->drops.not_for_us, 1);
	end();
}

static void a_change_is_seen_by_the_next_packet(void)
{
	begin();
	CHECK(sent() == t.host[2]);
	vb_fabric_cut(&t.sw[0]->port[3], true);
	CHECK(!sent());
	SAME(t.sw[0]->port[3].counters.xmit_discards, 1);
	vb_fabric_cut(&t.sw[0]->port[3], false);
	CHECK(!sent()); /* Init */
	t.sw[0]->port[3].info.state = VB_PORT_ACTIVE;
	t.sw[1]->port[3].info.state = VB_PORT_ARMED;
	changed();
	CHECK(sent() == t.host[2]);
	SAME(t.sw[1]->port[3].info.state, VB_PORT_ACTIVE);
	vb_fabric_switch_off(t.host[2]->node, true);
	CHECK(!sent());
	end();
}

static void too_long_a_packet_is_discarded_before_the_link(void)
{
	begin();
	t.sw[0]->port[3].info.neighbor_mtu = 3; /* 1024 */
	build(1024);
	CHECK(carried() == t.host[2]);
	build(2048); /* the first packet has left what is known of the way */
	CHECK(!carried());
	SAME(t.f->drops.too_long, 1);
	SAME(t.sw[0]->port[3].counters.xmit_discards, 1);
	end();
}

static void lanes_follow_the_tables_of_each_port(void)
{
	static const uint8_t maps[5][8] = {[1] = {0x01, 0x24}};
	struct vb_link_packet p;

	begin();
	t.sw[1]->port[1].sl2vl = calloc(5, 8);
	CHECK(t.sw[1]->port[1].sl2vl);
	memcpy(t.sw[1]->port[1].sl2vl + 8 * 3, maps[1], 8); /* from port 3: SL 0 to 3 on lanes 0, 1, 2, 4 */
	t.flow.sl = 3;
	CHECK(sent() == t.host[2]);
	SAME(vb_link_decode(&p, t.bytes, t.len + VB_VCRC_LEN), VB_LINK_OK);
	SAME(p.lrh.vl, 4);
	SAME(p.lrh.sl, 3);
	CHECK(sent() == t.host[2]); /* the same, with what is known of the way */
	SAME(t.bytes[0] >> 4, 4);
	t.sw[1]->port[1].info.oper_vls = 3; /* 4 lanes */
	changed();
	CHECK(!sent());
	SAME(t.f->drops.bad_vl, 1);
	SAME(t.sw[1]->port[1].counters.xmit_discards, 1);
	t.sw[1]->port[1].info.oper_vls = 4;
	t.sw[1]->port[1].sl2vl[8 * 3 + 1] = 0x2f; /* to the management lane */
	changed();
	CHECK(!sent());
	SAME(t.f->drops.bad_vl, 2);
	end();
}

static void partitions_are_enforced_by_switches_and_at_the_end(void)
{
	begin();
	keys_of(t.host[2], 0x7fff, 0x8123);
	CHECK(sent() == t.host[2]);
	t.pkey = 0x7fff;
	CHECK(!sent());
	SAME(t.host[2]->info.pkey_violations, 1);
	t.pkey = 0x0123;
	CHECK(sent() == t.host[2]);
	keys_of(&t.sw[1]->port[3], 0xffff, 0);
	t.sw[1]->port[3].info.enforce = VB_ENFORCE_IN;
	changed();
	CHECK(!sent());
	SAME(t.sw[1]->port[3].counters.rcv_constraint, 1);
	keys_of(&t.sw[0]->port[3], 0xffff, 0);
	t.sw[0]->port[3].info.enforce = VB_ENFORCE_OUT;
	changed();
	CHECK(!sent());
	SAME(t.sw[0]->port[3].counters.xmit_constraint, 1);
	SAME(t.f->drops.bad_pkey, 3);
	end();
}

static void a_grh_must_name_the_port_at_the_end(void)
{
	struct vb_writer w = vb_writer(t.flow.dst, VB_GID_LEN);

	begin();
	t.flow.link = VB_LINK_GLOBAL;
	CHECK(!sent());
	SAME(t.f->drops.not_for_us, 1);
	vb_put64(&w, VB_FABRIC_LINK_LOCAL);
	vb_put64(&w, t.host[2]->guid);
	CHECK(sent() == t.host[2]);
	end();
}

static void what_a_queue_does_not_take_counts_at_its_port(void)
{
	begin();
	vb_fabric_discard(t.host[2], 5);
	SAME(t.sw[1]->port[1].counters.xmit_discards, 5);
	SAME(t.f->drops.queue_full, 5);
	end();
}

/* --- links that take time --- */

static void packets_take_the_time_of_the_links_on_their_way(void)
{
	begin();
	CHECK(vb_fabric_set_pace(t.host[0], 1000, 5000)); /* 1 Gb/s: 8 ns a byte */
	CHECK(vb_fabric_set_pace(&t.sw[1]->port[1], 0, 300));
	t.f->now = 1000000;
	CHECK(sent() == t.host[2]);
	uint64_t each = 8 * (t.len + VB_VCRC_LEN);

	SAME(t.course.due, 1000000 + each + 5000 + 300);
	CHECK(sent() == t.host[2]); /* behind the first one */
	SAME(t.course.due, 1000000 + 2 * each + 5000 + 300);
	t.f->now = 2000000;
	CHECK(sent() == t.host[2]);
	SAME(t.course.due, 2000000 + each + 5000 + 300);
	t.f->now = 3000000;
	CHECK(vb_fabric_set_pace(t.host[0], 0, 0) && vb_fabric_set_pace(&t.sw[1]->port[1], 0, 0));
	SAME(t.f->paces, 0);
	CHECK(sent() == t.host[2]);
	SAME(t.course.due, 0);
	end();
}

static void packets_do_not_overtake_others_on_a_link_that_becomes_faster(void)
{
	begin();
	t.f->now = 1000000;
	CHECK(vb_fabric_set_pace(t.host[0], 0, 5000));
	CHECK(sent() == t.host[2]);
	SAME(t.course.due, 1005000);
	CHECK(vb_fabric_set_pace(t.host[0], 0, 10));
	CHECK(sent() == t.host[2]);
	SAME(t.course.due, 1005000);
	CHECK(vb_fabric_set_pace(t.host[0], 0, 0));
	CHECK(sent() == t.host[2]);
	SAME(t.course.due, 1005000);
	t.f->now = 1005000;
	CHECK(sent() == t.host[2]);
	SAME(t.course.due, 0);
	end();
}

static void a_packet_that_is_not_kept_takes_no_time_of_a_link(void)
{
	begin();
	CHECK(vb_fabric_set_pace(t.host[0], 1, 0));
	t.f->late_full = true;
	CHECK(sent() == t.host[2]);
	uint64_t due = t.course.due;

	CHECK(due > t.f->now && sent() == t.host[2]);
	SAME(t.course.due, due);
	end();
}

static void a_cable_keeps_its_latency_when_a_node_goes_off(void)
{
	begin();
	CHECK(vb_fabric_set_pace(&t.sw[0]->port[3], 0, 300));
	vb_fabric_switch_off(t.sw[0], true);
	vb_fabric_switch_off(t.sw[0], false);
	SAME(t.sw[0]->port[3].pace->latency, 300);
	SAME(t.f->paces, 1);
	end();
}

/* --- captures --- */

static struct {
	struct vb_fabric_port *out[8];
	uint8_t vl[8];
	unsigned n;
} shown;

static void show(void *own, struct vb_fabric_port *out, const uint8_t *bytes, size_t len)
{
	struct vb_link_packet p;

	CHECK(shown.n < 8);
	SAME(vb_link_decode(&p, bytes, len), VB_LINK_OK);
	SAME(p.len, len);
	shown.out[shown.n] = out;
	shown.vl[shown.n++] = p.lrh.vl;
}

static void a_capture_sees_each_link_with_its_lane(void)
{
	static const struct vb_fabric_ops ops = {.show = show};
	static uint8_t lanes[5 * 8];

	begin();
	memset(lanes, 0x22, sizeof(lanes)); /* of the link between the switches */
	t.sw[0]->port[3].sl2vl = lanes;
	t.sw[0]->port[3].info.oper_vls = 3;
	t.f->ops = &ops;
	t.f->captures = 1;
	memset(&shown, 0, sizeof(shown));
	CHECK(sent() == t.host[2]);
	SAME(shown.n, 3);
	CHECK(shown.out[0] == t.host[0] && shown.out[1] == &t.sw[0]->port[3] && shown.out[2] == &t.sw[1]->port[1]);
	SAME(shown.vl[0], 0);
	SAME(shown.vl[1], 2);
	SAME(shown.vl[2], 0);
	t.flow.dlid = 40; /* no switch leads there: it has passed the first link */
	CHECK(!sent());
	SAME(shown.n, 4);
	t.sw[0]->port[3].sl2vl = NULL;
	end();
}

int main(void)
{
	RUN(a_packet_goes_by_the_tables_and_all_ports_count);
	RUN(a_wrong_vcrc_is_an_error_of_the_first_link);
	RUN(what_no_program_may_send_is_dropped);
	RUN(a_loop_ends);
	RUN(a_missing_route_counts_where_it_is_missing);
	RUN(a_change_is_seen_by_the_next_packet);
	RUN(too_long_a_packet_is_discarded_before_the_link);
	RUN(lanes_follow_the_tables_of_each_port);
	RUN(partitions_are_enforced_by_switches_and_at_the_end);
	RUN(a_grh_must_name_the_port_at_the_end);
	RUN(what_a_queue_does_not_take_counts_at_its_port);
	RUN(packets_take_the_time_of_the_links_on_their_way);
	RUN(packets_do_not_overtake_others_on_a_link_that_becomes_faster);
	RUN(a_packet_that_is_not_kept_takes_no_time_of_a_link);
	RUN(a_cable_keeps_its_latency_when_a_node_goes_off);
	RUN(a_capture_sees_each_link_with_its_lane);
	return 0;
}
