// rate_test.c - the token bucket of a rate limit, at times that the test chooses
// follows: ibv_modify_qp_rate_limit(3), ibv_rate_to_mbps(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/rate.h"
#include "core/static_rate.h"

#define MS 1000000u /* ns */
#define KBPS 8000u  /* a byte each microsecond, a thousand each millisecond */
#define START (100 * (uint64_t)MS)

static struct vb_rate limited(uint32_t burst)
{
	struct vb_rate r = {0};

	vb_rate_set(&r, KBPS, burst, 0, 100, 1000, START);
	return r;
}

/* Sends as soon as it may. Returns when. */
static uint64_t send_at(struct vb_rate *r, uint64_t bytes, uint64_t now)
{
	uint64_t ready = vb_rate_ready(r, bytes, now);

	if (ready) {
		CHECK(ready > now && vb_rate_ready(r, bytes, ready - 1) == ready);
		now = ready;
	}
	CHECK(!vb_rate_ready(r, bytes, now));
	vb_rate_take(r, bytes);
	return now;
}

static void a_burst_leaves_at_once_and_the_rest_at_its_rate(void)
{
	struct vb_rate r = limited(3000);

	for (int i = 0; i < 3; i++)
		CHECK(send_at(&r, 1000, START) == START);
	for (uint64_t i = 1; i < 10; i++)
		CHECK(send_at(&r, 1000, START) == START + i * MS);
}

static void a_pause_gives_no_more_than_a_burst(void)
{
	struct vb_rate r = limited(3000);
	uint64_t later = START + 1000 * (uint64_t)MS;

	for (int i = 0; i < 5; i++)
		send_at(&r, 1000, START);
	for (int i = 0; i < 3; i++)
		CHECK(send_at(&r, 1000, later) == later);
	CHECK(send_at(&r, 1000, later) == later + MS);
}

static void a_message_longer_than_a_burst_waits_until_the_link_had_carried_it(void)
{
	struct vb_rate r = limited(3000);

	CHECK(send_at(&r, 10000, START) == START + 7 * MS);
	CHECK(send_at(&r, 10000, START + 7 * MS) == START + 17 * MS);
	CHECK(send_at(&r, 1000, START + 17 * MS) == START + 18 * MS);
}

/* A thread that wakes up late catches up, by a burst at most. */
static void who_is_late_catches_up(void)
{
	struct vb_rate r = limited(3000);

	for (int i = 0; i < 3; i++)
		send_at(&r, 1000, START);
	CHECK(vb_rate_ready(&r, 1000, START) == START + MS);
	for (int i = 0; i < 2; i++)
		CHECK(send_at(&r, 1000, START + 2 * MS) == START + 2 * MS);
	CHECK(send_at(&r, 1000, START + 2 * MS) == START + 3 * MS);
}

/* In no time more bytes leave than the rate and a burst allow, whatever their sizes and however late the sender is. */
static void bytes_never_exceed_the_rate_and_a_burst(void)
{
	struct vb_rate r = limited(4000);
	uint64_t seed = 1, now = START, bytes = 0;

	for (int i = 0; i < 100000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint64_t n = 1 + (seed >> 33) % 4000, late = (seed >> 50) % 3 ? 0 : (seed >> 20) % (5 * MS);

		now = send_at(&r, n, now) + late;
		bytes += n;
		CHECK(bytes <= (now - START) / 1000 + 4000);
	}
	CHECK(bytes > (now - START) / 2000); /* and the rate is used */
}

static void a_burst_has_room_for_a_packet_and_defaults_grow_with_the_rate(void)
{
	struct vb_rate r = {0};

	vb_rate_set(&r, KBPS, 10, 0, 100, 1000, START);
	CHECK(r.burst == 100 && r.typical == 1000);
	vb_rate_set(&r, KBPS, 0, 500, 100, 1000, START);
	CHECK(r.burst == 16 * 500 && r.typical == 500);
	vb_rate_set(&r, 8000000, 0, 0, 100, 1000, START);
	CHECK(r.burst == 1000000);
}

static void another_limit_counts_what_has_left_but_no_more_than_a_burst(void)
{
	struct vb_rate r = {0};

	vb_rate_set(&r, 1, 3000, 0, 100, 1000, START); /* 8 ms for each byte */
	for (int i = 0; i < 3; i++)
		CHECK(send_at(&r, 1000, START) == START);
	vb_rate_set(&r, KBPS, 3000, 0, 100, 1000, START);
	CHECK(send_at(&r, 1000, START) == START + MS);
	vb_rate_set(&r, 0, 0, 0, 100, 1000, START);
	CHECK(!r.kbps);
}

static void times_do_not_overflow(void)
{
	struct vb_rate r = {0};

	vb_rate_set(&r, VB_MIN_RATE, UINT32_MAX, 0, 100, 1000, START);
	CHECK(!vb_rate_ready(&r, UINT32_MAX, START));
	vb_rate_take(&r, UINT32_MAX);
	CHECK(vb_rate_ready(&r, 1, START) == START + 8 * (uint64_t)MS);
	vb_rate_set(&r, VB_MAX_RATE, 0, 0, 100, 1000, START);
	CHECK(r.burst == VB_MAX_RATE / 8);
}

/* The codes of speed and width are those of PortInfo (IBA 14.2.5.6). */
static void a_port_has_the_highest_rate_that_it_reaches(void)
{
	static const struct {
		uint8_t speed, width;
		enum ibv_rate rate;
	} ports[] = {{1, 1, IBV_RATE_MAX},        {2, 1, IBV_RATE_MAX},       {4, 1, IBV_RATE_10_GBPS},
	             {1, 2, IBV_RATE_10_GBPS},    {4, 2, IBV_RATE_40_GBPS},   {16, 1, IBV_RATE_14_GBPS},
	             {16, 16, IBV_RATE_28_GBPS},  {16, 2, IBV_RATE_56_GBPS},  {16, 4, IBV_RATE_112_GBPS},
	             {16, 8, IBV_RATE_168_GBPS},  {32, 1, IBV_RATE_25_GBPS},  {32, 2, IBV_RATE_100_GBPS},
	             {64, 1, IBV_RATE_50_GBPS},   {64, 2, IBV_RATE_200_GBPS}, {32, 8, IBV_RATE_300_GBPS},
	             {128, 2, IBV_RATE_400_GBPS}, {64, 8, IBV_RATE_600_GBPS}, {128, 4, IBV_RATE_800_GBPS},
	             {128, 8, IBV_RATE_1200_GBPS}};

	for (unsigned i = 0; i < sizeof(ports) / sizeof(*ports); i++) {
		const struct ibv_port_attr port = {.active_speed = ports[i].speed, .active_width = ports[i].width};

		CHECK(vb_port_rate(&port) == ports[i].rate);
	}
}

int main(void)
{
	RUN(a_burst_leaves_at_once_and_the_rest_at_its_rate);
	RUN(a_pause_gives_no_more_than_a_burst);
	RUN(a_message_longer_than_a_burst_waits_until_the_link_had_carried_it);
	RUN(who_is_late_catches_up);
	RUN(bytes_never_exceed_the_rate_and_a_burst);
	RUN(a_burst_has_room_for_a_packet_and_defaults_grow_with_the_rate);
	RUN(another_limit_counts_what_has_left_but_no_more_than_a_burst);
	RUN(times_do_not_overflow);
	RUN(a_port_has_the_highest_rate_that_it_reaches);
	return 0;
}
