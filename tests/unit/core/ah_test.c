// ah_test.c - address handles, and the answer to a datagram
// follows: IBA volume 1, 11.2.2; Annex A17.4.5.1; ibv_init_ah_from_wc(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <arpa/inet.h>

static struct objects o;

static const struct ibv_ah_attr good = {
        .is_global = 1, .port_num = 1, .grh = {.dgid.raw = {0xfe, 0x80, [15] = 9}, .hop_limit = 1}};

static int make(struct ibv_ah_attr a)
{
	struct ibv_ah *ah;

	errno = 0;
	ah = vb_create_ah(o.pd, &a);
	if (!ah)
		return errno;
	CHECK(vb_dealloc_pd(o.pd) == EBUSY);
	CHECK(!vb_destroy_ah(ah));
	return 0;
}

static void a_handle_needs_all_that_a_packet_needs(void)
{
	struct ibv_ah_attr a = good;

	CHECK(!make(a));
	a.is_global = 0;
	CHECK(make(a) == EINVAL);
	a = good;
	a.port_num = 2;
	CHECK(make(a) == EINVAL);
	a = good;
	a.grh.sgid_index = 2; /* a hole */
	CHECK(make(a) == EINVAL);
	a.grh.sgid_index = 200;
	CHECK(make(a) == EINVAL);
	a = good;
	memset(&a.grh.dgid, 0, 16);
	CHECK(make(a) == EINVAL);
	a.grh.dgid.raw[10] = a.grh.dgid.raw[11] = 0xff; /* ::ffff:0.0.0.0 */
	a.grh.sgid_index = 1;
	CHECK(make(a) == EINVAL);
	a.grh.dgid.raw[15] = 1;
	CHECK(!make(a));
	a.grh.sgid_index = 0; /* IPv6 to IPv4 */
	CHECK(make(a) == EINVAL);
}

/* 10.0.0.1/16 */
static void give_lids(void)
{
	fake_device.lids = true;
	fake_device.nd.v4_prefix = 16;
	fake_device.nd.n_addrs = 1;
	memcpy(fake_device.nd.addrs[0], (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 1}, 16);
}

static void without_a_grh_a_lid_names_the_subnets_address(void)
{
	struct ibv_ah_attr a = {.port_num = 1, .dlid = 0x1234, .grh = {.sgid_index = 77, .hop_limit = 5}};
	static const union ibv_gid to = {.raw = {[10] = 0xff, 0xff, 10, 0, 0x12, 0x34}};

	CHECK(make(a) == EINVAL); /* LIDs are not enabled */
	give_lids();
	struct ibv_ah *ah = vb_create_ah(o.pd, &a);
	CHECK(ah);
	CHECK(vb_ah(ah)->attr.grh.sgid_index == 1 && !vb_ah(ah)->attr.grh.hop_limit);
	CHECK(!memcmp(&vb_ah(ah)->attr.grh.dgid, &to, sizeof(to)) && vb_ah(ah)->sgid.raw[12] == 10);
	CHECK(!vb_destroy_ah(ah));
	static const uint16_t none[] = {0, 0xc000, 0xffff};
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		a.dlid = none[i];
		CHECK(make(a) == EINVAL);
	}
	a.dlid = 0x1234;
	a.port_num = 2;
	CHECK(make(a) == EINVAL);
	a.port_num = 1;
	fake_device.nd.v4_prefix = 24; /* invalid host part */
	CHECK(make(a) == EINVAL);
	fake_device.nd.v4_prefix = 32;
	CHECK(make(a) == EINVAL);
	fake_device.nd.v4_prefix = 16;
	fake_device.nd.addrs[0][0] = 0x20; /* IPv6 only */
	CHECK(make(a) == EINVAL);
	CHECK(!make(good));
	fake_device.lids = false;
}

static void a_multicast_group_may_be_of_either_family(void)
{
	struct ibv_ah_attr a = good;

	a.grh.dgid = (union ibv_gid){.raw = {0xff, 0x0e, [10] = 0xff, 0xff, 224, 1, 2, 3}};
	a.grh.sgid_index = 1;
	CHECK(!make(a));
}

static void an_ipv6_datagram_is_answered(void)
{
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH, .sl = 3};
	struct ibv_grh grh = {
	        .version_tclass_flow = htonl(6u << 28 | 0x12u << 20 | 0xabcde),
	        .next_hdr = 17,
	        .hop_limit = 63,
	        .sgid.raw = {0xfe, 0x80, [15] = 77},
	        .dgid.raw = {0xfe, 0x80, [15] = 1},
	};
	struct ibv_ah_attr a;

	CHECK(!vb_init_ah_from_wc(o.ctx, 1, &wc, &grh, &a));
	CHECK(a.is_global && a.port_num == 1 && a.sl == 3 && !a.grh.sgid_index && a.grh.dgid.raw[15] == 77);
	CHECK(a.grh.flow_label == 0xabcde && a.grh.hop_limit == 63 && a.grh.traffic_class == 0x12);
	grh.dgid.raw[15] = 5; /* not ours */
	CHECK(vb_init_ah_from_wc(o.ctx, 1, &wc, &grh, &a) == -1 && errno == EINVAL);
	grh.next_hdr = 6;
	CHECK(vb_init_ah_from_wc(o.ctx, 1, &wc, &grh, &a) == -1 && errno == EPROTONOSUPPORT);
	wc.wc_flags = 0;
	CHECK(!vb_init_ah_from_wc(o.ctx, 1, &wc, &grh, &a) && !a.is_global);
}

static void an_ipv4_datagram_is_answered(void)
{
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	uint8_t bytes[40] __attribute__((aligned(8)));
	static const uint8_t header[20] = {0x45, 7, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1};
	uint32_t sum = 0;
	struct ibv_ah_attr a;

	memset(bytes, 0x60, 20); /* bytes before it are arbitrary, even if they look like IPv6 */
	memcpy(bytes + 20, header, 20);
	for (int i = 20; i < 40; i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	sum = ~((sum & 0xffff) + (sum >> 16));
	bytes[30] = (uint8_t)(sum >> 8);
	bytes[31] = (uint8_t)sum;
	CHECK(!vb_init_ah_from_wc(o.ctx, 1, &wc, (struct ibv_grh *)bytes, &a));
	CHECK(a.grh.sgid_index == 1 && a.grh.dgid.raw[15] == 9 && a.grh.dgid.raw[11] == 0xff && a.grh.hop_limit == 64 &&
	      a.grh.traffic_class == 7);
	bytes[31] ^= 1; /* then it is IPv6, of another protocol */
	CHECK(vb_init_ah_from_wc(o.ctx, 1, &wc, (struct ibv_grh *)bytes, &a) == -1);
}

int main(void)
{
	o = open_objects(IBV_QPT_UD);
	int nodes = fake.nodes;

	CHECK(!vb_destroy_qp(o.qp));
	o.qp = NULL;
	RUN(a_handle_needs_all_that_a_packet_needs);
	RUN(without_a_grh_a_lid_names_the_subnets_address);
	RUN(a_multicast_group_may_be_of_either_family);
	RUN(an_ipv6_datagram_is_answered);
	RUN(an_ipv4_datagram_is_answered);
	fake.nodes = nodes;
	close_objects(&o);
}
