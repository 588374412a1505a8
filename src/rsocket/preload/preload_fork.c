// preload_fork.c - connections that begin as TCP and become RDMA with the first data, in the process that has it then
// follows: rsocket(7) ("Support for fork()"); the exchange is rdma-core's
// SPDX-License-Identifier: MIT
#include "rsocket/preload/preload.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/stat.h>

#define COMING_MS 2000 /* after the end of TCP, for the last message of the connection */

/* A socket that becomes the other kind takes these along. */
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

/* Without RDMA the connection stays TCP: there the word is not the program's. */
static void take_word(int plain)
{
	uint32_t word;

	pre_real.recv(plain, &word, sizeof(word), MSG_DONTWAIT);
}

/* The server says four zero bytes over TCP when its rsocket listens. */
static int connect_rs(struct pre_sock *s)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	uint32_t word;
	int flags = pre_real.fcntl(s->plain, F_GETFL), rs;
	struct pollfd p = {.fd = s->plain, .events = POLLIN};
	ssize_t n;

	/* Where the connection was refused the program is to see it, not we. */
	if (pre_real.poll(&p, 1, -1) < 0 || (p.revents & POLLERR))
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
	rclose(rs);
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

/* A client that RDMA does not bring here goes on by TCP, or goes. One that has come shuts TCP down, which may be seen first. */
static int accept_or_tcp(int l, int plain)
{
	struct pollfd p[2] = {{.fd = l, .events = POLLIN}, {.fd = plain, .events = POLLIN}};
	int n = rpoll_all(p, 2, -1);
	char byte;

	if (n > 0 && !p[0].revents && pre_real.recv(plain, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
		n = rpoll_all(p, 1, COMING_MS);
	return n > 0 && p[0].revents ? raccept(l, NULL, NULL) : -1;
}

/* The children of one server have the same port: a semaphore lets one of them listen at a time. */
static int accept_rs(struct pre_sock *s)
{
	sem_t *sem = sem_open("/rsocket_fork", O_CREAT | O_RDWR, S_IRWXU | S_IRWXG, 1);
	uint32_t word = 0;
	int l, rs = -1;

	if (sem == SEM_FAILED)
		return -1;
	while (sem_wait(sem) && errno == EINTR)
		;
	l = listen_rs(s);
	if (l >= 0 && pre_real.write(s->plain, &word, sizeof(word)) == sizeof(word))
		rs = accept_or_tcp(l, s->plain);
	if (l >= 0)
		rclose(l);
	sem_post(sem);
	sem_close(sem);
	return rs;
}

/* First data. Where RDMA does not come about the connection stays TCP. */
void pre_settle(struct pre_sock *s)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	int rs;

	pthread_mutex_lock(&one_at_a_time);
	if (s->fork == PRE_FORK_ACTIVE || s->fork == PRE_FORK_PASSIVE) {
		rs = s->fork == PRE_FORK_ACTIVE ? connect_rs(s) : accept_rs(s);
		if (rs >= 0) {
			pre_copy_options(rs, s->plain, s->domain, s->type, true);
			pre_real.shutdown(s->plain, SHUT_RDWR);
			pre_real.close(s->plain);
			s->plain = -1;
			s->rs = rs;
		}
		s->fork = PRE_READY;
	}
	pthread_mutex_unlock(&one_at_a_time);
}
