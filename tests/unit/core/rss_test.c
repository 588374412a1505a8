// rss_test.c - receive side scaling: the hashes of Microsoft's verification suite, and which fields count
// follows: ibv_create_qp_ex(3) (rx_hash_conf)
// see: Microsoft, "Verifying the RSS hash calculation"
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <arpa/inet.h>
#include <string.h>

#include "core/rss.h"

#define IPV4 (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4)
#define IPV6 (IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6)
#define TCP (IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP)
#define UDP (IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP)

static uint8_t suite_key[VB_RSS_KEY_LEN] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                            0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                            0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                            0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

static struct vb_rss_hash of_fields(uint32_t fields)
{
	struct vb_rss_hash hash = {.fields = fields};

	memcpy(hash.key, suite_key, sizeof(hash.key));
	return hash;
}

struct vector {
	const char *dst, *src;
	uint16_t dst_port, src_port;
	uint32_t by_addresses, by_all;
};

static uint32_t hash_of(int family, const struct vector *v, uint32_t fields, unsigned transport)
{
	struct vb_rss_hash hash = of_fields(fields);
	union vb_frame_fields f;

	memset(&f, 0, sizeof(f));
	inet_pton(family, v->src, family == AF_INET ? (void *)&f.key.src_ip : f.key.src_ip6);
	inet_pton(family, v->dst, family == AF_INET ? (void *)&f.key.dst_ip : f.key.dst_ip6);
	f.key.src_port = htons(v->src_port);
	f.key.dst_port = htons(v->dst_port);
	return vb_rss_hash_of(&hash, &f, (uint16_t)((family == AF_INET ? VB_LAYER_IPV4 : VB_LAYER_IPV6) | transport));
}

static void the_hashes_are_those_of_the_suite(void)
{
	static const struct vector v4[] = {
	        {"161.142.100.80", "66.9.149.187", 1766, 2794, 0x323e8fc2, 0x51ccc178},
	        {"65.69.140.83", "199.92.111.2", 4739, 14230, 0xd718262a, 0xc626b0ea},
	        {"12.22.207.184", "24.19.198.95", 38024, 12898, 0xd2d0a5de, 0x5c2b394a},
	        {"209.142.163.6", "38.27.205.30", 2217, 48228, 0x82989176, 0xafc7327f},
	        {"202.188.127.2", "153.39.163.191", 1303, 44251, 0x5d1809c5, 0x10e828a2},
	};
	static const struct vector v6[] = {
	        {"3ffe:2501:200:3::1", "3ffe:2501:200:1fff::7", 1766, 2794, 0x2cc18cd5, 0x40207d3d},
	        {"ff02::1", "3ffe:501:8::260:97ff:fe40:efab", 4739, 14230, 0x0f0c461c, 0xdde51bbf},
	        {"fe80::200:f8ff:fe21:67cf", "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 38024, 44251, 0x4b61e985,
	         0x02d1feef},
	};

	for (size_t i = 0; i < sizeof(v4) / sizeof(v4[0]); i++) {
		CHECK(hash_of(AF_INET, &v4[i], IPV4, 0) == v4[i].by_addresses);
		CHECK(hash_of(AF_INET, &v4[i], IPV4 | TCP, VB_LAYER_TCP) == v4[i].by_all);
		CHECK(hash_of(AF_INET, &v4[i], IPV4 | UDP, VB_LAYER_UDP) == v4[i].by_all);
		CHECK(hash_of(AF_INET, &v4[i], IPV4 | TCP, VB_LAYER_UDP) == v4[i].by_addresses);
	}
	for (size_t i = 0; i < sizeof(v6) / sizeof(v6[0]); i++) {
		CHECK(hash_of(AF_INET6, &v6[i], IPV6, 0) == v6[i].by_addresses);
		CHECK(hash_of(AF_INET6, &v6[i], IPV6 | TCP, VB_LAYER_TCP) == v6[i].by_all);
		CHECK(hash_of(AF_INET6, &v6[i], IPV6 | UDP, VB_LAYER_UDP) == v6[i].by_all);
		CHECK(hash_of(AF_INET6, &v6[i], IPV4, 0) == 0); /* it has no such field */
	}
}

static void the_ports_of_a_fragment_do_not_count(void)
{
	struct vb_rss_hash hash = of_fields(IPV4 | UDP);
	union vb_frame_fields f;

	memset(&f, 0, sizeof(f));
	f.key.src_ip = htonl(0x0a000001);
	f.key.dst_ip = htonl(0x0a000002);
	uint32_t by_addresses = vb_rss_hash_of(&hash, &f, VB_LAYER_IPV4); /* a later fragment */

	f.key.src_port = f.key.dst_port = htons(5);
	CHECK(vb_rss_hash_of(&hash, &f, VB_LAYER_IPV4 | VB_LAYER_UDP) != by_addresses);
	f.key.ip_flags = 4; /* the first fragment: more follow */
	CHECK(vb_rss_hash_of(&hash, &f, VB_LAYER_IPV4 | VB_LAYER_UDP) == by_addresses);
}

static void the_spi_of_esp_counts(void)
{
	struct vb_rss_hash hash = of_fields(IPV4 | IBV_RX_HASH_IPSEC_SPI);
	union vb_frame_fields f;

	memset(&f, 0, sizeof(f));
	f.key.src_ip = htonl(0x0a000001);
	uint32_t by_addresses = vb_rss_hash_of(&hash, &f, VB_LAYER_IPV4);

	f.key.esp_spi = htonl(5);
	CHECK(vb_rss_hash_of(&hash, &f, VB_LAYER_IPV4) == by_addresses); /* it has no ESP */
	CHECK(vb_rss_hash_of(&hash, &f, VB_LAYER_IPV4 | VB_LAYER_ESP) != by_addresses);
	f.key.ip_flags = VB_IP_MORE_FRAGMENTS; /* the later ones have none */
	CHECK(vb_rss_hash_of(&hash, &f, VB_LAYER_IPV4 | VB_LAYER_ESP) == by_addresses);
}

static int parse(uint8_t function, uint8_t len, uint8_t *key, uint64_t fields)
{
	struct vb_rss_hash hash;

	return vb_rss_parse(&(struct ibv_rx_hash_conf){function, len, key, fields}, &hash);
}

static void what_cannot_be_is_refused(void)
{
	const uint8_t toeplitz = IBV_RX_HASH_FUNC_TOEPLITZ;

	CHECK(parse(toeplitz, 40, suite_key, IPV4 | TCP) == 0);
	CHECK(parse(toeplitz, 40, suite_key, 0) == 0);
	CHECK(parse(0, 40, suite_key, IPV4) == EOPNOTSUPP);
	CHECK(parse(toeplitz, 40, suite_key, IPV4 | IBV_RX_HASH_IPSEC_SPI | IBV_RX_HASH_INNER) == 0);
	CHECK(parse(toeplitz, 40, suite_key, IPV4 | UDP | IBV_RX_HASH_IPSEC_SPI) == EINVAL);
	CHECK(parse(toeplitz, 40, suite_key, IPV4 | 1ull << 40) == EOPNOTSUPP);
	CHECK(parse(toeplitz, 39, suite_key, IPV4) == EINVAL);
	CHECK(parse(toeplitz, 40, NULL, IPV4) == EINVAL);
	CHECK(parse(toeplitz, 40, suite_key, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6) == EINVAL);
	CHECK(parse(toeplitz, 40, suite_key, IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP) == EINVAL);
}

int main(void)
{
	RUN(the_hashes_are_those_of_the_suite);
	RUN(the_ports_of_a_fragment_do_not_count);
	RUN(the_spi_of_esp_counts);
	RUN(what_cannot_be_is_refused);
	return 0;
}
