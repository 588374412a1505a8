// auth.h - the messages of DH-HMAC-CHAP, for both ends of a queue; no keys, no hashes
// follows: NVM Express Base 2.0, 8.13.4 (common messages), 8.13.5 (DH-HMAC-CHAP); NVMe over Fabrics 1.1, 3.1 and 3.2
// SPDX-License-Identifier: MIT
#ifndef NV_AUTH_H
#define NV_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Command dword 10 of Authentication Send and Receive: SECP E9h, SPSP1 1, SPSP0 1. Dword 11 is the length in bytes. */
#define NV_AUTH_CDW10 0xe9010100u
/* Connect returns these in the upper half of dword 0. */
#define NV_AUTHREQ_ATR (1u << 17)  /* authentication is required */
#define NV_AUTHREQ_ASCR (1u << 18) /* … with secure channel concatenation */

#define NV_HASH_MAX 64u
#define NV_DH_MAX 1024u
#define NV_AUTH_MAX (16u + 2 * NV_HASH_MAX + NV_DH_MAX) /* bytes of the longest message that we support */

enum nv_hash { NV_SHA256 = 1, NV_SHA384 = 2, NV_SHA512 = 3 };
enum nv_dh_group { NV_DH_NULL, NV_DH_2048, NV_DH_3072, NV_DH_4096, NV_DH_6144, NV_DH_8192, NV_DH_GROUPS };

/* Authentication type and identifier. */
enum nv_auth_message {
	NV_AUTH_NEGOTIATE = 0x0000,
	NV_AUTH_FAILURE2 = 0x00f0,
	NV_AUTH_FAILURE1 = 0x00f1,
	NV_AUTH_CHALLENGE = 0x0101,
	NV_AUTH_REPLY = 0x0102,
	NV_AUTH_SUCCESS1 = 0x0103,
	NV_AUTH_SUCCESS2 = 0x0104,
};

/* Reason code explanations; the reason code is always "authentication failure". */
enum nv_auth_why {
	NV_AUTH_OK,
	NV_AUTH_FAILED = 1,
	NV_AUTH_PROTOCOL = 2,
	NV_AUTH_CONCATENATION = 3,
	NV_AUTH_HASH = 4,
	NV_AUTH_GROUP = 5,
	NV_AUTH_PAYLOAD = 6,
	NV_AUTH_MESSAGE = 7,
};

uint32_t nv_hash_length(uint8_t hash);    /* 0: unknown hash */
uint32_t nv_dh_length(uint8_t group);     /* 0: NV_DH_NULL, or unknown group */
const char *nv_auth_text(uint8_t why);    /* text of an enum nv_auth_why */
int nv_hash_number(const char *name);     /* sha256 …; -1: unknown */
int nv_dh_group_number(const char *name); /* null, ffdhe2048 …; -1: unknown */

/* Returns the kind of a message, and its transaction in *tid. -1: too short for any message. */
int nv_auth_kind(const uint8_t *at, size_t len, uint16_t *tid);

/*
 * Encoders write the message, for which there must be NV_AUTH_MAX bytes, and return its length. Decoders return
 * NV_AUTH_OK or the reason why the message is rejected; the caller has checked its kind. Decoded pointers point into
 * the message. A host's message has exactly len bytes; a controller's may be followed by zeros.
 */
struct nv_negotiate {
	uint16_t tid;
	uint8_t sc_c;
	uint8_t hashes, groups; /* bits by number */
};
size_t nv_negotiate_encode(const struct nv_negotiate *n, uint8_t *at);
enum nv_auth_why nv_negotiate_decode(const uint8_t *at, size_t len, struct nv_negotiate *n);

struct nv_challenge {
	uint16_t tid;
	uint8_t hash, group;
	uint32_t seq;
	const uint8_t *challenge, *exponential; /* of the lengths of hash and group */
};
size_t nv_challenge_encode(const struct nv_challenge *c, uint8_t *at);
enum nv_auth_why nv_challenge_decode(const uint8_t *at, size_t len, struct nv_challenge *c);

struct nv_reply {
	uint16_t tid;
	uint8_t hash, group; /* as negotiated: the message does not repeat them */
	uint32_t seq;        /* 0: no proof is required of the controller */
	const uint8_t *response, *challenge /* NULL: none */, *exponential;
};
size_t nv_reply_encode(const struct nv_reply *r, uint8_t *at);
enum nv_auth_why nv_reply_decode(const uint8_t *at, size_t len, struct nv_reply *r); /* caller sets hash, group */

struct nv_success1 {
	uint16_t tid;
	uint8_t hash;
	const uint8_t *response; /* NULL: none */
};
size_t nv_success1_encode(const struct nv_success1 *s, uint8_t *at);
enum nv_auth_why nv_success1_decode(const uint8_t *at, size_t len, struct nv_success1 *s); /* the caller sets hash */

#define NV_SUCCESS2_LEN 16u
size_t nv_success2_encode(uint16_t tid, uint8_t *at);

#define NV_FAILURE_LEN 8u
size_t nv_failure_encode(enum nv_auth_message which, uint16_t tid, enum nv_auth_why why, uint8_t *at);
uint8_t nv_failure_decode(const uint8_t *at, size_t len);

#endif
