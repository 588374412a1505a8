// secret.h - the text forms of secrets that administrators exchange
// follows: NVM Express Base 2.0, 8.13.5.8 (DHHC-1); NVMe/TCP transport specification 1.0, 3.6.1.5 (NVMeTLSkey-1)
// SPDX-License-Identifier: MIT
#ifndef NV_SECRET_H
#define NV_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NV_SECRET_MAX 64
#define NV_SECRET_TEXT_MAX 128 /* of either form, with its zero */

/* The bytes, and the hash that derives the key from them: 0 for none, or an enum nv_hash. length 0: no secret. */
struct nv_secret {
	uint8_t bytes[NV_SECRET_MAX];
	uint8_t length, hash;
};

/* "DHHC-1:hh:BASE64:" of 32, 48 or 64 bytes, and "NVMeTLSkey-1:hh:BASE64:" of 32 or 48. White space after it is
 * ignored. On failure returns false and leaves *out untouched. */
bool nv_secret_parse(const char *text, struct nv_secret *out);
bool nv_tls_key_parse(const char *text, struct nv_secret *out);

bool nv_secret_same(const struct nv_secret *a, const struct nv_secret *b);
void nv_secret_wipe(struct nv_secret *s);

/* Reads the first line of a file, as a string. 0 or errno; EINVAL: it is empty or too long; EPERM: everybody can write
 * to the file. */
int nv_secret_file(const char *path, char text[NV_SECRET_TEXT_MAX]);
bool nv_secret_exposed(const char *path); /* true if everybody can read the file */

#endif
