// crc32c.c - the CRC of iSCSI, SCTP and MPA
// follows: RFC 5044, 4.4; RFC 3720, 12.1 and B.4 (polynomial, test vectors)
// SPDX-License-Identifier: MIT
#include "frame/crc32c.h"

#ifdef VB_HAVE_ISAL
#include <isa-l/crc.h>
#endif

/* As in crc32.c, of another polynomial. */
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
        ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
        ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
        ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
        ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
        ROW(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
        ROW(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
        ROW(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
        ROW(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t vb_crc32c_portable(uint32_t crc, const void *bytes, size_t len)
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

uint32_t vb_crc32c(uint32_t crc, const void *bytes, size_t len)
{
#ifdef VB_HAVE_ISAL
	return ~crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)len, ~crc);
#else
	return vb_crc32c_portable(crc, bytes, len);
#endif
}
