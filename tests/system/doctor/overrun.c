// overrun.c - a queue pair that is connected to itself overruns its completion queue
// follows: ibv_create_cq(3), IBA volume 1, 11.6.3.1 (CQ overrun)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MESSAGES 64

static void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void connect_to_itself(struct ibv_qp *qp, struct ibv_context *ctx)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
	                          .path_mtu = IBV_MTU_1024,
	                          .dest_qp_num = qp->qp_num,
	                          .max_dest_rd_atomic = 1,
	                          .min_rnr_timer = 12,
	                          .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}}};
	struct ibv_qp_attr rts = {
	        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};

	need(!ibv_query_gid(ctx, 1, 1, &rtr.ah_attr.grh.dgid), "ibv_query_gid");
	need(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	need(!ibv_modify_qp(qp, &rtr,
	                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	need(!ibv_modify_qp(qp, &rts,
	                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                            IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

/* Two queues of one entry each, and nobody polls: both overrun, and one line says so. */
int main(void)
{
	static char buf[8];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;

	need(ctx != NULL, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *scq = ibv_create_cq(ctx, 1, NULL, NULL, 0), *rcq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_init_attr attr = {.send_cq = scq,
	                                .recv_cq = rcq,
	                                .qp_type = IBV_QPT_RC,
	                                .sq_sig_all = 1,
	                                .cap = {MESSAGES, MESSAGES, 1, 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_async_event event;

	need(qp && mr, "ibv_create_qp");
	connect_to_itself(qp, ctx);
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_sge sge = {(uintptr_t)buf, 1, mr->lkey};
		struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
		struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;

		if (ibv_post_recv(qp, &recv, &bad_recv) || ibv_post_send(qp, &send, &bad_send))
			break;
	}
	alarm(60);
	need(!ibv_get_async_event(ctx, &event), "ibv_get_async_event");
	printf("event %d\n", event.event_type);
	return event.event_type == IBV_EVENT_CQ_ERR || event.event_type == IBV_EVENT_QP_FATAL ? 0 : 1;
}
