// icrc.c - the invariant CRC of a packet, even if its IPv4 identification is unknown
// follows: IBA volume 1, 7.8.1 (ICRC); annex A17 (RoCEv2), A17.3.3 (CA17-22)
// SPDX-License-Identifier: MIT
#include "frame/icrc.h"

#include "frame/lrh.h"

#define ONES_CRC 0x2144df1c /* UDP: CRC of the 64 ones that stand for a local route header (CA17-22 a) */
#define UDP_LEN 8
#define OUTER_MAX (VB_IPV6_LEN + UDP_LEN)
#define HEADERS 64                  /* at least the longest headers */
#define BEHIND_ID (VB_IPV4_LEN - 6) /* bytes of the IPv4 header behind the identification */
#define SHORT 64 /* longer than an acknowledgement, shorter than a full packet of the smallest path MTU */

/* What precedes the BTH, as the ICRC sees it: IP and UDP header, or LRH and GRH. Returns its length. */
static size_t outer_headers(uint8_t pseudo[OUTER_MAX], const struct vb_flow *flow, uint16_t ipv4_id,
                            size_t udp_payload_len)
{
	if (flow->link != VB_LINK_UDP)
		return vb_link_front_masked(pseudo, flow, udp_payload_len);
	size_t ip_len = vb_ip_header_masked(pseudo, flow, ipv4_id, udp_payload_len);
	struct vb_writer w = vb_writer(pseudo + ip_len, UDP_LEN);

	vb_put16(&w, flow->sport);
	vb_put16(&w, flow->dport);
	vb_put16(&w, (uint16_t)(UDP_LEN + udp_payload_len));
	vb_put16(&w, 0xffff); /* checksum (CA17-22 d) */
	return ip_len + UDP_LEN;
}

static uint32_t first_crc(const struct vb_flow *flow)
{
	return flow->link == VB_LINK_UDP ? ONES_CRC : 0;
}

uint32_t vb_icrc_start(const struct vb_flow *flow, uint16_t ipv4_id, const uint8_t *headers, size_t headers_len,
                       size_t udp_payload_len)
{
	uint8_t pseudo[OUTER_MAX + VB_BTH_LEN];
	size_t outer_len = outer_headers(pseudo, flow, ipv4_id, udp_payload_len);
	struct vb_writer w = vb_writer(pseudo + outer_len, VB_BTH_LEN);

	vb_put_bytes(&w, headers, VB_BTH_RESV8A);
	vb_put8(&w, 0xff);
	vb_put_bytes(&w, headers + VB_BTH_RESV8A + 1, VB_BTH_LEN - VB_BTH_RESV8A - 1);

	uint32_t crc = vb_crc32(first_crc(flow), pseudo, outer_len + w.pos);

	return headers_len > VB_BTH_LEN ? vb_crc32(crc, headers + VB_BTH_LEN, headers_len - VB_BTH_LEN) : crc;
}

static uint64_t differ_at(const struct vb_flow *a, const struct vb_flow *b, size_t at)
{
	uint64_t x, y;

	memcpy(&x, (const uint8_t *)a + at, sizeof(x));
	memcpy(&y, (const uint8_t *)b + at, sizeof(y));
	return x ^ y;
}

/* By words, the last of which overlap: faster than field by field. */
static bool same_flow(const struct vb_flow *a, const struct vb_flow *b)
{
	_Static_assert(sizeof(*a) == 42 && offsetof(struct vb_flow, link) == 41, "no padding, which may differ");
	return !(differ_at(a, b, 0) | differ_at(a, b, 8) | differ_at(a, b, 16) | differ_at(a, b, 24) |
	         differ_at(a, b, 32) | differ_at(a, b, 34));
}

__attribute__((hot)) struct vb_icrc_known *vb_icrc_known(struct vb_icrc_cache *cache, const struct vb_flow *flow,
                                                         size_t len)
{
	struct vb_icrc_known *k =
	        &cache->of[(len / 4 ^ (len > SHORT ? 16 : 0) ^ flow->sport ^ flow->dlid) % VB_ICRC_FLOWS];

	if (__builtin_expect(k->len != len || !same_flow(&k->flow, flow), 0)) {
		k->flow = *flow;
		k->len = len;
		k->known = false;
		k->payload.v[0] = 0;
	}
	return k;
}

/*
 * What an identification adds to the CRC, which is linear: the CRC without ones, of the two bytes and the BEHIND_ID +
 * UDP_LEN zeros behind them. By four bits at a time.
 */
#define BITS(i, a, b, c, d) (((i)&1 ? (a) : 0) ^ ((i)&2 ? (b) : 0) ^ ((i)&4 ? (c) : 0) ^ ((i)&8 ? (d) : 0))
#define FOUR(i, ...) \
	BITS(i, __VA_ARGS__), BITS((i) + 1, __VA_ARGS__), BITS((i) + 2, __VA_ARGS__), BITS((i) + 3, __VA_ARGS__)
#define SIXTEEN(...)                                                                                    \
	{                                                                                               \
		FOUR(0, __VA_ARGS__), FOUR(4, __VA_ARGS__), FOUR(8, __VA_ARGS__), FOUR(12, __VA_ARGS__) \
	}

static uint32_t id_crc(uint16_t id)
{
	static const uint32_t of[4][16] = {SIXTEEN(0x9b73ead4, 0xed96d3e9, 0x005ca193, 0x00b94326),
	                                   SIXTEEN(0x0172864c, 0x02e50c98, 0x05ca1930, 0x0b943260),
	                                   SIXTEEN(0x81256527, 0xd93bcc0f, 0x69069e5f, 0xd20d3cbe),
	                                   SIXTEEN(0x7f6b7f3d, 0xfed6fe7a, 0x26dcfab5, 0x4db9f56a)};

	return of[0][id & 15] ^ of[1][id >> 4 & 15] ^ of[2][id >> 8 & 15] ^ of[3][id >> 12];
}

/* The CRC of everything before the BTH. */
static __attribute__((hot)) uint32_t before_bth(struct vb_icrc_known *k, uint16_t ipv4_id)
{
	uint8_t pseudo[OUTER_MAX];

	if (__builtin_expect(!k->known, 0)) {
		k->start = vb_crc32(first_crc(&k->flow), pseudo, outer_headers(pseudo, &k->flow, 0, k->len));
		k->numbered = k->flow.link == VB_LINK_UDP && vb_gid_is_ipv4(k->flow.dst);
		k->known = true;
	}
	return ipv4_id && k->numbered ? k->start ^ id_crc(ipv4_id) : k->start;
}

__attribute__((hot)) uint32_t vb_icrc_packet(struct vb_icrc_cache *cache, const struct vb_flow *flow, uint16_t ipv4_id,
                                             uint8_t *packet, size_t len)
{
	uint8_t resv8a = packet[VB_BTH_RESV8A];

	packet[VB_BTH_RESV8A] = 0xff;
	len += VB_ICRC_LEN;
	uint32_t crc = vb_crc32(before_bth(vb_icrc_known(cache, flow, len), ipv4_id), packet, len - VB_ICRC_LEN);

	packet[VB_BTH_RESV8A] = resv8a;
	return crc;
}

/* k->payload depends on the payload's length, k is for one length of packet. That determines the payload's length,
 * because this is a multiple of 256 and headers are shorter. */
uint32_t vb_icrc_summed(struct vb_icrc_known *k, uint16_t ipv4_id, const uint8_t *headers, size_t headers_len,
                        const uint64_t sum[2], size_t len)
{
	static const uint8_t ones[4] = {0xff}; /* resv8a */
	uint32_t head[HEADERS / 4], mask;      /* words, because the headers were just written by words */
	uint32_t crc = before_bth(k, ipv4_id), n = (uint32_t)headers_len / 4;

	for (uint32_t i = 0; i < n; i++)
		memcpy(&head[i], headers + 4 * i, 4);
	memcpy(&mask, ones, 4);
	head[VB_BTH_RESV8A / 4] |= mask;
	if (n > 3)
		crc = vb_crc32(crc, head, headers_len - VB_BTH_LEN);
	if (__builtin_expect(!k->payload.v[0], 0))
		k->payload = vb_crc32_powers(len);
	return vb_crc32_summed(crc, head + n - 3, sum, &k->payload);
}

/* The register's low byte comes first (IBA volume 1, 7.8.1). */
__attribute__((hot)) void vb_icrc_encode(uint8_t icrc[VB_ICRC_LEN], uint32_t crc)
{
	for (int i = 0; i < VB_ICRC_LEN; i++)
		icrc[i] = (uint8_t)(crc >> 8 * i);
}

__attribute__((hot)) uint32_t vb_icrc_residual(const uint8_t icrc[VB_ICRC_LEN], uint32_t crc)
{
	for (int i = 0; i < VB_ICRC_LEN; i++)
		crc ^= (uint32_t)icrc[i] << 8 * i;
	return crc;
}

uint32_t vb_icrc_check(const struct vb_flow *flow, uint16_t ipv4_id, const uint8_t *udp_payload, size_t len)
{
	if (len < VB_BTH_LEN + VB_ICRC_LEN)
		return UINT32_MAX;
	return vb_icrc_residual(udp_payload + len - VB_ICRC_LEN,
	                        vb_icrc_start(flow, ipv4_id, udp_payload, len - VB_ICRC_LEN, len));
}

/*
 * d is the difference between the identification and the guess, 16 bits, and n bytes follow it. Then the residual is
 * d·x^32·x^8n. Such a d exists if and only if the residual divided by x^32·x^8n has a degree below 16.
 */
int vb_icrc_find_id(uint32_t residual, uint16_t guess, size_t udp_payload_len)
{
	/* x^(-8·2^i) */
	static const uint32_t divide[] = {0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d,
	                                  0x5139de12, 0xba340226, 0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8,
	                                  0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5, 0x9ea0056d};
	size_t n = BEHIND_ID + UDP_LEN + udp_payload_len - VB_ICRC_LEN + 4; /* 4: x^32 */

	if (udp_payload_len < VB_ICRC_LEN || udp_payload_len > UINT16_MAX)
		return -1;
	for (size_t i = 0; n >> i; i++) {
		if (n >> i & 1)
			residual = vb_crc32_multiply(residual, divide[i]);
	}
	if (residual & 0xffff)
		return -1;
	uint16_t d = (uint16_t)(residual >> 16);

	return guess ^ (uint16_t)(d << 8 | d >> 8);
}
