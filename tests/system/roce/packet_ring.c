// packet_ring.c - what enters a ring of short packets, what the lane's socket keeps, and that each packet is in one of them
// follows: packet(7), udp(7) (UDP_SEGMENT), ip(7)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame/fields.h"
#include "net/packet_ring.h"
#include "util/lane.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define LANE 5u
#define SHORT 280u /* as in net/packet_ring.c, like the next */
#define FRAMES 2048u
#define TOS 0x28
#define TTL 33

static struct vb_packet_ring *ring;
static unsigned lo;
static int lane_fd, from4, from6, raw;
static struct sockaddr_in to4;
static struct sockaddr_in6 to6;
static uint8_t out[4096];

static void set_lo(bool up)
{
	struct ifreq r = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(!ioctl(fd, SIOCGIFFLAGS, &r));
	r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
	CHECK(!ioctl(fd, SIOCSIFFLAGS, &r));
	close(fd);
}

static void set(int fd, int level, int option, int value)
{
	CHECK(!setsockopt(fd, level, option, &value, sizeof(value)));
}

static void open_sockets(void)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_PORT)};

	to4 = (struct sockaddr_in){
	        .sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	to6 = (struct sockaddr_in6){
	        .sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_PORT), .sin6_addr = in6addr_loopback};
	lane_fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	set(lane_fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	set(lane_fd, SOL_UDP, UDP_GRO, 1);
	CHECK(!bind(lane_fd, (struct sockaddr *)&any, sizeof(any)));
	from4 = socket(AF_INET, SOCK_DGRAM, 0);
	set(from4, IPPROTO_IP, IP_TOS, TOS);
	set(from4, IPPROTO_IP, IP_TTL, TTL);
	from6 = socket(AF_INET6, SOCK_DGRAM, 0);
	set(from6, IPPROTO_IPV6, IPV6_TCLASS, TOS);
	set(from6, IPPROTO_IPV6, IPV6_UNICAST_HOPS, TTL);
	raw = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK(lane_fd >= 0 && from4 >= 0 && from6 >= 0 && raw >= 0);
}

/* A packet of len bytes for a lane's queue pair, with a number in it. */
static void fill(uint32_t lane, size_t len, uint32_t number)
{
	uint32_t qpn = lane << VB_LANE_SHIFT | 1;

	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)(number + i);
	out[0] = 4;
	out[5] = (uint8_t)(qpn >> 16);
	out[6] = (uint8_t)(qpn >> 8);
	out[7] = (uint8_t)qpn;
}

static void send_it(bool v6, uint32_t lane, size_t len, uint32_t number)
{
	fill(lane, len, number);
	SAME(v6 ? sendto(from6, out, len, 0, (struct sockaddr *)&to6, sizeof(to6))
	        : sendto(from4, out, len, 0, (struct sockaddr *)&to4, sizeof(to4)),
	     len);
}

/* An IPv4 packet as it is: header of 20 bytes, then UDP. ip_len, udp_len: 0, or another length than the true one. */
static void send_raw(size_t len, size_t ip_len, size_t udp_len)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = (int)lo, .sll_halen = 6};
	uint8_t frame[2048] = {
	        [12] = 8, [14] = 0x45, [22] = 9, [23] = IPPROTO_UDP, [26] = 127, [29] = 1, [30] = 127, [33] = 1};
	uint32_t sum = 0;
	size_t whole = ip_len ? ip_len : 28 + len;

	frame[16] = (uint8_t)(whole >> 8);
	frame[17] = (uint8_t)whole;
	for (int i = 14; i < 34; i += 2)
		sum += (uint32_t)(frame[i] << 8 | frame[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	frame[24] = (uint8_t)(sum >> 8);
	frame[25] = (uint8_t)sum;
	frame[34] = 0xc0;
	frame[36] = VB_ROCE_PORT >> 8;
	frame[37] = VB_ROCE_PORT & 255;
	udp_len = udp_len ? udp_len : len + 8;
	frame[38] = (uint8_t)(udp_len >> 8);
	frame[39] = (uint8_t)udp_len;
	fill(LANE, len, 1);
	memcpy(frame + 42, out, len);
	SAME(sendto(raw, frame, 42 + len, 0, (struct sockaddr *)&at, sizeof(at)), 42 + len);
}

static uint8_t got[65536];

/* Bytes of the socket's next datagram, or -1. */
static ssize_t heard(void)
{
	return recv(lane_fd, got, sizeof(got), 0);
}

static size_t is_short(struct vb_udp_arrival *a, uint8_t **bytes)
{
	size_t len;

	SAME(vb_packet_ring_first(ring, a, bytes, &len), VB_RING_SHORT);
	return len;
}

static enum vb_ring_packet first(void)
{
	struct vb_udp_arrival a;
	uint8_t *bytes;
	size_t len;

	return vb_packet_ring_first(ring, &a, &bytes, &len);
}

/* --- the cases --- */

static void shows_short(bool v6)
{
	struct vb_udp_arrival a;
	uint8_t *bytes;

	send_it(v6, LANE, 24, 7);
	SAME(is_short(&a, &bytes), 24);
	CHECK(!memcmp(bytes, out, 24));
	SAME(a.seg, 0);
	SAME(a.ifindex, lo);
	SAME(a.ip.traffic_class, TOS);
	SAME(a.ip.hop_limit, TTL);
	SAME(a.flow.dport, VB_ROCE_PORT);
	CHECK(a.flow.sport);
	SAME(a.flow.dst[15], 1);
	SAME(a.flow.dst[12], v6 ? 0 : 127);
	SAME(a.flow.dst[10], v6 ? 0 : 0xff);
	CHECK(!memcmp(a.flow.src, a.flow.dst, VB_GID_LEN));
	SAME(heard(), 24);
	SAME(vb_packet_ring_kind(ring, &a, got, 24), VB_RING_SHORT);
	SAME(vb_packet_ring_find(ring, &a, got, 24), 0);
	got[20] ^= 1;
	SAME(vb_packet_ring_find(ring, &a, got, 24), -1);
	vb_packet_ring_next(ring);
	SAME(first(), VB_RING_EMPTY);
}

static void knows_lengths(bool v6)
{
	size_t most = SHORT - 8;
	struct vb_udp_arrival a;
	uint8_t *bytes;

	send_it(v6, LANE, most, 1);
	SAME(is_short(&a, &bytes), most);
	CHECK(!memcmp(bytes, out, most));
	SAME(heard(), most);
	SAME(vb_packet_ring_kind(ring, &a, got, most), VB_RING_SHORT);
	vb_packet_ring_next(ring);
	send_it(v6, LANE, most + 1, 2);
	SAME(first(), VB_RING_LONG);
	SAME(heard(), most + 1);
	SAME(vb_packet_ring_kind(ring, &a, got, most + 1), VB_RING_LONG);
	vb_packet_ring_next(ring);
	SAME(first(), VB_RING_EMPTY);
}

static void shows_merged(bool v6)
{
	int fd = v6 ? from6 : from4;
	struct vb_udp_arrival a;
	uint8_t *bytes;

	set(fd, SOL_UDP, UDP_SEGMENT, 24);
	send_it(v6, LANE, 44, 3);
	set(fd, SOL_UDP, UDP_SEGMENT, 0);
	SAME(is_short(&a, &bytes), 44);
	SAME(a.seg, 24);
	SAME(heard(), 44);
	vb_packet_ring_next(ring);
}

/* What is not for the ring stays in the socket. */
static void leaves_others(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		send_it(v6, LANE + 1, 24, 4);
		SAME(first(), VB_RING_EMPTY);
		SAME(heard(), 24);
	}
}

/* IP's options are none of the packet. */
static void passes_options(bool claimed)
{
	uint8_t nops[4] = {1, 1, 1, 1};
	struct vb_udp_arrival a;
	uint8_t *bytes;

	CHECK(!setsockopt(from4, IPPROTO_IP, IP_OPTIONS, nops, sizeof(nops)));
	send_it(false, LANE, 24, 5);
	CHECK(!setsockopt(from4, IPPROTO_IP, IP_OPTIONS, NULL, 0));
	SAME(is_short(&a, &bytes), 24);
	CHECK(!memcmp(bytes, out, 24));
	vb_packet_ring_next(ring);
	SAME(heard(), claimed ? -1 : 24);
}

/* Each is found, whatever is before it. */
static void finds(void)
{
	struct vb_udp_arrival a;
	uint8_t *bytes;

	for (uint32_t i = 0; i < 5; i++)
		send_it(false, LANE, i & 1 ? 1000 : 24, i);
	is_short(&a, &bytes);
	for (int i = 0; i < 5; i++) {
		ssize_t n = heard();

		SAME(n, i & 1 ? 1000 : 24);
		SAME(vb_packet_ring_find(ring, &a, got, (size_t)n), i);
		got[n - 1] ^= 1; /* of a long one the ring has the beginning alone */
		SAME(vb_packet_ring_find(ring, &a, got, (size_t)n), i & 1 ? i : -1);
		got[9] ^= 1;
		SAME(vb_packet_ring_find(ring, &a, got, (size_t)n), -1);
	}
	for (int i = 0; i < 5; i++)
		vb_packet_ring_next(ring);
	SAME(first(), VB_RING_EMPTY);
}

static void knows_odd_lengths(void)
{
	struct vb_udp_arrival a;
	uint8_t *bytes;

	send_raw(40, 28 + 24, 8 + 24); /* behind the packet: padding of the link */
	SAME(is_short(&a, &bytes), 24);
	vb_packet_ring_next(ring);
	send_raw(40, 0, 8 + 20); /* behind UDP's part */
	SAME(is_short(&a, &bytes), 20);
	vb_packet_ring_next(ring);
	send_raw(40, 0, 4); /* shorter than its header */
	SAME(is_short(&a, &bytes), 0);
	vb_packet_ring_next(ring);
	send_raw(40, 28 + 200, 8 + 200); /* longer than the frame */
	SAME(is_short(&a, &bytes), 40);
	vb_packet_ring_next(ring);
	while (heard() >= 0)
		;
}

static void claims(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		send_it(v6, LANE, 24, 6);
		SAME(first(), VB_RING_SHORT);
		vb_packet_ring_next(ring);
		SAME(heard(), -1);
		send_it(v6, LANE, 1000, 7);
		SAME(first(), VB_RING_LONG);
		vb_packet_ring_next(ring);
		SAME(heard(), 1000);
	}
	leaves_others();
	passes_options(true);
}

static void wraps(void)
{
	for (uint32_t i = 0; i < 3 * FRAMES; i++) {
		struct vb_udp_arrival a;
		uint8_t *bytes;

		send_it(i & 1, LANE, 24, i);
		SAME(is_short(&a, &bytes), 24);
		CHECK(!memcmp(bytes, out, 24));
		vb_packet_ring_next(ring);
	}
}

/* What has no room is lost. The rest is in order. */
static void fills(void)
{
	struct vb_udp_arrival a;
	uint8_t *bytes;

	CHECK(!vb_packet_ring_crowded(ring));
	for (uint32_t i = 0; i < FRAMES + 100; i++) {
		send_it(false, LANE, 24, i);
		if (i == FRAMES / 2)
			CHECK(vb_packet_ring_crowded(ring));
	}
	for (uint32_t i = 0; i < FRAMES; i++) {
		SAME(is_short(&a, &bytes), 24);
		SAME(bytes[8], (uint8_t)(i + 8));
		vb_packet_ring_next(ring);
	}
	SAME(first(), VB_RING_EMPTY);
	send_it(false, LANE, 24, 1);
	SAME(is_short(&a, &bytes), 24);
	vb_packet_ring_next(ring);
}

int main(void)
{
	if (unshare(CLONE_NEWNET))
		SKIP("no right to make a network namespace");
	lo = if_nametoindex("lo");
	set_lo(true);
	open_sockets();
	ring = vb_packet_ring_new(lo, LANE);
	if (!ring)
		SKIP("the kernel is older than 6.2, or forbids packet sockets");
	send_it(false, LANE, 24, 1);
	SAME(heard(), 24);
	SAME(first(), VB_RING_EMPTY);
	CHECK(vb_packet_ring_open(ring));
	CHECK(vb_packet_ring_is_lo(ring));
	for (int v6 = 0; v6 < 2; v6++) {
		shows_short(v6);
		knows_lengths(v6);
		shows_merged(v6);
	}
	leaves_others();
	passes_options(false);
	finds();
	knows_odd_lengths();
	CHECK(vb_packet_ring_claim(ring, lane_fd));
	claims();
	wraps();
	fills();
	vb_packet_ring_forget(lane_fd);
	shows_short(false);
	vb_packet_ring_shut(ring);
	send_it(false, LANE, 24, 1);
	SAME(heard(), 24);
	SAME(first(), VB_RING_EMPTY);
	CHECK(vb_packet_ring_trouble(ring)); /* packets had no room */
	CHECK(!vb_packet_ring_trouble(ring));
	set_lo(false);
	CHECK(vb_packet_ring_trouble(ring));
	vb_packet_ring_free(ring);
	return 0;
}
