// chap.c - the computations of DH-HMAC-CHAP, with OpenSSL
// follows: NVM Express Base 2.0, 8.13.5.3 to 8.13.5.8; RFC 2104 (HMAC), RFC 7919 (groups)
// SPDX-License-Identifier: MIT
#include "nvme/chap.h"

#include <limits.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/dh.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/le.h"
#include "nvme/nvme.h"

#define EXPONENT_BITS 512 /* at least 256 (Base 2.0, 8.13.5.3); twice the strength of the largest group would be 400 */

static const EVP_MD *chap_digest(uint8_t hash)
{
	return hash == NV_SHA256   ? EVP_sha256()
	       : hash == NV_SHA384 ? EVP_sha384()
	       : hash == NV_SHA512 ? EVP_sha512()
	                           : NULL;
}

bool nv_random(void *to, size_t len)
{
	return len <= INT_MAX && RAND_bytes(to, (int)len) == 1;
}

/* Starts at a random number and counts up; never 0. Base 2.0, 8.13.5.3 */
uint32_t nv_sequence(uint32_t last)
{
	for (int tries = 0; !last && tries < 8; tries++)
		if (!nv_random(&last, sizeof(last)))
			return 0;
	return last == UINT32_MAX ? 1 : last + !!last;
}

bool nv_chap_same(const uint8_t *a, const uint8_t *b, size_t len)
{
	return !CRYPTO_memcmp(a, b, len);
}

/* ---- Diffie-Hellman ---- */

struct nv_dh {
	EVP_PKEY *key;
};

static const char *group_name(uint8_t group)
{
	static const char *const names[NV_DH_GROUPS] = {NULL,         SN_ffdhe2048, SN_ffdhe3072,
	                                                SN_ffdhe4096, SN_ffdhe6144, SN_ffdhe8192};

	return group < NV_DH_GROUPS ? names[group] : NULL;
}

static EVP_PKEY *new_key(const char *group)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
	EVP_PKEY *key = NULL;
	int bits = EXPONENT_BITS;
	OSSL_PARAM params[] = {
	        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)(uintptr_t)group, 0),
	        OSSL_PARAM_construct_int(OSSL_PKEY_PARAM_DH_PRIV_LEN, &bits), OSSL_PARAM_construct_end()};

	if (ctx && EVP_PKEY_keygen_init(ctx) == 1 && EVP_PKEY_CTX_set_params(ctx, params) == 1)
		EVP_PKEY_generate(ctx, &key);
	EVP_PKEY_CTX_free(ctx);
	return key;
}

/* Writes as many bytes as the prime has, with leading zeros. */
static bool public_of(const EVP_PKEY *key, uint8_t *out, size_t len)
{
	BIGNUM *y = NULL;
	bool good = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PUB_KEY, &y) == 1 &&
	            BN_bn2binpad(y, out, (int)len) == (int)len;

	BN_free(y);
	return good;
}

bool nv_chap_exponential(struct nv_chap *c, uint8_t *out)
{
	const char *name = group_name(c->group);

	if (!name || c->dh || !(c->dh = calloc(1, sizeof(*c->dh))))
		return false;
	c->dh->key = new_key(name);
	return c->dh->key && public_of(c->dh->key, out, nv_dh_length(c->group));
}

/* True for 2 to p - 2. The primes are safe primes, so only 1 and p - 1 are in small subgroups. */
static bool exponential_in_range(const EVP_PKEY *key, const uint8_t *theirs, size_t len)
{
	BIGNUM *p = NULL, *y = BN_bin2bn(theirs, (int)len, NULL);
	bool good = y && EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_FFC_P, &p) == 1 && BN_sub_word(p, 1) &&
	            BN_cmp(y, BN_value_one()) > 0 && BN_cmp(y, p) < 0;

	BN_free(p);
	BN_free(y);
	return good;
}

static bool derive_secret(EVP_PKEY *ours, EVP_PKEY *theirs, uint8_t *out, size_t len)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(ours, NULL);
	size_t n = len;
	bool good = ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_CTX_set_dh_pad(ctx, 1) == 1 &&
	            EVP_PKEY_derive_set_peer_ex(ctx, theirs, 0) == 1 && EVP_PKEY_derive(ctx, out, &n) == 1 && n == len;

	EVP_PKEY_CTX_free(ctx);
	return good;
}

bool nv_chap_agree(struct nv_chap *c, const uint8_t *theirs)
{
	size_t len = nv_dh_length(c->group);
	uint8_t secret[NV_DH_MAX];
	EVP_PKEY *peer = EVP_PKEY_new();
	bool good = c->dh && peer && exponential_in_range(c->dh->key, theirs, len) &&
	            EVP_PKEY_copy_parameters(peer, c->dh->key) == 1 &&
	            EVP_PKEY_set1_encoded_public_key(peer, theirs, len) == 1 &&
	            derive_secret(c->dh->key, peer, secret, len) &&
	            EVP_Digest(secret, len, c->key, NULL, chap_digest(c->hash), NULL) == 1;

	EVP_PKEY_free(peer);
	OPENSSL_cleanse(secret, sizeof(secret));
	return good;
}

void nv_chap_wipe(struct nv_chap *c)
{
	if (c->dh)
		EVP_PKEY_free(c->dh->key);
	free(c->dh);
	OPENSSL_cleanse(c, sizeof(*c));
}

/* ---- hashes ---- */

static bool compute_hmac(uint8_t hash, const uint8_t *key, size_t key_len, const uint8_t *data, size_t len,
                         uint8_t *out)
{
	const EVP_MD *md = chap_digest(hash);

	return md && HMAC(md, key, (int)key_len, data, len, out, NULL);
}

/* Base 2.0, 8.13.5.8: HMAC(secret, NQN || "NVMe-over-Fabrics") */
size_t nv_secret_key(const struct nv_secret *s, const char *nqn, uint8_t out[NV_SECRET_MAX])
{
	static const char suffix[] = "NVMe-over-Fabrics";
	uint8_t text[NV_NQN_SIZE + sizeof(suffix)];
	size_t n = strlen(nqn);

	if (!s->length || n >= NV_NQN_SIZE)
		return 0;
	if (!s->hash) {
		memcpy(out, s->bytes, s->length);
		return s->length;
	}
	memcpy(text, nqn, n);
	memcpy(text + n, suffix, sizeof(suffix) - 1);
	return compute_hmac(s->hash, s->bytes, s->length, text, n + sizeof(suffix) - 1, out) ? nv_hash_length(s->hash)
	                                                                                     : 0;
}

/* The inputs of a response that differ between the two sides. */
struct side {
	const uint8_t *challenge;
	uint32_t seq;
	const char *who, *own, *other; /* "HostHost" or "Controller"; NQNs */
};

static size_t append_bytes(uint8_t *text, size_t at, const void *what, size_t len)
{
	memcpy(text + at, what, len);
	return at + len;
}

/* HMAC(K, Ca || S || T_ID || SC_C || who || NQN || 00h || the other NQN); with a group, Ca = HMAC(session key, C) */
static bool compute_response(const struct nv_chap *c, const struct nv_secret *s, const struct side *d,
                             uint8_t out[NV_HASH_MAX])
{
	uint8_t key[NV_SECRET_MAX], text[NV_HASH_MAX + 8 + 10 + 2 * NV_NQN_SIZE];
	size_t h = nv_hash_length(c->hash), key_len = nv_secret_key(s, d->own, key), n;
	bool good = key_len && strlen(d->other) < NV_NQN_SIZE;

	if (good && c->group)
		good = compute_hmac(c->hash, c->key, h, d->challenge, h, text);
	else
		memcpy(text, d->challenge, h);
	nv_put32(text + h, d->seq);
	nv_put16(text + h + 4, c->tid);
	text[h + 6] = 0; /* SC_C */
	n = good ? append_bytes(text, h + 7, d->who, strlen(d->who)) : 0;
	n = good ? append_bytes(text, n, d->own, strlen(d->own) + 1) : 0;
	n = good ? append_bytes(text, n, d->other, strlen(d->other)) : 0;
	good = good && compute_hmac(c->hash, key, key_len, text, n, out);
	OPENSSL_cleanse(key, sizeof(key));
	OPENSSL_cleanse(text, sizeof(text));
	return good;
}

bool nv_chap_host(const struct nv_chap *c, const struct nv_secret *s, const char *hostnqn, const char *subnqn,
                  uint8_t out[NV_HASH_MAX])
{
	return compute_response(c, s, &(struct side){c->c1, c->s1, "HostHost", hostnqn, subnqn}, out);
}

bool nv_chap_controller(const struct nv_chap *c, const struct nv_secret *s, const char *hostnqn, const char *subnqn,
                        uint8_t out[NV_HASH_MAX])
{
	return compute_response(c, s, &(struct side){c->c2, c->s2, "Controller", subnqn, hostnqn}, out);
}
