// preload_several.c - calls made of several others: recvmmsg, sendmmsg, splice; and syscall()
// follows: recvmmsg(2), sendmmsg(2), splice(2), syscall(2)
// SPDX-License-Identifier: MIT
#undef _FORTIFY_SOURCE
#include "rsocket/preload/preload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool fd_is_ours(int fd)
{
	struct pre_sock *s = pre_get(fd);

	if (s)
		pre_put(s);
	return s;
}

static bool is_over(const struct timespec *start, const struct timespec *timeout)
{
	struct timespec now;

	if (!timeout)
		return false;
	clock_gettime(CLOCK_MONOTONIC, &now);
	now.tv_sec -= start->tv_sec + timeout->tv_sec;
	now.tv_nsec -= start->tv_nsec + timeout->tv_nsec;
	return now.tv_sec * 1000000000 + now.tv_nsec >= 0;
}

PRE_EXPORT int recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout)
{
	int one = flags & ~MSG_WAITFORONE;
	struct timespec start;
	unsigned i = 0;
	ssize_t got;

	pre_init();
	if (!fd_is_ours(fd))
		return pre_real.recvmmsg(fd, m, n, flags, timeout);
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (i < n && !(i && is_over(&start, timeout))) {
		got = recvmsg(fd, &m[i].msg_hdr, one);
		if (got < 0)
			break;
		m[i++].msg_len = (unsigned)got;
		if (flags & MSG_WAITFORONE)
			one |= MSG_DONTWAIT;
	}
	return i || !n ? (int)i : -1;
}

PRE_EXPORT int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	unsigned i = 0;
	ssize_t put;

	pre_init();
	if (!fd_is_ours(fd))
		return pre_real.sendmmsg(fd, m, n, flags);
	while (i < n) {
		put = sendmsg(fd, &m[i].msg_hdr, flags);
		if (put < 0)
			break;
		m[i++].msg_len = (unsigned)put;
	}
	return i || !n ? (int)i : -1;
}

/* Copies data out of the pipe first (tee), so that data which the socket does not take stays in the pipe. */
static ssize_t from_pipe(int in, int out, size_t len, unsigned flags)
{
	char buf[65536];
	int copy[2];
	ssize_t n, put, part;

	if (pipe2(copy, O_CLOEXEC))
		return -1;
	put = n = tee(in, copy[1], len < sizeof(buf) ? len : sizeof(buf), flags & SPLICE_F_NONBLOCK);
	if (n > 0)
		n = pre_real.read(copy[0], buf, (size_t)n);
	if (n > 0)
		put = write(out, buf, (size_t)n);
	for (ssize_t left = put; left > 0; left -= part) {
		part = pre_real.read(in, buf, (size_t)left);
		if (part <= 0)
			break;
	}
	pre_real.close(copy[0]);
	pre_real.close(copy[1]);
	return put;
}

static ssize_t to_pipe(int in, int out, size_t len, unsigned flags)
{
	struct pollfd p = {.fd = out, .events = POLLOUT};
	size_t room = flags & SPLICE_F_NONBLOCK ? PIPE_BUF : 65536;
	char buf[65536];
	ssize_t n = recv(in, buf, len < room ? len : room, MSG_PEEK);

	if (n <= 0)
		return n;
	if ((flags & SPLICE_F_NONBLOCK) && pre_real.poll(&p, 1, 0) <= 0) {
		errno = EAGAIN;
		return -1;
	}
	n = pre_real.write(out, buf, (size_t)n);
	return n > 0 ? recv(in, buf, (size_t)n, MSG_WAITALL) : n;
}

PRE_EXPORT ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned flags)
{
	bool from, to;

	pre_init();
	from = fd_is_ours(in);
	to = fd_is_ours(out);
	if (!from && !to)
		return pre_real.splice(in, in_at, out, out_at, len, flags);
	if ((from && to) || in_at || out_at) {
		errno = from && to ? EINVAL : ESPIPE;
		return -1;
	}
	return from ? to_pipe(in, out, len, flags) : from_pipe(in, out, len, flags);
}

/* The system calls that libuv (node, uvloop) makes on sockets. Allocates nothing: a memory allocator (jemalloc) may
 * call this before anything is initialised, and under its own lock. */
PRE_EXPORT long syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	switch (pre_real.close ? number : -1) {
	case SYS_close:
		return close((int)a[0]);
	case SYS_close_range:
		return close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
	case SYS_dup3:
		return dup3((int)a[0], (int)a[1], (int)a[2]);
	case SYS_recvmmsg:
		return recvmmsg((int)a[0], (struct mmsghdr *)a[1], (unsigned)a[2], (int)a[3], (struct timespec *)a[4]);
	case SYS_sendmmsg:
		return sendmmsg((int)a[0], (struct mmsghdr *)a[1], (unsigned)a[2], (int)a[3]);
	default:
		if (!pre_real.syscall)
			pre_real.syscall = (__typeof__(pre_real.syscall))dlsym(RTLD_NEXT, "syscall");
		return pre_real.syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}
