// reduce.c - sums, minima and broadcasts over all ranks, each compared with the expected result
// follows: MPI 3.1 §5
// SPDX-License-Identifier: MIT
#include "expect.h"

#define LONGEST 65536

static long long mine[LONGEST], all[LONGEST];
static double part[LONGEST], whole[LONGEST];

static void sums(int n)
{
	long long ranks = expect_ranks, of_ranks = ranks * (ranks - 1) / 2;

	for (int i = 0; i < n; i++) {
		mine[i] = expect_rank * 1000003ll + i;
		part[i] = expect_rank + i * 0.5;
	}
	MPI_Allreduce(mine, all, n, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		CHECK(all[i] == of_ranks * 1000003ll + ranks * i);
	MPI_Allreduce(part, whole, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		CHECK(whole[i] == (double)of_ranks + (double)ranks * i * 0.5);
	MPI_Allreduce(mine, all, n, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		CHECK(all[i] == (ranks - 1) * 1000003ll + i);
}

static void broadcasts(int n)
{
	for (int root = 0; root < expect_ranks; root++) {
		unsigned char *p = (unsigned char *)all;

		expect_fill(p, (size_t)n, expect_rank, root);
		MPI_Bcast(p, n, MPI_BYTE, root, MPI_COMM_WORLD);
		CHECK(expect_same(p, (size_t)n, root, root));
	}
}

int main(int argc, char **argv)
{
	expect_begin(&argc, &argv);
	for (int n = 1; n <= LONGEST; n *= 16)
		sums(n);
	for (int n = 1; n <= LONGEST; n *= 16)
		broadcasts(n);
	for (int i = 0; i < 50; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	return expect_end("reduce");
}
