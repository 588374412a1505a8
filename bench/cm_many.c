// cm_many.c - two processes with many RC connections made by rdma_cm; bench/connections measures their time and memory
// follows: rdma_cm(7). Prints both process ids after the first connection. After a line of input it makes the other
// connections and prints the seconds that they took. It ends with the next line.
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "connect.h"

enum { DEPTH = 16, AT_ONCE = 256, MS = 5000 };
static struct meeting *meeting;
static int count;

struct end {
	struct rdma_event_channel *channel;
	struct ibv_cq *cq;
	int established, asked;
};

static void queues(struct end *e, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};

	if (!e->cq)
		e->cq = ibv_create_cq(id->verbs, 1024, NULL, NULL, 0);
	if (!e->cq)
		fail("ibv_create_cq");
	init.send_cq = init.recv_cq = e->cq;
	if (rdma_create_qp(id, NULL, &init))
		fail("rdma_create_qp");
}

static void handle(struct end *e)
{
	struct rdma_conn_param param = {
	        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(e->channel, &event))
		fail("rdma_get_cm_event");
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;

	rdma_ack_cm_event(event);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(id, MS))
			fail("rdma_resolve_route");
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		queues(e, id);
		if (rdma_connect(id, &param))
			fail("rdma_connect");
		break;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		queues(e, id);
		if (rdma_accept(id, &param))
			fail("rdma_accept");
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		e->established++;
		break;
	default:
		fprintf(stderr, "cm_many: %s\n", rdma_event_str(type));
		exit(1);
	}
}

static void until(struct end *e, int established)
{
	while (e->established < established)
		handle(e);
}

static struct end *end_new(struct rdma_cm_id **first)
{
	struct end *e = calloc(1, sizeof(*e));

	e->channel = rdma_create_event_channel();
	if (!e->channel || (first && rdma_create_id(e->channel, first, NULL, RDMA_PS_TCP)))
		fail("rdma_create_id");
	return e;
}

static void server(in_port_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_cm_id *listener;
	struct end *e = end_new(&listener);

	if (rdma_bind_addr(listener, (struct sockaddr *)&a) || rdma_listen(listener, 1024))
		fail("rdma_listen");
	*port = rdma_get_src_port(listener);
	meeting_wait(meeting);
	until(e, 1);
	meeting_wait(meeting);
	until(e, count);
	meeting_wait(meeting);
	meeting_wait(meeting);
	_exit(0);
}

static void ask(struct end *e, in_port_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
	struct rdma_cm_id *id;

	if (rdma_create_id(e->channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, MS))
		fail("rdma_resolve_addr");
	e->asked++;
}

static void client(const in_port_t *port, double *seconds)
{
	struct end *e = end_new(NULL);

	meeting_wait(meeting);
	ask(e, *port);
	until(e, 1);
	meeting_wait(meeting);
	uint64_t start = now_ns();

	while (e->established < count) {
		while (e->asked < count && e->asked - e->established < AT_ONCE)
			ask(e, *port);
		handle(e);
	}
	*seconds = (double)(now_ns() - start) / 1e9;
	meeting_wait(meeting);
	meeting_wait(meeting);
	_exit(0);
}

static void say(const char *text)
{
	char line[16];

	puts(text);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

int main(int argc, char **argv)
{
	struct {
		in_port_t port;
		double seconds;
	} *shared = shared_memory(sizeof(*shared));
	char text[64];
	pid_t pid[2];

	count = argc > 1 ? atoi(argv[1]) : 1001;
	if (count < 2)
		return fprintf(stderr, "usage: verbs_cm_many CONNECTIONS\n"), 2;
	meeting = meeting_new(3);
	if (!(pid[0] = fork_child()))
		server(&shared->port);
	if (!(pid[1] = fork_child()))
		client(&shared->port, &shared->seconds);
	meeting_wait(meeting); /* the server listens */
	sleep(1);              /* the first connection */
	snprintf(text, sizeof(text), "%d %d", (int)pid[0], (int)pid[1]);
	say(text);
	meeting_wait(meeting);
	meeting_wait(meeting); /* all connections are made */
	snprintf(text, sizeof(text), "%.3f", shared->seconds);
	say(text);
	meeting_wait(meeting);
	reap(2);
	return 0;
}
