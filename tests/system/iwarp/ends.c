// ends.c - how streams end: in order, with the program, by an error, by a reset; and invalid calls
// follows: RFC 5040, RFC 5044, 7.4
// see: docs/iwarp.md
// SPDX-License-Identifier: MIT
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/verbs.h"
#include "stream.h"

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
		SAME(to_state(l.qp, IBV_QPS_ERR), 0);
	if (c == 'x')
		link_end(&l);
	if (c == 'q')
		_exit(0);
	if (c != 'x') {
		expect(l.rcq, 1, IBV_WC_WR_FLUSH_ERR);
		SAME(state_of(l.qp), IBV_QPS_ERR);
	}
	wait_closed(1);
	SAME(closed_status, 0);
	hear(fd, &c, 1);
}

static void ends_with(char what)
{
	struct peer p = start(quiet_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, 4096);
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
	SAME(state_of(l.qp), IBV_QPS_ERR);
	wait_closed(1);
	if (what == 'd' || what == 'e') /* after a change to ERR by the program, nothing may arrive any more */
		SAME(closed_status, what == 'e' ? ECONNRESET : 0);
	POST(&l, IBV_WR_SEND, 7, &m, 0, 64);
	expect(l.scq, 7, IBV_WC_WR_FLUSH_ERR);
	if (what != 'k' && what != 'q')
		tell(p.fd, "e", 1);
	if (what != 'k')
		finish(&p);
	SAME(to_state(l.qp, IBV_QPS_RESET), 0);
	SAME(closed_calls, 1);
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

/* Everything sent before the end of the connection was received, however it ended. */
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

	open_side(&d, &l, &m, 1 << 20);
	post_recv(&l, 1, &m, 0, 1 << 20);
	post_recv(&l, 2, &m, 0, 64);
	post_recv(&l, 3, &m, 0, 64);
	stream_join(&l, p.fd);
	if (!exits)
		sleep_ms(20);
	struct ibv_wc wc = expect(l.rcq, 1, IBV_WC_SUCCESS);

	SAME(wc.byte_len, 1 << 20);
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

static void on_end(void *own, int status)
{
	closed_status = status;
	closed_calls++;
}

/* A peer that handles the end of a stream before the data that arrived with it loses that data; siw does. */
static void the_end_is_said_when_the_peer_has_all(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t at_len = sizeof(at), info_len = sizeof(struct tcp_info);
	int listener = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0), little = 4096, theirs,
	    copy;
	static uint8_t bytes[65536];
	struct tcp_info info;
	size_t all = 0;
	ssize_t n;
	struct dev d;
	struct link l;
	struct mem m;

	CHECK(!setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)));
	CHECK(!bind(listener, (struct sockaddr *)&at, sizeof(at)) && !listen(listener, 1) &&
	      !getsockname(listener, (struct sockaddr *)&at, &at_len));
	CHECK(!connect(ours, (struct sockaddr *)&at, sizeof(at)) && (theirs = accept(listener, NULL, NULL)) >= 0 &&
	      (copy = dup(ours)) >= 0);
	open_side(&d, &l, &m, 4000);
	SAME(vb_iwarp_attach(vb_qp(l.qp), &(struct vb_iwarp_stream){.fd = ours, .initiator = true, .closed = on_end}),
	     0);
	for (unsigned i = 0; i < 3; i++) {
		POST(&l, IBV_WR_SEND, i, &m, 0, 4000);
		expect(l.scq, i, IBV_WC_SUCCESS);
	}
	vb_iwarp_disconnect(vb_qp(l.qp));
	wait_closed(1);
	sleep_ms(30);
	CHECK(!getsockopt(copy, IPPROTO_TCP, TCP_INFO, &info, &info_len));
	SAME(info.tcpi_state, TCP_ESTABLISHED);
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

	open_side(&d, &l, &m, 8192);
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	/* in one list: a Terminate between two calls would flush the read before it was sent */
	struct ibv_sge sge = {.addr = (uintptr_t)m.p, .length = w.len, .lkey = m.mr->lkey}, back = sge;
	struct ibv_send_wr read = {.wr_id = 2,
	                           .sg_list = &back,
	                           .num_sge = 1,
	                           .opcode = IBV_WR_RDMA_READ,
	                           .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr wrong = {.wr_id = 1,
	                            .next = &read,
	                            .sg_list = &sge,
	                            .num_sge = 1,
	                            .opcode = w.op,
	                            .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	back.length = 8;
	read.wr.rdma.remote_addr = far.addr;
	read.wr.rdma.rkey = far.rkey;
	wrong.wr.rdma.remote_addr = far.addr + w.far.addr;
	wrong.wr.rdma.rkey = far.rkey ^ w.far.rkey;
	SAME(ibv_post_send(l.qp, &wrong, &bad), 0);
	struct ibv_wc wc = wait_wc(l.scq);

	/* a write or send completes when TCP has it, so the next request reports its error */
	if (wc.status == IBV_WC_SUCCESS && wc.wr_id == 1)
		wc = wait_wc(l.scq);
	if (wc.status == IBV_WC_SUCCESS)
		fail(__FILE__, __LINE__, "%s: nobody objects", what);
	SAME(wc.status, status);
	while ((got = next_event(&d, PATIENCE)) >= 0 && got != event)
		;
	SAME(got, event);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	kill_peer(&p);
}

static void a_wrong_key_ends_the_stream(void)
{
	refused("write", (struct wr){.op = IBV_WR_RDMA_WRITE, .len = 8, .far = {.rkey = 0x100}}, IBV_WC_REM_ACCESS_ERR,
	        IBV_EVENT_QP_FATAL);
}

static void reading_beyond_a_region_is_refused(void)
{
	refused("read", (struct wr){.op = IBV_WR_RDMA_READ, .len = 4096, .far = {.addr = 8}}, IBV_WC_REM_ACCESS_ERR,
	        IBV_EVENT_QP_FATAL);
}

/* The socket of the stream in this process. */
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

	open_side(&d, &l, &m, 8 << 20);
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

	open_side(&d, &l, &m, 8 << 20);
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	for (unsigned i = 0; i < 64; i++)
		POST(&l, IBV_WR_RDMA_WRITE, i, &m, 0, 8 << 20, .far = far);
	tell(p.fd, "r", 1);
	while ((wc = wait_wc(l.scq)).status == IBV_WC_SUCCESS)
		POST(&l, IBV_WR_RDMA_WRITE, 64, &m, 0, 8 << 20, .far = far);
	SAME(wc.status, IBV_WC_WR_FLUSH_ERR);
	wait_closed(1);
	SAME(closed_status == EPIPE ? ECONNRESET : closed_status, ECONNRESET);
	SAME(state_of(l.qp), IBV_QPS_ERR);
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
	SAME(state_of(l.qp), IBV_QPS_ERR);
}

static void unmapped_memory(enum ibv_wr_opcode op, uint32_t len)
{
	struct peer p = start(gone_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, 1 << 20);
	struct far far = far_hear(p.fd);

	stream_join(&l, p.fd);
	POST(&l, op, 1, &m, 0, len, .far = far);
	struct ibv_wc wc = wait_wc(l.scq);

	CHECK(wc.status == IBV_WC_SUCCESS ? op == IBV_WR_RDMA_WRITE : true);
	wait_closed(1);
	SAME(state_of(l.qp), IBV_QPS_ERR);
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

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a disconnect ends both", a_disconnect_ends_both},
	        {"a queue pair in error ends both", a_queue_pair_in_error_ends_both},
	        {"a queue pair that is destroyed ends both", a_queue_pair_that_is_destroyed_ends_both},
	        {"a program that exits ends its peer's queue pair", a_program_that_exits_ends_its_peers_queue_pair},
	        {"a program that is killed ends its peer's queue pair",
	         a_program_that_is_killed_ends_its_peers_queue_pair},
	        {"what was sent before a disconnect arrives", what_was_sent_before_a_disconnect_arrives},
	        {"what was sent before an exit arrives", what_was_sent_before_an_exit_arrives},
	        {"the end is said when the peer has all", the_end_is_said_when_the_peer_has_all},
	        {"a wrong key ends the stream", a_wrong_key_ends_the_stream},
	        {"reading beyond a region is refused", reading_beyond_a_region_is_refused},
	        {"a reset in the middle ends both", a_reset_in_the_middle_ends_both},
	        {"memory that is gone is no crash", memory_that_is_gone_is_no_crash},
	        {"one's own memory that is gone is no crash", ones_own_memory_that_is_gone_is_no_crash},
	};

	return RUN_TESTS(argc, argv, tests);
}
