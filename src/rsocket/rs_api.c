// rs_api.c - the calls except those for options, polling and mappings: each finds its rsocket and dispatches by type
// follows: rsocket(7)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

/* Begins a call that may sleep or change much: the thread must not be cancelled half way. */
static __attribute__((hot)) struct rsocket *begin_call(int socket)
{
	struct rsocket *rs = rs_get(socket);

	if (rs)
		rs_firm();
	return rs;
}

static int finish_call(struct rsocket *rs, int err)
{
	rs_put(rs);
	rs_soft();
	return err ? rs_fail(err) : 0;
}

static int finish_query(struct rsocket *rs, int err)
{
	rs_put(rs);
	return err ? rs_fail(err) : 0;
}

/* Checks and copies an address from the program. */
static int take_addr(union rs_addr *out, const struct sockaddr *addr, socklen_t len)
{
	memset(out, 0, sizeof(*out));
	if (!addr || len < sizeof(sa_family_t))
		return EINVAL;
	if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
		return EAFNOSUPPORT;
	out->sa.sa_family = addr->sa_family;
	if (len < rs_addr_len(out))
		return EINVAL;
	memcpy(out, addr, rs_addr_len(out));
	return 0;
}

static void give_addr(const union rs_addr *a, struct sockaddr *addr, socklen_t *len)
{
	socklen_t full = rs_addr_len(a);

	if (!len)
		return;
	if (addr)
		memcpy(addr, a, *len < full ? *len : full);
	*len = full;
}

RS_EXPORT int rsocket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), err;
	struct rsocket *rs;

	if ((domain != AF_INET && domain != AF_INET6) || (kind != SOCK_STREAM && kind != SOCK_DGRAM) ||
	    (protocol && protocol != (kind == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP)))
		return rs_fail(ENOTSUP);
	rs_configure();
	rs = rs_new(kind, domain, &rs_defaults);
	if (!rs)
		return -1;
	rs->fd_flags = type & SOCK_CLOEXEC ? FD_CLOEXEC : 0;
	rs->fs_flags = O_RDWR | (type & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	err = kind == SOCK_STREAM ? rs_stream_open(rs) : rs_dgram_open(rs);
	if (!err)
		return rs->fd;
	rs_put(rs);
	return rs_fail(err);
}

RS_EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rsocket *rs = rs_get(socket);
	union rs_addr a;
	int err;

	if (!rs)
		return -1;
	err = take_addr(&a, addr, addrlen);
	if (!err)
		err = rs->type == SOCK_STREAM ? rs_stream_bind(rs, &a) : rs_dgram_bind(rs, &a);
	return finish_query(rs, err);
}

RS_EXPORT int rlisten(int socket, int backlog)
{
	struct rsocket *rs = rs_get(socket);

	if (!rs)
		return -1;
	return finish_query(rs, rs->type == SOCK_STREAM ? rs_stream_listen(rs, backlog) : EOPNOTSUPP);
}

RS_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *rs = begin_call(socket), *got;
	int fd = -1, err = EOPNOTSUPP;

	if (!rs)
		return -1;
	if (rs->type == SOCK_STREAM) {
		got = rs_stream_accept(rs, 0);
		err = errno;
		if (got) {
			give_addr(&got->peer, addr, addrlen);
			fd = got->fd;
			err = 0;
		}
	}
	finish_call(rs, err);
	return fd;
}

RS_EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rsocket *rs = begin_call(socket);
	union rs_addr a;
	int err;

	if (!rs)
		return -1;
	err = take_addr(&a, addr, addrlen);
	if (!err)
		err = rs->type == SOCK_STREAM ? rs_stream_connect(rs, &a) : rs_dgram_connect(rs, &a);
	return finish_call(rs, err);
}

RS_EXPORT int rshutdown(int socket, int how)
{
	struct rsocket *rs = begin_call(socket);

	if (!rs)
		return -1;
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return finish_call(rs, EINVAL);
	return finish_call(rs, rs->type == SOCK_STREAM ? rs_stream_shutdown(rs, how) : rs_dgram_shutdown(rs, how));
}

/* Threads inside a call on this rsocket return with an error before anything is freed. */
void rs_teardown(struct rsocket *rs)
{
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs->can_read = rs->can_write = false;
	if (rs->state == RS_CONNECTED)
		rs->state = RS_DISCONNECTED;
	else if (rs_opening(rs))
		rs->state = RS_REFUSED;
	rs_wake(rs);
	vb_mutex_unlock(&rs->lock);

	vb_mutex_lock(&rs->send_lock, VB_RANK_PROGRAM);
	vb_mutex_lock(&rs->recv_lock, VB_RANK_PROGRAM);
	vb_mutex_lock(&rs->cm_lock, VB_RANK_RS_CM);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs->type == SOCK_STREAM)
		rs_stream_close(rs);
	else
		rs_dgram_close(rs);
	vb_mutex_unlock(&rs->lock);
	vb_mutex_unlock(&rs->cm_lock);
	vb_mutex_unlock_program(&rs->recv_lock);
	vb_mutex_unlock_program(&rs->send_lock);
}

static bool mark_closed(struct rsocket *rs)
{
	bool first;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	first = !rs->closed;
	rs->closed = true;
	vb_mutex_unlock(&rs->lock);
	return first;
}

RS_EXPORT int rclose(int socket)
{
	struct rsocket *rs = rs_find(socket);

	if (!rs && rs_epoll_close(socket))
		return 0;
	if (!rs) /* an rsocket of the parent: only the descriptor is ours */
		return rs_foreign(socket) ? close(socket) : rs_fail(EBADF);
	rs_firm();
	if (!mark_closed(rs))
		return finish_call(rs, EBADF);
	rs_accept_flush(rs);
	if (rs->type == SOCK_STREAM && rs_linger(rs))
		return finish_call(rs, 0);
	rs_teardown(rs);
	rs_put(rs); /* the table's reference */
	return finish_call(rs, 0);
}

static __attribute__((hot)) ssize_t receive_call(int socket, struct iovec *iov, size_t n, int flags,
                                                 union rs_addr *from, bool *truncated)
{
	struct rsocket *rs = begin_call(socket);
	struct rs_cursor c;
	ssize_t got = -1;

	if (!rs)
		return -1;
	if (!rs_cursor_init(&c, iov, n))
		errno = EINVAL;
	else if (rs->type == SOCK_STREAM)
		got = rs_stream_recv(rs, &c, flags);
	else
		got = rs_dgram_recv(rs, &c, flags, from, truncated);
	if (got >= 0 && rs->type == SOCK_STREAM)
		*from = rs->peer;
	rs_put(rs);
	rs_soft();
	return got;
}

static __attribute__((hot)) ssize_t send_call(int socket, const struct iovec *iov, size_t n, int flags,
                                              const struct sockaddr *to, socklen_t len)
{
	struct rsocket *rs = begin_call(socket);
	union rs_addr a;
	struct rs_cursor c;
	int err = 0;
	ssize_t put = -1;

	if (!rs)
		return -1;
	if (!rs_cursor_init(&c, iov, n))
		err = EINVAL;
	else if (to && rs->type == SOCK_DGRAM)
		err = take_addr(&a, to, len);
	else if (to)
		err = EISCONN;
	if (err)
		errno = err;
	else if (rs->type == SOCK_STREAM)
		put = rs_stream_send(rs, &c, flags);
	else
		put = rs_dgram_send(rs, &c, flags, to ? &a : NULL);
	rs_put(rs);
	rs_soft();
	return put;
}

__attribute__((hot)) RS_EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags,
                                                 struct sockaddr *src_addr, socklen_t *addrlen)
{
	struct iovec iov = {buf, len};
	union rs_addr from;
	bool truncated = false;
	ssize_t n = receive_call(socket, &iov, 1, flags, &from, &truncated);

	if (n >= 0 && src_addr)
		give_addr(&from, src_addr, addrlen);
	return n;
}

__attribute__((hot)) RS_EXPORT ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

RS_EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	union rs_addr from;
	bool truncated = false;
	ssize_t n = receive_call(socket, msg->msg_iov, msg->msg_iovlen, flags, &from, &truncated);

	if (n < 0)
		return n;
	if (msg->msg_name)
		give_addr(&from, msg->msg_name, &msg->msg_namelen);
	msg->msg_controllen = 0;
	msg->msg_flags = truncated ? MSG_TRUNC : 0;
	return n;
}

__attribute__((hot)) RS_EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecv(socket, buf, count, 0);
}

RS_EXPORT ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	union rs_addr from;
	bool truncated;

	if (iovcnt < 0)
		return rs_fail(EINVAL);
	return receive_call(socket, (struct iovec *)iov, (size_t)iovcnt, 0, &from, &truncated);
}

__attribute__((hot)) RS_EXPORT ssize_t rsendto(int socket, const void *buf, size_t len, int flags,
                                               const struct sockaddr *dest_addr, socklen_t addrlen)
{
	struct iovec iov = {(void *)buf, len};

	return send_call(socket, &iov, 1, flags, dest_addr, addrlen);
}

__attribute__((hot)) RS_EXPORT ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return rsendto(socket, buf, len, flags, NULL, 0);
}

RS_EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return rs_fail(ENOTSUP);
	return send_call(socket, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name, msg->msg_namelen);
}

__attribute__((hot)) RS_EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsend(socket, buf, count, 0);
}

RS_EXPORT ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	if (iovcnt < 0)
		return rs_fail(EINVAL);
	return send_call(socket, iov, (size_t)iovcnt, 0, NULL, 0);
}

RS_EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *rs = rs_get(socket);
	int err = 0;

	if (!rs)
		return -1;
	if (rs->type == SOCK_DGRAM)
		return finish_query(rs, getpeername(rs->fd, addr, addrlen) ? errno : 0);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs->state < RS_ACCEPTING || rs->state == RS_REFUSED)
		err = ENOTCONN;
	else
		give_addr(&rs->peer, addr, addrlen);
	vb_mutex_unlock(&rs->lock);
	return finish_query(rs, err);
}

/* The service thread changes the address when it handles an event. */
static int own_name(struct rsocket *rs, union rs_addr *a)
{
	int err = 0;

	vb_mutex_lock(&rs->cm_lock, VB_RANK_RS_CM);
	if (rs->id)
		memcpy(a, rdma_get_local_addr(rs->id), sizeof(*a));
	else
		err = EBADF;
	vb_mutex_unlock(&rs->cm_lock);
	return err;
}

RS_EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *rs = rs_get(socket);
	union rs_addr a = {0};
	int err;

	if (!rs)
		return -1;
	if (rs->type == SOCK_DGRAM)
		return finish_query(rs, getsockname(rs->fd, addr, addrlen) ? errno : 0);
	err = own_name(rs, &a);
	if (a.sa.sa_family != AF_INET && a.sa.sa_family != AF_INET6)
		a.sa.sa_family = (sa_family_t)rs->domain; /* not bound yet */
	if (!err)
		give_addr(&a, addr, addrlen);
	return finish_query(rs, err);
}

RS_EXPORT int rfcntl(int socket, int cmd, ...)
{
	struct rsocket *rs = rs_get(socket);
	va_list args;
	int r = 0, arg;

	if (!rs)
		return -1;
	va_start(args, cmd);
	arg = cmd == F_SETFL || cmd == F_SETFD ? va_arg(args, int) : 0;
	va_end(args);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	switch (cmd) {
	case F_GETFL:
		r = rs->fs_flags;
		break;
	case F_SETFL:
		rs->fs_flags = O_RDWR | (arg & ~O_ACCMODE);
		break;
	case F_GETFD:
		r = rs->fd_flags;
		break;
	case F_SETFD:
		rs->fd_flags = arg;
		break;
	default:
		r = rs_fail(ENOTSUP);
	}
	vb_mutex_unlock(&rs->lock);
	rs_put(rs);
	return r;
}
