// key_test.c - memory keys: unpredictable, and not reused soon
// follows: IBA volume 1, 10.6
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/key.h"
#include "core/mr.h"

static char buf[64];

static struct ibv_mr *reg(const struct objects *o)
{
	struct ibv_mr *mr = vb_reg_mr(o->pd, buf, sizeof(buf), (uintptr_t)buf, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr && mr->lkey == mr->rkey && mr->lkey);
	return mr;
}

static uint32_t used_once(const struct objects *o)
{
	struct ibv_mr *mr = reg(o);
	uint32_t key = mr->rkey;

	CHECK(!vb_dereg_mr(mr));
	return key;
}

static void a_lookup_finds_the_entry_by_the_key_alone(void)
{
	struct objects o = open_objects(IBV_QPT_RC);
	struct ibv_mr *mr = reg(&o);
	uint64_t va;

	CHECK(atomic_load(&vb_seg_mr_of(fake_node.seg, mr->rkey)->key) == mr->rkey);
	/* no other key of this slot is valid */
	for (uint32_t tag = 0; tag < 1u << VB_KEY_TAG_BITS; tag++) {
		uint32_t key = VB_KEY_SLOT(mr->rkey) << VB_KEY_TAG_BITS | tag;

		CHECK((vb_mr_check_local(&fake_node, o.pd->handle, key, (uintptr_t)buf, 1, 0, &va) != NULL) ==
		      (key == mr->rkey));
	}
	CHECK(!vb_dereg_mr(mr));
	close_objects(&o);
}

/* The generator has no period: earlier keys do not predict the next. */
static void the_keys_of_four_million_regions_do_not_foretell_the_next(void)
{
#if defined(VB_SANITIZED) || defined(VB_EMULATED) /* the code is executed; the numbers are those of the other builds */
	enum { FIRST = 64, BETWEEN = 1 << 18 };
#else
	enum { FIRST = 64, BETWEEN = 1 << 22 };
#endif
	struct objects o = open_objects(IBV_QPT_RC);
	uint32_t first[FIRST];
	int same = 0;

	for (int i = 0; i < FIRST; i++)
		first[i] = used_once(&o);
	for (int i = FIRST; i < BETWEEN; i++)
		used_once(&o);
	for (int i = 0; i < FIRST; i++)
		same += used_once(&o) == first[i];
	CHECK(!same);
	close_objects(&o);
}

/* The number of ones in n words is within six standard deviations. By chance, one check in half a million runs
 * fails. */
static void check_balance(const uint32_t *words, int n)
{
	for (int bit = 0; bit < 32; bit++) {
		int64_t off = -n;

		for (int i = 0; i < n; i++)
			off += 2 * (words[i] >> bit & 1);
		CHECK(off * off < 36ll * n);
	}
}

/* Keys, their differences, and the correlation of a key's bits with the next: all as in independent words. */
static void a_key_tells_nothing_of_its_neighbours(void)
{
	enum { N = 1 << 14 };
	static uint32_t key[N + 1], word[N];
	static struct ibv_mr *mr[N + 1];
	struct objects o = open_objects(IBV_QPT_RC);

	for (int i = 0; i <= N; i++) {
		mr[i] = reg(&o);
		key[i] = mr[i]->rkey;
	}
	check_balance(key, N);
	for (int i = 0; i < N; i++)
		word[i] = key[i] - key[i + 1];
	check_balance(word, N);
	for (int turn = 0; turn < 32; turn++) {
		for (int i = 0; i < N; i++)
			word[i] = key[i] ^ (key[i + 1] << turn | key[i + 1] >> (-turn & 31));
		check_balance(word, N);
	}
	/* adjacent slots in the table do not belong to consecutive registrations */
	int near = 0;

	for (int i = 0; i < N; i++) {
		int64_t apart = (int64_t)VB_KEY_SLOT(key[i]) - VB_KEY_SLOT(key[i + 1]);

		near += apart > -64 && apart < 64;
	}
	CHECK(near < 50); /* 8 are expected */
	for (int i = 0; i <= N; i++)
		CHECK(!vb_dereg_mr(mr[i]));
	close_objects(&o);
}

static void a_region_that_has_gone_is_refused_and_its_slot_rests(void)
{
	static int last[VB_SEG_MRS];
	struct objects o = open_objects(IBV_QPT_RC);
	uint64_t va;

	for (int i = 1; i <= 200000; i++) {
		uint32_t key = used_once(&o);
		int *seen = &last[VB_KEY_SLOT(key)];

		CHECK(!vb_mr_check_local(&fake_node, o.pd->handle, key, (uintptr_t)buf, 1, 0, &va));
		CHECK(!*seen || i - *seen > (int)VB_KEY_REST);
		*seen = i;
	}
	close_objects(&o);
}

static struct vb_keys *keys_of_its_own(void)
{
	struct vb_keys *k = calloc(1, sizeof(*k));

	CHECK(k && (k->slots = calloc(VB_SEG_MRS, sizeof(*k->slots))));
	return k;
}

static void end_keys(struct vb_keys *k)
{
	free((void *)k->slots);
	free(k);
}

/* A nearly full table cannot let slots rest, but still gives each region its own slot and entry. */
static void the_last_slot_of_a_full_table_is_found(void)
{
	struct vb_keys *k = keys_of_its_own();
	uint32_t *key = calloc(VB_SEG_MRS, sizeof(*key)), *round_of_entry = calloc(VB_SEG_MRS, sizeof(*key)), entry;

	CHECK(key && round_of_entry);
	for (uint32_t round = 1; round <= 2; round++) {
		for (uint32_t i = 0; i < VB_SEG_MRS; i++) {
			CHECK(!vb_key_take(k, &key[i], &entry) && key[i]);
			CHECK(entry < VB_SEG_MRS && round_of_entry[entry] < round);
			round_of_entry[entry] = round;
			CHECK((k->slots[VB_KEY_SLOT(key[i])] & (VB_SEG_MRS - 1)) == entry && k->used == i + 1);
			CHECK(k->used + k->resting <= VB_KEY_ROOM || !k->resting);
		}
		CHECK(!k->resting);
		for (uint32_t i = 0; i < VB_SEG_MRS; i++)
			vb_key_give_back(k, key[i]);
		CHECK(!k->used && k->resting == VB_KEY_REST);
	}
	free(round_of_entry);
	free(key);
	end_keys(k);
}

/* Few regions touch few pages, because their entries are adjacent. */
static void entries_are_taken_one_beside_the_other(void)
{
	struct vb_keys *k = keys_of_its_own();
	uint32_t key, entry;

	for (uint32_t i = 0; i < 1000; i++)
		CHECK(!vb_key_take(k, &key, &entry) && entry == i);
	for (uint32_t i = 0; i < 4 * VB_KEY_REST; i++) {
		CHECK(!vb_key_take(k, &key, &entry) && entry < 1000 + VB_KEY_REST + 1);
		vb_key_give_back(k, key);
	}
	end_keys(k);
}

/* 0 means "no region" in the table and in many programs. */
static void no_key_is_zero(void)
{
	struct vb_keys *k = keys_of_its_own();
	uint32_t key = 0, entry;

	k->drawn[0] = 0x12345678;
	k->drawn[1] = 0;
	k->left = 2;
	CHECK(!vb_key_take(k, &key, &entry) && key == 0x12345678);
	end_keys(k);
}

int main(void)
{
	RUN(a_lookup_finds_the_entry_by_the_key_alone);
	RUN(a_region_that_has_gone_is_refused_and_its_slot_rests);
	RUN(the_keys_of_four_million_regions_do_not_foretell_the_next);
	RUN(a_key_tells_nothing_of_its_neighbours);
	RUN(the_last_slot_of_a_full_table_is_found);
	RUN(entries_are_taken_one_beside_the_other);
	RUN(no_key_is_zero);
}
