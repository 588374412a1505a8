// siphash.c - a keyed hash of 64 bits
// follows: Aumasson, Bernstein: SipHash: a fast short-input PRF (INDOCRYPT 2012), SipHash-2-4
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <string.h>

#include "fabric/cable/siphash.h"

struct state {
	uint64_t v[4];
};

static uint64_t turn_left(uint64_t x, unsigned n)
{
	return x << n | x >> (64 - n);
}

static inline void sip_round(struct state *s)
{
	uint64_t *v = s->v;

	v[0] += v[1];
	v[2] += v[3];
	v[1] = turn_left(v[1], 13) ^ v[0];
	v[3] = turn_left(v[3], 16) ^ v[2];
	v[0] = turn_left(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = turn_left(v[1], 17) ^ v[2];
	v[3] = turn_left(v[3], 21) ^ v[0];
	v[2] = turn_left(v[2], 32);
}

static void take_word(struct state *s, uint64_t m)
{
	s->v[3] ^= m;
	sip_round(s);
	sip_round(s);
	s->v[0] ^= m;
}

/* Little-endian. */
static uint64_t word_of(const uint8_t *p)
{
	uint64_t m;

	memcpy(&m, p, sizeof(m));
	return le64toh(m);
}

/* Returns what is left: fewer than 8 bytes. */
static const uint8_t *take_words(struct state *s, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8)
		take_word(s, word_of(p));
	return p;
}

uint64_t vb_siphash(const struct vb_sip_key *key, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct state s = {{key->half[0] ^ 0x736f6d6570736575ull, key->half[1] ^ 0x646f72616e646f6dull,
	                   key->half[0] ^ 0x6c7967656e657261ull, key->half[1] ^ 0x7465646279746573ull}};

	take_words(&s, head, head_len);
	const uint8_t *rest = take_words(&s, body, body_len);
	uint8_t last[8] = {[7] = (uint8_t)(head_len + body_len)};

	for (size_t i = 0; i < body_len % 8; i++)
		last[i] = rest[i];
	take_word(&s, word_of(last));
	s.v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(&s);
	return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}
