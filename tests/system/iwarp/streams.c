// streams.c - queue pairs on TCP connections: received data, and which queue pairs may have one
// follows: RFC 5040, RFC 5044, RFC 7306
// see: docs/iwarp.md
// SPDX-License-Identifier: MIT
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "core/device.h"
#include "core/qp.h"
#include "core/verbs.h"
#include "stream.h"

#define BIG (3u << 20)

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

		SAME(wc.byte_len, lengths[i]);
		CHECK(holds(got.p, lengths[i], i + 1));
		memset(got.p, 0, lengths[i]);
		/* The other side writes here again after we have met. ThreadSanitizer does not see an order through
		 * another process, but it sees the locks of a poll. */
		expect_none(l.rcq, 0);
		meet_up(fd);
	}
	struct ibv_wc wc = expect(l.rcq, LENGTHS, IBV_WC_SUCCESS);

	SAME(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x12345678 && holds(m.p, 70000, 99));
	hear(fd, &c, 1);
	SAME(*(uint64_t *)(m.p + BIG), 5);
	link_end(&l);
}

static void every_operation(const struct stream *s)
{
	struct peer p = start(mixed_peer, (void *)s);
	struct dev d;
	struct link l;
	struct mem m;

	how = *s;
	open_side(&d, &l, &m, 2 * BIG);
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
	SAME(*(uint64_t *)m.p, 0);
	SAME(*(uint64_t *)(m.p + 8), 3);
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
			SAME(wc.status, IBV_WC_SUCCESS);
			SAME(wc.byte_len, 1 + i % 4000);
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

/* --- a passive target --- */

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

/* --- states, and the same host --- */

static void only_a_connection_makes_a_queue_pair_ready(void)
{
	struct dev d;
	struct link l;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .qp_access_flags = IBV_ACCESS_REMOTE_READ};

	open_iwarp(&d);
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 4, NULL, NULL, 0);
	struct ibv_recv_wr *bad;
	struct ibv_qp_init_attr ud = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1}, .qp_type = IBV_QPT_UD};

	CHECK(!ibv_create_qp(d.pd, &ud) && errno == EOPNOTSUPP);
	link_make(&l, &d, &(struct conf){0});
	SAME(to_state(l.qp, IBV_QPS_RESET), 0);
	SAME(state_of(l.qp), IBV_QPS_INIT); /* iWARP has one state for both, and receives can be posted in it */
	SAME(ibv_post_recv(l.qp, &(struct ibv_recv_wr){.wr_id = 1}, &bad), 0);
	SAME(to_state(l.qp, IBV_QPS_INIT), 0);
	SAME(ibv_modify_qp(l.qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
	SAME(state_of(l.qp), IBV_QPS_INIT);
	SAME(ibv_modify_qp(l.qp, &a, 0), 0);
	SAME(to_state(l.qp, IBV_QPS_RTS), EINVAL);
	SAME(to_state(l.qp, IBV_QPS_ERR), 0);
	expect(l.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	SAME(to_state(l.qp, IBV_QPS_RESET), 0);
}

static void new_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, 64);
	SAME(to_state(l.qp, IBV_QPS_RESET), 0);
	stream_join(&l, fd);
	POST(&l, IBV_WR_SEND, 1, &m, 0, 64);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	hear(fd, &(char){0}, 1);
}

/* iWARP has one state for RESET and INIT. */
static void a_new_queue_pair_may_have_a_connection(void)
{
	struct peer p = start(new_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, 64);
	SAME(to_state(l.qp, IBV_QPS_RESET), 0);
	SAME(l.qp->state, IBV_QPS_RESET);
	SAME(state_of(l.qp), IBV_QPS_INIT);
	SAME(l.qp->state, IBV_QPS_INIT); /* a query updates it, as in rdma-core */
	post_recv(&l, 1, &m, 0, 64);
	stream_join(&l, p.fd);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	tell(p.fd, "e", 1);
	finish(&p);
	link_end(&l);
}

static void *destroyer(void *qp)
{
	SAME(ibv_destroy_qp(qp), 0);
	return NULL;
}

static void a_destroyed_queue_pair_gets_no_connection(void)
{
	struct dev d;
	struct link l;
	struct mem m;
	pthread_t thread;
	int pair[2];

	open_side(&d, &l, &m, 64);
	struct vb_qp *qp = vb_qp(l.qp);

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair) && vb_qp_hold(qp));
	CHECK(!pthread_create(&thread, NULL, destroyer, l.qp)); /* waits for the holder */
	while (vb_qp_is_listed(qp))
		sleep_ms(1);
	SAME(vb_iwarp_attach(qp, &(struct vb_iwarp_stream){.fd = pair[0]}), EINVAL);
	vb_qp_drop(qp);
	CHECK(!pthread_join(thread, NULL));
}

/* RFC 5040 has neither. 1 << 11, 1 << 8: IBV_QP_EX_WITH_FLUSH, IBV_ACCESS_FLUSH_GLOBAL; 1 << 38 to 40: the capabilities */
static void there_is_no_flush_and_no_atomic_write(void)
{
	struct ibv_device_attr_ex attr;
	static char buf[64];
	struct dev d;

	open_iwarp(&d);
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex x = {.send_cq = cq,
	                                .recv_cq = cq,
	                                .cap = {1, 1, 1, 1},
	                                .qp_type = IBV_QPT_RC,
	                                .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	                                .pd = d.pd,
	                                .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE};

	SAME(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	SAME(attr.device_cap_flags_ex >> 38 & 7, 0);
	CHECK(!ibv_create_qp_ex(d.ctx, &x) && errno == EOPNOTSUPP);
	x.send_ops_flags = 1 << 11;
	CHECK(!ibv_create_qp_ex(d.ctx, &x) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_mr(d.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE | 1 << 8) && errno == EOPNOTSUPP);
}

#define LIMITED 48u
#define LIMITED_SIZE 65536u
#define LIMITED_KBPS 16000u /* 2 MB a second */

static void limited_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, LIMITED_SIZE);
	for (unsigned i = 0; i < LIMITED; i++)
		post_recv(&l, i, &m, 0, LIMITED_SIZE);
	stream_join(&l, fd);
	for (unsigned i = 0; i < LIMITED; i++)
		expect(l.rcq, i, IBV_WC_SUCCESS);
	meet_up(fd);
	link_end(&l);
}

/* The kernel paces the connection, but not its first ten segments, which are as long as lo lets them be. After a delay
 * it makes up for what it missed at twice the rate. */
static void a_stream_has_a_rate_limit(void)
{
	struct ibv_qp_rate_limit_attr limit = {.rate_limit = LIMITED_KBPS};
	struct ibv_qp_attr a = {.rate_limit = 5};
	struct ibv_device_attr_ex caps;
	struct peer p = start(limited_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, LIMITED_SIZE);
	SAME(ibv_query_device_ex(d.ctx, NULL, &caps), 0);
	SAME(caps.packet_pacing_caps.supported_qpts, 1u << IBV_QPT_RC);
	SAME(ibv_modify_qp_rate_limit(l.qp, &limit), EINVAL); /* it does not send yet */
	SAME(ibv_modify_qp(l.qp, &a, IBV_QP_RATE_LIMIT), EINVAL);
	stream_join(&l, p.fd);
	uint64_t start_ms = now_ms();

	SAME(ibv_modify_qp_rate_limit(l.qp, &limit), 0);
	for (unsigned i = 0; i < LIMITED; i++)
		POST(&l, IBV_WR_SEND, i, &m, 0, LIMITED_SIZE);
	for (unsigned i = 0; i < LIMITED; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	meet_up(p.fd);
	CHECK(LIMITED * LIMITED_SIZE <= 2 * (now_ms() - start_ms + 1) * (LIMITED_KBPS / 8) + 10 * 65536);
	finish(&p);
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

	SAME(vb_modify_qp_here(vb_qp(l->qp), &a,
	                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                         .sq_psn = l->me.psn,
	                         .timeout = 14,
	                         .retry_cnt = 7,
	                         .rnr_retry = 7,
	                         .max_rd_atomic = 16};
	SAME(vb_modify_qp_here(vb_qp(l->qp), &a,
	                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                               IBV_QP_MAX_QP_RD_ATOMIC),
	     0);
	meet_up(fd);
}

static void here_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, 1 << 20);
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

/* --- descriptors for the progress thread --- */

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
	SAME(vb_watch_add(watched_node, &w, POLLIN), 0);
	for (int i = 1; i <= 3; i++) {
		CHECK(write(fds[1], i == 3 ? "r" : "x", 1) == 1);
		for (int k = 0; k < PATIENCE && watched < i; k++)
			sleep_ms(1);
		SAME(watched, i);
	}
	CHECK(write(fds[1], "x", 1) == 1);
	sleep_ms(20);
	SAME(watched, 3);
	SAME(vb_watch_change(watched_node, &w, POLLIN), ENOENT);
	SAME(vb_watch_add(watched_node, &w, POLLIN), 0);
	for (int k = 0; k < PATIENCE && watched < 4; k++)
		sleep_ms(1);
	vb_watch_remove(watched_node, &w);
	SAME(watched, 4);
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
	        {"a program that sleeps is written to and read from",
	         a_program_that_sleeps_is_written_to_and_read_from},
	        {"only a connection makes a queue pair ready", only_a_connection_makes_a_queue_pair_ready},
	        {"a new queue pair may have a connection", a_new_queue_pair_may_have_a_connection},
	        {"a destroyed queue pair gets no connection", a_destroyed_queue_pair_gets_no_connection},
	        {"there is no flush and no atomic write", there_is_no_flush_and_no_atomic_write},
	        {"a stream has a rate limit", a_stream_has_a_rate_limit},
	        {"programs of one host may meet in memory", programs_of_one_host_may_meet_in_memory},
	        {"descriptors can be watched", descriptors_can_be_watched},
	};

	return RUN_TESTS(argc, argv, tests);
}
