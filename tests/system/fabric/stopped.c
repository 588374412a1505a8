// stopped.c - the fabric process is stopped while queue pairs have requests: what a program calls then ends within a bound
// follows: ibv_destroy_qp(3), ibv_modify_qp(3); docs/infiniband.md, "Packet by packet"
// SPDX-License-Identifier: MIT
// stopped PID: of the fabric process. Needs VERBENA_WIRE=always
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../support/check.h"

enum { DEPTH = 1024, SIZE = 2048, QKEY = 0x1234, GROUP_QPN = 0xffffff, MLID = 0xc00f };
/* ms. A question to the fabric process waits for ten seconds; a call that asks nothing waits for nobody */
enum { AT_ONCE = 2000, ONE_QUESTION = 15000 };

static struct {
	pid_t fabric;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_port_attr port;
	uint8_t memory[SIZE];
} me;

static const union ibv_gid group = {.raw = {0xff, 0x12, 0x12, 0x34, [15] = 9}};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The call, which returns 0 within so long. */
#define WITHIN(ms, call)                                                                                           \
	do {                                                                                                       \
		int64_t began_ = now_ms();                                                                         \
		SAME(call, 0);                                                                                     \
		int64_t took_ = now_ms() - began_;                                                                 \
		if (took_ > (ms))                                                                                  \
			CHECK_FAILED("%s took %lld ms, with the fabric process stopped", #call, (long long)took_); \
	} while (0)

static void stop_fabric(void)
{
	SAME(kill(me.fabric, SIGSTOP), 0);
}

static void continue_fabric(void)
{
	kill(me.fabric, SIGCONT);
}

static void open_port(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	me.ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(me.ctx && !ibv_query_port(me.ctx, 1, &me.port));
	me.pd = ibv_alloc_pd(me.ctx);
	me.cq = ibv_create_cq(me.ctx, 8 * DEPTH, NULL, NULL, 0);
	CHECK(me.pd && me.cq);
	me.mr = ibv_reg_mr(me.pd, me.memory, sizeof(me.memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(me.mr);
}

static struct ibv_qp *make(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
	        .send_cq = me.cq, .recv_cq = me.cq, .cap = {DEPTH, 1, 1, 1}, .qp_type = type, .sq_sig_all = 1};
	struct ibv_qp *qp = ibv_create_qp(me.pd, &init);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	bool ud = type == IBV_QPT_UD;

	CHECK(qp);
	SAME(ibv_modify_qp(qp, &a,
	                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     0);
	return qp;
}

/* Connected to a queue pair that takes nothing. */
static void connect_to(struct ibv_qp *qp, uint32_t qpn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .path_mtu = IBV_MTU_2048,
	                        .dest_qp_num = qpn,
	                        .max_dest_rd_atomic = 1,
	                        .max_rd_atomic = 1,
	                        .timeout = 20,
	                        .retry_cnt = 7,
	                        .rnr_retry = 7,
	                        .ah_attr = {.dlid = me.port.lid, .port_num = 1}};
	bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;

	SAME(ibv_modify_qp(qp, &a,
	                   IBV_QP_STATE | (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
	                           (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
	     0);
	a.qp_state = IBV_QPS_RTS;
	SAME(ibv_modify_qp(
	             qp, &a,
	             IBV_QP_STATE | IBV_QP_SQ_PSN |
	                     (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)),
	     0);
}

/* As many requests as its queue holds: more than the sockets to the fabric process take. */
static void fill(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_sge sge = {(uintptr_t)me.memory, SIZE, me.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .wr.ud = {ah, qpn, QKEY}}, *bad;
	int64_t end = now_ms() + LONG_MS;
	struct ibv_wc wc;
	int err;

	do {
		err = ibv_post_send(qp, &wr, &bad);
		if (err == ENOMEM && ibv_poll_cq(me.cq, 1, &wc) == 1) /* what has left it makes room */
			err = 0;
	} while (!err && now_ms() < end);
	SAME(err, ENOMEM);
}

static struct ibv_ah *handle(uint16_t lid)
{
	struct ibv_ah_attr a = {
	        .dlid = lid, .port_num = 1, .is_global = lid >= 0xc000, .grh = {.dgid = group, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(me.pd, &a);

	CHECK(ah);
	return ah;
}

/* --- cases --- */

static void a_UD_queue_pair_with_datagrams_is_destroyed(void)
{
	struct ibv_qp *qp = make(IBV_QPT_UD);
	struct ibv_ah *ah = handle(me.port.lid);

	connect_to(qp, 0);
	stop_fabric();
	fill(qp, ah, qp->qp_num);
	WITHIN(AT_ONCE, ibv_destroy_qp(qp));
	WITHIN(AT_ONCE, ibv_destroy_ah(ah));
	continue_fabric();
}

static void a_UD_queue_pair_with_datagrams_to_a_group_is_destroyed(void)
{
	struct ibv_qp *qp = make(IBV_QPT_UD);
	struct ibv_ah *ah = handle(MLID);
	int rc;

	connect_to(qp, 0);
	SAME(ibv_attach_mcast(qp, &group, MLID), 0);
	stop_fabric();
	fill(qp, ah, GROUP_QPN);
	/* the question does not fit behind the datagrams: the queue pair stays attached */
	WITHIN(ONE_QUESTION, (rc = ibv_detach_mcast(qp, &group, MLID)) == EAGAIN ? 0 : rc);
	if (rc)
		WITHIN(AT_ONCE, ibv_destroy_qp(qp) == EBUSY ? 0 : EINVAL);
	continue_fabric();
	if (rc)
		SAME(ibv_detach_mcast(qp, &group, MLID), 0);
	SAME(ibv_destroy_qp(qp), 0);
	SAME(ibv_destroy_ah(ah), 0);
}

static void an_RC_queue_pair_with_requests_is_taken_to_ERR_and_destroyed(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC), *other = make(IBV_QPT_RC);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	connect_to(qp, other->qp_num);
	connect_to(other, qp->qp_num);
	stop_fabric();
	fill(qp, NULL, 0);
	WITHIN(AT_ONCE, ibv_modify_qp(qp, &a, IBV_QP_STATE));
	WITHIN(AT_ONCE, ibv_destroy_qp(qp));
	WITHIN(AT_ONCE, ibv_destroy_qp(other));
	continue_fabric();
}

/* exit(2) waits for what has been sent, but not for ever. */
static void a_program_ends(void)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		open_port();
		struct ibv_qp *qp = make(IBV_QPT_UD);

		connect_to(qp, 0);
		struct ibv_ah *ah = handle(me.port.lid);

		stop_fabric();
		fill(qp, ah, qp->qp_num);
		exit(0);
	}
	int64_t end = now_ms() + LONG_MS;

	while (!waitpid(child, &status, WNOHANG)) {
		if (now_ms() > end) {
			continue_fabric();
			kill(child, SIGKILL);
			CHECK_FAILED("the program does not end");
		}
		usleep(10000);
	}
	SAME(status, 0);
	continue_fabric();
}

static void a_device_is_closed(void)
{
	stop_fabric();
	WITHIN(AT_ONCE, ibv_dereg_mr(me.mr));
	WITHIN(AT_ONCE, ibv_destroy_cq(me.cq));
	WITHIN(AT_ONCE, ibv_dealloc_pd(me.pd));
	WITHIN(AT_ONCE, ibv_close_device(me.ctx));
	continue_fabric();
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	me.fabric = (pid_t)atoi(argv[1]);
	RUN(a_program_ends); /* before this one has a device, which a child could not use */
	atexit(continue_fabric);
	open_port();
	RUN(a_UD_queue_pair_with_datagrams_is_destroyed);
	RUN(a_UD_queue_pair_with_datagrams_to_a_group_is_destroyed);
	RUN(an_RC_queue_pair_with_requests_is_taken_to_ERR_and_destroyed);
	RUN(a_device_is_closed);
	return 0;
}
