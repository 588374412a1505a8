// le.h - reads and writes little-endian integers; the caller checks bounds
// follows: NVM Express Base 1.4, 1.6 (byte, word and dword relationships)
// SPDX-License-Identifier: MIT
#ifndef NV_LE_H
#define NV_LE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t nv_get16(const uint8_t *at)
{
	uint16_t v;

	memcpy(&v, at, sizeof(v));
	return le16toh(v);
}

static inline uint32_t nv_get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static inline uint64_t nv_get64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

static inline void nv_put16(uint8_t *at, uint16_t v)
{
	v = htole16(v);
	memcpy(at, &v, sizeof(v));
}

static inline void nv_put32(uint8_t *at, uint32_t v)
{
	v = htole32(v);
	memcpy(at, &v, sizeof(v));
}

static inline void nv_put64(uint8_t *at, uint64_t v)
{
	v = htole64(v);
	memcpy(at, &v, sizeof(v));
}

#endif
