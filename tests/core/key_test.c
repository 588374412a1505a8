// key_test.c - memory keys
// follows: IBA volume 1, 10.6
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/key.h"

static const uint64_t secrets[] = {0, 1, 0x123456789abcdef0, ~0ull};

/* A permutation has an inverse, and what has one is a permutation. */
static void scrambling_is_undone_by_plain(void)
{
	for (int s = 0; s < 4; s++)
		for (uint64_t i = 0; i < 1u << 22; i++) {
			uint32_t x = (uint32_t)(i * 0x9e3779b1u);

			CHECK(vb_key_plain(vb_key_scramble(x, secrets[s]), secrets[s]) == x);
		}
}

static void neighbours_do_not_show(void)
{
	uint32_t near = 0;

	for (uint32_t i = 1; i < 1000; i++) {
		uint32_t a = vb_key_scramble(VB_KEY_PLAIN(7, 1, i), secrets[2]),
		         b = vb_key_scramble(VB_KEY_PLAIN(7, 1, i + 1), secrets[2]);

		near += (a > b ? a - b : b - a) < 65536;
	}
	CHECK(near < 10);
}

static void an_index_that_is_used_again_has_another_key(void)
{
	struct objects o = open_objects(IBV_QPT_RC);
	char buf[64];
	uint32_t seen[16];

	for (int i = 0; i < 16; i++) {
		fake_node.mr_next = 1000;
		struct ibv_mr *mr = vb_reg_mr(o.pd, buf, sizeof(buf), (uintptr_t)buf, 0);

		CHECK(mr && mr->lkey == mr->rkey && mr->lkey);
		CHECK(VB_KEY_INDEX(vb_key_plain(mr->lkey, fake_node.key_secret)) == 1000);
		seen[i] = mr->lkey;
		for (int j = 0; j < i; j++)
			CHECK(seen[j] != seen[i]);
		CHECK(!vb_dereg_mr(mr));
	}
	close_objects(&o);
}

/* The lane whose plain number would be scrambled to 0 is searched for: that generation is skipped. */
static void no_key_is_zero(void)
{
	struct objects o = open_objects(IBV_QPT_RC);
	uint32_t plain = vb_key_plain(0, fake_node.key_secret), lane = fake_node.lane;
	char buf[64];

	fake_node.lane = plain >> 22;
	for (int i = 0; i < 20; i++) {
		fake_node.mr_next = VB_KEY_INDEX(plain);
		struct ibv_mr *mr = vb_reg_mr(o.pd, buf, sizeof(buf), (uintptr_t)buf, 0);

		CHECK(mr && mr->lkey);
		CHECK(!vb_dereg_mr(mr));
	}
	fake_node.lane = lane;
	close_objects(&o);
}

int main(void)
{
	RUN(scrambling_is_undone_by_plain);
	RUN(neighbours_do_not_show);
	RUN(an_index_that_is_used_again_has_another_key);
	RUN(no_key_is_zero);
}
