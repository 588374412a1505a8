// chap_test.c - secrets, messages and responses of DH-HMAC-CHAP, compared with values from other implementations
// follows: NVM Express Base 2.0, 8.13.5; RFC 7919, appendix A (the primes)
// SPDX-License-Identifier: MIT
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "../../support/check.h"
#include "nvme/chap.h"
#include "nvme/le.h"

#define HOSTNQN "nqn.2026-01.test:host"
#define SUBNQN "nqn.2026-01.test:one"

static uint8_t raw[64]; /* 00 11 … ff, again and again */

static void unhex(const char *hex, uint8_t *out)
{
	for (; *hex; hex += 2)
		sscanf(hex, "%2hhx", out++);
}

/* The output of nvme-cli 2.3: `nvme gen-dhchap-key -n nqn.2026-01.test:host -s 0011… -l LENGTH -m HASH` */
static const struct {
	const char *text;
	uint8_t length, hash;
} printed[] = {
        {"DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:", 32, 0},
        {"DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8PHi08S1ppeIeWpbTD0uHw+lbIKQ==:", 48, 0},
        {"DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8AESIzRFVmd4iZqrvM3e7/ABEiM0RVZneImaq7zN3u/7Xj9DM=:", 64,
         0},
        {"DHHC-1:01:O3n/ZbCI/WDi1riVIMg1GqhQ1O55egewVNEk9/ZQLPyt5+by:", 32, 1},
        {"DHHC-1:02:SEMOq6HgAN+6rlDZ8/qeZeQ6d/HfCyPWLg/TN5d4eB0eA4YtHzZb+jgsOgrHdsznbL2T8A==:", 48, 2},
        {"DHHC-1:03:1ttc6cyYcWulK5PJDvNNsA8aI0Tr9unaAY51zfInLzwOjT26+O6Y1LbV7R1B+Zv5Lu/40FDfiG5nfqir8XGi0H0CMB0=:", 64,
         3},
};

static void secrets_are_read_as_nvme_cli_prints_them(void)
{
	for (size_t i = 0; i < sizeof(printed) / sizeof(*printed); i++) {
		struct nv_secret s;

		CHECK(nv_secret_parse(printed[i].text, &s));
		SAME(s.length, printed[i].length);
		SAME(s.hash, printed[i].hash);
		if (!s.hash)
			CHECK(!memcmp(s.bytes, raw, 32));
	}
}

/* With a hash it prints the transformed secret: the same transformation gives our key. */
static void keys_are_made_as_nvme_cli_makes_them(void)
{
	for (size_t i = 3; i < 6; i++) {
		struct nv_secret s, made;
		uint8_t key[NV_SECRET_MAX];

		CHECK(nv_secret_parse(printed[i - 3].text, &s) && nv_secret_parse(printed[i].text, &made));
		s.hash = made.hash;
		SAME(nv_secret_key(&s, HOSTNQN, key), made.length);
		CHECK(!memcmp(key, made.bytes, made.length));
		s.hash = 0;
		SAME(nv_secret_key(&s, HOSTNQN, key), s.length);
		CHECK(!memcmp(key, s.bytes, s.length));
	}
}

static void other_texts_are_no_secrets(void)
{
	static const char *const bad[] = {
	        "",
	        "DHHC-1:",
	        "DHHC-1:0",
	        "DHHC-1:00:",
	        "DHHC-1:00::",
	        "DHHC-2:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:",
	        "DHHC-1:04:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:",
	        "DHHC-1:0/:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:x",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNV:", /* CRC */
	        "DHHC-1:00:BBEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMN:",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8q MNU:",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8=DMNU:",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wAR:",
	        "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8PHi08S1ppeIeWpbTD0uHw+lbIKR==:", /* another text for it */
	        "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"};
	struct nv_secret s = {.length = 7};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK(!nv_secret_parse(bad[i], &s) && s.length == 7);
	CHECK(nv_secret_parse("DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:\n", &s));
}

/* R1 and R2 from python3's hmac, with the NULL group and with a session key. */
static void responses_are_what_others_compute(void)
{
	static const struct {
		uint8_t hash;
		bool group;
		const char *r1, *r2;
	} want[] = {
	        {1, false, "cafe4064b11446b8017ffb1ec8b79f46ff2d07f1c27f533868558996ee2a5b7f",
	         "175bf92eb2b5ea52fbc9fb78f66a95a195315ce6be4bc1458eeb86843a1fcc3f"},
	        {1, true, "1e13f3690a7792b6fdb49c6c5ddf7d84b717b92668c8bd951de050a7910efb90",
	         "f0af3a20602382fbf697baba904d3dc530a05b4ad6796dc7cc024f21a4ddf4de"},
	        {2, false,
	         "7196c8aec513ce4219db6a27a1ab634bec41489f74fe0404b40e9f87c6535f89ed87601fba73007c589e0636254ecca4",
	         "0b38dbe7b0e224a35f3b79005a912d9bee4bb092cbd89fd356510ac921297d8d4f12a4537e9cf7f0b187be935c8d1fd4"},
	        {2, true,
	         "0d163fe60a26ed14eab7e780e3ddf0b503977f8802e1a53faa85557b1fa477fd2ef51672e6d2f1be826bdd7bb553c87e",
	         "24c58d08dce1a47b78ffeaa1be855890e962b55294ef2754b1252c134aae7f7cd2fe379953ae4d92bcdc39956ea7740f"},
	        {3, false,
	         "5fcaa9ec66ce43e2843ca5e3c92776bda5bcfb1d8cb6789b0ec24f9583a50a3b5e7e37751cee60d41a4d6df2664b73b593fce4d58c49dcd604a4ab11ad30e5a2",
	         "d8d2cf8dca22ce7ca2b0fdb189fd1d42d85596dc52cbf3c41e0335a6c54bd07f8ea38557b1fdbdf47ae00b66bb751b75a0f3a793d8ac9ea690ccf9d8536b2a11"},
	        {3, true,
	         "dbf3626e93cd639348dc6937f98aa0836810d02c099aad766cb41b0abf7c9312d3f24cf0c2a1708d11933c2b45747b99976ede4f8dd49c0c12a03c3e1a74bcf8",
	         "2a59971a2ac60728e941f790ca3e14d91e7e45815d95a13c220e7779a0e4f73043d5eb3b4465e624ebd711e8005f0ef551faf2baf70cfe731e76c54fd4da8a1b"}};

	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		struct nv_chap c = {.tid = 0x1234,
		                    .hash = want[i].hash,
		                    .group = want[i].group,
		                    .s1 = 0x01020304,
		                    .s2 = 0x0a0b0c0d};
		struct nv_secret s = {.length = 32, .hash = want[i].hash}, plain = {.length = 32};
		uint8_t r[NV_HASH_MAX], w[NV_HASH_MAX];

		for (int k = 0; k < (int)NV_HASH_MAX; k++)
			c.c1[k] = c.c2[k] = (uint8_t)k, c.key[k] = (uint8_t)(255 - k);
		memcpy(s.bytes, raw, 32);
		memcpy(plain.bytes, raw, 32);
		unhex(want[i].r1, w);
		CHECK(nv_chap_host(&c, &s, HOSTNQN, SUBNQN, r) && nv_chap_same(r, w, nv_hash_length(c.hash)));
		unhex(want[i].r2, w);
		CHECK(nv_chap_controller(&c, &plain, HOSTNQN, SUBNQN, r) && nv_chap_same(r, w, nv_hash_length(c.hash)));
	}
}

/* p = 2^b - 2^(b-64) + ([2^(b-130) e] + X) 2^64 - 1, with e as the sum of 1/k!. RFC 7919, appendix A */
static BIGNUM *prime(int bits, unsigned long x)
{
	BIGNUM *e = BN_new(), *term = BN_new(), *p = BN_new();

	CHECK(e && term && p && BN_set_bit(term, bits - 130 + 64));
	for (BN_ULONG k = 1; !BN_is_zero(term); k++) {
		CHECK(BN_add(e, e, term));
		BN_div_word(term, k);
	}
	CHECK(BN_rshift(e, e, 64) && BN_add_word(e, x) && BN_lshift(e, e, 64));
	CHECK(BN_set_bit(p, bits) && BN_add(p, p, e) && BN_sub_word(p, 1));
	BN_zero(term);
	CHECK(BN_set_bit(term, bits - 64) && BN_sub(p, p, term));
	BN_free(e);
	BN_free(term);
	return p;
}

static void the_groups_are_those_of_rfc_7919(void)
{
	static const unsigned long x[] = {0, 560316, 2625351, 5736041, 15705020, 10965728};
	static const char *const names[] = {"null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"};

	for (uint8_t g = NV_DH_2048; g < NV_DH_GROUPS; g++) {
		EVP_PKEY *key = NULL;
		OSSL_PARAM group[] = {OSSL_PARAM_construct_utf8_string("group", (char *)(uintptr_t)names[g], 0),
		                      OSSL_PARAM_construct_end()};
		EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
		BIGNUM *is = NULL, *want = prime((int)nv_dh_length(g) * 8, x[g]);

		SAME(nv_dh_group_number(names[g]), g);
		CHECK(ctx && EVP_PKEY_paramgen_init(ctx) == 1 && EVP_PKEY_CTX_set_params(ctx, group) == 1 &&
		      EVP_PKEY_paramgen(ctx, &key) == 1 && EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_FFC_P, &is) == 1);
		CHECK(!BN_cmp(is, want));
		BN_free(is);
		BN_free(want);
		EVP_PKEY_free(key);
		EVP_PKEY_CTX_free(ctx);
	}
}

static void both_ends_agree_on_a_key(void)
{
	for (uint8_t g = NV_DH_2048; g < NV_DH_GROUPS; g++) {
		struct nv_chap a = {.hash = NV_SHA384, .group = g}, b = a;
		static uint8_t ya[NV_DH_MAX], yb[NV_DH_MAX], none[NV_HASH_MAX];

		CHECK(nv_chap_exponential(&a, ya) && nv_chap_exponential(&b, yb));
		CHECK(nv_chap_agree(&a, yb) && nv_chap_agree(&b, ya));
		CHECK(!memcmp(a.key, b.key, 48) && memcmp(a.key, none, 48));
		CHECK(!nv_chap_exponential(&a, ya)); /* used once */
		nv_chap_wipe(&a);
		nv_chap_wipe(&b);
		CHECK(!memcmp(a.key, none, 48) && !a.dh);
	}
}

static void exponentials_out_of_range_are_refused(void)
{
	BIGNUM *p = prime(2048, 560316);
	struct nv_chap c = {.hash = NV_SHA256, .group = NV_DH_2048};
	uint8_t ours[NV_DH_MAX], y[256] = {0};

	CHECK(nv_chap_exponential(&c, ours));
	CHECK(!nv_chap_agree(&c, y)); /* 0 */
	y[255] = 1;
	CHECK(!nv_chap_agree(&c, y));
	y[255] = 2;
	CHECK(nv_chap_agree(&c, y));
	for (int i = 0; i < 2; i++) { /* p, p - 1 */
		SAME(BN_bn2binpad(p, y, 256), 256);
		CHECK(!nv_chap_agree(&c, y) && BN_sub_word(p, 1));
	}
	SAME(BN_bn2binpad(p, y, 256), 256); /* p - 2 */
	CHECK(nv_chap_agree(&c, y));
	memset(y, 0xff, sizeof(y));
	CHECK(!nv_chap_agree(&c, y));
	BN_free(p);
	nv_chap_wipe(&c);
}

static void sequence_numbers_are_never_zero(void)
{
	CHECK(nv_sequence(0));
	SAME(nv_sequence(7), 8);
	SAME(nv_sequence(UINT32_MAX), 1);
}

/* ---- messages ---- */

static uint8_t at[NV_AUTH_MAX + 64], filler[NV_DH_MAX];

static void messages_come_back_as_they_were(void)
{
	uint16_t tid;

	for (uint8_t h = NV_SHA256; h <= NV_SHA512; h++)
		for (uint8_t g = NV_DH_NULL; g < NV_DH_GROUPS; g++) {
			struct nv_negotiate n = {.tid = 9, .hashes = (uint8_t)(1u << h), .groups = (uint8_t)(1u << g)},
			                    n2;
			struct nv_challenge c = {9, h, g, 5, filler, filler}, c2;
			struct nv_reply r = {9, h, g, 6, filler, filler, filler}, r2 = {.hash = h, .group = g};
			struct nv_success1 s = {9, h, filler}, s2 = {.hash = h};
			size_t len = nv_negotiate_encode(&n, at);

			SAME(nv_auth_kind(at, len, &tid), NV_AUTH_NEGOTIATE);
			SAME(tid, 9);
			SAME(nv_negotiate_decode(at, len, &n2), NV_AUTH_OK);
			CHECK(n2.hashes == n.hashes && n2.groups == n.groups && !n2.sc_c);
			len = nv_challenge_encode(&c, at);
			SAME(len, 16 + nv_hash_length(h) + nv_dh_length(g));
			SAME(nv_challenge_decode(at, len, &c2), NV_AUTH_OK);
			CHECK(c2.hash == h && c2.group == g && c2.seq == 5 && !c2.exponential == !g);
			SAME(nv_challenge_decode(at, len - 1, &c2), NV_AUTH_PAYLOAD);
			len = nv_reply_encode(&r, at);
			CHECK(len <= NV_AUTH_MAX);
			SAME(nv_reply_decode(at, len, &r2), NV_AUTH_OK);
			CHECK(r2.challenge == at + 16 + nv_hash_length(h) && r2.seq == 6);
			SAME(nv_reply_decode(at, len - 1, &r2), NV_AUTH_PAYLOAD);
			SAME(nv_reply_decode(at, len + 1, &r2), NV_AUTH_PAYLOAD);
			len = nv_success1_encode(&s, at);
			SAME(nv_success1_decode(at, len, &s2), NV_AUTH_OK);
			CHECK(s2.response);
			SAME(nv_success1_decode(at, len - 1, &s2), NV_AUTH_PAYLOAD);
		}
}

/* As sent by Linux 6.1: 72 bytes, all hashes, all groups. */
static void a_negotiation_is_read_from_its_bytes(void)
{
	uint8_t m[8 + 64] = {0x00, 0x00, 0, 0, 0x02, 0x00, 0x00, 1, 1, 0, 3, 6, 1, 2, 3};
	struct nv_negotiate n;

	memcpy(m + 8 + 34, "\0\1\2\3\4\5", 6);
	SAME(nv_negotiate_decode(m, sizeof(m), &n), NV_AUTH_OK);
	SAME(n.tid, 2);
	SAME(n.hashes, 0x0e);
	SAME(n.groups, 0x3f);
	m[8 + 2] = 31;
	SAME(nv_negotiate_decode(m, sizeof(m), &n), NV_AUTH_PAYLOAD);
	m[8 + 2] = 0;
	SAME(nv_negotiate_decode(m, sizeof(m), &n), NV_AUTH_PAYLOAD);
	m[8 + 2] = 1;
	m[8 + 4] = 0xff; /* an unknown hash */
	SAME(nv_negotiate_decode(m, sizeof(m), &n), NV_AUTH_OK);
	SAME(n.hashes, 0);
	m[8] = 2;
	SAME(nv_negotiate_decode(m, sizeof(m), &n), NV_AUTH_PROTOCOL);
	m[7] = 0;
	SAME(nv_negotiate_decode(m, 8, &n), NV_AUTH_PAYLOAD);
	m[7] = 2;
	SAME(nv_negotiate_decode(m, sizeof(m), &n), NV_AUTH_PAYLOAD);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(raw); i++)
		raw[i] = (uint8_t)(i % 16 * 0x11);
	RUN(secrets_are_read_as_nvme_cli_prints_them);
	RUN(keys_are_made_as_nvme_cli_makes_them);
	RUN(other_texts_are_no_secrets);
	RUN(responses_are_what_others_compute);
	RUN(the_groups_are_those_of_rfc_7919);
	RUN(both_ends_agree_on_a_key);
	RUN(exponentials_out_of_range_are_refused);
	RUN(sequence_numbers_are_never_zero);
	RUN(messages_come_back_as_they_were);
	RUN(a_negotiation_is_read_from_its_bytes);
	return 0;
}
