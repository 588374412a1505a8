// slots.c - long UDP sends from pages that the kernel passes on, and when these may be overwritten
// follows: splice(2), udp(7) (UDP_SEGMENT)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/udp_slots.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define SEGMENT 1040u
#define LEN (62 * SEGMENT)
#define SLOTS 32u
#define OLD 20000000u /* ns, as in udp_slots.c */

static struct vb_udp_slots *slots;
static int from, to; /* sockets; the first is not connected */
static struct sockaddr_storage at;
static struct msghdr name;
static uint8_t data[VB_UDP_SLOT], got[VB_UDP_SLOT];

static void open_pair(int family)
{
	int segment = SEGMENT, room = 4 << 20, whole = IP_PMTUDISC_DO;
	socklen_t len = sizeof(at);

	at = (struct sockaddr_storage){.ss_family = (sa_family_t)family};
	if (family == AF_INET)
		((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_loopback;
	from = socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	to = socket(family, SOCK_DGRAM, 0);
	CHECK(from >= 0 && to >= 0);
	CHECK(!bind(to, (struct sockaddr *)&at, sizeof(struct sockaddr_in6)) &&
	      !getsockname(to, (struct sockaddr *)&at, &len));
	CHECK(!setsockopt(from, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)));
	CHECK(!setsockopt(from, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole))); /* as vb_udp_sender does */
	setsockopt(to, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	name = (struct msghdr){.msg_name = &at, .msg_namelen = len};
	vb_udp_slots_free(slots);
	slots = vb_udp_slots_new();
	CHECK(slots);
}

static void close_pair(void)
{
	close(from);
	close(to);
}

static void fill_data(uint8_t seed)
{
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 251 + seed);
}

static bool send_data_at(uint32_t offset, uint64_t owner, uint64_t sent, uint64_t acked, uint64_t now)
{
	const struct vb_udp_slot_use use = {.owner = owner, .sent = sent, .acked = acked, .now = now};
	static uint8_t shifted[VB_UDP_SLOT + 64];
	uint8_t *slot = vb_udp_slots_room(slots, &use);

	if (!slot)
		return false;
	memcpy(shifted + offset, data, LEN);
	vb_udp_slots_fill(slot, shifted, (offset + LEN + 63) / 64 * 64);
	return vb_udp_slots_pass(slots, from, &name, slot + offset, LEN, &use);
}

static bool send_data(uint64_t owner, uint64_t sent, uint64_t acked, uint64_t now)
{
	return send_data_at(0, owner, sent, acked, now);
}

/* Receives the datagrams of one send, and compares them with the data. */
static void expect_data(void)
{
	for (uint32_t n = 0; n < LEN; n += SEGMENT) {
		struct pollfd p = {to, POLLIN, 0};

		CHECK(poll(&p, 1, 10000) == 1);
		CHECK(recv(to, got, sizeof(got), 0) == SEGMENT);
		CHECK(!memcmp(got, data + n, SEGMENT));
	}
}

static void expect_nothing(void)
{
	CHECK(recv(to, got, sizeof(got), MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

static void arrives(int family)
{
	open_pair(family);
	for (uint32_t i = 0; i < 3 * SLOTS; i++) {
		fill_data((uint8_t)i);
		CHECK(send_data(1, i + 1, i, 0));
		expect_data();
	}
	expect_nothing();
	close_pair();
}

static void a_long_send_arrives_as_its_packets(void)
{
	arrives(AF_INET);
}

static void a_send_may_begin_anywhere_in_its_first_line(void)
{
	open_pair(AF_INET);
	for (uint32_t i = 0; i < 16; i++) {
		fill_data((uint8_t)i);
		CHECK(send_data_at(4 * i, 1, i + 1, i, 0));
		expect_data();
	}
	close_pair();
}

/* The sender may find that it cannot use a slot that it has taken. */
static void a_slot_that_was_not_sent_is_free(void)
{
	open_pair(AF_INET);
	for (uint32_t i = 0; i < SLOTS; i++)
		CHECK(vb_udp_slots_room(slots,
		                        &(struct vb_udp_slot_use){.owner = 1, .sent = 10, .acked = 0, .now = 0}));
	fill_data(3);
	CHECK(send_data(1, 10, 0, 0));
	expect_data();
	close_pair();
}

static void a_long_send_arrives_as_its_packets_by_ipv6(void)
{
	arrives(AF_INET6);
}

/* The ICRC of the packets assumes it (IBA annex A17.3.3). */
static void ipv4s_identification_is_0(void)
{
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_UDP);
	ssize_t n;

	if (raw < 0) {
		CHECK(errno == EPERM);
		return;
	}
	open_pair(AF_INET);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK(send_data(1, i + 1, i, 0));
		do /* other programs use this network, too */
			CHECK((n = recv(raw, got, sizeof(got), 0)) > 0);
		while (memcmp(got + 22, &((struct sockaddr_in *)&at)->sin_port, 2));
		CHECK(!got[4] && !got[5]);
		expect_data();
	}
	close(raw);
	close_pair();
}

static void a_slot_waits_for_the_acknowledgement_of_its_packets(void)
{
	open_pair(AF_INET);
	for (uint32_t i = 0; i < SLOTS; i++) {
		fill_data((uint8_t)i);
		CHECK(send_data(1, 10 * (i + 1), 0, 0));
		expect_data();
	}
	CHECK(!send_data(1, 400, 9, 2 * OLD)); /* for its own packets no time is enough */
	expect_nothing();
	CHECK(send_data(1, 400, 10, 0));
	expect_data();
	CHECK(!send_data(1, 410, 19, 0));
	close_pair();
}

static void another_connection_waits_until_the_slots_are_not_used(void)
{
	open_pair(AF_INET);
	CHECK(send_data(1, 1, 0, 1000));
	expect_data();
	CHECK(!send_data(2, 1, 0, 1000 + OLD));
	CHECK(send_data(2, 1, 0, 1001 + OLD));
	expect_data();
	CHECK(!send_data(1, 2, 1, 1001 + OLD));
	close_pair();
}

/* A receiver that acknowledges before it reads finds what was sent to it. */
static void another_connection_does_not_write_into_pages_that_were_sent(void)
{
	open_pair(AF_INET);
	fill_data(1);
	CHECK(send_data(1, 1, 0, 0));
	fill_data(99);
	for (uint32_t i = 0; i < SLOTS; i++)
		CHECK(send_data(2, 1, 1, 2 * OLD));
	fill_data(1);
	expect_data();
	close_pair();
}

/* Nothing of it is left in the pipe or the socket for the next send. */
static void a_send_that_is_refused_leaves_nothing_behind(void)
{
	struct sockaddr_in nobody = {
	        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_BROADCAST)};
	int small = 100, segment = SEGMENT;

	open_pair(AF_INET);
	fill_data(1);
	name.msg_name = &nobody; /* refused at the first step */
	CHECK(!send_data(1, 1, 0, 0));
	name.msg_name = &at;
	CHECK(!setsockopt(from, SOL_UDP, UDP_SEGMENT, &small, sizeof(small))); /* too many: EINVAL at the last step */
	CHECK(!send_data(1, 1, 0, 0));
	CHECK(!setsockopt(from, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)));
	expect_nothing();
	CHECK(sendto(from, data, SEGMENT, 0, (struct sockaddr *)&at, sizeof(struct sockaddr_in)) == SEGMENT);
	CHECK(recv(to, got, sizeof(got), 0) == SEGMENT && !memcmp(got, data, SEGMENT));
	fill_data(2);
	CHECK(send_data(1, 2, 1, 0));
	expect_data();
	expect_nothing();
	close_pair();
}

int main(void)
{
	slots = vb_udp_slots_new();
	if (!slots)
		SKIP("this kernel does not pass pages on to UDP sockets");
	RUN(a_long_send_arrives_as_its_packets);
	RUN(a_long_send_arrives_as_its_packets_by_ipv6);
	RUN(a_send_may_begin_anywhere_in_its_first_line);
	RUN(a_slot_that_was_not_sent_is_free);
	RUN(ipv4s_identification_is_0);
	RUN(a_slot_waits_for_the_acknowledgement_of_its_packets);
	RUN(another_connection_waits_until_the_slots_are_not_used);
	RUN(another_connection_does_not_write_into_pages_that_were_sent);
	RUN(a_send_that_is_refused_leaves_nothing_behind);
	vb_udp_slots_free(slots);
	return 0;
}
