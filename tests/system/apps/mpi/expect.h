// expect.h - shared by the MPI programs: a value for each byte of each message, and the end on a wrong one
// follows: MPI 3.1
// SPDX-License-Identifier: MIT
#ifndef EXPECT_H
#define EXPECT_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int expect_rank, expect_ranks;

#define CHECK_FAILED(fmt, ...)                                                                                \
	do {                                                                                                  \
		fprintf(stderr, "%s:%d: rank %d: " fmt "\n", __FILE__, __LINE__, expect_rank, ##__VA_ARGS__); \
		MPI_Abort(MPI_COMM_WORLD, 1);                                                                 \
	} while (0)
#include "../../../support/check.h"

static inline void expect_begin(int *argc, char ***argv)
{
	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &expect_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &expect_ranks);
}

/* Waits until all ranks have got here; then one of them says so. */
static inline int expect_end(const char *what)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (!expect_rank)
		printf("%s: %d ranks agree\n", what, expect_ranks);
	MPI_Finalize();
	return 0;
}

static inline unsigned char expect_byte(int rank, int round, size_t i)
{
	return (unsigned char)(rank * 31 + round * 7 + i * 13 + (i >> 8) * 5 + (i >> 16));
}

static inline void expect_fill(unsigned char *p, size_t n, int rank, int round)
{
	for (size_t i = 0; i < n; i++)
		p[i] = expect_byte(rank, round, i);
}

static inline int expect_same(const unsigned char *p, size_t n, int rank, int round)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != expect_byte(rank, round, i))
			return 0;
	return 1;
}

#endif
