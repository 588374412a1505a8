// crc32.c - the CRC of Ethernet, zlib, and the ICRC
// follows: IEEE 802.3 3.2.9; zlib's crc32() for seed and result
// SPDX-License-Identifier: MIT
#include "frame/crc32.h"

#ifdef VB_HAVE_ISAL
#include <isa-l/crc.h>
#endif

/*
 * Eight tables, so that eight bytes are eight independent look-ups: table[k][i] is what byte i leaves in the register
 * when k more bytes of zeros have followed it. It is linear in i: a row is made of what its eight bits leave, and
 * these are successive powers of x, modulo the polynomial, bits reversed.
 */
#define BIT(i, n, c) ((i) >> (n)&1 ? (c) : 0)
#define ENTRY(i, c0, c1, c2, c3, c4, c5, c6, c7)                                                         \
	(BIT(i, 0, c0) ^ BIT(i, 1, c1) ^ BIT(i, 2, c2) ^ BIT(i, 3, c3) ^ BIT(i, 4, c4) ^ BIT(i, 5, c5) ^ \
	 BIT(i, 6, c6) ^ BIT(i, 7, c7))
#define ENTRIES4(i, ...) \
	ENTRY(i, __VA_ARGS__), ENTRY(i + 1, __VA_ARGS__), ENTRY(i + 2, __VA_ARGS__), ENTRY(i + 3, __VA_ARGS__)
#define ENTRIES16(i, ...)                                                                     \
	ENTRIES4(i, __VA_ARGS__), ENTRIES4(i + 4, __VA_ARGS__), ENTRIES4(i + 8, __VA_ARGS__), \
	        ENTRIES4(i + 12, __VA_ARGS__)
#define ENTRIES64(i, ...)                                                                          \
	ENTRIES16(i, __VA_ARGS__), ENTRIES16(i + 16, __VA_ARGS__), ENTRIES16(i + 32, __VA_ARGS__), \
	        ENTRIES16(i + 48, __VA_ARGS__)
#define ROW(...)                                                                                    \
	{                                                                                           \
		ENTRIES64(0, __VA_ARGS__), ENTRIES64(64, __VA_ARGS__), ENTRIES64(128, __VA_ARGS__), \
		        ENTRIES64(192, __VA_ARGS__)                                                 \
	}

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

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t vb_crc32_portable(uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	crc = ~crc;
	for (; len >= 8; p += 8, len -= 8) {
		uint32_t a = crc ^ le32(p), b = le32(p + 4);

		crc = table[7][a & 0xff] ^ table[6][a >> 8 & 0xff] ^ table[5][a >> 16 & 0xff] ^ table[4][a >> 24] ^
		      table[3][b & 0xff] ^ table[2][b >> 8 & 0xff] ^ table[1][b >> 16 & 0xff] ^ table[0][b >> 24];
	}
	for (; len > 0; p++, len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
	return ~crc;
}

uint32_t vb_crc32(uint32_t crc, const void *bytes, size_t len)
{
#ifdef VB_HAVE_ISAL
	return crc32_gzip_refl(crc, bytes, len);
#else
	return vb_crc32_portable(crc, bytes, len);
#endif
}
