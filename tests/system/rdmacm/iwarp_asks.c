// iwarp_asks.c - iWARP devices connect to peers on plain sockets: normal, old and hostile ones
// follows: RFC 5044, 7.1; RFC 6581, 9; rdma_get_cm_event(3)
// SPDX-License-Identifier: MIT
#include <rdma/rdma_verbs.h>
#include <sys/socket.h>

#include "iwarp.h"
#include "mpa_peer.h"

static void start_asking(struct end *e, unsigned port, struct rdma_conn_param *p)
{
	go_to(e, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(e);
	SAME(state_of(e->id->qp), IBV_QPS_INIT);
	MUST(rdma_connect(e->id, p));
}

static void we_ask_by_revision_2(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	struct rdma_conn_param p = words("question", 3, 5);
	struct end client;

	start_asking(&client, port, &p);
	int fd = tcp_accept(at_port);
	struct heard h = listen_to(fd);

	CHECK(!h.reply && says(&h, "question"));
	SAME(h.revision, 2);
	SAME(h.flags, S);
	SAME(h.ird, A | B | 3);
	SAME(h.ord, WRITE | READ | 5);
	struct bytes b = enhanced(true, 0, A | 4, WRITE | 2, "answer", 6);

	say(fd, &b);
	struct rdma_cm_event *e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);

	CHECK(data_is(e, "answer"));
	SAME(e->param.conn.responder_resources, 2);
	SAME(e->param.conn.initiator_depth, 4);
	SAME(state_of(client.id->qp), IBV_QPS_RTS);
	SAME(port_of(fd, true), ntohs(rdma_get_src_port(client.id)));
	MUST(rdma_ack_cm_event(e));
	close(fd);
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	SAME(state_of(client.id->qp), IBV_QPS_ERR);
	drop_end(&client);
	lives(0);
}

static void who_knows_revision_1_alone_is_asked_once_more(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	struct rdma_conn_param p = words("question", 3, 5);
	struct end client;

	start_asking(&client, port, &p);
	int fd = tcp_accept(at_port);

	SAME(listen_to(fd).revision, 2);
	close(fd);
	fd = tcp_accept(at_port);
	struct heard h = listen_to(fd);

	CHECK(says(&h, "question"));
	SAME(h.revision, 1);
	SAME(h.flags, 0);
	struct bytes b = frame(true, 0, 1, "answer", 6);

	say(fd, &b);
	struct rdma_cm_event *e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);

	CHECK(data_is(e, "answer"));
	SAME(ntohs(rdma_get_src_port(client.id)), port_of(fd, true));
	MUST(rdma_ack_cm_event(e));
	MUST(rdma_disconnect(client.id));
	CHECK(ends(fd));
	close(fd);
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&client);
	lives(0);
}

static void who_closes_both_times_has_refused(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	struct rdma_cm_event event;
	struct end client;

	start_asking(&client, port, NULL);
	for (int i = 0; i < 2; i++)
		close(tcp_accept(at_port));
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, &event);
	SAME(event.status, -ECONNRESET);
	drop_end(&client);
	lives(0);
}

static void we_hear_a_refusal_with_its_words(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	struct end client;

	for (unsigned revision = 1; revision <= 2; revision++) {
		start_asking(&client, port, NULL);
		int fd = tcp_accept(at_port);
		struct bytes b = revision == 1 ? frame(true, R, 1, "never", 5) : enhanced(true, R, 0, 0, "never", 5);

		listen_to(fd);
		say(fd, &b);
		struct rdma_cm_event *e = fetch(client.ch, RDMA_CM_EVENT_REJECTED);

		SAME(e->status, -ECONNREFUSED);
		CHECK(data_is(e, "never"));
		MUST(rdma_ack_cm_event(e));
		CHECK(ends(fd));
		close(fd);
		drop_end(&client);
	}
	lives(0);
}

static void where_nobody_listens_is_a_refusal(void)
{
	unsigned port;
	struct rdma_cm_event event;
	struct end client;

	close(tcp_listen(&port));
	start_asking(&client, port, NULL);
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, &event);
	SAME(event.status, -ECONNREFUSED);
	drop_end(&client);
	lives(0);
}

static void what_is_no_reply_is_a_refusal(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	uint8_t much[600] = {0};
	struct bytes bad[] = {
	        frame(false, 0, 1, NULL, 0), frame(true, 0, 0, NULL, 0),
	        frame(true, 0, 3, NULL, 0),  frame(true, 0, 1, much, 513),
	        frame(true, S, 2, "123", 3), {.at = "220 mail.example ESMTP ready and waiting\r\n", .len = 42},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct rdma_cm_event event;
		struct end client;

		start_asking(&client, port, NULL);
		int fd = tcp_accept(at_port);

		listen_to(fd);
		say(fd, &bad[i]);
		next_is(client.ch, RDMA_CM_EVENT_REJECTED, &event);
		SAME(event.status, -ECONNRESET);
		CHECK(ends(fd));
		close(fd);
		drop_end(&client);
	}
	lives(0);
}

/* Its Terminate, as an FPDU: RFC 5044, 4; RFC 5041, 4.3; RFC 5040, 4.8. */
static unsigned terminated(int fd, bool marker)
{
	uint8_t at[64], *fpdu = at + (marker ? 4 : 0);
	size_t len = marker ? 32 : 28;

	SAME(recv(fd, at, sizeof(at), MSG_WAITALL), len); /* then it closes */
	SAME(fpdu[0] << 8 | fpdu[1], 18 + 4);
	SAME(fpdu[2], 0x41);
	SAME(fpdu[3], 0x47);
	CHECK(!memcmp(fpdu + 4, "\0\0\0\0\0\0\0\2\0\0\0\1\0\0\0\0", 16));
	CHECK(!fpdu[22] && !fpdu[23]);
	return (unsigned)(fpdu[20] << 8 | fpdu[21]);
}

static void a_reply_that_cannot_be_agreed_to_gets_a_terminate(void)
{
	const struct {
		unsigned flags, ird, ord, term;
		int status;
	} cases[] = {
	        {0, A | 4, WRITE | 4, 0x2006, -ENOMEM}, /* it wants four outstanding reads, we serve three */
	        {C | M, A | 4, WRITE | 4, 0x2006, -ENOMEM},
	        {0, A | 4, 2, 0x2007, -EPROTO}, /* no RTR message in common */
	};
	unsigned port;
	int at_port = tcp_listen(&port);

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct bytes b = enhanced(true, cases[i].flags, cases[i].ird, cases[i].ord, "answer", 6);
		struct rdma_conn_param p = words("question", 3, 5);
		struct end client;

		start_asking(&client, port, &p);
		int fd = tcp_accept(at_port);

		listen_to(fd);
		say(fd, &b);
		struct rdma_cm_event *e = fetch(client.ch, RDMA_CM_EVENT_CONNECT_ERROR);

		SAME(e->status, cases[i].status);
		CHECK(data_is(e, "answer"));
		SAME(e->param.conn.responder_resources, cases[i].ord & 0xff);
		MUST(rdma_ack_cm_event(e));
		SAME(terminated(fd, cases[i].flags & M), cases[i].term);
		close(fd);
		drop_end(&client);
	}
	REACHES(3, disagreed);
	lives(0);
}

static void a_reply_that_is_cut_anywhere_is_a_refusal(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	struct bytes b = enhanced(true, 0, A | 1, WRITE | 1, "word", 4);

	for (size_t i = 1; i < b.len; i++) {
		struct rdma_cm_event event;
		struct end client;

		start_asking(&client, port, NULL);
		int fd = tcp_accept(at_port);

		listen_to(fd);
		SAME(send(fd, b.at, i, 0), i);
		close(fd);
		next_is(client.ch, RDMA_CM_EVENT_REJECTED, &event);
		SAME(event.status, -ECONNRESET);
		drop_end(&client);
	}
	lives(0);
}

static void who_does_not_answer_is_unreachable(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	struct rdma_cm_event event;
	struct end client;

	vb_iwcm_hurry(100);
	start_asking(&client, port, NULL);
	int fd = tcp_accept(at_port);

	next_is(client.ch, RDMA_CM_EVENT_UNREACHABLE, &event);
	SAME(event.status, -ETIMEDOUT);
	CHECK(ends(fd));
	drop_end(&client);
	lives(0);
}

/* --- ids in every state --- */

static void an_id_is_destroyed_in_any_state(void)
{
	unsigned port, before = 0;
	int at_port = tcp_listen(&port);
	struct bytes reply = enhanced(true, 0, A | 4, WRITE | 2, NULL, 0);

	for (int stage = 0; stage < 6; stage++) {
		struct end client;
		int fd = -1;

		start_asking(&client, port, NULL);
		if (stage >= 1)
			fd = tcp_accept(at_port);
		if (stage >= 2)
			listen_to(fd);
		if (stage >= 3) {
			say(fd, &reply);
			while (!event_waits(client.ch))
				sleep_ms(1);
		}
		if (stage >= 4)
			next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
		if (stage >= 5) {
			close(fd);
			fd = -1;
			while (!event_waits(client.ch))
				sleep_ms(1);
		}
		drop_end(&client);
		if (fd >= 0) {
			CHECK(ends(fd));
			close(fd);
		}
		if (!stage)
			close(tcp_accept(at_port));
		lives(0);
		if (stage == 3)
			before = descriptors();
	}
	SAME(descriptors(), before);
}

static void the_id_may_go_before_its_queue_pair(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	struct bytes reply = enhanced(true, 0, A | 4, WRITE | 2, NULL, 0);
	struct end client;

	go_to(&client, "127.0.0.1", port, RDMA_PS_TCP);
	client.cq = ibv_create_cq(client.id->verbs, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = qp_attr(client.cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(client.id->pd, &attr);
	struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT};
	struct rdma_conn_param p = {.qp_num = qp->qp_num, .responder_resources = 2, .initiator_depth = 1};
	int mask;

	MUST(rdma_init_qp_attr(client.id, &to, &mask));
	CHECK(mask & IBV_QP_ACCESS_FLAGS);
	MUST(ibv_modify_qp(qp, &to, mask));
	MUST(rdma_connect(client.id, &p));
	int fd = tcp_accept(at_port);

	listen_to(fd);
	say(fd, &reply);
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	SAME(state_of(qp), IBV_QPS_RTS);
	MUST(rdma_destroy_id(client.id));
	CHECK(ends(fd));
	SAME(state_of(qp), IBV_QPS_ERR);
	MUST(ibv_destroy_qp(qp));
	MUST(ibv_destroy_cq(client.cq));
	lives(0);
}

static void a_listeners_port_is_free_at_once(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	union address a = at("127.0.0.1", port);
	int half = tcp_to(port);

	REACHES(1, accepted);
	for (int i = 0; i < 20; i++) {
		struct rdma_cm_id *next;

		MUST(rdma_destroy_id(listener.id));
		CHECK(i || ends(half));
		MUST(rdma_create_id(listener.ch, &next, NULL, RDMA_PS_TCP));
		MUST(rdma_bind_addr(next, &a.sa));
		MUST(rdma_listen(next, 4));
		listener.id = next;
	}
	SAME(stats().listening, 1);
	MUST(rdma_destroy_id(listener.id));
	lives(0);
}

static void a_port_that_a_plain_program_has_is_taken(void)
{
	unsigned port;
	int fd = tcp_listen(&port);
	union address a = at("127.0.0.1", port);
	struct rdma_cm_id *id;

	MUST(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(id, &a.sa));
	FAILS(rdma_listen(id, 4), EADDRINUSE);
	close(fd);
	MUST(rdma_listen(id, 4));
	MUST(rdma_destroy_id(id));
}

static void there_are_no_datagrams(void)
{
	struct end e;
	union address a = at("127.0.0.1", 0);
	struct rdma_cm_id *id;

	go_to(&e, "127.0.0.1", 4000, RDMA_PS_UDP);
	CHECK(e.id->verbs->device->transport_type == IBV_TRANSPORT_IWARP);
	struct ibv_cq *cq = ibv_create_cq(e.id->verbs, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = qp_attr(cq, IBV_QPT_UD);

	FAILS(rdma_create_qp(e.id, NULL, &attr), EOPNOTSUPP);
	FAILS(rdma_connect(e.id, &(struct rdma_conn_param){0}), EOPNOTSUPP);
	MUST(ibv_destroy_cq(cq));
	MUST(rdma_destroy_id(e.id));
	MUST(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP));
	MUST(rdma_bind_addr(id, &a.sa));
	FAILS(rdma_listen(id, 4), EOPNOTSUPP);
	MUST(rdma_destroy_id(id));
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(we_ask_by_revision_2),
	        T(who_knows_revision_1_alone_is_asked_once_more),
	        T(who_closes_both_times_has_refused),
	        T(we_hear_a_refusal_with_its_words),
	        T(where_nobody_listens_is_a_refusal),
	        T(what_is_no_reply_is_a_refusal),
	        T(a_reply_that_cannot_be_agreed_to_gets_a_terminate),
	        T(a_reply_that_is_cut_anywhere_is_a_refusal),
	        T(who_does_not_answer_is_unreachable),
	        T(an_id_is_destroyed_in_any_state),
	        T(the_id_may_go_before_its_queue_pair),
	        T(a_listeners_port_is_free_at_once),
	        T(a_port_that_a_plain_program_has_is_taken),
	        T(there_are_no_datagrams),
	};

	return RUN_TESTS(argc, argv, tests);
}
