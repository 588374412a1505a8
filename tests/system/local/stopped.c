// stopped.c - on one host a stopped program does not count as dead, and a sleeping one still serves
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <signal.h>
#include <stdatomic.h>

#define BIG (1u << 20)

/* Posts its receives and then does nothing, so that its progress thread does all work. */
static void sleeper(int fd, void *arg)
{
	enum ibv_qp_type type = *(enum ibv_qp_type *)arg;
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 8 << 20);
	fill(m.p + BIG, BIG, 5);
	link_make(&l, &d, &(struct conf){.type = type, .depth = 64});
	for (uint64_t i = 0; i < 32; i++)
		post_recv(&l, i, &m, (4 << 20) + i * 65536, 65536);
	mem_tell(&m, fd);
	link_join(&l, fd);
	for (;;) {
		char c;

		hear(fd, &c, 1); /* blocked; a message asks for the first byte of the region, to check it */
		if (c == 'q')
			return;
		if (c == 'l') {
			uint64_t v = *(volatile uint64_t *)m.p;

			tell(fd, &v, sizeof(v));
		} else if (c == 'r') {
			for (uint64_t i = 0; i < 4; i++)
				CHECK(wait_wc(l.rcq).status == IBV_WC_SUCCESS);
			tell(fd, "k", 1);
		} else if (c == 'o') { /* one message has come, and no other comes */
			CHECK(wait_wc(l.rcq).status == IBV_WC_SUCCESS);
			expect_none(l.rcq, 500);
			tell(fd, "k", 1);
		}
	}
}

struct side {
	struct peer p;
	struct dev d;
	struct link l;
	struct mem m;
	struct far far;
};

static void open_side(struct side *s, enum ibv_qp_type type, struct conf c)
{
	s->p = start(sleeper, &type);
	dev_open(&s->d);
	mem_make(&s->m, &s->d, 4 << 20);
	c.type = type;
	link_make(&s->l, &s->d, &c);
	s->far = far_hear(s->p.fd);
	link_join(&s->l, s->p.fd);
}

/* Fails if a one-sided request needs the target's program or its progress thread. */
static void writes_and_reads_complete_at_a_stopped_target(void)
{
	static const uint32_t sizes[] = {1, 8, 64, 4096, 65536, BIG};
	struct side s;

	open_side(&s, IBV_QPT_RC, (struct conf){.timeout = 8, .retry = 1});
	stop_peer(&s.p);
	for (unsigned i = 0; i < 6; i++) {
		fill(s.m.p, sizes[i], i + 9);
		POST(&s.l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &s.m, .len = sizes[i], .far = s.far);
		expect(s.l.scq, 1, IBV_WC_SUCCESS);
		memset(s.m.p + BIG, 0, BIG);
		POST(&s.l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &s.m, .off = BIG, .len = sizes[i], .far = s.far);
		expect(s.l.scq, 2, IBV_WC_SUCCESS);
		CHECK(holds(s.m.p + BIG, sizes[i], i + 9));
	}
	cont_peer(&s.p);
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

/* Fails if reads that the target has begun to answer wait for it. */
static void reads_in_flight_complete_when_the_target_stops(void)
{
	uint64_t seed = 5;
	struct side s;

	open_side(&s, IBV_QPT_RC, (struct conf){.timeout = 8, .retry = 1});
	fill(s.m.p, BIG, 3);
	POST(&s.l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &s.m, .len = BIG, .far = s.far);
	expect(s.l.scq, 1, IBV_WC_SUCCESS);
	for (unsigned round = 0; round < count_or(100); round++) {
		uint32_t len = 16384 + random_next(&seed) % (BIG - 16384);

		memset(s.m.p + BIG, 0, BIG);
		for (uint64_t i = 0; i < 8; i++)
			POST(&s.l, .op = IBV_WR_RDMA_READ, .id = i, .m = &s.m, .off = BIG, .len = len, .far = s.far);
		for (unsigned spins = random_next(&seed) % 3000; spins; spins--)
			atomic_signal_fence(memory_order_seq_cst);
		stop_peer(&s.p);
		for (uint64_t i = 0; i < 8; i++)
			expect(s.l.scq, i, IBV_WC_SUCCESS);
		CHECK(holds(s.m.p + BIG, len, 3));
		memset(s.m.p + BIG, 7, BIG);
		cont_peer(&s.p);
		POST(&s.l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 9, .m = &s.m, .len = 8, .far = s.far,
		     .far_off = 2 * BIG);
		expect(s.l.scq, 9, IBV_WC_SUCCESS);
		for (uint32_t i = 0; i < len; i++) /* data that comes late is ignored */
			CHECK(s.m.p[BIG + i] == 7);
	}
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

/* Fails if writes that the target has begun to store wait for it, or if it stores data of one that has completed. */
static void writes_in_flight_complete_when_the_target_stops(void)
{
	uint64_t seed = 6;
	struct side s;

	open_side(&s, IBV_QPT_RC, (struct conf){.timeout = 8, .retry = 1});
	for (unsigned round = 0; round < count_or(150); round++) {
		uint32_t len = 16384 + random_next(&seed) % (BIG - 16384);
		bool sends = round < 150 && round % 5 == 0; /* the target has 32 receives */

		fill(s.m.p, BIG, round);
		fill(s.m.p + BIG, BIG, round + 1000000);
		for (uint64_t i = 0; i < 8; i++)
			POST(&s.l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = &s.m, .len = len, .far = s.far);
		for (unsigned spins = random_next(&seed) % 20000; spins; spins--)
			atomic_signal_fence(memory_order_seq_cst);
		stop_peer(&s.p);
		for (uint64_t i = 0; i < 8; i++)
			expect(s.l.scq, i, IBV_WC_SUCCESS);
		POST(&s.l, .op = IBV_WR_RDMA_WRITE, .id = 8, .m = &s.m, .off = BIG, .len = len, .far = s.far);
		expect(s.l.scq, 8, IBV_WC_SUCCESS);
		if (sends) /* behind the records of the withdrawn writes */
			POST(&s.l, .op = IBV_WR_SEND, .id = 9, .m = &s.m, .off = 64, .len = 64);
		cont_peer(&s.p);
		if (sends)
			expect(s.l.scq, 9, IBV_WC_SUCCESS);
		POST(&s.l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 10, .m = &s.m, .len = 8, .far = s.far,
		     .far_off = 2 * BIG);
		expect(s.l.scq, 10, IBV_WC_SUCCESS);
		POST(&s.l, .op = IBV_WR_RDMA_READ, .id = 11, .m = &s.m, .off = 2 * BIG, .len = len, .far = s.far);
		expect(s.l.scq, 11, IBV_WC_SUCCESS);
		CHECK(holds(s.m.p + 2 * BIG, len, round + 1000000));
	}
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

/* Fails if the timer runs against a living peer: 2 ms, one retry, and three seconds of silence. */
static void what_waits_for_a_stopped_target_completes_when_it_goes_on(void)
{
	struct side s;

	open_side(&s, IBV_QPT_RC, (struct conf){.timeout = 9, .retry = 1, .rnr_retry = 1});
	stop_peer(&s.p);
	POST(&s.l, .op = IBV_WR_SEND, .id = 1, .m = &s.m, .len = 64);
	POST(&s.l, .op = IBV_WR_SEND, .id = 2, .m = &s.m, .len = 65536);
	POST(&s.l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 3, .m = &s.m, .off = 8, .len = 8, .far = s.far,
	     .compare_add = 5);
	POST(&s.l, .op = IBV_WR_RDMA_WRITE, .id = 4, .m = &s.m, .off = BIG, .len = BIG, .far = s.far, .far_off = BIG);
	POST(&s.l, .op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 5, .m = &s.m, .off = BIG, .len = 8, .far = s.far,
	     .far_off = BIG);
	POST(&s.l, .op = IBV_WR_RDMA_READ, .id = 6, .m = &s.m, .off = 16, .len = 8, .far = s.far);
	expect_none(s.l.scq, 3000);
	SAME(state_of(s.l.qp), IBV_QPS_RTS);
	cont_peer(&s.p);
	for (uint64_t i = 1; i <= 6; i++)
		expect(s.l.scq, i, IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(s.m.p + 16), 5);
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

/* The same by ring, with a sleeping requester and stops at random moments. Fails if a request that the target has begun
 * to answer counts as lost. */
static void a_target_that_is_stopped_again_and_again_times_nothing_out(void)
{
	uint64_t seed = 12, until;
	struct side s;
	unsigned rounds = 0;

	CHECK(forbid_process_vm(EPERM)); /* inherited by the other process */
	open_side(&s, IBV_QPT_RC, (struct conf){.timeout = 8, .retry = 1, .depth = 16});
	until = now_ms() + 3000;
	while (now_ms() < until) {
		fill(s.m.p, BIG, rounds);
		POST(&s.l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &s.m, .len = BIG, .far = s.far);
		POST(&s.l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &s.m, .off = BIG, .len = BIG, .far = s.far);
		POST(&s.l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 3, .m = &s.m, .off = 3 * BIG, .len = 8,
		     .far = s.far, .far_off = 2 * BIG);
		struct ibv_wc wc;

		for (unsigned spins = random_next(&seed) % 1000; spins; spins--)
			if (ibv_poll_cq(s.l.scq, 0, &wc))
				break;
		sleep_ms(random_next(&seed) % 2);
		stop_peer(&s.p);
		sleep_ms(10 + random_next(&seed) % 20);
		cont_peer(&s.p);
		expect(s.l.scq, 1, IBV_WC_SUCCESS);
		expect(s.l.scq, 2, IBV_WC_SUCCESS);
		expect(s.l.scq, 3, IBV_WC_SUCCESS);
		CHECK(holds(s.m.p + BIG, BIG, rounds));
		memset(s.m.p + BIG, 0, BIG);
		rounds++;
	}
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

static void a_sleeping_target_serves_sends_and_atomics(void)
{
	struct side s;
	uint64_t v;

	open_side(&s, IBV_QPT_RC, (struct conf){0});
	sleep_ms(20);
	for (uint64_t i = 0; i < 4; i++) {
		POST(&s.l, .op = IBV_WR_SEND, .id = i, .m = &s.m, .len = i & 1 ? 60000 : 60);
		expect(s.l.scq, i, IBV_WC_SUCCESS);
		sleep_ms(3);
	}
	for (uint64_t i = 0; i < 10; i++) {
		POST(&s.l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = i, .m = &s.m, .off = 64, .len = 8, .far = s.far,
		     .compare_add = 3);
		expect(s.l.scq, i, IBV_WC_SUCCESS);
		SAME(*(uint64_t *)(s.m.p + 64), 3 * i);
		sleep_ms(2);
	}
	POST(&s.l, .op = IBV_WR_ATOMIC_CMP_AND_SWP, .id = 9, .m = &s.m, .off = 64, .len = 8, .far = s.far,
	     .compare_add = 30, .swap = 1234);
	expect(s.l.scq, 9, IBV_WC_SUCCESS);
	tell(s.p.fd, "l", 1);
	hear(s.p.fd, &v, sizeof(v));
	SAME(v, 1234);
	tell(s.p.fd, "r", 1);
	hear(s.p.fd, &v, 1);
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

static void a_sleeping_target_receives_datagrams(void)
{
	struct side s;
	char c;

	open_side(&s, IBV_QPT_UD, (struct conf){0});
	struct ibv_ah_attr a = {.is_global = 1,
	                        .port_num = 1,
	                        .grh = {.dgid = s.l.it.gid, .sgid_index = (uint8_t)s.d.gid_index, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(s.d.pd, &a);

	CHECK(ah);
	sleep_ms(20);
	for (uint64_t i = 0; i < 4; i++) {
		POST(&s.l, .op = IBV_WR_SEND, .id = i, .m = &s.m, .len = 100, .ah = ah, .qpn = s.l.it.qpn,
		     .qkey = QKEY);
		expect(s.l.scq, i, IBV_WC_SUCCESS);
		sleep_ms(2);
	}
	/* and while it is stopped they wait in its ring */
	tell(s.p.fd, "r", 1);
	hear(s.p.fd, &c, 1);
	stop_peer(&s.p);
	for (uint64_t i = 0; i < 4; i++) {
		POST(&s.l, .op = IBV_WR_SEND, .id = i, .m = &s.m, .len = 100, .ah = ah, .qpn = s.l.it.qpn,
		     .qkey = QKEY);
		expect(s.l.scq, i, IBV_WC_SUCCESS);
	}
	sleep_ms(300);
	cont_peer(&s.p);
	tell(s.p.fd, "r", 1);
	hear(s.p.fd, &c, 1);
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

/* A requester that sleeps in ibv_get_cq_event is woken, however long the target was stopped. */
static void a_sleeping_requester_is_woken_when_its_target_goes_on(void)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct side s;
	void *ctx;

	s.p = start(sleeper, &(enum ibv_qp_type){IBV_QPT_RC});
	dev_open(&s.d);
	mem_make(&s.m, &s.d, 4 << 20);
	ch = ibv_create_comp_channel(s.d.ctx);
	CHECK(ch && (cq = ibv_create_cq(s.d.ctx, 64, NULL, ch, 0)));
	link_make(&s.l, &s.d, &(struct conf){.scq = cq, .timeout = 8, .retry = 1});
	s.far = far_hear(s.p.fd);
	link_join(&s.l, s.p.fd);
	for (int i = 0; i < 10; i++) {
		CHECK(!ibv_req_notify_cq(cq, 0));
		stop_peer(&s.p);
		POST(&s.l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 1, .m = &s.m, .len = 8, .far = s.far);
		CHECK(!heard(ch->fd, 50));
		cont_peer(&s.p);
		CHECK(heard(ch->fd, PATIENCE));
		CHECK(!ibv_get_cq_event(ch, &cq, &ctx));
		ibv_ack_cq_events(cq, 1);
		expect(cq, 1, IBV_WC_SUCCESS);
	}
	tell(s.p.fd, "q", 1);
	finish(&s.p);
}

/* Polls until the other side is there, and destroys each queue pair without another poll when it has heard from it. */
static void leaver(int fd, void *arg)
{
	struct ibv_wc wc;
	struct dev d;
	struct mem m;
	char c;

	(void)arg;
	dev_open(&d);
	mem_make(&m, &d, 4096);
	do {
		struct link l;

		link_make(&l, &d, &(struct conf){0});
		post_recv(&l, 1, &m, 0, 64);
		link_join(&l, fd);
		for (unsigned k = 0; k < 3000; k++) /* now it owns progress, and nobody rings its doorbell */
			SAME(ibv_poll_cq(l.rcq, 1, &wc), 0);
		tell(fd, "g", 1);
		hear(fd, &c, 1);
		link_end(&l);
		meet_up(fd);
		hear(fd, &c, 1);
	} while (c == 'm');
}

/* Fails if a message that has arrived is not acknowledged, because its target did not poll before it left. */
static void a_target_that_leaves_acknowledges_what_has_arrived(void)
{
	unsigned long rounds = count_or(200);
	uint64_t until = now_ms() + 20000; /* beside busy programs a round takes seconds */
	struct peer p = start(leaver, NULL);
	struct dev d;
	struct mem m;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	for (unsigned long i = 0;; i++) {
		struct link l;

		link_make(&l, &d, &(struct conf){0});
		link_join(&l, p.fd);
		hear(p.fd, &c, 1);
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 8);
		tell(p.fd, "s", 1);
		expect(l.scq, i, IBV_WC_SUCCESS);
		meet_up(p.fd);
		link_end(&l);
		bool more = i + 1 < rounds && now_ms() < until;

		tell(p.fd, more ? "m" : "q", 1);
		if (!more)
			break;
	}
	finish(&p);
}

/* Reaches RTR only when it has gone on. */
static void latecomer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 0, 64);
	tell(fd, &l.me, sizeof(l.me));
	hear(fd, &l.it, sizeof(l.it)); /* stopped meanwhile */
	link_to(&l, &l.it);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	meet_up(fd);
}

/* Fails if retries to a program count that has not met this one yet: it is stopped, or gets no processor. */
static void requests_to_a_program_that_stops_before_it_has_met_its_peer_wait(void)
{
	struct peer p = start(latecomer, NULL);
	struct addr it;
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.timeout = 16, .retry = 7}); /* 0.27 s each */
	hear(p.fd, &it, sizeof(it));
	stop_peer(&p);
	link_to(&l, &it);
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 8);
	expect_none(l.scq, 5000);
	tell(p.fd, &l.me, sizeof(l.me));
	cont_peer(&p);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
}

/* Fails if the receiver of a large SEND copies the sender's memory after the request was flushed, when the sender's
 * program uses that memory for something else. */
static void a_send_that_was_flushed_does_not_arrive(void)
{
	CHECK(!setenv("VERBENA_SENDS", "fetch", 1));
	for (int i = 0; i < 3; i++) {
		struct side s;
		char c;

		open_side(&s, IBV_QPT_RC, (struct conf){.depth = 16});
		POST(&s.l, .op = IBV_WR_SEND, .id = 1, .m = &s.m, .len = 8);
		expect(s.l.scq, 1, IBV_WC_SUCCESS);
		stop_peer(&s.p);
		POST(&s.l, .op = IBV_WR_SEND, .id = 2, .m = &s.m, .len = 65536);
		if (i == 2)
			SAME(ibv_destroy_qp(s.l.qp), 0);
		else
			SAME(to_state(s.l.qp, i ? IBV_QPS_RESET : IBV_QPS_ERR), 0);
		if (i == 0)
			expect(s.l.scq, 2, IBV_WC_WR_FLUSH_ERR);
		memset(s.m.p, 7, 65536);
		cont_peer(&s.p);
		tell(s.p.fd, "o", 1);
		hear(s.p.fd, &c, 1);
		tell(s.p.fd, "q", 1);
		finish(&s.p);
		if (i < 2)
			SAME(ibv_destroy_qp(s.l.qp), 0);
		mem_end(&s.m);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"writes and reads complete at a stopped target", writes_and_reads_complete_at_a_stopped_target},
	        {"reads in flight complete when the target stops", reads_in_flight_complete_when_the_target_stops},
	        {"writes in flight complete when the target stops", writes_in_flight_complete_when_the_target_stops},
	        {"what waits for a stopped target completes when it goes on",
	         what_waits_for_a_stopped_target_completes_when_it_goes_on},
	        {"a target that is stopped again and again times nothing out",
	         a_target_that_is_stopped_again_and_again_times_nothing_out},
	        {"a target that leaves acknowledges what has arrived",
	         a_target_that_leaves_acknowledges_what_has_arrived},
	        {"requests to a program that stops before it has met its peer wait",
	         requests_to_a_program_that_stops_before_it_has_met_its_peer_wait},
	        {"a send that was flushed does not arrive", a_send_that_was_flushed_does_not_arrive},
	        {"a sleeping target serves sends and atomics", a_sleeping_target_serves_sends_and_atomics},
	        {"a sleeping target receives datagrams", a_sleeping_target_receives_datagrams},
	        {"a sleeping requester is woken when its target goes on",
	         a_sleeping_requester_is_woken_when_its_target_goes_on},
	};

	return RUN_TESTS(argc, argv, tests);
}
