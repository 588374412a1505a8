// psn_test.c - PSNs across the wrap, messages split into packets
// follows: IBA volume 1, 9.7.1 (packet sequence numbers), 9.7, 9.2 (PadCnt)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/psn.h"
#include "frame/segment.h"

static void a_psn_has_24_bits(void)
{
	CHECK(vb_psn(0xff123456).v == 0x123456);
	CHECK(vb_psn_add(vb_psn(0xffffff), 1).v == 0);
	CHECK(vb_psn_add(vb_psn(0xfffffe), 5).v == 3);
	CHECK(vb_psn_add(vb_psn(0), -1).v == 0xffffff);
	CHECK(vb_psn_add(vb_psn(2), -0x800000).v == 0x800002);
	CHECK(vb_psn_equal(vb_psn(0x1000005), vb_psn(5)));
	CHECK(!vb_psn_equal(vb_psn(4), vb_psn(5)));
}

static void a_difference_is_signed_and_goes_across_the_wrap(void)
{
	CHECK(vb_psn_diff(vb_psn(5), vb_psn(5)) == 0);
	CHECK(vb_psn_diff(vb_psn(0), vb_psn(0xffffff)) == 1);
	CHECK(vb_psn_diff(vb_psn(0xffffff), vb_psn(0)) == -1);
	CHECK(vb_psn_diff(vb_psn(0x7fffff), vb_psn(0)) == 0x7fffff);
	CHECK(vb_psn_diff(vb_psn(0x800000), vb_psn(0)) == -0x800000);
	CHECK(vb_psn_diff(vb_psn(0x800001), vb_psn(0)) == -0x7fffff);
	CHECK(vb_psn_diff(vb_psn(0), vb_psn(0x800000)) == -0x800000);
}

static void before_is_the_half_behind(void)
{
	CHECK(vb_psn_before(vb_psn(0xffffff), vb_psn(0)));
	CHECK(!vb_psn_before(vb_psn(0), vb_psn(0xffffff)));
	CHECK(!vb_psn_before(vb_psn(7), vb_psn(7)));
	CHECK(vb_psn_before(vb_psn(0x800000), vb_psn(0)));
	CHECK(!vb_psn_before(vb_psn(0x7fffff), vb_psn(0)));
}

static void adding_a_difference_leads_back(void)
{
	for (uint32_t a = 0; a < 0x1000000; a += 65521) {
		for (uint32_t b = 1; b < 0x1000000; b += 65537)
			CHECK(vb_psn_equal(vb_psn_add(vb_psn(b), vb_psn_diff(vb_psn(a), vb_psn(b))), vb_psn(a)));
	}
}

static void a_message_takes_as_many_packets_as_it_needs(void)
{
	CHECK(vb_packet_count(0, 1024) == 1 && vb_last_len(0, 1024) == 0);
	CHECK(vb_packet_count(1, 1024) == 1 && vb_last_len(1, 1024) == 1);
	CHECK(vb_packet_count(1024, 1024) == 1 && vb_last_len(1024, 1024) == 1024);
	CHECK(vb_packet_count(1025, 1024) == 2 && vb_last_len(1025, 1024) == 1);
	CHECK(vb_packet_count(0x80000000, 256) == 0x800000 && vb_last_len(0x80000000, 256) == 256);
	CHECK(vb_packet_count(0xffffffff, 256) == 0x1000000 && vb_last_len(0xffffffff, 256) == 255);
}

static void the_pieces_of_a_message_add_up(void)
{
	for (uint32_t mtu = 256; mtu <= 4096; mtu *= 2) {
		for (uint32_t len = 0; len < 20000; len++) {
			uint32_t last = vb_last_len(len, mtu);

			CHECK((vb_packet_count(len, mtu) - 1) * mtu + last == len);
			CHECK(last <= mtu && (last > 0 || len == 0));
		}
	}
}

static void pad_fills_up_to_four_bytes(void)
{
	static const uint8_t pad[] = {0, 3, 2, 1, 0, 3, 2, 1};

	for (uint32_t len = 0; len < 8; len++)
		CHECK(vb_pad_count(len) == pad[len]);
	CHECK(vb_pad_count(0xffffffff) == 1);
}

int main(void)
{
	RUN(a_psn_has_24_bits);
	RUN(a_difference_is_signed_and_goes_across_the_wrap);
	RUN(before_is_the_half_behind);
	RUN(adding_a_difference_leads_back);
	RUN(a_message_takes_as_many_packets_as_it_needs);
	RUN(the_pieces_of_a_message_add_up);
	RUN(pad_fills_up_to_four_bytes);
	return 0;
}
