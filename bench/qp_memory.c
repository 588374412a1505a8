// qp_memory.c - two processes with many connected RC queue pairs; bench/qp_memory measures their memory
// Prints the process ids when the adapter is open, then "connected", then "used". Waits for a line of input before each
// step.
// SPDX-License-Identifier: MIT
#include <unistd.h>

#include "connect.h"

enum { DEPTH = 128 };
static struct endpoint *ends; /* [me][i] */
static struct meeting *meeting;
static int count;

/* Uses every slot of every queue once. */
static void use(struct ibv_qp **qp, struct ibv_cq *cq, struct ibv_mr *mr)
{
	for (int i = 0; i < count; i++)
		for (int k = 0; k < DEPTH; k++)
			post_recv(qp[i], mr, 0);
	meeting_wait(meeting);
	for (int i = 0; i < count; i++) {
		for (int k = 0; k < DEPTH; k++)
			post_send_inline(qp[i], "hello", 5);
		poll_for(cq, 2 * DEPTH);
	}
}

static void live(int me)
{
	struct ibv_qp **qp = calloc((size_t)count, sizeof(*qp));
	struct adapter a;
	char *page = aligned_alloc(4096, 4096);

	adapter_open(&a);
	struct ibv_mr *mr = ibv_reg_mr(a.pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = cq_new(&a, 65536, NULL);
	if (!mr)
		fail("ibv_reg_mr");
	/* the processes meet before the first measurement, because the memory that they share is not part of a queue
	 * pair */
	qp[0] = qp_new(&a, cq, DEPTH, &ends[me * count]);
	meeting_wait(meeting);
	qp_connect(&a, qp[0], &ends[(1 - me) * count]);
	post_recv(qp[0], mr, 0);
	meeting_wait(meeting);
	post_send_inline(qp[0], "hello", 5);
	poll_for(cq, 2);
	meeting_wait(meeting);
	meeting_wait(meeting); /* measurement: adapter */
	for (int i = 1; i < count; i++)
		qp[i] = qp_new(&a, cq, DEPTH, &ends[me * count + i]);
	meeting_wait(meeting);
	for (int i = 1; i < count; i++)
		qp_connect(&a, qp[i], &ends[(1 - me) * count + i]);
	meeting_wait(meeting);
	meeting_wait(meeting); /* measurement: connected */
	use(qp, cq, mr);
	meeting_wait(meeting);
	meeting_wait(meeting); /* measurement: used */
	_exit(0);
}

static void step(const char *word)
{
	char line[16];

	meeting_wait(meeting);
	puts(word);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
	meeting_wait(meeting);
}

int main(int argc, char **argv)
{
	char pids[64];
	pid_t pid[2];

	count = argc > 1 ? atoi(argv[1]) : 1001;
	if (count < 2)
		return fprintf(stderr, "usage: verbs_qp_memory QUEUE-PAIRS\n"), 2;
	ends = shared_memory(sizeof(*ends) * 2 * (size_t)count);
	meeting = meeting_new(3);
	for (int i = 0; i < 2; i++) {
		pid[i] = fork_child();
		if (pid[i] == 0)
			live(i);
	}
	snprintf(pids, sizeof(pids), "%d %d", (int)pid[0], (int)pid[1]);
	meeting_wait(meeting);
	meeting_wait(meeting);
	step(pids);
	meeting_wait(meeting);
	step("connected");
	meeting_wait(meeting);
	step("used");
	reap(2);
	return 0;
}
