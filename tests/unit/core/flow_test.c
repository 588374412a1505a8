// flow_test.c - flow steering: rules and the frames that they match, their order, their errors
// follows: ibv_create_flow(3); IEEE 802.3, 802.1Q; RFC 791, RFC 8200
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <arpa/inet.h>
#include <string.h>

#include "core/flow.h"
#include "core/verbs.h"

static const uint8_t mac_a[6] = {0x02, 1, 2, 3, 4, 5}, mac_b[6] = {0x02, 6, 7, 8, 9, 10},
                     whole[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

/* --- frames --- */

static uint32_t put_eth(uint8_t *f, uint16_t type, int tag)
{
	uint32_t at = 12;

	memcpy(f, mac_a, 6);
	memcpy(f + 6, mac_b, 6);
	if (tag >= 0) {
		memcpy(f + at, (uint8_t[]){0x81, 0, (uint8_t)(tag >> 8), (uint8_t)tag}, 4);
		at += 4;
	}
	f[at] = (uint8_t)(type >> 8);
	f[at + 1] = (uint8_t)type;
	return at + 2;
}

static uint32_t put_ports(uint8_t *f, uint32_t at)
{
	memcpy(f + at, (uint8_t[]){0x12, 0x34, 0x56, 0x78}, 4); /* source, destination */
	return at + 8;
}

/* From 10.0.0.1 to 10.0.0.2, ports 0x1234 and 0x5678. */
static uint32_t ipv4_frame(uint8_t f[128], uint8_t protocol, int tag)
{
	uint32_t at = put_eth(f, 0x0800, tag);

	memcpy(f + at, (uint8_t[]){0x45, 0x10, 0, 28, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}, 20);
	return put_ports(f, at + 20);
}

static uint32_t ipv6_frame(uint8_t f[128], uint8_t protocol)
{
	uint32_t at = put_eth(f, 0x86dd, -1);

	memset(f + at, 0, 40);
	memcpy(f + at, (uint8_t[]){0x6a, 0xb1, 0x23, 0x45, 0, 8, protocol, 7}, 8);
	f[at + 23] = 1;
	f[at + 39] = 2;
	return put_ports(f, at + 40);
}

/* --- rules --- */

struct rule {
	struct ibv_flow_attr attr;
	union {
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4_ext ipv4;
		struct ibv_flow_spec_ipv6 ipv6;
		struct ibv_flow_spec_tcp_udp ports;
		struct ibv_flow_spec_action_drop drop;
		struct ibv_flow_spec_esp esp;
		struct ibv_flow_spec_gre gre;
		struct ibv_flow_spec_tunnel vxlan;
		struct ibv_flow_spec_mpls mpls;
	} spec;
};

static struct rule rule_of(uint32_t type, size_t size)
{
	struct rule r = {.attr = {.size = (uint16_t)(sizeof(r.attr) + size), .num_of_specs = 1, .port = 1}};

	r.spec.eth.type = (enum ibv_flow_spec_type)type;
	r.spec.eth.size = (uint16_t)size;
	return r;
}

static struct rule eth_rule(const uint8_t *dst)
{
	struct rule r = rule_of(IBV_FLOW_SPEC_ETH, sizeof(r.spec.eth));

	memcpy(r.spec.eth.val.dst_mac, dst, 6);
	memcpy(r.spec.eth.mask.dst_mac, whole, 6);
	return r;
}

static bool takes(const struct rule *r, const uint8_t *frame, uint32_t len)
{
	union vb_frame_fields fields;
	struct vb_flow_match m;

	CHECK(!vb_flow_parse(&r->attr, &m));
	uint16_t layers = vb_frame_dissect(frame, len, &fields);

	if (!vb_flow_matches(&m.outer, &fields, layers))
		return false;
	layers = m.deep ? vb_frame_dissect_inner(frame, len, &fields) : 0;
	return !m.deep || (layers && vb_flow_matches(&m.inner, &fields, layers));
}

static void addresses_of_stations_are_compared_under_their_mask(void)
{
	uint8_t f[128];
	uint32_t len = ipv4_frame(f, 17, -1);
	struct rule r = eth_rule(mac_a), none = eth_rule(mac_b);

	CHECK(takes(&r, f, len) && !takes(&none, f, len));
	memset(none.spec.eth.mask.dst_mac + 1, 0, 5);
	CHECK(takes(&none, f, len)); /* the first byte alone */
	r.spec.eth.val.ether_type = htons(0x0806);
	r.spec.eth.mask.ether_type = 0xffff;
	CHECK(!takes(&r, f, len));
	r.spec.eth.val.ether_type = htons(0x0800);
	CHECK(takes(&r, f, len));
	CHECK(!takes(&r, f, 13)); /* not even an Ethernet header */
}

static void a_tag_is_asked_for_only_where_there_is_one(void)
{
	uint8_t f[128];
	struct rule r = eth_rule(mac_a);

	r.spec.eth.mask.vlan_tag = htons(0xfff);
	CHECK(!takes(&r, f, ipv4_frame(f, 17, -1)));
	CHECK(takes(&r, f, ipv4_frame(f, 17, 0x6000)));
	r.spec.eth.val.vlan_tag = htons(5);
	CHECK(!takes(&r, f, ipv4_frame(f, 17, 6)));
	CHECK(takes(&r, f, ipv4_frame(f, 17, 0x6005)));
	/* ether_type is the one behind the tag */
	r.spec.eth.val.ether_type = htons(0x0800);
	r.spec.eth.mask.ether_type = 0xffff;
	CHECK(takes(&r, f, ipv4_frame(f, 17, 5)));
}

static void fields_of_ipv4_are_found(void)
{
	uint8_t f[128];
	uint32_t len = ipv4_frame(f, 17, 9);
	struct rule r = rule_of(IBV_FLOW_SPEC_IPV4_EXT, sizeof(r.spec.ipv4));

	memset(&r.spec.ipv4.mask, 0xff, sizeof(r.spec.ipv4.mask));
	r.spec.ipv4.val = (struct ibv_flow_ipv4_ext_filter){.src_ip = htonl(0x0a000001),
	                                                    .dst_ip = htonl(0x0a000002),
	                                                    .proto = 17,
	                                                    .tos = 0x10,
	                                                    .ttl = 64,
	                                                    .flags = 2};
	CHECK(takes(&r, f, len));
	for (size_t i = 0; i < 12; i++) { /* every field counts */
		((uint8_t *)&r.spec.ipv4.val)[i] ^= 1;
		CHECK(!takes(&r, f, len));
		((uint8_t *)&r.spec.ipv4.val)[i] ^= 1;
	}
	CHECK(!takes(&r, f, 14 + 4 + 19)); /* cut off */
	CHECK(!takes(&r, f, ipv6_frame(f, 17)));
}

static void fields_of_ipv6_are_found(void)
{
	uint8_t f[128];
	uint32_t len = ipv6_frame(f, 6);
	struct rule r = rule_of(IBV_FLOW_SPEC_IPV6, sizeof(r.spec.ipv6));

	memset(&r.spec.ipv6.mask, 0xff, sizeof(r.spec.ipv6.mask));
	r.spec.ipv6.val = (struct ibv_flow_ipv6_filter){.src_ip = {[15] = 1},
	                                                .dst_ip = {[15] = 2},
	                                                .flow_label = htonl(0x12345),
	                                                .next_hdr = 6,
	                                                .traffic_class = 0xab,
	                                                .hop_limit = 7};
	CHECK(takes(&r, f, len));
	for (size_t i = 0; i < 39; i++) {
		((uint8_t *)&r.spec.ipv6.val)[i] ^= 1;
		CHECK(!takes(&r, f, len));
		((uint8_t *)&r.spec.ipv6.val)[i] ^= 1;
	}
}

static void ports_belong_to_their_protocol(void)
{
	uint8_t f[128];
	struct rule udp = rule_of(IBV_FLOW_SPEC_UDP, sizeof(udp.spec.ports));

	udp.spec.ports.val = (struct ibv_flow_tcp_udp_filter){htons(0x5678), htons(0x1234)};
	memset(&udp.spec.ports.mask, 0xff, sizeof(udp.spec.ports.mask));
	struct rule tcp = udp;

	tcp.spec.ports.type = IBV_FLOW_SPEC_TCP;
	CHECK(takes(&udp, f, ipv4_frame(f, 17, -1)) && !takes(&tcp, f, ipv4_frame(f, 17, -1)));
	CHECK(takes(&tcp, f, ipv6_frame(f, 6)) && !takes(&udp, f, ipv6_frame(f, 6)));
	uint32_t len = ipv4_frame(f, 17, -1);

	f[14 + 7] = 1; /* a later fragment has no ports */
	CHECK(!takes(&udp, f, len));
	udp.spec.ports.val.dst_port = htons(1);
	CHECK(!takes(&udp, f, ipv4_frame(f, 17, -1)));
}

/* --- tunnels --- */

/* IPv4 with this protocol, whose payload is what bytes has, and behind that an IPv4 packet of TCP, with ports, from
 * 10.0.0.1 to 10.0.0.2. ethernet: it has an Ethernet header. */
static uint32_t tunnel_frame(uint8_t f[256], uint8_t protocol, const uint8_t *bytes, size_t n, bool ethernet)
{
	uint8_t inner[128];
	uint32_t at = ipv4_frame(f, protocol, -1) - 8, len = ipv4_frame(inner, 6, -1), skip = ethernet ? 0 : 14;

	memcpy(f + 14 + 12, (uint8_t[]){192, 0, 2, 1, 192, 0, 2, 2}, 8);
	memcpy(inner, mac_b, 6);
	memcpy(f + at, bytes, n);
	memcpy(f + at + n, inner + skip, len - skip);
	return at + (uint32_t)n + len - skip;
}

/* Every kind of tunnel. */
static const struct tunnel {
	uint8_t protocol, bytes[24];
	size_t n;
	bool ethernet;
} tunnels[] = {
        {17, {0x12, 0x34, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 0}, 16, true}, /* VXLAN: port 4789 */
        {47, {0x30, 0, 0x65, 0x58, 0, 0, 0, 7, 0, 0, 0, 1}, 12, true},                /* GRE: Ethernet, key, sequence */
        {47, {0x80, 0, 8, 0, 1, 1, 0, 0}, 8, false},                                  /* GRE: IPv4, checksum */
        {47, {0, 0, 0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64}, 12, false},                /* GRE: two labels, IPv4 */
        {17, {0x12, 0x34, 0x19, 0xeb, 0, 0, 0, 0, 0, 1, 1, 64}, 12, false},           /* MPLS: port 6635 */
        {4, {0}, 0, false},                                                           /* IP in IP */
};

static void what_a_tunnel_carries_is_found(void)
{
	struct rule ip = rule_of(IBV_FLOW_SPEC_IPV4_EXT, sizeof(ip.spec.ipv4)), tcp, eth = eth_rule(mac_b);

	ip.spec.ipv4.val.src_ip = htonl(0x0a000001);
	ip.spec.ipv4.mask.src_ip = 0xffffffff;
	struct rule inside = ip;

	inside.spec.ipv4.type = (enum ibv_flow_spec_type)(IBV_FLOW_SPEC_IPV4_EXT | IBV_FLOW_SPEC_INNER);
	eth.spec.eth.type = (enum ibv_flow_spec_type)(IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER);
	tcp = rule_of(IBV_FLOW_SPEC_TCP | IBV_FLOW_SPEC_INNER, sizeof(tcp.spec.ports));
	tcp.spec.ports.val.dst_port = htons(0x5678);
	tcp.spec.ports.mask.dst_port = 0xffff;
	for (size_t i = 0; i < sizeof(tunnels) / sizeof(tunnels[0]); i++) {
		const struct tunnel *t = &tunnels[i];
		uint8_t f[256];
		uint32_t len = tunnel_frame(f, t->protocol, t->bytes, t->n, t->ethernet);

		CHECK(!takes(&ip, f, len) && takes(&inside, f, len) && takes(&tcp, f, len));
		CHECK(takes(&eth, f, len) == t->ethernet);
		for (uint32_t cut = 0; cut < len; cut++) /* nothing is made up */
			CHECK(!takes(&tcp, f, cut) || cut >= len - 4);
	}
	uint8_t f[128];

	CHECK(takes(&ip, f, ipv4_frame(f, 6, -1)) && !takes(&inside, f, ipv4_frame(f, 6, -1)));
}

static void the_fields_of_tunnels_are_found(void)
{
	static const uint8_t spi[8] = {1, 2, 3, 4, 0, 0, 0, 9};
	uint8_t f[256];
	uint32_t len = tunnel_frame(f, 17, tunnels[0].bytes, 16, true);
	struct rule r = rule_of(IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(r.spec.vxlan));

	r.spec.vxlan.val.tunnel_id = htonl(0x10203);
	r.spec.vxlan.mask.tunnel_id = htonl(0xffffff);
	CHECK(takes(&r, f, len));
	r.spec.vxlan.val.tunnel_id = htonl(0x10204);
	CHECK(!takes(&r, f, len));
	len = tunnel_frame(f, 47, tunnels[1].bytes, 12, true);
	r = rule_of(IBV_FLOW_SPEC_GRE, sizeof(r.spec.gre));
	memset(&r.spec.gre.mask, 0xff, sizeof(r.spec.gre.mask));
	r.spec.gre.val = (struct ibv_flow_gre_filter){htons(0x3000), htons(0x6558), htonl(7)};
	CHECK(takes(&r, f, len));
	for (size_t i = 0; i < sizeof(r.spec.gre.val); i++) {
		((uint8_t *)&r.spec.gre.val)[i] ^= 1;
		CHECK(!takes(&r, f, len));
		((uint8_t *)&r.spec.gre.val)[i] ^= 1;
	}
	len = tunnel_frame(f, 17, tunnels[4].bytes, 12, false);
	r = rule_of(IBV_FLOW_SPEC_MPLS, sizeof(r.spec.mpls));
	r.spec.mpls.val.label = htonl(0x00010140);
	r.spec.mpls.mask.label = 0xffffffff;
	CHECK(takes(&r, f, len) && !takes(&r, f, ipv4_frame(f, 17, -1)));
	len = tunnel_frame(f, 50, spi, 8, false);
	r = rule_of(IBV_FLOW_SPEC_ESP, sizeof(r.spec.esp));
	r.spec.esp.val = (struct ibv_flow_esp_filter){htonl(0x1020304), htonl(9)};
	memset(&r.spec.esp.mask, 0xff, sizeof(r.spec.esp.mask));
	CHECK(takes(&r, f, len));
	r.spec.esp.val.seq = 0;
	CHECK(!takes(&r, f, len) && !takes(&r, f, 14 + 20 + 7));
}

static int refusal_of(const struct rule *r)
{
	struct vb_flow_match m;

	return vb_flow_parse(&r->attr, &m);
}

static void what_is_no_rule_is_refused(void)
{
	struct rule r = eth_rule(mac_a);

	r.spec.eth.size--;
	CHECK(refusal_of(&r) == EINVAL);
	r.spec.eth.size++;
	r.attr.size--;
	CHECK(refusal_of(&r) == EINVAL);
	r.attr.size = 0; /* as pyverbs has it */
	CHECK(!refusal_of(&r));
	r = eth_rule(mac_a);
	r.attr.num_of_specs = 2; /* there is one */
	CHECK(refusal_of(&r) == EINVAL);
	r = rule_of(IBV_FLOW_SPEC_ACTION_HANDLE, sizeof(struct ibv_flow_spec_action_handle));
	CHECK(refusal_of(&r) == EOPNOTSUPP);
	r = rule_of(IBV_FLOW_SPEC_ACTION_DROP | IBV_FLOW_SPEC_INNER, sizeof(r.spec.drop));
	CHECK(refusal_of(&r) == EINVAL);
	r = rule_of(IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(r.spec.vxlan));
	CHECK(!refusal_of(&r));
	r.spec.vxlan.mask.tunnel_id = htonl(1 << 24); /* a VNI has 24 bits */
	CHECK(refusal_of(&r) == EINVAL);

	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_tcp_udp tcp, udp;
	} both = {.attr = {.size = sizeof(both), .num_of_specs = 2, .port = 1},
	          .tcp = {.type = IBV_FLOW_SPEC_TCP, .size = sizeof(both.tcp)},
	          .udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof(both.udp)}};
	struct vb_flow_match m;

	CHECK(vb_flow_parse(&both.attr, &m) == EINVAL); /* no frame is both */
}

/* --- which queue pair receives --- */

static bool gets(struct ibv_qp *qp)
{
	uint8_t f[128];
	uint32_t tag;

	return vb_flow_takes(vb_qp(qp), f, ipv4_frame(f, 17, -1), &tag);
}

static struct ibv_flow *attach(struct ibv_qp *qp, struct rule r, enum ibv_flow_attr_type type, uint16_t priority,
                               uint32_t flags)
{
	r.attr.type = type;
	r.attr.priority = priority;
	r.attr.flags = flags;
	if (type != IBV_FLOW_ATTR_NORMAL)
		r.attr.num_of_specs = 0;
	return vb_create_flow(qp, &r.attr);
}

static void the_most_important_rule_decides(void)
{
	struct objects o = open_objects(IBV_QPT_RAW_PACKET);
	struct ibv_qp *a = o.qp, *b = make_qp(&o, IBV_QPT_RAW_PACKET, NULL);
	struct rule r = eth_rule(mac_a);

	CHECK(!gets(a) && !gets(b));
	struct ibv_flow *late = attach(a, r, IBV_FLOW_ATTR_NORMAL, 5, 0);

	CHECK(late && gets(a) && !gets(b));
	struct ibv_flow *early = attach(b, r, IBV_FLOW_ATTR_NORMAL, 4, 0);

	CHECK(early && !gets(a) && gets(b));
	CHECK(!vb_destroy_flow(early) && gets(a) && !gets(b));
	early = attach(b, r, IBV_FLOW_ATTR_NORMAL, 4, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
	CHECK(early && gets(a) && gets(b)); /* it goes on to the next rule */
	CHECK(!vb_destroy_flow(early));
	early = attach(b, r, IBV_FLOW_ATTR_NORMAL, 5, 0); /* the older one of two */
	CHECK(early && gets(a) && !gets(b) && !vb_destroy_flow(early));
	early = attach(b, rule_of(IBV_FLOW_SPEC_ACTION_DROP, sizeof(r.spec.drop)), IBV_FLOW_ATTR_NORMAL, 0, 0);
	CHECK(early && !gets(a) && !gets(b) && !vb_destroy_flow(early));
	CHECK(vb_destroy_qp(a) == EBUSY); /* while it has a rule */
	CHECK(!vb_destroy_flow(late) && !gets(a) && !vb_destroy_qp(b));
	CHECK(fake.flows_changed > 8);
	close_objects(&o);
}

static void default_rules_take_what_is_left_and_sniffers_all(void)
{
	struct objects o = open_objects(IBV_QPT_RAW_PACKET);
	struct ibv_qp *a = o.qp, *b = make_qp(&o, IBV_QPT_RAW_PACKET, NULL);
	struct ibv_flow *rest = attach(a, eth_rule(mac_a), IBV_FLOW_ATTR_ALL_DEFAULT, 0, 0);

	CHECK(rest && gets(a));
	struct ibv_flow *mine = attach(b, eth_rule(mac_a), IBV_FLOW_ATTR_NORMAL, 9, 0);

	CHECK(mine && !gets(a) && gets(b));
	struct ibv_flow *all = attach(a, eth_rule(mac_a), IBV_FLOW_ATTR_SNIFFER, 0, 0);

	CHECK(all && gets(a) && gets(b));
	CHECK(!vb_destroy_flow(all) && !vb_destroy_flow(rest) && !vb_destroy_flow(mine));
	rest = attach(a, eth_rule(mac_a), IBV_FLOW_ATTR_MC_DEFAULT, 0, 0);
	CHECK(rest && !gets(a)); /* it is for one station */
	CHECK(!vb_destroy_flow(rest) && !vb_destroy_qp(b));
	close_objects(&o);
}

static void rules_that_cannot_be_are_refused(void)
{
	struct objects o = open_objects(IBV_QPT_RAW_PACKET);
	struct ibv_qp *rc = make_qp(&o, IBV_QPT_RC, NULL), *ud = make_qp(&o, IBV_QPT_UD, NULL);
	struct rule r = eth_rule(mac_a);

	CHECK(!attach(rc, r, IBV_FLOW_ATTR_NORMAL, 0, 0) && errno == EINVAL);
	CHECK(!attach(ud, r, IBV_FLOW_ATTR_NORMAL, 0, 0) && errno == EOPNOTSUPP);
	CHECK(!attach(o.qp, r, (enum ibv_flow_attr_type)4, 0, 0) && errno == EINVAL);
	CHECK(!attach(o.qp, r, IBV_FLOW_ATTR_NORMAL, 0, IBV_FLOW_ATTR_FLAGS_EGRESS) && errno == EOPNOTSUPP);
	CHECK(!attach(o.qp, r, IBV_FLOW_ATTR_NORMAL, 0, 1) && errno == EINVAL);
	CHECK(!attach(o.qp, r, IBV_FLOW_ATTR_SNIFFER, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP) && errno == EINVAL);
	r.attr.port = 2;
	CHECK(!attach(o.qp, r, IBV_FLOW_ATTR_NORMAL, 0, 0) && errno == EINVAL);
	r.attr.port = 1;
	r.attr.comp_mask = 1;
	CHECK(!attach(o.qp, r, IBV_FLOW_ATTR_NORMAL, 0, 0) && errno == EINVAL);
	CHECK(!vb_destroy_qp(rc) && !vb_destroy_qp(ud));
	close_objects(&o);
}

/* --- counters objects --- */

static struct ibv_counters *make_counters(const struct objects *o)
{
	struct ibv_counters_init_attr init = {0};
	struct ibv_counters *c = vb_create_counters(o->ctx, &init);

	CHECK(c);
	return c;
}

static int attach_point(struct ibv_counters *c, enum ibv_counter_description what, uint32_t index,
                        struct ibv_flow *flow)
{
	struct ibv_counter_attach_attr a = {.counter_desc = what, .index = index};

	return vb_attach_counters_point_flow(c, &a, flow);
}

static uint64_t counted(struct ibv_counters *c, uint32_t index)
{
	uint64_t v[8];

	memset(v, 0xee, sizeof(v));
	CHECK(!vb_read_counters(c, v, 8, 0));
	return v[index];
}

/* An Ethernet rule, and a counters object. */
static struct ibv_flow *counting_flow(struct ibv_qp *qp, struct ibv_counters *c, unsigned objects, uint32_t flags)
{
	struct __attribute__((packed, aligned(8))) { /* the pointers would be aligned, and rdma-core wants no gaps */
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_counter_action count[2];
	} r = {.attr = {.size = sizeof(r), .num_of_specs = (uint8_t)(1 + objects), .port = 1, .flags = flags},
	       .eth = eth_rule(mac_a).spec.eth,
	       .count = {{.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(r.count[0]), .counters = c},
	                 {.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(r.count[0]), .counters = c}}};

	return vb_create_flow(qp, (void *)&r);
}

static void counters_count_frames_and_bytes_of_all_their_flows(void)
{
	struct objects o = open_objects(IBV_QPT_RAW_PACKET);
	struct ibv_counters *c = make_counters(&o);
	uint8_t f[128];
	uint32_t len = ipv4_frame(f, 17, -1);

	CHECK(!attach_point(c, IBV_COUNTER_PACKETS, 0, NULL) && !attach_point(c, IBV_COUNTER_BYTES, 2, NULL));
	struct ibv_flow *one = counting_flow(o.qp, c, 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);

	CHECK(one && gets(o.qp) && gets(o.qp));
	CHECK(counted(c, 0) == 2 && counted(c, 1) == 0 && counted(c, 2) == 2 * len);
	CHECK(attach_point(c, IBV_COUNTER_PACKETS, 1, NULL) == EBUSY && vb_destroy_counters(c) == EBUSY);
	struct ibv_flow *two = counting_flow(o.qp, c, 1, 0);

	CHECK(two && gets(o.qp)); /* the first does not trap it, so it reaches both */
	CHECK(counted(c, 0) == 4 && counted(c, 2) == 4 * len);
	CHECK(!vb_destroy_flow(one) && attach_point(c, IBV_COUNTER_PACKETS, 1, NULL) == EBUSY && !vb_destroy_flow(two));
	CHECK(!gets(o.qp) && counted(c, 0) == 4);
	/* one index may have several: they count from now on */
	CHECK(!attach_point(c, IBV_COUNTER_PACKETS, 1, NULL) && !attach_point(c, IBV_COUNTER_BYTES, 1, NULL));
	CHECK(counted(c, 1) == 0 && (one = counting_flow(o.qp, c, 1, 0)) && gets(o.qp));
	CHECK(counted(c, 0) == 5 && counted(c, 1) == 1 + len && counted(c, 2) == 5 * len);
	CHECK(!vb_destroy_flow(one) && !vb_destroy_counters(c));
	close_objects(&o);
}

static void points_at_an_existing_flow_count_from_then_on(void)
{
	struct objects o = open_objects(IBV_QPT_RAW_PACKET);
	struct ibv_counters *c = make_counters(&o);
	struct ibv_flow *flow = attach(o.qp, eth_rule(mac_a), IBV_FLOW_ATTR_NORMAL, 0, 0);

	CHECK(flow && gets(o.qp) && !attach_point(c, IBV_COUNTER_PACKETS, 3, flow) && gets(o.qp) && gets(o.qp));
	CHECK(counted(c, 3) == 2 && vb_destroy_counters(c) == EBUSY);
	CHECK(!attach_point(c, IBV_COUNTER_PACKETS, 3, flow) && gets(o.qp) && counted(c, 3) == 4);
	CHECK(!vb_destroy_flow(flow) && counted(c, 3) == 4 && !vb_destroy_counters(c));
	close_objects(&o);
}

static void a_rule_that_drops_counts_what_it_drops(void)
{
	struct objects o = open_objects(IBV_QPT_RAW_PACKET);
	struct ibv_counters *c = make_counters(&o);
	struct __attribute__((packed, aligned(8))) {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_action_drop drop;
		struct ibv_flow_spec_counter_action count;
	} r = {.attr = {.size = sizeof(r), .num_of_specs = 2, .port = 1},
	       .drop = {.type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(r.drop)},
	       .count = {.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(r.count), .counters = c}};

	CHECK(!attach_point(c, IBV_COUNTER_PACKETS, 0, NULL));
	struct ibv_flow *drop = vb_create_flow(o.qp, (void *)&r),
	                *rest = attach(o.qp, eth_rule(mac_a), IBV_FLOW_ATTR_NORMAL, 1, 0);

	CHECK(drop && rest && !gets(o.qp) && counted(c, 0) == 1);
	CHECK(!vb_destroy_flow(drop) && gets(o.qp) && counted(c, 0) == 1);
	CHECK(!vb_destroy_flow(rest) && !vb_destroy_counters(c));
	close_objects(&o);
}

static void counters_that_cannot_be_are_refused(void)
{
	struct objects o = open_objects(IBV_QPT_RAW_PACKET);
	struct ibv_counters *c = make_counters(&o), other = {.context = o.ctx};
	struct ibv_counters_init_attr init = {.comp_mask = 1};
	struct ibv_counter_attach_attr a = {.comp_mask = 1};
	uint64_t v[2];

	CHECK(!vb_create_counters(o.ctx, &init) && errno == EINVAL);
	CHECK(vb_attach_counters_point_flow(c, &a, NULL) == EINVAL &&
	      attach_point(c, IBV_COUNTER_BYTES, 1 << 20, NULL) == EINVAL);
	CHECK(attach_point(c, (enum ibv_counter_description)2, 0, NULL) == ENOTSUP);
	CHECK(vb_read_counters(c, v, 2, 2) == EINVAL && vb_read_counters(c, NULL, 1, 0) == EINVAL);
	CHECK(!vb_read_counters(c, NULL, 0, 0) && !vb_read_counters(c, v, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED));
	CHECK(!counting_flow(o.qp, NULL, 1, 0) && errno == EINVAL);
	CHECK(!counting_flow(o.qp, c, 2, 0) && errno == EINVAL); /* one object for one flow */
	c->context = NULL;
	CHECK(!counting_flow(o.qp, c, 1, 0) && errno == EINVAL && vb_destroy_counters(c) == EINVAL);
	CHECK(vb_read_counters(c, v, 2, 0) == EINVAL && attach_point(c, IBV_COUNTER_BYTES, 0, NULL) == EINVAL);
	c->context = other.context;
	CHECK(!vb_destroy_counters(c));
	close_objects(&o);
}

/* An InfiniBand fabric has no Ethernet frames, and iWARP adapters no raw packet queue pairs. */
static void an_adapter_without_frames_has_neither_flows_nor_counters(void)
{
	struct ibv_counters_init_attr init = {0};
	struct objects o = open_objects(IBV_QPT_RC);

	for (int i = 0; i < 2; i++) {
		fake_device.ib = !i;
		fake_device.iwarp = i;
		CHECK(!vb_create_counters(o.ctx, &init) && errno == EOPNOTSUPP);
		CHECK(!attach(o.qp, eth_rule(mac_a), IBV_FLOW_ATTR_NORMAL, 0, 0) && errno == ENXIO);
	}
	fake_device.iwarp = false;
	close_objects(&o);
}

int main(void)
{
	RUN(addresses_of_stations_are_compared_under_their_mask);
	RUN(a_tag_is_asked_for_only_where_there_is_one);
	RUN(fields_of_ipv4_are_found);
	RUN(fields_of_ipv6_are_found);
	RUN(ports_belong_to_their_protocol);
	RUN(what_a_tunnel_carries_is_found);
	RUN(the_fields_of_tunnels_are_found);
	RUN(what_is_no_rule_is_refused);
	RUN(the_most_important_rule_decides);
	RUN(default_rules_take_what_is_left_and_sniffers_all);
	RUN(rules_that_cannot_be_are_refused);
	RUN(counters_count_frames_and_bytes_of_all_their_flows);
	RUN(points_at_an_existing_flow_count_from_then_on);
	RUN(a_rule_that_drops_counts_what_it_drops);
	RUN(counters_that_cannot_be_are_refused);
	RUN(an_adapter_without_frames_has_neither_flows_nor_counters);
	return 0;
}
