// stream_floor.c - the steps of a stream over RoCE as a bare loop on UDP: what rstream on rsockets can reach at best
// follows: udp(7), UDP_SEGMENT and UDP_GRO; docs/performance.md
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "clock.h"

/*
 * The sender sends pieces of 64 KiB, and has at most WINDOW bytes that are not acknowledged. A piece is 64 packets of
 * 1024 bytes behind a header of 12 and before 4 bytes of CRC; the first two go by themselves, because the first packet of
 * a write is longer. STEPS says which copies of rsockets and of the adapter are made:
 *   u  sender: from the program into the send buffer
 *   s  sender: from there into packets
 *   r  receiver: from packets into the receive buffer
 *   v  receiver: from there to the program
 * Sums are not computed. Both ends spin, as rstream does.
 */
enum { PIECE = 64 << 10, PACKET = 1024, HEADER = 12, SEGMENT = HEADER + PACKET + 4, FIRST = 2 * SEGMENT };
enum { WIRE = PIECE / PACKET * SEGMENT, SOCKET_BUFFER = 8 << 20 };

static const char *steps;
static uint64_t total, window;
static uint8_t user[PIECE], packets[2 * PIECE];

static bool makes(char step)
{
	return strchr(steps, step);
}

static int open_socket(const char *own, const char *peer, const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))}, b = a;
	int fd = socket(AF_INET, SOCK_DGRAM, 0), size = SOCKET_BUFFER, on = 1;

	if (fd < 0 || inet_pton(AF_INET, own, &a.sin_addr) != 1 || inet_pton(AF_INET, peer, &b.sin_addr) != 1)
		fail("socket");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) ||
	    setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)))
		fail("setsockopt");
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || connect(fd, (struct sockaddr *)&b, sizeof(b)))
		fail("stream_floor: bind, connect");
	return fd;
}

static uint8_t *buffer(void)
{
	uint8_t *p = malloc(window);

	if (!p)
		fail("malloc");
	return memset(p, 1, window);
}

static void send_packets(int fd, uint8_t *from, size_t len)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
	struct iovec iov = {from, len};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *h = (struct cmsghdr *)control;
	uint16_t segment = SEGMENT;

	h->cmsg_level = SOL_UDP;
	h->cmsg_type = UDP_SEGMENT;
	h->cmsg_len = CMSG_LEN(sizeof(segment));
	memcpy(CMSG_DATA(h), &segment, sizeof(segment));
	while (sendmsg(fd, &mh, 0) < 0)
		if (errno != EAGAIN && errno != ENOBUFS)
			fail("sendmsg");
}

static void send_piece(int fd, uint8_t *place)
{
	const uint8_t *from = makes('u') ? memcpy(place, user, PIECE) : user;

	for (size_t i = 0; makes('s') && i < PIECE / PACKET; i++)
		memcpy(packets + i * SEGMENT + HEADER, from + i * PACKET, PACKET);
	send_packets(fd, packets, FIRST);
	send_packets(fd, packets + FIRST, WIRE - FIRST);
}

/* Gb/s of payload */
static double send_all(int fd)
{
	uint64_t sent = 0, acked = 0, number, start = now_ns(), heard = start;
	uint8_t *ring = buffer();

	while (acked < total) {
		if (recv(fd, &number, sizeof(number), MSG_DONTWAIT) == sizeof(number)) {
			acked = number;
			heard = now_ns();
		} else if (now_ns() - heard > 1000000000) {
			fprintf(stderr, "stream_floor: a packet was lost\n");
			exit(1);
		}
		if (sent == total || sent - acked + PIECE > window)
			continue;
		send_piece(fd, ring + sent % window);
		sent += PIECE;
	}
	return (double)total * 8 / (double)(now_ns() - start);
}

static void place_packets(uint8_t *ring, uint64_t *placed, size_t len)
{
	for (size_t at = 0; makes('r') && at + SEGMENT <= len; at += SEGMENT, *placed += PACKET)
		memcpy(ring + *placed % window, packets + at + HEADER, PACKET);
}

static void receive_all(int fd)
{
	uint64_t done = 0, wire = 0, placed = 0;
	uint8_t *ring = buffer();

	while (done < total) {
		ssize_t n = recv(fd, packets, PIECE, MSG_DONTWAIT);

		if (n <= 0)
			continue;
		place_packets(ring, &placed, (size_t)n);
		wire += (size_t)n;
		if (wire < WIRE)
			continue;
		wire -= WIRE;
		if (makes('v'))
			memcpy(user, ring + done % window, PIECE);
		done += PIECE;
		send(fd, &done, sizeof(done), 0);
	}
}

int main(int argc, char **argv)
{
	bool sends = argc == 8 && !strcmp(argv[1], "send");

	if (argc != 8 || (!sends && strcmp(argv[1], "receive"))) {
		fprintf(stderr,
		        "usage: stream_floor send|receive OWN PEER PORT STEPS WINDOW PIECES (the receiver first)\n");
		return 2;
	}
	steps = argv[5];
	window = strtoull(argv[6], NULL, 0) / PIECE * PIECE;
	total = strtoull(argv[7], NULL, 0) * PIECE;
	if (!window || !total)
		return 2;
	int fd = open_socket(argv[2], argv[3], argv[4]);

	if (sends)
		printf("%.2f\n", send_all(fd));
	else
		receive_all(fd);
	return 0;
}
