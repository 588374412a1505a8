// net_test.c - GIDs and socket addresses, source ports, IP headers
// follows: IBA annex A17 (RoCEv2), A17.3.1, A17.4.5.2; RFC 791, RFC 1071, RFC 8200, RFC 4291 2.5.5.2
// SPDX-License-Identifier: MIT
#include <netinet/in.h>

#include "../../support/check.h"
#include "frame/net.h"
#include "reference.h"

static const uint8_t v4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
static const uint8_t v4_peer[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 199};
static const uint8_t v6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1};
static const uint8_t link_local[16] = {0xfe, 0x80, [15] = 9};

static void only_a_mapped_address_is_ipv4(void)
{
	uint8_t compatible[16] = {[12] = 192, 0, 2, 1}, nearly[16];

	CHECK(vb_gid_is_ipv4(v4));
	CHECK(!vb_gid_is_ipv4(v6) && !vb_gid_is_ipv4(compatible));
	memcpy(nearly, v4, 16);
	nearly[0] = 1;
	CHECK(!vb_gid_is_ipv4(nearly));
}

static void a_gid_goes_to_a_socket_address_and_back(void)
{
	struct sockaddr_storage sa;
	struct sockaddr_in *in = (void *)&sa;
	struct sockaddr_in6 *in6 = (void *)&sa;
	uint8_t gid[16];

	CHECK(vb_gid_to_sockaddr(&sa, v4, 4791, 3) == sizeof(*in));
	CHECK(in->sin_family == AF_INET && in->sin_port == htons(4791) && in->sin_addr.s_addr == htonl(0xc0000201));
	CHECK(vb_gid_of_sockaddr(gid, (void *)&sa) && !memcmp(gid, v4, 16));

	CHECK(vb_gid_to_sockaddr(&sa, v6, 4791, 3) == sizeof(*in6));
	CHECK(in6->sin6_family == AF_INET6 && in6->sin6_port == htons(4791) && in6->sin6_scope_id == 0);
	CHECK(vb_gid_of_sockaddr(gid, (void *)&sa) && !memcmp(gid, v6, 16));

	vb_gid_to_sockaddr(&sa, link_local, 4791, 3);
	CHECK(in6->sin6_scope_id == 3);

	/* the form of IPv4 on a socket of both families */
	memset(&sa, 0, sizeof(sa));
	in6->sin6_family = AF_INET6;
	memcpy(&in6->sin6_addr, v4, 16);
	CHECK(vb_gid_of_sockaddr(gid, (void *)&sa) && vb_gid_is_ipv4(gid));

	sa.ss_family = AF_UNIX;
	memset(gid, 7, 16);
	CHECK(!vb_gid_of_sockaddr(gid, (void *)&sa) && gid[0] == 7);
}

/* Values computed by hand with the kernel's formula. */
static void source_ports_are_those_of_linux(void)
{
	CHECK(vb_flow_label_sport(0) == 0xc000);
	CHECK(vb_flow_label_sport(0x3fff) == 0xffff);
	CHECK(vb_flow_label_sport(0x4000) == 0xc001);
	CHECK(vb_flow_label_sport(0xfffff) == (0xc000 | (0x3fff ^ 0x3f)));
	CHECK(vb_flow_label_sport(0xfff00000) == 0xc000); /* 20 bits */
	CHECK(vb_flow_label_of_qps(0x11, 0x12) == 0x132);
	CHECK(vb_flow_label_of_qps(0x100000, 0x100000) == 0x1); /* 2^40 folds to 2^40 ^ 2^20 ^ 1 */
	for (int i = 0; i < 1000; i++) {
		uint32_t a = (uint32_t)ref_random(), b = (uint32_t)ref_random();

		CHECK(vb_flow_label_of_qps(a, b) == vb_flow_label_of_qps(b, a) && vb_flow_label_of_qps(a, b) < 1 << 20);
		CHECK(vb_flow_label_sport(a) >= 0xc000);
	}
}

static struct vb_flow flow(const uint8_t src[16], const uint8_t dst[16])
{
	struct vb_flow f = {.sport = 0xc001, .dport = 4791};

	memcpy(f.src, src, 16);
	memcpy(f.dst, dst, 16);
	return f;
}

static void an_ipv4_header_is_complete(void)
{
	/* the checksum was computed by hand, by RFC 1071: 4502 + 0044 + 1234 + 4000 + 4011 + c000 0201 + c000 02c7 */
	static const uint8_t want[20] = {0x45, 2,    0,   0x44, 0x12, 0x34, 0x40, 0, 64, 17,
	                                 0xa3, 0xaa, 192, 0,    2,    1,    192,  0, 2,  199};
	struct vb_flow f = flow(v4, v4_peer);
	struct vb_ip_fields ip = {.traffic_class = 2, .hop_limit = 64, .id = 0x1234, .flow_label = 0x12345};
	uint8_t header[40];
	uint32_t sum = 0;

	CHECK(vb_ip_header(header, &f, &ip, 40) == 20);
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	CHECK((sum & 0xffff) + (sum >> 16) == 0xffff);
	CHECK(!memcmp(header, want, 10) && !memcmp(header + 12, want + 12, 8));
	CHECK(!memcmp(header, want, 20));
}

static void an_ipv6_header_is_complete(void)
{
	static const uint8_t want[8] = {0x6a, 0xb1, 0x23, 0x45, 0, 48, 17, 255};
	struct vb_flow f = flow(v6, link_local);
	struct vb_ip_fields ip = {.traffic_class = 0xab, .hop_limit = 255, .flow_label = 0xfff12345};
	uint8_t header[40];

	CHECK(vb_ip_header(header, &f, &ip, 40) == 40);
	CHECK(!memcmp(header, want, 8) && !memcmp(header + 8, v6, 16) && !memcmp(header + 24, link_local, 16));
}

static void a_ud_receive_shows_ipv4_in_the_last_20_bytes(void)
{
	static const uint8_t zeros[20];
	struct vb_flow f = flow(v4, v4_peer);
	struct vb_ip_fields ip = {.traffic_class = 9, .hop_limit = 1};
	uint8_t grh[40], header[40];

	memset(grh, 0xff, 40);
	vb_grh(grh, &f, &ip, 100);
	vb_ip_header(header, &f, &ip, 100);
	CHECK(!memcmp(grh, zeros, 20) && !memcmp(grh + 20, header, 20));

	f = flow(v6, link_local);
	vb_grh(grh, &f, &ip, 100);
	vb_ip_header(header, &f, &ip, 100);
	CHECK(!memcmp(grh, header, 40) && grh[6] == 17);
}

int main(void)
{
	RUN(only_a_mapped_address_is_ipv4);
	RUN(a_gid_goes_to_a_socket_address_and_back);
	RUN(source_ports_are_those_of_linux);
	RUN(an_ipv4_header_is_complete);
	RUN(an_ipv6_header_is_complete);
	RUN(a_ud_receive_shows_ipv4_in_the_last_20_bytes);
	return 0;
}
