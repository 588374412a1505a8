// tls.h - NVMe/TCP inside of TLS 1.3: keys of both ends, and a connection that is used like a socket which never waits
// follows: NVMe/TCP transport specification 1.0, 3.6.1 (transport layer security); RFC 8446
// SPDX-License-Identifier: MIT
#ifndef NV_TLS_H
#define NV_TLS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "nvme/auth.h"
#include "nvme/nvme.h"
#include "nvme/secret.h"

#define NV_TLS_PSK_MAX 48
#define NV_TLS_IDENTITY_MAX 255 /* as context of HKDF-Expand-Label: two names that are longer cannot have a key */
#define NV_TLS_RECORD 0x16      /* the first byte of a client's first record; of ICReq it is 0 */

/* ---- keys ---- */

/* HKDF-Expand-Label of RFC 8446, 7.1, out of HKDF-Extract with no salt. false: a label or context too long */
bool nv_hkdf(uint8_t hash, const uint8_t *key, size_t key_len, const char *label, const char *context, uint8_t *out,
             size_t len);

/*
 * What TLS is to use between two names: the identity that the client names, ending in a zero, and the key. hash:
 * NV_SHA256 or NV_SHA384, that of the cipher. The key's length, 0: there is none.
 */
size_t nv_tls_psk(const struct nv_secret *s, uint8_t hash, const char *hostnqn, const char *subnqn,
                  char identity[NV_TLS_IDENTITY_MAX + 1], uint8_t psk[NV_TLS_PSK_MAX]);

/* ---- connections ---- */

struct nv_tls;

/* The secret that two names have in common. false: none. */
typedef bool nv_tls_find(void *arg, const char *hostnqn, const char *subnqn, struct nv_secret *s);

/* On a connected descriptor, which remains the caller's. NULL: no memory. */
struct nv_tls *nv_tls_server(int fd, nv_tls_find *find_secret, void *arg);
struct nv_tls *nv_tls_client(int fd, const struct nv_secret *s, const char *hostnqn, const char *subnqn);
void nv_tls_close(struct nv_tls *t); /* sends close_notify if that does not block, and frees it */

/* 0: both ends have shown that they have the key. EAGAIN: when the descriptor is ready, again. Else errno */
int nv_tls_handshake(struct nv_tls *t);
const char *nv_tls_host(const struct nv_tls *t);      /* whose key it was, and … */
const char *nv_tls_subsystem(const struct nv_tls *t); /* … what it is for; "" before the handshake is done */

/*
 * As recvmsg and sendmsg on a socket that does not block; both bring the handshake forward. What write has taken may
 * still be here: nv_tls_unsent then, and write (of nothing, too) goes on with it when the descriptor is writable.
 */
ssize_t nv_tls_read(struct nv_tls *t, const struct iovec *v, int n);
ssize_t nv_tls_write(struct nv_tls *t, const struct iovec *v, int n);
bool nv_tls_unsent(const struct nv_tls *t);
bool nv_tls_unread(const struct nv_tls *t); /* read would return data, whatever the descriptor's state */

#endif
