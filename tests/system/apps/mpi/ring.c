// ring.c - messages of all sizes to the right neighbour and from the left one, then from everybody to everybody
// follows: MPI 3.1 §3
// SPDX-License-Identifier: MIT
#include "expect.h"

#define LARGEST (1u << 20)
#define EACH 1500

static unsigned char out[LARGEST], in[LARGEST];

static void ring(size_t n, int round)
{
	int right = (expect_rank + 1) % expect_ranks, left = (expect_rank + expect_ranks - 1) % expect_ranks;
	MPI_Status status;
	int got;

	expect_fill(out, n, expect_rank, round);
	MPI_Sendrecv(out, (int)n, MPI_BYTE, right, round, in, (int)LARGEST, MPI_BYTE, left, round, MPI_COMM_WORLD,
	             &status);
	MPI_Get_count(&status, MPI_BYTE, &got);
	CHECK(got == (int)n && status.MPI_SOURCE == left && status.MPI_TAG == round);
	CHECK(expect_same(in, n, left, round));
}

/* Messages that arrive before their receive, and in another order than the receives. */
static void tags(void)
{
	int right = (expect_rank + 1) % expect_ranks, left = (expect_rank + expect_ranks - 1) % expect_ranks;
	MPI_Request sent[64];

	for (int i = 0; i < 64; i++) {
		expect_fill(out + i * EACH, EACH, expect_rank, i);
		MPI_Isend(out + i * EACH, EACH, MPI_BYTE, right, i, MPI_COMM_WORLD, &sent[i]);
	}
	for (int i = 63; i >= 0; i--) {
		MPI_Recv(in, EACH, MPI_BYTE, left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		CHECK(expect_same(in, EACH, left, i));
	}
	MPI_Waitall(64, sent, MPI_STATUSES_IGNORE);
}

static void everybody(void)
{
	for (int to = 0; to < expect_ranks; to++)
		expect_fill(out + to * EACH, EACH, expect_rank, to);
	MPI_Alltoall(out, EACH, MPI_BYTE, in, EACH, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < expect_ranks; from++)
		CHECK(expect_same(in + from * EACH, EACH, from, expect_rank));
}

int main(int argc, char **argv)
{
	int round = 0;

	expect_begin(&argc, &argv);
	for (size_t n = 0; n <= LARGEST; n = n ? n * 4 : 1)
		for (int k = 0; k < 20; k++)
			ring(n, round++);
	tags();
	everybody();
	return expect_end("ring");
}
