// crc32.c - the CRC of Ethernet, zlib, and the ICRC
// follows: IEEE 802.3 3.2.9; zlib's crc32() for seed and result
// SPDX-License-Identifier: MIT
#include "frame/crc32.h"

#include <stdbool.h>
#include <string.h>

#include "frame/crc_slices.h"

#ifdef VB_HAVE_ISAL
#include <isa-l/crc.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define SHORT 128u /* bytes; longer ones are faster by libisal */

static const uint32_t table[8][256] = {
        ROW(0x77073096, 0xee0e612c, 0x076dc419, 0x0edb8832, 0x1db71064, 0x3b6e20c8, 0x76dc4190, 0xedb88320),
        ROW(0x191b3141, 0x32366282, 0x646cc504, 0xc8d98a08, 0x4ac21251, 0x958424a2, 0xf0794f05, 0x3b83984b),
        ROW(0x01c26a37, 0x0384d46e, 0x0709a8dc, 0x0e1351b8, 0x1c26a370, 0x384d46e0, 0x709a8dc0, 0xe1351b80),
        ROW(0xb8bc6765, 0xaa09c88b, 0x8f629757, 0xc5b428ef, 0x5019579f, 0xa032af3e, 0x9b14583d, 0xed59b63b),
        ROW(0x3d6029b0, 0x7ac05360, 0xf580a6c0, 0x30704bc1, 0x60e09782, 0xc1c12f04, 0x58f35849, 0xb1e6b092),
        ROW(0xcb5cd3a5, 0x4dc8a10b, 0x9b914216, 0xec53826d, 0x03d6029b, 0x07ac0536, 0x0f580a6c, 0x1eb014d8),
        ROW(0xa6770bb4, 0x979f1129, 0xf44f2413, 0x33ef4e67, 0x67de9cce, 0xcfbd399c, 0x440b7579, 0x8816eaf2),
        ROW(0xccaa009e, 0x4225077d, 0x844a0efa, 0xd3e51bb5, 0x7cbb312b, 0xf9766256, 0x299dc2ed, 0x533b85da),
};

uint32_t vb_crc32_portable(uint32_t crc, const void *bytes, size_t len)
{
	return vb_crc_slices(table, crc, bytes, len);
}

#if defined(__x86_64__)
/* Multiplies 8 bytes by x^32, and reduces the product. The constants are floor(x^96 / P) without x^64, and P without x^32,
 * bits reversed. The result is in the low half of the register. */
__attribute__((target("pclmul"), hot)) static inline __m128i reduce_word(__m128i x)
{
	const __m128i k = _mm_set_epi64x(0x1db710640, (long long)0xb4e5b025f7011640);

	x = _mm_xor_si128(x, _mm_clmulepi64_si128(x, k, 0x00));
	return _mm_srli_si128(_mm_clmulepi64_si128(x, k, 0x10), 8);
}

/* For a few words; len is a multiple of 4. libisal needs fewer cycles for the sum, but more for its pages of code and
 * tables (docs/performance.md). */
__attribute__((target("pclmul"), hot)) static uint32_t crc_of_words(uint32_t crc, const uint8_t *at, size_t len)
{
	__m128i c = _mm_cvtsi32_si128((int)~crc);
	uint64_t eight;
	uint32_t four;

	for (; len >= 8; at += 8, len -= 8) {
		memcpy(&eight, at, 8);
		c = reduce_word(_mm_xor_si128(c, _mm_cvtsi64_si128((long long)eight)));
	}
	if (len) {
		memcpy(&four, at, 4);
		c = reduce_word(_mm_slli_epi64(_mm_xor_si128(c, _mm_cvtsi32_si128((int)four)), 32));
	}
	return ~(uint32_t)_mm_cvtsi128_si32(c);
}

static inline bool is_short(size_t len)
{
	return len <= SHORT && len % 4 == 0 && __builtin_cpu_supports("pclmul");
}
#else
static inline bool is_short(size_t len)
{
	return false;
}

static uint32_t crc_of_words(uint32_t crc, const uint8_t *at, size_t len)
{
	return vb_crc32_portable(crc, at, len);
}
#endif

__attribute__((hot)) uint32_t vb_crc32(uint32_t crc, const void *bytes, size_t len)
{
	if (is_short(len))
		return crc_of_words(crc, bytes, len);
#ifdef VB_HAVE_ISAL
	return crc32_gzip_refl(crc, bytes, len);
#else
	return vb_crc32_portable(crc, bytes, len);
#endif
}

uint32_t vb_crc32_multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		product ^= b & -(a >> 31);
		b = b >> 1 ^ (0xedb88320 & -(b & 1));
	}
	return product;
}

/* x^n modulo the polynomial, shifted by one bit, as a carry-less product of reversed bits requires it. */
static uint64_t power_of_x(size_t n)
{
	uint32_t p = 0x80000000, square = 0x40000000;

	for (; n; n >>= 1) {
		if (n & 1)
			p = vb_crc32_multiply(p, square);
		square = vb_crc32_multiply(square, square);
	}
	return (uint64_t)p << 1;
}

struct vb_crc32_powers vb_crc32_powers(size_t n)
{
	return (struct vb_crc32_powers){{power_of_x(8 * n + 32), power_of_x(8 * n - 32)}};
}

#if defined(__x86_64__)
/* Multiplies the head, with the CRC of the bytes before it, by x^(8n), and adds the sum of the n bytes. That leaves 16
 * bytes, which are reduced to 12, to 8, and by Barrett reduction to 4. */
__attribute__((target("pclmul"))) uint32_t vb_crc32_summed(uint32_t crc, const uint32_t head[3], const uint64_t sum[2],
                                                           const struct vb_crc32_powers *powers)
{
	const __m128i low = _mm_set_epi32(0, 0, 0, -1), by = _mm_set_epi64x(0x0ccaa009e, 0x163cd6124);
	const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641),
	              p = _mm_loadu_si128((const __m128i *)powers->v);
	__m128i h = _mm_set_epi32((int)head[2], (int)head[1], (int)(head[0] ^ ~crc), 0);
	__m128i x = _mm_loadu_si128((const __m128i *)sum), y;

	x = _mm_xor_si128(x, _mm_xor_si128(_mm_clmulepi64_si128(h, p, 0x00), _mm_clmulepi64_si128(h, p, 0x11)));
	x = _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x10), _mm_srli_si128(x, 8));
	x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low), by, 0x00), _mm_srli_si128(x, 4));
	y = _mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x10);
	y = _mm_clmulepi64_si128(_mm_and_si128(y, low), barrett, 0x00);
	return ~(uint32_t)_mm_cvtsi128_si32(_mm_srli_si128(_mm_xor_si128(x, y), 4));
}
#else
uint32_t vb_crc32_summed(uint32_t crc, const uint32_t head[3], const uint64_t sum[2],
                         const struct vb_crc32_powers *powers)
{
	(void)head, (void)sum, (void)powers;
	return crc;
}
#endif
