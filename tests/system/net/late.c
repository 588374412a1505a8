// late.c - sends one datagram to another program, on request
// follows: ibv_ud_pingpong(1)
// SPDX-License-Identifier: MIT
// late DEVICE GID-INDEX: prints "QPN GID" when its queue pair is ready. Reads "receive", or "send QPN GID".
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QKEY = 0x11111111, GRH = 40 };

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
	        .send_cq = cq,
	        .recv_cq = cq,
	        .qp_type = IBV_QPT_UD,
	        .sq_sig_all = 1,
	        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	return qp;
}

int main(int argc, char **argv)
{
	static char buf[GRH + 64];
	char line[256], text[INET6_ADDRSTRLEN];
	struct ibv_context *context = argc == 3 ? open_device(argv[1]) : NULL;
	union ibv_gid gid;
	unsigned qpn;
	struct ibv_wc wc;
	int n = 0;

	must(context && !ibv_query_gid(context, 1, atoi(argv[2]), &gid), "device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);

	must(pd && cq && mr, "resources");
	struct ibv_qp *qp = make_qp(pd, cq);
	struct ibv_sge sge = {(uintptr_t)buf, sizeof(buf), mr->lkey};
	struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;

	must(!ibv_post_recv(qp, &recv, &bad_recv), "receive");
	printf("%u %s\n", qp->qp_num, inet_ntop(AF_INET6, &gid, text, sizeof(text)));
	fflush(stdout);
	must(fgets(line, sizeof(line), stdin) != NULL, "what to do");
	if (sscanf(line, "send %u %45s", &qpn, text) == 2) {
		struct ibv_ah_attr attr = {
		        .is_global = 1, .port_num = 1, .grh = {.sgid_index = (uint8_t)atoi(argv[2]), .hop_limit = 64}};
		struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;

		must(inet_pton(AF_INET6, text, &attr.grh.dgid) == 1, "GID");
		send.wr.ud.ah = ibv_create_ah(pd, &attr);
		send.wr.ud.remote_qpn = qpn;
		send.wr.ud.remote_qkey = QKEY;
		sge.length = 6;
		strcpy(buf, "hello");
		must(send.wr.ud.ah && !ibv_post_send(qp, &send, &bad_send), "send");
	}
	while (!n)
		n = ibv_poll_cq(cq, 1, &wc);
	must(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
	if (wc.opcode == IBV_WC_RECV)
		must(!strcmp(buf + GRH, "hello"), "what came");
	puts("done");
	return 0;
}
