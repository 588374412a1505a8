// waits.c - streams that wait: held completions, messages without a receive, and interruptions of work in progress
// see: docs/iwarp.md; engine/iwarp/iwarp.h
// SPDX-License-Identifier: MIT
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "stream.h"

#define BIG (4u << 20)

/* A passive peer. It gets the number of links, and a byte at the end. */
static void target(int fd, void *arg)
{
	struct dev d;
	struct mem m;
	static struct link l[32];
	int n;
	char c;

	open_iwarp(&d);
	mem_make(&m, &d, BIG);
	mem_tell(&m, fd);
	hear(fd, &n, sizeof(n));
	for (int i = 0; i < n; i++)
		stream_open(&l[i], &d, &(struct conf){0}, fd);
	hear(fd, &c, 1);
}

/* --- lone small writes --- */

static void write_once(struct link *l, struct mem *m, struct far far)
{
	POST(l, IBV_WR_RDMA_WRITE, 3, m, 0, 64, .far = far);
}

static void a_lone_small_write_completes_whatever_the_connections(void)
{
	struct peer p = start(target, NULL);
	static struct link l[12];
	struct dev d;
	struct mem m;
	int n = 12;

	open_iwarp(&d);
	mem_make(&m, &d, 4096);
	struct far far = far_hear(p.fd);

	tell(p.fd, &n, sizeof(n));
	for (int i = 0; i < n; i++) {
		if (i) /* its completion may be held when the next connection is made */
			write_once(&l[0], &m, far);
		stream_open(&l[i], &d, &(struct conf){0}, p.fd);
		if (i)
			expect(l[0].scq, 3, IBV_WC_SUCCESS);
		for (int turn = 0; turn < 200; turn++) {
			write_once(&l[i], &m, far);
			expect(l[i].scq, 3, IBV_WC_SUCCESS);
		}
	}
	while (n-- > 0) {
		link_end(&l[n]);
		if (!n)
			break;
		write_once(&l[n - 1], &m, far);
		expect(l[n - 1].scq, 3, IBV_WC_SUCCESS);
	}
	tell(p.fd, "e", 1);
	finish(&p);
}

/* A program that polls once, long after, finds it; so does one that sleeps. */
static void a_lone_small_write_is_there_for_who_looks_once(void)
{
	struct peer p = start(target, NULL);
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc;
	void *ctx;
	int n = 1;

	open_iwarp(&d);
	mem_make(&m, &d, 4096);
	struct far far = far_hear(p.fd);

	CHECK((ch = ibv_create_comp_channel(d.ctx)));
	CHECK((cq = ibv_create_cq(d.ctx, 64, NULL, ch, 0)));
	tell(p.fd, &n, sizeof(n));
	stream_open(&l, &d, &(struct conf){.scq = cq}, p.fd);
	for (int i = 0; i < 20; i++) {
		write_once(&l, &m, far);
		int found = 0;

		/* on a loaded machine the first poll may still be too early */
		for (unsigned ms = (unsigned)i; !found && ms < PATIENCE; ms = 2 * ms + 1) {
			sleep_ms(ms);
			found = ibv_poll_cq(cq, 1, &wc);
		}
		SAME(found, 1);
	}
	for (int i = 0; i < 200; i++) {
		write_once(&l, &m, far);
		CHECK(!ibv_req_notify_cq(cq, 0));
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			continue;
		if (!heard(ch->fd, PATIENCE))
			fail(__FILE__, __LINE__, "nobody is told of the completion");
		CHECK(!ibv_get_cq_event(ch, &cq, &ctx));
		ibv_ack_cq_events(cq, 1);
		SAME(ibv_poll_cq(cq, 1, &wc), 1);
	}
	tell(p.fd, "e", 1);
	finish(&p);
}

/* --- late receives --- */

struct late {
	bool srq, sleeps;
	struct stream how;
	uint32_t len;
};

enum { TURNS = 40, MORE = 10 }; /* MORE: additional connections, so that not all are polled */

static void post_one(struct link *l, struct ibv_srq *srq, struct mem *m, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)m->p, len, m->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(l->qp, &wr, &bad)));
}

static void late_peer(int fd, void *arg)
{
	const struct late *late = arg;
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = NULL;
	struct ibv_comp_channel *ch;
	static struct link more[MORE];
	struct ibv_cq *cq;
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_wc wc;
	void *ctx;

	how = late->how;
	open_iwarp(&d);
	mem_make(&m, &d, BIG);
	mem_tell(&m, fd);
	CHECK((ch = ibv_create_comp_channel(d.ctx)));
	if (late->srq)
		CHECK((srq = ibv_create_srq(d.pd, &srq_attr)));
	link_make(&l, &d, &(struct conf){.channel = ch, .srq = srq});
	stream_join(&l, fd);
	for (int i = 0; i < (late->srq ? MORE : 0); i++)
		stream_open(&more[i], &d, &(struct conf){.srq = srq}, fd);
	for (unsigned i = 0; i < TURNS; i++) {
		if (late->sleeps)
			CHECK(!ibv_req_notify_cq(l.rcq, 0));
		else
			SAME(ibv_poll_cq(l.rcq, 1, &wc), 0);
		sleep_ms(i % 8);
		post_one(&l, srq, &m, i, late->len);
		if (late->sleeps) {
			if (!heard(ch->fd, PATIENCE))
				fail(__FILE__, __LINE__, "message %u does not come", i);
			CHECK(!ibv_get_cq_event(ch, &cq, &ctx));
			ibv_ack_cq_events(cq, 1);
		}
		wc = expect(l.rcq, i, IBV_WC_SUCCESS);
		SAME(wc.byte_len, late->len);
		CHECK(holds(m.p, late->len, i));
	}
	meet_up(fd);
}

static void receives_come_late(struct late late)
{
	struct peer p = start(late_peer, &late);
	static struct link more[MORE];
	struct dev d;
	struct link l;
	struct mem m;

	how = late.how;
	open_iwarp(&d);
	mem_make(&m, &d, TURNS * (uint64_t)late.len);
	far_hear(p.fd);
	link_make(&l, &d, &(struct conf){0});
	stream_join(&l, p.fd);
	for (int i = 0; i < (late.srq ? MORE : 0); i++)
		stream_open(&more[i], &d, &(struct conf){0}, p.fd);
	for (unsigned i = 0; i < TURNS; i++) {
		fill(m.p + i * (uint64_t)late.len, late.len, i);
		POST(&l, IBV_WR_SEND, i, &m, i * (uint64_t)late.len, late.len);
	}
	for (unsigned i = 0; i < TURNS; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	SAME(state_of(l.qp), IBV_QPS_RTS);
	meet_up(p.fd);
	finish(&p);
}

static void messages_wait_for_one_that_polls(void)
{
	receives_come_late((struct late){.len = 100});
	receives_come_late((struct late){.len = 300000});
}

static void messages_wait_for_one_that_sleeps(void)
{
	receives_come_late((struct late){.sleeps = true, .len = 100});
	receives_come_late((struct late){.sleeps = true, .len = 300000});
}

static void messages_wait_with_crc_and_markers(void)
{
	receives_come_late((struct late){.sleeps = true, .how = {.crc = true, .markers = true}, .len = 20000});
}

static void messages_wait_for_a_shared_queue(void)
{
	receives_come_late((struct late){.srq = true, .len = 5000});
	receives_come_late((struct late){.srq = true, .sleeps = true, .len = 5000});
}

static double cpu_used(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void never_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	char c;

	open_iwarp(&d);
	link_make(&l, &d, &(struct conf){0});
	stream_join(&l, fd);
	double before = cpu_used();

	hear(fd, &c, 1);
	if (cpu_used() - before > 1)
		fail(__FILE__, __LINE__, "%.1f s of processor time to wait for a receive", cpu_used() - before);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	SAME(next_event(&d, PATIENCE), IBV_EVENT_QP_REQ_ERR);
}

static void a_message_that_waits_too_long_ends_the_stream(void)
{
	struct peer p = start(never_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_side(&d, &l, &m, 2 * BIG);
	stream_join(&l, p.fd);
	for (int i = 0; i < 8; i++) /* more than the sockets hold */
		POST(&l, IBV_WR_SEND, 5, &m, 0, 2 * BIG);
	struct ibv_wc wc;

	do
		wc = wait_wc(l.scq);
	while (wc.status == IBV_WC_SUCCESS);
	SAME(wc.status, IBV_WC_REM_OP_ERR);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	tell(p.fd, "e", 1);
	finish(&p);
}

/* 'k': killed in the middle of a message; 'd': disconnected after one. */
static void leaving_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	open_side(&d, &l, &m, 2 * BIG);
	stream_join(&l, fd);
	POST(&l, IBV_WR_SEND, 1, &m, 0, arg ? 64 : 2 * BIG);
	if (arg) {
		expect(l.scq, 1, IBV_WC_SUCCESS);
		vb_iwarp_disconnect(vb_qp(l.qp));
	}
	meet_up(fd);
	hear(fd, &c, 1);
}

static void who_waits_finds_its_peer_gone(void)
{
	for (int disconnects = 0; disconnects < 2; disconnects++) {
		struct peer p = start(leaving_peer, disconnects ? &disconnects : NULL);
		struct dev d;
		struct link l;

		closed_calls = 0;
		open_iwarp(&d);
		link_make(&l, &d, &(struct conf){0});
		stream_join(&l, p.fd);
		meet_up(p.fd);
		if (!disconnects)
			kill_peer(&p);
		for (int i = 0; i < PATIENCE && state_of(l.qp) != IBV_QPS_ERR; i++)
			sleep_ms(1);
		SAME(state_of(l.qp), IBV_QPS_ERR);
		for (int i = 0; i < PATIENCE && !closed_calls; i++)
			sleep_ms(1);
		SAME(closed_calls, 1);
		if (disconnects)
			tell(p.fd, "e", 1), finish(&p);
		link_end(&l);
		dev_close(&d);
	}
}

/* --- interruptions --- */

static void in_the_middle(char what)
{
	struct peer p = start(target, NULL);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_qp_init_attr init;
	struct dev d;
	struct link l;
	struct mem m;
	int n = 1, status;

	open_iwarp(&d);
	mem_make(&m, &d, BIG);
	fill(m.p, BIG, 4);
	struct far far = far_hear(p.fd);

	tell(p.fd, &n, sizeof(n));
	stream_open(&l, &d, &(struct conf){0}, p.fd);
	for (unsigned i = 0; i < 32; i++)
		POST(&l, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, &m, 0, BIG, .far = far);
	switch (what) {
	case 'd':
		break;
	case 'e':
		SAME(to_state(l.qp, IBV_QPS_ERR), 0);
		for (unsigned i = 0; i < 32; i++) {
			struct ibv_wc wc = wait_wc(l.scq);

			SAME(wc.wr_id, i);
			CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		break;
	case 's':
		SAME(ibv_modify_qp(l.qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
		SAME(next_event(&d, PATIENCE), IBV_EVENT_SQ_DRAINED);
		CHECK(!ibv_query_qp(l.qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_CAP, &init));
		CHECK(a.qp_state == IBV_QPS_SQD && !a.sq_draining);
		SAME(to_state(l.qp, IBV_QPS_RTS), 0);
		break;
	case 'f':
		if (!(n = fork()))
			_exit(0);
		CHECK(n > 0 && waitpid(n, &status, 0) == n && !status);
		break;
	}
	if (what == 's' || what == 'f') {
		for (unsigned i = 0; i < 32; i++)
			expect(l.scq, i, IBV_WC_SUCCESS);
		CHECK(!ibv_query_qp(l.qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_CAP, &init));
		SAME(a.qp_state, IBV_QPS_RTS);
		SAME(a.qp_access_flags & ~IBV_ACCESS_LOCAL_WRITE, ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE);
		CHECK(a.cap.max_send_wr >= 64 && a.cap.max_recv_wr >= 64);
		CHECK(init.qp_type == IBV_QPT_RC && init.send_cq == l.scq && holds(m.p, BIG, 4));
	}
	tell(p.fd, "e", 1);
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
	finish(&p);
}

static void a_busy_queue_pair_is_destroyed(void)
{
	in_the_middle('d');
}

static void a_busy_queue_pair_is_taken_to_error(void)
{
	in_the_middle('e');
}

static void a_busy_queue_pair_is_drained_and_goes_on(void)
{
	in_the_middle('s');
}

static void a_fork_in_the_middle_disturbs_nothing(void)
{
	in_the_middle('f');
}

/* --- slots --- */

/* Posts until the queue is full, and checks that it stays full. Returns the number of requests. */
static unsigned post_all(struct link *l, struct mem *m, struct far far, uint64_t id)
{
	unsigned n = 0;

	for (int refused = 0; refused < 30 && n < 100; refused++) {
		int err =
		        try_post(l, &(struct wr){.op = IBV_WR_RDMA_WRITE, .id = id + n, .m = m, .len = 8, .far = far});

		CHECK(!err || err == ENOMEM);
		if (err)
			sleep_ms(1);
		else
			n++, refused = 0;
	}
	return n;
}

/* Opens the device and makes the memory. The peer, a target, connects one queue pair. Returns its memory. */
static struct far meet_target(const struct peer *p, struct dev *d, struct mem *m)
{
	int n = 1;

	open_iwarp(d);
	mem_make(m, d, 4096);
	struct far far = far_hear(p->fd);

	tell(p->fd, &n, sizeof(n));
	return far;
}

/* TCP has taken them long ago. */
static void requests_hold_their_slots_until_their_completions_are_polled(void)
{
	struct peer p = start(target, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct far far = meet_target(&p, &d, &m);

	stream_open(&l, &d, &(struct conf){.depth = 8, .cqe = 511}, p.fd);
	SAME(post_all(&l, &m, far, 0), 8);
	for (uint64_t i = 0; i < 20; i++) {
		expect(l.scq, i, IBV_WC_SUCCESS);
		SAME(post_all(&l, &m, far, 8 + i), 1);
	}
	for (uint64_t i = 20; i < 28; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	expect_none(l.scq, 5);
	tell(p.fd, "e", 1);
	finish(&p);
}

static void a_queue_that_overruns_ends_its_stream(void)
{
	struct peer p = start(target, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct far far = meet_target(&p, &d, &m);
	struct ibv_cq *small = ibv_create_cq(d.ctx, 3, NULL, NULL, 0);

	CHECK(small);
	stream_open(&l, &d, &(struct conf){.depth = 8, .scq = small}, p.fd);
	post_all(&l, &m, far, 0);
	SAME(next_event(&d, PATIENCE), IBV_EVENT_CQ_ERR);
	SAME(next_event(&d, PATIENCE), IBV_EVENT_QP_FATAL);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	wait_closed(1);
	for (uint64_t i = 0; i < 3; i++)
		expect(small, i, IBV_WC_SUCCESS);
	kill_peer(&p);
}

/* IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: the oldest completions make room, and the stream goes on. */
static void a_queue_that_ignores_its_overrun_keeps_the_newest(void)
{
	struct peer p = start(target, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct far far = meet_target(&p, &d, &m);
	struct ibv_cq_init_attr_ex a = {.cqe = 3,
	                                .wc_flags = IBV_WC_STANDARD_FLAGS,
	                                .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
	                                .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(d.ctx, &a);

	CHECK(ex);
	struct ibv_cq *small = ibv_cq_ex_to_cq(ex);
	uint64_t last = 99, next = last - (uint64_t)small->cqe - 8;

	stream_open(&l, &d, &(struct conf){.depth = 8, .scq = small}, p.fd);
	SAME(post_all(&l, &m, far, 0), last + 1);
	while (next <= last) {
		struct ibv_wc wc = wait_wc(small);

		SAME(wc.status, IBV_WC_SUCCESS);
		CHECK(wc.wr_id >= next && wc.wr_id <= last);
		next = wc.wr_id + 1;
	}
	expect_none(small, 5);
	SAME(next_event(&d, 20), -1);
	SAME(state_of(l.qp), IBV_QPS_RTS);
	tell(p.fd, "e", 1);
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a lone small write completes, whatever the connections",
	         a_lone_small_write_completes_whatever_the_connections},
	        {"a lone small write is there for who looks once", a_lone_small_write_is_there_for_who_looks_once},
	        {"messages wait for one that polls", messages_wait_for_one_that_polls},
	        {"messages wait for one that sleeps", messages_wait_for_one_that_sleeps},
	        {"messages wait, with CRC and markers", messages_wait_with_crc_and_markers},
	        {"messages wait for a shared queue", messages_wait_for_a_shared_queue},
	        {"a message that waits too long ends the stream", a_message_that_waits_too_long_ends_the_stream},
	        {"who waits finds its peer gone", who_waits_finds_its_peer_gone, 200},
	        {"a busy queue pair is destroyed", a_busy_queue_pair_is_destroyed},
	        {"a busy queue pair is taken to error", a_busy_queue_pair_is_taken_to_error},
	        {"a busy queue pair is drained and goes on", a_busy_queue_pair_is_drained_and_goes_on},
	        {"a fork in the middle disturbs nothing", a_fork_in_the_middle_disturbs_nothing},
	        {"requests hold their slots until their completions are polled",
	         requests_hold_their_slots_until_their_completions_are_polled},
	        {"a queue that overruns ends its stream", a_queue_that_overruns_ends_its_stream},
	        {"a queue that ignores its overrun keeps the newest",
	         a_queue_that_ignores_its_overrun_keeps_the_newest},
	};

	return RUN_TESTS(argc, argv, tests);
}
