// stream_floor.c - the steps of a stream over RoCE as a bare loop on UDP: an estimate of what they can reach
// follows: udp(7), UDP_SEGMENT and UDP_GRO; docs/performance.md
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "clock.h"
#include "frame/crc32.h"
#include "net/udp_slots.h"
#include "udp_ways.h"

/*
 * The sender sends pieces, and has at most WINDOW bytes that are not acknowledged. A piece is packets of PACKET bytes
 * behind a header of 12 and before 4 bytes of CRC: as many as one send takes, as in a long write. STEPS says which copies
 * of rsockets and of the adapter are made:
 *   u  sender: from the program into the send buffer
 *   s  sender: from there into packets
 *   r  receiver: from packets into the receive buffer
 *   v  receiver: from there to the program
 * and what else is done:
 *   c  both: the CRC of each packet
 *   p  sender: sends from pages that the kernel passes on (src/net/udp_slots.h)
 *   z  sender: MSG_ZEROCOPY;  i  io_uring's sendmsg;  x  io_uring's sendmsg without a copy
 *   m  receiver: io_uring's multishot recvmsg;  n  the same, and enters the kernel for its completions
 *   w  sender: each piece is a write of 64 KiB. Its first two packets go by themselves, because the first packet of a
 *      write is longer
 * ib_write_bw makes srcp, rstream usrvcpw. Both ends spin, as rstream does.
 */
enum { WRITE = 64 << 10, HEADER = 12, TAIL = 4, SOCKET_BUFFER = 8 << 20, SEND = 65000, SEND_PACKETS = 64 };

static const char *steps;
static uint64_t total, window;
static size_t packet, segment;    /* bytes: payload, packet */
static size_t piece, first, wire; /* bytes: payload of a piece; its packets that go by themselves; all of them */
static uint8_t user[WRITE], stage[2 * WRITE + 64], *packets = stage;
static struct vb_udp_slots *slots;
static struct udp_out *out;
static struct udp_in *in;
static struct vb_udp_slot_use use = {.owner = 1};
static volatile uint32_t sums;

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

/* The CRC of each packet. */
static void sum(const uint8_t *from, size_t len)
{
	for (size_t at = 0; makes('c') && at + segment <= len; at += segment)
		sums += vb_crc32(0, from + at, segment - TAIL);
}

static void send_packets(int fd, uint8_t *from, size_t len)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
	struct iovec iov = {from, len};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *h = (struct cmsghdr *)control;
	uint16_t size = (uint16_t)segment;

	h->cmsg_level = SOL_UDP;
	h->cmsg_type = UDP_SEGMENT;
	h->cmsg_len = CMSG_LEN(sizeof(size));
	memcpy(CMSG_DATA(h), &size, sizeof(size));
	if (out) {
		udp_out_send(out, from, len, control, sizeof(control));
		return;
	}
	use.sent++;
	if (slots && len >= VB_UDP_SLOT_MIN) {
		struct msghdr name = {.msg_control = control, .msg_controllen = sizeof(control)};

		if (vb_udp_slots_send(slots, fd, &name, from, (uint32_t)len, &use))
			return;
	}
	while (sendmsg(fd, &mh, 0) < 0)
		if (errno != EAGAIN && errno != ENOBUFS)
			fail("sendmsg");
}

static void send_piece(int fd, uint8_t *place)
{
	const uint8_t *from = makes('u') ? memcpy(place, user, piece) : user;

	if (out)
		packets = udp_out_stage(out);
	for (size_t i = 0; makes('s') && i < piece / packet; i++)
		memcpy(packets + i * segment + HEADER, from + i * packet, packet);
	sum(packets, wire);
	if (first)
		send_packets(fd, packets, first);
	send_packets(fd, packets + first, wire - first);
	if (out)
		udp_out_flush(out);
}

/* Gb/s of payload */
static double send_all(int fd)
{
	uint64_t sent = 0, acked = 0, number, start = now_ns(), heard = start;
	uint8_t *ring = buffer();

	while (acked < total) {
		if (recv(fd, &number, sizeof(number), MSG_DONTWAIT) == sizeof(number)) {
			acked = number;
			use.acked = acked / piece * (first ? 2 : 1);
			heard = now_ns();
		} else if (now_ns() - heard > 1000000000) {
			fprintf(stderr, "stream_floor: a packet was lost\n");
			exit(1);
		}
		if (sent == total || sent - acked + piece > window)
			continue;
		send_piece(fd, ring + sent % window);
		sent += piece;
	}
	if (out)
		udp_out_report(out);
	return (double)total * 8 / (double)(now_ns() - start);
}

/* Returns the length of a datagram, whose bytes are at packets then. */
static ssize_t take(int fd)
{
	return in ? udp_in_take(in, &packets, NULL) : recv(fd, packets, sizeof(stage), MSG_DONTWAIT);
}

static void place_packets(uint8_t *ring, uint64_t *placed, size_t len)
{
	sum(packets, len);
	for (size_t at = 0; makes('r') && at + segment <= len; at += segment, *placed += packet)
		memcpy(ring + *placed % window, packets + at + HEADER, packet);
}

static void receive_all(int fd)
{
	uint64_t done = 0, came = 0, placed = 0;
	uint8_t *ring = buffer();

	while (done < total) {
		ssize_t n = take(fd);

		if (n <= 0)
			continue;
		place_packets(ring, &placed, (size_t)n);
		came += (size_t)n;
		if (came < wire)
			continue;
		came -= wire;
		if (makes('v'))
			memcpy(user, ring + done % window, piece);
		done += piece;
		send(fd, &done, sizeof(done), 0);
	}
}

/* The ways of this end that are not those of sockets alone. */
static void choose_ways(int fd, bool sends)
{
	if (sends && (makes('z') || makes('i') || makes('x')))
		out = udp_out_new(fd, makes('z') ? UDP_ZEROCOPY : makes('i') ? UDP_URING : UDP_URING_ZERO, wire);
	if (!sends && (makes('m') || makes('n')))
		in = udp_in_new(fd, makes('m') ? UDP_MULTISHOT : UDP_MULTISHOT_ENTER, 0, 0);
}

int main(int argc, char **argv)
{
	bool sends = argc == 9 && !strcmp(argv[1], "send");

	if (argc != 9 || (!sends && strcmp(argv[1], "receive"))) {
		fprintf(stderr,
		        "usage: stream_floor send|receive OWN PEER PORT STEPS WINDOW PIECES PACKET (the receiver first)\n");
		return 2;
	}
	steps = argv[5];
	packet = strtoull(argv[8], NULL, 0);
	if (packet < 1024 || packet > 4096 || WRITE % packet)
		return 2;
	segment = HEADER + packet + TAIL;
	piece = packet * (SEND / segment < SEND_PACKETS ? SEND / segment : SEND_PACKETS);
	if (makes('w'))
		piece = WRITE;
	first = makes('w') ? 2 * segment : 0;
	wire = piece / packet * segment;
	window = strtoull(argv[6], NULL, 0) / piece * piece;
	total = strtoull(argv[7], NULL, 0) * piece;
	if (!window || !total)
		return 2;
	slots = makes('p') ? vb_udp_slots_new() : NULL;
	int fd = open_socket(argv[2], argv[3], argv[4]);

	choose_ways(fd, sends);
	if (sends)
		printf("%.2f\n", send_all(fd));
	else
		receive_all(fd);
	return 0;
}
