// crc32c.c - the CRC of NVMe/TCP's digests: ISA-L where it is there, tables where it is not
// follows: RFC 3385 (Castagnoli polynomial 0x1EDC6F41, reflected)
// SPDX-License-Identifier: MIT
#include "nvme/crc32c.h"

#include <limits.h>
#include <pthread.h>

#include "nvme/le.h"

#define POLYNOMIAL 0x82f63b78u

static uint32_t tables[8][256];

static void fill(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (c & 1 ? POLYNOMIAL : 0);
		tables[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int k = 1; k < 8; k++)
			tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xff];
}

uint32_t nv_crc32c_portable(uint32_t crc, const void *bytes, size_t len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const uint8_t *at = bytes;

	pthread_once(&once, fill);
	crc = ~crc;
	for (; len >= 8; len -= 8, at += 8) {
		uint32_t low = crc ^ nv_get32(at), high = nv_get32(at + 4);

		crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^
		      tables[4][low >> 24] ^ tables[3][high & 0xff] ^ tables[2][high >> 8 & 0xff] ^
		      tables[1][high >> 16 & 0xff] ^ tables[0][high >> 24];
	}
	for (; len; len--, at++)
		crc = crc >> 8 ^ tables[0][(crc ^ *at) & 0xff];
	return ~crc;
}

#ifdef VB_HAVE_ISAL
#include <isa-l/crc.h>

uint32_t nv_crc32c(uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	for (crc = ~crc; len;) {
		int n = len < INT_MAX ? (int)len : INT_MAX;

		crc = crc32_iscsi((unsigned char *)(uintptr_t)at, n, crc);
		at += n;
		len -= (size_t)n;
	}
	return ~crc;
}
#else
uint32_t nv_crc32c(uint32_t crc, const void *bytes, size_t len)
{
	return nv_crc32c_portable(crc, bytes, len);
}
#endif
