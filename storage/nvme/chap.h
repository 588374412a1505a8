// chap.h - the computations of DH-HMAC-CHAP: exponentials, challenges, responses
// follows: NVM Express Base 2.0, 8.13.5.3 to 8.13.5.8; RFC 2104 (HMAC), RFC 7919 (groups)
// SPDX-License-Identifier: MIT
#ifndef NV_CHAP_H
#define NV_CHAP_H

#include "nvme/auth.h"
#include "nvme/secret.h"

struct nv_dh; /* an exponential of ours, used once */

/* The state of a transaction, the same at both ends except for dh. */
struct nv_chap {
	uint16_t tid;
	uint8_t hash, group;
	uint32_t s1, s2; /* sequence numbers: the controller's, the host's */
	uint8_t c1[NV_HASH_MAX], c2[NV_HASH_MAX];
	uint8_t key[NV_HASH_MAX]; /* the session key: the hash of the shared secret */
	struct nv_dh *dh;
};

bool nv_random(void *to, size_t len);
uint32_t nv_sequence(uint32_t last); /* the number after last (0: the first). 0: no random number */

/* Makes our exponential, of the group's length. False: no memory, or unknown group. */
bool nv_chap_exponential(struct nv_chap *c, uint8_t *out);
/* Computes the session key from the peer's exponential. False if that is 0, 1, or p - 1 or more, or if there is no
 * memory. */
bool nv_chap_agree(struct nv_chap *c, const uint8_t *theirs);

/* The responses: R1 of the host, with its secret, and R2 of the controller, with the controller's secret. */
bool nv_chap_host(const struct nv_chap *c, const struct nv_secret *s, const char *hostnqn, const char *subnqn,
                  uint8_t out[NV_HASH_MAX]);
bool nv_chap_controller(const struct nv_chap *c, const struct nv_secret *s, const char *hostnqn, const char *subnqn,
                        uint8_t out[NV_HASH_MAX]);
bool nv_chap_same(const uint8_t *a, const uint8_t *b, size_t len); /* in constant time */

/* Derives the key for this NQN from the secret with its hash. Returns its length, or 0 on failure. */
size_t nv_secret_key(const struct nv_secret *s, const char *nqn, uint8_t out[NV_SECRET_MAX]);

void nv_chap_wipe(struct nv_chap *c); /* frees and wipes everything */

#endif
