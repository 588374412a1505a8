// flood_test.c - datagrams from forged sources neither exhaust a server nor keep a genuine peer away
// follows: rdma-core docs/rsocket ("UDP Message Format"); ipv6(7) (IPV6_TRANSPARENT)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif

enum { PORT = 7471, PEER_PORT = 7472, SOURCES = 3000, AT_ONCE = 50, FDS = 1024, FDS_MAX = 150, HEAD = 28 };

static struct sockaddr_in6 server = {.sin6_family = AF_INET6, .sin6_port = 0};
static const char *net;

struct shared {
	atomic_uint rounds; /* of the genuine peer */
	atomic_bool over;
};
static struct shared *shared;

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* A UDP message of an rsocket: op 0 is data, 7 announces a queue pair. */
static size_t message(uint8_t *out, uint8_t op, uint32_t qpn)
{
	memset(out, 0, HEAD);
	memset(out, 0x55, 4);
	out[4] = 6;
	out[5] = op;
	out[6] = HEAD;
	qpn = htonl(qpn);
	memcpy(out + 8, &qpn, 4);
	out[HEAD] = 'x';
	return op ? HEAD : HEAD + 1;
}

/* An unused address that does not answer. */
static int forged_source(unsigned n)
{
	struct sockaddr_in6 from = {.sin6_family = AF_INET6, .sin6_port = htons(9000)};
	char text[64];
	int one = 1, fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(text, sizeof(text), "%s:dead:%x", net, n + 1);
	CHECK(fd >= 0 && inet_pton(AF_INET6, text, &from.sin6_addr) == 1);
	CHECK(!setsockopt(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, &one, sizeof(one)));
	CHECK(!bind(fd, (struct sockaddr *)&from, sizeof(from)));
	return fd;
}

static void say(int fd, uint8_t op, uint32_t qpn)
{
	uint8_t m[HEAD + 1];
	size_t len = message(m, op, qpn);

	CHECK(sendto(fd, m, len, 0, (struct sockaddr *)&server, sizeof(server)) == (ssize_t)len);
}

static void flood(unsigned first)
{
	int fds[AT_ONCE];

	for (unsigned i = 0; i < AT_ONCE; i++)
		say(fds[i] = forged_source(first + i), 0, 0x100 + i);
	sleep_ms(5); /* the program answers: from then on it uses the queue pair there */
	for (unsigned i = 0; i < AT_ONCE; i++) {
		say(fds[i], 7, 0x100 + i);
		close(fds[i]);
	}
}

/* A message in the name of the genuine peer, with another queue pair. */
static void forge_a_claim(uint32_t qpn)
{
	struct {
		struct ip6_hdr ip;
		struct udphdr udp;
		uint8_t m[HEAD + 1];
	} __attribute__((packed)) p = {0};
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_addr = server.sin6_addr};
	size_t len = sizeof(p.udp) + message(p.m, 7, qpn);
	uint32_t sum = htons((uint16_t)len) + htons(IPPROTO_UDP);
	int fd = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);

	p.ip = (struct ip6_hdr){
	        .ip6_flow = htonl(6u << 28), .ip6_plen = htons((uint16_t)len), .ip6_nxt = IPPROTO_UDP, .ip6_hlim = 64};
	p.ip.ip6_src = p.ip.ip6_dst = server.sin6_addr;
	p.udp = (struct udphdr){.source = htons(PEER_PORT), .dest = htons(PORT), .len = htons((uint16_t)len)};
	for (size_t i = 0; i < 32 + len; i += 2)
		sum += *(uint16_t *)((uint8_t *)&p.ip.ip6_src + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	p.udp.check = (uint16_t)~sum;
	CHECK(fd >= 0 && sendto(fd, &p, sizeof(p.ip) + len, 0, (struct sockaddr *)&to, sizeof(to)) > 0);
	close(fd);
}

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(dir); /* a server without free descriptors fails here */
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static bool round_trip(int s, unsigned n, int ms)
{
	struct pollfd p = {.fd = s, .events = POLLIN};
	unsigned got = 0;

	if (rsend(s, &n, sizeof(n), 0) != sizeof(n))
		return false;
	while (rpoll(&p, 1, ms) > 0)
		if (rrecv(s, &got, sizeof(got), MSG_DONTWAIT) == sizeof(got) && got == n)
			return true;
	return false;
}

static int genuine(uint16_t port)
{
	struct sockaddr_in6 me = server;
	int s = rsocket(AF_INET6, SOCK_DGRAM, 0);

	me.sin6_port = htons(port);
	CHECK(s >= 0 && !rbind(s, (struct sockaddr *)&me, sizeof(me)));
	CHECK(!rconnect(s, (struct sockaddr *)&server, sizeof(server)));
	return s;
}

static int peer(void)
{
	int s = genuine(PEER_PORT);

	for (unsigned n = 1; !shared->over; n++)
		if (round_trip(s, n, 200))
			shared->rounds++;
	rclose(s);
	return 0;
}

/* Another peer arrives after the flood. */
static int newcomer(void)
{
	int s = genuine(0);

	for (unsigned n = 1; n < 100; n++)
		if (round_trip(s, n, 200))
			return 0;
	return 1;
}

static void *echo(void *arg)
{
	struct sockaddr_in6 from;
	int s = *(int *)arg;
	char buf[64];

	for (;;) {
		socklen_t len = sizeof(from);
		ssize_t n = rrecvfrom(s, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);

		if (n > 0)
			rsendto(s, buf, (size_t)n, 0, (struct sockaddr *)&from, len);
	}
	return NULL;
}

static void wait_for_rounds(unsigned more)
{
	unsigned want = shared->rounds + more;

	for (int ms = 0; shared->rounds < want && ms < LONG_MS; ms += 10)
		sleep_ms(10);
	CHECK(shared->rounds >= want);
}

static int server_socket(void)
{
	int s = rsocket(AF_INET6, SOCK_DGRAM, 0);

	CHECK(s >= 0 && !rbind(s, (struct sockaddr *)&server, sizeof(server)));
	return s;
}

static pid_t start(int (*what)(void))
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sleep_ms(300); /* the server has opened its socket */
		_exit(what()); /* no leak check: a thread of the parent does not exist here */
	}
	return pid;
}

static pid_t first;

static void a_forged_claim_does_not_lead_a_peers_datagrams_astray(void)
{
	wait_for_rounds(100);
	for (uint32_t n = 0; n < 10; n++) {
		forge_a_claim(0x123450 + n);
		sleep_ms(20);
	}
	wait_for_rounds(100);
}

static void a_flood_from_forged_sources_costs_no_descriptors_and_no_genuine_peer(void)
{
	unsigned most = 0, now;
	int status;
	pid_t second;

	for (unsigned n = 0; n < SOURCES; n += AT_ONCE) {
		flood(n);
		now = open_fds();
		most = now > most ? now : most;
	}
	printf("# at most %u descriptors with %d forged sources\n", most, SOURCES);
	CHECK(most <= FDS_MAX);
	wait_for_rounds(100);
	shared->over = true;
	CHECK(waitpid(first, &status, 0) == first && !status);
	second = start(newcomer);
	CHECK(waitpid(second, &status, 0) == second && !status);
}

int main(int argc, char **argv)
{
	const struct rlimit few = {FDS, FDS};
	pthread_t thread;
	char text[64];
	int s;

	net = argc > 1 ? argv[1] : "fd00:6f:";
	snprintf(text, sizeof(text), "%s:1", net);
	CHECK(inet_pton(AF_INET6, text, &server.sin6_addr) == 1);
	server.sin6_port = htons(PORT);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	signal(SIGPIPE, SIG_IGN);
	first = start(peer);
	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	s = server_socket();
	CHECK(!pthread_create(&thread, NULL, echo, &s));
	RUN(a_forged_claim_does_not_lead_a_peers_datagrams_astray);
	RUN(a_flood_from_forged_sources_costs_no_descriptors_and_no_genuine_peer);
	return 0;
}
