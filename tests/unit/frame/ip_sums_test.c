// ip_sums_test.c - the checksums of IPv4, TCP and UDP in a frame: which are filled in, and which count as right
// follows: RFC 791, RFC 768, RFC 8200 §8.1, RFC 9293 §3.1
// SPDX-License-Identifier: MIT
#include <string.h>

#include "../../support/check.h"
#include "frame/ip_sums.h"

#define BODY 33u

static uint8_t frame[300];

struct kind {
	bool v4, tcp;
	unsigned tags, options;
};

static const struct kind kinds[] = {{true, false, 0, 0}, {true, true, 0, 0},  {true, false, 1, 3},
                                    {true, true, 2, 10}, {false, true, 0, 0}, {false, false, 1, 0}};

static uint32_t ip_at(struct kind k)
{
	return 14 + 4 * k.tags;
}

static uint32_t transport_at(struct kind k)
{
	return ip_at(k) + (k.v4 ? 20 + 4 * k.options : 40);
}

static uint32_t sum_at(struct kind k)
{
	return transport_at(k) + (k.tcp ? 16 : 6);
}

/* With wrong checksums, and 7 bytes behind the packet, which are not in it. Returns the length. */
static uint32_t make_frame(struct kind k)
{
	uint8_t *ip = frame + ip_at(k), *at = frame + transport_at(k);
	uint32_t packet = transport_at(k) - ip_at(k) + (k.tcp ? 20 : 8) + BODY, body = packet - (k.v4 ? 0 : 40);

	for (unsigned i = 0; i < sizeof(frame); i++)
		frame[i] = (uint8_t)(i * 31 + 5);
	for (unsigned i = 0; i < k.tags; i++)
		memcpy(frame + 12 + 4 * i, i ? "\x81\x00\x00\x05" : "\x88\xa8\x00\x06", 4);
	memcpy(ip - 2, k.v4 ? "\x08\x00" : "\x86\xdd", 2);
	ip[0] = (uint8_t)(k.v4 ? 0x45 + k.options : 0x60);
	ip[k.v4 ? 2 : 4] = (uint8_t)(body >> 8);
	ip[k.v4 ? 3 : 5] = (uint8_t)body;
	ip[k.v4 ? 9 : 6] = k.tcp ? 6 : 17;
	if (k.v4)
		ip[6] = 0x40, ip[7] = 0; /* no fragment */
	if (!k.tcp)
		at[4] = 0, at[5] = 8 + BODY;
	return ip_at(k) + packet + 7;
}

static uint32_t folded(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += (uint32_t)p[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static bool is_right(struct kind k)
{
	const uint8_t *ip = frame + ip_at(k);
	uint32_t body = (k.tcp ? 20 : 8) + BODY,
	         pseudo = folded(ip + (k.v4 ? 12 : 8), k.v4 ? 8 : 32, (k.tcp ? 6 : 17) + body);

	return (!k.v4 || folded(ip, 20 + 4 * k.options, 0) == 0xffff) &&
	       folded(frame + transport_at(k), body, pseudo) == 0xffff;
}

static void checksums_are_filled_in_and_right(void)
{
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uint32_t len = make_frame(kinds[i]);
		uint8_t before[sizeof(frame)];

		memcpy(before, frame, sizeof(frame));
		CHECK(!is_right(kinds[i]) && !vb_ip_sums_right(frame, len));
		vb_ip_sums_fill(frame, len);
		CHECK(is_right(kinds[i]));
		SAME(vb_ip_sums_right(frame, len), kinds[i].v4);
		for (unsigned at = 0; at < sizeof(frame); at++)
			CHECK(frame[at] == before[at] || at - sum_at(kinds[i]) < 2 || at - ip_at(kinds[i]) - 10 < 2);
	}
}

static void one_wrong_bit_is_noticed(void)
{
	const struct kind k = kinds[2];
	uint32_t len = make_frame(k);

	vb_ip_sums_fill(frame, len);
	for (uint32_t at = ip_at(k); at < len; at++) {
		frame[at] ^= 0x10;
		SAME(vb_ip_sums_right(frame, len), at >= len - 7); /* those are no part of the packet */
		frame[at] ^= 0x10;
	}
	CHECK(vb_ip_sums_right(frame, len));
}

static void what_has_no_transport_header_gets_none(void)
{
	for (unsigned wrong = 0; wrong < 4; wrong++) {
		const struct kind k = kinds[wrong == 3 ? 1 : 0];
		uint32_t len = make_frame(k);
		uint8_t *ip = frame + ip_at(k), before[BODY + 8];

		if (wrong == 0)
			ip[6] = 0x20; /* more fragments */
		if (wrong == 1)
			ip[9] = 1; /* ICMP */
		if (wrong == 2)
			frame[transport_at(k) + 5] += 1; /* longer than the packet */
		if (wrong == 3)
			len = transport_at(k) + 19; /* cut off */
		memcpy(before, frame + transport_at(k), sizeof(before));
		vb_ip_sums_fill(frame, len);
		CHECK(!memcmp(before, frame + transport_at(k), sizeof(before)));
		SAME(folded(ip, 20, 0), 0xffff);
		CHECK(!vb_ip_sums_right(frame, len));
	}
}

static void udp_may_have_no_checksum(void)
{
	uint32_t len = make_frame(kinds[0]), at = sum_at(kinds[0]);

	vb_ip_sums_fill(frame, len);
	CHECK(frame[at] || frame[at + 1]);
	frame[at] = frame[at + 1] = 0;
	CHECK(vb_ip_sums_right(frame, len));
	CHECK(vb_ip_sums_finish(frame, len));
	CHECK(!frame[at] && !frame[at + 1]);
	frame[at] = 1; /* the sum of the pseudo header, say */
	CHECK(vb_ip_sums_finish(frame, len));
	CHECK(is_right(kinds[0]));
	/* the payload for which the sum is 0: it is sent as 0xffff, because 0 stands for none */
	uint16_t sum = (uint16_t)(frame[at] << 8 | frame[at + 1]), first;

	at = transport_at(kinds[0]) + 8;
	first = (uint16_t)(frame[at] << 8 | frame[at + 1]);
	first = (uint16_t)((first + sum) % 0xffff);
	frame[at] = (uint8_t)(first >> 8);
	frame[at + 1] = (uint8_t)first;
	vb_ip_sums_fill(frame, len);
	CHECK(frame[sum_at(kinds[0])] == 0xff && frame[sum_at(kinds[0]) + 1] == 0xff && is_right(kinds[0]));
}

static void what_is_finished_is_as_right_as_it_looks(void)
{
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uint32_t len = make_frame(kinds[i]);

		CHECK(!vb_ip_sums_finish(frame, len) && !vb_ip_sums_right(frame, len)); /* IPv4's own is wrong */
		vb_ip_sums_fill(frame, len);
		frame[sum_at(kinds[i])] ^= 0x10;
		SAME(vb_ip_sums_finish(frame, len), kinds[i].v4);
		SAME(vb_ip_sums_right(frame, len), kinds[i].v4);
		CHECK(is_right(kinds[i]));
	}
}

int main(void)
{
	RUN(checksums_are_filled_in_and_right);
	RUN(one_wrong_bit_is_noticed);
	RUN(what_has_no_transport_header_gets_none);
	RUN(udp_may_have_no_checksum);
	RUN(what_is_finished_is_as_right_as_it_looks);
	return 0;
}
