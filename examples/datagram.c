// datagram.c - datagrams without a connection: rdma_cm finds the queue pair of an address and port
// follows: rdma_cm(7) (RDMA_PS_UDP), ibv_create_ah(3)
// SPDX-License-Identifier: MIT
//
//	./datagram server
//	./datagram client ADDRESS
//
// A datagram fits into one packet and may be lost. It is received after 40 bytes that tell its source.
#include <unistd.h>

#include "common.h"

#define HEADER 40 /* struct ibv_grh, or its IPv4 counterpart */
#define SIZE 256
#define COUNT 5

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct {
		char received[HEADER + SIZE], sent[SIZE];
	} buf[COUNT];
};

static void set_up(struct end *e)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_UD,
	        .sq_sig_all = 1,
	        .cap = {.max_send_wr = COUNT, .max_recv_wr = COUNT, .max_send_sge = 1, .max_recv_sge = 1}};

	e->cq = ibv_create_cq(e->id->verbs, 2 * COUNT, NULL, NULL, 0);
	if (!e->cq)
		die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = e->cq;
	TRY(rdma_create_qp(e->id, NULL, &attr)); /* ready to send at once: there is nothing to connect */
	e->mr = ibv_reg_mr(e->id->pd, e->buf, sizeof(e->buf), IBV_ACCESS_LOCAL_WRITE);
	if (!e->mr)
		die("ibv_reg_mr");
	for (unsigned i = 0; i < COUNT; i++) {
		struct ibv_sge sge = {(uintptr_t)e->buf[i].received, sizeof(e->buf[i].received), e->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

		TRY_VERB(ibv_post_recv(e->id->qp, &wr, &bad));
	}
}

static void take_down(struct end *e)
{
	rdma_destroy_qp(e->id);
	TRY_VERB(ibv_dereg_mr(e->mr));
	TRY_VERB(ibv_destroy_cq(e->cq));
	TRY(rdma_destroy_id(e->id));
}

static void send_to(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, unsigned i)
{
	struct ibv_sge sge = {(uintptr_t)e->buf[i].sent, SIZE, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = COUNT + i,
	                         .opcode = IBV_WR_SEND,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey}};
	struct ibv_send_wr *bad;

	TRY_VERB(ibv_post_send(e->id->qp, &wr, &bad));
}

/* False if nothing arrived within about three seconds: a datagram may have been lost. */
static bool next(struct end *e, struct ibv_wc *wc)
{
	for (int ms = 0; ms < 3000; ms++) {
		int n = ibv_poll_cq(e->cq, 1, wc);

		if (n < 0)
			die("ibv_poll_cq");
		if (n) {
			check_completion(wc);
			return true;
		}
		usleep(1000);
	}
	return false;
}

/* Answers the sender, whose address is in the received header. The address handle must exist until the answer has been
 * sent. */
static struct ibv_ah *answer(struct end *e, struct ibv_wc *wc)
{
	static const char words[] = "answer to ";
	unsigned i = (unsigned)wc->wr_id;
	struct ibv_ah *ah = ibv_create_ah_from_wc(e->id->pd, wc, (struct ibv_grh *)e->buf[i].received, e->id->port_num);

	if (!ah)
		die("ibv_create_ah_from_wc");
	e->buf[i].received[HEADER + SIZE - sizeof(words)] = 0; /* the sender may have sent no end of string */
	printf("received \"%s\"\n", e->buf[i].received + HEADER);
	memcpy(e->buf[i].sent, words, sizeof(words) - 1);
	memcpy(e->buf[i].sent + sizeof(words) - 1, e->buf[i].received + HEADER, SIZE - sizeof(words));
	send_to(e, ah, wc->src_qp, RDMA_UDP_QKEY, i);
	return ah;
}

/* Runs until all answers are sent, or until nothing has arrived for three seconds. */
static void serve(struct end *e)
{
	struct ibv_ah *ahs[COUNT] = {0};
	unsigned sent = 0;

	for (struct ibv_wc wc; sent < COUNT && next(e, &wc);) {
		if (wc.opcode == IBV_WC_RECV)
			ahs[wc.wr_id] = answer(e, &wc);
		else
			sent++;
	}
	for (unsigned i = 0; i < COUNT; i++)
		if (ahs[i])
			TRY_VERB(ibv_destroy_ah(ahs[i]));
}

static void server(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	static struct end e;

	if (!channel)
		die("rdma_create_event_channel");
	TRY(rdma_create_id(channel, &listener, NULL, RDMA_PS_UDP));
	bind_and_listen(listener, RDMA_PS_UDP);
	printf("waiting at port %s\n", PORT);
	event = await(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	e.id = event->id;
	set_up(&e);
	struct rdma_conn_param param = {.qp_num = e.id->qp->qp_num}; /* the number that the client asks for */

	TRY(rdma_accept(e.id, &param));
	TRY(rdma_ack_cm_event(event));
	serve(&e);
	take_down(&e);
	TRY(rdma_destroy_id(listener));
	rdma_destroy_event_channel(channel);
}

static void client(const char *host)
{
	struct rdma_cm_event *event;
	struct rdma_conn_param param = {0};
	static struct end e;
	unsigned answers = 0;

	e.channel = rdma_create_event_channel();
	if (!e.channel)
		die("rdma_create_event_channel");
	TRY(rdma_create_id(e.channel, &e.id, NULL, RDMA_PS_UDP));
	resolve(e.id, host, RDMA_PS_UDP);
	set_up(&e);
	TRY(rdma_connect(e.id, &param)); /* only asks for the queue pair */
	event = await(e.channel, RDMA_CM_EVENT_ESTABLISHED);
	struct rdma_ud_param there = event->param.ud;
	struct ibv_ah *ah = ibv_create_ah(e.id->pd, &there.ah_attr);

	if (!ah)
		die("ibv_create_ah");
	TRY(rdma_ack_cm_event(event));
	for (unsigned i = 0; i < COUNT; i++) {
		snprintf(e.buf[i].sent, SIZE, "datagram %u", i);
		send_to(&e, ah, there.qp_num, there.qkey, i);
	}
	for (struct ibv_wc wc; answers < COUNT && next(&e, &wc);) {
		if (wc.opcode != IBV_WC_RECV)
			continue;
		printf("%s\n", e.buf[wc.wr_id].received + HEADER);
		answers++;
	}
	printf("%u of %u datagrams were answered\n", answers, COUNT);
	TRY_VERB(ibv_destroy_ah(ah));
	take_down(&e);
	rdma_destroy_event_channel(e.channel);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "server"))
		server();
	else if (argc == 3 && !strcmp(argv[1], "client"))
		client(argv[2]);
	else {
		fprintf(stderr, "usage: datagram server | datagram client ADDRESS\n");
		return 2;
	}
	return 0;
}
