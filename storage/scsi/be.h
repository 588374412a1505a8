// be.h - reads and writes big-endian integers; the caller checks bounds
// follows: SPC-4, 4.2 (bit and byte ordering)
// SPDX-License-Identifier: MIT
#ifndef SC_BE_H
#define SC_BE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t sc_get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t sc_get24(const uint8_t *at)
{
	return (uint32_t)at[0] << 16 | sc_get16(at + 1);
}

static inline uint32_t sc_get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return be32toh(v);
}

static inline uint64_t sc_get64(const uint8_t *at)
{
	uint64_t v;

	memcpy(&v, at, sizeof(v));
	return be64toh(v);
}

static inline void sc_put16(uint8_t *at, uint16_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

static inline void sc_put32(uint8_t *at, uint32_t v)
{
	v = htobe32(v);
	memcpy(at, &v, sizeof(v));
}

static inline void sc_put64(uint8_t *at, uint64_t v)
{
	v = htobe64(v);
	memcpy(at, &v, sizeof(v));
}

#endif
