// tls.h - NVMe/TCP inside TLS 1.3: the keys of both ends, and a connection that works like a nonblocking socket
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
#define NV_TLS_IDENTITY_MAX 255 /* limit of the context of HKDF-Expand-Label: longer names cannot have a key */
#define NV_TLS_RECORD 0x16      /* first byte of a client's first record; ICReq begins with 0 */

/* ---- keys ---- */

/* HKDF-Expand-Label of RFC 8446, 7.1, after HKDF-Extract without salt. False: label or context is too long. */
bool nv_hkdf(uint8_t hash, const uint8_t *key, size_t key_len, const char *label, const char *context, uint8_t *out,
             size_t len);

/*
 * The pre-shared key between two names, and its identity, a string that the client sends. hash is that of the cipher,
 * NV_SHA256 or NV_SHA384. Returns the key's length, or 0 if there is none.
 */
size_t nv_tls_psk(const struct nv_secret *s, uint8_t hash, const char *hostnqn, const char *subnqn,
                  char identity[NV_TLS_IDENTITY_MAX + 1], uint8_t psk[NV_TLS_PSK_MAX]);

/* ---- connections ---- */

struct nv_tls;

/* Finds the secret that two names share. False: there is none. */
typedef bool nv_tls_find(void *arg, const char *hostnqn, const char *subnqn, struct nv_secret *s);

/* fd is connected and remains the caller's. NULL: no memory. */
struct nv_tls *nv_tls_server(int fd, nv_tls_find *find_secret, void *arg);
struct nv_tls *nv_tls_client(int fd, const struct nv_secret *s, const char *hostnqn, const char *subnqn);
void nv_tls_close(struct nv_tls *t); /* sends close_notify if that does not block, and frees it */

/* 0: both ends have proven that they have the key. EAGAIN: call again when the descriptor is ready. Otherwise an
 * errno. */
int nv_tls_handshake(struct nv_tls *t);
const char *nv_tls_host(const struct nv_tls *t);      /* the host and … */
const char *nv_tls_subsystem(const struct nv_tls *t); /* … the subsystem of the key; "" before that */

/*
 * Like recvmsg and sendmsg on a nonblocking socket. Both continue the handshake. Data that write has accepted may still
 * be in memory. Then nv_tls_unsent is true, and another write, even of nothing, continues when the descriptor is
 * writable.
 */
ssize_t nv_tls_read(struct nv_tls *t, const struct iovec *v, int n);
ssize_t nv_tls_write(struct nv_tls *t, const struct iovec *v, int n);
bool nv_tls_unsent(const struct nv_tls *t);
bool nv_tls_unread(const struct nv_tls *t); /* read would return data, whatever the descriptor's state */

#endif
