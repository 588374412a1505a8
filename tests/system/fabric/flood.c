// flood.c - a stream of numbered UD datagrams over a link that is slower than its sender: says which have not arrived
// usage: flood receive COUNT [PAUSE_MS]; flood send LID QPN COUNT
// follows: IBA volume 1, 7.9 (flow control); ibv_post_recv(3); docs/infiniband.md, "Packet by packet"
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "need.h"

enum { DEPTH = 1024, SIZE = 2000, SLOT = 40 + SIZE, QKEY = 0x1234, IDLE_MS = 3000, LIMIT_MS = 30000, MOST = 1 << 20 };

static struct {
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_port_attr port;
	uint8_t *memory; /* DEPTH slots */
	uint8_t *seen;   /* by number */
} me;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void begin(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	need(ctx && !ibv_query_port(ctx, 1, &me.port), "the port");
	me.pd = ibv_alloc_pd(ctx);
	me.memory = calloc(DEPTH, SLOT);
	me.seen = calloc(MOST, 1);
	need(me.pd && me.memory && me.seen, "memory");
	me.mr = ibv_reg_mr(me.pd, me.memory, (size_t)DEPTH * SLOT, IBV_ACCESS_LOCAL_WRITE);
	me.cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);
	need(me.mr && me.cq, "ibv_create_cq");
	struct ibv_qp_init_attr init = {.send_cq = me.cq,
	                                .recv_cq = me.cq,
	                                .cap = {DEPTH, DEPTH, 1, 1},
	                                .qp_type = IBV_QPT_UD,
	                                .sq_sig_all = 1};

	me.qp = ibv_create_qp(me.pd, &init);
	need(me.qp, "ibv_create_qp");
	need(!ibv_modify_qp(me.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	a.qp_state = IBV_QPS_RTR;
	need(!ibv_modify_qp(me.qp, &a, IBV_QP_STATE), "RTR");
	a.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(me.qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
}

static struct ibv_sge slot(unsigned i, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)me.memory + (size_t)i * SLOT, len, me.mr->lkey};
}

static void post_receive(unsigned i)
{
	struct ibv_sge sge = slot(i, SLOT);
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	need(!ibv_post_recv(me.qp, &wr, &bad), "ibv_post_recv");
}

/* Exits 0 if all have come, each once and in order. pause_ms: after a third it polls nothing for so long. */
static int receive(uint32_t count, unsigned pause_ms)
{
	uint64_t end = now_ms() + LIMIT_MS, last = now_ms() + LIMIT_MS;
	uint32_t got = 0, disorder = 0, next = 0;
	struct ibv_wc wc;

	for (unsigned i = 0; i < DEPTH; i++)
		post_receive(i);
	printf("%u %u\n", me.port.lid, me.qp->qp_num);
	fflush(stdout);
	while (got < count && now_ms() < end && now_ms() < last + IDLE_MS) {
		if (ibv_poll_cq(me.cq, 1, &wc) != 1)
			continue;
		uint32_t n;

		need(wc.status == IBV_WC_SUCCESS && wc.byte_len == SLOT, "a datagram");
		memcpy(&n, me.memory + wc.wr_id * SLOT + 40, sizeof(n));
		need(n < count && !me.seen[n], "a number that has not come yet");
		me.seen[n] = 1;
		disorder += n < next;
		next = n + 1;
		last = now_ms();
		post_receive((unsigned)wc.wr_id);
		if (++got == count / 3 && pause_ms)
			nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000l}, NULL);
	}
	printf("%u of %u, %u out of order; missing:", got, count, disorder);
	for (uint32_t i = 0, said = 0; i < count && said < 20; i++)
		if (!me.seen[i])
			said += (uint32_t)(printf(" %u", i) > 0);
	putchar('\n');
	return got == count && !disorder ? 0 : 1;
}

static int send_all(uint16_t lid, uint32_t qpn, uint32_t count)
{
	struct ibv_ah_attr to = {.dlid = lid, .port_num = 1};
	struct ibv_ah *ah = ibv_create_ah(me.pd, &to);
	uint64_t end = now_ms() + LIMIT_MS, began = now_ms();
	uint32_t sent = 0, done = 0;
	struct ibv_wc wc;

	need(ah, "ibv_create_ah");
	while (done < count && now_ms() < end) {
		struct ibv_sge sge = slot(sent % DEPTH, SIZE);
		struct ibv_send_wr wr = {.sg_list = &sge,
		                         .num_sge = 1,
		                         .opcode = IBV_WR_SEND,
		                         .wr.ud = {ah, qpn, QKEY}},
		                   *bad;

		if (sent < count && sent - done < DEPTH) {
			memcpy((void *)(uintptr_t)sge.addr, &sent, sizeof(sent));
			need(!ibv_post_send(me.qp, &wr, &bad), "ibv_post_send");
			sent++;
		}
		while (ibv_poll_cq(me.cq, 1, &wc) == 1) {
			need(wc.status == IBV_WC_SUCCESS, "a send");
			done++;
		}
	}
	printf("sent %u in %" PRIu64 " ms\n", done, now_ms() - began);
	return done == count ? 0 : 1;
}

int main(int argc, char **argv)
{
	need(argc >= 3, "arguments");
	begin();
	if (!strcmp(argv[1], "receive"))
		return receive((uint32_t)atoi(argv[2]), argc > 3 ? (unsigned)atoi(argv[3]) : 0);
	need(argc == 5, "arguments");
	return send_all((uint16_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]));
}
