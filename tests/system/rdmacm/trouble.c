// trouble.c - a network that loses and repeats, and peers that send arbitrary messages
// follows: IBA volume 1, 12.9 (retries, stale connections), 12.6 (messages)
// SPDX-License-Identifier: MIT
#include <rdma/rdma_verbs.h>

#include "cm.h"
#include "fake_gsi.h"
#include "frame/cm.h"

enum { ATTR_AT = 16 }; /* of the attribute id in a MAD */

static unsigned attr_of(const uint8_t mad[VB_MAD_LEN])
{
	return (unsigned)mad[ATTR_AT] << 8 | mad[ATTR_AT + 1];
}

static unsigned unlucky, lost, to_lose;

static bool lose_first(const uint8_t mad[VB_MAD_LEN])
{
	if (attr_of(mad) != unlucky || lost >= to_lose)
		return false;
	lost++;
	return true;
}

static void losing(unsigned attr, unsigned n)
{
	unlucky = attr;
	lost = 0;
	to_lose = n;
	fake_drop = lose_first;
}

static void each_message_may_be_lost(void)
{
	static const unsigned attrs[] = {VB_CM_REQ, VB_CM_REP, VB_CM_RTU, VB_CM_DREQ, VB_CM_DREP};

	fake_speed = 20; /* fifteen repetitions are three seconds: time to accept */
	for (unsigned i = 0; i < sizeof(attrs) / sizeof(*attrs); i++) {
		struct end listener, client, server;

		losing(attrs[i], 2);
		connect_pair(&listener, &client, &server);
		finish_pair(&listener, &client, &server);
		SAME(lost, 2);
	}
}

static void a_datagram_service_is_asked_again(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_UDP, 4);
	struct rdma_cm_event *e;

	fake_speed = 20; /* fifteen repetitions are three seconds: time to accept */
	losing(VB_CM_SIDR_REQ, 3);
	go_to(&client, "127.0.0.1", port, RDMA_PS_UDP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	SAME(lost, 3);
	make_qp(&(struct end){.id = e->id, .ch = listener.ch});
	MUST(rdma_accept(e->id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	rdma_destroy_qp(e->id);
	MUST(rdma_destroy_id(e->id));
	MUST(rdma_ack_cm_event(e));
	drop_end(&client);
	drop_end(&listener);
}

static void silence_ends_in_unreachable(void)
{
	struct rdma_cm_event got;
	struct end client;

	fake_speed = 2000;
	losing(VB_CM_REQ, 1000);
	go_to(&client, "127.0.0.1", 5, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_UNREACHABLE, &got);
	SAME(got.status, -ETIMEDOUT);
	SAME(lost, 16);
	drop_end(&client);
}

static void data_before_the_rtu_may_establish(void)
{
	struct end listener, client, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	losing(VB_CM_RTU, 1000);
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = (struct end){.ch = listener.ch, .id = e->id};
	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	FAILS(rdma_notify(server.id, IBV_EVENT_PATH_MIG), EINVAL);
	MUST(rdma_notify(server.id, IBV_EVENT_COMM_EST));
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	finish_pair(&listener, &client, &server);
}

/* A client whose RTU is lost sends a message, and the server receives it. */
static void talk_without_rtu(struct end *listener, struct end *client, struct end *server)
{
	unsigned port = start_listening(listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;
	struct ibv_wc wc;

	losing(VB_CM_RTU, 1000);
	go_to(client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(client);
	MUST(rdma_connect(client->id, NULL));
	e = fetch(listener->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	*server = (struct end){.ch = listener->ch, .id = e->id};
	make_qp(server);
	MUST(rdma_post_recv(server->id, NULL, server->buf, 100, server->mr));
	MUST(rdma_accept(server->id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(client->ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	MUST(rdma_post_send(client->id, NULL, client->buf, 6, client->mr, 0));
	poll_one(server->cq, &wc);
	CHECK(!event_waits(server->ch));
}

static void an_id_that_has_received_data_disconnects_its_peer(void)
{
	struct end listener, client, server;

	talk_without_rtu(&listener, &client, &server);
	drop_end(&server);
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&client);
	drop_end(&listener);
	talk_without_rtu(&listener, &client, &server);
	MUST(rdma_disconnect(server.id));
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	drop_end(&server);
	drop_end(&client);
	drop_end(&listener);
}

/* While the backlog is full requesters retry, and none is rejected. */
static void a_crowd_gets_in_although_few_may_wait(void)
{
	enum { CROWD = 100, BACKLOG = 20 };
	static struct rdma_cm_id *ids[CROWD], *served[CROWD];
	struct rdma_conn_param param = {.retry_count = 7};
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, BACKLOG), n = 0;
	union address to = at("127.0.0.1", port);
	struct rdma_cm_event *e;

	for (unsigned i = 0; i < CROWD; i++) {
		MUST(rdma_create_id(listener.ch, &ids[i], NULL, RDMA_PS_TCP));
		MUST(rdma_resolve_addr(ids[i], NULL, &to.sa, PATIENCE));
		next_is(listener.ch, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
		MUST(rdma_resolve_route(ids[i], PATIENCE));
		next_is(listener.ch, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	}
	for (unsigned i = 0; i < CROWD; i++) {
		param.qp_num = 0x1000 + i;
		MUST(rdma_connect(ids[i], &param));
	}
	fake_settle();
	fake_speed = 4; /* later there is room */
	for (unsigned established = 0; established < CROWD;) {
		MUST(rdma_get_cm_event(listener.ch, &e));
		switch (e->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			param.qp_num = 0x2000 + n;
			CHECK(n < CROWD);
			served[n++] = e->id;
			MUST(rdma_accept(e->id, &param));
			break;
		case RDMA_CM_EVENT_CONNECT_RESPONSE:
			MUST(rdma_establish(e->id));
			break;
		default:
			SAME(e->event, RDMA_CM_EVENT_ESTABLISHED);
			established++;
		}
		MUST(rdma_ack_cm_event(e));
	}
	for (unsigned i = 0; i < CROWD; i++) {
		MUST(rdma_destroy_id(ids[i]));
		MUST(rdma_destroy_id(served[i]));
	}
	drop_end(&listener);
}

/* A REQ as a peer at `from` could send it. */
static void forge(struct vb_cm_msg *msg, unsigned port, const uint8_t from[16], const uint8_t to[16])
{
	struct vb_cma hdr = {.src_port = 99};

	*msg = (struct vb_cm_msg){.attr = VB_CM_REQ,
	                          .tid = 1,
	                          .req = {.local_comm_id = 77,
	                                  .service_id = vb_cm_service_id(VB_PS_TCP, (uint16_t)port),
	                                  .local_qpn = 55,
	                                  .mtu = IBV_MTU_1024,
	                                  .max_cm_retries = 15,
	                                  .initiator_depth = 255,
	                                  .responder_resources = 255}};
	memcpy(hdr.src, from, 16);
	memcpy(hdr.dst, to, 16);
	memcpy(msg->req.primary.local_gid, from, 16);
	memcpy(msg->req.primary.remote_gid, to, 16);
	vb_cma_encode(msg->req.private_data, &hdr);
}

static void inject(const struct vb_cm_msg *msg, const uint8_t from[16], const uint8_t to[16])
{
	uint8_t mad[VB_MAD_LEN];

	vb_cm_encode(mad, msg);
	fake_inject(to, from, mad, sizeof(mad));
	fake_settle();
}

static const uint8_t loopback[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static const uint8_t stranger[16] = {[10] = 0xff, 0xff, 203, 0, 113, 9};
static const uint8_t third[16] = {[10] = 0xff, 0xff, 198, 51, 100, 9};

static void nobody_has_our_packets_sent_to_a_third(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;
	struct vb_cm_msg msg;

	forge(&msg, port, stranger, loopback);
	memcpy(msg.req.primary.local_gid, third, 16);
	inject(&msg, stranger, loopback);
	CHECK(!event_waits(listener.ch));
	/* for an address that is not ours, which is noticed when it is fetched */
	forge(&msg, port, stranger, third);
	inject(&msg, stranger, third);
	forge(&msg, port, stranger, loopback);
	msg.req.local_comm_id = 78;
	msg.req.local_qpn = 56;
	inject(&msg, stranger, loopback);
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	SAME(e->param.conn.qp_num, 56);
	/* it does not get more than the adapter supports */
	struct end server = {.ch = listener.ch, .id = e->id};

	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	drop_end(&server);
	drop_end(&listener);
}

static void headers_that_are_none_are_refused(void)
{
	struct end listener, ud;
	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, 4);
	struct vb_cm_msg msg;

	start_listening(&ud, "0.0.0.0", RDMA_PS_UDP, 4);
	forge(&msg, port, stranger, loopback);
	msg.req.private_data[1] = 0x70; /* neither IPv4 nor IPv6 */
	inject(&msg, stranger, loopback);
	forge(&msg, port, stranger, loopback);
	msg.req.transport = VB_CM_UC;
	inject(&msg, stranger, loopback);
	forge(&msg, port, stranger, loopback);
	msg.req.service_id = 42;
	inject(&msg, stranger, loopback);
	/* a connection for a datagram service */
	forge(&msg, ntohs(rdma_get_src_port(ud.id)), stranger, loopback);
	msg.req.service_id = vb_cm_service_id(VB_PS_UDP, ntohs(rdma_get_src_port(ud.id)));
	inject(&msg, stranger, loopback);
	CHECK(!event_waits(listener.ch) && !event_waits(ud.ch));
	drop_end(&listener);
	drop_end(&ud);
}

/* Requesters that stay silent do not get beyond the backlog, and those that the program has accepted time out. */
static void forged_requests_leave_nothing_behind(void)
{
	enum { FORGED = 10000, BACKLOG = 64, ACCEPTED = 8 };
	static struct rdma_cm_event *requests[BACKLOG];
	static struct end accepted[ACCEPTED];
	struct end listener, client, server;
	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, BACKLOG);
	struct rdma_cm_event *e;
	struct vb_cm_msg msg;
	uint8_t mad[VB_MAD_LEN];

	fake_speed = 20;
	losing(VB_CM_REP, ~0u);
	for (unsigned i = 0; i < FORGED; i++) {
		forge(&msg, port, stranger, loopback);
		msg.tid = i;
		msg.req.local_comm_id = 1000 + i;
		msg.req.local_qpn = 1000 + i;
		vb_cm_encode(mad, &msg);
		fake_inject(loopback, stranger, mad, sizeof(mad));
		if (i % 64 == 63)
			fake_settle();
	}
	fake_settle();
	for (unsigned i = 0; i < BACKLOG; i++)
		requests[i] = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!event_waits(listener.ch));
	for (unsigned i = 0; i < BACKLOG; i++) {
		if (i < ACCEPTED) {
			accepted[i] = (struct end){.ch = listener.ch, .id = requests[i]->id};
			make_qp(&accepted[i]);
			MUST(rdma_accept(requests[i]->id, NULL));
		} else {
			MUST(rdma_destroy_id(requests[i]->id));
		}
		MUST(rdma_ack_cm_event(requests[i]));
	}
	for (unsigned i = 0; i < ACCEPTED; i++)
		next_is(listener.ch, RDMA_CM_EVENT_UNREACHABLE, NULL);
	for (unsigned i = 0; i < ACCEPTED; i++)
		drop_end(&accepted[i]);
	fake_drop = NULL;
	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = (struct end){.ch = listener.ch, .id = e->id};
	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	finish_pair(&listener, &client, &server);
}

static void one_host_fills_half_a_backlog(void)
{
	enum { BACKLOG = 128, FORGED = 300 };
	struct end listener;
	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, BACKLOG), of_stranger = 0, of_third = 0;
	struct rdma_cm_event *e;
	struct vb_cm_msg msg;

	for (unsigned i = 0; i <= FORGED; i++) {
		const uint8_t *from = i == FORGED ? third : stranger;

		forge(&msg, port, from, loopback);
		msg.tid = i;
		msg.req.local_comm_id = 1000 + i;
		msg.req.local_qpn = 1000 + i;
		inject(&msg, from, loopback);
	}
	while (event_waits(listener.ch)) {
		e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		const struct sockaddr_in *a = (struct sockaddr_in *)rdma_get_peer_addr(e->id);

		of_stranger += !memcmp(&a->sin_addr, stranger + 12, 4);
		of_third += !memcmp(&a->sin_addr, third + 12, 4);
		MUST(rdma_destroy_id(e->id));
		MUST(rdma_ack_cm_event(e));
	}
	SAME(of_stranger, BACKLOG / 2);
	SAME(of_third, 1);
	drop_end(&listener);
}

/* Messages of a live connection with changed bytes: the connection may end, but the program must not. */
static uint8_t caught[64][VB_MAD_LEN];
static unsigned n_caught;

static bool catch_all(const uint8_t mad[VB_MAD_LEN])
{
	unsigned i = __atomic_fetch_add(&n_caught, 1, __ATOMIC_RELAXED);

	CHECK(i < 64);
	memcpy(caught[i], mad, VB_MAD_LEN);
	return false;
}

static void drain(struct rdma_event_channel *ch)
{
	while (event_waits(ch)) {
		struct rdma_cm_event *e;

		MUST(rdma_get_cm_event(ch, &e));
		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			MUST(rdma_destroy_id(e->id));
		MUST(rdma_ack_cm_event(e));
	}
}

static void changed_messages_do_no_harm(void)
{
	struct end listener, client, server;
	uint64_t seed = 42;

	fake_drop = catch_all;
	connect_pair(&listener, &client, &server);
	fake_settle();
	fake_drop = NULL;
	for (unsigned long i = 0; i < count_or(20000); i++) {
		uint8_t mad[VB_MAD_LEN];
		size_t len = random_next(&seed) % 16 ? sizeof(mad) : random_next(&seed) % sizeof(mad);

		memcpy(mad, caught[random_next(&seed) % n_caught], sizeof(mad));
		for (unsigned k = random_next(&seed) % 4; k; k--)
			mad[random_next(&seed) % sizeof(mad)] = (uint8_t)random_next(&seed);
		fake_inject(loopback, random_next(&seed) % 4 ? loopback : stranger, mad, len);
		if (i % 64 == 0) {
			fake_settle();
			drain(listener.ch);
			drain(client.ch);
		}
	}
	fake_settle();
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
	connect_pair(&listener, &client, &server);
	finish_pair(&listener, &client, &server);
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(each_message_may_be_lost),
	        T(a_datagram_service_is_asked_again),
	        T(silence_ends_in_unreachable),
	        T(data_before_the_rtu_may_establish),
	        T(an_id_that_has_received_data_disconnects_its_peer),
	        T(a_crowd_gets_in_although_few_may_wait),
	        T(nobody_has_our_packets_sent_to_a_third),
	        T(headers_that_are_none_are_refused),
	        T(forged_requests_leave_nothing_behind),
	        T(one_host_fills_half_a_backlog),
	        T(changed_messages_do_no_harm),
	};

	return RUN_TESTS(argc, argv, tests);
}
