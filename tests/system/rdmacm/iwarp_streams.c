// iwarp_streams.c - two programs on iWARP devices: over TCP, and in shared memory of one host
// follows: rdma_connect(3), rdma_accept(3), rdma_disconnect(3), rdma_create_ep(3), rdma_migrate_id(3)
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <rdma/rdma_verbs.h>

#include "iwarp.h"

static bool by_tcp(void)
{
	return !strcmp(getenv("VERBENA_WIRE"), "always");
}

static void send_and_receive(struct end *from, struct end *to)
{
	struct ibv_wc wc;

	strcpy(from->buf, "hello");
	MUST(rdma_post_recv(to->id, NULL, to->buf + 2048, 100, to->mr));
	MUST(rdma_post_send(from->id, NULL, from->buf, 6, from->mr, 0));
	poll_one(from->cq, &wc);
	poll_one(to->cq, &wc);
	SAME(wc.byte_len, 6);
	CHECK(!strcmp(to->buf + 2048, "hello"));
}

static void use(struct end *client, struct end *server)
{
	struct ibv_wc wc;

	send_and_receive(client, server);
	send_and_receive(server, client);
	strcpy(client->buf, "written");
	MUST(rdma_post_write(client->id, NULL, client->buf, 8, client->mr, 0, (uintptr_t)server->buf + 1024,
	                     server->mr->rkey));
	poll_one(client->cq, &wc);
	strcpy(server->buf + 512, "read");
	MUST(rdma_post_read(client->id, NULL, client->buf + 1024, 5, client->mr, 0, (uintptr_t)server->buf + 512,
	                    server->mr->rkey));
	poll_one(client->cq, &wc);
	CHECK(!strcmp(client->buf + 1024, "read"));
	CHECK(!strcmp(server->buf + 1024, "written"));
}

static void a_connection_carries_everything(void)
{
	struct end listener, client, server;

	connect_pair(&listener, &client, &server);
	CHECK(client.id->verbs->device->transport_type == IBV_TRANSPORT_IWARP);
	CHECK(server.id->verbs == client.id->verbs);
	SAME(stats().streams, by_tcp() ? 2 : 0);
	use(&client, &server);
	use(&server, &client);
	finish_pair(&listener, &client, &server);
	lives(0);
}

static void both_learn_what_was_said_and_agreed_on(void)
{
	struct end listener, client, server;
	struct rdma_conn_param ask = {
	        .private_data = "question", .private_data_len = 8, .responder_resources = 3, .initiator_depth = 5};
	struct rdma_conn_param say = {
	        .private_data = "answer", .private_data_len = 6, .responder_resources = 4, .initiator_depth = 2};
	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, &ask));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->listen_id == listener.id && e->id->context == &listener);
	CHECK(data_is(e, "question"));
	SAME(e->param.conn.responder_resources, 5);
	SAME(e->param.conn.initiator_depth, 3);
	server = (struct end){.ch = listener.ch, .id = e->id};
	SAME(rdma_get_dst_port(server.id), rdma_get_src_port(client.id));
	SAME(ntohs(rdma_get_src_port(server.id)), port);
	SAME(ntohs(rdma_get_dst_port(client.id)), port);
	make_qp(&server);
	MUST(rdma_accept(server.id, &say));
	MUST(rdma_ack_cm_event(e));
	e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(data_is(e, "answer"));
	SAME(e->param.conn.responder_resources, 2);
	SAME(e->param.conn.initiator_depth, 4);
	MUST(rdma_ack_cm_event(e));
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	use(&client, &server);
	finish_pair(&listener, &client, &server);
}

/* The same-host path has room for less private data, so this goes over TCP. */
static void private_data_of_any_length_arrives(void)
{
	struct end listener, client, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	char text[256];

	memset(text, 'x', sizeof(text));
	for (unsigned len = 0; len <= 255; len += 51) {
		struct rdma_conn_param p = {.private_data = text,
		                            .private_data_len = (uint8_t)len,
		                            .responder_resources = 1,
		                            .initiator_depth = 1};

		go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
		make_qp(&client);
		MUST(rdma_connect(client.id, &p));
		struct rdma_cm_event *e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);

		server = (struct end){.ch = listener.ch, .id = e->id};
		SAME(e->param.conn.private_data_len, len);
		CHECK(!len || !memcmp(e->param.conn.private_data, text, len));
		make_qp(&server);
		p.private_data_len = (uint8_t)(len % 196);
		MUST(rdma_accept(server.id, &p));
		MUST(rdma_ack_cm_event(e));
		e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);
		SAME(e->param.conn.private_data_len, len % 196);
		MUST(rdma_ack_cm_event(e));
		next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
		use(&client, &server);
		drop_end(&server);
		next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
		drop_end(&client);
	}
	drop_end(&listener);
	lives(0);
}

static void a_refusal_is_the_same_by_either_way(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(rdma_reject(e->id, "never", 5));
	struct rdma_cm_id *refused = e->id;

	MUST(rdma_ack_cm_event(e));
	MUST(rdma_destroy_id(refused));
	e = fetch(client.ch, RDMA_CM_EVENT_REJECTED);
	SAME(e->status, -ECONNREFUSED);
	CHECK(data_is(e, "never"));
	MUST(rdma_ack_cm_event(e));
	drop_end(&client);
	drop_end(&listener);
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(client.ch, RDMA_CM_EVENT_REJECTED);
	SAME(e->status, -ECONNREFUSED);
	MUST(rdma_ack_cm_event(e));
	drop_end(&client);
	lives(0);
}

static void the_end_is_told_of_and_a_while_later_that_it_is_long_ago(void)
{
	struct end listener, client, server;

	connect_pair(&listener, &client, &server);
	MUST(rdma_disconnect(client.id));
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(server.id));
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	SAME(state_of(client.id->qp), IBV_QPS_ERR);
	SAME(state_of(server.id->qp), IBV_QPS_ERR);
	next_is(client.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	next_is(server.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

static void what_was_sent_before_a_disconnect_arrives(void)
{
	struct end listener, client, server;
	struct ibv_wc wc;

	connect_pair(&listener, &client, &server);
	for (int i = 0; i < 8; i++)
		MUST(rdma_post_recv(server.id, NULL, server.buf + 100 * i, 100, server.mr));
	for (int i = 0; i < 8; i++) {
		sprintf(client.buf + 100 * i, "message %d", i);
		MUST(rdma_post_send(client.id, NULL, client.buf + 100 * i, 100, client.mr, 0));
	}
	for (int i = 0; i < 8; i++)
		poll_one(client.cq, &wc);
	MUST(rdma_disconnect(client.id));
	for (int i = 0; i < 8; i++)
		poll_one(server.cq, &wc);
	CHECK(!strcmp(server.buf + 700, "message 7"));
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

static void destroying_an_id_disconnects_its_peer(void)
{
	struct end listener, client, server;

	connect_pair(&listener, &client, &server);
	drop_end(&client);
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&server);
	drop_end(&listener);
	lives(0);
}

static void a_peer(int fd, void *arg)
{
	struct end client;
	unsigned port;

	hear(fd, &port, sizeof(port));
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	meet_up(fd);
	if (arg)
		sleep_ms(60000);
}

static void one_that_ends(bool killed)
{
	struct peer p = start(a_peer, killed ? &p : NULL);
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	tell(p.fd, &port, sizeof(port));
	struct rdma_cm_event *e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);

	server = (struct end){.ch = listener.ch, .id = e->id};
	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	meet_up(p.fd);
	if (killed)
		kill_peer(&p);
	else
		finish(&p);
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&server);
	drop_end(&listener);
	lives(0);
}

static void a_program_that_just_ends_disconnects(void)
{
	one_that_ends(false);
}

static void a_program_that_is_killed_is_disconnected(void)
{
	one_that_ends(true);
}

static void *passive_ep(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	char buf[16] = "from the server";
	struct ibv_wc wc;

	MUST(rdma_get_request(listener, &id));
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(buf));

	MUST(rdma_accept(id, NULL));
	MUST(rdma_post_send(id, NULL, buf, sizeof(buf), mr, 0));
	while (rdma_get_send_comp(id, &wc) == 0)
		;
	SAME(wc.status, IBV_WC_SUCCESS);
	MUST(rdma_disconnect(id));
	MUST(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	return NULL;
}

/* The server sends first, which RFC 6581's peer-to-peer model allows. */
static void endpoints_do_it_all_in_order(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *res;
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
	struct rdma_cm_id *listener, *id;
	char buf[16], service[8];
	pthread_t t;
	struct ibv_wc wc;

	MUST(rdma_getaddrinfo("127.0.0.1", "0", &hints, &res));
	MUST(rdma_create_ep(&listener, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	MUST(rdma_listen(listener, 0));
	sprintf(service, "%u", ntohs(rdma_get_src_port(listener)));
	MUST(pthread_create(&t, NULL, passive_ep, listener));
	hints.ai_flags = RAI_NUMERICHOST;
	MUST(rdma_getaddrinfo("127.0.0.1", service, &hints, &res));
	MUST(rdma_create_ep(&id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(buf));

	MUST(rdma_post_recv(id, NULL, buf, sizeof(buf), mr));
	MUST(rdma_connect(id, NULL));
	while (rdma_get_recv_comp(id, &wc) == 0)
		;
	SAME(wc.status, IBV_WC_SUCCESS);
	CHECK(!strcmp(buf, "from the server"));
	MUST(rdma_disconnect(id));
	MUST(rdma_dereg_mr(mr));
	MUST(pthread_join(t, NULL));
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	lives(0);
}

static void an_id_moves_with_what_waits_for_it(void)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct end listener, client, server;

	connect_pair(&listener, &client, &server);
	drop_end(&client);
	while (!event_waits(listener.ch))
		sleep_ms(1);
	MUST(rdma_migrate_id(server.id, other));
	CHECK(!event_waits(listener.ch));
	next_is(other, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&server);
	drop_end(&listener);
	rdma_destroy_event_channel(other);
}

static void queue_pairs_may_be_the_programs_own(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;
	struct ibv_qp *qp[2];
	struct ibv_cq *cq[2];

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	struct rdma_cm_id *id[2] = {client.id};

	for (int i = 0; i < 2; i++) {
		if (i) {
			e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
			id[1] = e->id;
		}
		struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT};
		int mask;

		cq[i] = ibv_create_cq(id[i]->verbs, 16, NULL, NULL, 0);
		struct ibv_qp_init_attr attr = qp_attr(cq[i], IBV_QPT_RC);

		qp[i] = ibv_create_qp(id[i]->pd, &attr);
		CHECK(qp[i]);
		MUST(rdma_init_qp_attr(id[i], &to, &mask));
		MUST(ibv_modify_qp(qp[i], &to, mask));
		struct rdma_conn_param p = {.qp_num = qp[i]->qp_num, .initiator_depth = 1, .responder_resources = 1};

		MUST(i ? rdma_accept(id[1], &p) : rdma_connect(id[0], &p));
	}
	MUST(rdma_ack_cm_event(e));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	SAME(state_of(qp[0]), IBV_QPS_RTS);
	SAME(state_of(qp[1]), IBV_QPS_RTS);
	MUST(rdma_disconnect(id[0]));
	next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(id[1]));
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	for (int i = 0; i < 2; i++) {
		SAME(state_of(qp[i]), IBV_QPS_ERR);
		MUST(ibv_destroy_qp(qp[i]));
		MUST(ibv_destroy_cq(cq[i]));
		MUST(rdma_destroy_id(id[i]));
	}
	drop_end(&listener);
	lives(0);
}

static void crc_and_markers_change_nothing(void)
{
	struct end listener, client, server;

	setenv("VERBENA_MPA", "crc,markers", 1);
	connect_pair(&listener, &client, &server);
	use(&client, &server);
	use(&server, &client);
	finish_pair(&listener, &client, &server);
}

static void many_come_and_go(void)
{
	struct end listener, client, server;

	for (int i = 0; i < 50; i++) {
		connect_pair(&listener, &client, &server);
		send_and_receive(&client, &server);
		finish_pair(&listener, &client, &server);
	}
	lives(0);
	SAME(stats().streams, stats().ended);
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(a_connection_carries_everything),
	        T(both_learn_what_was_said_and_agreed_on),
	        T(private_data_of_any_length_arrives),
	        T(a_refusal_is_the_same_by_either_way),
	        T(the_end_is_told_of_and_a_while_later_that_it_is_long_ago),
	        T(what_was_sent_before_a_disconnect_arrives),
	        T(destroying_an_id_disconnects_its_peer),
	        T(a_program_that_just_ends_disconnects),
	        T(a_program_that_is_killed_is_disconnected),
	        T(endpoints_do_it_all_in_order),
	        T(an_id_moves_with_what_waits_for_it),
	        T(queue_pairs_may_be_the_programs_own),
	        T(crc_and_markers_change_nothing),
	        T(many_come_and_go),
	};

	return RUN_TESTS(argc, argv, tests);
}
