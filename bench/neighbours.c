// neighbours.c - pairs of processes that poll on the same cores as a program that connects; see bench/neighbours
// usage: verbs_neighbours PAIRS busy|vain CONNECTIONS
// follows: ibv_poll_cq(3), rdma_cm(7)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "connect.h"

enum { DEPTH = 16, PAIRS_MAX = 64, CONNECTIONS_MAX = 1000, PAUSE_US = 200000, MS = 20000 };

/* The two processes of a pair are connected. Busy pairs send 8 bytes to and fro. Both processes of a vain pair poll for a
 * message that never comes. Meanwhile one process listens, and another makes a connection every 0.2 s; both sleep between
 * events. Prints the median and the longest time of a connection in µs, and the processor time of the first pair in ms per
 * second. */
static struct meeting *meeting;
static struct endpoint *table; /* [pair][side] */
static _Atomic uint16_t *port;

/* --- a pair --- */

static void send_and_answer(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, bool first)
{
	char word[8] = "ping";

	for (int i = 0; i < DEPTH / 2; i++)
		post_recv(qp, mr, 0);
	meeting_wait(meeting);
	for (;;) { /* until the parent kills it */
		if (first)
			post_send_inline(qp, word, 8);
		poll_for(cq, 1);
		if (!first)
			post_send_inline(qp, word, 8);
		poll_for(cq, 1);
		post_recv(qp, mr, 0);
	}
}

static void poll_in_vain(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr)
{
	post_recv(qp, mr, 0);
	meeting_wait(meeting);
	poll_for(cq, 1);
	fail("a message that nobody sent");
}

static void live_as_pair(int pair, int side, bool busy)
{
	struct adapter a;
	struct endpoint *ends = &table[2 * pair];
	char *page = aligned_alloc(4096, 4096);

	adapter_open(&a);
	struct ibv_mr *mr = ibv_reg_mr(a.pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = cq_new(&a, 2 * DEPTH, NULL);
	struct ibv_qp *qp = qp_new(&a, cq, DEPTH, &ends[side]);

	if (!mr)
		fail("ibv_reg_mr");
	meeting_wait(meeting);
	qp_connect(&a, qp, &ends[1 - side]);
	meeting_wait(meeting);
	if (busy)
		send_and_answer(qp, cq, mr, side == 0);
	else
		poll_in_vain(qp, cq, mr);
}

/* --- the two that connect --- */

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		fail("rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s instead of %s, status %d\n", rdma_event_str(event->event), rdma_event_str(type),
		        event->status);
		exit(1);
	}
	return event;
}

static void make_queues(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};

	if (rdma_create_qp(id, NULL, &init))
		fail("rdma_create_qp");
}

static struct rdma_conn_param connection(void)
{
	return (struct rdma_conn_param){
	        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
}

static void drop_connection(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

static void listen_for_all(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = connection();
	struct rdma_cm_id *listener;

	if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&any) || rdma_listen(listener, 8))
		fail("rdma_listen");
	*port = rdma_get_src_port(listener);
	meeting_wait(meeting);
	meeting_wait(meeting);
	meeting_wait(meeting);
	for (;;) { /* until the parent kills it */
		struct rdma_cm_event *event = next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = event->id;

		rdma_ack_cm_event(event);
		make_queues(id);
		if (rdma_accept(id, &param))
			fail("rdma_accept");
		rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ESTABLISHED));
		rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_DISCONNECTED));
		drop_connection(id);
	}
}

static uint64_t connect_once(struct rdma_event_channel *channel)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = *port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = connection();
	uint64_t start = now_ns();
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) || rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, MS))
		fail("rdma_resolve_addr");
	rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(id, MS))
		fail("rdma_resolve_route");
	rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
	make_queues(id);
	if (rdma_connect(id, &param))
		fail("rdma_connect");
	rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_ESTABLISHED));
	uint64_t took = now_ns() - start;
	if (rdma_disconnect(id))
		fail("rdma_disconnect");
	rdma_ack_cm_event(next_event(channel, RDMA_CM_EVENT_DISCONNECTED));
	drop_connection(id);
	return took;
}

static void connect_often(int connections, uint64_t *median, uint64_t *longest)
{
	static uint64_t took[CONNECTIONS_MAX];
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel)
		fail("rdma_create_event_channel");
	*longest = 0;
	for (int i = 0; i < connections; i++) {
		usleep(PAUSE_US);
		took[i] = connect_once(channel);
		if (took[i] > *longest)
			*longest = took[i];
	}
	*median = median_u64(took, (size_t)connections);
}

/* --- all --- */

static double used_ms(pid_t pid)
{
	clockid_t clock;
	struct timespec t;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		fail("clock_getcpuclockid");
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
	int pairs = argc == 4 ? atoi(argv[1]) : -1, connections = argc == 4 ? atoi(argv[3]) : 0;
	pid_t child[2 * PAIRS_MAX + 1];
	uint64_t median, longest;

	if (pairs < 0 || pairs > PAIRS_MAX || connections < 1 || connections > CONNECTIONS_MAX) {
		fprintf(stderr, "usage: verbs_neighbours PAIRS busy|vain CONNECTIONS\n");
		return 2;
	}
	bool busy = !strcmp(argv[2], "busy");
	meeting = meeting_new((unsigned)pairs * 2 + 2);
	table = shared_memory(sizeof(*table) * 2 * PAIRS_MAX);
	port = shared_memory(sizeof(*port));
	for (int i = 0; i < 2 * pairs; i++)
		if (!(child[i] = fork_child()))
			live_as_pair(i / 2, i % 2, busy);
	if (!(child[2 * pairs] = fork_child()))
		listen_for_all();
	meeting_wait(meeting);
	meeting_wait(meeting);
	meeting_wait(meeting);
	uint64_t start = now_ns();
	double before = pairs ? used_ms(child[0]) + used_ms(child[1]) : 0;
	connect_often(connections, &median, &longest);
	double used = pairs ? used_ms(child[0]) + used_ms(child[1]) - before : 0;
	printf("%.1f %.1f %.1f\n", (double)median / 1e3, (double)longest / 1e3,
	       used * 1e9 / (double)(now_ns() - start));
	for (int i = 0; i <= 2 * pairs; i++)
		kill(child[i], SIGKILL);
	return 0;
}
