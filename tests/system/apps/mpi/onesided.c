// onesided.c - put, get, fetch-and-add and compare-and-swap in windows of all ranks
// follows: MPI 3.1 §11
// SPDX-License-Identifier: MIT
#include "expect.h"

#define CHUNK 70000
#define COUNTS 200

static unsigned char in[CHUNK], out[CHUNK];

/* Each rank owns a chunk for every other rank. The owner checks it after a fence, the others by get. */
static void put_and_get(void)
{
	unsigned char *base;
	MPI_Win win;

	MPI_Win_allocate((MPI_Aint)CHUNK * expect_ranks, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	for (int round = 0; round < 10; round++) {
		size_t n = round % 2 ? CHUNK : 1 + (size_t)round;

		expect_fill(out, n, expect_rank, round);
		MPI_Win_fence(0, win);
		for (int to = 0; to < expect_ranks; to++)
			MPI_Put(out, (int)n, MPI_BYTE, to, (MPI_Aint)CHUNK * expect_rank, (int)n, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		for (int from = 0; from < expect_ranks; from++)
			CHECK(expect_same(base + (size_t)CHUNK * from, n, from, round));
		for (int of = 0; of < expect_ranks; of++) {
			int writer = (of + expect_rank) % expect_ranks;

			MPI_Win_lock(MPI_LOCK_SHARED, of, 0, win);
			MPI_Get(in, (int)n, MPI_BYTE, of, (MPI_Aint)CHUNK * writer, (int)n, MPI_BYTE, win);
			MPI_Win_unlock(of, win);
			CHECK(expect_same(in, n, writer, round));
		}
	}
	MPI_Win_free(&win);
}

/* Each number from 0 is drawn once by some rank: the sum proves it. Each rank draws rising numbers. */
static void counter(void)
{
	long long *base, drawn, before = -1, one = 1, sum = 0, all = 0, n = (long long)COUNTS * expect_ranks;
	MPI_Win win;

	MPI_Win_allocate(2 * sizeof(*base), sizeof(*base), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, expect_rank, 0, win);
	base[0] = base[1] = 0;
	MPI_Win_unlock(expect_rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < COUNTS; i++) {
		MPI_Fetch_and_op(&one, &drawn, MPI_LONG_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		CHECK(drawn > before && drawn < n);
		before = drawn;
		sum += drawn;
	}
	MPI_Allreduce(&sum, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
	CHECK(all == n * (n - 1) / 2);

	/* one rank takes it, and all learn which */
	long long me = expect_rank + 1, nobody = 0, winner = 0, now;
	MPI_Compare_and_swap(&me, &nobody, &now, MPI_LONG_LONG, 0, 1, win);
	MPI_Win_flush(0, win);
	MPI_Reduce(now ? &nobody : &me, &winner, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!expect_rank) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		CHECK(base[0] == n && base[1] == winner);
		MPI_Win_unlock(0, win);
	}
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	expect_begin(&argc, &argv);
	put_and_get();
	counter();
	return expect_end("onesided");
}
