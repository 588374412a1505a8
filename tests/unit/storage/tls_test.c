// tls_test.c - keys of TLS compared with values from other implementations, and both ends of a connection over a socket
// pair
// follows: NVMe/TCP transport specification 1.0, 3.6.1; RFC 8446
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../support/check.h"
#include "nvme/tls.h"

/* the example of the specification, 3.6.1.3 and 3.6.1.5 */
#define HOSTNQN "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
#define SUBNQN "nqn.2014-08.org.nvmexpress:uuid:36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2"
#define KEY "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"
#define PLAIN_KEY "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"
#define LONG_KEY "NVMeTLSkey-1:02:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8AESIzRFVmd4iZqrvM3e7/AX3mVQ==:"

static struct nv_secret key_of(const char *text)
{
	struct nv_secret s;

	CHECK(nv_tls_key_parse(text, &s));
	return s;
}

static void is_hex(const uint8_t *at, size_t len, const char *hex)
{
	char text[3];

	SAME(strlen(hex), 2 * len);
	for (size_t i = 0; i < len; i++) {
		snprintf(text, sizeof(text), "%02x", at[i]);
		CHECK(!memcmp(text, hex + 2 * i, 2));
	}
}

static void keys_are_read_as_the_specification_writes_them(void)
{
	static const char *const bad[] = {"", "NVMeTLSkey-1:03:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
	                                  "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrA:",
	                                  "NVMeTLSkey-2:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
	                                  "DHHC-1:01:O3n/ZbCI/WDi1riVIMg1GqhQ1O55egewVNEk9/ZQLPyt5+by:"};
	struct nv_secret s = key_of(KEY);

	SAME(s.hash, NV_SHA256);
	is_hex(s.bytes, s.length, "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03");
	SAME(key_of(LONG_KEY).length, 48);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK(!nv_tls_key_parse(bad[i], &s));
}

/* The Linux kernel's KUnit test contains this pair for SHA-256. The others were computed with python3's hmac. */
static void keys_are_derived_as_others_derive_them(void)
{
	static const uint8_t generated[] = {0x17, 0x33, 0xc5, 0x9f, 0xa7, 0xf4, 0x8f, 0xcf, 0x37, 0xf5, 0xf2,
	                                    0x6f, 0xc4, 0xff, 0x02, 0x68, 0xad, 0x4f, 0x78, 0xe0, 0x30, 0xf4,
	                                    0xf3, 0xb0, 0xbf, 0xd1, 0xd4, 0x7e, 0x7b, 0xb1, 0x44, 0x7a};
	static const struct {
		const char *key;
		uint8_t hash;
		const char *psk;
	} want[] = {
	        {KEY, NV_SHA256, "8e981666c96a88ef69f6e6a0460ff77ba9039e3d38cbdeee264c4de09d75d246"},
	        {KEY, NV_SHA384,
	         "6a628309f246e9e5ddaf06dd094f666db439ffd01e9ed611f2f2f9d0e11e1d86223c795cfd73ef5645ae7a121ea69bdc"},
	        {PLAIN_KEY, NV_SHA256, "464d9438c6d8b3c9f0a426b780872e3fc456bf43410e9d3f2de4c95684e0e48b"},
	        {LONG_KEY, NV_SHA384,
	         "354c6c778f8c036fd73d7a2784ed3bfba9719595adb22996d7c7c9d3de9221c181c4092bbe7efbb987631c1a721845da"}};
	char identity[NV_TLS_IDENTITY_MAX + 1];
	uint8_t out[NV_TLS_PSK_MAX];

	CHECK(nv_hkdf(NV_SHA256, generated, 32, "nvme-tls-psk", "01 OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=", out,
	              32));
	is_hex(out, 32, "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8");
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		struct nv_secret s = key_of(want[i].key);

		SAME(nv_tls_psk(&s, want[i].hash, HOSTNQN, SUBNQN, identity, out), nv_hash_length(want[i].hash));
		is_hex(out, nv_hash_length(want[i].hash), want[i].psk);
		CHECK(!strcmp(identity + 8, " " HOSTNQN " " SUBNQN) && !strncmp(identity, "NVMe0R0", 7));
		SAME(identity[7], '0' + want[i].hash);
	}
}

static void names_that_are_too_long_have_no_key(void)
{
	struct nv_secret s = key_of(KEY);
	char identity[NV_TLS_IDENTITY_MAX + 1], name[NV_NQN_SIZE] = "nqn.2026-01.";
	uint8_t psk[NV_TLS_PSK_MAX];

	memset(name + 12, 'x', 211);
	SAME(nv_tls_psk(&s, NV_SHA256, name, "nqn.2026-01.test:short", identity, psk), 32);
	SAME(nv_tls_psk(&s, NV_SHA256, name, name, identity, psk), 0);
	SAME(nv_tls_psk(&s, NV_SHA512, "a", "b", identity, psk), 0);
}

/* ---- two ends ---- */

static struct nv_secret known; /* connects to the server, for these two names */
static unsigned asked;

static bool find(void *arg, const char *hostnqn, const char *subnqn, struct nv_secret *s)
{
	asked++;
	*s = known;
	return !strcmp(hostnqn, HOSTNQN) && !strcmp(subnqn, SUBNQN);
}

static int fds[2];
static struct nv_tls *client, *server;

static void pair(const char *client_key, const char *server_key, const char *hostnqn)
{
	struct nv_secret s = key_of(client_key);

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	known = key_of(server_key);
	asked = 0;
	client = nv_tls_client(fds[0], &s, hostnqn, SUBNQN);
	server = nv_tls_server(fds[1], find, NULL);
	CHECK(client && server);
}

static void part(void)
{
	nv_tls_close(client);
	nv_tls_close(server);
	close(fds[0]);
	close(fds[1]);
}

static void shake(int *of_client, int *of_server)
{
	*of_client = *of_server = EAGAIN;
	for (int i = 0; i < 20 && (*of_client == EAGAIN || *of_server == EAGAIN); i++) {
		*of_client = nv_tls_handshake(client);
		*of_server = nv_tls_handshake(server);
	}
}

static void the_same_key_connects(void)
{
	static const char *const keys[] = {KEY, PLAIN_KEY, LONG_KEY};
	int c, s;

	for (int i = 0; i < 3; i++) {
		pair(keys[i], keys[i], HOSTNQN);
		CHECK(!*nv_tls_host(server));
		shake(&c, &s);
		SAME(c, 0);
		SAME(s, 0);
		CHECK(!strcmp(nv_tls_host(server), HOSTNQN) && !strcmp(nv_tls_subsystem(server), SUBNQN));
		part();
	}
}

static void other_keys_and_names_do_not(void)
{
	int c, s;

	pair(KEY, PLAIN_KEY, HOSTNQN); /* the same bytes with another hash, which gives another key */
	shake(&c, &s);
	CHECK(c == EPROTO && s == EPROTO && !*nv_tls_host(server));
	part();
	pair(KEY, LONG_KEY, HOSTNQN);
	shake(&c, &s);
	CHECK(c == EPROTO && s == EPROTO);
	part();
	pair(KEY, KEY, "nqn.2026-01.test:other");
	shake(&c, &s);
	CHECK(c == EPROTO && s == EPROTO && asked);
	part();
}

static uint8_t in[1 << 20], out[1 << 20];

/* Writes of any size, with a socket that accepts little at a time. */
static void what_is_written_is_read(void)
{
	int c, s, small = 4096;
	size_t sent = 0, got = 0;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7 + i / 251);
	pair(KEY, KEY, HOSTNQN);
	setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	shake(&c, &s);
	for (unsigned k = 1; got < sizeof(out); k = k * 5 % 70001 + 1) {
		size_t left = sizeof(out) - sent, a = k < left ? k : left, b = 3 * k < left - a ? 3 * k : left - a;
		struct iovec v[2] = {{out + sent, a}, {out + sent + a, b}},
		             w[2] = {{in + got, 1 + k % 300}, {in + got + 1 + k % 300, 9}};
		ssize_t n = nv_tls_write(client, v, 2), room = (ssize_t)(sizeof(in) - got);

		CHECK(n >= 0 || errno == EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
		if (room < 400)
			w[0].iov_len = 1, w[1].iov_len = 0;
		n = nv_tls_read(server, w, 2);
		CHECK(n > 0 || errno == EAGAIN);
		got += n > 0 ? (size_t)n : 0;
		CHECK(n < 0 || nv_tls_unread(server) || poll(&(struct pollfd){.fd = fds[1], .events = POLLIN}, 1, 0) ||
		      got == sent || nv_tls_unsent(client));
	}
	CHECK(!memcmp(in, out, sizeof(in)) && !nv_tls_unsent(client));
	nv_tls_close(client);
	client = NULL;
	SAME(nv_tls_read(server, &(struct iovec){in, 1}, 1), 0); /* close_notify */
	part();
}

static void what_is_no_tls_is_refused(void)
{
	static uint8_t junk[70000];
	int c;

	pair(KEY, KEY, HOSTNQN);
	CHECK(write(fds[0], "NVMe over something else", 24) == 24);
	SAME(nv_tls_handshake(server), EPROTO);
	SAME(nv_tls_read(server, &(struct iovec){in, 1}, 1), -1);
	SAME(nv_tls_write(server, &(struct iovec){in, 1}, 1), -1);
	part();
	pair(KEY, KEY, HOSTNQN); /* an endless first record, and then a message */
	memcpy(junk, "\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9);
	CHECK(write(fds[0], junk, sizeof(junk)) > 0);
	SAME(nv_tls_handshake(server), EPROTO);
	part();
	pair(KEY, KEY, HOSTNQN); /* the stalled handshake */
	SAME(nv_tls_handshake(client), EAGAIN);
	shutdown(fds[0], SHUT_WR);
	do
		c = nv_tls_handshake(server);
	while (!c);
	CHECK(c != EAGAIN || nv_tls_handshake(server) != 0);
	part();
}

int main(void)
{
	RUN(keys_are_read_as_the_specification_writes_them);
	RUN(keys_are_derived_as_others_derive_them);
	RUN(names_that_are_too_long_have_no_key);
	RUN(the_same_key_connects);
	RUN(other_keys_and_names_do_not);
	RUN(what_is_written_is_read);
	RUN(what_is_no_tls_is_refused);
	return 0;
}
