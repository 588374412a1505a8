// tls.c - NVMe/TCP inside TLS 1.3, with OpenSSL: pre-shared keys only, with an ephemeral key exchange
// follows: NVMe/TCP transport specification 1.0, 3.6.1; RFC 8446, 4.2.11 (pre-shared keys), 7.1; RFC 5869 (HKDF)
// SPDX-License-Identifier: MIT
#include "nvme/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "nvme/nqn.h"

#define STAGE 16384u       /* one record */
#define RECORDS (1u << 23) /* records with one key: a third of AES-GCM's limit. RFC 8446, 5.5 */

/* ---- keys ---- */

static const EVP_MD *tls_digest(uint8_t hash)
{
	return hash == NV_SHA256 ? EVP_sha256() : hash == NV_SHA384 ? EVP_sha384() : NULL;
}

bool nv_hkdf(uint8_t hash, const uint8_t *key, size_t key_len, const char *label, const char *context, uint8_t *out,
             size_t len)
{
	static const uint8_t no_salt[NV_HASH_MAX];
	uint8_t prk[NV_HASH_MAX], t[NV_HASH_MAX + 2 + 1 + 255 + 1 + 255 + 1];
	size_t h = nv_hash_length(hash), l = strlen(label), c = strlen(context), n = 0;
	const EVP_MD *md = tls_digest(hash);

	if (!md || l + 6 > 255 || c > 255 || len > 255 || !HMAC(md, no_salt, (int)h, key, key_len, prk, NULL))
		return false;
	/* T(n - 1) || length || label || context || n */
	uint8_t *info = t + h, *at = info;

	*at++ = 0;
	*at++ = (uint8_t)len;
	*at++ = (uint8_t)(l + 6);
	memcpy(at, "tls13 ", 6);
	memcpy(at + 6, label, l);
	at += l + 6;
	*at++ = (uint8_t)c;
	memcpy(at, context, c);
	at += c;
	bool good = true;

	for (uint8_t i = 1; good && n < len; i++) {
		const uint8_t *from = i == 1 ? info : t;
		uint8_t next[NV_HASH_MAX];

		*at = i;
		good = HMAC(md, prk, (int)h, from, (size_t)(at + 1 - from), next, NULL);
		memcpy(t, next, h);
		memcpy(out + n, next, len - n < h ? len - n : h);
		n += len - n < h ? len - n : h;
		OPENSSL_cleanse(next, sizeof(next));
	}
	OPENSSL_cleanse(prk, sizeof(prk));
	OPENSSL_cleanse(t, sizeof(t));
	return good;
}

/* deviates: the specification ends the identity with a null character, but no implementation sends it or includes it in
 * the derivation. */
size_t nv_tls_psk(const struct nv_secret *s, uint8_t hash, const char *hostnqn, const char *subnqn,
                  char identity[NV_TLS_IDENTITY_MAX + 1], uint8_t psk[NV_TLS_PSK_MAX])
{
	uint8_t retained[NV_SECRET_MAX];
	size_t len = nv_hash_length(hash);
	int n = snprintf(identity, NV_TLS_IDENTITY_MAX + 1, "NVMe0R0%u %s %s", hash, hostnqn, subnqn);
	bool good = s->length && tls_digest(hash) && n > 0 && n <= NV_TLS_IDENTITY_MAX;

	memcpy(retained, s->bytes, s->length);
	if (good && s->hash)
		good = nv_hkdf(s->hash, s->bytes, s->length, "HostNQN", hostnqn, retained, s->length);
	good = good && nv_hkdf(hash, retained, s->length, "nvme-tls-psk", identity, psk, len);
	OPENSSL_cleanse(retained, sizeof(retained));
	return good ? len : 0;
}

/* ---- connections ---- */

struct nv_tls {
	SSL *ssl;
	int fd;
	bool shaken, ended;
	bool blocked; /* OpenSSL has data to write */
	int error;    /* the errno that ended the connection */
	nv_tls_find *find;
	void *arg;
	struct nv_secret secret; /* used by the client */
	char host[NV_NQN_SIZE], subsystem[NV_NQN_SIZE];
	uint32_t out_at, out_len, records; /* records: sent with this key */
	uint8_t out[STAGE];                /* accepted, and not all passed to OpenSSL yet */
};

/* A BIO of our own, because OpenSSL's may raise SIGPIPE. */
static int bio_write(BIO *b, const char *at, int len)
{
	const struct nv_tls *t = BIO_get_data(b);
	ssize_t n = send(t->fd, at, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);

	BIO_clear_retry_flags(b);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_write(b);
	return (int)n;
}

static int bio_read(BIO *b, char *at, int len)
{
	struct nv_tls *t = BIO_get_data(b);
	ssize_t n = recv(t->fd, at, (size_t)len, MSG_DONTWAIT);

	BIO_clear_retry_flags(b);
	t->ended = !n;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_read(b);
	return (int)n;
}

static long bio_ctrl(BIO *b, int what, long number, void *at)
{
	const struct nv_tls *t = BIO_get_data(b);

	return what == BIO_CTRL_FLUSH || (what == BIO_CTRL_EOF && t && t->ended);
}

/* One cipher for each hash: {13h, 01h} and {13h, 02h}. */
static SSL_SESSION *make_session(SSL *ssl, uint8_t hash, const uint8_t *psk, size_t len)
{
	const uint8_t id[2] = {0x13, hash};
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, id);
	SSL_SESSION *s = SSL_SESSION_new();

	if (s && cipher && SSL_SESSION_set1_master_key(s, psk, len) && SSL_SESSION_set_cipher(s, cipher) &&
	    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

/* Parses "NVMe0R0h HOSTNQN SUBNQN". Returns the hash, or 0 if the identity is invalid. */
static uint8_t read_identity(const uint8_t *at, size_t len, char host[NV_NQN_SIZE], char subsystem[NV_NQN_SIZE])
{
	char text[NV_TLS_IDENTITY_MAX + 1];
	uint8_t hash;

	if (len < 9 || len > NV_TLS_IDENTITY_MAX || memcmp(at, "NVMe0R0", 7) || at[8] != ' ')
		return 0;
	memcpy(text, at, len);
	text[len] = 0;
	hash = (uint8_t)(text[7] - '0');
	char *sub = strchr(text + 9, ' ');

	if (strlen(text) != len || (hash != NV_SHA256 && hash != NV_SHA384) || !sub)
		return 0;
	*sub++ = 0;
	if (strlen(text + 9) >= NV_NQN_SIZE || strlen(sub) >= NV_NQN_SIZE || !nv_nqn_valid(text + 9, NV_NQN_SIZE) ||
	    !nv_nqn_valid(sub, NV_NQN_SIZE))
		return 0;
	strcpy(host, text + 9);
	strcpy(subsystem, sub);
	return hash;
}

/* Callback of a server. Without a session the handshake fails, because there is no certificate either. */
static int find_session(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **out)
{
	struct nv_tls *t = SSL_get_app_data(ssl);
	uint8_t hash = read_identity(identity, len, t->host, t->subsystem), psk[NV_TLS_PSK_MAX];
	char text[NV_TLS_IDENTITY_MAX + 1];
	struct nv_secret s = {.length = 0};
	size_t n = hash && t->find(t->arg, t->host, t->subsystem, &s)
	                   ? nv_tls_psk(&s, hash, t->host, t->subsystem, text, psk)
	                   : 0;

	*out = n ? make_session(ssl, hash, psk, n) : NULL;
	OPENSSL_cleanse(psk, sizeof(psk));
	nv_secret_wipe(&s);
	return 1;
}

static const char *suite_of_hash(uint8_t hash)
{
	return hash == NV_SHA384 ? "TLS_AES_256_GCM_SHA384" : "TLS_AES_128_GCM_SHA256";
}

/*
 * Callback of a server. OpenSSL chooses the cipher before it looks for a key, and ignores keys for another hash. So
 * this selects the cipher that suits the first identity with a key.
 */
static int choose_suite(SSL *ssl, int *alert, void *arg)
{
	struct nv_tls *t = SSL_get_app_data(ssl);
	char host[NV_NQN_SIZE], subsystem[NV_NQN_SIZE];
	const unsigned char *at, *end;
	size_t len;

	if (!SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_psk, &at, &len) || len < 2)
		return SSL_CLIENT_HELLO_SUCCESS;
	size_t list = (size_t)(at[0] << 8 | at[1]);

	at += 2;
	end = at + (list < len - 2 ? list : len - 2);
	while (end - at >= 6) { /* a length, the identity, its age */
		size_t n = (size_t)(at[0] << 8 | at[1]);
		struct nv_secret s = {.length = 0};

		if ((size_t)(end - at) - 6 < n)
			break;
		uint8_t hash = read_identity(at + 2, n, host, subsystem);
		bool known = hash && t->find(t->arg, host, subsystem, &s);

		nv_secret_wipe(&s);
		if (known)
			return SSL_set_ciphersuites(ssl, suite_of_hash(hash)) ? SSL_CLIENT_HELLO_SUCCESS
			                                                      : SSL_CLIENT_HELLO_ERROR;
		at += n + 6;
	}
	return SSL_CLIENT_HELLO_SUCCESS;
}

/* A key of 48 bytes is for SHA-384. */
static uint8_t hash_of(const struct nv_secret *s)
{
	return s->length == 48 ? NV_SHA384 : NV_SHA256;
}

/* Callback of a client. md: the only hash that is still possible, or NULL. */
static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **identity, size_t *len, SSL_SESSION **out)
{
	struct nv_tls *t = SSL_get_app_data(ssl);
	uint8_t hash = hash_of(&t->secret), psk[NV_TLS_PSK_MAX];
	static _Thread_local char text[NV_TLS_IDENTITY_MAX + 1]; /* copied by the caller */
	size_t n = nv_tls_psk(&t->secret, hash, t->host, t->subsystem, text, psk);

	*out = n && (!md || EVP_MD_get_size(md) == (int)nv_hash_length(hash)) ? make_session(ssl, hash, psk, n) : NULL;
	*identity = (const unsigned char *)text;
	*len = *out ? strlen(text) : 0;
	OPENSSL_cleanse(psk, sizeof(psk));
	return 1;
}

static SSL_CTX *contexts[2]; /* for servers, for clients; NULL: no memory */
static BIO_METHOD *method;

static SSL_CTX *make_context(bool client)
{
	SSL_CTX *c = SSL_CTX_new(client ? TLS_client_method() : TLS_server_method());

	if (!c || SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(c, "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256") != 1 ||
	    SSL_CTX_set1_groups_list(c, "P-384:X25519:P-256:ffdhe3072") != 1) {
		SSL_CTX_free(c);
		return NULL;
	}
	SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
	                               SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
	                            SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_clear_mode(
	        c, SSL_MODE_AUTO_RETRY); /* one record at a time, so that a peer cannot keep us busy with key updates */
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(c, 0);
	SSL_CTX_set_max_cert_list(c, 4096); /* neither end has a certificate */
	if (client)
		SSL_CTX_set_psk_use_session_callback(c, use_session);
	else
		SSL_CTX_set_psk_find_session_callback(c, find_session);
	if (!client)
		SSL_CTX_set_client_hello_cb(c, choose_suite, NULL);
	return c;
}

static void make_contexts(void)
{
	method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "NVMe/TCP");
	if (!method || !BIO_meth_set_write(method, bio_write) || !BIO_meth_set_read(method, bio_read) ||
	    !BIO_meth_set_ctrl(method, bio_ctrl))
		return;
	contexts[0] = make_context(false);
	contexts[1] = make_context(true);
}

static struct nv_tls *new_tls(int fd, bool client)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct nv_tls *t = calloc(1, sizeof(*t));

	pthread_once(&once, make_contexts);
	BIO *b = t && contexts[client] ? BIO_new(method) : NULL;

	if (!b || !(t->ssl = SSL_new(contexts[client]))) {
		BIO_free(b);
		free(t);
		return NULL;
	}
	BIO_set_data(b, t);
	BIO_set_init(b, 1);
	SSL_set_bio(t->ssl, b, b);
	SSL_set_app_data(t->ssl, t);
	t->fd = fd;
	return t;
}

struct nv_tls *nv_tls_server(int fd, nv_tls_find *find, void *arg)
{
	struct nv_tls *t = new_tls(fd, false);

	if (t) {
		t->find = find;
		t->arg = arg;
		SSL_set_accept_state(t->ssl);
	}
	return t;
}

struct nv_tls *nv_tls_client(int fd, const struct nv_secret *s, const char *hostnqn, const char *subnqn)
{
	struct nv_tls *t = strlen(hostnqn) < NV_NQN_SIZE && strlen(subnqn) < NV_NQN_SIZE ? new_tls(fd, true) : NULL;

	if (t && SSL_set_ciphersuites(t->ssl, suite_of_hash(hash_of(s))) != 1) {
		nv_tls_close(t);
		return NULL;
	}
	if (t) {
		t->secret = *s;
		strcpy(t->host, hostnqn);
		strcpy(t->subsystem, subnqn);
		SSL_set_connect_state(t->ssl);
	}
	return t;
}

void nv_tls_close(struct nv_tls *t)
{
	if (!t)
		return;
	ERR_clear_error();
	if (t->shaken && !t->error && !nv_tls_unsent(t))
		SSL_shutdown(t->ssl);
	SSL_free(t->ssl);
	ERR_clear_error();
	OPENSSL_cleanse(t, sizeof(*t));
	free(t);
}

/* Maps the result of a call: EAGAIN, 0 for the end of the stream, or the errno that ends the connection. */
static int ssl_outcome(struct nv_tls *t, int result)
{
	int e = errno, why = SSL_get_error(t->ssl, result);

	t->blocked = why == SSL_ERROR_WANT_WRITE;
	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
		return EAGAIN;
	if (why == SSL_ERROR_ZERO_RETURN)
		return 0;
	t->error = why == SSL_ERROR_SYSCALL && e ? e : EPROTO;
	return t->error;
}

/* Performs the handshake. Accepts a key only: a certificate would not be checked. */
int nv_tls_handshake(struct nv_tls *t)
{
	if (t->error || t->shaken)
		return t->error;
	ERR_clear_error();
	errno = 0;
	int result = SSL_do_handshake(t->ssl), e = result == 1 ? 0 : ssl_outcome(t, result);

	if (result != 1)
		return e ? e : (t->error = ECONNRESET);
	t->blocked = false;
	if (!SSL_session_reused(t->ssl) || SSL_version(t->ssl) != TLS1_3_VERSION)
		return t->error = EACCES;
	nv_secret_wipe(&t->secret);
	t->shaken = true;
	return 0;
}

const char *nv_tls_host(const struct nv_tls *t)
{
	return t->shaken ? t->host : "";
}

const char *nv_tls_subsystem(const struct nv_tls *t)
{
	return t->shaken ? t->subsystem : "";
}

static ssize_t fail_with(int e)
{
	errno = e;
	return -1;
}

ssize_t nv_tls_read(struct nv_tls *t, const struct iovec *v, int n)
{
	size_t total = 0, got;
	int e = nv_tls_handshake(t), result = 1;

	if (e)
		return fail_with(e);
	for (int i = 0; i < n && result == 1; i++)
		for (size_t at = 0; at < v[i].iov_len; at += got, total += got) {
			ERR_clear_error();
			errno = 0;
			result = SSL_read_ex(t->ssl, (uint8_t *)v[i].iov_base + at, v[i].iov_len - at, &got);
			if (result != 1)
				break;
		}
	e = result == 1 ? 0 : ssl_outcome(t, result);
	if (total) /* the next call finds the end or error again */
		return (ssize_t)total;
	return e ? fail_with(e) : 0;
}

static int write_staged(struct nv_tls *t)
{
	if (t->out_at == t->out_len)
		return 0;
	while (t->out_at < t->out_len) {
		size_t sent;

		ERR_clear_error();
		errno = 0;
		int result = SSL_write_ex(t->ssl, t->out + t->out_at, t->out_len - t->out_at, &sent);

		if (result != 1) {
			int e = ssl_outcome(t, result);

			return e ? e : (t->error = EPIPE);
		}
		t->out_at += (uint32_t)sent;
		t->records++;
	}
	t->out_at = t->out_len = 0;
	if (t->records >= RECORDS && SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
		t->records = 0;
	t->blocked = false;
	return 0;
}

ssize_t nv_tls_write(struct nv_tls *t, const struct iovec *v, int n)
{
	size_t total = 0, at = 0;
	int e = nv_tls_handshake(t), i = 0;

	while (!e && !(e = write_staged(t)) && i < n) {
		while (i < n && t->out_len < STAGE) {
			size_t k = v[i].iov_len - at < STAGE - t->out_len ? v[i].iov_len - at : STAGE - t->out_len;

			memcpy(t->out + t->out_len, (const uint8_t *)v[i].iov_base + at, k);
			t->out_len += (uint32_t)k;
			total += k;
			at += k;
			if (at == v[i].iov_len) {
				at = 0;
				i++;
			}
		}
	}
	return total || !e ? (ssize_t)total : fail_with(e);
}

bool nv_tls_unsent(const struct nv_tls *t)
{
	return t->out_at < t->out_len || t->blocked;
}

bool nv_tls_unread(const struct nv_tls *t)
{
	return t->shaken && !t->error && SSL_pending(t->ssl);
}
