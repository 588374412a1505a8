// device_test.c - an adapter's attributes, computed from given interfaces
// follows: ibv_query_port(3), ibv_query_gid_ex(3), ibv_query_gid_table(3), verbena(7)
// SPDX-License-Identifier: MIT
#include "core/device.h"

#include <errno.h>
#include <net/if_arp.h>
#include <string.h>

#include "../../support/check.h"
#include "node/device_choice.h"
#include "node/host_guid.h"

static struct vb_netdev eth0(void)
{
	struct vb_netdev nd = {.ifindex = 7,
	                       .name = "eth0",
	                       .arphrd = ARPHRD_ETHER,
	                       .has_mac = true,
	                       .mac = {2, 0, 0, 0, 0, 9},
	                       .flags = IFF_UP | IFF_RUNNING,
	                       .mtu = 1500,
	                       .n_addrs = 1};

	memcpy(nd.addrs[0], (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 1}, 16);
	return nd;
}

static void the_mtu_follows_rxes_rule(void)
{
	CHECK(vb_mtu_of_ip_mtu(1500) == IBV_MTU_1024);
	CHECK(vb_mtu_of_ip_mtu(65536) == IBV_MTU_4096);
	CHECK(vb_mtu_of_ip_mtu(4176) == IBV_MTU_4096);
	CHECK(vb_mtu_of_ip_mtu(4175) == IBV_MTU_2048);
	CHECK(vb_mtu_of_ip_mtu(1103) == IBV_MTU_512);
	CHECK(vb_mtu_of_ip_mtu(68) == IBV_MTU_256);
}

static void changes_of_the_interface_are_handed_out_once(void)
{
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 1);

	CHECK(vb_device_take_pending(dev) == 0);
	nd.flags = IFF_UP;
	vb_device_apply(dev, &nd);
	CHECK(vb_device_take_pending(dev) == VB_DEV_PORT_DOWN);
	CHECK(vb_device_take_pending(dev) == 0);
	nd.flags |= IFF_RUNNING;
	nd.mtu = 9000;
	nd.n_addrs = 0;
	vb_device_apply(dev, &nd);
	CHECK(vb_device_take_pending(dev) == (VB_DEV_PORT_UP | VB_DEV_MTU | VB_DEV_GID_CHANGE));
	nd.flags = 0;
	vb_device_apply(dev, &nd);
	nd.flags = IFF_UP | IFF_RUNNING;
	vb_device_apply(dev, &nd);
	CHECK(vb_device_take_pending(dev) == VB_DEV_PORT_UP);
	vb_device_put(dev);
}

static unsigned change_to(struct vb_device *dev, struct vb_netdev *nd, bool up, uint32_t mbps)
{
	nd->flags = up ? IFF_UP | IFF_RUNNING : IFF_UP;
	nd->speed_mbps = mbps;
	vb_device_apply(dev, nd);
	return vb_device_take_pending(dev) & ~(unsigned)(VB_DEV_PORT_UP | VB_DEV_PORT_DOWN);
}

/* A link that is down tells no speed. */
static void another_speed_of_the_link_is_a_change(void)
{
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 1);

	SAME(change_to(dev, &nd, true, 10000), 0); /* it had told none */
	SAME(change_to(dev, &nd, true, 25000), VB_DEV_SPEED);
	SAME(change_to(dev, &nd, true, 25000), 0);
	SAME(change_to(dev, &nd, false, 0), 0);
	SAME(change_to(dev, &nd, true, 25000), 0);
	SAME(change_to(dev, &nd, false, 10000), 0);
	SAME(change_to(dev, &nd, true, 10000), VB_DEV_SPEED);
	vb_device_put(dev);
}

static void a_device_that_is_gone_stays_valid_and_down(void)
{
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 1);
	struct ibv_port_attr port;
	struct ibv_gid_entry e;

	vb_device_apply(dev, NULL);
	CHECK(vb_device_take_pending(dev) == (VB_DEV_GONE | VB_DEV_PORT_DOWN | VB_DEV_GID_CHANGE));
	vb_device_apply(dev, NULL);
	vb_device_apply(dev, &nd);
	CHECK(vb_device_take_pending(dev) == 0);
	CHECK(!vb_query_port_attr(dev, 1, &port) && port.state == IBV_PORT_DOWN && port.phys_state == 3);
	CHECK(vb_query_gid_entry(dev, 1, 1, &e) == ENODATA);
	vb_device_put(dev);
}

static void queries_out_of_range_fail_as_documented(void)
{
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 1);
	struct ibv_port_attr port;
	struct ibv_gid_entry e[4];
	union ibv_gid gid;
	__be16 pkey;

	CHECK(vb_query_port_attr(dev, 0, &port) == EINVAL && vb_query_port_attr(dev, 2, &port) == EINVAL);
	CHECK(vb_query_gid_at(dev, 1, VB_GID_TBL_LEN, &gid) == EINVAL && vb_query_gid_at(dev, 1, -1, &gid) == EINVAL);
	CHECK(!vb_query_gid_at(dev, 1, VB_GID_TBL_LEN - 1, &gid) && vb_gid_is_zero(&gid));
	CHECK(vb_query_gid_entry(dev, 1, 2, e) == ENODATA && vb_query_gid_entry(dev, 1, VB_GID_TBL_LEN, e) == EINVAL);
	CHECK(vb_query_gid_entry(dev, 2, 0, e) == EINVAL);
	CHECK(vb_query_gid_list(dev, e, 1) == -EINVAL && vb_query_gid_list(dev, e, 2) == 2);
	CHECK(e[1].gid_index == 1 && e[1].port_num == 1 && e[1].gid_type == IBV_GID_TYPE_ROCE_V2 &&
	      e[1].ndev_ifindex == 7);
	CHECK(!vb_query_pkey_at(dev, 1, 0, &pkey) && pkey == 0xffff && vb_query_pkey_at(dev, 1, 1, &pkey) == EINVAL);
	CHECK(vb_query_gid_index(dev, 1, &e[1].gid) == 1);
	vb_device_put(dev);
}

static void attributes_are_the_kernels_text(void)
{
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 0x0100000000000002ull);
	char path[128], text[128];
	static const char *const expected[][2] = {
	        {"node_type", "1: CA"},
	        {"node_guid", "0200:0000:0000:0001"},
	        {"ports/1/state", "4: ACTIVE"},
	        {"ports/1/phys_state", "5: LinkUp"},
	        {"ports/1/rate", "100 Gb/sec (4X EDR)"},
	        {"ports/1/link_layer", "Ethernet"},
	        {"ports/1/pkeys/0", "0xffff"},
	        {"ports/1/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0009"},
	        {"ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001"},
	        {"ports/1/gids/127", "0000:0000:0000:0000:0000:0000:0000:0000"},
	        {"ports/1/gid_attrs/types/1", "RoCE v2"},
	        {"ports/1/gid_attrs/ndevs/1", "eth0"},
	        {"ports/1/counters/port_xmit_data", "0"},
	};

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		CHECK(vb_device_attr_text(dev, expected[i][0], text, sizeof(text)) == (int)strlen(expected[i][1]));
		CHECK(!strcmp(text, expected[i][1]));
	}
	CHECK(vb_device_attr_text(dev, "ports/1/gid_attrs/types/2", text, sizeof(text)) == -1 && errno == EINVAL);
	static const char *const none[] = {"",
	                                   "nope",
	                                   "ports/2/state",
	                                   "ports/1/gids/128",
	                                   "ports/1/gids/01",
	                                   "ports/1/gids/",
	                                   "ports/1/gids/1x",
	                                   "ports/1/gids/-1",
	                                   "ports/1/counters/",
	                                   "ports/1/pkeys/1"};
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		CHECK(vb_device_attr_text(dev, none[i], text, sizeof(text)) == -1 && errno == ENOENT);
	CHECK(vb_device_attr_text(dev, "fw_ver", text, 2) > 1 && !text[1]);
	for (unsigned i = 0; vb_device_attr_path(i, path, sizeof(path)); i++)
		CHECK(vb_device_attr_text(dev, path, text, sizeof(text)) >= 0 || errno == EINVAL);
	vb_device_put(dev);
}

static void the_speed_gives_width_and_rate(void)
{
	static const struct {
		uint32_t mbps;
		const char *rate;
	} row[] = {{100, "2.5 Gb/sec (1X)"},        {1000, "2.5 Gb/sec (1X)"},       {10000, "10 Gb/sec (1X FDR10)"},
	           {25000, "25 Gb/sec (1X EDR)"},   {40000, "40 Gb/sec (4X FDR10)"}, {100000, "100 Gb/sec (4X EDR)"},
	           {200000, "200 Gb/sec (4X HDR)"}, {400000, "400 Gb/sec (4X NDR)"}, {800000, "800 Gb/sec (8X NDR)"}};
	char text[64];

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct vb_netdev nd = eth0();

		nd.speed_mbps = row[i].mbps;
		struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 1);
		vb_device_attr_text(dev, "ports/1/rate", text, sizeof(text));
		CHECK(!strcmp(text, row[i].rate));
		vb_device_put(dev);
	}
}

static void limits_are_announced(void)
{
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 1);
	struct ibv_device_attr_ex a;

	CHECK(!vb_query_device_attr(dev, &a));
	CHECK(a.orig_attr.max_qp == VB_MAX_QP && a.orig_attr.max_sge == VB_MAX_SGE && a.orig_attr.vendor_id != 0x02c9);
	CHECK((a.orig_attr.device_cap_flags &
	       (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) ==
	      (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	CHECK(a.orig_attr.max_mw == VB_MAX_MW && a.hca_core_clock == 1000000 && a.max_dm_size == VB_MAX_DM_SIZE);
	CHECK(a.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(a.odp_caps.per_transport_caps.rc_odp_caps == 0xff && a.odp_caps.per_transport_caps.uc_odp_caps == 0x27);
	CHECK(a.odp_caps.per_transport_caps.ud_odp_caps == 0x23);
	CHECK(a.orig_attr.phys_port_cnt == 1 && a.phys_port_cnt_ex == 1);
	vb_device_put(dev);
}

static bool roce(const char *spec, const char *ifname)
{
	return vb_device_chosen(spec, VB_DEVICE_ROCE, ifname);
}

static bool iwarp(const char *spec, const char *ifname)
{
	return vb_device_chosen(spec, VB_DEVICE_IWARP, ifname);
}

static void verbena_devices_chooses(void)
{
	CHECK(roce(NULL, "eth0") && roce("", "eth0"));
	CHECK(roce("eth0", "eth0") && !roce("eth0", "eth00"));
	CHECK(roce("lo, roce:eth0", "eth0") && roce("roce:*", "x") && roce("eth*", "eth7"));
	CHECK(!roce("iwarp:eth0", "eth0") && roce("iwarp:eth0,eth0", "eth0"));
	CHECK(!roce(",,", "eth0") && !roce("roce:lo", "eth0"));
	CHECK(!iwarp(NULL, "eth0") && !iwarp("", "eth0") && !iwarp("eth0,roce:eth0,*", "eth0"));
	CHECK(iwarp("roce:lo, iwarp:eth?", "eth0") && iwarp("iwarp:*", "x") && !iwarp("iwarp:lo", "eth0"));
}

static void names_are_fit_for_a_device(void)
{
	char name[IBV_SYSFS_NAME_MAX];

	vb_device_name(name, sizeof(name), VB_DEVICE_ROCE, "eth0.100");
	CHECK(!strcmp(name, "roce_eth0.100"));
	vb_device_name(name, sizeof(name), VB_DEVICE_IWARP, "a@b:c\xc3");
	CHECK(!strcmp(name, "iwarp_a_b_c_"));
}

static void an_iwarp_adapter_is_what_siw_shows(void)
{
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new_iwarp(&nd, "iwarp_eth0", 0x0100000000000002ull);
	static const char *const expected[][2] = {
	        {"node_type", "4: RNIC"},
	        {"ports/1/link_layer", "Ethernet"},
	        {"ports/1/gids/0", "0200:0000:0009:0000:0000:0000:0000:0000"},
	        {"ports/1/gid_attrs/types/0", "IB/RoCE v1"},
	        {"ports/1/gid_attrs/ndevs/0", "eth0"},
	};
	struct ibv_device_attr_ex a;
	struct ibv_port_attr port;
	struct ibv_gid_entry e[2];
	union ibv_gid gid;
	char text[128];
	__be16 pkey;

	CHECK(dev->dev.node_type == IBV_NODE_RNIC && dev->dev.transport_type == IBV_TRANSPORT_IWARP);
	CHECK(!vb_query_port_attr(dev, 1, &port) && port.gid_tbl_len == 1 && port.pkey_tbl_len == 0 && port.flags == 0);
	CHECK(port.active_mtu == IBV_MTU_1024 && port.link_layer == IBV_LINK_LAYER_ETHERNET &&
	      port.state == IBV_PORT_ACTIVE);
	CHECK(vb_query_gid_list(dev, e, 2) == 1 && e[0].gid_type == IBV_GID_TYPE_IB && e[0].ndev_ifindex == 7);
	CHECK(vb_query_gid_at(dev, 1, 1, &gid) == EINVAL && vb_query_pkey_at(dev, 1, 0, &pkey) == EINVAL);
	CHECK(!vb_query_device_attr(dev, &a) && a.orig_attr.max_ah == 0 && a.orig_attr.atomic_cap == IBV_ATOMIC_HCA);
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		CHECK(vb_device_attr_text(dev, expected[i][0], text, sizeof(text)) > 0);
		CHECK(!strcmp(text, expected[i][1]));
	}
	CHECK(vb_device_attr_text(dev, "ports/1/gids/1", text, sizeof(text)) == -1 && errno == ENOENT);
	CHECK(vb_device_attr_text(dev, "ports/1/pkeys/0", text, sizeof(text)) == -1 && errno == ENOENT);
	memset(nd.mac, 0, sizeof(nd.mac));
	vb_device_apply(dev, &nd);
	CHECK(!vb_query_gid_at(dev, 1, 0, &gid) && !vb_gid_is_zero(&gid));
	vb_device_put(dev);
}

static void with_lids_the_host_part_of_the_address_is_one(void)
{
	static const struct {
		uint8_t addr[4], prefix;
		uint16_t lid;
	} row[] = {{{10, 0, 0, 1}, 24, 1},    {{127, 0, 0, 1}, 8, 1},  {{10, 1, 0xbf, 0xff}, 16, 0xbfff},
	           {{10, 1, 0xc0, 0}, 16, 0}, {{10, 3, 2, 1}, 8, 0},   {{10, 3, 2, 1}, 32, 0},
	           {{10, 0, 0, 7}, 30, 3},    {{0, 0, 2, 1}, 0, 0x201}};
	struct vb_netdev nd = eth0();
	struct vb_device *dev = vb_device_new(&nd, "roce_eth0", 1);
	struct ibv_port_attr port;
	char text[64];

	nd.v4_prefix = 24;
	vb_device_apply(dev, &nd);
	CHECK(!vb_query_port_attr(dev, 1, &port) && port.lid == 0 && port.flags == IBV_QPF_GRH_REQUIRED);
	dev->lids = true;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		char expected[16];

		memcpy(nd.addrs[0] + 12, row[i].addr, 4);
		nd.v4_prefix = row[i].prefix;
		vb_device_apply(dev, &nd);
		CHECK(!vb_query_port_attr(dev, 1, &port) && port.lid == row[i].lid && port.sm_lid == 0);
		CHECK(port.flags == (row[i].lid ? 0 : IBV_QPF_GRH_REQUIRED));
		snprintf(expected, sizeof(expected), "0x%x", row[i].lid);
		CHECK(vb_device_attr_text(dev, "ports/1/lid", text, sizeof(text)) > 0 && !strcmp(text, expected));
		CHECK(vb_device_attr_text(dev, "ports/1/sm_lid", text, sizeof(text)) > 0 && !strcmp(text, "0x0"));
	}
	nd.addrs[0][0] = 0xfd; /* no IPv4 address */
	vb_device_apply(dev, &nd);
	CHECK(!vb_query_port_attr(dev, 1, &port) && port.lid == 0);
	vb_device_put(dev);
}

static void a_guid_without_mac_is_stable_and_local(void)
{
	CHECK(vb_host_guid("lo") == vb_host_guid("lo") && vb_host_guid("lo") != vb_host_guid("lo1"));
	CHECK((vb_host_guid("lo") >> 56 & 3) == 2);
}

int main(void)
{
	RUN(the_mtu_follows_rxes_rule);
	RUN(changes_of_the_interface_are_handed_out_once);
	RUN(another_speed_of_the_link_is_a_change);
	RUN(a_device_that_is_gone_stays_valid_and_down);
	RUN(queries_out_of_range_fail_as_documented);
	RUN(attributes_are_the_kernels_text);
	RUN(the_speed_gives_width_and_rate);
	RUN(limits_are_announced);
	RUN(verbena_devices_chooses);
	RUN(names_are_fit_for_a_device);
	RUN(an_iwarp_adapter_is_what_siw_shows);
	RUN(with_lids_the_host_part_of_the_address_is_one);
	RUN(a_guid_without_mac_is_stable_and_local);
	return 0;
}
