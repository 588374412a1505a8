// idle.c - a connected pair that has exchanged messages and is now idle, one side in ibv_get_cq_event; for bench/idle
// Prints the two process ids when both are idle. Ends when its input ends.
// SPDX-License-Identifier: MIT
#include <unistd.h>

#include "connect.h"

static struct endpoint *ends;
static struct meeting *meeting;

static void live(int me)
{
	struct adapter a;
	char *page = aligned_alloc(4096, 4096);

	adapter_open(&a);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(a.ctx);
	struct ibv_mr *mr = ibv_reg_mr(a.pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = cq_new(&a, 64, channel);
	struct ibv_qp *qp = qp_new(&a, cq, 16, &ends[me]);
	if (!mr || !channel)
		fail("ibv_reg_mr");
	meeting_wait(meeting);
	qp_connect(&a, qp, &ends[1 - me]);
	for (int i = 0; i < 8; i++)
		post_recv(qp, mr, 0);
	meeting_wait(meeting);
	for (int i = 0; i < 1000; i++) { /* each waits for the other's message, so there are never more messages than
                                          * receives */
		post_send_inline(qp, "hello", 5);
		poll_for(cq, 2);
		post_recv(qp, mr, 0);
	}
	meeting_wait(meeting);
	if (me == 0) {
		struct ibv_cq *got;
		void *context;

		if (ibv_req_notify_cq(cq, 0))
			fail("ibv_req_notify_cq");
		ibv_get_cq_event(channel, &got, &context);
	}
	for (;;) /* the other side has stopped polling */
		pause();
}

int main(void)
{
	char c;
	pid_t pid[2];

	ends = shared_memory(2 * sizeof(*ends));
	meeting = meeting_new(3);
	for (int i = 0; i < 2; i++) {
		pid[i] = fork_child();
		if (pid[i] == 0)
			live(i);
	}
	for (int i = 0; i < 3; i++)
		meeting_wait(meeting);
	printf("%d %d\n", (int)pid[0], (int)pid[1]);
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	return 0; /* both children die with us */
}
