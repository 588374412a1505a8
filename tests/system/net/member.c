// member.c - a program that joins multicast groups on request, and stays
// follows: ibv_attach_mcast(3)
// SPDX-License-Identifier: MIT
// member DEVICE: reads lines. An IPv4 group: prints "joined GROUP". "open DEVICE": joins there from now on. "gone": waits until
// its device is deleted, and prints "it is gone". Ends at the end of its input
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static struct ibv_qp *make_qp(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	must(ctx != NULL, name);
	struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
	        .send_cq = cq,
	        .recv_cq = cq,
	        .qp_type = IBV_QPT_UD,
	        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
	struct ibv_qp *qp = ibv_create_qp(ibv_alloc_pd(ctx), &init);

	must(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	     "queue pair");
	return qp;
}

static void await_end(struct ibv_context *ctx)
{
	struct ibv_async_event e = {0};

	do {
		must(!ibv_get_async_event(ctx, &e), "ibv_get_async_event");
		ibv_ack_async_event(&e);
	} while (e.event_type != IBV_EVENT_DEVICE_FATAL);
	printf("it is gone\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[64];

	must(argc == 2, "usage: member DEVICE");
	struct ibv_qp *qp = make_qp(argv[1]);
	while (fgets(line, sizeof(line), stdin)) {
		union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "open ", 5)) {
			qp = make_qp(line + 5);
			continue;
		}
		if (!strcmp(line, "gone")) {
			await_end(qp->context);
			continue;
		}
		must(inet_pton(AF_INET, line, gid.raw + 12) == 1, line);
		must(!ibv_attach_mcast(qp, &gid, 0), "ibv_attach_mcast");
		printf("joined %s\n", line);
		fflush(stdout);
	}
	return 0;
}
