// echo.c - send and receive, asleep until something completes
// follows: rdma_create_ep(3), ibv_get_cq_event(3), ibv_req_notify_cq(3)
// SPDX-License-Identifier: MIT
//
//	./echo server
//	./echo client ADDRESS [COUNT]
//
// Without an event channel, the calls of rdma_cm wait until they are done (rdma_create_ep). A completion channel is a
// descriptor that can be polled, and costs no processor time while nothing completes.
#include "common.h"

#define SIZE 1024
#define DEPTH 8 /* receives posted */

struct end {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buf[DEPTH + 1][SIZE]; /* the last one is for sending */
};

static void post_receive(struct end *e, unsigned i)
{
	struct ibv_sge sge = {.addr = (uintptr_t)e->buf[i], .length = SIZE, .lkey = e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	TRY_VERB(ibv_post_recv(e->id->qp, &wr, &bad));
}

static void post_send(struct end *e, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)e->buf[DEPTH], .length = len, .lkey = e->mr->lkey};
	struct ibv_send_wr wr = {
	        .wr_id = DEPTH, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr *bad;

	TRY_VERB(ibv_post_send(e->id->qp, &wr, &bad));
}

/*
 * Returns the next completion. The order matters: request a notification, poll once more, and only then sleep.
 * Otherwise a completion between the poll and the sleep would be missed.
 */
static struct ibv_wc next(struct end *e)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	for (;;) {
		int n = ibv_poll_cq(e->cq, 1, &wc);

		if (n < 0)
			die("ibv_poll_cq");
		if (n)
			return wc;
		TRY_VERB(ibv_req_notify_cq(e->cq, 0));
		n = ibv_poll_cq(e->cq, 1, &wc);
		if (n)
			return wc;
		TRY(ibv_get_cq_event(e->channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
}

static void set_up(struct end *e)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};

	e->channel = ibv_create_comp_channel(e->id->verbs);
	if (!e->channel)
		die("ibv_create_comp_channel");
	e->cq = ibv_create_cq(e->id->verbs, 2 * DEPTH, NULL, e->channel, 0);
	if (!e->cq)
		die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = e->cq;
	TRY(rdma_create_qp(e->id, NULL, &attr)); /* NULL: the default protection domain of the id */
	e->mr = ibv_reg_mr(e->id->pd, e->buf, sizeof(e->buf), IBV_ACCESS_LOCAL_WRITE);
	if (!e->mr)
		die("ibv_reg_mr");
	for (unsigned i = 0; i < DEPTH; i++)
		post_receive(e, i);
}

static void take_down(struct end *e)
{
	rdma_destroy_qp(e->id);
	TRY_VERB(ibv_dereg_mr(e->mr));
	TRY_VERB(ibv_destroy_cq(e->cq));
	TRY_VERB(ibv_destroy_comp_channel(e->channel));
	rdma_destroy_ep(e->id);
}

/* Sends messages back, until the client ends with an empty message. */
static unsigned serve(struct end *e)
{
	unsigned messages = 0;

	for (;;) {
		struct ibv_wc wc = next(e);

		check_completion(&wc);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		if (!wc.byte_len)
			return messages;
		memcpy(e->buf[DEPTH], e->buf[wc.wr_id], wc.byte_len);
		post_receive(e, (unsigned)wc.wr_id);
		post_send(e, wc.byte_len);
		messages++;
	}
}

static void server(void)
{
	struct rdma_addrinfo *here = find_address(NULL, RDMA_PS_TCP);
	struct rdma_cm_id *listener;
	static struct end e;

	TRY(rdma_create_ep(&listener, here, NULL, NULL));
	rdma_freeaddrinfo(here);
	TRY(rdma_listen(listener, 1));
	printf("waiting at port %s\n", PORT);
	TRY(rdma_get_request(listener, &e.id));
	set_up(&e);
	TRY(rdma_accept(e.id, NULL));
	printf("%u messages\n", serve(&e));
	TRY(rdma_disconnect(e.id));
	take_down(&e);
	rdma_destroy_ep(listener);
}

static void talk(struct end *e, unsigned i)
{
	bool sent = false, answered = false;
	uint32_t len = (uint32_t)sprintf(e->buf[DEPTH], "message %u", i) + 1;

	post_send(e, len);
	while (!sent || !answered) {
		struct ibv_wc wc = next(e);

		check_completion(&wc);
		if (wc.opcode == IBV_WC_SEND) {
			sent = true;
			continue;
		}
		answered = true;
		if (wc.byte_len != len || memcmp(e->buf[wc.wr_id], e->buf[DEPTH], len)) {
			fprintf(stderr, "message %u came back changed\n", i);
			exit(1);
		}
		post_receive(e, (unsigned)wc.wr_id);
	}
}

static void client(const char *host, unsigned count)
{
	struct rdma_addrinfo *there = find_address(host, RDMA_PS_TCP);
	static struct end e;

	TRY(rdma_create_ep(&e.id, there, NULL, NULL)); /* resolves the address and the route */
	rdma_freeaddrinfo(there);
	set_up(&e);
	TRY(rdma_connect(e.id, NULL));
	for (unsigned i = 0; i < count; i++)
		talk(&e, i);
	post_send(&e, 0);
	struct ibv_wc wc = next(&e);

	check_completion(&wc);
	printf("%u messages there and back\n", count);
	TRY(rdma_disconnect(e.id));
	take_down(&e);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "server"))
		server();
	else if ((argc == 3 || argc == 4) && !strcmp(argv[1], "client"))
		client(argv[2], argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 100);
	else {
		fprintf(stderr, "usage: echo server | echo client ADDRESS [COUNT]\n");
		return 2;
	}
	return 0;
}
