// table_test.c - the table of lanes and their holders
// see: src/broker/server/table.h
// SPDX-License-Identifier: MIT
#include "broker/server/table.h"
#include "harness.h"

#include <errno.h>
#include <string.h>

static struct vb_table t;
#define OWN 1 /* the broker's user; all others are foreign */

static uint32_t take(uid_t uid, int64_t now)
{
	struct vb_table_asker a = {.uid = uid, .foreign = uid != OWN, .now = now, .max_lanes = VB_LANE_COUNT - 1};

	return vb_table_take(&t, &a, 1);
}

static int claim(uint32_t lane, uid_t uid, uint64_t incarnation)
{
	struct vb_table_asker a = {.uid = uid, .foreign = uid != OWN, .now = 1, .max_lanes = VB_LANE_COUNT - 1};

	return vb_table_claim(&t, lane, &a, incarnation);
}

static const uint8_t gid_a[1][16] = {{0xa}}, gid_b[1][16] = {{0xb}};

static void a_lane_is_not_given_twice_and_zero_never(void)
{
	bool seen[VB_LANE_COUNT] = {false};

	vb_table_init(&t, 77);
	for (int i = 1; i < VB_LANE_COUNT; i++) {
		uint32_t lane = take(OWN, 1);
		CHECK(lane > 0 && lane < VB_LANE_COUNT && !seen[lane]);
		seen[lane] = true;
	}
	SAME(take(OWN, 1), 0);
	SAME(t.held, VB_LANE_COUNT - 1);
	vb_table_close(&t);
	SAME(t.held, 0);
}

static void a_free_lane_is_given_again_as_late_as_possible(void)
{
	vb_table_init(&t, 10);
	SAME(take(OWN, 1), 10);
	vb_table_free(&t, 10, 1);
	for (int i = 1; i < VB_FOREIGN_LANES - 1; i++) {
		uint32_t lane = take(OWN, 1 + i);
		CHECK(lane != 10 && lane < VB_FOREIGN_LANES);
		vb_table_free(&t, lane, 1 + i);
	}
	SAME(take(OWN, 10000), 10);
}

static void the_broker_s_user_and_others_get_lanes_of_two_halves_while_there_are_any(void)
{
	vb_table_init(&t, 5);
	SAME(take(OWN, 1), 5);
	SAME(take(1000, 1), VB_FOREIGN_LANES);
	SAME(take(1001, 1), VB_FOREIGN_LANES + 1);
	for (int i = 1; i < VB_FOREIGN_LANES - 1; i++)
		CHECK(take(OWN, 1) < VB_FOREIGN_LANES);
	CHECK(take(OWN, 1) > VB_FOREIGN_LANES);
	vb_table_close(&t);
}

static uint32_t take_all(uid_t uid, int64_t now)
{
	uint32_t n = 0;

	while (take(uid, now))
		n++;
	return n;
}

static void a_user_who_takes_all_he_can_leaves_half_of_what_is_left_to_the_next(void)
{
	uint32_t n, left = VB_LANE_COUNT - 1 - VB_LANES_OWN;

	vb_table_init(&t, 5);
	for (uid_t uid = 1000; uid < 1006; uid++) {
		n = take_all(uid, 1);
		CHECK(n >= left / 2 - 1 && n <= left / 2 + 1);
		left -= n;
	}
	SAME(take_all(OWN, 1), left + VB_LANES_OWN);
	vb_table_close(&t);
}

static void with_few_descriptors_the_share_is_of_what_they_are_enough_for(void)
{
	struct vb_table_asker a = {.uid = 1000, .foreign = true, .now = 1, .max_lanes = 164};
	uint32_t n = 0;

	vb_table_init(&t, 5);
	while (vb_table_take(&t, &a, 1))
		n++;
	SAME(n, (164 - VB_LANES_OWN) / 2);
	vb_table_close(&t);
}

static void another_user_does_not_get_a_lane_within_a_minute(void)
{
	vb_table_init(&t, 600);
	uint32_t lane = take(1000, 1);
	vb_table_free(&t, lane, 1000);
	for (int i = 0; i < 400; i++) /* all the others */
		CHECK(take(1001, 1000 + VB_QUARANTINE_MS - 1) != lane);
	vb_table_close(&t);
	vb_table_init(&t, lane);
	SAME(take(1000, 1), lane);
	vb_table_free(&t, lane, 1000);
	uint32_t n = 0;
	for (uid_t uid = 1001; uid < 1010; uid++)
		while ((n = take(uid, 1000 + VB_QUARANTINE_MS)) && n != lane)
			;
	(void)n;
	SAME(t.lanes[lane].state, VB_LANE_HELD);
	vb_table_close(&t);
}

static void who_comes_and_goes_uses_up_no_more_than_a_few_lanes(void)
{
	uint32_t free_for_others = 0;

	vb_table_init(&t, 5);
	for (int i = 0; i < 5000; i++) {
		uint32_t lane = take(1000, 1000 + i);
		CHECK(lane);
		vb_table_free(&t, lane, 1000 + i);
	}
	for (uint32_t i = 1; i < VB_LANE_COUNT; i++)
		free_for_others += t.lanes[i].freed_at == 0;
	SAME(free_for_others, VB_LANE_COUNT - 1 - VB_QUARANTINE_EACH);
	vb_table_close(&t);
}

static void a_reserved_lane_goes_to_its_holder_alone(void)
{
	vb_table_init(&t, 5);
	SAME(vb_table_reserve(&t, 5, 1000, 42), 0);
	SAME(vb_table_reserve(&t, 5, 1000, 43), EBUSY);
	SAME(take(OWN, 1), 6);
	SAME(claim(5, 1001, 42), EBUSY);
	SAME(claim(5, OWN, 42), EBUSY);
	SAME(claim(5, 1000, 41), EBUSY);
	SAME(claim(5, 1000, 42), 0);
	SAME(claim(5, 1000, 42), EBUSY);
	SAME(t.reserved, 0);
	SAME(t.held, 2);
	SAME(claim(0, 1000, 42), EINVAL);
	SAME(claim(VB_LANE_COUNT, 1000, 42), EINVAL);
	SAME(claim(9, OWN, 0), EINVAL);
	vb_table_close(&t);
}

static void a_free_lane_is_claimed_by_the_broker_s_own_user_alone(void)
{
	vb_table_init(&t, 5);
	SAME(claim(9, 1000, 44), EBUSY);
	uint32_t lane = take(1001, 1);
	vb_table_free(&t, lane, 1);
	SAME(claim(lane, 1000, 1), EBUSY); /* of a program that has just died */
	SAME(claim(lane, 1001, 1), EBUSY);
	SAME(claim(9, OWN, 44), 0);
	vb_table_close(&t);
}

static void a_meet_finds_lane_and_gid_of_the_same_user_only(void)
{
	uint32_t lane = 0;

	vb_table_init(&t, 1);
	for (uint32_t i = 1; i <= 3; i++) {
		SAME(vb_table_reserve(&t, i, i < 3 ? 1000 : 1001, i), 0);
		SAME(claim(i, i < 3 ? 1000 : 1001, i), 0);
	}
	SAME(vb_table_reserve(&t, 4, 1000, 4), 0);
	SAME(vb_table_find(&t, 1, 2 << 14, gid_a[0], &lane), ENOENT); /* it has no GIDs yet */
	SAME(vb_table_set_gids(&t, 2, gid_a, 1), 0);
	SAME(vb_table_set_gids(&t, 3, gid_a, 1), 0);
	SAME(vb_table_find(&t, 1, 2 << 14 | 0x3fff, gid_a[0], &lane), 0);
	SAME(lane, 2);
	SAME(vb_table_find(&t, 1, 2 << 14, gid_b[0], &lane), ENOENT);
	SAME(vb_table_find(&t, 1, 3 << 14, gid_a[0], &lane), EACCES);
	SAME(vb_table_find(&t, 1, 3 << 14, gid_b[0], &lane), ENOENT);
	SAME(vb_table_find(&t, 1, 1 << 14, gid_a[0], &lane), EINVAL);
	SAME(vb_table_find(&t, 1, 4 << 14, gid_a[0], &lane), EAGAIN);
	SAME(vb_table_find(&t, 3, 4 << 14, gid_a[0], &lane), ENOENT);
	SAME(vb_table_find(&t, 1, 1, gid_a[0], &lane), ENOENT);       /* the broker's own lane */
	SAME(vb_table_find(&t, 1, 1 << 25, gid_a[0], &lane), ENOENT); /* not a QP number */
	SAME(vb_table_set_gids(&t, 2, gid_b, 1), 0);
	SAME(vb_table_find(&t, 1, 2 << 14, gid_a[0], &lane), ENOENT);
	SAME(vb_table_find(&t, 1, 2 << 14, gid_b[0], &lane), 0);
	SAME(vb_table_set_gids(&t, 2, gid_b, VB_MAX_GIDS + 1), EINVAL);
	SAME(vb_table_set_gids(&t, 4, gid_b, 1), EINVAL);
	vb_table_close(&t);
}

static void a_set_of_lanes_gives_back_what_was_added(void)
{
	struct vb_lane_set s = {{0}};

	SAME(vb_lane_set_any(&s), 0);
	vb_lane_set_add(&s, 1023);
	vb_lane_set_add(&s, 64);
	SAME(vb_lane_set_any(&s), 64);
	vb_lane_set_remove(&s, 64);
	SAME(vb_lane_set_any(&s), 1023);
	vb_lane_set_remove(&s, 1023);
	SAME(vb_lane_set_any(&s), 0);
}

static const struct test tests[] = {
        {"a lane is not given twice, and zero never", a_lane_is_not_given_twice_and_zero_never},
        {"a free lane is given again as late as possible", a_free_lane_is_given_again_as_late_as_possible},
        {"the broker's user and others get lanes of two halves, while there are any",
         the_broker_s_user_and_others_get_lanes_of_two_halves_while_there_are_any},
        {"a user who takes all he can leaves half of what is left to the next",
         a_user_who_takes_all_he_can_leaves_half_of_what_is_left_to_the_next},
        {"with few descriptors the share is of what they are enough for",
         with_few_descriptors_the_share_is_of_what_they_are_enough_for},
        {"another user does not get a lane within a minute", another_user_does_not_get_a_lane_within_a_minute},
        {"who comes and goes uses up no more than a few lanes", who_comes_and_goes_uses_up_no_more_than_a_few_lanes},
        {"a free lane is claimed by the broker's own user alone",
         a_free_lane_is_claimed_by_the_broker_s_own_user_alone},
        {"a reserved lane goes to its holder alone", a_reserved_lane_goes_to_its_holder_alone},
        {"a meet finds lane and GID of the same user only", a_meet_finds_lane_and_gid_of_the_same_user_only},
        {"a set of lanes gives back what was added", a_set_of_lanes_gives_back_what_was_added},
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
