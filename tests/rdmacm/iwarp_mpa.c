// iwarp_mpa.c - connections of iWARP devices with peers on plain sockets: kind ones, old ones, and those that mean harm
// follows: RFC 5044, 7.1; RFC 6581, 9; rdma_get_cm_event(3)
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <rdma/rdma_verbs.h>
#include <sys/socket.h>

#include "io/iwarp_cm.h"
#include "mpa_peer.h"

static struct vb_iwcm_stats stats(void)
{
	struct vb_iwcm_stats s;

	vb_iwcm_stats(&s);
	return s;
}

/* The adapter thread comes to it. */
static void lives(uint64_t n)
{
	for (int i = 0; i < 2000 && stats().live != n; i++)
		sleep_ms(5);
	CHECK_INT(stats().live, n);
}

static void reaches(uint64_t n, size_t counter)
{
	struct vb_iwcm_stats s;

	for (int i = 0; i < 2000; i++) {
		s = stats();
		if (*(uint64_t *)((char *)&s + counter) >= n)
			break;
		sleep_ms(5);
	}
	CHECK_INT(*(uint64_t *)((char *)&s + counter), n);
}
#define REACHES(n, name) reaches(n, offsetof(struct vb_iwcm_stats, name))

static bool data_is(const struct rdma_cm_event *e, const char *text)
{
	return e->param.conn.private_data_len == strlen(text) &&
	       !memcmp(e->param.conn.private_data, text, strlen(text));
}

static bool says(const struct heard *h, const char *text)
{
	return h->len == strlen(text) && !memcmp(h->data, text, h->len);
}

static struct rdma_conn_param words(const char *text, uint8_t responder_resources, uint8_t initiator_depth)
{
	return (struct rdma_conn_param){.private_data = text,
	                                .private_data_len = (uint8_t)strlen(text),
	                                .responder_resources = responder_resources,
	                                .initiator_depth = initiator_depth};
}

/* The next request, which has not been answered. */
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

/* --- we are asked --- */

static void revision_1_is_answered_with_revision_1(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, "hello", 5);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);
	struct rdma_conn_param answer = words("answer", 2, 3);

	CHECK(data_is(e, "hello"));
	CHECK_INT(e->param.conn.responder_resources, e->param.conn.initiator_depth);
	CHECK(e->param.conn.initiator_depth > 1);
	CHECK_INT(ntohs(rdma_get_dst_port(server.id)), port_of(fd, false));
	CHECK_INT(ntohs(rdma_get_src_port(server.id)), port);
	CHECK(server.id->verbs->device->transport_type == IBV_TRANSPORT_IWARP);
	make_qp(&server);
	MUST(rdma_accept(server.id, &answer));
	MUST(rdma_ack_cm_event(e));
	next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	struct heard h = listen_to(fd);

	CHECK(h.reply && says(&h, "answer"));
	CHECK_INT(h.revision, 1);
	CHECK_INT(h.flags, 0);
	CHECK_INT(state_of(server.id->qp), IBV_QPS_RTS);
	close(fd);
	next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(server.id));
	next_is(listener.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	drop_end(&server);
	drop_end(&listener);
	lives(0);
	CHECK_INT(stats().listening, 0);
}

/* The initiator should, but as long as it does not, nobody would say anything. */
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
	CHECK_INT(recv(fd, fpdu, sizeof(fpdu), MSG_WAITALL), sizeof(fpdu));
	CHECK(fpdu[1] == 24 && fpdu[3] == 0x43 && !memcmp(fpdu + 20, "hello", 6));
	poll_one(server.cq, &wc);
	next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	close(fd);
	next_is(listener.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&server);
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
	CHECK_INT(e->param.conn.responder_resources, 5);
	CHECK_INT(e->param.conn.initiator_depth, 3);
	make_qp(&server);
	MUST(rdma_accept(server.id, &answer));
	MUST(rdma_ack_cm_event(e));
	next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, &event);
	CHECK_INT(event.param.conn.responder_resources, 4);
	CHECK_INT(event.param.conn.initiator_depth, 2);
	struct heard h = listen_to(fd);

	CHECK(h.reply && !h.len);
	CHECK_INT(h.flags, S);
	CHECK_INT(h.revision, 2);
	CHECK_INT(h.ird, A | 4);
	CHECK_INT(h.ord, WRITE | 2);
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

		CHECK_INT(e->param.conn.private_data_len, 0);
		make_qp(&server);
		MUST(rdma_accept(server.id, &answer));
		MUST(rdma_ack_cm_event(e));
		next_is(listener.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
		CHECK_INT(listen_to(fd).flags, flags & C);
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
	CHECK_INT(listen_to(fd).flags, C | M);
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
	CHECK_INT(h.flags, R | S);
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
	CHECK_INT(listen_to(first).flags, R);
	int second = asks(port, &b);

	REACHES(2, requests);
	drop_end(&listener); /* with one in its queue */
	CHECK_INT(listen_to(second).flags, R);
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
	CHECK_INT(listen_to(fd[2]).flags, R);
	CHECK_INT(listen_to(fd[3]).flags, R);
	CHECK_INT(stats().refused, 2);
	drop_end(&listener);
	CHECK_INT(listen_to(fd[0]).flags, R);
}

static void accepting_one_who_has_gone_fails(void)
{
	struct end listener, server;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct bytes b = frame(false, 0, 1, NULL, 0);
	int fd = asks(port, &b);
	struct rdma_cm_event *e = requested(&listener, &server);

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

	CHECK_INT(send(fd, "more", 4, 0), 4);
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
		CHECK_INT(send(fd, b.at + i, 1, 0), 1);
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
			CHECK_INT(send(fd, b.at, i, 0), i);
		close(fd);
	}
	REACHES(b.len, lost);
	lives(0);
	CHECK_INT(stats().requests, 0);
	CHECK(!event_waits(listener.ch));
	drop_end(&listener);
}

static void what_is_no_request_is_closed(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 16);
	uint8_t much[600] = {0};
	struct bytes bad[] = {
	        frame(true, 0, 1, NULL, 0),          /* a reply */
	        frame(false, 0, 1, NULL, 0),         /* another key: below */
	        frame(false, 0, 0, NULL, 0),         /* revisions that do not exist */
	        frame(false, 0, 3, NULL, 0),
	        frame(false, R, 1, NULL, 0),         /* a request that rejects */
	        frame(false, R | S, 2, "1234", 4),
	        frame(false, 0, 1, much, 513),       /* private data: too much */
	        frame(false, 0, 1, much, 600),
	        frame(false, S, 2, "123", 3),        /* no room for the words */
	        frame(false, S, 2, NULL, 0),
	        frame(false, 0, 1, NULL, 0),         /* and something behind it: below */
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
	CHECK_INT(stats().malformed, n);
	lives(0);
	CHECK_INT(stats().requests, 0);
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

static unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
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
	CHECK_INT(descriptors(), before);
	CHECK(!event_waits(listener.ch));
	drop_end(&listener);
}

/* --- we ask --- */

static void start_asking(struct end *e, unsigned port, struct rdma_conn_param *p)
{
	go_to(e, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(e);
	CHECK_INT(state_of(e->id->qp), IBV_QPS_INIT);
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
	CHECK_INT(h.revision, 2);
	CHECK_INT(h.flags, S);
	CHECK_INT(h.ird, A | B | 3);
	CHECK_INT(h.ord, WRITE | READ | 5);
	struct bytes b = enhanced(true, 0, A | 4, WRITE | 2, "answer", 6);

	say(fd, &b);
	struct rdma_cm_event *e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);

	CHECK(data_is(e, "answer"));
	CHECK_INT(e->param.conn.responder_resources, 2);
	CHECK_INT(e->param.conn.initiator_depth, 4);
	CHECK_INT(state_of(client.id->qp), IBV_QPS_RTS);
	CHECK_INT(port_of(fd, true), ntohs(rdma_get_src_port(client.id)));
	MUST(rdma_ack_cm_event(e));
	close(fd);
	next_is(client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	CHECK_INT(state_of(client.id->qp), IBV_QPS_ERR);
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

	CHECK_INT(listen_to(fd).revision, 2);
	close(fd);
	fd = tcp_accept(at_port);
	struct heard h = listen_to(fd);

	CHECK(says(&h, "question"));
	CHECK_INT(h.revision, 1);
	CHECK_INT(h.flags, 0);
	struct bytes b = frame(true, 0, 1, "answer", 6);

	say(fd, &b);
	struct rdma_cm_event *e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);

	CHECK(data_is(e, "answer"));
	CHECK_INT(ntohs(rdma_get_src_port(client.id)), port_of(fd, true));
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
	CHECK_INT(event.status, -ECONNRESET);
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

		CHECK_INT(e->status, -ECONNREFUSED);
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
	CHECK_INT(event.status, -ECONNREFUSED);
	drop_end(&client);
	lives(0);
}

static void what_is_no_reply_is_a_refusal(void)
{
	unsigned port;
	int at_port = tcp_listen(&port);
	uint8_t much[600] = {0};
	struct bytes bad[] = {
	        frame(false, 0, 1, NULL, 0),
	        frame(true, 0, 0, NULL, 0),
	        frame(true, 0, 3, NULL, 0),
	        frame(true, 0, 1, much, 513),
	        frame(true, S, 2, "123", 3),
	        {.at = "220 mail.example ESMTP ready and waiting\r\n", .len = 42},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct rdma_cm_event event;
		struct end client;

		start_asking(&client, port, NULL);
		int fd = tcp_accept(at_port);

		listen_to(fd);
		say(fd, &bad[i]);
		next_is(client.ch, RDMA_CM_EVENT_REJECTED, &event);
		CHECK_INT(event.status, -ECONNRESET);
		CHECK(ends(fd));
		close(fd);
		drop_end(&client);
	}
	lives(0);
}

/* Its last words, as an FPDU: RFC 5044, 4; RFC 5041, 4.3; RFC 5040, 4.8. */
static unsigned terminated(int fd, bool marker)
{
	uint8_t at[64], *fpdu = at + (marker ? 4 : 0);
	size_t len = marker ? 32 : 28;

	CHECK_INT(recv(fd, at, sizeof(at), MSG_WAITALL), len); /* then it has closed */
	CHECK_INT(fpdu[0] << 8 | fpdu[1], 18 + 4);
	CHECK_INT(fpdu[2], 0x41);
	CHECK_INT(fpdu[3], 0x47);
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
	        {0, A | 4, WRITE | 4, 0x2006, -ENOMEM}, /* it would read four at once, we serve three */
	        {C | M, A | 4, WRITE | 4, 0x2006, -ENOMEM},
	        {0, A | 4, 2, 0x2007, -EPROTO}, /* no way to be ready */
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

		CHECK_INT(e->status, cases[i].status);
		CHECK(data_is(e, "answer"));
		CHECK_INT(e->param.conn.responder_resources, cases[i].ord & 0xff);
		MUST(rdma_ack_cm_event(e));
		CHECK_INT(terminated(fd, cases[i].flags & M), cases[i].term);
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
		CHECK_INT(send(fd, b.at, i, 0), i);
		close(fd);
		next_is(client.ch, RDMA_CM_EVENT_REJECTED, &event);
		CHECK_INT(event.status, -ECONNRESET);
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
	CHECK_INT(event.status, -ETIMEDOUT);
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
	CHECK_INT(descriptors(), before);
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
	CHECK_INT(state_of(qp), IBV_QPS_RTS);
	MUST(rdma_destroy_id(client.id));
	CHECK(ends(fd));
	CHECK_INT(state_of(qp), IBV_QPS_ERR);
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
	CHECK_INT(stats().listening, 1);
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
#define T(name) {#name, name, 60}
	static const struct test tests[] = {
	        T(revision_1_is_answered_with_revision_1),
	        T(a_responder_waits_for_the_first_message_but_not_for_ever),
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
	        T(thousands_who_come_and_go_leave_nothing),
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
