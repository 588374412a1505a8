// auth.c - the messages of DH-HMAC-CHAP
// follows: NVM Express Base 2.0, 8.13.4 and 8.13.5.2 to 8.13.5.6
// SPDX-License-Identifier: MIT
#include "nvme/auth.h"

#include <string.h>

#include "nvme/le.h"

#define HEAD 8u   /* bytes before the descriptors of Negotiate */
#define FIXED 16u /* fixed part of the other messages */
#define DESCRIPTOR 64u
#define DHCHAP 1u /* authentication protocol identifier */
#define LIST_MAX 30u
#define AT_HASHES 4u
#define AT_GROUPS 34u

static const struct {
	const char *name;
	uint32_t length;
} hashes[] = {{NULL, 0}, {"sha256", 32}, {"sha384", 48}, {"sha512", 64}},
  groups[NV_DH_GROUPS] = {{"null", 0},        {"ffdhe2048", 256}, {"ffdhe3072", 384},
                          {"ffdhe4096", 512}, {"ffdhe6144", 768}, {"ffdhe8192", 1024}};

#define HASHES (sizeof(hashes) / sizeof(*hashes))

uint32_t nv_hash_length(uint8_t hash)
{
	return hash < HASHES ? hashes[hash].length : 0;
}

uint32_t nv_dh_length(uint8_t group)
{
	return group < NV_DH_GROUPS ? groups[group].length : 0;
}

int nv_hash_number(const char *name)
{
	for (size_t i = 1; i < HASHES; i++)
		if (!strcmp(name, hashes[i].name))
			return (int)i;
	return -1;
}

int nv_dh_group_number(const char *name)
{
	for (size_t i = 0; i < NV_DH_GROUPS; i++)
		if (!strcmp(name, groups[i].name))
			return (int)i;
	return -1;
}

const char *nv_auth_text(uint8_t why)
{
	static const char *const texts[] = {"unknown reason",
	                                    "authentication failed",
	                                    "authentication protocol not usable",
	                                    "secure channel concatenation mismatch",
	                                    "hash function not usable",
	                                    "DH group not usable",
	                                    "incorrect payload",
	                                    "incorrect protocol message"};

	return texts[why < sizeof(texts) / sizeof(*texts) ? why : 0];
}

int nv_auth_kind(const uint8_t *at, size_t len, uint16_t *tid)
{
	if (len < NV_FAILURE_LEN)
		return -1;
	*tid = nv_get16(at + 4);
	return at[0] << 8 | at[1];
}

static void begin_message(uint8_t *at, size_t len, enum nv_auth_message kind, uint16_t tid)
{
	memset(at, 0, len);
	at[0] = (uint8_t)(kind >> 8);
	at[1] = (uint8_t)kind;
	nv_put16(at + 4, tid);
}

/* ---- negotiate ---- */

static uint8_t put_list(uint8_t *at, uint8_t bits)
{
	uint8_t n = 0;

	for (uint8_t i = 0; i < 8; i++)
		if (bits & 1u << i)
			at[n++] = i;
	return n;
}

static uint8_t get_list(const uint8_t *at, uint8_t n)
{
	uint8_t bits = 0;

	for (uint8_t i = 0; i < n; i++)
		if (at[i] < 8)
			bits |= (uint8_t)(1u << at[i]);
	return bits;
}

size_t nv_negotiate_encode(const struct nv_negotiate *n, uint8_t *at)
{
	uint8_t *d = at + HEAD;

	begin_message(at, HEAD + DESCRIPTOR, NV_AUTH_NEGOTIATE, n->tid);
	at[6] = n->sc_c;
	at[7] = 1;
	d[0] = DHCHAP;
	d[2] = put_list(d + AT_HASHES, n->hashes);
	d[3] = put_list(d + AT_GROUPS, n->groups);
	return HEAD + DESCRIPTOR;
}

enum nv_auth_why nv_negotiate_decode(const uint8_t *at, size_t len, struct nv_negotiate *n)
{
	if (len < HEAD || !at[7] || len != HEAD + at[7] * DESCRIPTOR)
		return NV_AUTH_PAYLOAD;
	for (const uint8_t *d = at + HEAD; d < at + len; d += DESCRIPTOR) {
		if (d[0] != DHCHAP)
			continue;
		if (!d[2] || d[2] > LIST_MAX || !d[3] || d[3] > LIST_MAX)
			return NV_AUTH_PAYLOAD;
		*n = (struct nv_negotiate){.tid = nv_get16(at + 4),
		                           .sc_c = at[6],
		                           .hashes = get_list(d + AT_HASHES, d[2]),
		                           .groups = get_list(d + AT_GROUPS, d[3])};
		return NV_AUTH_OK;
	}
	return NV_AUTH_PROTOCOL;
}

/* ---- challenge ---- */

size_t nv_challenge_encode(const struct nv_challenge *c, uint8_t *at)
{
	uint32_t h = nv_hash_length(c->hash), g = nv_dh_length(c->group);

	begin_message(at, FIXED, NV_AUTH_CHALLENGE, c->tid);
	at[6] = (uint8_t)h;
	at[8] = c->hash;
	at[9] = c->group;
	nv_put16(at + 10, (uint16_t)g);
	nv_put32(at + 12, c->seq);
	memcpy(at + FIXED, c->challenge, h);
	if (g)
		memcpy(at + FIXED + h, c->exponential, g);
	return FIXED + h + g;
}

enum nv_auth_why nv_challenge_decode(const uint8_t *at, size_t len, struct nv_challenge *c)
{
	if (len < FIXED)
		return NV_AUTH_PAYLOAD;
	uint32_t h = nv_hash_length(at[8]), g = nv_dh_length(at[9]);

	if (!h)
		return NV_AUTH_HASH;
	if (at[9] >= NV_DH_GROUPS)
		return NV_AUTH_GROUP;
	if (at[6] != h || nv_get16(at + 10) != g || len < FIXED + h + g || !nv_get32(at + 12))
		return NV_AUTH_PAYLOAD;
	*c = (struct nv_challenge){.tid = nv_get16(at + 4),
	                           .hash = at[8],
	                           .group = at[9],
	                           .seq = nv_get32(at + 12),
	                           .challenge = at + FIXED,
	                           .exponential = g ? at + FIXED + h : NULL};
	return NV_AUTH_OK;
}

/* ---- reply ---- */

size_t nv_reply_encode(const struct nv_reply *r, uint8_t *at)
{
	uint32_t h = nv_hash_length(r->hash), g = nv_dh_length(r->group);

	begin_message(at, FIXED + 2 * h, NV_AUTH_REPLY, r->tid);
	at[6] = (uint8_t)h;
	at[8] = !!r->challenge;
	nv_put16(at + 10, (uint16_t)g);
	nv_put32(at + 12, r->seq);
	memcpy(at + FIXED, r->response, h);
	if (r->challenge)
		memcpy(at + FIXED + h, r->challenge, h);
	if (g)
		memcpy(at + FIXED + 2 * h, r->exponential, g);
	return FIXED + 2 * h + g;
}

enum nv_auth_why nv_reply_decode(const uint8_t *at, size_t len, struct nv_reply *r)
{
	uint32_t h = nv_hash_length(r->hash), g = nv_dh_length(r->group);

	if (len != FIXED + 2 * h + g || at[6] != h || at[8] > 1 || nv_get16(at + 10) != g)
		return NV_AUTH_PAYLOAD;
	r->tid = nv_get16(at + 4);
	r->seq = nv_get32(at + 12);
	r->response = at + FIXED;
	r->challenge = at[8] ? at + FIXED + h : NULL;
	r->exponential = g ? at + FIXED + 2 * h : NULL;
	return NV_AUTH_OK;
}

/* ---- success and failure ---- */

size_t nv_success1_encode(const struct nv_success1 *s, uint8_t *at)
{
	uint32_t h = nv_hash_length(s->hash);

	begin_message(at, FIXED + h, NV_AUTH_SUCCESS1, s->tid);
	at[6] = (uint8_t)h;
	at[8] = !!s->response;
	if (s->response)
		memcpy(at + FIXED, s->response, h);
	return FIXED + h;
}

enum nv_auth_why nv_success1_decode(const uint8_t *at, size_t len, struct nv_success1 *s)
{
	uint32_t h = nv_hash_length(s->hash);

	if (len < FIXED || at[6] != h || at[8] > 1 || (at[8] && len < FIXED + h))
		return NV_AUTH_PAYLOAD;
	s->tid = nv_get16(at + 4);
	s->response = at[8] ? at + FIXED : NULL;
	return NV_AUTH_OK;
}

size_t nv_success2_encode(uint16_t tid, uint8_t *at)
{
	begin_message(at, NV_SUCCESS2_LEN, NV_AUTH_SUCCESS2, tid);
	return NV_SUCCESS2_LEN;
}

size_t nv_failure_encode(enum nv_auth_message which, uint16_t tid, enum nv_auth_why why, uint8_t *at)
{
	begin_message(at, NV_FAILURE_LEN, which, tid);
	at[6] = 1;
	at[7] = (uint8_t)why;
	return NV_FAILURE_LEN;
}

uint8_t nv_failure_decode(const uint8_t *at, size_t len)
{
	return len < NV_FAILURE_LEN || at[6] != 1 ? 0 : at[7];
}
