// tcp_tls.c - input and output of a connection, with or without TLS
// follows: NVMe/TCP transport specification 1.0, 3.6.1
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "client/tcp.h"

#ifdef VN_HAVE_TLS

static int tls_refused(struct vn_link *l, int e)
{
	if (e == EPROTO || e == ECONNRESET || e == EACCES) {
		vn_say(l->why, "%s port %s: the target does not accept TLS with this key", l->host, l->service);
		return -EACCES;
	}
	vn_say(l->why, "%s port %s, TLS: %s", l->host, l->service, strerror(e));
	return -e;
}

int vn_tcp_wrap(struct vn_link *l, struct vn_tcp_queue *t)
{
	int e;

	if (!l->who->tls.length)
		return 0;
	t->tls = nv_tls_client(t->fd, &l->who->tls, l->who->host_nqn, l->nqn);
	if (!t->tls)
		return -ENOMEM;
	while ((e = nv_tls_handshake(t->tls)) == EAGAIN) {
		e = vn_tcp_wait(l, t->fd, nv_tls_unsent(t->tls) ? POLLOUT : POLLIN);
		if (e)
			return tls_refused(l, -e);
	}
	return e ? tls_refused(l, e) : 0;
}

ssize_t vn_tcp_read(struct vn_tcp_queue *t, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	return t->tls ? nv_tls_read(t->tls, v, n) : recvmsg(t->fd, &m, MSG_DONTWAIT);
}

ssize_t vn_tcp_write(struct vn_tcp_queue *t, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	return t->tls ? nv_tls_write(t->tls, v, n) : sendmsg(t->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool vn_tcp_unread(const struct vn_tcp_queue *t)
{
	return t->tls && nv_tls_unread(t->tls);
}

bool vn_tcp_unsent(const struct vn_tcp_queue *t)
{
	return t->tls && nv_tls_unsent(t->tls);
}

void vn_tcp_unwrap(struct vn_tcp_queue *t)
{
	nv_tls_close(t->tls);
	t->tls = NULL;
}

#else

int vn_tcp_wrap(struct vn_link *l, struct vn_tcp_queue *t)
{
	return 0;
}

ssize_t vn_tcp_read(struct vn_tcp_queue *t, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	return recvmsg(t->fd, &m, MSG_DONTWAIT);
}

ssize_t vn_tcp_write(struct vn_tcp_queue *t, struct iovec *v, int n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};

	return sendmsg(t->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool vn_tcp_unread(const struct vn_tcp_queue *t)
{
	return false;
}

bool vn_tcp_unsent(const struct vn_tcp_queue *t)
{
	return false;
}

void vn_tcp_unwrap(struct vn_tcp_queue *t)
{
}

#endif
