// subnet_test.c - a subnet whose manager is this test: what nodes answer, and where datagrams arrive
// follows: IBA volume 1, 14.2.2 (directed routes), 14.2.4 (M_Key), 14.2.5 (attributes), 14.3.12 (traps), 10.9 (partitions), 16.1
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "fabric/topology.h"

static struct {
	struct vb_fabric *f;
	struct vb_fabric_node *host[4], *sw[2];
	struct vb_fabric_packet got[16]; /* what programs have received */
	struct vb_fabric_port *at[16];
	unsigned count;
	struct vb_smp reply;
} t;

static bool take(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	if (!port->host)
		return false;
	CHECK(t.count < 16);
	t.at[t.count] = port;
	t.got[t.count++] = *packet;
	return true;
}

static const struct vb_fabric_ops ops = {.deliver = take};

/* Two switches with two hosts each; the switches are joined at port 3. All hosts have programs. */
static void begin(void)
{
	static const char text[] = "Switch 4 \"s0\"\n[1] \"h0\"[1]\n[2] \"h1\"[1]\n[3] \"s1\"[3]\n"
	                           "\nSwitch 4 \"s1\"\n[1] \"h2\"[1]\n[2] \"h3\"[1]\n"
	                           "\nCa 1 \"h0\"\n\nCa 1 \"h1\"\n\nCa 1 \"h2\"\n\nCa 1 \"h3\"\n";
	struct vb_topology_error e;
	char name[3] = "h0";

	memset(&t, 0, sizeof(t));
	t.f = vb_fabric_new(&ops, NULL);
	CHECK(t.f && vb_topology_read(t.f, text, sizeof(text) - 1, &e));
	for (int i = 0; i < 4; i++) {
		name[1] = (char)('0' + i);
		t.host[i] = vb_fabric_find(t.f, name);
		t.host[i]->port[1].host = &t;
	}
	t.sw[0] = vb_fabric_find(t.f, "s0");
	t.sw[1] = vb_fabric_find(t.f, "s1");
	vb_fabric_train_all(t.f);
}

static void end(void)
{
	vb_fabric_free(t.f);
}

static struct vb_smp directed(uint8_t method, uint16_t attr, uint32_t mod, unsigned hops, const uint8_t *path)
{
	struct vb_smp s = {.mad = {1, VB_MAD_CLASS_SM_DR, 1, method, 0, (uint16_t)hops, 77, attr, mod},
	                   .dr_slid = VB_LID_DIRECTED,
	                   .dr_dlid = VB_LID_DIRECTED};

	memcpy(s.initial + 1, path, hops);
	return s;
}

/* From host 0, port 1. True: there was a reply, now in t.reply. */
static bool ask(const struct vb_smp *s)
{
	struct vb_fabric_packet p = {.slid = VB_LID_DIRECTED, .dlid = VB_LID_DIRECTED, .pkey = 0xffff};

	vb_smp_encode(p.mad, s);
	t.count = 0;
	vb_fabric_send(&t.host[0]->port[1], &p);
	if (!t.count)
		return false;
	SAME(t.count, 1);
	CHECK(t.at[0] == &t.host[0]->port[1]);
	vb_smp_decode(&t.reply, t.got[0].mad);
	SAME(t.reply.mad.method, VB_MAD_GET_RESP);
	SAME(t.reply.mad.tid, 77);
	return true;
}

static unsigned status(void)
{
	return t.reply.mad.status & 0x7fff;
}

static const uint8_t to_switch[] = {1}, to_next[] = {1, 3}, to_h2[] = {1, 3, 1}, to_h1[] = {1, 2};

static void a_directed_packet_arrives_and_brings_its_way_back(void)
{
	struct vb_node_info n;

	begin();
	struct vb_smp s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, 3, to_h2);
	CHECK(ask(&s));
	SAME(t.reply.mad.status, VB_SMP_RETURNING);
	SAME(vb_smp_hop(&t.reply), 0);
	CHECK(t.reply.back[1] == 1 && t.reply.back[2] == 3 && t.reply.back[3] == 1);
	vb_node_info_decode(&n, t.reply.data);
	CHECK(n.type == VB_NODE_CA && n.node_guid == t.host[2]->guid && n.local_port == 1);
	s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, 2, to_next);
	CHECK(ask(&s));
	vb_node_info_decode(&n, t.reply.data);
	CHECK(n.type == VB_NODE_SWITCH && n.ports == 4 && n.local_port == 3);
	s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, 0, to_switch);
	CHECK(ask(&s));
	vb_node_info_decode(&n, t.reply.data);
	SAME(n.node_guid, t.host[0]->guid);
	end();
}

static void a_directed_packet_with_an_impossible_way_is_dropped(void)
{
	static const uint8_t unconnected[] = {1, 4}, through_host[] = {1, 2, 1}, wrong_start[] = {2},
	                     to_itself[] = {1, 0}, beyond[] = {1, 9};
	static const struct {
		unsigned hops;
		const uint8_t *path;
	} ways[] = {{2, unconnected}, {3, through_host}, {1, wrong_start}, {2, to_itself}, {2, beyond}};

	begin();
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct vb_smp s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, ways[i].hops, ways[i].path);
		CHECK(!ask(&s));
	}
	SAME(t.f->drops.bad_path + t.f->drops.no_link, 5);
	struct vb_smp s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, 1, to_switch);
	s.mad.class_specific = 0x0044; /* 68 hops */
	CHECK(!ask(&s));
	s.mad.class_specific = 0x0901; /* a hop pointer beyond the count */
	CHECK(!ask(&s));
	end();
}

static void wrong_requests_get_the_status_of_the_specification(void)
{
	static const struct {
		uint16_t attr;
		uint32_t mod;
		uint8_t method;
		unsigned hops;
		unsigned status;
	} cases[] = {{0x7777, 0, VB_MAD_GET, 1, VB_MAD_BAD_ATTR},
	             {VB_SMP_NODE_INFO, 0, VB_MAD_SET, 1, VB_MAD_BAD_ATTR},
	             {VB_SMP_PORT_INFO, 5, VB_MAD_GET, 1, VB_MAD_BAD_VALUE},
	             {VB_SMP_LFT, 768, VB_MAD_GET, 1, VB_MAD_BAD_VALUE},
	             {VB_SMP_MFT, 32, VB_MAD_GET, 1, VB_MAD_BAD_VALUE},
	             {VB_SMP_MFT, 1u << 28, VB_MAD_GET, 1, VB_MAD_BAD_VALUE},
	             {VB_SMP_PKEY_TABLE, 2, VB_MAD_GET, 1, VB_MAD_BAD_VALUE},
	             {VB_SMP_VL_ARB, 5u << 16 | 1, VB_MAD_GET, 1, VB_MAD_BAD_VALUE},
	             {VB_SMP_GUID_INFO, 0x20000000, VB_MAD_GET, 1, VB_MAD_BAD_VALUE},
	             {VB_SMP_SWITCH_INFO, 0, VB_MAD_GET, 2, VB_MAD_BAD_ATTR},
	             {VB_SMP_LFT, 0, VB_MAD_GET, 2, VB_MAD_BAD_ATTR}};

	begin();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct vb_smp s = directed(cases[i].method, cases[i].attr, cases[i].mod, cases[i].hops, to_h1);
		CHECK(ask(&s));
		if (status() != cases[i].status)
			CHECK_FAILED("case %zu: status %#x", i, status());
	}
	struct vb_smp s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, 1, to_switch);
	s.mad.class_version = 9;
	CHECK(ask(&s));
	SAME(status(), VB_MAD_BAD_VERSION);
	end();
}

static struct vb_port_info get_port(unsigned hops, const uint8_t *path, uint32_t num)
{
	struct vb_smp s = directed(VB_MAD_GET, VB_SMP_PORT_INFO, num, hops, path);
	struct vb_port_info i;

	CHECK(ask(&s));
	SAME(status(), 0);
	vb_port_info_decode(&i, t.reply.data);
	return i;
}

static unsigned set_port(unsigned hops, const uint8_t *path, uint32_t num, const struct vb_port_info *i)
{
	struct vb_smp s = directed(VB_MAD_SET, VB_SMP_PORT_INFO, num, hops, path);

	vb_port_info_encode(s.data, i);
	CHECK(ask(&s));
	return status();
}

static unsigned set_state(unsigned hops, const uint8_t *path, uint32_t num, uint8_t state)
{
	struct vb_port_info i = get_port(hops, path, num);

	i.state = state;
	i.phys = 0;
	return set_port(hops, path, num, &i);
}

static void a_port_becomes_active_by_way_of_armed_alone(void)
{
	begin();
	SAME(get_port(1, to_switch, 3).state, VB_PORT_INIT);
	SAME(set_state(1, to_switch, 3, VB_PORT_ACTIVE), VB_MAD_BAD_VALUE);
	SAME(set_state(1, to_switch, 3, VB_PORT_INIT), VB_MAD_BAD_VALUE);
	SAME(set_state(1, to_switch, 4, VB_PORT_ARMED), VB_MAD_BAD_VALUE); /* no cable */
	SAME(set_state(1, to_switch, 3, VB_PORT_ARMED), 0);
	SAME(set_state(1, to_switch, 3, VB_PORT_ACTIVE), 0);
	SAME(get_port(1, to_switch, 3).state, VB_PORT_ACTIVE);
	SAME(get_port(2, to_next, 3).state, VB_PORT_INIT); /* the other end is another matter */
	SAME(set_state(1, to_switch, 3, VB_PORT_DOWN), 0);
	SAME(get_port(1, to_switch, 3).state, VB_PORT_INIT); /* it has trained again */
	end();
}

static void a_disabled_port_stays_down_until_it_polls(void)
{
	begin();
	struct vb_port_info i = get_port(1, to_switch, 3);
	i.state = VB_PORT_DOWN;
	i.phys = VB_PHYS_DISABLED;
	SAME(set_port(1, to_switch, 3, &i), 0);
	SAME(get_port(1, to_switch, 3).phys, VB_PHYS_DISABLED);
	SAME(t.sw[1]->port[3].info.state, VB_PORT_DOWN);
	vb_fabric_cut(&t.sw[0]->port[3], false);
	SAME(get_port(1, to_switch, 3).state, VB_PORT_DOWN);
	i.state = 0;
	i.phys = VB_PHYS_POLLING;
	SAME(set_port(1, to_switch, 3, &i), 0);
	SAME(get_port(1, to_switch, 3).state, VB_PORT_INIT);
	SAME(t.sw[1]->port[3].info.state, VB_PORT_INIT);
	end();
}

static void an_mkey_keeps_strangers_out(void)
{
	begin();
	struct vb_port_info i = get_port(1, to_switch, 0);
	i.mkey = 0x1234;
	i.mkey_protect = 1;
	i.mkey_lease = 10;
	SAME(set_port(1, to_switch, 0, &i), 0);
	SAME(get_port(1, to_switch, 0).mkey, 0); /* protection 1: it is read, without the key */
	struct vb_smp s = directed(VB_MAD_SET, VB_SMP_PORT_INFO, 0, 1, to_switch);
	i.mkey_protect = 2;
	vb_port_info_encode(s.data, &i);
	CHECK(!ask(&s));
	SAME(t.f->drops.bad_mkey, 1);
	s.mkey = 0x1234;
	CHECK(ask(&s) && !status());
	s = directed(VB_MAD_GET, VB_SMP_PORT_INFO, 0, 1, to_switch);
	CHECK(!ask(&s)); /* protection 2 */
	vb_fabric_time(t.f, 11000000000ull);
	SAME(get_port(1, to_switch, 0).mkey, 0x1234); /* the lease is over: protection 0 */
	end();
}

static void give_lid(struct vb_fabric_port *p, int lid)
{
	p->info.lid = (uint16_t)lid;
	p->info.sm_lid = 1;
}

/* As a subnet manager does: LIDs 1 to 4 for hosts, 5 and 6 for switches; all Active. */
static void bring_up(void)
{
	for (int i = 0; i < 4; i++)
		give_lid(&t.host[i]->port[1], 1 + i);
	for (int i = 0; i < 2; i++)
		give_lid(&t.sw[i]->port[0], 5 + i);
	for (int i = 0; i < 2; i++) {
		static const uint8_t tables[2][64] = {{255, 1, 2, 3, 3, 0, 3}, {255, 3, 3, 1, 2, 3, 0}};
		struct vb_smp s = directed(VB_MAD_SET, VB_SMP_LFT, 0, i + 1, to_next);

		memcpy(s.data, tables[i], 64);
		memset(s.data + 7, 255, 57);
		CHECK(ask(&s) && !status());
		t.sw[i]->sw->info.lft_top = 63;
		for (int k = 1; k <= 4; k++)
			if (t.sw[i]->port[k].peer)
				t.sw[i]->port[k].info.state = t.sw[i]->port[k].peer->info.state = VB_PORT_ACTIVE;
	}
}

static struct vb_fabric_packet gmp(uint16_t dlid)
{
	struct vb_fabric_packet p = {.slid = 1,
	                             .dlid = dlid,
	                             .pkey = 0xffff,
	                             .src_qpn = 1,
	                             .dst_qpn = 1,
	                             .qkey = VB_GSI_QKEY,
	                             .mad = {1, 0x07, 2, VB_MAD_METHOD_SEND}};
	return p;
}

/* How often it arrives; traps that it caused do not count. */
static unsigned arrives(const struct vb_fabric_packet *p)
{
	unsigned n = 0;

	t.count = 0;
	vb_fabric_send(&t.host[0]->port[1], p);
	for (unsigned i = 0; i < t.count; i++)
		n += t.got[i].mad[3] != VB_MAD_TRAP;
	return n;
}

static void a_datagram_goes_where_the_tables_say_and_nowhere_else(void)
{
	struct vb_fabric_packet p = gmp(4);

	begin();
	SAME(arrives(&p), 0); /* no LIDs, no tables, no Active link */
	bring_up();
	SAME(arrives(&p), 1);
	CHECK(t.at[0] == &t.host[3]->port[1]);
	SAME(t.host[3]->port[1].counters.rcv_pkts, 1);
	p.dlid = 1;
	SAME(arrives(&p), 1); /* to itself */
	p.dlid = 9;
	SAME(arrives(&p), 0);
	SAME(t.f->drops.no_route, 1);
	p.dlid = 4;
	t.sw[1]->port[2].info.state = VB_PORT_INIT;
	SAME(arrives(&p), 0);
	t.sw[1]->port[2].info.state = VB_PORT_ACTIVE;
	t.sw[1]->sw->lft[4] = 3; /* back to where it came from: a loop */
	SAME(arrives(&p), 0);
	SAME(t.f->drops.hop_limit, 1);
	end();
}

static void partitions_are_enforced_by_switches_and_by_hosts(void)
{
	struct vb_fabric_packet p = gmp(4);
	struct vb_smp s;

	begin();
	bring_up();
	p.pkey = 0x8001;
	SAME(arrives(&p), 0);
	SAME(t.host[3]->port[1].info.pkey_violations, 1);
	s = directed(VB_MAD_SET, VB_SMP_PKEY_TABLE, 0, 3, (const uint8_t[]){1, 3, 2});
	memset(s.data, 0, 64);
	s.data[1] = 1; /* limited member of partition 1 */
	CHECK(ask(&s) && !status());
	SAME(arrives(&p), 1);
	p.pkey = 0x0001;
	SAME(arrives(&p), 0); /* two limited members */
	p.pkey = 0x8001;
	t.sw[0]->port[3].info.enforce = VB_ENFORCE_OUT;
	SAME(arrives(&p), 0);
	SAME(t.sw[0]->port[3].counters.xmit_constraint, 1);
	p = gmp(2);
	p.qkey = 5;
	SAME(arrives(&p), 0);
	SAME(t.host[1]->port[1].info.qkey_violations, 1);
	end();
}

static unsigned traps(unsigned number)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t.count; i++) {
		struct vb_smp s;
		struct vb_notice notice;

		vb_smp_decode(&s, t.got[i].mad);
		vb_notice_decode(&notice, s.data);
		if (s.mad.method != VB_MAD_TRAP || notice.trap != number)
			continue;
		CHECK(t.at[i] == &t.host[0]->port[1]);
		n++;
		t.reply = s;
	}
	return n;
}

static void a_trap_is_repeated_until_it_is_repressed(void)
{
	begin();
	bring_up();
	t.sw[1]->sw->info.state_change = 0;
	t.count = 0;
	vb_fabric_cut(&t.host[3]->port[1], true);
	SAME(t.sw[1]->port[2].info.state, VB_PORT_DOWN);
	SAME(t.sw[1]->sw->info.state_change, 1);
	SAME(traps(128), 1);
	vb_fabric_time(t.f, 500000000);
	SAME(traps(128), 1);
	SAME(vb_fabric_deadline(t.f), 1000000000);
	vb_fabric_time(t.f, 1000000000);
	SAME(traps(128), 2);
	struct vb_fabric_packet p = {.slid = 1, .dlid = 6, .pkey = 0xffff};
	t.reply.mad.method = VB_MAD_REPRESS;
	vb_smp_encode(p.mad, &t.reply);
	vb_fabric_send(&t.host[0]->port[1], &p);
	SAME(vb_fabric_deadline(t.f), UINT64_MAX);
	t.count = 0;
	vb_fabric_describe(t.host[2], "a new name");
	SAME(traps(144), 1);
	vb_fabric_trap(&t.sw[0]->port[2], VB_TRAP_LINK_INTEGRITY);
	vb_fabric_trap(&t.sw[0]->port[3], VB_TRAP_LINK_INTEGRITY);
	SAME(traps(129), 2);
	end();
}

static void wrong_keys_cause_traps(void)
{
	struct vb_fabric_packet p = gmp(4), smp = {.slid = VB_LID_DIRECTED, .dlid = VB_LID_DIRECTED, .pkey = 0xffff};
	struct vb_smp s = directed(VB_MAD_GET, VB_SMP_PORT_INFO, 0, 1, to_switch);

	begin();
	bring_up();
	p.pkey = 0x8001;
	SAME(arrives(&p), 0);
	SAME(traps(257), 1);
	t.sw[0]->port[3].info.enforce = VB_ENFORCE_OUT;
	SAME(arrives(&p), 0);
	SAME(traps(259), 1);
	p = gmp(2);
	p.qkey = 5;
	SAME(arrives(&p), 0);
	SAME(traps(258), 1);
	t.sw[0]->port[0].info.mkey = 0x1234;
	t.sw[0]->port[0].info.mkey_protect = 2;
	vb_smp_encode(smp.mad, &s);
	SAME(arrives(&smp), 0);
	SAME(traps(256), 1);
	t.count = 0;
	vb_fabric_trap(&t.sw[1]->port[2], VB_TRAP_BUFFER_OVERRUN);
	SAME(traps(130), 1);
	end();
}

static void vendors_classes_get_no_answer_and_others_a_refusal(void)
{
	struct vb_fabric_packet p = gmp(4);

	begin();
	bring_up();
	t.host[3]->port[1].host = NULL; /* no programs */
	p.mad[3] = VB_MAD_GET;
	p.mad[1] = 0x0a;
	SAME(arrives(&p), 0);
	p.mad[1] = 0x06;
	SAME(arrives(&p), 1);
	SAME(t.got[0].mad[5], VB_MAD_BAD_ATTR);
	end();
}

static void a_port_keeps_its_led(void)
{
	struct vb_smp s = directed(VB_MAD_SET, VB_SMP_LED_INFO, 0, 2, to_h1);

	begin();
	s.data[0] = 0x80;
	CHECK(ask(&s) && !status());
	s = directed(VB_MAD_GET, VB_SMP_LED_INFO, 0, 2, to_h1);
	CHECK(ask(&s) && !status());
	SAME(t.reply.data[0], 0x80);
	end();
}

static void counters_are_read_and_reset(void)
{
	struct vb_fabric_packet p = gmp(6);
	struct vb_port_counters c;
	struct vb_pma_select s = {.port = 1, .counters = 1};

	begin();
	bring_up();
	t.sw[1]->port[1].counters.symbol_errors = 7;
	p.mad[1] = VB_MAD_CLASS_PM;
	p.mad[2] = 1;
	p.mad[3] = VB_MAD_GET;
	p.mad[17] = VB_PMA_COUNTERS;
	p.mad[VB_PMA_DATA_AT + 1] = 1;
	SAME(arrives(&p), 1);
	SAME(t.got[0].slid, 6);
	vb_pma_counters_decode(&c, t.got[0].mad + VB_PMA_DATA_AT);
	SAME(c.symbol_errors, 7);
	p.mad[3] = VB_MAD_SET;
	vb_pma_counters_encode(p.mad + VB_PMA_DATA_AT, &s, &c);
	SAME(arrives(&p), 1);
	SAME(t.sw[1]->port[1].counters.symbol_errors, 0);
	p.mad[17] = 0x10; /* PortSamplesControl: not there */
	SAME(arrives(&p), 1);
	SAME(t.got[0].mad[5], VB_MAD_BAD_ATTR);
	p.mad[17] = VB_PMA_COUNTERS;
	p.mad[VB_PMA_DATA_AT + 1] = 99;
	SAME(arrives(&p), 1);
	SAME(t.got[0].mad[5], VB_MAD_BAD_VALUE);
	end();
}

static void a_route_is_directed_in_one_part_and_by_lid_in_the_others(void)
{
	struct vb_fabric_packet p = {.slid = 1, .dlid = 5, .pkey = 0xffff};
	struct vb_smp s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, 1, (const uint8_t[]){3});
	struct vb_node_info n;

	begin();
	bring_up();
	s.dr_slid = 1; /* by LID to switch 0, then one hop, then by LID to host 2 */
	s.dr_dlid = 3;
	vb_smp_encode(p.mad, &s);
	SAME(arrives(&p), 1);
	CHECK(t.at[0] == &t.host[0]->port[1]);
	vb_smp_decode(&t.reply, t.got[0].mad);
	vb_node_info_decode(&n, t.reply.data);
	SAME(n.node_guid, t.host[2]->guid);
	s.dr_dlid = VB_LID_DIRECTED;
	vb_smp_encode(p.mad, &s);
	SAME(arrives(&p), 1);
	vb_smp_decode(&t.reply, t.got[0].mad);
	vb_node_info_decode(&n, t.reply.data);
	SAME(n.node_guid, t.sw[1]->guid);
	end();
}

static void a_node_without_power_is_silent_and_forgets(void)
{
	begin();
	bring_up();
	vb_fabric_switch_off(t.sw[1], true);
	struct vb_smp s = directed(VB_MAD_GET, VB_SMP_NODE_INFO, 0, 2, to_next);
	CHECK(!ask(&s));
	SAME(t.host[2]->port[1].info.state, VB_PORT_DOWN);
	vb_fabric_switch_off(t.sw[1], false);
	CHECK(ask(&s));
	SAME(t.sw[1]->port[0].info.lid, 0);
	SAME(t.sw[1]->sw->lft_len, 0);
	SAME(t.host[2]->port[1].info.state, VB_PORT_INIT);
	end();
}

static void a_node_takes_less_than_64_kib(void)
{
	CHECK(sizeof(struct vb_fabric_node) + 37 * sizeof(struct vb_fabric_port) + sizeof(struct vb_fabric_switch) <
	      32768);
}

int main(void)
{
	RUN(a_directed_packet_arrives_and_brings_its_way_back);
	RUN(a_directed_packet_with_an_impossible_way_is_dropped);
	RUN(wrong_requests_get_the_status_of_the_specification);
	RUN(a_port_becomes_active_by_way_of_armed_alone);
	RUN(a_disabled_port_stays_down_until_it_polls);
	RUN(an_mkey_keeps_strangers_out);
	RUN(a_datagram_goes_where_the_tables_say_and_nowhere_else);
	RUN(partitions_are_enforced_by_switches_and_by_hosts);
	RUN(a_trap_is_repeated_until_it_is_repressed);
	RUN(wrong_keys_cause_traps);
	RUN(vendors_classes_get_no_answer_and_others_a_refusal);
	RUN(a_port_keeps_its_led);
	RUN(counters_are_read_and_reset);
	RUN(a_route_is_directed_in_one_part_and_by_lid_in_the_others);
	RUN(a_node_without_power_is_silent_and_forgets);
	RUN(a_node_takes_less_than_64_kib);
	return 0;
}
