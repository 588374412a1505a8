// overwritten.c - a program that overwrites the public fields of its objects, which it may: data moves, calls refuse
// follows: ibv_create_qp(3), ibv_modify_qp(3); infiniband/verbs.h
// SPDX-License-Identifier: MIT
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "matrix.h"

enum { MESSAGES = 6 };

static struct pair pair;
static void *nowhere; /* an address that nobody may read */

/* What a program can reach of its queue pairs, CQs, regions and protection domains. */
struct public_parts {
	struct ibv_qp qp[2];
	struct ibv_cq cq[2];
	struct ibv_mr mr;
	struct ibv_pd pd;
};

static void copy_parts(struct public_parts *to)
{
	for (int i = 0; i < 2; i++) {
		to->qp[i] = *pair.qp[i];
		to->cq[i] = *pair.cq[i];
	}
	to->mr = *pair.mr;
	to->pd = *pair.pd;
}

/* Not whole structs: mutexes and counters of events are in use. */
static void restore_parts(const struct public_parts *from)
{
	for (int i = 0; i < 2; i++) {
		pair.qp[i]->context = from->qp[i].context;
		pair.qp[i]->pd = from->qp[i].pd;
		pair.qp[i]->send_cq = from->qp[i].send_cq;
		pair.qp[i]->recv_cq = from->qp[i].recv_cq;
		pair.qp[i]->srq = from->qp[i].srq;
		pair.qp[i]->handle = from->qp[i].handle;
		pair.cq[i]->channel = from->cq[i].channel;
		pair.cq[i]->handle = from->cq[i].handle;
	}
	pair.mr->context = from->mr.context;
	pair.mr->pd = from->mr.pd;
	pair.mr->handle = from->mr.handle;
	pair.pd->context = from->pd.context;
	pair.pd->handle = from->pd.handle;
}

/* The functions that post and poll are found by the context of the queue pair or CQ, so the sender's and those of the
 * CQs stay. */
static void overwrite_parts(void)
{
	pair.qp[1]->context = nowhere;
	for (int i = 0; i < 2; i++) {
		pair.qp[i]->pd = nowhere;
		pair.qp[i]->send_cq = nowhere;
		pair.qp[i]->recv_cq = nowhere;
		pair.qp[i]->srq = nowhere;
		pair.qp[i]->handle = 0xdeadbeef;
		pair.cq[i]->channel = nowhere;
		pair.cq[i]->handle = 0xdeadbeef;
	}
	pair.mr->context = nowhere;
	pair.mr->pd = nowhere;
	pair.mr->handle = 0xdeadbeef;
	pair.pd->context = nowhere;
	pair.pd->handle = 0xdeadbeef;
}

static void exchange(int from, int n)
{
	for (int i = from; i < n; i++) {
		CHECK(!pair_send(&pair, i));
		SAME(pair_await(&pair, 0).status, IBV_WC_SUCCESS);
		struct done d = pair_await(&pair, 1);

		SAME(d.status, IBV_WC_SUCCESS);
		CHECK(pair_is_whole(&pair, d.id));
	}
}

/* Contexts are those of the owner again, which the calls are found by. */
static void calls_refuse(const struct public_parts *was)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr init;

	pair.qp[1]->context = was->qp[1].context;
	pair.mr->context = was->mr.context;
	pair.pd->context = was->pd.context;
	SAME(ibv_modify_qp(pair.qp[1], &a, IBV_QP_STATE), EINVAL);
	SAME(ibv_query_qp(pair.qp[1], &a, IBV_QP_STATE, &init), EINVAL);
	SAME(ibv_destroy_qp(pair.qp[1]), ENOENT);
	SAME(ibv_destroy_cq(pair.cq[0]), ENOENT);
	SAME(ibv_dereg_mr(pair.mr), ENOENT);
	SAME(ibv_dealloc_pd(pair.pd), ENOENT);
	CHECK(!ibv_reg_mr(pair.pd, &pair, 64, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
}

/* The objects, not what the program has written, decide where an event goes. */
static void await_fatal(bool removed)
{
	struct pollfd p = {.fd = pair.ctx->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	CHECK(poll(&p, 1, LONG_MS) == 1 && !ibv_get_async_event(pair.ctx, &e));
	SAME(e.event_type, removed ? IBV_EVENT_DEVICE_FATAL : IBV_EVENT_QP_FATAL);
	if (!removed) {
		CHECK(e.element.qp == pair.qp[1]);
		pair.qp[1]->context = pair.ctx; /* by which the call finds the library */
	}
	ibv_ack_async_event(&e);
}

static void query_gives_what_it_was(const struct public_parts *was)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	pair.qp[0]->send_cq = pair.qp[0]->recv_cq = nowhere;
	CHECK(!ibv_query_qp(pair.qp[0], &a, IBV_QP_STATE, &init));
	CHECK(init.send_cq == was->qp[0].send_cq && init.recv_cq == was->qp[0].recv_cq && !init.srq);
	pair.qp[0]->send_cq = was->qp[0].send_cq;
	pair.qp[0]->recv_cq = was->qp[0].recv_cq;
}

static void run_case(enum way way, enum ibv_qp_type type, bool removed)
{
	struct public_parts was;
	struct done d;

	setenv("VERBENA_WIRE", way == LOCAL ? "auto" : "always", 1);
	setenv("VERBENA_FAULT", removed ? "device=remove after=1s" : "qp_fatal op=RECV nth=6", 1);
	pair_open(&pair, way, type, false);
	for (int i = 0; i < SLOTS; i++)
		CHECK(!pair_receive(&pair, i));
	copy_parts(&was);
	overwrite_parts();
	exchange(0, removed ? 1 : MESSAGES);
	await_fatal(removed);
	for (int ms = 0; !pair_poll(&pair, 1, &d); ms++) { /* its receives are flushed */
		CHECK(ms < LONG_MS);
		usleep(1000);
	}
	SAME(d.status, IBV_WC_WR_FLUSH_ERR);
	if (!removed) /* a device that has gone answers EIO */
		calls_refuse(&was);
	restore_parts(&was);
	if (!removed)
		query_gives_what_it_was(&was);
	pair_close(&pair);
}

static bool passes(enum way way, enum ibv_qp_type type, bool removed)
{
	static const char *const ways[] = {"one host", "RoCE", "iWARP"};
	int status;

	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		alarm(120);
		run_case(way, type, removed);
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	bool good = WIFEXITED(status) && !WEXITSTATUS(status);

	printf("%s %s, type %d, %s: fields that a program overwrites are not followed\n", good ? "ok" : "not ok",
	       ways[way], type, removed ? "device removed" : "queue pair error");
	return good;
}

/* Arguments: way, type and whether the device is removed, for one case without a child. */
int main(int argc, char **argv)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	char runtime[] = "/tmp/verbena-overwritten.XXXXXX", command[80];
	bool good = true;

	CHECK(mkdtemp(runtime) && !setenv("VERBENA_RUNTIME", runtime, 1));
	nowhere = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(nowhere != MAP_FAILED);
	if (argc == 4) {
		run_case((enum way)atoi(argv[1]), (enum ibv_qp_type)atoi(argv[2]), atoi(argv[3]));
		return 0;
	}
	for (int removed = 0; removed < 2; removed++) {
		for (int i = 0; i < 3; i++)
			for (enum way way = LOCAL; way <= ROCE; way++)
				good &= passes(way, types[i], removed);
		good &= passes(IWARP, IBV_QPT_RC, removed);
	}
	snprintf(command, sizeof(command), "rm -rf %s", runtime);
	CHECK(!system(command));
	return !good;
}
