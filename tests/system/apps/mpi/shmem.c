// shmem.c - put, get, atomics, reductions and broadcasts in the symmetric memory of all processing elements
// follows: OpenSHMEM 1.4 §9
// SPDX-License-Identifier: MIT
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK 70000
#define LONGS 5000
#define COUNTS 200

static int me, n;

#define CHECK_FAILED(fmt, ...)                                                                          \
	do {                                                                                            \
		fprintf(stderr, "%s:%d: element %d: " fmt "\n", __FILE__, __LINE__, me, ##__VA_ARGS__); \
		shmem_global_exit(1);                                                                   \
	} while (0)
#include "../../../support/check.h"

static unsigned char byte(int who, int round, size_t i)
{
	return (unsigned char)(who * 31 + round * 7 + i * 13 + (i >> 8) * 5);
}

static int same(const unsigned char *p, size_t size, int who, int round)
{
	for (size_t i = 0; i < size; i++)
		if (p[i] != byte(who, round, i))
			return 0;
	return 1;
}

/* Each owns a chunk for every other. The owner checks it after a barrier, the others by get. */
static void put_and_get(void)
{
	unsigned char *all = shmem_malloc((size_t)CHUNK * n), *out = malloc(CHUNK), *in = malloc(CHUNK);

	CHECK(all && out && in);
	for (int round = 0; round < 10; round++) {
		size_t size = round % 2 ? CHUNK : 1 + (size_t)round;

		for (size_t i = 0; i < size; i++)
			out[i] = byte(me, round, i);
		for (int to = 0; to < n; to++)
			shmem_putmem(all + (size_t)CHUNK * me, out, size, to);
		shmem_barrier_all();
		for (int from = 0; from < n; from++)
			CHECK(same(all + (size_t)CHUNK * from, size, from, round));
		for (int of = 0; of < n; of++) {
			shmem_getmem(in, all + (size_t)CHUNK * ((of + me) % n), size, of);
			CHECK(same(in, size, (of + me) % n, round));
		}
		shmem_barrier_all();
	}
	free(in);
	free(out);
	shmem_free(all);
}

/* Each number from 0 is drawn once, in rising order for each element. One element takes the prize. The flag arrives
 * after the data. */
static void atomics(void)
{
	static long counter, prize, sums, winners, flag, data[LONGS];
	long before = -1, sum = 0, total = (long)COUNTS * n, next = (me + 1) % n;

	for (int i = 0; i < COUNTS; i++) {
		long drawn = shmem_long_atomic_fetch_add(&counter, 1, 0);

		CHECK(drawn > before && drawn < total);
		before = drawn;
		sum += drawn;
	}
	shmem_long_atomic_add(&sums, sum, 0);
	if (shmem_long_atomic_compare_swap(&prize, 0, me + 1, 0) == 0)
		shmem_long_atomic_add(&winners, me + 1, 0);
	shmem_barrier_all();
	CHECK(me || (sums == total * (total - 1) / 2 && counter == total && prize && winners == prize));

	long values[LONGS];
	for (long i = 0; i < LONGS; i++)
		values[i] = me * LONGS + i;
	shmem_long_put(data, values, LONGS, (int)next);
	shmem_fence();
	shmem_long_p(&flag, 1, (int)next);
	shmem_long_wait_until(&flag, SHMEM_CMP_EQ, 1);
	for (long i = 0; i < LONGS; i++)
		CHECK(data[i] == (me + n - 1) % n * LONGS + i);
	shmem_barrier_all();
}

static void collectives(void)
{
	static long psync[SHMEM_REDUCE_SYNC_SIZE], bsync[SHMEM_BCAST_SYNC_SIZE], from[LONGS], to[LONGS];
	static long work[LONGS / 2 + 1 > SHMEM_REDUCE_MIN_WRKDATA_SIZE ? LONGS / 2 + 1 : SHMEM_REDUCE_MIN_WRKDATA_SIZE];

	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		psync[i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < SHMEM_BCAST_SYNC_SIZE; i++)
		bsync[i] = SHMEM_SYNC_VALUE;
	for (long i = 0; i < LONGS; i++)
		from[i] = me * 3 + i;
	shmem_barrier_all();
	shmem_long_sum_to_all(to, from, LONGS, 0, 0, n, work, psync);
	for (long i = 0; i < LONGS; i++)
		CHECK(to[i] == 3L * n * (n - 1) / 2 + i * n);
	shmem_barrier_all();
	shmem_long_max_to_all(to, from, LONGS, 0, 0, n, work, psync);
	for (long i = 0; i < LONGS; i++)
		CHECK(to[i] == 3L * (n - 1) + i);
	shmem_barrier_all();
	shmem_broadcast64(to, from, LONGS, n - 1, 0, 0, n, bsync);
	for (long i = 0; me != n - 1 && i < LONGS; i++)
		CHECK(to[i] == 3L * (n - 1) + i);
	shmem_barrier_all();
}

int main(void)
{
	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	put_and_get();
	atomics();
	collectives();
	shmem_barrier_all();
	if (!me)
		printf("shmem: %d ranks agree\n", n);
	shmem_finalize();
	return 0;
}
