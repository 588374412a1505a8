// sip.h - a keyed hash of whole words, and a keyed permutation of numbers
// follows: Aumasson and Bernstein, SipHash (2012); Luby and Rackoff (1988), a permutation from four or more rounds
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_SIP_H
#define VB_UTIL_SIP_H

#include <stdint.h>

#define VB_SHUFFLE_ROUNDS 8

static inline uint64_t vb_sip_rotl(uint64_t x, int n)
{
	return x << n | x >> (64 - n);
}

static inline void vb_sip_round(uint64_t v[4])
{
	v[0] += v[1], v[1] = vb_sip_rotl(v[1], 13) ^ v[0], v[0] = vb_sip_rotl(v[0], 32);
	v[2] += v[3], v[3] = vb_sip_rotl(v[3], 16) ^ v[2];
	v[0] += v[3], v[3] = vb_sip_rotl(v[3], 21) ^ v[0];
	v[2] += v[1], v[1] = vb_sip_rotl(v[1], 17) ^ v[2], v[2] = vb_sip_rotl(v[2], 32);
}

static inline void vb_sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	vb_sip_round(v);
	vb_sip_round(v);
	v[0] ^= word;
}

/* SipHash-2-4 of n words. */
static inline uint64_t vb_sip(const uint64_t key[2], const uint64_t *words, int n)
{
	uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
	                 key[1] ^ 0x7465646279746573};

	for (int i = 0; i < n; i++)
		vb_sip_word(v, words[i]);
	vb_sip_word(v, (uint64_t)n << 59);
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		vb_sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The round function of the Feistel network. */
static inline uint32_t vb_shuffle_by(const uint64_t key[2], uint32_t round, uint32_t half)
{
	const uint64_t word = (uint64_t)round << 32 | half;

	return (uint32_t)vb_sip(key, &word, 1);
}

/* A permutation of the numbers of `bits` bits. bits is even. */
static inline uint32_t vb_shuffle(const uint64_t key[2], unsigned bits, uint32_t n)
{
	uint32_t mask = (1u << bits / 2) - 1, left = n >> bits / 2 & mask, right = n & mask;

	for (uint32_t i = 0; i < VB_SHUFFLE_ROUNDS; i++) {
		uint32_t next = (left ^ vb_shuffle_by(key, i, right)) & mask;

		left = right;
		right = next;
	}
	return left << bits / 2 | right;
}

/* The inverse. */
static inline uint32_t vb_unshuffle(const uint64_t key[2], unsigned bits, uint32_t n)
{
	uint32_t mask = (1u << bits / 2) - 1, left = n >> bits / 2 & mask, right = n & mask;

	for (uint32_t i = VB_SHUFFLE_ROUNDS; i--;) {
		uint32_t before = (right ^ vb_shuffle_by(key, i, left)) & mask;

		right = left;
		left = before;
	}
	return left << bits / 2 | right;
}

#endif
