// crc_slices.h - reflected CRCs of 32 bits by tables, eight bytes at a time, for crc32.c and crc32c.c
// follows: Kounavis and Berry, "slicing by 8"
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CRC_SLICES_H
#define VB_FRAME_CRC_SLICES_H

#include <stddef.h>
#include <stdint.h>

/*
 * Eight tables, so that eight bytes need eight independent look-ups: table[k][i] is the register after byte i and k
 * zero bytes. It is linear in i, so an entry is the sum of the entries of its single bits. Those are successive powers
 * of x modulo the polynomial, bits reversed.
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

static inline uint32_t vb_crc_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* crc: that of the bytes before, 0 at the start. */
static inline uint32_t vb_crc_slices(const uint32_t table[8][256], uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	crc = ~crc;
	for (; len >= 8; p += 8, len -= 8) {
		uint32_t a = crc ^ vb_crc_le32(p), b = vb_crc_le32(p + 4);

		crc = table[7][a & 0xff] ^ table[6][a >> 8 & 0xff] ^ table[5][a >> 16 & 0xff] ^ table[4][a >> 24] ^
		      table[3][b & 0xff] ^ table[2][b >> 8 & 0xff] ^ table[1][b >> 16 & 0xff] ^ table[0][b >> 24];
	}
	for (; len > 0; p++, len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
	return ~crc;
}

#endif
