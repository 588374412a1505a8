// connect.c - helpers of the measuring programs: open an adapter, create RC queue pairs, connect them
// follows: ibv_create_qp(3), ibv_modify_qp(3)
// SPDX-License-Identifier: MIT
#include "connect.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct meeting {
	pthread_barrier_t barrier;
};

void *shared_memory(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap");
	return p;
}

struct meeting *meeting_new(unsigned processes)
{
	struct meeting *m = shared_memory(sizeof(*m));
	pthread_barrierattr_t attr;

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&m->barrier, &attr, processes);
	return m;
}

void meeting_wait(struct meeting *m)
{
	pthread_barrier_wait(&m->barrier);
}

pid_t fork_child(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

void reap(int n)
{
	int status;

	for (; n > 0; n--) {
		pid_t pid = wait(&status);

		if (pid < 0)
			fail("wait");
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "process %d failed (status 0x%x)\n", (int)pid, status);
			exit(1); /* the other children die with us */
		}
	}
}

/* Prefers the IPv4-mapped GID, as perftest does. */
static void choose_gid(struct adapter *a)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_port_attr port;
	union ibv_gid gid;

	if (ibv_query_port(a->ctx, 1, &port))
		fail("ibv_query_port");
	for (int i = port.gid_tbl_len - 1; i >= 0; i--) {
		if (ibv_query_gid(a->ctx, 1, i, &gid) || (i > 0 && memcmp(gid.raw, mapped, sizeof(mapped))))
			continue;
		a->gid_index = i;
		a->gid = gid;
		if (i > 0)
			return;
	}
}

void adapter_open(struct adapter *a)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0]) {
		fputs("no RDMA adapter here: start this program with `verbena run`\n", stderr);
		exit(1);
	}
	a->ctx = ibv_open_device(list[0]);
	if (!a->ctx)
		fail("ibv_open_device");
	ibv_free_device_list(list);
	a->pd = ibv_alloc_pd(a->ctx);
	if (!a->pd)
		fail("ibv_alloc_pd");
	choose_gid(a);
}

struct ibv_cq *cq_new(struct adapter *a, int depth, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(a->ctx, depth, NULL, channel, 0);

	if (!cq)
		fail("ibv_create_cq");
	return cq;
}

struct ibv_qp *qp_new(struct adapter *a, struct ibv_cq *cq, unsigned depth, struct endpoint *self)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
	                                .recv_cq = cq,
	                                .qp_type = IBV_QPT_RC,
	                                .cap = {.max_send_wr = depth,
	                                        .max_recv_wr = depth,
	                                        .max_send_sge = 1,
	                                        .max_recv_sge = 1,
	                                        .max_inline_data = 8}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
	                           .port_num = 1,
	                           .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp *qp = ibv_create_qp(a->pd, &init);

	if (!qp)
		fail("ibv_create_qp");
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_modify_qp to INIT");
	self->qpn = qp->qp_num;
	self->gid = a->gid;
	return qp;
}

void qp_connect(struct adapter *a, struct ibv_qp *qp, const struct endpoint *peer)
{
	struct ibv_qp_attr rtr = {
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = peer->qpn,
	        .max_dest_rd_atomic = 1,
	        .min_rnr_timer = 12,
	        .ah_attr = {.is_global = 1,
	                    .port_num = 1,
	                    .grh = {.dgid = peer->gid, .sgid_index = (uint8_t)a->gid_index, .hop_limit = 64}}};
	struct ibv_qp_attr rts = {
	        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};

	errno = ibv_modify_qp(qp, &rtr,
	                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		fail("ibv_modify_qp to RTR");
	errno = ibv_modify_qp(qp, &rts,
	                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                              IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		fail("ibv_modify_qp to RTS");
}

void post_recv(struct ibv_qp *qp, struct ibv_mr *mr, uint64_t wr_id)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	errno = ibv_post_recv(qp, &wr, &bad);
	if (errno)
		fail("ibv_post_recv");
}

void post_send_inline(struct ibv_qp *qp, const void *from, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)from, n, 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED},
	                   *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	if (errno)
		fail("ibv_post_send");
}

void poll_for(struct ibv_cq *cq, int completions)
{
	struct ibv_wc wc;
	int n;

	while (completions > 0) {
		n = ibv_poll_cq(cq, 1, &wc);
		if (n < 0)
			fail("ibv_poll_cq");
		if (n && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "a work request failed: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		completions -= n;
	}
}
