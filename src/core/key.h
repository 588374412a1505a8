// key.h - memory keys: unique on the host, not to be guessed, each with a generation
// follows: IBA volume 1, 10.6 (memory keys)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_KEY_H
#define VB_CORE_KEY_H

#include <stdint.h>

/* lane:10 generation:4 index:18, scrambled by a keyed permutation of 32 bits: a Feistel network of four rounds. */
static inline uint32_t vb_key_round(uint32_t half, uint64_t secret, int round)
{
	uint32_t x = half ^ (uint32_t)(secret >> (round * 16)) ^ ((uint32_t)round * 0x9e37u);
	x = (x & 0xffff) * 0x85ebca6bu + (uint32_t)(secret >> 32);
	return (x >> 13) & 0xffff;
}

static inline uint32_t vb_key_scramble(uint32_t plain, uint64_t secret)
{
	uint32_t l = plain >> 16, r = plain & 0xffff;
	for (int i = 0; i < 4; i++) {
		uint32_t t = l ^ vb_key_round(r, secret, i & 3);
		l = r;
		r = t;
	}
	return l << 16 | r;
}

static inline uint32_t vb_key_plain(uint32_t key, uint64_t secret)
{
	uint32_t l = key >> 16, r = key & 0xffff;
	for (int i = 3; i >= 0; i--) {
		uint32_t t = r ^ vb_key_round(l, secret, i & 3);
		r = l;
		l = t;
	}
	return l << 16 | r;
}

#define VB_KEY_INDEX(plain) ((plain) & 0x3ffff)
#define VB_KEY_PLAIN(lane, gen, index) ((uint32_t)(lane) << 22 | ((uint32_t)(gen) & 15) << 18 | ((index) & 0x3ffff))

#endif
