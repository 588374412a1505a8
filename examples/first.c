// first.c - an RDMA program from start to end: device, memory, connection, write with immediate data, read, atomic
// follows: rdma_cm(7), ibv_post_send(3)
// SPDX-License-Identifier: MIT
//
//	./first server             on one machine (or in one terminal)
//	./first client ADDRESS     on the other
//
// The server offers a buffer and then only waits. The client writes to it, reads from it and increments a counter in
// it, without the server's processor.
#include <arpa/inet.h>
#include <inttypes.h>

#include "common.h"

/* The private data of the server's reply: the address and key of its memory. */
struct offer {
	uint64_t address; /* both in network byte order */
	uint32_t rkey;
} __attribute__((packed));

/* The memory that is offered. Atomics work on aligned words of 8 bytes. */
struct shared {
	uint64_t counter;
	char text[120];
};

struct side {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct shared memory;
};

/* Creates protection domain, completion queue, queue pair and registered memory, in this order because each needs the
 * ones before. */
static void set_up(struct side *s)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC, /* reliable, connected */
	        .sq_sig_all = 1,       /* each request gives a completion */
	        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	s->pd = ibv_alloc_pd(s->id->verbs); /* id->verbs is the opened device */
	if (!s->pd)
		die("ibv_alloc_pd");
	s->cq = ibv_create_cq(s->id->verbs, 8, NULL, NULL, 0);
	if (!s->cq)
		die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = s->cq;
	TRY(rdma_create_qp(s->id, s->pd, &attr));
	s->mr = ibv_reg_mr(s->pd, &s->memory, sizeof(s->memory),
	                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                           IBV_ACCESS_REMOTE_ATOMIC);
	if (!s->mr)
		die("ibv_reg_mr");
}

/* Releases everything in the opposite order. */
static void take_down(struct side *s)
{
	rdma_destroy_qp(s->id);
	TRY_VERB(ibv_dereg_mr(s->mr));
	TRY_VERB(ibv_destroy_cq(s->cq));
	TRY_VERB(ibv_dealloc_pd(s->pd));
	TRY(rdma_destroy_id(s->id));
}

static struct ibv_wc await_completion(struct side *s)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(s->cq, 1, &wc); /* echo.c shows how to sleep instead */
	while (!n);
	if (n < 0)
		die("ibv_poll_cq");
	check_completion(&wc);
	return wc;
}

/* --- the server --- */

/* Immediate data consumes a receive request, which needs no memory here. */
static void post_empty_receive(struct side *s)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

	TRY_VERB(ibv_post_recv(s->id->qp, &wr, &bad));
}

static void accept_with_offer(struct side *s)
{
	struct offer offer = {.address = htobe64((uintptr_t)&s->memory), .rkey = htonl(s->mr->rkey)};
	struct rdma_conn_param param = {.private_data = &offer,
	                                .private_data_len = sizeof(offer),
	                                .responder_resources = 1, /* reads and atomics at once */
	                                .initiator_depth = 1,
	                                .rnr_retry_count = 7};

	TRY(rdma_accept(s->id, &param));
	await_and_ack(s->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void server(void)
{
	static struct side s;
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;

	s.channel = rdma_create_event_channel();
	if (!s.channel)
		die("rdma_create_event_channel");
	TRY(rdma_create_id(s.channel, &listener, NULL, RDMA_PS_TCP));
	bind_and_listen(listener, RDMA_PS_TCP);
	printf("waiting at port %s\n", PORT);
	event = await(s.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	s.id = event->id; /* a new id, for this connection */
	TRY(rdma_ack_cm_event(event));

	set_up(&s);
	s.memory.counter = 41;
	post_empty_receive(&s); /* before the client can write */
	accept_with_offer(&s);
	struct ibv_wc wc = await_completion(&s);

	printf("the client wrote \"%s\", with immediate data %u\n", s.memory.text, ntohl(wc.imm_data));
	await_and_ack(s.channel, RDMA_CM_EVENT_DISCONNECTED); /* the memory must stay registered until then */
	printf("the counter is %" PRIu64 " now\n", s.memory.counter);
	TRY(rdma_disconnect(s.id)); /* disconnects this side too */
	take_down(&s);
	TRY(rdma_destroy_id(listener));
	rdma_destroy_event_channel(s.channel);
}

/* --- the client --- */

static struct offer connect_and_learn(struct side *s)
{
	struct rdma_conn_param param = {
	        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_event *event;
	struct offer offer;

	TRY(rdma_connect(s->id, &param));
	event = await(s->channel, RDMA_CM_EVENT_ESTABLISHED);
	if (!event->param.conn.private_data || event->param.conn.private_data_len < sizeof(offer)) {
		fprintf(stderr, "the server offers nothing\n");
		exit(1);
	}
	memcpy(&offer, event->param.conn.private_data, sizeof(offer));
	TRY(rdma_ack_cm_event(event));
	offer.address = be64toh(offer.address);
	offer.rkey = ntohl(offer.rkey);
	return offer;
}

/* Posts one request of our memory and waits until it is done. */
static void execute(struct side *s, struct ibv_send_wr *wr, void *local, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)local, .length = len, .lkey = s->mr->lkey};
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	TRY_VERB(ibv_post_send(s->id->qp, wr, &bad));
	await_completion(s);
}

static void write_text(struct side *s, const struct offer *offer)
{
	struct ibv_send_wr wr = {
	        .wr_id = 2,
	        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
	        .imm_data = htonl(2026),
	        .wr.rdma = {.remote_addr = offer->address + offsetof(struct shared, text), .rkey = offer->rkey}};

	strcpy(s->memory.text, "written by the client");
	execute(s, &wr, s->memory.text, (uint32_t)strlen(s->memory.text) + 1);
}

static void read_back(struct side *s, const struct offer *offer)
{
	struct ibv_send_wr wr = {.wr_id = 3,
	                         .opcode = IBV_WR_RDMA_READ,
	                         .wr.rdma = {.remote_addr = offer->address, .rkey = offer->rkey}};

	memset(&s->memory, 0, sizeof(s->memory));
	execute(s, &wr, &s->memory, sizeof(s->memory));
	printf("read: counter %" PRIu64 ", text \"%s\"\n", s->memory.counter, s->memory.text);
}

static void count(struct side *s, const struct offer *offer)
{
	struct ibv_send_wr wr = {.wr_id = 4,
	                         .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	                         .wr.atomic = {.remote_addr = offer->address, .rkey = offer->rkey, .compare_add = 1}};
	struct ibv_device_attr attr;

	TRY_VERB(ibv_query_device(s->id->verbs, &attr));
	if (attr.atomic_cap == IBV_ATOMIC_NONE) {
		printf("this adapter has no atomics\n");
		return;
	}
	execute(s, &wr, &s->memory.counter, sizeof(s->memory.counter));
	printf("fetch and add: it was %" PRIu64 "\n", s->memory.counter);
}

static void client(const char *host)
{
	static struct side s;

	s.channel = rdma_create_event_channel();
	if (!s.channel)
		die("rdma_create_event_channel");
	TRY(rdma_create_id(s.channel, &s.id, NULL, RDMA_PS_TCP));
	resolve(s.id, host, RDMA_PS_TCP);
	printf("by way of %s\n", ibv_get_device_name(s.id->verbs->device));
	set_up(&s);
	struct offer offer = connect_and_learn(&s);

	write_text(&s, &offer);
	read_back(&s, &offer);
	count(&s, &offer);
	TRY(rdma_disconnect(s.id));
	await_and_ack(s.channel, RDMA_CM_EVENT_DISCONNECTED);
	take_down(&s);
	rdma_destroy_event_channel(s.channel);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "server"))
		server();
	else if (argc == 3 && !strcmp(argv[1], "client"))
		client(argv[2]);
	else {
		fprintf(stderr, "usage: first server | first client ADDRESS\n");
		return 2;
	}
	return 0;
}
