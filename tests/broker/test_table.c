// test_table.c - who holds which lane
// follows: src/broker/table.h
// SPDX-License-Identifier: MIT
#include "broker/table.h"
#include "harness.h"

#include <errno.h>
#include <string.h>

static struct vb_table t;
static const uint8_t gid_a[1][16] = {{0xa}}, gid_b[1][16] = {{0xb}};

static void a_lane_is_not_given_twice_and_zero_never(void)
{
	bool seen[VB_LANE_COUNT] = {false};

	vb_table_init(&t, 77);
	for (int i = 1; i < VB_LANE_COUNT; i++) {
		uint32_t lane = vb_table_take(&t, 1, 1, 1);
		CHECK(lane > 0 && lane < VB_LANE_COUNT && !seen[lane]);
		seen[lane] = true;
	}
	CHECK_IS(vb_table_take(&t, 1, 1, 1), 0);
	CHECK_IS(t.held, VB_LANE_COUNT - 1);
	vb_table_close(&t);
	CHECK_IS(t.held, 0);
}

static void a_free_lane_is_given_again_as_late_as_possible(void)
{
	vb_table_init(&t, 10);
	CHECK_IS(vb_table_take(&t, 1, 1, 1), 10);
	vb_table_free(&t, 10);
	for (int i = 1; i < VB_LANE_COUNT - 1; i++) {
		uint32_t lane = vb_table_take(&t, 1, 1, 1);
		CHECK(lane != 10);
		vb_table_free(&t, lane);
	}
	CHECK_IS(vb_table_take(&t, 1, 1, 1), 10);
}

static void a_reserved_lane_goes_to_its_holder_alone(void)
{
	vb_table_init(&t, 5);
	CHECK_IS(vb_table_reserve(&t, 5, 1000, 42, 7), 0);
	CHECK_IS(vb_table_reserve(&t, 5, 1000, 43, 7), EBUSY);
	CHECK_IS(vb_table_take(&t, 1000, 1, 7), 6);
	CHECK_IS(vb_table_claim(&t, 5, 1001, 42, 7), EBUSY);
	CHECK_IS(vb_table_claim(&t, 5, 1000, 41, 7), EBUSY);
	CHECK_IS(vb_table_claim(&t, 5, 1000, 42, 7), 0);
	CHECK_IS(vb_table_claim(&t, 5, 1000, 42, 7), EBUSY);
	CHECK_IS(t.reserved, 0);
	CHECK_IS(t.held, 2);
	CHECK_IS(vb_table_claim(&t, 0, 1000, 42, 7), EINVAL);
	CHECK_IS(vb_table_claim(&t, VB_LANE_COUNT, 1000, 42, 7), EINVAL);
	CHECK_IS(vb_table_claim(&t, 9, 1000, 0, 7), EINVAL);
	CHECK_IS(vb_table_claim(&t, 9, 1000, 44, 7), 0);
	vb_table_close(&t);
}

static void a_secret_lasts_as_long_as_its_user_has_a_lane(void)
{
	uint64_t secret = 0;

	vb_table_init(&t, 1);
	CHECK(!vb_table_secret(&t, 1000, &secret));
	uint32_t lane = vb_table_take(&t, 1000, 1, 99);
	CHECK(vb_table_secret(&t, 1000, &secret) && secret == 99);
	CHECK(!vb_table_secret(&t, 1001, &secret));
	vb_table_free(&t, lane);
	CHECK(!vb_table_secret(&t, 1000, &secret));
}

static void a_meet_finds_lane_and_gid_of_the_same_user_only(void)
{
	uint32_t lane = 0;

	vb_table_init(&t, 1);
	CHECK_IS(vb_table_take(&t, 1000, 1, 1), 1);
	CHECK_IS(vb_table_take(&t, 1000, 2, 1), 2);
	CHECK_IS(vb_table_take(&t, 1001, 3, 1), 3);
	CHECK_IS(vb_table_reserve(&t, 4, 1000, 4, 1), 0);
	CHECK_IS(vb_table_find(&t, 1, 2 << 14, gid_a[0], &lane), ENOENT); /* it has no GIDs yet */
	CHECK_IS(vb_table_set_gids(&t, 2, gid_a, 1), 0);
	CHECK_IS(vb_table_set_gids(&t, 3, gid_a, 1), 0);
	CHECK_IS(vb_table_find(&t, 1, 2 << 14 | 0x3fff, gid_a[0], &lane), 0);
	CHECK_IS(lane, 2);
	CHECK_IS(vb_table_find(&t, 1, 2 << 14, gid_b[0], &lane), ENOENT);
	CHECK_IS(vb_table_find(&t, 1, 3 << 14, gid_a[0], &lane), EACCES);
	CHECK_IS(vb_table_find(&t, 1, 3 << 14, gid_b[0], &lane), ENOENT);
	CHECK_IS(vb_table_find(&t, 1, 1 << 14, gid_a[0], &lane), EINVAL);
	CHECK_IS(vb_table_find(&t, 1, 4 << 14, gid_a[0], &lane), EAGAIN);
	CHECK_IS(vb_table_find(&t, 3, 4 << 14, gid_a[0], &lane), ENOENT);
	CHECK_IS(vb_table_find(&t, 1, 1, gid_a[0], &lane), ENOENT);         /* the broker's own lane */
	CHECK_IS(vb_table_find(&t, 1, 1 << 25, gid_a[0], &lane), ENOENT);   /* no QP number */
	CHECK_IS(vb_table_set_gids(&t, 2, gid_b, 1), 0);
	CHECK_IS(vb_table_find(&t, 1, 2 << 14, gid_a[0], &lane), ENOENT);
	CHECK_IS(vb_table_find(&t, 1, 2 << 14, gid_b[0], &lane), 0);
	CHECK_IS(vb_table_set_gids(&t, 2, gid_b, VB_MAX_GIDS + 1), EINVAL);
	CHECK_IS(vb_table_set_gids(&t, 4, gid_b, 1), EINVAL);
	vb_table_close(&t);
}

static void a_set_of_lanes_gives_back_what_was_added(void)
{
	struct vb_lane_set s = {{0}};

	CHECK_IS(vb_lane_set_any(&s), 0);
	vb_lane_set_add(&s, 1023);
	vb_lane_set_add(&s, 64);
	CHECK_IS(vb_lane_set_any(&s), 64);
	vb_lane_set_remove(&s, 64);
	CHECK_IS(vb_lane_set_any(&s), 1023);
	vb_lane_set_remove(&s, 1023);
	CHECK_IS(vb_lane_set_any(&s), 0);
}

static const struct test tests[] = {
	{"a lane is not given twice, and zero never", a_lane_is_not_given_twice_and_zero_never},
	{"a free lane is given again as late as possible", a_free_lane_is_given_again_as_late_as_possible},
	{"a reserved lane goes to its holder alone", a_reserved_lane_goes_to_its_holder_alone},
	{"a secret lasts as long as its user has a lane", a_secret_lasts_as_long_as_its_user_has_a_lane},
	{"a meet finds lane and GID of the same user only", a_meet_finds_lane_and_gid_of_the_same_user_only},
	{"a set of lanes gives back what was added", a_set_of_lanes_gives_back_what_was_added},
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
