// lrh.c - a packet on an InfiniBand link: local route header, global route header, transport packet, VCRC
// follows: IBA volume 1, 7.7 (LRH), 7.8 (ICRC, VCRC), 8.3 (GRH)
// SPDX-License-Identifier: MIT
#include "frame/lrh.h"

#include <string.h>

#include "frame/crc_slices.h"
#include "frame/cursor.h"
#include "frame/header.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define GRH_VERSION 6

/* --- VCRC: x^16 + x^12 + x^3 + x + 1, bits in the order of the link --- */

static const uint16_t table[8][256] = {
        ROW(0x1ba1, 0x3742, 0x6e84, 0xdd08, 0x1a01, 0x3402, 0x6804, 0xd008),
        ROW(0xffb0, 0x5f71, 0xbee2, 0xddd5, 0x1bbb, 0x3776, 0x6eec, 0xddd8),
        ROW(0xfef4, 0x5df9, 0xbbf2, 0xd7f5, 0x0ffb, 0x1ff6, 0x3fec, 0x7fd8),
        ROW(0xf875, 0x50fb, 0xa1f6, 0xe3fd, 0x67eb, 0xcfd6, 0x3fbd, 0x7f7a),
        ROW(0x33da, 0x67b4, 0xcf68, 0x3ec1, 0x7d82, 0xfb04, 0x5619, 0xac32),
        ROW(0x4874, 0x90e8, 0x81c1, 0xa393, 0xe737, 0x6e7f, 0xdcfe, 0x19ed),
        ROW(0x28cb, 0x5196, 0xa32c, 0xe649, 0x6c83, 0xd906, 0x121d, 0x243a),
        ROW(0x49cf, 0x939e, 0x872d, 0xae4b, 0xfc87, 0x591f, 0xb23e, 0xc46d),
};

/* The register after these bytes. */
static uint16_t shift_in(uint16_t r, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8)
		r = table[7][(p[0] ^ r) & 0xff] ^ table[6][p[1] ^ r >> 8] ^ table[5][p[2]] ^ table[4][p[3]] ^
		    table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
	for (; len; p++, len--)
		r = (uint16_t)(r >> 8 ^ table[0][(r ^ *p) & 0xff]);
	return r;
}

uint16_t vb_vcrc_portable(uint16_t crc, const void *bytes, size_t len)
{
	return (uint16_t)~shift_in((uint16_t)~crc, bytes, len);
}

#if defined(__x86_64__)
#define FOLD_MIN 128 /* bytes; shorter packets are as fast by the tables */
#define WIDE_MIN 512

/* The 16 bytes a, moved as far as the powers of x say, and added to b. */
#define FOLD(a, k, b) \
	_mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11)), b)

/* x^(d+63), x^(d-1) modulo the polynomial, bits reversed, for a distance of d bits: 2048, 512, 128 */
static const uint64_t powers[3][2] = {{0xf389000000000000ull, 0x03d0000000000000ull},
                                      {0x58e0000000000000ull, 0xf2d0000000000000ull},
                                      {0x11d4000000000000ull, 0x64df000000000000ull}};

/* Reduces four times 16 bytes, and the len bytes behind them, to the register. */
static __attribute__((target("pclmul"))) uint16_t fold_four(__m128i x[4], const uint8_t *p, size_t len)
{
	const __m128i far = _mm_loadu_si128((const __m128i *)powers[1]);
	const __m128i near = _mm_loadu_si128((const __m128i *)powers[2]);
	const __m128i *from = (const __m128i *)p;
	uint8_t rest[16];

	for (; len >= 64; len -= 64, from += 4)
		for (int i = 0; i < 4; i++)
			x[i] = FOLD(x[i], far, _mm_loadu_si128(from + i));
	for (int i = 1; i < 4; i++)
		x[0] = FOLD(x[0], near, x[i]);
	for (; len >= 16; len -= 16, from++)
		x[0] = FOLD(x[0], near, _mm_loadu_si128(from));
	_mm_storeu_si128((__m128i *)rest, x[0]);
	return shift_in(shift_in(0, rest, sizeof(rest)), (const uint8_t *)from, len);
}

static __attribute__((target("pclmul"))) uint16_t vcrc_folded(uint16_t r, const uint8_t *p, size_t len)
{
	__m128i x[4];

	for (int i = 0; i < 4; i++)
		x[i] = _mm_loadu_si128((const __m128i *)p + i);
	x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(r));
	return fold_four(x, p + 64, len - 64);
}

#define FOLD_WIDE(a, k, b) \
	_mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00), _mm512_clmulepi64_epi128(a, k, 0x11), b, 0x96)

/* The same with four times 64 bytes at a time. */
static __attribute__((target("avx512f,vpclmulqdq,pclmul"))) uint16_t vcrc_wide(uint16_t r, const uint8_t *p, size_t len)
{
	const __m512i wide = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)powers[0]));
	const __m512i far = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)powers[1]));
	__m512i w[4];
	__m128i x[4];

	for (int i = 0; i < 4; i++)
		w[i] = _mm512_loadu_si512(p + 64 * i);
	w[0] = _mm512_xor_si512(w[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(r)));
	for (p += 256, len -= 256; len >= 256; p += 256, len -= 256)
		for (int i = 0; i < 4; i++)
			w[i] = FOLD_WIDE(w[i], wide, _mm512_loadu_si512(p + 64 * i));
	for (int i = 1; i < 4; i++)
		w[0] = FOLD_WIDE(w[0], far, w[i]);
	_mm512_storeu_si512(x, w[0]);
	return fold_four(x, p, len);
}

enum { ASK, TABLES, FOLDED, WIDE };

static int best_way(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("pclmul"))
		return TABLES;
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") ? WIDE : FOLDED;
}

uint16_t vb_vcrc(uint16_t crc, const void *bytes, size_t len)
{
	static int known; /* threads that ask at once get the same answer */
	int way = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (way == ASK) {
		way = best_way();
		__atomic_store_n(&known, way, __ATOMIC_RELAXED);
	}
	if (len < FOLD_MIN || way == TABLES)
		return vb_vcrc_portable(crc, bytes, len);
	if (len < WIDE_MIN || way == FOLDED)
		return (uint16_t)~vcrc_folded((uint16_t)~crc, bytes, len);
	return (uint16_t)~vcrc_wide((uint16_t)~crc, bytes, len);
}
#else
uint16_t vb_vcrc(uint16_t crc, const void *bytes, size_t len)
{
	return vb_vcrc_portable(crc, bytes, len);
}
#endif

/* As the ICRC, the register's low byte comes first. */
void vb_vcrc_encode(uint8_t *packet, size_t len)
{
	uint16_t crc = vb_vcrc(0, packet, len);

	packet[len] = (uint8_t)crc;
	packet[len + 1] = (uint8_t)(crc >> 8);
}

static bool vcrc_is_right(const uint8_t *packet, size_t len)
{
	uint16_t crc = vb_vcrc(0, packet, len);

	return packet[len] == (uint8_t)crc && packet[len + 1] == crc >> 8;
}

/* --- headers --- */

void vb_lrh_encode(uint8_t lrh[VB_LRH_LEN], const struct vb_lrh *h)
{
	struct vb_writer w = vb_writer(lrh, VB_LRH_LEN);

	vb_put8(&w, (uint8_t)(h->vl << 4 | (h->version & 15)));
	vb_put8(&w, (uint8_t)(h->sl << 4 | (h->next & 3)));
	vb_put16(&w, h->dlid);
	vb_put16(&w, h->words & 0x7ff);
	vb_put16(&w, h->slid);
}

void vb_lrh_decode(struct vb_lrh *h, const uint8_t lrh[VB_LRH_LEN])
{
	struct vb_reader r = vb_reader(lrh, VB_LRH_LEN);
	uint8_t a = vb_get8(&r), b = vb_get8(&r);

	*h = (struct vb_lrh){.vl = a >> 4, .version = a & 15, .sl = b >> 4, .next = b & 3};
	h->dlid = vb_get16(&r);
	h->words = vb_get16(&r) & 0x7ff;
	h->slid = vb_get16(&r);
}

static void put_grh_of(struct vb_writer *w, const struct vb_flow *flow, uint32_t changeable, uint8_t hop_limit,
                       size_t transport_len)
{
	vb_put32(w, (uint32_t)GRH_VERSION << 28 | changeable);
	vb_put16(w, (uint16_t)transport_len);
	vb_put8(w, VB_GRH_NEXT_HEADER);
	vb_put8(w, hop_limit);
	vb_put_bytes(w, flow->src, VB_GID_LEN);
	vb_put_bytes(w, flow->dst, VB_GID_LEN);
}

static size_t put_front(uint8_t front[VB_LINK_FRONT_MAX], const struct vb_flow *flow, uint8_t vl, uint32_t changeable,
                        uint8_t hop_limit, size_t transport_len)
{
	size_t len = vb_link_front_len(flow->link);
	struct vb_writer w = vb_writer(front + VB_LRH_LEN, VB_GRH_LEN);
	const struct vb_lrh lrh = {.vl = vl,
	                           .sl = flow->sl,
	                           .next = flow->link == VB_LINK_GLOBAL ? VB_LNH_GRH : VB_LNH_BTH,
	                           .dlid = flow->dlid,
	                           .slid = flow->slid,
	                           .words = (uint16_t)((len + transport_len) / 4)};

	vb_lrh_encode(front, &lrh);
	if (flow->link == VB_LINK_GLOBAL)
		put_grh_of(&w, flow, changeable, hop_limit, transport_len);
	return len;
}

size_t vb_link_front(uint8_t front[VB_LINK_FRONT_MAX], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                     size_t transport_len)
{
	return put_front(front, flow, 0, (uint32_t)ip->traffic_class << 20 | (ip->flow_label & VB_FLOW_LABEL_MASK),
	                 ip->hop_limit, transport_len);
}

size_t vb_link_front_masked(uint8_t front[VB_LINK_FRONT_MAX], const struct vb_flow *flow, size_t transport_len)
{
	return put_front(front, flow, 15, 0xfffffff, 0xff, transport_len);
}

void vb_lid_address(uint8_t gid[VB_GID_LEN], uint16_t lid)
{
	memset(gid, 0, VB_GID_LEN);
	gid[0] = 0xfe;
	gid[1] = 0x80;
	gid[14] = (uint8_t)(lid >> 8);
	gid[15] = (uint8_t)lid;
}

/* --- decoding --- */

static bool grh_fits(const uint8_t *grh, size_t transport_len)
{
	return (size_t)(grh[4] << 8 | grh[5]) == transport_len && grh[6] == VB_GRH_NEXT_HEADER;
}

enum vb_link_verdict vb_link_decode_trusted(struct vb_link_packet *p, const uint8_t *bytes, size_t len)
{
	*p = (struct vb_link_packet){.len = 0};
	if (len < VB_LRH_LEN)
		return VB_LINK_SHORT;
	vb_lrh_decode(&p->lrh, bytes);
	size_t covered = 4u * p->lrh.words;

	if (covered + VB_VCRC_LEN > len || covered < VB_LRH_LEN + VB_BTH_LEN + VB_ICRC_LEN)
		return VB_LINK_SHORT;
	p->len = covered + VB_VCRC_LEN;
	if (p->lrh.version)
		return VB_LINK_VERSION;
	if (p->lrh.next < VB_LNH_BTH)
		return VB_LINK_NEXT;
	p->global = p->lrh.next == VB_LNH_GRH;
	p->transport_at = p->global ? VB_LINK_FRONT_MAX : VB_LRH_LEN;
	if (covered < p->transport_at + VB_BTH_LEN + VB_ICRC_LEN)
		return VB_LINK_SHORT;
	p->transport_len = covered - p->transport_at;
	if (p->global && bytes[VB_LRH_LEN] >> 4 != GRH_VERSION)
		return VB_LINK_VERSION;
	if (p->global && !grh_fits(bytes + VB_LRH_LEN, p->transport_len))
		return VB_LINK_GRH;
	return VB_LINK_OK;
}

enum vb_link_verdict vb_link_decode(struct vb_link_packet *p, const uint8_t *bytes, size_t len)
{
	enum vb_link_verdict verdict = vb_link_decode_trusted(p, bytes, len);

	if (verdict != VB_LINK_OK || vcrc_is_right(bytes, p->len - VB_VCRC_LEN))
		return verdict;
	return VB_LINK_VCRC;
}

void vb_link_addresses(struct vb_flow *flow, struct vb_ip_fields *ip, const struct vb_link_packet *p,
                       const uint8_t *bytes)
{
	struct vb_reader r = vb_reader(bytes + VB_LRH_LEN, VB_GRH_LEN);

	*flow = (struct vb_flow){.slid = p->lrh.slid,
	                         .dlid = p->lrh.dlid,
	                         .sl = p->lrh.sl,
	                         .link = p->global ? VB_LINK_GLOBAL : VB_LINK_LOCAL};
	*ip = (struct vb_ip_fields){.hop_limit = 0};
	if (!p->global) {
		vb_lid_address(flow->src, p->lrh.slid);
		vb_lid_address(flow->dst, p->lrh.dlid);
		return;
	}
	uint32_t word = vb_get32(&r);

	ip->traffic_class = (uint8_t)(word >> 20);
	ip->flow_label = word & VB_FLOW_LABEL_MASK;
	ip->hop_limit = (uint8_t)vb_get32(&r);
	memcpy(flow->src, bytes + VB_LRH_LEN + 8, VB_GID_LEN);
	memcpy(flow->dst, bytes + VB_LRH_LEN + 24, VB_GID_LEN);
}
