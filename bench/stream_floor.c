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
#include "util/guard.h"

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
 *   f  sender, instead of s and c: one pass copies into packets and computes their CRC
 *   d  sender, with p and f: that pass stores past the caches into those pages, so the packets are not copied again
 *   z  sender: MSG_ZEROCOPY;  i  io_uring's sendmsg;  x  io_uring's sendmsg without a copy
 *   m  receiver: io_uring's multishot recvmsg;  n  the same, and enters the kernel for its completions
 *   w  sender: each piece is a write of 64 KiB. Its first two packets go by themselves, because the first packet of a
 *      write is longer
 * ib_write_bw makes srcpfd, rstream usrvcpfdw. Both ends spin, as rstream does.
 */
enum { WRITE = 64 << 10, HEADER = 12, TAIL = 4, SOCKET_BUFFER = 8 << 20, SEND = 65000, SEND_PACKETS = 64 };

static const char *steps;
static uint64_t total, window;
static size_t packet, segment;    /* bytes: payload, packet */
static size_t piece, first, wire; /* bytes: payload of a piece; its packets that go by themselves; all of them */
static _Alignas(64) uint8_t user[WRITE], stage[2 * WRITE + 64];
static uint8_t *packets = stage;
static struct vb_crc32_powers powers;
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

static void send_from_pages(int fd, const uint8_t *from, size_t len, uint8_t *slot, struct msghdr *name)
{
	use.sent++;
	if (slot && vb_udp_slots_pass(slots, fd, name, slot, (uint32_t)len, &use))
		return;
	if (slot && makes('d'))
		fail("stream_floor: no slot");

	const struct iovec iov = {(void *)(uintptr_t)from, len};

	name->msg_iov = (struct iovec *)&iov;
	name->msg_iovlen = 1;
	while (sendmsg(fd, name, 0) < 0)
		if (errno != EAGAIN && errno != ENOBUFS)
			fail("sendmsg");
}

/* slot: where the packets are; NULL: they are at `from`. */
static void send_packets(int fd, uint8_t *from, size_t len, uint8_t *slot)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {0};
	struct msghdr mh = {.msg_control = control, .msg_controllen = sizeof(control)};
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
	if (!slot && slots && len >= VB_UDP_SLOT_MIN && (slot = vb_udp_slots_room(slots, &use)))
		vb_udp_slots_fill(slot, from, (len + 63) / 64 * 64);
	send_from_pages(fd, from, len, slot, &mh);
}

/* Lays n packets at `at`, with their CRC, or in the slot: then only what shares a cache line with a header is at `at`
 * first. */
static void lay_summed(uint8_t *at, uint8_t *slot, const uint8_t *from, size_t n)
{
	uint8_t *filled = slot;
	uint64_t sum[2];

	for (size_t i = 0; i < n; i++, from += packet) {
		uint8_t *bytes = at + i * segment, *payload = bytes + HEADER;
		uint32_t head[HEADER / 4];

		if (slot)
			vb_guard_copy_sum_past(payload, slot + i * segment + HEADER, from, packet, sum);
		else
			vb_guard_copy_sum(payload, from, packet, sum);
		memcpy(head, bytes, HEADER);
		uint32_t crc = vb_crc32_summed(0, head, sum, &powers);

		memcpy(payload + packet, &crc, sizeof(crc));
		if (!slot)
			continue;
		uint8_t *past = slot + i * segment + HEADER;

		past += vb_guard_past(past);
		vb_udp_slots_fill(filled, at + (filled - slot), (size_t)(past - filled));
		filled = past + packet - VB_GUARD_EDGE;
	}
	if (slot)
		vb_udp_slots_fill(filled, at + (filled - slot), (n * segment - (size_t)(filled - slot) + 63) / 64 * 64);
}

/* The same as send_piece with sums during the copy. */
static void send_summed(int fd, const uint8_t *from)
{
	size_t ahead = first / segment, n = piece / packet - ahead;
	uint8_t *at = stage + (first + 63) / 64 * 64, *slot = NULL;

	lay_summed(stage, NULL, from, ahead);
	if (ahead)
		send_packets(fd, stage, first, NULL);
	if (makes('d'))
		slot = vb_udp_slots_room(slots, &use);
	lay_summed(at, slot, from + ahead * packet, n);
	send_packets(fd, at, n * segment, slot);
}

static void send_piece(int fd, uint8_t *place)
{
	const uint8_t *from = makes('u') ? memcpy(place, user, piece) : user;

	if (makes('f')) {
		send_summed(fd, from);
		return;
	}
	if (out)
		packets = udp_out_stage(out);
	for (size_t i = 0; makes('s') && i < piece / packet; i++)
		memcpy(packets + i * segment + HEADER, from + i * packet, packet);
	sum(packets, wire);
	if (first)
		send_packets(fd, packets, first, NULL);
	send_packets(fd, packets + first, wire - first, NULL);
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
	if ((makes('d') && !(makes('p') && makes('f'))) || (makes('f') && strpbrk(steps, "zix")))
		return 2;
	slots = makes('p') ? vb_udp_slots_new() : NULL;
	powers = vb_crc32_powers(packet);
	if ((makes('d') && !slots) || (makes('f') && !vb_guard_can_sum())) {
		fprintf(stderr, "stream_floor: this machine lacks a step\n");
		return 2;
	}
	int fd = open_socket(argv[2], argv[3], argv[4]);

	choose_ways(fd, sends);
	if (sends)
		printf("%.2f\n", send_all(fd));
	else
		receive_all(fd);
	return 0;
}
