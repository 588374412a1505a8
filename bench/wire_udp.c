// wire_udp.c - plain UDP on a network path: a spinning ping-pong (of 8 bytes, if not said), bulk data with GSO and GRO, and
// a ping-pong with the steps of RoCE: an estimate of what ib_send_lat can reach
// follows: udp(7), UDP_SEGMENT and UDP_GRO. A TCP connection on the same port carries the commands.
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "frame/crc32.h"
#include "udp_ways.h"

enum {
	TURNS = 20000,
	SEGMENTS = 64,
	DATAGRAM = 65507,
	HEADERS = 28, // IPv4 and UDP
	RUN_MS = 200,
};

struct count {
	uint64_t bytes, ns;
};

static struct {
	_Atomic uint64_t bytes, first, last;
} seen; // written by the receiving thread; reset while nothing arrives

static int sockets(const char *host, const char *port, bool serve, int *udp)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	int tcp = socket(AF_INET, SOCK_STREAM, 0), on = 1, room = 8 << 20;

	*udp = socket(AF_INET, SOCK_DGRAM, 0);
	if (tcp < 0 || *udp < 0 || inet_pton(AF_INET, host, &at.sin_addr) != 1)
		fail("socket");
	setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(tcp, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(*udp, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(*udp, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (serve ? bind(*udp, (struct sockaddr *)&at, sizeof(at)) || bind(tcp, (struct sockaddr *)&at, sizeof(at)) ||
	                    listen(tcp, 1)
	          : connect(tcp, (struct sockaddr *)&at, sizeof(at)) ||
	                    connect(*udp, (struct sockaddr *)&at, sizeof(at)))
		fail(serve ? "wire_udp: bind" : "wire_udp: connect");
	return tcp;
}

static void all(int fd, void *p, size_t len, bool out)
{
	ssize_t n = out ? send(fd, p, len, MSG_NOSIGNAL) : recv(fd, p, len, MSG_WAITALL);

	if (n == 0 && !out)
		exit(0);
	if (n != (ssize_t)len)
		fail("wire_udp: the connection for commands");
}

// --- the steps of RoCE ---

/*
 * As the adapter does: the receiver is told source, destination, TTL, TOS and segment size, and computes the CRC of each
 * packet. An answer is two packets in one send, an acknowledgement and the message; the socket is not connected.
 * Datagrams are received by recvmsg(2), or by io_uring's multishot recvmsg.
 */
enum { ROCE_ACK = 20, ROCE_SEND = 24 };

static volatile uint32_t sums;

static void tell_all(int udp)
{
	int on = 1, size = ROCE_SEND;

	if (setsockopt(udp, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) ||
	    setsockopt(udp, IPPROTO_IP, IP_RECVTTL, &on, sizeof(on)) ||
	    setsockopt(udp, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)) ||
	    setsockopt(udp, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) ||
	    setsockopt(udp, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)))
		fail("setsockopt");
}

static struct udp_in *in; // NULL: recvmsg(2)

static ssize_t receive(int udp, uint8_t **bytes, struct sockaddr_in *from)
{
	static uint8_t buf[DATAGRAM];
	static _Alignas(struct cmsghdr) char control[256];
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr mh = {.msg_name = from,
	                    .msg_namelen = sizeof(*from),
	                    .msg_iov = &iov,
	                    .msg_iovlen = 1,
	                    .msg_control = control,
	                    .msg_controllen = sizeof(control)};

	if (in)
		return udp_in_take(in, bytes, from);
	*bytes = buf;
	return recvmsg(udp, &mh, MSG_DONTWAIT);
}

/* Takes a datagram if there is one. Returns its length. */
static ssize_t take_packets(int udp, struct sockaddr_in *from)
{
	uint8_t *bytes;
	ssize_t n = receive(udp, &bytes, from);

	for (ssize_t at = 0; at < n; at += ROCE_SEND)
		sums += vb_crc32(0, bytes + at, (size_t)(n - at < ROCE_SEND ? n - at : ROCE_SEND));
	return n;
}

static void answer(int udp, const struct sockaddr_in *to)
{
	static char both[ROCE_SEND + ROCE_ACK];

	sums += vb_crc32(0, both, ROCE_SEND) + vb_crc32(0, both + ROCE_SEND, ROCE_ACK);
	if (sendto(udp, both, sizeof(both), 0, (const struct sockaddr *)to, sizeof(*to)) < 0)
		fail("sendto");
}

/* command: s for recvmsg, m or e for io_uring's multishot recvmsg, which interrupts for completions or is entered for them */
static void receive_by(int udp, char command)
{
	if (command != 's')
		in = udp_in_new(udp, command == 'm' ? UDP_MULTISHOT : UDP_MULTISHOT_ENTER, sizeof(struct sockaddr_in),
		                256);
}

static void echo_steps(int udp, char command)
{
	struct sockaddr_in from;

	tell_all(udp);
	receive_by(udp, command);
	for (;;) {
		ssize_t n = take_packets(udp, &from);

		if (n > 0)
			answer(udp, &from);
		else if (n == 0) // the end
			return;
	}
}

// --- the server ---

static void echo(int udp)
{
	struct sockaddr_in from;
	static char buf[DATAGRAM];

	for (;;) {
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(udp, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &len);

		if (n > 0)
			sendto(udp, buf, (size_t)n, 0, (struct sockaddr *)&from, len);
		else if (n == 0) // the end
			return;
	}
}

static void *count(void *arg)
{
	static char buf[1 << 16];
	int udp = *(int *)arg;

	for (;;) {
		ssize_t n = recv(udp, buf, sizeof(buf), 0);

		if (n <= 0)
			continue;
		uint64_t now = now_ns();
		if (!seen.first)
			seen.first = now;
		else
			seen.bytes += (uint64_t)n;
		seen.last = now;
	}
	return NULL;
}

static void wait_for_silence(void)
{
	for (uint64_t before = UINT64_MAX; before != seen.last;) {
		before = seen.last;
		usleep(20000);
	}
}

static void serve(const char *host, const char *port)
{
	int udp, listener = sockets(host, port, true, &udp), on = 1;
	int tcp = accept(listener, NULL, NULL);
	pthread_t thread;
	char command;

	if (tcp < 0)
		fail("accept");
	all(tcp, &command, 1, false);
	if (command != 'b') {
		all(tcp, &command, 1, true);
		if (command == 'l')
			echo(udp);
		else
			echo_steps(udp, command);
		return;
	}
	if (setsockopt(udp, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) || pthread_create(&thread, NULL, count, &udp))
		fail("UDP_GRO");
	for (;; all(tcp, &command, 1, false)) {
		wait_for_silence();
		struct count c = {.bytes = seen.bytes, .ns = seen.last - seen.first};
		seen.bytes = seen.first = seen.last = 0;
		all(tcp, &c, sizeof(c), true);
	}
}

// --- the measuring side ---

static void latency(int tcp, int udp, ssize_t size)
{
	static uint64_t took[TURNS];
	static char buf[DATAGRAM] = "l";

	all(tcp, buf, 1, true);
	all(tcp, buf, 1, false);
	for (int i = 0; i < TURNS; i++) {
		uint64_t start = now_ns();

		if (send(udp, buf, (size_t)size, 0) != size)
			fail("send");
		while (recv(udp, buf, sizeof(buf), MSG_DONTWAIT) != size) {
			if (now_ns() - start > 1000000000) {
				fprintf(stderr, "wire_udp: a datagram was lost\n");
				exit(1);
			}
		}
		took[i] = now_ns() - start;
	}
	for (int i = 0; i < 10; i++)
		send(udp, buf, 0, 0);
	printf("%.3f\n", (double)median_u64(took, TURNS) / 2000);
}

static void latency_steps(int tcp, int udp, char command)
{
	static uint64_t took[TURNS];
	struct sockaddr_in to, from, nobody = {.sin_family = AF_UNSPEC};
	socklen_t len = sizeof(to);

	all(tcp, &command, 1, true);
	all(tcp, &command, 1, false);
	if (getpeername(udp, (struct sockaddr *)&to, &len) || connect(udp, (struct sockaddr *)&nobody, sizeof(nobody)))
		fail("connect");
	tell_all(udp);
	receive_by(udp, command);
	for (int i = 0; i < TURNS; i++) {
		uint64_t start = now_ns();

		answer(udp, &to);
		while (take_packets(udp, &from) <= 0) {
			if (now_ns() - start > 1000000000) {
				fprintf(stderr, "wire_udp: a datagram was lost\n");
				exit(1);
			}
		}
		took[i] = now_ns() - start;
	}
	for (int i = 0; i < 10; i++)
		sendto(udp, NULL, 0, 0, (struct sockaddr *)&to, sizeof(to));
	printf("%.3f\n", (double)median_u64(took, TURNS) / 2000);
}

static uint64_t blast(int udp, size_t len, uint64_t pause_ns)
{
	static char buf[DATAGRAM];
	uint64_t sent = 0, next = now_ns(), end = next + (uint64_t)RUN_MS * 1000000;

	while (next < end) {
		if (send(udp, buf, len, 0) == (ssize_t)len)
			sent += len;
		else if (errno != ENOBUFS && errno != EAGAIN && errno != ECONNREFUSED)
			fail("send with UDP_SEGMENT");
		uint64_t until = now_ns() + pause_ns;
		while ((next = now_ns()) < until)
			relax();
	}
	return sent;
}

/* Gb/s received, and the share lost, with the best pause between sends */
static void bulk(int tcp, int udp, int mtu)
{
	static const uint64_t pauses[] = {0, 1000, 2000, 4000, 8000};
	int segment = mtu - HEADERS, fit = DATAGRAM / segment;
	size_t len = (size_t)segment * (size_t)(fit < SEGMENTS ? fit : SEGMENTS);
	double best = 0, lost = 0;
	struct count c;
	char command = 'b';

	if (setsockopt(udp, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)))
		fail("UDP_SEGMENT");
	all(tcp, &command, 1, true);
	all(tcp, &c, sizeof(c), false);
	for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		uint64_t sent = blast(udp, len, pauses[i]);

		all(tcp, &command, 1, true);
		all(tcp, &c, sizeof(c), false);
		double gbits = c.ns ? (double)c.bytes * 8 / (double)c.ns : 0;
		if (getenv("WIRE_UDP_VERBOSE"))
			fprintf(stderr, "pause %llu ns: %.2f Gb/s, %.1f %% lost\n", (unsigned long long)pauses[i],
			        gbits, 100 * (1 - (double)c.bytes / (double)sent));
		if (gbits > best) {
			best = gbits;
			lost = 1 - (double)c.bytes / (double)sent;
		}
	}
	printf("%.3f %.3f\n", best, lost > 0 ? lost : 0);
}

int main(int argc, char **argv)
{
	int udp, tcp;

	if (argc == 4 && !strcmp(argv[1], "serve")) {
		serve(argv[2], argv[3]);
	} else if ((argc == 4 || (argc == 5 && atoi(argv[4]) > 0 && atoi(argv[4]) <= DATAGRAM)) &&
	           !strcmp(argv[1], "lat")) {
		tcp = sockets(argv[2], argv[3], false, &udp);
		latency(tcp, udp, argc == 5 ? atoi(argv[4]) : 8);
	} else if ((argc == 4 || (argc == 5 && (!strcmp(argv[4], "multishot") || !strcmp(argv[4], "enter")))) &&
	           !strcmp(argv[1], "steps")) {
		tcp = sockets(argv[2], argv[3], false, &udp);
		latency_steps(tcp, udp, argc == 4 ? 's' : argv[4][0]);
	} else if (argc == 5 && !strcmp(argv[1], "bulk") && atoi(argv[4]) > HEADERS) {
		tcp = sockets(argv[2], argv[3], false, &udp);
		bulk(tcp, udp, atoi(argv[4]));
	} else {
		fprintf(stderr,
		        "usage: wire_udp serve HOST PORT | lat HOST PORT [SIZE] | steps HOST PORT [multishot|enter] | bulk HOST PORT MTU\n");
		return 2;
	}
	return 0;
}
