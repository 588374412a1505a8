// connections.c - connections: established, rejected, used and ended
// follows: rdma_connect(3), rdma_accept(3), rdma_reject(3), rdma_disconnect(3), rdma_create_ep(3), rdma_init_qp_attr(3)
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <rdma/rdma_verbs.h>

#include "cm.h"

static struct ibv_qp_attr attr_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	MUST(ibv_query_qp(qp, &attr,
	                  IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
	                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
	                          IBV_QP_AV,
	                  &init));
	return attr;
}

/* Bytes after the text are padding, as in the message. */
static bool data_is(const struct rdma_cm_event *e, const char *text, size_t len)
{
	const char *data = e->param.conn.private_data;

	return e->param.conn.private_data_len == len && !memcmp(data, text, strlen(text)) && !data[strlen(text)];
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

static void a_connection_agrees_on_everything(void)
{
	struct end listener, client, server;
	struct rdma_conn_param ask = {.private_data = "question",
	                              .private_data_len = 8,
	                              .responder_resources = 3,
	                              .initiator_depth = 5,
	                              .retry_count = 6,
	                              .rnr_retry_count = 4};
	struct rdma_conn_param say = {.private_data = "answer",
	                              .private_data_len = 6,
	                              .responder_resources = 4,
	                              .initiator_depth = 2,
	                              .rnr_retry_count = 3};
	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	SAME(client.id->qp->state, IBV_QPS_INIT);
	MUST(rdma_connect(client.id, &ask));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->listen_id == listener.id && e->id->context == &listener);
	CHECK(data_is(e, "question", 56));
	SAME(e->param.conn.responder_resources, 5);
	SAME(e->param.conn.initiator_depth, 3);
	SAME(e->param.conn.retry_count, 6);
	SAME(e->param.conn.rnr_retry_count, 4);
	SAME(e->param.conn.qp_num, client.id->qp->qp_num);
	server = (struct end){.ch = listener.ch, .id = e->id};
	SAME(rdma_get_dst_port(server.id), rdma_get_src_port(client.id));
	SAME(ntohs(rdma_get_src_port(server.id)), port);
	CHECK(server.id->verbs && server.id->route.num_paths == 1);
	make_qp(&server);
	MUST(rdma_accept(server.id, &say));
	MUST(rdma_ack_cm_event(e));
	e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(data_is(e, "answer", 196));
	SAME(e->param.conn.responder_resources, 2);
	SAME(e->param.conn.initiator_depth, 4);
	MUST(rdma_ack_cm_event(e));
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);

	struct ibv_qp_attr c = attr_of(client.id->qp), s = attr_of(server.id->qp);

	CHECK(c.qp_state == IBV_QPS_RTS && s.qp_state == IBV_QPS_RTS);
	CHECK(c.dest_qp_num == server.id->qp->qp_num && s.dest_qp_num == client.id->qp->qp_num);
	CHECK(c.path_mtu == s.path_mtu && c.path_mtu == client.id->route.path_rec->mtu);
	CHECK(c.rq_psn == s.sq_psn && s.rq_psn == c.sq_psn);
	SAME(c.max_rd_atomic, 4);
	SAME(c.max_dest_rd_atomic, 2);
	SAME(s.max_rd_atomic, 2);
	SAME(s.max_dest_rd_atomic, 4);
	SAME(c.retry_cnt, 6);
	SAME(s.retry_cnt, 6);
	SAME(c.rnr_retry, 3);
	SAME(s.rnr_retry, 4);
	CHECK(!c.min_rnr_timer && !s.min_rnr_timer);
	CHECK(c.timeout && s.timeout);
	SAME(c.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	send_and_receive(&client, &server);
	send_and_receive(&server, &client);

	MUST(rdma_disconnect(client.id));
	SAME(attr_of(client.id->qp).qp_state, IBV_QPS_ERR);
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(server.id));
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	next_is(client.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	next_is(server.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

static void refuse(bool ece)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	FAILS(rdma_reject(e->id, e, 149), EINVAL);
	if (ece)
		MUST(rdma_reject_ece(e->id, "no", 2));
	else
		MUST(rdma_reject(e->id, "no", 2));
	FAILS(rdma_reject(e->id, NULL, 0), EINVAL);
	MUST(rdma_destroy_id(e->id));
	MUST(rdma_ack_cm_event(e));
	e = fetch(client.ch, RDMA_CM_EVENT_REJECTED);
	SAME(e->status, ece ? 35 : 28);
	CHECK(data_is(e, "no", 148));
	SAME(attr_of(client.id->qp).qp_state, IBV_QPS_ERR);
	MUST(rdma_ack_cm_event(e));
	drop_end(&client);
	drop_end(&listener);
}

static void a_request_may_be_refused_with_words(void)
{
	refuse(false);
	refuse(true);
}

static void where_nobody_listens_the_request_is_refused(void)
{
	struct rdma_cm_event e;
	struct end client;

	go_to(&client, "127.0.0.1", 3, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, &e);
	SAME(e.status, 8);
	drop_end(&client);
}

static void private_data_and_parameters_have_limits(void)
{
	struct end listener, client;
	char data[255] = {0};
	struct rdma_conn_param param = {.private_data = data, .private_data_len = 57};
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	FAILS(rdma_connect(client.id, NULL), EINVAL); /* without a queue pair, its number must be given */
	make_qp(&client);
	FAILS(rdma_connect(client.id, &param), EINVAL);
	param.private_data_len = 56;
	param.initiator_depth = 200;
	FAILS(rdma_connect(client.id, &param), EINVAL);
	param.initiator_depth = RDMA_MAX_INIT_DEPTH;
	param.responder_resources = RDMA_MAX_RESP_RES;
	MUST(rdma_connect(client.id, &param));
	FAILS(rdma_connect(client.id, &param), EINVAL);
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct end server = {.ch = listener.ch, .id = e->id};

	MUST(rdma_ack_cm_event(e));
	FAILS(rdma_accept(server.id, NULL), EINVAL);
	make_qp(&server);
	param.private_data_len = 197;
	FAILS(rdma_accept(server.id, &param), EINVAL);
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, NULL); /* as in the kernel if the answer cannot be sent */
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

/* Waits until all earlier requests have arrived. */
static void pass_on_requests(void)
{
	struct end marker, client;
	unsigned port = start_listening(&marker, "127.0.0.1", RDMA_PS_TCP, 1);
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(marker.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(rdma_destroy_id(e->id));
	MUST(rdma_ack_cm_event(e));
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, NULL);
	drop_end(&client);
	drop_end(&marker);
}

/* A requester that finds no room repeats its request. */
static void no_more_requests_wait_than_the_backlog_allows(void)
{
	struct end listener, first, second;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 1);
	struct rdma_cm_event *e;

	go_to(&first, "127.0.0.1", port, RDMA_PS_TCP);
	go_to(&second, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&first);
	make_qp(&second);
	MUST(rdma_connect(first.id, NULL));
	while (!event_waits(listener.ch))
		sleep_ms(1);
	MUST(rdma_connect(second.id, NULL));
	pass_on_requests();
	CHECK(!event_waits(second.ch));
	for (int i = 0; i < 2; i++) {
		e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		MUST(rdma_destroy_id(e->id)); /* the rejection */
		MUST(rdma_ack_cm_event(e));
		next_is(i ? second.ch : first.ch, RDMA_CM_EVENT_REJECTED, NULL);
	}
	drop_end(&first);
	drop_end(&second);
	drop_end(&listener);
}

static void what_waits_at_a_listener_goes_with_it(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	while (!event_waits(listener.ch))
		sleep_ms(1);
	drop_end(&listener);
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, NULL);
	drop_end(&client);
}

static void *destroy(void *id)
{
	MUST(rdma_destroy_id(id));
	return NULL;
}

static void destroying_waits_for_acknowledgements(void)
{
	struct end client;
	union address a = at("127.0.0.1", 5);
	struct rdma_cm_event *e;
	pthread_t t;
	struct timespec soon;

	client.ch = rdma_create_event_channel();
	MUST(rdma_create_id(client.ch, &client.id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(client.id, NULL, &a.sa, PATIENCE));
	e = fetch(client.ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(pthread_create(&t, NULL, destroy, client.id));
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 50000000;
	if (soon.tv_nsec >= 1000000000) {
		soon.tv_nsec -= 1000000000;
		soon.tv_sec++;
	}
	SAME(pthread_timedjoin_np(t, NULL, &soon), ETIMEDOUT);
	MUST(rdma_ack_cm_event(e));
	MUST(pthread_join(t, NULL));
	rdma_destroy_event_channel(client.ch);
}

static void *destroy_qp(void *id)
{
	rdma_destroy_qp(id);
	return NULL;
}

/* Destroying a queue pair waits for the acknowledgement of its events. The thread that is to give it may first get an event
 * of the id. */
static void events_of_an_id_come_while_its_queue_pair_waits_for_an_acknowledgement(void)
{
	struct end listener, client, server;
	struct ibv_async_event ev;
	pthread_t t;

	connect_pair(&listener, &client, &server);
	struct ibv_sge sge = {(uintptr_t)client.buf, 8, client.mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .wr.rdma = {(uintptr_t)server.buf, ~server.mr->rkey}},
	                   *bad;

	MUST(ibv_post_send(client.id->qp, &wr, &bad));
	SAME(wait_wc(client.cq).status, IBV_WC_REM_ACCESS_ERR);
	do {
		MUST(ibv_get_async_event(server.id->verbs, &ev));
		if (ev.event_type != IBV_EVENT_QP_ACCESS_ERR)
			ibv_ack_async_event(&ev);
	} while (ev.event_type != IBV_EVENT_QP_ACCESS_ERR);
	CHECK(ev.element.qp == server.id->qp);
	MUST(pthread_create(&t, NULL, destroy_qp, server.id));
	sleep_ms(50); /* it waits by now */
	MUST(rdma_disconnect(client.id));
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	ibv_ack_async_event(&ev);
	MUST(pthread_join(t, NULL));
	CHECK(!server.id->qp);
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

static void an_id_moves_with_what_waits_for_it(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	while (!event_waits(listener.ch))
		sleep_ms(1);
	MUST(rdma_migrate_id(listener.id, other));
	CHECK(!event_waits(listener.ch) && event_waits(other));
	rdma_destroy_event_channel(listener.ch); /* the request no longer belongs to it */
	listener.ch = NULL;
	e = fetch(other, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->id->channel == other);
	MUST(rdma_reject(e->id, NULL, 0));
	MUST(rdma_destroy_id(e->id));
	MUST(rdma_ack_cm_event(e));
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, NULL);
	MUST(rdma_migrate_id(client.id, NULL)); /* synchronous from now on */
	CHECK(client.id->channel != client.ch);
	drop_end(&client);
	drop_end(&listener);
	rdma_destroy_event_channel(other);
}

static void the_channel_goes(struct end *e)
{
	rdma_destroy_event_channel(e->ch);
	e->ch = NULL;
	FAILS(rdma_disconnect(e->id), EINVAL);
	FAILS(rdma_bind_addr(e->id, &(union address){.sin.sin_family = AF_INET}.sa), EINVAL);
}

static void what_ids_did_ends_with_their_channel(void)
{
	struct end listener, client, server, other;
	struct rdma_cm_event *e;

	connect_pair(&listener, &client, &server);
	go_to(&other, "127.0.0.1", ntohs(rdma_get_src_port(listener.id)), RDMA_PS_TCP);
	the_channel_goes(&client);
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&client);
	make_qp(&other);
	MUST(rdma_connect(other.id, NULL)); /* that nobody will fetch */
	while (!event_waits(listener.ch))
		sleep_ms(1);
	the_channel_goes(&listener);
	next_is(other.ch, RDMA_CM_EVENT_REJECTED, NULL);
	drop_end(&server);
	drop_end(&listener);
	drop_end(&other);
	/* An event of such an id may not be acknowledged yet. */
	other.ch = rdma_create_event_channel();
	MUST(rdma_create_id(other.ch, &other.id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(other.id, NULL, &(union address){.sin.sin_family = AF_INET}.sa, PATIENCE));
	e = fetch(other.ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	the_channel_goes(&other);
	FAILS(rdma_destroy_id(other.id), EINVAL);
	MUST(rdma_ack_cm_event(e));
	MUST(rdma_destroy_id(other.id));
}

static struct ibv_qp *bring_up(struct end *e, struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr;
	int mask;

	for (int state = IBV_QPS_INIT; state <= (int)to; state++) {
		attr.qp_state = (enum ibv_qp_state)state;
		MUST(rdma_init_qp_attr(e->id, &attr, &mask));
		MUST(ibv_modify_qp(qp, &attr, mask));
	}
	return qp;
}

static struct ibv_qp *own_qp(struct end *e)
{
	e->cq = ibv_create_cq(e->id->verbs, 64, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = qp_attr(e->cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(e->id->pd, &attr);

	CHECK(qp);
	return qp;
}

static void queue_pairs_may_be_the_programs_own(void)
{
	struct end listener, client;
	struct rdma_conn_param param = {
	        .retry_count = 7, .rnr_retry_count = 7, .initiator_depth = 1, .responder_resources = 1};
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	struct ibv_qp *mine = own_qp(&client), *theirs;

	param.qp_num = mine->qp_num | 0x5a000000; /* of which a queue pair has 24 bits */
	MUST(rdma_set_local_ece(client.id, &(struct ibv_ece){.vendor_id = 0x123456, .options = 0x89abcdef}));
	MUST(rdma_connect(client.id, &param));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct end server = {.ch = listener.ch, .id = e->id};
	struct ibv_ece ece;

	MUST(rdma_get_remote_ece(server.id, &ece));
	CHECK(ece.vendor_id == 0x123456 && ece.options == 0x89abcdef && !ece.comp_mask);
	MUST(rdma_set_local_ece(server.id, &(struct ibv_ece){.vendor_id = 0xfedcba, .options = 1}));

	SAME(e->param.conn.qp_num, mine->qp_num);
	MUST(rdma_ack_cm_event(e));
	theirs = bring_up(&server, own_qp(&server), IBV_QPS_RTS);
	param.qp_num = theirs->qp_num | 0xa5000000;
	MUST(rdma_accept(server.id, &param));
	e = fetch(client.ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	SAME(e->param.conn.qp_num, theirs->qp_num);
	MUST(rdma_get_remote_ece(client.id, &ece));
	CHECK(ece.vendor_id == 0xfedcba && ece.options == 1);
	MUST(rdma_ack_cm_event(e));
	bring_up(&client, mine, IBV_QPS_RTS);
	CHECK(attr_of(mine).dest_qp_num == theirs->qp_num && attr_of(theirs).dest_qp_num == mine->qp_num);
	MUST(rdma_establish(client.id));
	FAILS(rdma_establish(client.id), EINVAL);
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	FAILS(rdma_notify(server.id, IBV_EVENT_COMM_EST), EISCONN);
	MUST(rdma_disconnect(server.id));
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(client.id));
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(ibv_destroy_qp(mine));
	MUST(ibv_destroy_qp(theirs));
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

struct endpoint_test {
	struct rdma_cm_id *listen;
	char buf[64];
};

/* The passive side, in a thread, with synchronous calls. */
static void *serve(void *arg)
{
	struct endpoint_test *t = arg;
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	MUST(rdma_get_request(t->listen, &id));
	CHECK(id->qp && id->send_cq && id->recv_cq && id->recv_cq_channel && id->event);
	mr = rdma_reg_msgs(id, t->buf, sizeof(t->buf));
	CHECK(mr);
	MUST(rdma_post_recv(id, t, t->buf, sizeof(t->buf), mr));
	MUST(rdma_accept(id, NULL));
	SAME(rdma_get_recv_comp(id, &wc), 1);
	CHECK(wc.wr_id == (uintptr_t)t);
	MUST(rdma_post_send(id, NULL, t->buf, wc.byte_len, mr, 0));
	SAME(rdma_get_send_comp(id, &wc), 1);
	MUST(rdma_disconnect(id));
	MUST(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	return NULL;
}

static void endpoints_do_it_all_in_order(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
	struct ibv_qp_init_attr attr = qp_attr(NULL, IBV_QPT_RC);
	struct endpoint_test t = {0};
	struct rdma_cm_id *id;
	char port[8], buf[64] = "over and back";
	pthread_t thread;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	MUST(rdma_getaddrinfo(NULL, "0", &hints, &res));
	MUST(rdma_create_ep(&t.listen, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	MUST(rdma_listen(t.listen, 1));
	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(t.listen)));
	MUST(pthread_create(&thread, NULL, serve, &t));
	hints.ai_flags = 0;
	MUST(rdma_getaddrinfo("127.0.0.1", port, &hints, &res));
	MUST(rdma_create_ep(&id, res, NULL, &attr));
	CHECK(attr.send_cq == id->send_cq);
	rdma_freeaddrinfo(res);
	mr = rdma_reg_msgs(id, buf, sizeof(buf));
	MUST(rdma_post_recv(id, NULL, buf + 32, 32, mr));
	MUST(rdma_connect(id, NULL));
	SAME(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	MUST(rdma_post_send(id, NULL, buf, 14, mr, 0));
	SAME(rdma_get_send_comp(id, &wc), 1);
	SAME(rdma_get_recv_comp(id, &wc), 1);
	CHECK(!strcmp(buf + 32, "over and back"));
	MUST(rdma_disconnect(id));
	MUST(pthread_join(thread, NULL));
	MUST(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	rdma_destroy_ep(t.listen);
}

static void an_endpoint_whose_type_nobody_names_has_that_of_its_port_space(void)
{
	static const struct {
		enum rdma_port_space ps;
		enum ibv_qp_type type;
	} of[] = {{RDMA_PS_TCP, IBV_QPT_RC}, {RDMA_PS_UDP, IBV_QPT_UD}};
	union address to = at("127.0.0.1", 7);

	for (int i = 0; i < 2; i++) {
		struct rdma_addrinfo res = {
		        .ai_port_space = of[i].ps, .ai_dst_addr = &to.sa, .ai_dst_len = sizeof(to.sin)};
		struct ibv_qp_init_attr attr = qp_attr(NULL, (enum ibv_qp_type)0);
		struct rdma_cm_id *id;

		MUST(rdma_create_ep(&id, &res, NULL, &attr));
		SAME(id->qp_type, of[i].type);
		SAME(id->qp->qp_type, of[i].type);
		SAME(attr.qp_type, of[i].type);
		rdma_destroy_ep(id);
	}
}

/* Both lists have two pieces of 8 bytes, 100 apart. */
static void in_two(struct ibv_sge sge[2], const char *at, const struct ibv_mr *mr)
{
	for (int i = 0; i < 2; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)at + 100 * (unsigned)i, .length = 8, .lkey = mr->lkey};
}

static struct rdma_cm_id *endpoint_with_two_sges(const char *host, const char *port, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;
	struct ibv_qp_init_attr attr = qp_attr(NULL, IBV_QPT_RC);
	struct rdma_cm_id *id;

	attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
	MUST(rdma_getaddrinfo(host, port, &hints, &res));
	MUST(rdma_create_ep(&id, res, NULL, &attr));
	rdma_freeaddrinfo(res);
	return id;
}

static void *accept_one(void *listener)
{
	struct rdma_cm_id *id;

	MUST(rdma_get_request(listener, &id));
	MUST(rdma_accept(id, NULL));
	return id;
}

static void done(int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id, void *context)
{
	struct ibv_wc wc;

	SAME(get(id, &wc), 1);
	SAME(wc.status, IBV_WC_SUCCESS);
	CHECK(wc.wr_id == (uintptr_t)context);
}

/* rdma_verbs.h: each operation with gathered and scattered data. */
static void the_helpers_of_rdma_verbs_take_more_than_one_piece(void)
{
	static char here[4096], to_read[4096] = "what is there to be read", to_write[4096];
	struct rdma_cm_id *listener = endpoint_with_two_sges(NULL, "0", RAI_PASSIVE), *client;
	struct ibv_mr *mr, *may_read, *may_write;
	struct ibv_sge sge[2];
	char port[8];
	pthread_t thread;
	void *server;

	MUST(rdma_listen(listener, 1));
	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(listener)));
	MUST(pthread_create(&thread, NULL, accept_one, listener));
	client = endpoint_with_two_sges("127.0.0.1", port, 0);
	MUST(rdma_connect(client, NULL));
	MUST(pthread_join(thread, &server));
	mr = rdma_reg_msgs(client, here, sizeof(here));
	may_read = rdma_reg_read(server, to_read, sizeof(to_read));
	may_write = rdma_reg_write(server, to_write, sizeof(to_write));
	CHECK(mr && may_read && may_write);
	memcpy(here, "a piece,", 8);
	memcpy(here + 100, " another", 8);
	in_two(sge, to_write + 1000, may_write);
	MUST(rdma_post_recvv(server, to_write, sge, 2));
	in_two(sge, here, mr);
	MUST(rdma_post_sendv(client, here, sge, 2, 0));
	done(rdma_get_send_comp, client, here);
	done(rdma_get_recv_comp, server, to_write);
	CHECK(!memcmp(to_write + 1000, "a piece,", 8) && !memcmp(to_write + 1100, " another", 8));
	MUST(rdma_post_writev(client, sge, sge, 2, 0, (uintptr_t)to_write, may_write->rkey));
	done(rdma_get_send_comp, client, sge);
	CHECK(!strcmp(to_write, "a piece, another"));
	in_two(sge, here + 2000, mr);
	MUST(rdma_post_readv(client, NULL, sge, 2, 0, (uintptr_t)to_read, may_read->rkey));
	done(rdma_get_send_comp, client, NULL);
	CHECK(!memcmp(here + 2000, to_read, 8) && !memcmp(here + 2100, to_read + 8, 8));
	MUST(rdma_post_write(client, NULL, here + 100, 8, mr, 0, (uintptr_t)to_write + 50, may_write->rkey));
	MUST(rdma_post_read(client, here, here + 3000, 4, mr, 0, (uintptr_t)to_read + 8, may_read->rkey));
	done(rdma_get_send_comp, client, NULL);
	done(rdma_get_send_comp, client, here);
	CHECK(!strcmp(to_write + 50, " another") && !memcmp(here + 3000, to_read + 8, 4));
	MUST(rdma_dereg_mr(mr));
	MUST(rdma_dereg_mr(may_read));
	MUST(rdma_dereg_mr(may_write));
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

static void a_synchronous_connect_tells_that_it_was_refused(void)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *res;
	struct ibv_qp_init_attr attr = qp_attr(NULL, IBV_QPT_RC);
	struct rdma_cm_id *id;

	MUST(rdma_getaddrinfo("127.0.0.1", "3", &hints, &res));
	MUST(rdma_create_ep(&id, res, NULL, &attr));
	FAILS(rdma_connect(id, NULL), ECONNREFUSED);
	SAME(id->event->event, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
}

static void shared_receive_queues_come_with_an_id(void)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_init_attr_ex ex = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct end client;

	go_to(&client, "127.0.0.1", 5, RDMA_PS_TCP);
	MUST(rdma_create_srq(client.id, NULL, &srq));
	CHECK(client.id->srq && client.id->srq->pd == client.id->pd);
	FAILS(rdma_create_srq(client.id, NULL, &srq), EINVAL); /* an id has one */
	make_qp(&client);
	CHECK(client.id->qp->srq == client.id->srq);
	MUST(rdma_post_recv(client.id, NULL, client.buf, 10, client.mr));
	rdma_destroy_qp(client.id);
	rdma_destroy_srq(client.id);
	CHECK(!client.id->srq);
	FAILS(rdma_create_srq_ex(client.id, &ex), EINVAL);
	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	ex.srq_type = IBV_SRQT_BASIC;
	MUST(rdma_create_srq_ex(client.id, &ex));
	rdma_destroy_srq(client.id);
	drop_end(&client);
}

static void queue_pairs_bring_their_completion_queues(void)
{
	struct ibv_qp_init_attr attr = qp_attr(NULL, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex ex = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct end client;
	struct ibv_pd *pd;

	go_to(&client, "127.0.0.1", 5, RDMA_PS_TCP);
	MUST(rdma_create_qp(client.id, NULL, &attr));
	CHECK(client.id->send_cq && client.id->recv_cq && client.id->send_cq_channel && client.id->recv_cq_channel);
	CHECK(attr.cap.max_send_wr >= 16);
	FAILS(rdma_create_qp(client.id, NULL, &attr), EINVAL);
	rdma_destroy_qp(client.id);
	CHECK(!client.id->qp && !client.id->send_cq && !client.id->recv_cq && !client.id->send_cq_channel);
	pd = ibv_alloc_pd(client.id->verbs);
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;
	ex.recv_cq = ibv_create_cq(client.id->verbs, 4, NULL, NULL, 0);
	MUST(rdma_create_qp_ex(client.id, &ex));
	CHECK(client.id->pd == pd && client.id->send_cq && !client.id->recv_cq);
	rdma_destroy_qp(client.id);
	CHECK(!client.id->send_cq);
	MUST(ibv_destroy_cq(ex.recv_cq));
	MUST(ibv_dealloc_pd(pd));
	drop_end(&client);
}

static void what_is_said_twice_or_too_late_changes_nothing(void)
{
	struct end listener, client, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	union address own = at("127.0.0.1", 0), other = at("::1", 0), to = at("127.0.0.1", port);
	struct rdma_conn_param param = {.private_data = "x", .private_data_len = 1, .retry_count = 7};
	struct rdma_cm_id *sync, *none;
	struct rdma_cm_event *e;

	client = (struct end){.ch = rdma_create_event_channel()};
	MUST(rdma_create_id(client.ch, &client.id, &client, RDMA_PS_TCP));
	MUST(rdma_bind_addr(client.id, &own.sa));
	__be16 bound = rdma_get_src_port(client.id);
	MUST(rdma_resolve_addr(client.id, &other.sa, &to.sa, PATIENCE)); /* the id has a source address */
	next_is(client.ch, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	SAME(rdma_get_src_port(client.id), bound);
	FAILS(rdma_connect(client.id, &param), EINVAL); /* without a route */
	MUST(rdma_resolve_route(client.id, PATIENCE));
	FAILS(rdma_resolve_route(client.id, PATIENCE), EINVAL);
	next_is(client.ch, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	FAILS(rdma_connect(client.id, NULL), EINVAL); /* without a queue pair number */
	FAILS(rdma_disconnect(client.id), EINVAL);
	FAILS(rdma_establish(client.id), EINVAL);
	make_qp(&client);
	MUST(rdma_connect(client.id, &param));
	FAILS(rdma_connect(client.id, &param), EINVAL);
	FAILS(rdma_accept(listener.id, &param), EINVAL);
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(data_is(e, "x", 56));
	server = (struct end){.ch = listener.ch, .id = e->id};
	FAILS(rdma_connect(server.id, &param), EINVAL);
	FAILS(rdma_notify(server.id, IBV_EVENT_COMM_EST), EINVAL);
	make_qp(&server);
	MUST(rdma_accept(server.id, &e->param.conn));
	MUST(rdma_ack_cm_event(e));
	FAILS(rdma_accept(server.id, NULL), EINVAL);
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	FAILS(rdma_accept(server.id, NULL), EINVAL);
	FAILS(rdma_reject(server.id, NULL, 0), EINVAL);
	FAILS(rdma_establish(client.id), EINVAL);
	FAILS(rdma_notify(server.id, IBV_EVENT_QP_FATAL), EINVAL);
	FAILS(rdma_listen(server.id, 1), EINVAL);
	MUST(rdma_create_id(NULL, &sync, NULL, RDMA_PS_TCP));
	FAILS(rdma_get_request(sync, &none), EINVAL); /* and does not wait */
	MUST(rdma_destroy_id(sync));
	send_and_receive(&client, &server);
	MUST(rdma_disconnect(client.id));
	MUST(rdma_disconnect(client.id));
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	FAILS(rdma_accept(server.id, NULL), EINVAL);
	MUST(rdma_disconnect(server.id));
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

static void both_may_disconnect_at_once(void)
{
	struct end listener, client, server;

	connect_pair(&listener, &client, &server);
	MUST(rdma_disconnect(client.id));
	MUST(rdma_disconnect(server.id));
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
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
}

/* Defined in the fake network of this process (fake_gsi.c). */
__attribute__((weak)) void fake_settle(void);

static void connect_and_exit(int fd, void *arg)
{
	struct end client;
	unsigned port;

	hear(fd, &port, sizeof(port));
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	exit(0);
}

static void a_program_that_just_ends_disconnects(void)
{
	struct end listener, server;
	struct rdma_cm_event *e;

	if (fake_settle)
		skip("one process");
	struct peer p = start(connect_and_exit, NULL);
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	tell(p.fd, &port, sizeof(port));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = (struct end){.ch = listener.ch, .id = e->id};
	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	finish(&p);
	drop_end(&server);
	drop_end(&listener);
}

static void connect_and_wait(int fd, void *arg)
{
	struct end client;
	unsigned port;

	hear(fd, &port, sizeof(port));
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	meet_up(fd);
	pause();
}

static void a_program_that_is_killed_is_disconnected(void)
{
	struct end listener, server;
	struct rdma_cm_event *e;

	if (fake_settle)
		skip("one process");
	struct peer p = start(connect_and_wait, NULL);
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	tell(p.fd, &port, sizeof(port));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = (struct end){.ch = listener.ch, .id = e->id};
	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	meet_up(p.fd);
	kill_peer(&p);
	next_is(server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&server);
	drop_end(&listener);
}

static void listen_and_wait(int fd, void *arg)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	tell(fd, &port, sizeof(port));
	fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	meet_up(fd);
	pause();
}

/* Between REQ and REP: long before the retries run out. */
static void a_listener_that_dies_with_a_request_in_hand_refuses_it(void)
{
	struct end client;
	struct rdma_cm_event got;
	unsigned port;

	if (fake_settle)
		skip("one process");
	struct peer p = start(listen_and_wait, NULL);

	hear(p.fd, &port, sizeof(port));
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	meet_up(p.fd);
	kill_peer(&p);
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, &got);
	CHECK(got.status);
	drop_end(&client);
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, &got);
	SAME(got.status, 8);
	drop_end(&client);
}

static void start_listening_again(struct end *e, unsigned port)
{
	union address a = at("127.0.0.1", port);

	*e = (struct end){.ch = rdma_create_event_channel()};
	CHECK(e->ch);
	MUST(rdma_create_id(e->ch, &e->id, e, RDMA_PS_TCP));
	MUST(rdma_bind_addr(e->id, &a.sa));
	MUST(rdma_listen(e->id, 4));
}

/* As in perftest. If too much time passes meanwhile, the request is rejected, and repeated. */
static void a_listener_made_anew_gets_what_came_meanwhile(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	enum rdma_cm_event_type type = RDMA_CM_EVENT_REJECTED;
	struct rdma_cm_event *e;

	for (int i = 0; i < 10 && type == RDMA_CM_EVENT_REJECTED; i++) {
		go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
		make_qp(&client);
		drop_end(&listener);
		MUST(rdma_connect(client.id, NULL));
		start_listening_again(&listener, port);
		for (int ms = 0; ms < 3000 && !event_waits(listener.ch) && !event_waits(client.ch); ms++)
			sleep_ms(1);
		if (event_waits(listener.ch)) {
			e = fetch(listener.ch, type = RDMA_CM_EVENT_CONNECT_REQUEST);
			MUST(rdma_reject(e->id, NULL, 0));
			MUST(rdma_destroy_id(e->id));
			MUST(rdma_ack_cm_event(e));
		}
		next_is(client.ch, RDMA_CM_EVENT_REJECTED, NULL);
		drop_end(&client);
	}
	SAME(type, RDMA_CM_EVENT_CONNECT_REQUEST);
	drop_end(&listener);
}

enum { BURST = 400 };

static void connect_all(struct rdma_event_channel *ch, struct rdma_cm_id **ids, struct sockaddr *to)
{
	struct rdma_conn_param param = {.retry_count = 7};

	for (int i = 0; i < BURST; i++) {
		MUST(rdma_create_id(ch, &ids[i], NULL, RDMA_PS_TCP));
		MUST(rdma_resolve_addr(ids[i], NULL, to, PATIENCE));
		next_is(ch, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
		MUST(rdma_resolve_route(ids[i], PATIENCE));
		next_is(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	}
	for (int i = 0; i < BURST; i++) {
		param.qp_num = 0x1000 + (uint32_t)i;
		MUST(rdma_connect(ids[i], &param));
	}
}

/* All at once, without a repetition: the first one would come after four seconds. */
static void a_burst_of_requests_loses_none(void)
{
	static struct rdma_cm_id *ids[BURST];
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 0);
	union address to = at("127.0.0.1", port);
	struct rdma_cm_event *e;

	CHECK(ch);
	connect_all(ch, ids, &to.sa);
	for (int i = 0; i < BURST; i++) {
		e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		MUST(rdma_reject(e->id, NULL, 0));
		MUST(rdma_destroy_id(e->id));
		MUST(rdma_ack_cm_event(e));
	}
	for (int i = 0; i < BURST; i++)
		next_is(ch, RDMA_CM_EVENT_REJECTED, NULL);
	for (int i = 0; i < BURST; i++)
		MUST(rdma_destroy_id(ids[i]));
	rdma_destroy_event_channel(ch);
	drop_end(&listener);
}

static void listen_at(struct end *e, const char *host, unsigned port, enum rdma_port_space ps)
{
	union address a = at(host, port);

	*e = (struct end){.ch = rdma_create_event_channel()};
	MUST(rdma_create_id(e->ch, &e->id, e, ps));
	MUST(rdma_bind_addr(e->id, &a.sa));
	MUST(rdma_listen(e->id, 4));
}

static void connect_to(struct end *client, struct end *server, struct end *listener, const char *host, unsigned port,
                       enum rdma_port_space ps)
{
	struct rdma_cm_event *e;

	go_to(client, host, port, ps);
	make_qp(client);
	MUST(rdma_connect(client->id, NULL));
	e = fetch(listener->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	*server = (struct end){.ch = listener->ch, .id = e->id};
	SAME(server->id->ps, ps);
	make_qp(server);
	MUST(rdma_accept(server->id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(client->ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(server->ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
}

/* The same port number in two port spaces means two services. */
static void a_port_is_one_of_its_port_space(void)
{
	static const char *const hosts[] = {"127.0.0.1", "::1"};
	struct end tcp, ib, client, server;

	for (int i = 0; i < 2; i++) {
		unsigned port = start_listening(&tcp, hosts[i], RDMA_PS_TCP, 4);

		listen_at(&ib, hosts[i], port, RDMA_PS_IB);
		connect_to(&client, &server, &ib, hosts[i], port, RDMA_PS_IB);
		CHECK(!event_waits(tcp.ch));
		send_and_receive(&client, &server);
		finish_pair(&ib, &client, &server);
		connect_to(&client, &server, &tcp, hosts[i], port, RDMA_PS_TCP);
		finish_pair(&tcp, &client, &server);
	}
}

/* 10,000 requests for a listener with a full backlog: none is accepted, and the listener works as before. */
static void a_storm_upon_a_full_backlog_passes(void)
{
	static struct rdma_cm_id *ids[BURST];
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct end listener, first;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 1);
	union address to = at("127.0.0.1", port);
	struct rdma_cm_event *e;

	CHECK(ch);
	go_to(&first, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&first);
	MUST(rdma_connect(first.id, NULL));
	while (!event_waits(listener.ch))
		sleep_ms(1);
	for (int n = 0; n < 10000; n += BURST) {
		connect_all(ch, ids, &to.sa);
		pass_on_requests();
		CHECK(!event_waits(ch));
		for (int i = 0; i < BURST; i++)
			MUST(rdma_destroy_id(ids[i]));
	}
	rdma_destroy_event_channel(ch);
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct end server = {.ch = listener.ch, .id = e->id};

	CHECK(!event_waits(listener.ch));
	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(first.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	finish_pair(&listener, &first, &server);
}

/* rdma_xclient sends inline without requesting it. */
static void a_queue_pair_has_room_for_inline_data_where_its_sges_are(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = qp_attr(NULL, IBV_QPT_RC);

	attr.cap.max_send_sge = 3;
	MUST(rdma_create_qp(client.id, NULL, &attr));
	CHECK(attr.cap.max_inline_data >= 3 * sizeof(struct ibv_sge));
	drop_end(&client);
	drop_end(&listener);
}

static void many_come_and_go(void)
{
	struct end listener, client, server;

	for (int i = 0; i < 50; i++) {
		connect_pair(&listener, &client, &server);
		finish_pair(&listener, &client, &server);
	}
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(a_connection_agrees_on_everything),
	        T(a_request_may_be_refused_with_words),
	        T(where_nobody_listens_the_request_is_refused),
	        T(private_data_and_parameters_have_limits),
	        T(no_more_requests_wait_than_the_backlog_allows),
	        T(what_waits_at_a_listener_goes_with_it),
	        T(destroying_waits_for_acknowledgements),
	        T(events_of_an_id_come_while_its_queue_pair_waits_for_an_acknowledgement),
	        T(an_id_moves_with_what_waits_for_it),
	        T(what_ids_did_ends_with_their_channel),
	        T(queue_pairs_may_be_the_programs_own),
	        T(endpoints_do_it_all_in_order),
	        T(an_endpoint_whose_type_nobody_names_has_that_of_its_port_space),
	        T(the_helpers_of_rdma_verbs_take_more_than_one_piece),
	        T(a_synchronous_connect_tells_that_it_was_refused),
	        T(shared_receive_queues_come_with_an_id),
	        T(queue_pairs_bring_their_completion_queues),
	        T(what_is_said_twice_or_too_late_changes_nothing),
	        T(both_may_disconnect_at_once),
	        T(destroying_an_id_disconnects_its_peer),
	        T(a_program_that_just_ends_disconnects),
	        T(a_program_that_is_killed_is_disconnected),
	        T(a_listener_that_dies_with_a_request_in_hand_refuses_it),
	        T(a_listener_made_anew_gets_what_came_meanwhile),
	        T(a_burst_of_requests_loses_none),
	        T(a_port_is_one_of_its_port_space),
	        T(a_storm_upon_a_full_backlog_passes),
	        T(a_queue_pair_has_room_for_inline_data_where_its_sges_are),
	        T(many_come_and_go),
	};

	return RUN_TESTS(argc, argv, tests);
}
