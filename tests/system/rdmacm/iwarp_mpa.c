// iwarp_mpa.c - peers on plain sockets connect to iWARP devices: normal, old and hostile ones
// follows: RFC 5044, 7.1; RFC 6581, 9; rdma_get_cm_event(3)
// SPDX-License-Identifier: MIT
#include <rdma/rdma_verbs.h>
#include <sys/socket.h>

#include "iwarp.h"
#include "mpa_peer.h"

/* The next request, not answered yet. */
static struct rdma_cm_event *requested(struct end *listener, struct end *server)
{
	struct rdma_cm_event *e = fetch(listener->ch, RDMA_CM_EVENT_CONNECT_REQUEST);

	*server = (struct end){.ch = listener->ch, .id = e->id};
	return e;
}

static int asks(unsigned port, const struct bytes *request)
{
	int fd = tcp_to(port);

	say(fd, request);
	return fd;
}

/* --- incoming requests --- */

static void revision_1_is_answered_with_revision_1(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, "hello", 5);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);
	struct rdma_conn_param answer = words("answer", 2, 3);

	CHECK(data_is(e, "hello"));
	SAME(e->param.conn.responder_resources, e->param.conn.initiator_depth);
	CHECK(e->param.conn.initiator_depth > 1);
	SAME(ntohs(rdma_get_dst_port(server.id)), port_of(fd, false));
	SAME(ntohs(rdma_get_src_port(server.id)), port);
	CHECK(server.id->verbs->device->transport_type == IBV_TRANSPORT_IWARP);
	make_qp(&server);
	MUST(rdma_accept(server.id, &answer));
	MUST(rdma_ack_cm_event(e));
	next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	struct heard h = listen_to(fd);

	CHECK(h.reply && says(&h, "answer"));
	SAME(h.revision, 1);
	SAME(h.flags, 0);
	SAME(state_of(server.id->qp), IBV_QPS_RTS);
	close(fd);
	next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(server.id));
	next_is(listener.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	drop_end(&server);
	drop_end(&listener);
	lives(0);
	SAME(stats().listening, 0);
}

/* The initiator should send first, but until it does, neither side would send anything. */
static void a_responder_waits_for_the_first_message_but_not_for_ever(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = enhanced(false, 0, 3, 5, "", 0);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);
	struct rdma_conn_param answer = words("", 2, 2);
	uint8_t fpdu[32];
	struct ibv_wc wc;

	make_qp(&server);
	MUST(rdma_accept(server.id, &answer));
	MUST(rdma_ack_cm_event(e));
	strcpy(server.buf, "hello");
	MUST(rdma_post_send(server.id, NULL, server.buf, 6, server.mr, IBV_SEND_SIGNALED));
	listen_to(fd);
	SAME(recv(fd, fpdu, sizeof(fpdu), MSG_WAITALL), sizeof(fpdu));
	CHECK(fpdu[1] == 24 && fpdu[3] == 0x43 && !memcmp(fpdu + 20, "hello", 6));
	poll_one(server.cq, &wc);
	next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	close(fd);
	next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&server);
	drop_end(&listener);
	lives(0);
}

/* As much as a frame holds, including the words of the enhanced setup. The program gets as much as fits its event. */
static void private_data_may_fill_its_frame(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	uint8_t much[512];

	memset(much, 'x', sizeof(much));
	for (unsigned revision = 1; revision <= 2; revision++) {
		struct bytes b = revision == 1 ? frame(false, 0, 1, much, 512) : enhanced(false, 0, 3, 5, much, 508);
		int fd = tcp_to(port);

		SAME(b.len, 20 + 512);
		SAME(send(fd, b.at, 19, 0), 19); /* within the length */
		has_arrived(fd);
		SAME(send(fd, b.at + 19, 500, 0), 500);
		has_arrived(fd);
		CHECK(!event_waits(listener.ch));
		SAME(send(fd, b.at + 519, b.len - 519, 0), b.len - 519);
		struct rdma_cm_event *e = requested(&listener, &server);

		SAME(e->param.conn.private_data_len, 255);
		CHECK(!memcmp(e->param.conn.private_data, much, 255));
		SAME(e->param.conn.initiator_depth, revision == 1 ? e->param.conn.responder_resources : 3);
		make_qp(&server);
		MUST(rdma_accept(server.id, NULL));
		MUST(rdma_ack_cm_event(e));
		next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
		SAME(listen_to(fd).revision, revision);
		close(fd);
		next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
		drop_end(&server);
	}
	drop_end(&listener);
	lives(0);
}

static void revision_2_agrees_on_depths_and_on_a_first_message(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, 4);
	struct bytes b = enhanced(false, 0, A | B | 3, WRITE | READ | 5, "question", 8);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server), event;
	struct rdma_conn_param answer = words("", 4, 2);

	CHECK(data_is(e, "question"));
	SAME(e->param.conn.responder_resources, 5);
	SAME(e->param.conn.initiator_depth, 3);
	make_qp(&server);
	MUST(rdma_accept(server.id, &answer));
	MUST(rdma_ack_cm_event(e));
	next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, &event);
	SAME(event.param.conn.responder_resources, 4);
	SAME(event.param.conn.initiator_depth, 2);
	struct heard h = listen_to(fd);

	CHECK(h.reply && !h.len);
	SAME(h.flags, S);
	SAME(h.revision, 2);
	SAME(h.ird, A | 4);
	SAME(h.ord, WRITE | 2);
	MUST(rdma_disconnect(server.id));
	CHECK(ends(fd));
	close(fd);
	next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&server);
	drop_end(&listener);
	lives(0);
}

static void a_crc_is_used_if_one_wants_it_and_markers_if_the_receiver_does(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	for (unsigned flags = 0; flags <= (M | C); flags += C) {
		struct bytes b = frame(false, flags, 1, NULL, 0);
		int fd = asks(port, &b);
		struct rdma_cm_event *e = requested(&listener, &server);
		struct rdma_conn_param answer = words("", 1, 1);

		SAME(e->param.conn.private_data_len, 0);
		make_qp(&server);
		MUST(rdma_accept(server.id, &answer));
		MUST(rdma_ack_cm_event(e));
		next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
		SAME(listen_to(fd).flags, flags & C);
		close(fd);
		next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
		drop_end(&server);
	}
	drop_end(&listener);
}

static void the_environment_asks_for_a_crc_and_markers(void)
{
	struct end listener, server;

	setenv("VERBENA_MPA", "markers,crc", 1);
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, NULL, 0);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);
	struct rdma_conn_param answer = words("", 1, 1);

	make_qp(&server);
	MUST(rdma_accept(server.id, &answer));
	MUST(rdma_ack_cm_event(e));
	SAME(listen_to(fd).flags, C | M);
}

static void a_refusal_brings_its_words(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = enhanced(false, 0, A | B | 3, WRITE | 5, "please", 6);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);

	MUST(rdma_reject(server.id, "no", 2));
	FAILS(rdma_reject(server.id, "no", 2), EINVAL);
	FAILS(rdma_accept(server.id, &(struct rdma_conn_param){.qp_num = 1}), EINVAL);
	MUST(rdma_ack_cm_event(e));
	MUST(rdma_destroy_id(server.id));
	struct heard h = listen_to(fd);

	CHECK(h.reply && says(&h, "no"));
	SAME(h.flags, R | S);
	CHECK(ends_in_order(fd));
	close(fd);
	lives(0);
	drop_end(&listener);
}

static void what_is_not_answered_is_refused(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, "please", 6);
	int first = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);

	MUST(rdma_ack_cm_event(e));
	MUST(rdma_destroy_id(server.id));
	SAME(listen_to(first).flags, R);
	int second = asks(port, &b);

	REACHES(2, requests);
	drop_end(&listener); /* with one connection in its queue */
	SAME(listen_to(second).flags, R);
	CHECK(ends_in_order(first) && ends_in_order(second));
	close(first);
	close(second);
	lives(0);
}

static void no_more_requests_wait_than_the_backlog_allows(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 2);
	struct bytes b = frame(false, 0, 1, NULL, 0);
	int fd[4];

	for (unsigned i = 0; i < 4; i++) {
		fd[i] = asks(port, &b);
		REACHES(i + 1, requests);
	}
	SAME(listen_to(fd[2]).flags, R);
	SAME(listen_to(fd[3]).flags, R);
	REACHES(2, refused);
	drop_end(&listener);
	SAME(listen_to(fd[0]).flags, R);
}

static void accepting_one_who_has_gone_fails(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, NULL, 0);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);

	MUST(shutdown(fd, SHUT_WR));
	has_arrived(fd);
	close(fd);
	make_qp(&server);
	FAILS(rdma_accept(server.id, NULL), ECONNRESET);
	MUST(rdma_ack_cm_event(e));
	CHECK(!event_waits(listener.ch));
	drop_end(&server);
	drop_end(&listener);
	lives(0);
}

static void one_who_says_more_before_the_answer_is_not_accepted(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, NULL, 0);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);

	SAME(send(fd, "more", 4, 0), 4);
	has_arrived(fd);
	make_qp(&server);
	FAILS(rdma_accept(server.id, NULL), ECONNRESET);
	MUST(rdma_ack_cm_event(e));
	drop_end(&server);
	drop_end(&listener);
}

static void a_request_may_come_byte_by_byte(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = enhanced(false, 0, 1, 1, "slowly", 6);
	int fd = tcp_to(port), one = 1;

	setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
	for (size_t i = 0; i < b.len; i++) {
		SAME(send(fd, b.at + i, 1, 0), 1);
		sleep_ms(1);
	}
	struct rdma_cm_event *e = requested(&listener, &server);

	CHECK(data_is(e, "slowly"));
	MUST(rdma_ack_cm_event(e));
	MUST(rdma_destroy_id(server.id));
	drop_end(&listener);
}

static void what_is_cut_anywhere_leaves_nothing(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = enhanced(false, 0, A | 1, WRITE | 1, "private data", 12);

	for (size_t i = 0; i < b.len; i++) {
		int fd = tcp_to(port);

		if (i)
			SAME(send(fd, b.at, i, 0), i);
		close(fd);
	}
	REACHES(b.len, lost);
	lives(0);
	SAME(stats().requests, 0);
	CHECK(!event_waits(listener.ch));
	drop_end(&listener);
}

static void what_is_no_request_is_closed(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 16);
	uint8_t much[600] = {0};
	struct bytes bad[] = {
	        frame(true, 0, 1, NULL, 0),  /* a reply */
	        frame(false, 0, 1, NULL, 0), /* another key: below */
	        frame(false, 0, 0, NULL, 0), /* unknown revisions */
	        frame(false, 0, 3, NULL, 0),
	        frame(false, R, 1, NULL, 0), /* a request that rejects */
	        frame(false, R | S, 2, "1234", 4),
	        frame(false, 0, 1, much, 513), /* too much private data */
	        frame(false, 0, 1, much, 600),
	        frame(false, S, 2, "123", 3), /* no room for the words of the enhanced setup */
	        frame(false, S, 2, NULL, 0),
	        frame(false, 0, 1, NULL, 0), /* and data after it: see below */
	        {.at = "GET / HTTP/1.1\r\nHost: example\r\n\r\n", .len = 33},
	};
	size_t n = sizeof(bad) / sizeof(*bad);

	bad[1].at[15] = 'E';
	bad[10].len += 1;
	for (size_t i = 0; i < n; i++) {
		int fd = asks(port, &bad[i]);

		CHECK(ends(fd));
		close(fd);
	}
	REACHES(n, malformed);
	lives(0);
	SAME(stats().requests, 0);
	CHECK(!event_waits(listener.ch));
	drop_end(&listener);
}

static void one_who_does_not_finish_is_closed(void)
{
	struct end listener;

	vb_iwcm_hurry(20);
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = {.at = "MPA ID Req", .len = 10};
	int silent = tcp_to(port), slow = asks(port, &b);

	CHECK(ends(silent) && ends(slow));
	REACHES(2, expired);
	lives(0);
	drop_end(&listener);
}

static int tcp_from(const char *host, unsigned port)
{
	union address a = at("127.0.0.1", port), own = at(host, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	MUST(bind(fd, &own.sa, sizeof(own.sin)));
	MUST(connect(fd, &a.sa, sizeof(a.sin)));
	return fd;
}

static void a_crowd_of_one_host_crowds_out_its_own(void)
{
	enum { CROWD = 300 };
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, "here", 4);
	int fd = tcp_to(port), crowd[CROWD];

	CHECK(send(fd, b.at, 10, MSG_NOSIGNAL) == 10); /* the rest arrives slowly */
	REACHES(1, accepted);
	for (unsigned i = 0; i < CROWD; i++)
		crowd[i] = tcp_from("127.0.0.2", port);
	REACHES(CROWD + 1, accepted);
	CHECK(send(fd, b.at + 10, b.len - 10, MSG_NOSIGNAL) == (ssize_t)b.len - 10);
	struct rdma_cm_event *e = requested(&listener, &server);

	CHECK(data_is(e, "here"));
	MUST(rdma_ack_cm_event(e));
	MUST(rdma_destroy_id(server.id));
	close(fd);
	for (unsigned i = 0; i < CROWD; i++)
		close(crowd[i]);
	lives(0);
	drop_end(&listener);
}

static void many_who_say_nothing_keep_nobody_out(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, "here", 4);
	int fd[300];

	for (size_t i = 0; i < 300; i++)
		fd[i] = tcp_to(port);
	int mine = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);

	CHECK(data_is(e, "here"));
	CHECK(stats().live <= 129);
	MUST(rdma_ack_cm_event(e));
	MUST(rdma_destroy_id(server.id));
	close(mine);
	for (size_t i = 0; i < 300; i++)
		close(fd[i]);
	lives(0);
	drop_end(&listener);
}

static void thousands_who_come_and_go_leave_nothing(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4), before = descriptors();
	const unsigned n = under_sanitizer() ? 500 : 3000;

	for (unsigned i = 0; i < n; i++)
		close(tcp_to(port));
	REACHES(n, accepted);
	lives(0);
	SAME(descriptors(), before);
	CHECK(!event_waits(listener.ch));
	drop_end(&listener);
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(revision_1_is_answered_with_revision_1),
	        T(a_responder_waits_for_the_first_message_but_not_for_ever),
	        T(private_data_may_fill_its_frame),
	        T(revision_2_agrees_on_depths_and_on_a_first_message),
	        T(a_crc_is_used_if_one_wants_it_and_markers_if_the_receiver_does),
	        T(the_environment_asks_for_a_crc_and_markers),
	        T(a_refusal_brings_its_words),
	        T(what_is_not_answered_is_refused),
	        T(no_more_requests_wait_than_the_backlog_allows),
	        T(accepting_one_who_has_gone_fails),
	        T(one_who_says_more_before_the_answer_is_not_accepted),
	        T(a_request_may_come_byte_by_byte),
	        T(what_is_cut_anywhere_leaves_nothing),
	        T(what_is_no_request_is_closed),
	        T(one_who_does_not_finish_is_closed),
	        T(many_who_say_nothing_keep_nobody_out),
	        T(a_crowd_of_one_host_crowds_out_its_own),
	        T(thousands_who_come_and_go_leave_nothing),
	};

	return RUN_TESTS(argc, argv, tests);
}
