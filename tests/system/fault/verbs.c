// verbs.c - faults that a program sees through the verbs: each test is a process with rules of its own
// follows: IBA volume 1, 10.3.1 (states), 11.6.2 (statuses), 11.6.3 (events); man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEPTH = 64, BYTES = 4096 };

/* Two queue pairs of one process, connected to each other. */
struct two {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[2];
	char bytes[2 * BYTES];
};
static struct two two;
static uint8_t ack_timeout = 8;
static bool extended; /* queue pairs with the ibv_wr_ functions */
static bool polls_ex; /* a completion queue with ibv_start_poll */

static void open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	for (int i = 0; list[i] && !two.ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			two.ctx = ibv_open_device(list[i]);
	CHECK(two.ctx);
	ibv_free_device_list(list);
}

static void open_lo(void)
{
	open_named("roce_lo");
}

static void make_qp(int i, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
	        .send_cq = two.cq,
	        .recv_cq = two.cq,
	        .qp_type = type,
	        .sq_sig_all = 1,
	        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	struct ibv_qp_init_attr_ex ex = {.send_cq = two.cq,
	                                 .recv_cq = two.cq,
	                                 .qp_type = type,
	                                 .sq_sig_all = 1,
	                                 .cap = init.cap,
	                                 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	                                 .pd = two.pd,
	                                 .send_ops_flags = IBV_QP_EX_WITH_SEND};

	CHECK((two.qp[i] = extended ? ibv_create_qp_ex(two.ctx, &ex) : ibv_create_qp(two.pd, &init)));
	CHECK(!ibv_modify_qp(two.qp[i], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void connect_qp(int i, bool rc)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .path_mtu = IBV_MTU_1024,
	                        .dest_qp_num = two.qp[!i]->qp_num,
	                        .max_dest_rd_atomic = 1,
	                        .min_rnr_timer = 1,
	                        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}}};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	CHECK(!ibv_query_gid(two.ctx, 1, 1, &a.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(two.qp[i], &a, mask | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	a = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTS, .timeout = ack_timeout, .retry_cnt = 2, .rnr_retry = 7, .max_rd_atomic = 1};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	CHECK(!ibv_modify_qp(
	        two.qp[i], &a,
	        mask | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

static struct ibv_cq *make_cq(void)
{
	struct ibv_cq_init_attr_ex ex = {.cqe = 4 * DEPTH, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM};

	return polls_ex ? ibv_cq_ex_to_cq(ibv_create_cq_ex(two.ctx, &ex))
	                : ibv_create_cq(two.ctx, 4 * DEPTH, NULL, NULL, 0);
}

static void open_two(const char *rules, enum ibv_qp_type type)
{
	setenv("VERBENA_FAULT", rules, 1);
	open_lo();
	CHECK((two.pd = ibv_alloc_pd(two.ctx)));
	CHECK((two.cq = make_cq()));
	CHECK((two.mr = ibv_reg_mr(two.pd, two.bytes, sizeof(two.bytes),
	                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	for (int i = 0; i < 2; i++)
		make_qp(i, type);
	for (int i = 0; i < 2; i++)
		connect_qp(i, type == IBV_QPT_RC);
}

static void post_receives(int n)
{
	struct ibv_sge sge = {(uintptr_t)two.bytes + BYTES, BYTES, two.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1000, .sg_list = &sge, .num_sge = 1}, *bad;

	for (; n; n--, wr.wr_id++)
		CHECK(!ibv_post_recv(two.qp[1], &wr, &bad));
}

static int post_one(uint64_t id, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {(uintptr_t)two.bytes, 64, two.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)two.bytes + BYTES;
	wr.wr.rdma.rkey = two.mr->rkey;
	return ibv_post_send(two.qp[0], &wr, &bad);
}

/* As ibv_poll_cq for one completion. */
static int poll_ex(struct ibv_wc *wc)
{
	struct ibv_cq_ex *ex = (struct ibv_cq_ex *)two.cq;
	int err = ibv_start_poll(ex, &(struct ibv_poll_cq_attr){0});

	if (err) {
		SAME(err, ENOENT);
		return 0;
	}
	*wc = (struct ibv_wc){.wr_id = ex->wr_id,
	                      .status = ex->status,
	                      .byte_len = ibv_wc_read_byte_len(ex),
	                      .qp_num = ibv_wc_read_qp_num(ex)};
	ibv_end_poll(ex);
	return 1;
}

/* The next completion of the queue pair. */
static struct ibv_wc wait_wc(int qp)
{
	struct ibv_wc wc;

	for (int ms = 0; ms < LONG_MS; ms++) {
		for (int n; (n = polls_ex ? poll_ex(&wc) : ibv_poll_cq(two.cq, 1, &wc)) != 0;) {
			CHECK(n == 1);
			if (wc.qp_num == two.qp[qp]->qp_num)
				return wc;
		}
		usleep(1000);
	}
	CHECK_FAILED("no completion");
}

static void expect_wc(int qp, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(qp);

	if (wc.wr_id != id || wc.status != status)
		CHECK_FAILED("request %d: %s, not request %d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status), (int)id,
		             ibv_wc_status_str(status));
	if (status != IBV_WC_SUCCESS && (wc.byte_len || wc.wc_flags))
		CHECK_FAILED("request %d has failed and moved %u bytes, flags %x", (int)id, wc.byte_len, wc.wc_flags);
}

static struct ibv_async_event wait_event(void)
{
	struct pollfd p = {.fd = two.ctx->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	CHECK(poll(&p, 1, LONG_MS) == 1);
	CHECK(!ibv_get_async_event(two.ctx, &e));
	ibv_ack_async_event(&e);
	return e;
}

static enum ibv_qp_state state_of(int i)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;

	CHECK(!ibv_query_qp(two.qp[i], &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

static void a_request_completes_with_the_status_of_wc(void)
{
	open_two("wc=REM_ACCESS_ERR op=WRITE nth=2", IBV_QPT_RC);
	post_receives(4);
	CHECK(!post_one(1, IBV_WR_RDMA_WRITE));
	CHECK(!post_one(2, IBV_WR_SEND));
	CHECK(!post_one(3, IBV_WR_RDMA_WRITE));
	CHECK(!post_one(4, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_SUCCESS);
	expect_wc(0, 2, IBV_WC_SUCCESS);
	expect_wc(0, 3, IBV_WC_REM_ACCESS_ERR);
	expect_wc(0, 4, IBV_WC_WR_FLUSH_ERR);
	SAME(state_of(0), IBV_QPS_ERR);
}

static void each_verb_of_the_queue_takes_wc(void)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

	open_two("wc=RETRY_EXC_ERR", IBV_QPT_RC);
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

		for (int k = 0; k < 2; k++) {
			a.qp_state = IBV_QPS_RESET;
			CHECK(!ibv_modify_qp(two.qp[k], &a, IBV_QP_STATE));
			a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1};
			CHECK(!ibv_modify_qp(two.qp[k], &a,
			                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		}
		connect_qp(0, true);
		connect_qp(1, true);
		CHECK(!post_one((uint64_t)i, opcodes[i]));
		expect_wc(0, (uint64_t)i, IBV_WC_RETRY_EXC_ERR);
	}
}

static void a_request_of_uc_that_fails_takes_the_queue_to_sqe(void)
{
	open_two("wc=LOC_QP_OP_ERR nth=1", IBV_QPT_UC);
	CHECK(!post_one(1, IBV_WR_RDMA_WRITE));
	expect_wc(0, 1, IBV_WC_LOC_QP_OP_ERR);
	SAME(state_of(0), IBV_QPS_SQE);
}

static void lost_requests_of_one_host_are_repeated_until_the_retries_are_spent(void)
{
	open_two("drop path=local nth=1; drop path=local opcode=WRITE", IBV_QPT_RC);
	post_receives(4);
	CHECK(!post_one(1, IBV_WR_SEND)); /* its repetition arrives */
	expect_wc(0, 1, IBV_WC_SUCCESS);
	CHECK(!post_one(2, IBV_WR_RDMA_WRITE));
	expect_wc(0, 2, IBV_WC_RETRY_EXC_ERR);
	SAME(state_of(0), IBV_QPS_ERR);
}

static void a_lost_message_of_uc_is_only_lost(void)
{
	open_two("drop nth=2", IBV_QPT_UC);
	post_receives(4);
	for (uint64_t i = 1; i <= 3; i++) {
		CHECK(!post_one(i, IBV_WR_SEND));
		expect_wc(0, i, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 100; i++) { /* both messages are there, and no third */
		struct ibv_wc wc;

		CHECK(ibv_poll_cq(two.cq, 1, &wc) == 0 || wc.wr_id < 1002);
		usleep(1000);
	}
}

static void delayed_requests_keep_their_order(void)
{
	open_two("delay=2ms p=0.5 seed=3", IBV_QPT_RC);
	post_receives(40);
	for (uint64_t i = 0; i < 40; i++)
		CHECK(!post_one(i, IBV_WR_SEND));
	for (uint64_t i = 0; i < 40; i++)
		expect_wc(0, i, IBV_WC_SUCCESS);
}

static void a_receive_completes_with_the_status_of_wc(void)
{
	open_two("wc=LOC_PROT_ERR op=RECV nth=2", IBV_QPT_RC);
	post_receives(3);
	CHECK(!post_one(1, IBV_WR_SEND));
	expect_wc(1, 1000, IBV_WC_SUCCESS);
	CHECK(!post_one(2, IBV_WR_SEND));
	expect_wc(1, 1001, IBV_WC_LOC_PROT_ERR);
	expect_wc(1, 1002, IBV_WC_WR_FLUSH_ERR);
	SAME(state_of(1), IBV_QPS_ERR);
}

static void extended_polling_sees_the_status_of_wc_too(void)
{
	polls_ex = true;
	a_receive_completes_with_the_status_of_wc();
}

static void a_queue_pair_gets_a_fatal_event(void)
{
	open_two("qp_fatal nth=2", IBV_QPT_RC);
	post_receives(2);
	CHECK(!post_one(1, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_SUCCESS);
	CHECK(!post_one(2, IBV_WR_SEND));
	expect_wc(0, 2, IBV_WC_WR_FLUSH_ERR);
	struct ibv_async_event e = wait_event();

	SAME(e.event_type, IBV_EVENT_QP_FATAL);
	CHECK(e.element.qp == two.qp[0]);
	SAME(state_of(0), IBV_QPS_ERR);
}

static void a_completion_queue_overflows(void)
{
	bool cq = false, qp = false;

	open_two("cq_overflow nth=1", IBV_QPT_RC);
	post_receives(1);
	CHECK(!post_one(1, IBV_WR_SEND));
	while (!cq || !qp) {
		struct ibv_async_event e = wait_event();

		cq = cq || e.event_type == IBV_EVENT_CQ_ERR;
		qp = qp || e.event_type == IBV_EVENT_QP_FATAL;
	}
	SAME(state_of(0), IBV_QPS_ERR);
}

static void calls_fail_with_the_error_of_their_rule(void)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	setenv("VERBENA_FAULT", "alloc_pd=EAGAIN nth=1; create_cq=ENOSPC nth=1; reg=ENOMEM nth=2; create_qp=EPERM", 1);
	open_lo();
	CHECK(!ibv_alloc_pd(two.ctx) && errno == EAGAIN);
	CHECK((pd = ibv_alloc_pd(two.ctx)));
	CHECK(!ibv_create_cq(two.ctx, 1, NULL, NULL, 0) && errno == ENOSPC);
	CHECK((cq = ibv_create_cq(two.ctx, 1, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, two.bytes, BYTES, 0)));
	CHECK(!ibv_reg_mr(pd, two.bytes, BYTES, 0) && errno == ENOMEM);
	init.send_cq = init.recv_cq = cq;
	CHECK(!ibv_create_qp(pd, &init) && errno == EPERM);
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

static void posting_fails_with_the_error_of_its_rule(void)
{
	open_two("post_send=ENOMEM every=2; modify_qp=EIO nth=7", IBV_QPT_RC);
	post_receives(2);
	CHECK(!post_one(1, IBV_WR_SEND));
	SAME(post_one(2, IBV_WR_SEND), ENOMEM);
	CHECK(!post_one(3, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_SUCCESS);
	expect_wc(0, 3, IBV_WC_SUCCESS);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	SAME(ibv_modify_qp(two.qp[0], &a, IBV_QP_STATE), EIO);
	SAME(state_of(0), IBV_QPS_RTS);
}

static int post_extended(uint64_t id)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(two.qp[0]);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = 0;
	ibv_wr_send(x);
	ibv_wr_set_sge(x, two.mr->lkey, (uintptr_t)two.bytes, 64);
	return ibv_wr_complete(x);
}

static void ibv_wr_complete_fails_with_the_error_of_post_send(void)
{
	extended = true;
	open_two("post_send=ENOMEM every=2 count=1", IBV_QPT_RC);
	post_receives(2);
	CHECK(!post_extended(1));
	SAME(post_extended(2), ENOMEM);
	CHECK(!post_extended(3)); /* nothing is left of the second */
	expect_wc(0, 1, IBV_WC_SUCCESS);
	expect_wc(0, 3, IBV_WC_SUCCESS);
	SAME(state_of(0), IBV_QPS_RTS);
}

static void ibv_wr_complete_fails_after_a_device_is_removed(void)
{
	extended = true;
	open_two("device=remove after=300ms", IBV_QPT_RC);
	SAME(wait_event().event_type, IBV_EVENT_DEVICE_FATAL);
	SAME(post_extended(1), EIO);
}

static enum ibv_port_state port_state(void)
{
	struct ibv_port_attr attr;

	CHECK(!ibv_query_port(two.ctx, 1, &attr));
	return attr.state;
}

static void a_port_goes_down_and_comes_back(void)
{
	open_two("port=down device=roce_lo after=300ms for=200ms", IBV_QPT_RC);
	SAME(wait_event().event_type, IBV_EVENT_PORT_ERR);
	SAME(wait_event().event_type, IBV_EVENT_PORT_ACTIVE);
	SAME(port_state(), IBV_PORT_ACTIVE);
	post_receives(1);
	CHECK(!post_one(1, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_SUCCESS);
}

/* --- a tap: an interface with the speed that it is given --- */

#define SPEED_CHANGE 20u /* IBV_EVENT_DEVICE_SPEED_CHANGE, which the headers of rdma-core 44 do not have */

static struct ifreq of_tap(void)
{
	return (struct ifreq){.ifr_name = "fast0"};
}

static int tap_make(void)
{
	struct ifreq r = of_tap();
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	r.ifr_flags = IFF_TAP | IFF_NO_PI;
	return fd < 0 || ioctl(fd, TUNSETIFF, &r) ? -1 : fd;
}

static int tap_speed(int s, uint16_t mbps)
{
	struct ethtool_cmd c = {.cmd = ETHTOOL_SSET, .speed = mbps, .duplex = DUPLEX_FULL};
	struct ifreq r = of_tap();

	r.ifr_data = (void *)&c;
	return ioctl(s, SIOCETHTOOL, &r);
}

static void tap_mtu(int s, int mtu)
{
	struct ifreq r = of_tap();

	r.ifr_mtu = mtu;
	CHECK(!ioctl(s, SIOCSIFMTU, &r));
}

static void tap_up(int s)
{
	struct ifreq r = of_tap();

	CHECK(!ioctl(s, SIOCGIFFLAGS, &r));
	r.ifr_flags |= IFF_UP;
	CHECK(!ioctl(s, SIOCSIFFLAGS, &r));
}

/* Linux tells of the MTU, not of the speed. */
static void a_link_with_another_speed_is_told_of(void)
{
	int tap = tap_make(), s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ibv_async_event e;

	if (tap < 0 || tap_speed(s, 10000)) {
		printf("no interface with a speed of its own\n");
		exit(77);
	}
	tap_up(s);
	open_named("roce_fast0");
	while (port_state() != IBV_PORT_ACTIVE)
		usleep(10000);
	CHECK(!tap_speed(s, 25000));
	tap_mtu(s, 1400);
	do
		e = wait_event();
	while ((unsigned)e.event_type != SPEED_CHANGE);
	SAME(e.element.port_num, 0);
}

static void requests_fail_while_the_port_is_down(void)
{
	open_two("port=down", IBV_QPT_RC);
	SAME(wait_event().event_type, IBV_EVENT_PORT_ERR);
	SAME(port_state(), IBV_PORT_DOWN);
	post_receives(1);
	CHECK(!post_one(1, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void a_request_waits_for_a_port_that_comes_back_in_time(void)
{
	open_two("port=down for=500ms", IBV_QPT_RC);
	ack_timeout = 19; /* 2 s */
	SAME(wait_event().event_type, IBV_EVENT_PORT_ERR);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET},
		                   init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

		CHECK(!ibv_modify_qp(two.qp[i], &reset, IBV_QP_STATE));
		CHECK(!ibv_modify_qp(two.qp[i], &init,
		                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	}
	connect_qp(0, true);
	connect_qp(1, true);
	post_receives(1);
	CHECK(!post_one(1, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_SUCCESS);
}

static void everything_fails_after_a_device_is_removed(void)
{
	open_two("device=remove after=300ms", IBV_QPT_RC);
	post_receives(1);
	SAME(wait_event().event_type, IBV_EVENT_DEVICE_FATAL);
	expect_wc(1, 1000, IBV_WC_WR_FLUSH_ERR);
	SAME(post_one(1, IBV_WR_SEND), EIO);
	CHECK(!ibv_reg_mr(two.pd, two.bytes, BYTES, 0) && errno == EIO);
	CHECK(!ibv_alloc_pd(two.ctx) && errno == EIO);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(two.qp[i]));
	CHECK(!ibv_dereg_mr(two.mr) && !ibv_destroy_cq(two.cq) && !ibv_dealloc_pd(two.pd) &&
	      !ibv_close_device(two.ctx));
}

static void over_roce_requests_fail_in_the_same_way(void)
{
	setenv("VERBENA_WIRE", "always", 1);
	open_two("wc=REM_OP_ERR op=READ; qp_fatal op=WRITE", IBV_QPT_RC);
	post_receives(1);
	CHECK(!post_one(1, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_SUCCESS);
	CHECK(!post_one(2, IBV_WR_RDMA_READ));
	expect_wc(0, 2, IBV_WC_REM_OP_ERR);
	SAME(state_of(0), IBV_QPS_ERR);
}

/* A LOCAL_INV that is ended so leaves its region as it was, and a BIND_MW its window. */
static void requests_that_send_nothing_take_wc(void)
{
	open_two("wc=REM_OP_ERR op=LOCAL_INV", IBV_QPT_RC);
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = two.mr->rkey}, *bad;

	CHECK(!ibv_post_send(two.qp[0], &wr, &bad));
	expect_wc(0, 1, IBV_WC_REM_OP_ERR);
	SAME(state_of(0), IBV_QPS_ERR);
	CHECK(!ibv_dereg_mr(two.mr));
}

static void a_bind_takes_wc(void)
{
	open_two("wc=LOC_QP_OP_ERR nth=1", IBV_QPT_RC);
	struct ibv_mw *mw = ibv_alloc_mw(two.pd, IBV_MW_TYPE_2);
	struct ibv_mr *mr = ibv_reg_mr(two.pd, two.bytes, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_send_wr wr = {.wr_id = 1,
	                         .opcode = IBV_WR_BIND_MW,
	                         .bind_mw = {mw, 7, {mr, (uintptr_t)two.bytes, 8, IBV_ACCESS_REMOTE_WRITE}}},
	                   *bad;

	CHECK(mw && mr && !ibv_post_send(two.qp[0], &wr, &bad));
	expect_wc(0, 1, IBV_WC_LOC_QP_OP_ERR);
	SAME(state_of(0), IBV_QPS_ERR);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_mw(mw)); /* no window is bound to the region */
}

static void over_roce_requests_that_send_nothing_take_wc(void)
{
	setenv("VERBENA_WIRE", "always", 1);
	requests_that_send_nothing_take_wc();
}

static void over_roce_a_bind_takes_wc(void)
{
	setenv("VERBENA_WIRE", "always", 1);
	a_bind_takes_wc();
}

static void with_a_new_icrc_one_bit_of_the_data_is_wrong(void)
{
	int wrong = 0;

	setenv("VERBENA_WIRE", "always", 1);
	open_two("corrupt icrc=new opcode=RC_SEND_ONLY nth=1 seed=1", IBV_QPT_RC);
	post_receives(2);
	for (uint64_t i = 1; i <= 2; i++) {
		CHECK(!post_one(i, IBV_WR_SEND));
		expect_wc(1, 999 + i, IBV_WC_SUCCESS);
		for (int at = 0; at < 64; at++)
			wrong += __builtin_popcount((unsigned char)(two.bytes[at] ^ two.bytes[BYTES + at]));
		SAME(wrong, 1); /* the second message is right */
	}
}

static void a_port_that_is_down_sends_nothing_over_roce(void)
{
	setenv("VERBENA_WIRE", "always", 1);
	open_two("port=down after=300ms", IBV_QPT_RC);
	SAME(wait_event().event_type, IBV_EVENT_PORT_ERR);
	post_receives(1);
	CHECK(!post_one(1, IBV_WR_SEND));
	expect_wc(0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void a_child_of_fork_has_the_rules_too(void)
{
	int status;

	setenv("VERBENA_FAULT", "reg=ENOMEM", 1);
	open_lo();
	pid_t child = fork();

	if (!child) {
		two.ctx = NULL;
		open_lo();
		CHECK((two.pd = ibv_alloc_pd(two.ctx)));
		CHECK(!ibv_reg_mr(two.pd, two.bytes, BYTES, 0) && errno == ENOMEM);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	SAME(status, 0);
}

static void run_apart(void (*test)(void), const char *name)
{
	int status;
	pid_t child = fork();

	if (!child) {
		alarm(100);
		test();
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == 77;

	if (status && !skipped)
		CHECK_FAILED("%s ended with %#x", name, status);
	printf("%s %s\n", skipped ? "skip" : "ok", name);
	fflush(stdout);
}
#define APART(test) run_apart(test, #test)

int main(void)
{
	APART(a_request_completes_with_the_status_of_wc);
	APART(each_verb_of_the_queue_takes_wc);
	APART(a_request_of_uc_that_fails_takes_the_queue_to_sqe);
	APART(lost_requests_of_one_host_are_repeated_until_the_retries_are_spent);
	APART(a_lost_message_of_uc_is_only_lost);
	APART(delayed_requests_keep_their_order);
	APART(a_receive_completes_with_the_status_of_wc);
	APART(extended_polling_sees_the_status_of_wc_too);
	APART(a_queue_pair_gets_a_fatal_event);
	APART(a_completion_queue_overflows);
	APART(calls_fail_with_the_error_of_their_rule);
	APART(posting_fails_with_the_error_of_its_rule);
	APART(ibv_wr_complete_fails_with_the_error_of_post_send);
	APART(ibv_wr_complete_fails_after_a_device_is_removed);
	APART(a_port_goes_down_and_comes_back);
	APART(a_link_with_another_speed_is_told_of);
	APART(requests_fail_while_the_port_is_down);
	APART(a_request_waits_for_a_port_that_comes_back_in_time);
	APART(everything_fails_after_a_device_is_removed);
	APART(over_roce_requests_fail_in_the_same_way);
	APART(requests_that_send_nothing_take_wc);
	APART(over_roce_requests_that_send_nothing_take_wc);
	APART(a_bind_takes_wc);
	APART(over_roce_a_bind_takes_wc);
	APART(with_a_new_icrc_one_bit_of_the_data_is_wrong);
	APART(a_port_that_is_down_sends_nothing_over_roce);
	APART(a_child_of_fork_has_the_rules_too);
	return 0;
}
