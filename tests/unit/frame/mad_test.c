// mad_test.c - subnet and performance management datagrams, and RMPP, bit by bit
// follows: IBA volume 1, 13.6.2 (RMPP), 14.2.1 (SMP), 14.2.5 (attributes), 16.1.3.5 (PortCounters)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/pma.h"
#include "frame/rmpp.h"
#include "frame/sa.h"
#include "frame/smp.h"

/* What follows is written as the specification's tables place the fields, not as our encoder does. */
static const uint8_t port_info_bytes[VB_SMP_DATA] = {
        1,    2,    3,    4,    5,    6,    7,    8,    /* M_Key */
        0xfe, 0x80, 0,    0,    0,    0,    0,    0,    /* GID prefix */
        0x01, 0x02, 0x03, 0x04,                         /* LID, master SM LID */
        0x02, 0x51, 0x48, 0x68,                         /* capability mask */
        0x11, 0x12, 0x13, 0x14,                         /* diag code, lease */
        5,    3,    2,    1,                            /* local port; widths */
        0x72, 0x52, 0xc5, 0x47,                         /* speeds, states, protection and LMC */
        0x4a, 0x4b, 9,    8,    7,    0xe4, 0xb2, 0x4c, /* MTU to operational VLs */
        0,    1,    0,    2,    0,    3,                /* violations */
        32,   0x92, 0x0f, 0x76, 0x0a, 0x0b, 0,    0x01, 0x02, 0x03, 0x04, 0x05, 0x21, 7, /* GUID cap and the rest */
};

static void port_info_has_its_fields_where_the_specification_puts_them(void)
{
	struct vb_port_info p;
	uint8_t again[VB_SMP_DATA];

	vb_port_info_decode(&p, port_info_bytes);
	SAME(p.mkey, 0x0102030405060708);
	SAME(p.lid, 0x102);
	SAME(p.sm_lid, 0x304);
	SAME(p.cap_mask, 0x02514868);
	SAME(p.mkey_lease, 0x1314);
	SAME(p.local_port, 5);
	SAME(p.width_enabled, 3);
	SAME(p.width_active, 1);
	SAME(p.speed_supported, 7);
	SAME(p.state, VB_PORT_INIT);
	SAME(p.phys, VB_PHYS_UP);
	SAME(p.down_default, 2);
	SAME(p.mkey_protect, 3);
	SAME(p.lmc, 5);
	SAME(p.speed_active, 4);
	SAME(p.speed_enabled, 7);
	SAME(p.neighbor_mtu, 4);
	SAME(p.sm_sl, 10);
	SAME(p.vl_cap, 4);
	SAME(p.mtu_cap, 4);
	SAME(p.vl_stall, 5);
	SAME(p.hoq_life, 18);
	SAME(p.oper_vls, 4);
	SAME(p.enforce, VB_ENFORCE_IN | VB_ENFORCE_OUT);
	SAME(p.qkey_violations, 3);
	SAME(p.reregister, 1);
	SAME(p.mcast_pkey_trap, 0);
	SAME(p.subnet_timeout, 18);
	SAME(p.resp_time, 15);
	SAME(p.round_trip, 0x010203);
	SAME(p.cap_mask2, 0x0405);
	SAME(p.ext_active, 2);
	SAME(p.ext_enabled, 7);
	vb_port_info_encode(again, &p);
	CHECK(!memcmp(again, port_info_bytes, sizeof(again)));
}

static void node_and_switch_info_survive_the_wire(void)
{
	static const struct vb_node_info node = {1,      1,  VB_NODE_SWITCH, 36,   0x1111, 0x2222,
	                                         0x3333, 64, 0x5a06,         0xa1, 0x8f1,  7};
	static const struct vb_switch_info sw = {.lft_cap = 0xc000,
	                                         .mft_cap = 1024,
	                                         .lft_top = 77,
	                                         .default_port = 255,
	                                         .life_time = 18,
	                                         .state_change = 1,
	                                         .sl2vl_optimized = 2,
	                                         .lids_per_port = 1,
	                                         .enforce_cap = 32,
	                                         .caps = 0x1d,
	                                         .mft_top = 0xc00f};
	uint8_t data[VB_SMP_DATA];
	struct vb_node_info n;
	struct vb_switch_info s;

	vb_node_info_encode(data, &node);
	SAME(data[3], 36);
	SAME(data[28] << 8 | data[29], 64);
	SAME(data[36], 7);
	SAME(data[38] << 8 | data[39], 0x8f1);
	vb_node_info_decode(&n, data);
	CHECK(n.node_guid == 0x2222 && n.port_guid == 0x3333 && n.vendor_id == 0x8f1 && n.device_id == 0x5a06);
	vb_switch_info_encode(data, &sw);
	SAME(data[11], 18 << 3 | 1 << 2 | 2);
	SAME(data[16], 0x1d << 3);
	vb_switch_info_decode(&s, data);
	CHECK(s.lft_top == 77 && s.state_change == 1 && s.caps == 0x1d && s.mft_top == 0xc00f && s.life_time == 18);
}

static void a_directed_packet_keeps_both_paths(void)
{
	uint8_t mad[VB_MAD_LEN] = {1, VB_MAD_CLASS_SM_DR, 1, VB_MAD_GET, 0x80, 0, 3, 5};
	uint8_t again[VB_MAD_LEN];
	struct vb_smp s;

	mad[24] = 9; /* M_Key */
	mad[32] = mad[33] = mad[34] = mad[35] = 0xff;
	mad[64] = 1;
	mad[129] = 2;
	mad[193] = 3;
	vb_smp_decode(&s, mad);
	SAME(s.mad.status, VB_SMP_RETURNING);
	SAME(vb_smp_hop(&s), 3);
	SAME(vb_smp_hops(&s), 5);
	SAME(s.mkey, 9ull << 56);
	SAME(s.dr_dlid, VB_LID_DIRECTED);
	SAME(s.data[0], 1);
	SAME(s.initial[1], 2);
	SAME(s.back[1], 3);
	vb_smp_set_hop(&s, 4);
	mad[6] = 4;
	vb_smp_encode(again, &s);
	CHECK(!memcmp(mad, again, sizeof(mad)));
}

/* Byte by byte as 15.2.5.16 has it. */
static void a_query_for_a_path_and_its_answer(void)
{
	struct vb_sa_path want = {.service_id = 0x0102030405060708, .pkey = 0x8001, .reversible = true, .numb_path = 1},
	                  path;
	uint8_t mad[VB_MAD_LEN];
	uint16_t status = 1;
	uint64_t tid = 0;

	want.dgid[0] = 0xfe;
	want.sgid[15] = 9;
	vb_sa_path_query(mad, 77, VB_SA_PATH_DGID | VB_SA_PATH_PKEY, &want);
	CHECK(mad[1] == 0x03 && mad[2] == 2 && mad[3] == VB_MAD_GET && mad[15] == 77 && mad[17] == 0x35);
	CHECK(mad[54] == 0x20 && mad[55] == 0x04); /* the component mask */
	CHECK(mad[56] == 1 && mad[63] == 8 && mad[64] == 0xfe && mad[95] == 9);
	CHECK(mad[105] == 0x81 && mad[106] == 0x80 && mad[107] == 0x01);
	CHECK(!vb_sa_path_answer(mad, sizeof(mad), &tid, &status, &path)); /* it is a question */
	mad[3] = VB_MAD_GET_RESP;
	memcpy(mad + 96, (const uint8_t[]){0x12, 0x34, 0x00, 0x07, 0x00, 0x00, 0x05, 0x40, 0x20}, 9);
	memcpy(mad + 108, (const uint8_t[]){0x00, 0x3a, 0x84, 0x87, 0x92}, 5);
	CHECK(vb_sa_path_answer(mad, sizeof(mad), &tid, &status, &path));
	CHECK(tid == 77 && !status && path.dlid == 0x1234 && path.slid == 7 && path.flow_label == 5);
	CHECK(path.hop_limit == 0x40 && path.traffic_class == 0x20 && path.qos_class == 3 && path.sl == 10);
	CHECK(path.mtu == 4 && path.rate == 7 && path.lifetime == 0x12 && path.reversible && path.numb_path == 1);
	CHECK(!vb_sa_path_answer(mad, 100, &tid, &status, &path));
	mad[17] = 0x38;
	CHECK(!vb_sa_path_answer(mad, sizeof(mad), &tid, &status, &path));
}

/* Byte by byte as 15.2.5.17 has it. */
static void a_query_for_a_membership_and_its_answer(void)
{
	struct vb_sa_member want = {.mgid = {0xff, [15] = 2},
	                            .port_gid = {0xfe, [15] = 3},
	                            .qkey = 0x01234567,
	                            .pkey = 0x8001,
	                            .join_state = VB_SA_SEND_ONLY_FULL_MEMBER},
	                    m;
	uint8_t mad[VB_MAD_LEN];
	uint16_t status = 1;

	vb_sa_member_query(mad, 77, VB_MAD_SET, VB_SA_MEMBER_NAME | VB_SA_MEMBER_NEW, &want);
	CHECK(mad[1] == 0x03 && mad[2] == 2 && mad[3] == 0x02 && mad[15] == 77 && mad[17] == 0x38);
	CHECK(mad[53] == 0x01 && mad[54] == 0x30 && mad[55] == 0xc7); /* the component mask */
	CHECK(mad[56] == 0xff && mad[71] == 2 && mad[72] == 0xfe && mad[87] == 3);
	CHECK(mad[88] == 0x01 && mad[91] == 0x67 && mad[96] == 0x80 && mad[97] == 0x01 && mad[104] == 0x08);
	CHECK(!vb_sa_member_answer(mad, sizeof(mad), &status, &m)); /* it is a question */
	SAME(vb_sa_member_asked(mad, &m), VB_MAD_SET);
	CHECK(m.mgid[15] == 2 && m.join_state == VB_SA_SEND_ONLY_FULL_MEMBER);
	mad[3] = VB_MAD_GET_RESP;
	memcpy(mad + 92,
	       (const uint8_t[]){0xc0, 0x12, 0x84, 0x20, 0x80, 0x01, 0x87, 0x92, 0xa0, 0x00, 0x05, 0x40, 0x21}, 13);
	CHECK(vb_sa_member_answer(mad, sizeof(mad), &status, &m));
	CHECK(!status && m.mlid == 0xc012 && m.mtu == 4 && m.traffic_class == 0x20 && m.pkey == 0x8001 && m.rate == 7);
	CHECK(m.lifetime == 0x12 && m.sl == 10 && m.flow_label == 5 && m.hop_limit == 0x40);
	CHECK(m.scope == 2 && m.join_state == 1);
	SAME(vb_sa_member_asked(mad, &m), 0);
	CHECK(!vb_sa_member_answer(mad, 100, &status, &m));
	mad[17] = 0x35;
	CHECK(!vb_sa_member_answer(mad, sizeof(mad), &status, &m));
}

static void a_notice_has_its_type_and_producer(void)
{
	struct vb_notice n = {.generic = true,
	                      .type = VB_NOTICE_URGENT,
	                      .producer = VB_NODE_SWITCH,
	                      .trap = 128,
	                      .issuer_lid = 7},
	                 m;
	uint8_t data[VB_SMP_DATA];

	n.details[1] = 7;
	vb_notice_encode(data, &n);
	SAME(data[0], 0x81);
	SAME(data[3], VB_NODE_SWITCH);
	SAME(data[5], 128);
	SAME(data[7], 7);
	SAME(data[11], 7);
	vb_notice_decode(&m, data);
	CHECK(m.generic && m.type == VB_NOTICE_URGENT && m.trap == 128 && m.details[1] == 7);
}

static void counters_stop_at_the_largest_value_of_their_field(void)
{
	struct vb_port_counters c = {.symbol_errors = 70000,
	                             .link_downed = 3,
	                             .link_integrity = 99,
	                             .xmit_data = 1ull << 40},
	                        d;
	struct vb_pma_select s = {.port = 1, .counters = 0x1ffff}, t;
	uint8_t data[VB_PMA_DATA];

	vb_pma_counters_encode(data, &s, &c);
	SAME(data[1], 1);
	SAME(data[4] << 8 | data[5], 0xffff);
	SAME(data[7], 3);
	SAME(data[19], 15 << 4);
	vb_pma_select_decode(&t, data, false);
	SAME(t.counters, 0x1ffff);
	vb_pma_counters_decode(&d, data);
	SAME(d.xmit_data, 0xffffffff);
	vb_pma_counters_ext_encode(data, &s, &c);
	SAME(data[10], 1); /* 2^40 in 8 bytes from 8 on */
}

static void an_rmpp_header_survives_the_wire(void)
{
	struct vb_rmpp h = {1, VB_RMPP_DATA, 17, VB_RMPP_ACTIVE | VB_RMPP_FIRST, 0, 1, 220}, g;
	uint8_t mad[VB_MAD_LEN] = {0};

	vb_rmpp_encode(mad, &h);
	SAME(mad[24], 1);
	SAME(mad[26], 17 << 3 | 3);
	SAME(mad[31], 1);
	SAME(mad[35], 220);
	vb_rmpp_decode(&g, mad);
	CHECK(g.type == VB_RMPP_DATA && g.resp_time == 17 && g.flags == 3 && g.segment == 1 && g.length == 220);
	SAME(vb_rmpp_header_len(VB_MAD_CLASS_SA), 56);
	SAME(vb_rmpp_header_len(0x32), 40);
	SAME(vb_rmpp_header_len(VB_MAD_CLASS_PM), 0);
}

int main(void)
{
	RUN(port_info_has_its_fields_where_the_specification_puts_them);
	RUN(node_and_switch_info_survive_the_wire);
	RUN(a_directed_packet_keeps_both_paths);
	RUN(a_query_for_a_path_and_its_answer);
	RUN(a_query_for_a_membership_and_its_answer);
	RUN(a_notice_has_its_type_and_producer);
	RUN(counters_stop_at_the_largest_value_of_their_field);
	RUN(an_rmpp_header_survives_the_wire);
	return 0;
}
