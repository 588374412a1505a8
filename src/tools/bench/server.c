// server.c - the other end: one process for each session, with limits of time, memory and number
// follows: verbena-bench(1)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"

#define SESSIONS 4 /* at once */
#define GREET_MS 3000

int bench_listen(const char *address, uint16_t *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICHOST}, *list = NULL;
	struct sockaddr_storage own;
	socklen_t n = sizeof(own);
	char service[8];
	int on = 1, off = 0;

	snprintf(service, sizeof(service), "%u", *port);
	hints.ai_family = address ? AF_UNSPEC : AF_INET6;
	if (getaddrinfo(address, service, &hints, &list))
		return errno = EINVAL, -1;
	int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (list->ai_family == AF_INET6)
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	}
	if (fd >= 0 && (bind(fd, list->ai_addr, list->ai_addrlen) || listen(fd, 16))) {
		int err = errno;

		close(fd);
		errno = err;
		fd = -1;
	}
	freeaddrinfo(list);
	if (fd >= 0 && !getsockname(fd, (struct sockaddr *)&own, &n))
		*port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
		                                        : ((struct sockaddr_in *)&own)->sin_port);
	return fd;
}

/* An IPv4 peer of an IPv6 socket has a mapped address, which RDMA adapters know as IPv4. */
static void unmap_address(struct sockaddr_storage *a)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6->sin6_port};

	if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return;
	memcpy(&v4.sin_addr, v6->sin6_addr.s6_addr + 12, 4);
	memset(a, 0, sizeof(*a));
	memcpy(a, &v4, sizeof(v4));
}

static bool grant_session(int fd, uint16_t port, uint64_t token)
{
	uint8_t out[BENCH_GRANT_LEN];

	bench_encode_grant(out, &(struct bench_grant){.port = port, .token = token});
	return bench_send_all(fd, out, sizeof(out), GREET_MS);
}

/* --- RDMA --- */

/* Takes messages until the peer ends the session or closes the TCP connection. */
static bool serve_messages_of(struct bench_end *e, int fd)
{
	int64_t until = doc_now_us() + BENCH_SESSION_S * 1000000ll;
	int slot;

	for (unsigned i = 1;; i++) {
		if (!bench_poll(e, &slot))
			return false;
		if (slot >= 0) {
			uint8_t op = bench_op_of(e, (unsigned)slot);

			if (op == BENCH_END)
				return true;
			/* a peer that does not take its echoes gets no more of them */
			if (op == BENCH_ECHO && e->sending < BENCH_DEPTH && !bench_post_small(e, BENCH_DROP))
				return false;
			if (!bench_post_receive(e, (unsigned)slot))
				return false;
			e->taken++;
		}
		if (e->taken >= BENCH_CREDIT_EACH && e->sending < BENCH_DEPTH) {
			if (!bench_post_small(e, BENCH_CREDIT))
				return false;
			e->taken -= BENCH_CREDIT_EACH;
		}
		if (i % 4096)
			continue;
		char byte;

		if (!recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) || doc_now_us() > until)
			return false;
	}
}

static bool serve_rdma(int fd, const struct bench_ask *ask, struct sockaddr_storage *own,
                       const struct sockaddr_storage *peer, uint64_t token, bool hardware)
{
	static struct bench_end e;
	struct doc_event event;
	struct rdma_conn_param param = {
	        .responder_resources = 16, .initiator_depth = 16, .retry_count = 7, .rnr_retry_count = 7};
	uint64_t memory[2];

	bench_set_port(own, 0);
	if (!bench_open_end(&e, ask->size, hardware))
		return false;
	if (e.v.rdma_bind_addr(e.id, (struct sockaddr *)own) || e.v.rdma_listen(e.id, 1)) {
		fprintf(stderr, "rdma_listen: %s\n", strerror(errno));
		return false;
	}
	if (!grant_session(fd, ntohs(e.v.rdma_get_src_port(e.id)), token) ||
	    !bench_await(&e, RDMA_CM_EVENT_CONNECT_REQUEST, &event))
		return false;
	struct sockaddr_storage from = {0};

	memcpy(&from, &event.id->route.addr.dst_storage, sizeof(from));
	if (memcmp(event.private_data, &token, sizeof(token)) != 0 || !bench_same_host(&from, peer)) {
		fputs("a connection of somebody else was refused\n", stderr);
		return false; /* the end of this process rejects it */
	}
	e.id = event.id;
	if (!bench_make_queues(&e))
		return false;
	memory[0] = bench_large_address(&e);
	memory[1] = e.mr->rkey;
	param.private_data = memory;
	param.private_data_len = sizeof(memory);
	if (e.v.rdma_accept(e.id, &param)) {
		fprintf(stderr, "rdma_accept: %s\n", strerror(errno));
		return false;
	}
	return bench_await(&e, RDMA_CM_EVENT_ESTABLISHED, NULL) && serve_messages_of(&e, fd);
}

/* --- TCP and UDP --- */

static bool serve_tcp(int fd, const struct bench_ask *ask)
{
	size_t room = ask->kind == BENCH_TCP_SINK ? 1 << 20 : ask->size;
	char *buf = malloc(room);
	uint64_t total = 0;
	ssize_t got;

	if (!buf || !grant_session(fd, 0, 0))
		return free(buf), false;
	if (ask->kind == BENCH_TCP_ECHO) {
		while (bench_recv_all(fd, buf, ask->size, BENCH_IDLE_MS) &&
		       bench_send_all(fd, buf, ask->size, BENCH_IDLE_MS))
			;
	} else {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		while (poll(&p, 1, BENCH_IDLE_MS) > 0 && (got = recv(fd, buf, room, 0)) > 0)
			total += (uint64_t)got;
		bench_send_all(fd, &total, sizeof(total), GREET_MS);
	}
	free(buf);
	return true;
}

/* Answers datagrams with the token that come from the peer's address, each with one of its size. */
static bool serve_udp(int fd, struct sockaddr_storage *own, const struct sockaddr_storage *peer, uint64_t token)
{
	socklen_t len = own->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int udp = socket(own->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_storage from;
	socklen_t n = sizeof(from);

	bench_set_port(own, 0);
	if (udp < 0 || bind(udp, (struct sockaddr *)own, len) || getsockname(udp, (struct sockaddr *)&from, &n))
		return false;
	uint16_t port = ntohs(from.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&from)->sin6_port
	                                                 : ((struct sockaddr_in *)&from)->sin_port);

	if (!grant_session(fd, port, token))
		return false;
	struct pollfd p[2] = {{.fd = udp, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

	while (poll(p, 2, BENCH_IDLE_MS) > 0 && !p[1].revents) {
		char buf[BENCH_SMALL];

		n = sizeof(from);
		ssize_t got = recvfrom(udp, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &n);

		if (got == sizeof(buf) && !memcmp(buf, &token, sizeof(token)) && bench_same_host(&from, peer))
			sendto(udp, buf, (size_t)got, MSG_DONTWAIT, (struct sockaddr *)&from, n);
	}
	close(udp);
	return true;
}

static int serve_session(int fd, bool hardware)
{
	struct sockaddr_storage own = {0}, peer = {0};
	socklen_t n_own = sizeof(own), n_peer = sizeof(peer);
	uint8_t in[BENCH_ASK_LEN];
	struct bench_ask ask;
	uint64_t token;
	int on = 1;

	alarm(BENCH_SESSION_S);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (getsockname(fd, (struct sockaddr *)&own, &n_own) || getpeername(fd, (struct sockaddr *)&peer, &n_peer) ||
	    getrandom(&token, sizeof(token), 0) != sizeof(token))
		return 1;
	if (!bench_recv_all(fd, in, sizeof(in), GREET_MS) || !bench_decode_ask(&ask, in)) {
		fputs("verbena bench: a peer that is no verbena bench was refused\n", stderr);
		return 1;
	}
	unmap_address(&own);
	unmap_address(&peer);
	if (ask.kind == BENCH_RDMA)
		return !serve_rdma(fd, &ask, &own, &peer, token, hardware);
	if (ask.kind == BENCH_UDP_ECHO)
		return !serve_udp(fd, &own, &peer, token);
	return !serve_tcp(fd, &ask);
}

/* Returns the process of the session, or -1. */
static pid_t start_session(int listener, int fd, bool hardware)
{
	pid_t parent = getpid(), pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(listener);
		_exit(serve_session(fd, hardware));
	}
	close(fd);
	return pid;
}

/* Forgets the sessions that have ended. The first process of a container inherits other children: they are reaped and
 * not counted. */
static unsigned reap_sessions(pid_t *session, unsigned running)
{
	pid_t ended;

	while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
		for (unsigned i = 0; i < running; i++)
			if (session[i] == ended) {
				session[i] = session[--running];
				break;
			}
	return running;
}

int bench_serve(int listener, unsigned most, bool hardware)
{
	pid_t session[SESSIONS];
	unsigned running = 0, begun = 0;

	while (!most || begun < most || running) {
		bool full = running >= SESSIONS || (most && begun >= most);
		struct pollfd p = {.fd = listener, .events = full ? 0 : POLLIN};
		int ready = poll(&p, 1, running ? 20 : 1000);

		running = reap_sessions(session, running);
		if (ready <= 0 || !(p.revents & POLLIN))
			continue;
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		begun++;
		session[running] = start_session(listener, fd, hardware);
		running += session[running] > 0;
	}
	return 0;
}
