// crowd.c - many processes, all connected to all, and all but two asleep: the one-way latency of these two, in µs
// The figure is relative to the same program with two processes.
// SPDX-License-Identifier: MIT
#include <string.h>
#include <unistd.h>

#include "connect.h"

enum { MANY = 256, TURNS = 100000, DEPTH = 16 };

static struct endpoint *table; /* [from][to] */
static struct meeting *meeting;
static unsigned count;

/* The first two processes: a ping-pong of 8 bytes, inline, as in ib_send_lat. */
static void pingpong(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, bool first)
{
	static uint64_t took[TURNS];
	char word[8] = "ping";

	for (int i = 0; i < DEPTH / 2; i++)
		post_recv(qp, mr, 0);
	meeting_wait(meeting);
	if (first)
		usleep(300000); /* wait until the others sleep */
	for (int i = 0; i < TURNS; i++) {
		uint64_t start = now_ns();

		if (first)
			post_send_inline(qp, word, 8);
		poll_for(cq, 1); /* the completion of the send, or the message: */
		if (!first)
			post_send_inline(qp, word, 8);
		poll_for(cq, 1);
		took[i] = now_ns() - start;
		post_recv(qp, mr, 0);
	}
	if (first)
		printf("%.4f\n", (double)median_u64(took, TURNS) / 2000);
}

static void live(unsigned me)
{
	struct ibv_qp *qp[MANY];
	struct adapter a;
	char *page = aligned_alloc(4096, 4096);

	adapter_open(&a);
	struct ibv_mr *mr = ibv_reg_mr(a.pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = cq_new(&a, (int)count * 4 + 2 * DEPTH, NULL);
	if (!mr)
		fail("ibv_reg_mr");
	for (unsigned i = 0; i < count; i++)
		if (i != me)
			qp[i] = qp_new(&a, cq, DEPTH, &table[me * MANY + i]);
	meeting_wait(meeting);
	for (unsigned i = 0; i < count; i++) {
		if (i != me) {
			qp_connect(&a, qp[i], &table[i * MANY + me]);
			post_recv(qp[i], mr, i);
		}
	}
	meeting_wait(meeting);
	for (unsigned i = 0; i < count; i++)
		if (i != me)
			post_send_inline(qp[i], "hello", 5);
	poll_for(cq, 2 * ((int)count - 1));
	meeting_wait(meeting);
	if (me < 2) {
		take_core((int)me);
		pingpong(qp[1 - me], cq, mr, me == 0);
	} else {
		meeting_wait(meeting);
	}
	meeting_wait(meeting);
	_exit(fflush(stdout));
}

int main(int argc, char **argv)
{
	count = argc > 1 ? (unsigned)atoi(argv[1]) : 64;
	if (count < 2 || count > MANY)
		return fprintf(stderr, "usage: verbs_crowd PROCESSES (2 to %d)\n", MANY), 2;
	table = shared_memory(sizeof(*table) * MANY * MANY);
	meeting = meeting_new(count);
	for (unsigned i = 0; i < count; i++)
		if (fork_child() == 0)
			live(i);
	reap((int)count);
	return 0;
}
