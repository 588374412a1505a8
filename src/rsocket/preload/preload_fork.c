// preload_fork.c - connections that begin as TCP and switch to RDMA at the first data, in the process that owns them
// then
// follows: rsocket(7) ("Support for fork()"); the exchange is rdma-core's
// SPDX-License-Identifier: MIT
#include "rsocket/preload/preload.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/lock.h"

#define COMING_MS 2000 /* wait for the last message of connection management after TCP has ended */
#define CLIENT_MS 2000 /* wait for a client to connect by RDMA; others wait for the same port meanwhile */
#define TURN_MS 10000
#define LOOK_MS 5
#define TOGETHER 256 /* connections waited for at once */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards fork and settling of all sockets */
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;
static unsigned forks, process = 1; /* process: a different number in each child */
static __thread char me;

static void lock_fork(void)
{
	vb_mutex_lock(&lock, VB_RANK_PRE_FORK);
	forks++;
}

static void unlock_fork(void)
{
	vb_mutex_unlock(&lock);
}

static void release_in_child(void)
{
	pthread_cond_init(&settled, NULL);
	process++; /* threads of the parent that were deciding do not exist in the child */
	vb_mutex_unlock(&lock);
}

__attribute__((constructor)) static void follow_settling_forks(void)
{
	pthread_atfork(lock_fork, unlock_fork, release_in_child);
}

void pre_connecting(struct pre_sock *s)
{
	s->owner = &me;
	s->forks = forks;
	s->fork = PRE_FORK_ACTIVE;
}

/* Copies the options when a socket changes its kind. */
int pre_copy_options(int rs, int plain, int domain, int type, bool to_rsocket)
{
	static const struct {
		int level, name;
	} options[] = {{SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_NODELAY}};
	int flags = to_rsocket ? pre_real.fcntl(plain, F_GETFL) : rfcntl(rs, F_GETFL), v;
	socklen_t len;

	if (flags >= 0)
		to_rsocket ? rfcntl(rs, F_SETFL, flags & O_NONBLOCK)
		           : pre_real.fcntl(plain, F_SETFL, flags & O_NONBLOCK);
	for (size_t i = 0; i < sizeof(options) / sizeof(*options) && type == SOCK_STREAM; i++) {
		len = sizeof(v);
		if ((to_rsocket ? pre_real.getsockopt(plain, options[i].level, options[i].name, &v, &len)
		                : rgetsockopt(rs, options[i].level, options[i].name, &v, &len)) ||
		    !v)
			continue;
		if (to_rsocket)
			rsetsockopt(rs, options[i].level, options[i].name, &v, sizeof(v));
		else
			pre_real.setsockopt(plain, options[i].level, options[i].name, &v, sizeof(v));
	}
	return 0;
}

/* Removes the server's four bytes, because the connection stays TCP. */
static void take_word(int plain)
{
	uint32_t word;

	pre_real.recv(plain, &word, sizeof(word), MSG_DONTWAIT);
}

/* The server sends four zero bytes over TCP when its rsocket listens. Then this connects to it. */
static int connect_rs(struct pre_sock *s, short revents)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	uint32_t word;
	int flags = pre_real.fcntl(s->plain, F_GETFL), rs;
	ssize_t n;

	/* Leave the error of a refused connection to the program. */
	if (revents & (POLLERR | POLLNVAL))
		return -1;
	pre_real.fcntl(s->plain, F_SETFL, 0);
	n = pre_real.recv(s->plain, &word, sizeof(word), MSG_PEEK | MSG_WAITALL);
	pre_real.fcntl(s->plain, F_SETFL, flags);
	if (n != sizeof(word) || word || pre_real.getpeername(s->plain, (struct sockaddr *)&addr, &len))
		return -1;
	rs = rsocket(addr.ss_family, SOCK_STREAM, 0);
	if (rs >= 0) {
		pre_tune(rs);
		if (!rconnect(rs, (struct sockaddr *)&addr, len))
			return rs;
		rclose(rs);
	}
	take_word(s->plain);
	return -1;
}

static int listen_rs(struct pre_sock *s)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in sin;
		struct sockaddr_in6 sin6;
	} addr;
	socklen_t len = sizeof(addr);
	int rs, one = 1;

	if (pre_real.getsockname(s->plain, &addr.sa, &len))
		return -1;
	if (addr.sa.sa_family == AF_INET)
		addr.sin.sin_addr.s_addr = htonl(INADDR_ANY);
	else
		addr.sin6.sin6_addr = in6addr_any;
	rs = rsocket(addr.sa.sa_family, SOCK_STREAM, 0);
	if (rs < 0)
		return -1;
	pre_tune(rs);
	rsetsockopt(rs, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!rbind(rs, &addr.sa, len) && !rlisten(rs, 1))
		return rs;
	int err = errno;

	rclose(rs);
	errno = err;
	return -1;
}

static int rpoll_all(struct pollfd *p, nfds_t count, int timeout)
{
	int n;

	do
		n = rpoll(p, count, timeout);
	while (n < 0 && errno == EINTR);
	return n;
}

/* Accepts the client by RDMA, or returns -1. A client that cannot use RDMA sends data by TCP, closes, or does nothing.
 * A client that has connected by RDMA shuts TCP down, which may be noticed first. */
static int accept_or_tcp(int l, int plain)
{
	struct pollfd p[2] = {{.fd = l, .events = POLLIN}, {.fd = plain, .events = POLLIN}};
	int n = rpoll_all(p, 2, CLIENT_MS);
	char byte;

	if (n > 0 && !p[0].revents && pre_real.recv(plain, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
		n = rpoll_all(p, 1, COMING_MS);
	return n > 0 && p[0].revents ? raccept(l, NULL, NULL) : -1;
}

/* The children of one server share a port, so one of them listens at a time. The others sleep on a file lock, which
 * ends with its process. Without that lock, or if another user holds the file, they retry. */
static int take_turn(void)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/dev/shm/rsocket_fork.%u", (unsigned)geteuid());
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);

	if (fd >= 0 && (fstat(fd, &st) || st.st_uid != geteuid())) {
		pre_real.close(fd);
		return -1;
	}
	while (fd >= 0 && flock(fd, LOCK_EX) && errno == EINTR)
		;
	return fd;
}

static int listen_in_turn(struct pre_sock *s)
{
	int l = -1;

	for (int ms = 0; ms < TURN_MS; ms += LOOK_MS) {
		l = listen_rs(s);
		if (l >= 0 || errno != EADDRINUSE)
			break;
		pre_real.poll(NULL, 0, LOOK_MS);
	}
	return l;
}

static int accept_rs(struct pre_sock *s)
{
	int turn = take_turn(), l = listen_in_turn(s), rs = -1;
	uint32_t word = 0;

	if (l >= 0 && pre_real.write(s->plain, &word, sizeof(word)) == sizeof(word))
		rs = accept_or_tcp(l, s->plain);
	if (l >= 0)
		rclose(l);
	if (turn >= 0) {
		flock(turn, LOCK_UN); /* a child forked meanwhile holds the lock, too */
		pre_real.close(turn);
	}
	return rs;
}

/* True if this thread must decide and then call settle_as(). False if another thread has decided. */
static bool claim_settling(struct pre_sock *s, bool wait)
{
	vb_mutex_lock(&lock, VB_RANK_PRE_FORK);
	while (wait && s->settling == process)
		pthread_cond_wait(&settled, &lock);
	bool mine = s->settling != process && (s->fork == PRE_FORK_ACTIVE || s->fork == PRE_FORK_PASSIVE);

	if (mine)
		s->settling = process;
	vb_mutex_unlock(&lock);
	return mine;
}

static void settle_as(struct pre_sock *s, int rs)
{
	int plain = s->plain;

	if (rs >= 0)
		pre_copy_options(rs, plain, s->domain, s->type, true);
	vb_mutex_lock(&lock, VB_RANK_PRE_FORK);
	if (rs >= 0) {
		s->plain = -1;
		s->rs = rs;
	}
	s->fork = PRE_READY;
	s->settling = 0;
	pthread_cond_broadcast(&settled);
	vb_mutex_unlock(&lock);
	if (rs < 0)
		return;
	pre_real.shutdown(plain, SHUT_RDWR);
	pre_real.close(plain);
}

/* True if this thread has connected the socket, and no process has been forked since that may own it now. */
static bool is_mine(const struct pre_sock *s)
{
	return s->fork == PRE_FORK_ACTIVE && s->settling != process && s->owner == &me && s->forks == forks;
}

/* A single-process server may settle our other connections before this one. So this settles them in the server's
 * order. */
static void settle_active(struct pre_sock *s)
{
	struct pre_sock *all[TOGETHER] = {s};
	struct pollfd p[TOGETHER];
	unsigned n = 1 + pre_list(is_mine, all + 1, TOGETHER - 1);

	do {
		for (unsigned i = 0; i < n; i++)
			p[i] = (struct pollfd){.fd = i && all[i]->fork != PRE_FORK_ACTIVE ? -1 : all[i]->plain,
			                       .events = POLLIN};
		if (PRE_SLEEP(pre_real.poll(p, n, -1)) < 0 && errno != EINTR)
			p[0].revents = POLLERR;
		for (unsigned i = 1; i < n; i++)
			if (p[i].fd >= 0 && p[i].revents && claim_settling(all[i], false))
				settle_as(all[i], connect_rs(all[i], p[i].revents));
	} while (!p[0].revents);
	settle_as(s, connect_rs(s, p[0].revents));
	for (unsigned i = 1; i < n; i++)
		pre_put(all[i]);
}

/* Called at the first data. If RDMA fails, the connection stays TCP. */
void pre_settle(struct pre_sock *s)
{
	if (!claim_settling(s, true))
		return;
	if (s->fork == PRE_FORK_ACTIVE)
		settle_active(s);
	else
		settle_as(s, accept_rs(s));
}
