// keys.c - a program learns nothing about another's memory keys from its own keys, not even its child or a program of
// the same user
// follows: IBA volume 1, 10.6 (memory keys)
// see: core/key.h
// SPDX-License-Identifier: MIT
#include "pair.h"

#define REGIONS 4096

static char bytes[64];

static void take_keys(struct dev *d, uint32_t *key, int n)
{
	for (int i = 0; i < n; i++) {
		struct ibv_mr *mr = ibv_reg_mr(d->pd, bytes, sizeof(bytes), ALL_ACCESS);

		CHECK(mr);
		key[i] = mr->rkey;
	}
}

static void tells_its_keys(int fd, void *arg)
{
	static uint32_t key[REGIONS];
	struct dev d;

	dev_open(&d);
	take_keys(&d, key, REGIONS);
	tell(fd, key, sizeof(key));
	_exit(0);
}

static int ascending(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The number of values that both have. */
static int common(uint32_t *a, uint32_t *b, int n)
{
	int i = 0, k = 0, same = 0;

	qsort(a, (size_t)n, sizeof(*a), ascending);
	qsort(b, (size_t)n, sizeof(*b), ascending);
	while (i < n && k < n) {
		same += a[i] == b[k];
		if (a[i] <= b[k])
			i++;
		else
			k++;
	}
	return same;
}

/* The two keys of each registration are not correlated: neither their bits, within six standard deviations, nor their
 * slots. */
static void check_unrelated(const uint32_t *a, const uint32_t *b)
{
	int near = 0;

	for (int bit = 0; bit < 32; bit++) {
		int64_t off = -REGIONS;

		for (int i = 0; i < REGIONS; i++)
			off += 2 * ((a[i] ^ b[i]) >> bit & 1);
		CHECK(off * off < 36ll * REGIONS);
	}
	for (int i = 0; i < REGIONS; i++)
		near += a[i] - b[i] + (1u << 20) < 1u << 21;
	CHECK(near < 30); /* 2 are expected */
}

static void keys_of_two(bool parent)
{
	static uint32_t ours[REGIONS], theirs[REGIONS];
	struct peer p;
	struct dev d;

	if (parent) { /* with keys that were generated and are not used yet */
		dev_open(&d);
		take_keys(&d, ours, 1);
	}
	p = start(tells_its_keys, NULL);
	if (!parent)
		dev_open(&d);
	take_keys(&d, ours, REGIONS);
	hear(p.fd, theirs, sizeof(theirs));
	finish(&p);
	check_unrelated(ours, theirs);
	CHECK(common(ours, theirs, REGIONS) < 4); /* by chance, one in 256 runs has one */
}

static void two_programs_of_a_user_have_unrelated_keys(void)
{
	keys_of_two(false);
}

static void a_child_does_not_go_on_with_its_parent_s_keys(void)
{
	keys_of_two(true);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"two programs of a user have unrelated keys", two_programs_of_a_user_have_unrelated_keys},
	        {"a child does not go on with its parent's keys", a_child_does_not_go_on_with_its_parent_s_keys},
	};

	return RUN_TESTS(argc, argv, tests);
}
