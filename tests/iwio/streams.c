// streams.c - queue pairs on TCP connections: what arrives, what is refused, and how it ends
// follows: RFC 5040, RFC 5044, RFC 7306; ARCHITECTURE.md, "iWARP"
// SPDX-License-Identifier: MIT
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/device.h"
#include "core/verbs.h"
#include "stream.h"

#define BIG (3u << 20)

static void open_iwarp(struct dev *d)
{
	setenv("VERBENA_DEVICES", "iwarp:lo", 1);
	dev_open(d);
	CHECK(vb_ctx(d->ctx)->dev->iwarp);
}

/* --- every operation, of every length --- */

static const uint32_t lengths[] = {0, 1, 7, 8, 64, 1000, 1400, 1460, 4095, 4096, 65000, 65536, 70001, 1 << 20, BIG};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void mixed_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m, got;
	char c;

	how = *(struct stream *)arg;
	open_iwarp(&d);
	mem_make(&m, &d, BIG + 64);
	mem_make(&got, &d, BIG);
	link_make(&l, &d, &(struct conf){.rdepth = 64});
	for (unsigned i = 0; i <= LENGTHS; i++)
		post_recv(&l, i, &got, 0, BIG);
	mem_tell(&m, fd);
	stream_join(&l, fd);
	for (unsigned i = 0; i < LENGTHS; i++) {
		struct ibv_wc wc = expect(l.rcq, i, IBV_WC_SUCCESS);

		CHECK_INT(wc.byte_len, lengths[i]);
		CHECK(holds(got.p, lengths[i], i + 1));
		memset(got.p, 0, lengths[i]);
		meet_up(fd);
	}
	struct ibv_wc wc = expect(l.rcq, LENGTHS, IBV_WC_SUCCESS);

	CHECK_INT(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x12345678 && holds(m.p, 70000, 99));
	hear(fd, &c, 1);
	CHECK_INT(*(uint64_t *)(m.p + BIG), 5);
	link_end(&l);
}

static void every_operation(const struct stream *s)
{
	struct peer p = start(mixed_peer, (void *)s);
	struct dev d;
	struct link l;
	struct mem m;

	how = *s;
	open_iwarp(&d);
	mem_make(&m, &d, 2 * BIG);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	for (unsigned i = 0; i < LENGTHS; i++) {
		uint32_t n = lengths[i];

		fill(m.p, n, i + 100);
		POST(&l, IBV_WR_RDMA_WRITE, 1, &m, 0, n, .far = far);
		POST(&l, IBV_WR_RDMA_READ, 2, &m, BIG, n, .far = far);
		expect(l.scq, 1, IBV_WC_SUCCESS);
		expect(l.scq, 2, IBV_WC_SUCCESS);
		CHECK(holds(m.p + BIG, n, i + 100));
		fill(m.p, n, i + 1);
		POST(&l, IBV_WR_SEND, 3, &m, 0, n);
		expect(l.scq, 3, IBV_WC_SUCCESS);
		meet_up(p.fd);
	}
	fill(m.p, 70000, 99);
	POST(&l, IBV_WR_RDMA_WRITE_WITH_IMM, 3, &m, 0, 70000, .far = far, .imm = 0x12345678);
	expect(l.scq, 3, IBV_WC_SUCCESS);
	POST(&l, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, &m, 0, 8, .far = far, .far_off = BIG, .compare_add = 3);
	POST(&l, IBV_WR_ATOMIC_CMP_AND_SWP, 5, &m, 8, 8, .far = far, .far_off = BIG, .compare_add = 3, .swap = 5);
	expect(l.scq, 4, IBV_WC_SUCCESS);
	expect(l.scq, 5, IBV_WC_SUCCESS);
	CHECK_INT(*(uint64_t *)m.p, 0);
	CHECK_INT(*(uint64_t *)(m.p + 8), 3);
	tell(p.fd, "e", 1);
	finish(&p);
	expect_none(l.scq, 20);
}

static void every_operation_plain(void)
{
	every_operation(&(struct stream){0});
}

static void every_operation_with_crc(void)
{
	every_operation(&(struct stream){.crc = true});
}

static void every_operation_with_markers(void)
{
	every_operation(&(struct stream){.markers = true});
}

static void every_operation_with_crc_and_markers(void)
{
	every_operation(&(struct stream){.crc = true, .markers = true});
}

static void every_operation_after_a_ready_to_receive_write(void)
{
	every_operation(&(struct stream){.crc = true, .rtr = VB_IW_RTR_WRITE});
}

static void every_operation_after_a_ready_to_receive_read(void)
{
	every_operation(&(struct stream){.rtr = VB_IW_RTR_READ, .ird = 1, .ord = 1});
}

/* --- many at once --- */

#define MESSAGES 20000u
#define WINDOW 32u

static void sink_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc;
	bool sleeps = arg;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	void *ctx;

	open_iwarp(&d);
	mem_make(&m, &d, 2 * WINDOW * 4096);
	CHECK((ch = ibv_create_comp_channel(d.ctx)));
	link_make(&l, &d, &(struct conf){.rdepth = 2 * WINDOW, .channel = ch});
	for (unsigned i = 0; i < 2 * WINDOW; i++)
		post_recv(&l, i, &m, i * 4096, 4096);
	if (sleeps)
		CHECK(!ibv_req_notify_cq(l.rcq, 0));
	stream_join(&l, fd);
	for (unsigned i = 0; i < MESSAGES;) {
		if (sleeps) {
			CHECK(!ibv_get_cq_event(ch, &cq, &ctx));
			ibv_ack_cq_events(cq, 1);
			CHECK(!ibv_req_notify_cq(l.rcq, 0));
		}
		while (ibv_poll_cq(l.rcq, 1, &wc) > 0) {
			CHECK_INT(wc.status, IBV_WC_SUCCESS);
			CHECK_INT(wc.byte_len, 1 + i % 4000);
			CHECK(holds(m.p + wc.wr_id * 4096, wc.byte_len, i));
			post_recv(&l, wc.wr_id, &m, wc.wr_id * 4096, 4096);
			if (++i % WINDOW == 0)
				tell(fd, "c", 1);
		}
	}
	meet_up(fd);
	link_end(&l);
}

static void stream_of_messages(bool sleeps)
{
	struct peer p = start(sink_peer, sleeps ? &sleeps : NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 2 * WINDOW * 4096);
	link_make(&l, &d, &(struct conf){.depth = 2 * WINDOW});
	stream_join(&l, p.fd);
	for (unsigned i = 0; i < MESSAGES; i++) {
		uint64_t at = i % (2 * WINDOW) * 4096;
		char c;

		if (i >= 2 * WINDOW && i % WINDOW == 0)
			hear(p.fd, &c, 1);
		fill(m.p + at, 1 + i % 4000, i);
		POST(&l, IBV_WR_SEND, i, &m, at, 1 + i % 4000, .quiet = i % WINDOW != WINDOW - 1);
		if (i % WINDOW == WINDOW - 1)
			expect(l.scq, i, IBV_WC_SUCCESS);
	}
	for (unsigned i = 0; i < 2; i++) {
		char c;

		hear(p.fd, &c, 1);
	}
	meet_up(p.fd);
	finish(&p);
}

static void small_messages_to_one_that_polls(void)
{
	stream_of_messages(false);
}

static void small_messages_to_one_that_sleeps(void)
{
	stream_of_messages(true);
}

/* --- many connections --- */

enum { LINKS = 24 };

static void many_peer(int fd, void *arg)
{
	struct dev d;
	struct link l[LINKS];
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, LINKS * 64);
	for (int i = 0; i < LINKS; i++) {
		link_make(&l[i], &d, &(struct conf){0});
		post_recv(&l[i], 7, &m, (uint64_t)i * 64, 64);
		stream_join(&l[i], fd);
	}
	for (int turn = 0; turn < 50; turn++) {
		for (int k = 0; k < LINKS; k++) {
			int i = (k * 7 + turn) % LINKS;

			expect(l[i].rcq, 7, IBV_WC_SUCCESS);
			post_recv(&l[i], 7, &m, (uint64_t)i * 64, 64);
			POST(&l[i], IBV_WR_SEND, 8, &m, (uint64_t)i * 64, 64);
			expect(l[i].scq, 8, IBV_WC_SUCCESS);
		}
	}
	meet_up(fd);
	for (int i = 0; i < LINKS; i++)
		link_end(&l[i]);
	mem_end(&m);
}

static void many_connections_are_all_served(void)
{
	struct peer p = start(many_peer, NULL);
	struct dev d;
	struct link l[LINKS];
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, LINKS * 64);
	for (int i = 0; i < LINKS; i++) {
		link_make(&l[i], &d, &(struct conf){0});
		stream_join(&l[i], p.fd);
	}
	for (int turn = 0; turn < 50; turn++) {
		for (int i = 0; i < LINKS; i++) {
			post_recv(&l[i], 1, &m, (uint64_t)i * 64, 64);
			POST(&l[i], IBV_WR_SEND, 2, &m, (uint64_t)i * 64, 64);
		}
		for (int i = 0; i < LINKS; i++) {
			expect(l[i].scq, 2, IBV_WC_SUCCESS);
			expect(l[i].rcq, 1, IBV_WC_SUCCESS);
		}
	}
	meet_up(p.fd);
	finish(&p);
	for (int i = 0; i < LINKS; i++)
		link_end(&l[i]);
}

/* --- a target that does nothing --- */

/* The other process says that it has written: which is true, but nothing that ThreadSanitizer hears of. The adapter thread,
 * which has placed it, had this lock meanwhile. */
static void has_been_placed(struct dev *d)
{
	struct vb_node *node = vb_ctx(d->ctx)->node;

	vb_lock(&node->progress);
	vb_unlock(&node->progress);
}

static void idle_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	open_iwarp(&d);
	mem_make(&m, &d, 8 << 20);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	stream_join(&l, fd);
	hear(fd, &c, 1);
	has_been_placed(&d);
	CHECK(holds(m.p, 8 << 20, 9));
	link_end(&l);
}

static void a_program_that_sleeps_is_written_to_and_read_from(void)
{
	struct peer p = start(idle_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 8 << 20);
	fill(m.p, 8 << 20, 9);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	for (unsigned i = 0; i < 8; i++)
		POST(&l, IBV_WR_RDMA_WRITE, i, &m, i << 20, 1 << 20, .far = far, .far_off = i << 20);
	for (unsigned i = 0; i < 8; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	memset(m.p, 0, 8 << 20);
	POST(&l, IBV_WR_RDMA_READ, 10, &m, 0, 8 << 20, .far = far);
	expect(l.scq, 10, IBV_WC_SUCCESS);
	CHECK(holds(m.p, 8 << 20, 9));
	tell(p.fd, "e", 1);
	finish(&p);
}

/* --- ends --- */

static void on_end(void *own, int status)
{
	closed_status = status;
	closed_calls++;
}

static void wait_closed(int calls)
{
	for (int i = 0; i < 5000 && closed_calls < calls; i++)
		sleep_ms(1);
	CHECK_INT(closed_calls, calls);
}

static void quiet_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	open_iwarp(&d);
	mem_make(&m, &d, 4096);
	mem_tell(&m, fd);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 0, 64);
	stream_join(&l, fd);
	hear(fd, &c, 1);
	if (c == 'd')
		vb_iwarp_disconnect(vb_qp(l.qp));
	if (c == 'e')
		CHECK_INT(to_state(l.qp, IBV_QPS_ERR), 0);
	if (c == 'x')
		link_end(&l);
	if (c == 'q')
		_exit(0);
	if (c != 'x') {
		expect(l.rcq, 1, IBV_WC_WR_FLUSH_ERR);
		CHECK_INT(state_of(l.qp), IBV_QPS_ERR);
	}
	wait_closed(1);
	CHECK_INT(closed_status, 0);
	hear(fd, &c, 1);
}

static void ends_with(char what)
{
	struct peer p = start(quiet_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	far_hear(p.fd);
	post_recv(&l, 5, &m, 0, 64);
	post_recv(&l, 6, &m, 0, 64);
	stream_join(&l, p.fd);
	if (what == 'k')
		kill_peer(&p);
	else
		tell(p.fd, &what, 1);
	expect(l.rcq, 5, IBV_WC_WR_FLUSH_ERR);
	expect(l.rcq, 6, IBV_WC_WR_FLUSH_ERR);
	CHECK_INT(state_of(l.qp), IBV_QPS_ERR);
	wait_closed(1);
	if (what == 'd' || what == 'e') /* nothing of one that is taken to ERR by itself may arrive any more */
		CHECK_INT(closed_status, what == 'e' ? ECONNRESET : 0);
	POST(&l, IBV_WR_SEND, 7, &m, 0, 64);
	expect(l.scq, 7, IBV_WC_WR_FLUSH_ERR);
	if (what != 'k' && what != 'q')
		tell(p.fd, "e", 1);
	if (what != 'k')
		finish(&p);
	CHECK_INT(to_state(l.qp, IBV_QPS_RESET), 0);
	CHECK_INT(closed_calls, 1);
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

static void a_disconnect_ends_both(void)
{
	ends_with('d');
}

static void a_queue_pair_in_error_ends_both(void)
{
	ends_with('e');
}

static void a_queue_pair_that_is_destroyed_ends_both(void)
{
	ends_with('x');
}

static void a_program_that_exits_ends_its_peers_queue_pair(void)
{
	ends_with('q');
}

static void a_program_that_is_killed_ends_its_peers_queue_pair(void)
{
	ends_with('k');
}

/* What was sent before the connection ended has been received, however it ended. */
static void last_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 1 << 20);
	fill(m.p, 1 << 20, 3);
	link_make(&l, &d, &(struct conf){0});
	stream_join(&l, fd);
	POST(&l, IBV_WR_SEND, 1, &m, 0, 1 << 20);
	POST(&l, IBV_WR_SEND, 2, &m, 0, 10);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	if (arg)
		_exit(0);
	vb_iwarp_disconnect(vb_qp(l.qp));
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

static void the_last_words_arrive(bool exits)
{
	struct peer p = start(last_peer, exits ? &exits : NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 0, 1 << 20);
	post_recv(&l, 2, &m, 0, 64);
	post_recv(&l, 3, &m, 0, 64);
	stream_join(&l, p.fd);
	if (!exits)
		sleep_ms(20);
	struct ibv_wc wc = expect(l.rcq, 1, IBV_WC_SUCCESS);

	CHECK_INT(wc.byte_len, 1 << 20);
	expect(l.rcq, 2, IBV_WC_SUCCESS);
	expect(l.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	finish(&p);
}

static void what_was_sent_before_a_disconnect_arrives(void)
{
	the_last_words_arrive(false);
}

static void what_was_sent_before_an_exit_arrives(void)
{
	the_last_words_arrive(true);
}

/* Who takes the end of a stream for more urgent than what came with it loses that: siw does. */
static void the_end_is_said_when_the_peer_has_all(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t at_len = sizeof(at), info_len = sizeof(struct tcp_info);
	int listener = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0), little = 4096, theirs, copy;
	static uint8_t bytes[65536];
	struct tcp_info info;
	size_t all = 0;
	ssize_t n;
	struct dev d;
	struct link l;
	struct mem m;

	CHECK(!setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)));
	CHECK(!bind(listener, (struct sockaddr *)&at, sizeof(at)) && !listen(listener, 1) && !getsockname(listener, (struct sockaddr *)&at, &at_len));
	CHECK(!connect(ours, (struct sockaddr *)&at, sizeof(at)) && (theirs = accept(listener, NULL, NULL)) >= 0 && (copy = dup(ours)) >= 0);
	open_iwarp(&d);
	mem_make(&m, &d, 4000);
	link_make(&l, &d, &(struct conf){0});
	CHECK_INT(vb_iwarp_attach(vb_qp(l.qp), &(struct vb_iwarp_stream){.fd = ours, .initiator = true, .closed = on_end}), 0);
	for (unsigned i = 0; i < 3; i++) {
		POST(&l, IBV_WR_SEND, i, &m, 0, 4000);
		expect(l.scq, i, IBV_WC_SUCCESS);
	}
	vb_iwarp_disconnect(vb_qp(l.qp));
	wait_closed(1);
	sleep_ms(30);
	CHECK(!getsockopt(copy, IPPROTO_TCP, TCP_INFO, &info, &info_len));
	CHECK_INT(info.tcpi_state, TCP_ESTABLISHED);
	while ((n = recv(theirs, bytes, sizeof(bytes), 0)) > 0)
		all += (size_t)n;
	CHECK(!n && all > 12000);
	link_end(&l);
}

/* --- errors --- */

static void refused(const char *what, struct wr w, enum ibv_wc_status status, int event)
{
	struct peer p = start(quiet_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	int got;

	open_iwarp(&d);
	mem_make(&m, &d, 8192);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	/* in one list: a Terminate that comes between two calls would flush the read without ever having met it */
	struct ibv_sge sge = {.addr = (uintptr_t)m.p, .length = w.len, .lkey = m.mr->lkey}, back = sge;
	struct ibv_send_wr read = {.wr_id = 2, .sg_list = &back, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr wrong = {.wr_id = 1, .next = &read, .sg_list = &sge, .num_sge = 1, .opcode = w.op, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	back.length = 8;
	read.wr.rdma.remote_addr = far.addr;
	read.wr.rdma.rkey = far.rkey;
	wrong.wr.rdma.remote_addr = far.addr + w.far.addr;
	wrong.wr.rdma.rkey = far.rkey ^ w.far.rkey;
	CHECK_INT(ibv_post_send(l.qp, &wrong, &bad), 0);
	struct ibv_wc wc = wait_wc(l.scq);

	/* a write or send completes when it is on its way; what became of it is told by the one behind it */
	if (wc.status == IBV_WC_SUCCESS && wc.wr_id == 1)
		wc = wait_wc(l.scq);
	if (wc.status == IBV_WC_SUCCESS)
		fail(__FILE__, __LINE__, "%s: nobody objects", what);
	CHECK_INT(wc.status, status);
	while ((got = next_event(&d, 2000)) >= 0 && got != event)
		;
	CHECK_INT(got, event);
	CHECK_INT(state_of(l.qp), IBV_QPS_ERR);
	kill_peer(&p);
}

static void a_wrong_key_ends_the_stream(void)
{
	refused("write", (struct wr){.op = IBV_WR_RDMA_WRITE, .len = 8, .far = {.rkey = 0x100}}, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_FATAL);
}

static void reading_beyond_a_region_is_refused(void)
{
	refused("read", (struct wr){.op = IBV_WR_RDMA_READ, .len = 4096, .far = {.addr = 8}}, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_FATAL);
}

/* The stream's socket in this process. */
static int tcp_socket(void)
{
	for (int fd = 3; fd < 64; fd++) {
		int type = 0;
		socklen_t len = sizeof(type);

		if (!getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &type, &len) && type == IPPROTO_TCP)
			return fd;
	}
	return -1;
}

static void reset_peer(int fd, void *arg)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	open_iwarp(&d);
	mem_make(&m, &d, 8 << 20);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	stream_join(&l, fd);
	hear(fd, &c, 1);
	CHECK(!setsockopt(tcp_socket(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
	_exit(0);
}

static void a_reset_in_the_middle_ends_both(void)
{
	struct peer p = start(reset_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc;

	open_iwarp(&d);
	mem_make(&m, &d, 8 << 20);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	for (unsigned i = 0; i < 64; i++)
		POST(&l, IBV_WR_RDMA_WRITE, i, &m, 0, 8 << 20, .far = far);
	tell(p.fd, "r", 1);
	do
		wc = wait_wc(l.scq);
	while (wc.status == IBV_WC_SUCCESS);
	CHECK_INT(wc.status, IBV_WC_WR_FLUSH_ERR);
	wait_closed(1);
	CHECK_INT(closed_status == EPIPE ? ECONNRESET : closed_status, ECONNRESET);
	CHECK_INT(state_of(l.qp), IBV_QPS_ERR);
	finish(&p);
	link_end(&l);
}

static void gone_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make_apart(&m, &d, 1 << 20);
	mem_tell(&m, fd);
	munmap(m.p, m.n);
	link_make(&l, &d, &(struct conf){0});
	stream_join(&l, fd);
	wait_closed(1);
	CHECK_INT(state_of(l.qp), IBV_QPS_ERR);
}

static void unmapped_memory(enum ibv_wr_opcode op, uint32_t len)
{
	struct peer p = start(gone_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	POST(&l, op, 1, &m, 0, len, .far = far);
	struct ibv_wc wc = wait_wc(l.scq);

	CHECK(wc.status == IBV_WC_SUCCESS ? op == IBV_WR_RDMA_WRITE : true);
	wait_closed(1);
	CHECK_INT(state_of(l.qp), IBV_QPS_ERR);
	finish(&p);
}

static void memory_that_is_gone_is_no_crash(void)
{
	unmapped_memory(IBV_WR_RDMA_WRITE, 64);
	closed_calls = 0;
	unmapped_memory(IBV_WR_RDMA_WRITE, 1 << 20);
	closed_calls = 0;
	unmapped_memory(IBV_WR_RDMA_READ, 64);
	closed_calls = 0;
	unmapped_memory(IBV_WR_RDMA_READ, 1 << 20);
}

static void ones_own_memory_that_is_gone_is_no_crash(void)
{
	struct peer p = start(idle_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make_apart(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	munmap(m.p, m.n);
	POST(&l, IBV_WR_RDMA_WRITE, 1, &m, 0, 1 << 20, .far = far);
	struct ibv_wc wc = wait_wc(l.scq);

	CHECK(wc.status != IBV_WC_SUCCESS);
	wait_closed(1);
	kill_peer(&p);
}

/* --- states, and the same host --- */

static void only_a_connection_makes_a_queue_pair_ready(void)
{
	struct dev d;
	struct link l;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .qp_access_flags = IBV_ACCESS_REMOTE_READ};

	open_iwarp(&d);
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr ud = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1}, .qp_type = IBV_QPT_UD};

	CHECK(!ibv_create_qp(d.pd, &ud) && errno == EOPNOTSUPP);
	link_make(&l, &d, &(struct conf){0});
	CHECK_INT(ibv_modify_qp(l.qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
	CHECK_INT(state_of(l.qp), IBV_QPS_INIT);
	CHECK_INT(ibv_modify_qp(l.qp, &a, 0), 0);
	CHECK_INT(to_state(l.qp, IBV_QPS_RTS), EINVAL);
	CHECK_INT(to_state(l.qp, IBV_QPS_ERR), 0);
	CHECK_INT(to_state(l.qp, IBV_QPS_RESET), 0);
}

static void here(struct link *l, int fd)
{
	struct addr it;

	tell(fd, &l->me, sizeof(l->me));
	hear(fd, &it, sizeof(it));
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = it.qpn,
		.rq_psn = it.psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr.grh.dgid.raw = {[10] = 0xff, 0xff, 127, 0, 0, 1},
	};

	CHECK_INT(vb_modify_qp_here(vb_qp(l->qp), &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	                                                      IBV_QP_MIN_RNR_TIMER), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = l->me.psn, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16};
	CHECK_INT(vb_modify_qp_here(vb_qp(l->qp), &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	meet_up(fd);
}

static void here_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 0, 1 << 20);
	here(&l, fd);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	CHECK(holds(m.p, 1 << 20, 77));
	meet_up(fd);
	link_end(&l);
}

static void programs_of_one_host_may_meet_in_memory(void)
{
	struct peer p = start(here_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_iwarp(&d);
	mem_make(&m, &d, 1 << 20);
	fill(m.p, 1 << 20, 77);
	link_make(&l, &d, &(struct conf){0});
	here(&l, p.fd);
	POST(&l, IBV_WR_SEND, 2, &m, 0, 1 << 20);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	CHECK(!vb_qp(l.qp)->iwarp);
	meet_up(p.fd);
	finish(&p);
}

/* --- descriptors for the adapter thread --- */

static _Atomic int watched;
static struct vb_node *watched_node;

static void on_watch(struct vb_watch *w, uint32_t events)
{
	char c;

	if (read(w->fd, &c, 1) == 1 && c == 'r')
		vb_watch_remove(watched_node, w);
	watched++;
}

static void descriptors_can_be_watched(void)
{
	struct dev d;
	int fds[2];
	struct vb_watch w = {.fn = on_watch};

	open_iwarp(&d);
	watched_node = vb_ctx(d.ctx)->node;
	CHECK(!pipe(fds));
	w.fd = fds[0];
	CHECK_INT(vb_watch_add(watched_node, &w, POLLIN), 0);
	for (int i = 1; i <= 3; i++) {
		CHECK(write(fds[1], i == 3 ? "r" : "x", 1) == 1);
		for (int k = 0; k < 5000 && watched < i; k++)
			sleep_ms(1);
		CHECK_INT(watched, i);
	}
	CHECK(write(fds[1], "x", 1) == 1);
	sleep_ms(20);
	CHECK_INT(watched, 3);
	CHECK_INT(vb_watch_change(watched_node, &w, POLLIN), ENOENT);
	CHECK_INT(vb_watch_add(watched_node, &w, POLLIN), 0);
	for (int k = 0; k < 5000 && watched < 4; k++)
		sleep_ms(1);
	vb_watch_remove(watched_node, &w);
	CHECK_INT(watched, 4);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"every operation of every length", every_operation_plain},
		{"every operation with CRC", every_operation_with_crc},
		{"every operation with markers", every_operation_with_markers},
		{"every operation with CRC and markers", every_operation_with_crc_and_markers},
		{"every operation after a ready-to-receive write", every_operation_after_a_ready_to_receive_write},
		{"every operation after a ready-to-receive read", every_operation_after_a_ready_to_receive_read},
		{"small messages to a program that polls", small_messages_to_one_that_polls},
		{"small messages to a program that sleeps", small_messages_to_one_that_sleeps},
		{"many connections are all served", many_connections_are_all_served},
		{"a program that sleeps is written to and read from", a_program_that_sleeps_is_written_to_and_read_from},
		{"a disconnect ends both", a_disconnect_ends_both},
		{"a queue pair in error ends both", a_queue_pair_in_error_ends_both},
		{"a queue pair that is destroyed ends both", a_queue_pair_that_is_destroyed_ends_both},
		{"a program that exits ends its peer's queue pair", a_program_that_exits_ends_its_peers_queue_pair},
		{"a program that is killed ends its peer's queue pair", a_program_that_is_killed_ends_its_peers_queue_pair},
		{"what was sent before a disconnect arrives", what_was_sent_before_a_disconnect_arrives},
		{"what was sent before an exit arrives", what_was_sent_before_an_exit_arrives},
		{"the end is said when the peer has all", the_end_is_said_when_the_peer_has_all},
		{"a wrong key ends the stream", a_wrong_key_ends_the_stream},
		{"reading beyond a region is refused", reading_beyond_a_region_is_refused},
		{"a reset in the middle ends both", a_reset_in_the_middle_ends_both},
		{"memory that is gone is no crash", memory_that_is_gone_is_no_crash},
		{"one's own memory that is gone is no crash", ones_own_memory_that_is_gone_is_no_crash},
		{"only a connection makes a queue pair ready", only_a_connection_makes_a_queue_pair_ready},
		{"programs of one host may meet in memory", programs_of_one_host_may_meet_in_memory},
		{"descriptors can be watched", descriptors_can_be_watched},
	};

	return RUN_TESTS(argc, argv, tests);
}
