// preload.c - the socket calls of libc, with rsockets behind them
// follows: rsocket(7) ("preload library"); POSIX socket()
// SPDX-License-Identifier: MIT
/* sockaddr arguments are transparent unions in glibc's header; the ABI is that of a pointer. */
#undef _FORTIFY_SOURCE
#include "rsocket/preload/preload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

/* True for calls from the libraries below this one, which are not the program's. */
static bool from_below(void *caller)
{
	void *const below[] = {(void *)rsocket, (void *)rdma_create_id, (void *)ibv_open_device, (void *)pre_init};
	Dl_info c, b;

	if (!dladdr(caller, &c))
		return false;
	for (size_t i = 0; i < sizeof(below) / sizeof(*below); i++)
		if (dladdr(below[i], &b) && b.dli_fbase == c.dli_fbase)
			return true;
	return false;
}

static int open_rsocket(int domain, int type, int protocol)
{
	struct pre_sock *s;
	int fd = pre_open(&s, domain, type);

	if (fd < 0)
		return -1;
	if (pre_fork_support && s->type == SOCK_STREAM) {
		s->fork = PRE_FORK_NEW;
		s->plain = pre_real.socket(domain, type, protocol);
	} else {
		s->rs = rsocket(domain, type, protocol);
		if (s->rs >= 0)
			pre_tune(s->rs);
	}
	if (s->rs < 0 && s->plain < 0)
		pre_drop(fd); /* the program gets the placeholder as an ordinary socket */
	pre_put(s);
	return fd;
}

PRE_EXPORT int socket(int domain, int type, int protocol)
{
	static __thread bool inside;
	int fd;

	pre_init();
	/* a signal handler may have interrupted the allocator: it gets a kernel socket */
	if (inside || !pre_wanted(domain, type, protocol) || pre_is_fragile())
		return pre_real.socket(domain, type, protocol);
	pre_enter(); /* the loader's lock counts, too */
	inside = true;
	if (from_below(__builtin_return_address(0)))
		fd = pre_real.socket(domain, type, protocol);
	else
		fd = open_rsocket(domain, type, protocol);
	inside = false;
	pre_leave();
	return fd;
}

/* Most calls are passed to the rsocket, to the TCP or UDP socket behind the placeholder, or to the descriptor
 * itself. */
#define PASS(get, type, rcall, pcall, fd, ...)                                                                 \
	PRE_ERRNO;                                                                                             \
	PRE_HELD struct pre_sock *s_ = get(fd);                                                                \
	type r_;                                                                                               \
	if (!s_)                                                                                               \
		return pre_real.pcall(fd, ##__VA_ARGS__);                                                      \
	r_ = s_->rs >= 0 ? rcall(s_->rs, ##__VA_ARGS__) : PRE_SLEEP(pre_real.pcall(s_->plain, ##__VA_ARGS__)); \
	errno_.good = r_ >= 0;                                                                                 \
	return r_

PRE_EXPORT int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	PASS(pre_get, int, rbind, bind, fd, addr, len);
}

PRE_EXPORT int listen(int fd, int backlog)
{
	struct pre_sock *s = pre_get(fd);
	int r;

	if (!s)
		return pre_real.listen(fd, backlog);
	r = s->rs >= 0 ? rlisten(s->rs, backlog) : pre_real.listen(s->plain, backlog);
	if (!r && s->fork == PRE_FORK_NEW)
		s->fork = PRE_FORK_LISTEN;
	pre_put(s);
	return r;
}

static void note_call(struct pre_sock *s, unsigned *counter)
{
	int saved = errno;

	__atomic_fetch_add(counter, 1, __ATOMIC_RELEASE);
	if (__atomic_load_n(&s->refs_by_epoll, __ATOMIC_RELAXED))
		pre_epoll_kick(s);
	errno = saved;
}

static int accept_from(struct pre_sock *l, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct pre_sock *s;
	int fd, got = l->rs >= 0 ? raccept(l->rs, addr, len) : PRE_SLEEP(pre_real.accept4(l->plain, addr, len, flags));
	bool rsock = l->rs >= 0;

	if (got < 0)
		return -1;
	fd = pre_open(&s, l->domain, l->type | flags);
	if (fd < 0) {
		rsock ? rclose(got) : pre_real.close(got);
		return -1;
	}
	if (rsock) {
		s->rs = got;
		/* Linux: O_NONBLOCK of the listener is not inherited. */
		rfcntl(got, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	} else {
		s->plain = got;
		s->fork = l->fork == PRE_FORK_LISTEN ? PRE_FORK_PASSIVE : PRE_READY;
	}
	pre_put(s);
	return fd;
}

PRE_EXPORT int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	PRE_ERRNO;
	PRE_HELD struct pre_sock *l = pre_get(fd);
	int r;

	if (!l)
		return pre_real.accept4(fd, addr, len, flags);
	r = accept_from(l, addr, len, flags);
	note_call(l, &l->in_reads);
	errno_.good = r >= 0;
	return r;
}

PRE_EXPORT int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accept4(fd, addr, len, 0);
}

/* Connects by TCP or UDP, because the peer does not support RDMA. */
static int connect_plain(struct pre_sock *s, const struct sockaddr *addr, socklen_t len)
{
	int plain = pre_real.socket(s->domain, s->type, 0);

	if (plain < 0)
		return -1;
	pre_copy_options(s->rs, plain, s->domain, s->type, false);
	rclose(s->rs);
	s->rs = -1;
	s->plain = plain;
	return PRE_SLEEP(pre_real.connect(plain, addr, len));
}

PRE_EXPORT int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	PRE_ERRNO;
	PRE_HELD struct pre_sock *s = pre_get(fd);
	int r;

	if (!s)
		return pre_real.connect(fd, addr, len);
	if (s->rs >= 0) {
		r = rconnect(s->rs, addr, len);
		if (r && errno != EINPROGRESS && errno != EALREADY && errno != EISCONN && errno != EINTR)
			r = connect_plain(s, addr, len);
	} else {
		r = PRE_SLEEP(pre_real.connect(s->plain, addr, len));
		if (s->fork == PRE_FORK_NEW && (!r || errno == EINPROGRESS))
			pre_connecting(s);
	}
	errno_.good = !r;
	return r;
}

#define RECV(call, name, ...)                                                                            \
	PRE_ERRNO;                                                                                       \
	PRE_HELD struct pre_sock *s_ = pre_take(fd);                                                     \
	ssize_t r_;                                                                                      \
	if (!s_)                                                                                         \
		return pre_real.name(fd, __VA_ARGS__);                                                   \
	r_ = s_->rs >= 0 ? call(s_->rs, __VA_ARGS__) : PRE_SLEEP(pre_real.name(s_->plain, __VA_ARGS__)); \
	note_call(s_, &s_->in_reads);                                                                    \
	errno_.good = r_ >= 0;                                                                           \
	return r_

PRE_EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	RECV(rrecv, recv, buf, len, flags);
}

PRE_EXPORT ssize_t recvfrom(int fd, void *restrict buf, size_t len, int flags, struct sockaddr *restrict from,
                            socklen_t *restrict from_len)
{
	RECV(rrecvfrom, recvfrom, buf, len, flags, from, from_len);
}

PRE_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	RECV(rrecvmsg, recvmsg, msg, flags);
}

PRE_EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	RECV(rread, read, buf, len);
}

PRE_EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	RECV(rreadv, readv, iov, n);
}

/* Programs compiled with fortification call these. */
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *from,
                       socklen_t *from_len);
ssize_t __read_chk(int fd, void *buf, size_t len, size_t room);

PRE_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	return len > room ? (abort(), -1) : recv(fd, buf, len, flags);
}

PRE_EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *from,
                                  socklen_t *from_len)
{
	return len > room ? (abort(), -1) : recvfrom(fd, buf, len, flags, from, from_len);
}

PRE_EXPORT ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	return len > room ? (abort(), -1) : read(fd, buf, len);
}

/* rsockets return EPIPE without a signal, so this raises SIGPIPE. */
static void broken_pipe(const struct pre_sock *s, int flags)
{
	if (errno != EPIPE || s->rs < 0 || s->type != SOCK_STREAM || (flags & MSG_NOSIGNAL))
		return;
	raise(SIGPIPE);
	errno = EPIPE;
}

/* want: bytes requested, so that a short write is noticed; how: flags. */
#define SEND(want, how, call, name, ...)                                                                 \
	PRE_ERRNO;                                                                                       \
	PRE_HELD struct pre_sock *s_ = pre_take(fd);                                                     \
	ssize_t r_;                                                                                      \
	if (!s_)                                                                                         \
		return pre_real.name(fd, __VA_ARGS__);                                                   \
	r_ = s_->rs >= 0 ? call(s_->rs, __VA_ARGS__) : PRE_SLEEP(pre_real.name(s_->plain, __VA_ARGS__)); \
	if (r_ < (ssize_t)(want))                                                                        \
		note_call(s_, &s_->out_blocks);                                                          \
	if (r_ < 0)                                                                                      \
		broken_pipe(s_, how);                                                                    \
	errno_.good = r_ >= 0;                                                                           \
	return r_

static size_t sum_lengths(const struct iovec *iov, size_t n)
{
	size_t all = 0;

	while (n--)
		all += iov++->iov_len;
	return all;
}

PRE_EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	SEND(len, flags, rsend, send, buf, len, flags);
}

/* TCP ignores the address of sendto() on a stream, but rsendto() rejects it. */
static bool is_stream(int fd)
{
	struct pre_sock *s = pre_get(fd);
	bool stream = s && s->type == SOCK_STREAM;

	if (s)
		pre_put(s);
	return stream;
}

PRE_EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	if (to && is_stream(fd)) {
		to = NULL;
		to_len = 0;
	}
	SEND(len, flags, rsendto, sendto, buf, len, flags, to, to_len);
}

PRE_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct msghdr bare = *msg;

	if (msg->msg_name && is_stream(fd)) {
		bare.msg_name = NULL;
		bare.msg_namelen = 0;
		msg = &bare;
	}
	SEND(sum_lengths(msg->msg_iov, msg->msg_iovlen), flags, rsendmsg, sendmsg, msg, flags);
}

PRE_EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	SEND(len, 0, rwrite, write, buf, len);
}

PRE_EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	SEND(n > 0 ? sum_lengths(iov, (size_t)n) : 0, 0, rwritev, writev, iov, n);
}

static ssize_t copy_file(struct pre_sock *s, int in, off_t *offset, size_t count)
{
	char buf[65536];
	size_t want = count < sizeof(buf) ? count : sizeof(buf);
	ssize_t n = offset ? pread(in, buf, want, *offset) : pre_real.read(in, buf, want), put;

	if (n <= 0)
		return n;
	put = rwrite(s->rs, buf, (size_t)n);
	if (put < n)
		note_call(s, &s->out_blocks);
	if (put < 0)
		broken_pipe(s, 0);
	if (offset && put > 0)
		*offset += put;
	else if (!offset && put < n)
		lseek(in, (put < 0 ? 0 : put) - n, SEEK_CUR);
	return put;
}

PRE_EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	PRE_HELD struct pre_sock *s = pre_take(out);
	ssize_t r, all = 0;

	if (!s)
		return pre_real.sendfile(out, in, offset, count);
	if (s->rs < 0) {
		all = PRE_SLEEP(pre_real.sendfile(s->plain, in, offset, count));
	} else {
		do {
			r = copy_file(s, in, offset, count - (size_t)all);
			all = r > 0 ? all + r : all ? all : r;
		} while (r > 0 && (size_t)all < count);
	}
	return all;
}

PRE_EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t n) __attribute__((alias("sendfile")));

PRE_EXPORT int shutdown(int fd, int how)
{
	PASS(pre_get, int, rshutdown, shutdown, fd, how);
}

PRE_EXPORT int getpeername(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
	PASS(pre_get, int, rgetpeername, getpeername, fd, addr, len);
}

PRE_EXPORT int getsockname(int fd, struct sockaddr *restrict addr, socklen_t *restrict len)
{
	PASS(pre_get, int, rgetsockname, getsockname, fd, addr, len);
}

/* True for options that make calls wait for data. On a connection that will become RDMA no data arrives by TCP, so no
 * call may wait for it. */
static bool waits_for_data(const struct pre_sock *s, int level, int name)
{
	return (s->fork == PRE_FORK_NEW || s->fork == PRE_FORK_LISTEN) && level == IPPROTO_TCP &&
	       (name == TCP_DEFER_ACCEPT || name == TCP_FASTOPEN_CONNECT);
}

/* An option that rsockets do not know is set on the placeholder, which accepts or rejects it. */
PRE_EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct pre_sock *s = pre_get(fd);
	int r;

	if (!s)
		return pre_real.setsockopt(fd, level, name, value, len);
	r = s->rs >= 0 ? rsetsockopt(s->rs, level, name, value, len)
	               : pre_real.setsockopt(waits_for_data(s, level, name) ? fd : s->plain, level, name, value, len);
	if (r && errno == ENOPROTOOPT && s->rs >= 0)
		r = pre_real.setsockopt(fd, level, name, value, len);
	pre_put(s);
	return r;
}

PRE_EXPORT int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
	struct pre_sock *s = pre_get(fd);
	int r;

	if (!s)
		return pre_real.getsockopt(fd, level, name, value, len);
	r = s->rs >= 0 ? rgetsockopt(s->rs, level, name, value, len)
	               : pre_real.getsockopt(waits_for_data(s, level, name) ? fd : s->plain, level, name, value, len);
	if (r && errno == ENOPROTOOPT && s->rs >= 0)
		r = pre_real.getsockopt(fd, level, name, value, len);
	pre_put(s);
	return r;
}

PRE_EXPORT int close(int fd)
{
	if (pre_any() && !pre_borrowed()) {
		pre_epoll_forget(fd);
		pre_drop(fd);
	}
	return pre_real.close(fd);
}

PRE_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	bool ours = pre_any() && !pre_borrowed() && !(flags & CLOSE_RANGE_CLOEXEC) && first <= last && first <= INT_MAX;

	if (ours)
		pre_epoll_forget_range(first, last);
	for (int fd = (int)first; ours && (fd = pre_next(fd, last)) >= 0; fd++) {
		pre_epoll_forget(fd);
		pre_drop(fd);
	}
	return (int)pre_real.syscall(SYS_close_range, first, last, flags);
}

PRE_EXPORT void closefrom(int low)
{
	close_range(low < 0 ? 0 : (unsigned)low, UINT_MAX, 0);
}

/* A duplicate of a placeholder stands for the same socket. */
static int alias_copy(int fd, int to)
{
	struct pre_sock *s = to < 0 || pre_borrowed() ? NULL : pre_take(fd);

	if (!s)
		return to;
	if (pre_alias(to, s)) {
		pre_real.close(to);
		to = -1;
		errno = EMFILE;
	}
	pre_put(s);
	return to;
}

PRE_EXPORT int dup(int fd)
{
	pre_init();
	return alias_copy(fd, pre_real.dup(fd));
}

PRE_EXPORT int dup3(int fd, int to, int flags)
{
	if (pre_any() && fd != to && !pre_borrowed() && pre_real.fcntl(fd, F_GETFD) >= 0) {
		pre_epoll_forget(to);
		pre_drop(to);
	}
	return alias_copy(fd, pre_real.dup3(fd, to, flags));
}

PRE_EXPORT int dup2(int fd, int to)
{
	pre_init();
	if (fd == to)
		return pre_real.fcntl(fd, F_GETFD) < 0 ? -1 : fd;
	return dup3(fd, to, 0);
}

static int status_flags(struct pre_sock *s, int cmd, long arg)
{
	return s->rs >= 0 ? rfcntl(s->rs, cmd, (int)arg) : pre_real.fcntl(s->plain, cmd, arg);
}

PRE_EXPORT int fcntl(int fd, int cmd, ...)
{
	struct pre_sock *s = NULL;
	va_list args;
	long arg;
	int r;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	pre_init();
	if (cmd == F_GETFL || cmd == F_SETFL)
		s = pre_get(fd);
	if (s) {
		r = status_flags(s, cmd, arg);
		pre_put(s);
		return r;
	}
	r = pre_real.fcntl(fd, cmd, arg);
	return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? alias_copy(fd, r) : r;
}

PRE_EXPORT int fcntl64(int fd, int cmd, ...) __attribute__((alias("fcntl")));

static int peek_unread(struct pre_sock *s, int *out)
{
	enum { LOOK = 65536 };
	char *buf = malloc(LOOK);
	ssize_t n = buf ? rrecv(s->rs, buf, LOOK, MSG_PEEK | MSG_DONTWAIT) : 0;

	free(buf);
	*out = n > 0 ? (int)n : 0;
	return 0;
}

PRE_EXPORT int ioctl(int fd, unsigned long request, ...)
{
	struct pre_sock *s;
	va_list args;
	void *arg;
	int r, fl;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	s = pre_get(fd);
	if (!s)
		return pre_real.ioctl(fd, request, arg);
	if (s->rs < 0) {
		r = pre_real.ioctl(s->plain, request, arg);
	} else if (request == FIONBIO) {
		fl = rfcntl(s->rs, F_GETFL);
		r = rfcntl(s->rs, F_SETFL, *(int *)arg ? fl | O_NONBLOCK : fl & ~O_NONBLOCK);
	} else if (request == FIONREAD) {
		r = peek_unread(s, arg);
	} else {
		r = pre_real.ioctl(fd, request, arg);
	}
	pre_put(s);
	return r;
}
