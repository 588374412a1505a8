// receives.c - two UD queue pairs behind one port: one posts a receive now and then, the other one always has some
// follows: ibv_post_recv(3); docs/infiniband.md, "Packet by packet"
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "need.h"

enum { RECEIVES = 256, SLOT = 128, MESSAGES = 1000, SLOW_MS = 10, LIMIT_MS = 5000, QKEY = 0x1234 };

static struct {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	struct ibv_cq *cq[3];
	struct ibv_qp *qp[3]; /* the sender, the slow receiver, the other one */
	uint8_t memory[SLOT];
} me;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void make_qp(struct ibv_context *ctx, int i)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	me.cq[i] = ibv_create_cq(ctx, 2 * RECEIVES, NULL, NULL, 0);
	need(me.cq[i], "ibv_create_cq");
	struct ibv_qp_init_attr init = {.send_cq = me.cq[i],
	                                .recv_cq = me.cq[i],
	                                .cap = {RECEIVES, RECEIVES, 1, 1},
	                                .qp_type = IBV_QPT_UD,
	                                .sq_sig_all = 1};

	me.qp[i] = ibv_create_qp(me.pd, &init);
	need(me.qp[i], "ibv_create_qp");
	need(!ibv_modify_qp(me.qp[i], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	a.qp_state = IBV_QPS_RTR;
	need(!ibv_modify_qp(me.qp[i], &a, IBV_QP_STATE), "RTR");
	a.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(me.qp[i], &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
}

static void begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_port_attr port;

	need(ctx && !ibv_query_port(ctx, 1, &port), "the port");
	me.pd = ibv_alloc_pd(ctx);
	need(me.pd, "ibv_alloc_pd");
	me.mr = ibv_reg_mr(me.pd, me.memory, sizeof(me.memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_ah_attr to = {.dlid = port.lid, .port_num = 1};

	me.ah = ibv_create_ah(me.pd, &to);
	need(me.mr && me.ah, "ibv_create_ah");
	for (int i = 0; i < 3; i++)
		make_qp(ctx, i);
}

static void post_receive(int i)
{
	struct ibv_sge sge = {(uintptr_t)me.memory, SLOT, me.mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	need(!ibv_post_recv(me.qp[i], &wr, &bad), "ibv_post_recv");
}

/* False: the queue is full. */
static bool post_send(int to)
{
	struct ibv_sge sge = {(uintptr_t)me.memory, 8, me.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .wr.ud = {me.ah, me.qp[to]->qp_num, QKEY}},
	                   *bad;

	return !ibv_post_send(me.qp[0], &wr, &bad);
}

static int poll_cq(int i)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(me.cq[i], 1, &wc);

	need(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS), "a completion");
	return n;
}

/* How many messages the other one has got, of those that alternate between both. */
int main(void)
{
	unsigned sent = 0, got = 0;

	begin();
	for (int i = 0; i < RECEIVES; i++)
		post_receive(2);
	uint64_t end = now_ms() + LIMIT_MS, slow = 0;

	while (got < MESSAGES && now_ms() < end) {
		/* no more under way than it has receives for */
		if (sent < 2 * MESSAGES && sent / 2 < got + RECEIVES && post_send(1 + (sent & 1)))
			sent++;
		while (poll_cq(0))
			;
		while (poll_cq(1))
			;
		if (now_ms() >= slow) {
			post_receive(1);
			slow = now_ms() + SLOW_MS;
		}
		while (poll_cq(2)) {
			got++;
			post_receive(2);
		}
	}
	printf("%u of %d\n", got, MESSAGES);
	return got == MESSAGES ? 0 : 1;
}
