// tcp_tls.c - input and output of a connection, with or without TLS
// follows: NVMe/TCP transport specification 1.0, 3.6.1
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "target/tcp_conn.h"

#ifdef NT_HAVE_TLS

/* OpenSSL uses the last key found, so this stores it. */
static bool find_key(void *conn, const char *hostnqn, const char *subnqn, struct nv_secret *s)
{
	struct nt_conn *c = conn;

	if (!nt_tls_secret(c->tcp->target, hostnqn, subnqn, s))
		return false;
	c->key = *s;
	return true;
}

/* The first byte shows the protocol: no TLS record begins like an ICReq. */
static bool begin_handshake(struct nt_conn *c)
{
	uint8_t first = NV_TLS_RECORD; /* if the connection ends instead, TLS reports it */

	if (c->looked || !c->tcp->security)
		return true;
	if (c->tcp->security == NT_TLS_ALLOWED && recv(c->watch.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
		return false;
	c->looked = true;
	if (first != NV_TLS_RECORD)
		return true;
	c->tls = nv_tls_server(c->watch.fd, find_key, c);
	c->q.stable = true; /* this process reads the data, not the kernel, so mapped memory could fault */
	errno = ENOMEM;
	return c->tls;
}

/* Binds the connection to the two names of its key. */
static void bind_names(struct nt_conn *c)
{
	if (c->q.only_host || !*nv_tls_host(c->tls))
		return;
	c->q.only_host = nv_tls_host(c->tls);
	c->q.only_subsystem = nv_tls_subsystem(c->tls);
	c->q.only_key = &c->key;
}

ssize_t nt_conn_read(struct nt_conn *c, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	if (!begin_handshake(c))
		return -1;
	if (!c->tls)
		return recvmsg(c->watch.fd, &m, MSG_DONTWAIT);
	ssize_t got = nv_tls_read(c->tls, v, n);

	bind_names(c);
	return got;
}

ssize_t nt_conn_write(struct nt_conn *c, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	return c->tls ? nv_tls_write(c->tls, v, n) : sendmsg(c->watch.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool nt_conn_unread(const struct nt_conn *c)
{
	return c->tls && nv_tls_unread(c->tls);
}

bool nt_conn_unsent(const struct nt_conn *c)
{
	return c->tls && nv_tls_unsent(c->tls);
}

void nt_conn_unwrap(struct nt_conn *c)
{
	c->q.only_host = c->q.only_subsystem = NULL;
	c->q.only_key = NULL;
	nv_secret_wipe(&c->key);
	nv_tls_close(c->tls);
	c->tls = NULL;
}

#else

ssize_t nt_conn_read(struct nt_conn *c, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	return recvmsg(c->watch.fd, &m, MSG_DONTWAIT);
}

ssize_t nt_conn_write(struct nt_conn *c, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	return sendmsg(c->watch.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool nt_conn_unread(const struct nt_conn *c)
{
	return false;
}

bool nt_conn_unsent(const struct nt_conn *c)
{
	return false;
}

void nt_conn_unwrap(struct nt_conn *c)
{
}

#endif
