// iwarp_races.c - one thread fetches an event of an iWARP connection while another destroys what the event changes
// follows: rdma_get_cm_event(3), rdma_destroy_qp(3), rdma_destroy_id(3), ibv_destroy_qp(3)
// SPDX-License-Identifier: MIT
#include <pthread.h>

#include "core/core.h"
#include "iwarp.h"

/* A client whose connection has been accepted, and whose event says so, but has not been fetched. */
struct answered {
	struct end listener, client;
	struct rdma_cm_id *server;
	struct ibv_qp *qp; /* the client's, if librdmacm does not know it */
	struct ibv_cq *cq;
	struct rdma_cm_event *fetched;
};

/* A queue pair that only the program knows. */
static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq *cq)
{
	struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT};
	struct ibv_qp_init_attr attr = qp_attr(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(id->pd, &attr);
	int mask;

	CHECK(qp);
	MUST(rdma_init_qp_attr(id, &to, &mask));
	MUST(ibv_modify_qp(qp, &to, mask));
	return qp;
}

static void connect_until_answered(struct answered *a, bool own)
{
	unsigned port = start_listening(&a->listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_conn_param p = {.initiator_depth = 1, .responder_resources = 1};

	go_to(&a->client, "127.0.0.1", port, RDMA_PS_TCP);
	if (own) {
		a->cq = ibv_create_cq(a->client.id->verbs, 16, NULL, NULL, 0);
		CHECK(a->cq);
		a->qp = own_qp(a->client.id, a->cq);
		p.qp_num = a->qp->qp_num;
	} else {
		make_qp(&a->client);
		a->qp = a->client.id->qp;
	}
	MUST(rdma_connect(a->client.id, &p));
	struct rdma_cm_event *e = fetch(a->listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct ibv_cq *cq = ibv_create_cq(e->id->verbs, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = qp_attr(cq, IBV_QPT_RC);

	a->server = e->id;
	CHECK(cq);
	MUST(rdma_create_qp(a->server, NULL, &attr));
	MUST(rdma_accept(a->server, NULL));
	MUST(rdma_ack_cm_event(e));
	while (!event_waits(a->client.ch))
		sleep_ms(1);
}

static void drop_server(struct answered *a)
{
	struct ibv_cq *cq = a->server->qp->send_cq;

	rdma_destroy_qp(a->server);
	MUST(ibv_destroy_cq(cq));
	MUST(rdma_destroy_id(a->server));
	drop_end(&a->listener);
	lives(0);
}

static void *get_event(void *own)
{
	struct answered *a = own;

	MUST(rdma_get_cm_event(a->client.ch, &a->fetched));
	CHECK(a->fetched->event == RDMA_CM_EVENT_ESTABLISHED || a->fetched->event == RDMA_CM_EVENT_CONNECT_ERROR);
	MUST(rdma_ack_cm_event(a->fetched));
	return NULL;
}

static void *destroy_own_qp(void *own)
{
	MUST(ibv_destroy_qp(((struct answered *)own)->qp));
	return NULL;
}

static void *destroy_id(void *own)
{
	MUST(rdma_destroy_id(((struct answered *)own)->client.id));
	return NULL;
}

/* While the event is being presented it waits for the queue pair, and another thread destroys something. */
static void destroy_meanwhile(struct answered *a, void *(*destroys)(void *))
{
	pthread_mutex_t *busy = &((struct vb_qp *)a->qp)->modify_lock;
	pthread_t gets, ends;

	MUST(pthread_mutex_lock(busy));
	MUST(pthread_create(&gets, NULL, get_event, a));
	while (event_waits(a->client.ch)) /* rdma_destroy_id discards an event that nobody has fetched */
		sleep_ms(1);
	sleep_ms(50); /* it waits by now */
	MUST(pthread_create(&ends, NULL, destroys, a));
	sleep_ms(50);
	MUST(pthread_mutex_unlock(busy));
	MUST(pthread_join(gets, NULL));
	MUST(pthread_join(ends, NULL));
}

static void a_queue_pair_of_the_program_ends_while_an_event_connects_it(void)
{
	struct answered a = {0};

	connect_until_answered(&a, true);
	destroy_meanwhile(&a, destroy_own_qp);
	MUST(rdma_destroy_id(a.client.id));
	MUST(ibv_destroy_cq(a.cq));
	rdma_destroy_event_channel(a.client.ch);
	drop_server(&a);
}

static void an_id_ends_while_its_event_is_presented(void)
{
	struct answered a = {0};

	connect_until_answered(&a, true);
	destroy_meanwhile(&a, destroy_id);
	MUST(ibv_destroy_qp(a.qp));
	MUST(ibv_destroy_cq(a.cq));
	rdma_destroy_event_channel(a.client.ch);
	drop_server(&a);
}

static void *end_of_qp(void *own)
{
	rdma_destroy_qp(((struct end *)own)->id);
	return NULL;
}

static void *get_end(void *own)
{
	next_is(((struct end *)own)->ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	return NULL;
}

/* The end of a connection takes the queue pair to ERR, which rdma_destroy_qp is just about to destroy. */
static void a_queue_pair_that_ends_is_taken_to_err(void)
{
	struct end listener, client, server;
	pthread_t ends, gets;

	connect_pair(&listener, &client, &server);
	MUST(rdma_disconnect(client.id));
	while (!event_waits(server.ch))
		sleep_ms(1);
	pthread_mutex_t *busy = &((struct vb_qp *)server.id->qp)->modify_lock;

	MUST(pthread_mutex_lock(busy));
	MUST(pthread_create(&ends, NULL, end_of_qp, &server));
	sleep_ms(50); /* it waits by now */
	MUST(pthread_create(&gets, NULL, get_end, &server));
	sleep_ms(50);
	MUST(pthread_mutex_unlock(busy));
	MUST(pthread_join(ends, NULL));
	MUST(pthread_join(gets, NULL));
	CHECK(!server.id->qp);
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
	lives(0);
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(a_queue_pair_of_the_program_ends_while_an_event_connects_it),
	        T(an_id_ends_while_its_event_is_presented),
	        T(a_queue_pair_that_ends_is_taken_to_err),
	};

	return RUN_TESTS(argc, argv, tests);
}
