// slots.c - a request holds its slot until its completion has been polled; an overrun of a completion queue is reported
// follows: IBA volume 1, 10.8.5 (returning completions), 11.6.3.1 (CQ error); ibv_post_send(3), ibv_get_async_event(3)
// SPDX-License-Identifier: MIT
#include "pair.h"
#include "../../support/post_all.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEPTH 8u

/* Two queue pairs of one process. The completion queue of a is many times larger than its depth. */
struct two {
	struct dev d;
	struct link a, b;
	struct mem m;
	struct far f;
};

static void two_open(struct two *t, struct conf ca, struct conf cb)
{
	dev_open(&t->d);
	mem_make(&t->m, &t->d, 1 << 16);
	t->f = (struct far){(uintptr_t)t->m.p, t->m.mr->rkey, 0};
	if (!ca.depth)
		ca.depth = DEPTH;
	if (!ca.cqe)
		ca.cqe = PLENTY;
	link_make(&t->a, &t->d, &ca);
	link_make(&t->b, &t->d, &cb);
	link_to(&t->a, &t->b.me);
	link_to(&t->b, &t->a.me);
}

static int write_8(struct two *t, uint64_t id, bool quiet)
{
	return try_post(&t->a, &(struct wr){.op = IBV_WR_RDMA_WRITE,
	                                    .id = id,
	                                    .m = &t->m,
	                                    .len = 8,
	                                    .far = t->f,
	                                    .far_off = 64,
	                                    .quiet = quiet});
}

static int write_by_builder(struct two *t, uint64_t id, bool quiet)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(t->a.qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = quiet ? 0 : IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, t->f.rkey, t->f.addr + 64);
	ibv_wr_set_sge(x, t->m.mr->lkey, (uintptr_t)t->m.p, 8);
	return ibv_wr_complete(x);
}

static void hold_their_slots(post_fn *one, bool ex)
{
	struct two t;

	two_open(&t, (struct conf){.ex = ex}, (struct conf){0});
	SAME(post_all(&t, one, 0, false), DEPTH);
	for (uint64_t i = 0; i < 40; i++) { /* one polled completion frees one slot; several times round */
		expect(t.a.scq, i, IBV_WC_SUCCESS);
		SAME(post_all(&t, one, DEPTH + i, false), 1);
	}
	for (uint64_t i = 40; i < 40 + DEPTH; i++)
		expect(t.a.scq, i, IBV_WC_SUCCESS);
	expect_none(t.a.scq, 5);
}

static void requests_hold_their_slots_until_their_completions_are_polled(void)
{
	hold_their_slots(write_8, false);
}

static void built_requests_hold_their_slots_until_their_completions_are_polled(void)
{
	hold_their_slots(write_by_builder, true);
}

static void extended_polling_gives_slots_back(void)
{
	struct ibv_poll_cq_attr attr = {0};
	struct two t;

	dev_open(&t.d);
	struct ibv_cq_init_attr_ex ca = {.cqe = PLENTY, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(t.d.ctx, &ca);

	CHECK(cq);
	mem_make(&t.m, &t.d, 4096);
	t.f = (struct far){(uintptr_t)t.m.p, t.m.mr->rkey, 0};
	link_make(&t.a, &t.d, &(struct conf){.depth = DEPTH, .scq = ibv_cq_ex_to_cq(cq)});
	link_make(&t.b, &t.d, &(struct conf){0});
	link_to(&t.a, &t.b.me);
	link_to(&t.b, &t.a.me);
	SAME(post_all(&t, write_8, 0, false), DEPTH);
	SAME(ibv_start_poll(cq, &attr), 0);
	SAME(cq->wr_id, 0);
	SAME(write_8(&t, DEPTH, false), 0); /* an entry that the iterator returned counts as polled */
	SAME(write_8(&t, 99, false), ENOMEM);
	SAME(ibv_next_poll(cq), 0);
	SAME(cq->wr_id, 1);
	SAME(write_8(&t, DEPTH + 1, false), 0);
	ibv_end_poll(cq);
	for (uint64_t i = 2; i < DEPTH + 2; i++)
		expect(t.a.scq, i, IBV_WC_SUCCESS);
}

/* Unsignalled requests free their slots when they are done, so a program that never signals can go on forever. */
static void requests_without_a_completion_hold_no_slot_when_they_are_done(void)
{
	struct two t;

	two_open(&t, (struct conf){0}, (struct conf){0});
	SAME(post_all(&t, write_8, 0, true), PLENTY);
	for (uint64_t until = now_ms() + PATIENCE;;) { /* the last DEPTH requests may still be outstanding */
		int err = write_8(&t, 1, false);

		CHECK(!err || (err == ENOMEM && now_ms() < until));
		if (!err)
			break;
	}
	expect(t.a.scq, 1, IBV_WC_SUCCESS);
	expect_none(t.a.scq, 5);
}

/* One of four is signalled: the ones before it hold their slots until it has been polled. */
static void requests_before_one_that_is_signaled_wait_for_it(void)
{
	struct two t;
	uint64_t posted = 0, told = 3;

	two_open(&t, (struct conf){0}, (struct conf){0});
	for (; told < 200; told += 4) {
		for (uint64_t until = now_ms() + PATIENCE; posted <= told;) {
			int err = write_8(&t, posted, posted % 4 != 3);

			CHECK(!err || (err == ENOMEM && now_ms() < until));
			posted += !err;
		}
		expect(t.a.scq, told, IBV_WC_SUCCESS);
	}
	expect_none(t.a.scq, 5);
}

static void failed_requests_hold_their_slots_too(void)
{
	struct far bad;
	struct two t;

	two_open(&t, (struct conf){0}, (struct conf){0});
	bad = (struct far){t.f.addr, t.f.rkey ^ 0x5a5, 0};
	POST(&t.a, .op = IBV_WR_RDMA_WRITE, .id = 0, .m = &t.m, .len = 8, .far = bad, .quiet = true);
	for (uint64_t until = now_ms() + PATIENCE; state_of(t.a.qp) != IBV_QPS_ERR && now_ms() < until;)
		sleep_ms(1);
	SAME(post_all(&t, write_8, 1, true), DEPTH - 1); /* errors hold slots even without SIGNALED */
	expect(t.a.scq, 0, IBV_WC_REM_ACCESS_ERR);
	SAME(post_all(&t, write_8, DEPTH, true), 1);
	for (uint64_t i = 1; i <= DEPTH; i++)
		expect(t.a.scq, i, IBV_WC_WR_FLUSH_ERR);
	expect_none(t.a.scq, 5);
}

static void back_to_rts(struct two *t)
{
	for (int k = 0; k < 2; k++) {
		struct link *l = k ? &t->a : &t->b;
		struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};

		CHECK(!to_state(l->qp, IBV_QPS_RESET));
		CHECK(!ibv_modify_qp(l->qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	}
	link_to(&t->a, &t->b.me);
	link_to(&t->b, &t->a.me);
}

static void after_reset_all_slots_are_free(void)
{
	struct two t;

	two_open(&t, (struct conf){0}, (struct conf){.rdepth = DEPTH});
	for (int round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < DEPTH; i++)
			post_recv(&t.b, i, &t.m, 0, 64);
		for (uint64_t i = 0; i < DEPTH; i++)
			POST(&t.a, .op = IBV_WR_SEND, .id = i, .m = &t.m, .len = 8);
		SAME(post_all(&t, write_8, 0, false), 0);
		expect(t.a.scq, 0, IBV_WC_SUCCESS);
		back_to_rts(&t); /* removes all other completions, at the other end, too */
	}
	SAME(post_all(&t, write_8, 0, false), DEPTH);
}

/* --- receives --- */

static int try_recv(struct link *l, struct ibv_srq *srq, uint64_t id, struct mem *m)
{
	struct ibv_sge sge = {(uintptr_t)m->p, 64, m->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;

	return srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(l->qp, &wr, &bad);
}

static void receives_hold(bool shared)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_srq *srq = NULL;
	struct two t;

	dev_open(&t.d);
	mem_make(&t.m, &t.d, 4096);
	if (shared)
		CHECK((srq = ibv_create_srq(t.d.pd, &sa)));
	link_make(&t.a, &t.d, &(struct conf){0});
	link_make(&t.b, &t.d, &(struct conf){.srq = srq, .rdepth = DEPTH, .cqe = PLENTY});
	link_to(&t.a, &t.b.me);
	link_to(&t.b, &t.a.me);
	for (uint64_t i = 0; i < 5 * DEPTH; i += DEPTH) {
		for (uint64_t k = i; k < i + DEPTH; k++)
			SAME(try_recv(&t.b, srq, k, &t.m), 0);
		for (uint64_t k = i; k < i + DEPTH; k++)
			POST(&t.a, .op = IBV_WR_SEND, .id = k, .m = &t.m, .len = 8);
		for (uint64_t k = i; k < i + DEPTH; k++)
			expect(t.a.scq, k, IBV_WC_SUCCESS);
		SAME(try_recv(&t.b, srq, 999, &t.m), ENOMEM);
		for (uint64_t k = i; k < i + DEPTH; k++)
			expect(t.b.rcq, k, IBV_WC_SUCCESS);
	}
}

static void receives_hold_their_slots_until_their_completions_are_polled(void)
{
	receives_hold(false);
}

static void receives_of_a_shared_queue_hold_their_slots_until_their_completions_are_polled(void)
{
	receives_hold(true);
}

/* Resets or destroys a queue pair with unpolled completions, in the middle of a message. */
static void a_shared_queue_has_back_what_a_queue_pair_leaves(void)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct dev d;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 1 << 16);
	struct ibv_srq *srq = ibv_create_srq(d.pd, &sa);

	CHECK(srq);
	for (int round = 0; round < 6; round++) {
		struct link a, b;

		link_make(&a, &d, &(struct conf){0});
		link_make(&b, &d, &(struct conf){.srq = srq});
		link_to(&a, &b.me);
		link_to(&b, &a.me);
		for (uint64_t i = 0; i < DEPTH; i++)
			SAME(try_recv(&b, srq, i, &m), 0);
		for (uint64_t i = 0; i < DEPTH; i++)
			POST(&a, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 8);
		for (uint64_t i = 0; i < DEPTH; i++)
			expect(a.scq, i, IBV_WC_SUCCESS);
		SAME(try_recv(&b, srq, 99, &m), ENOMEM);
		if (round & 1)
			CHECK(!to_state(b.qp, IBV_QPS_RESET));
		link_end(&b);
		link_end(&a);
	}
}

/* --- overrun --- */

static void expect_event(struct dev *d, int type)
{
	int ev;

	while ((ev = next_event(d, PATIENCE)) == IBV_EVENT_COMM_EST)
		;
	SAME(ev, type);
}

/* An overrun of a shared completion queue ends both its queue pairs, and no other one. */
static void a_queue_that_overruns_ends_its_queue_pairs(void)
{
	struct dev d;
	struct link a, b;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	struct far f = {(uintptr_t)m.p, m.mr->rkey, 0};
	struct ibv_cq *small = ibv_create_cq(d.ctx, 3, NULL, NULL, 0);

	CHECK(small);
	link_make(&a, &d, &(struct conf){.scq = small});
	link_make(&b, &d, &(struct conf){0});
	link_to(&a, &b.me);
	link_to(&b, &a.me);
	uint64_t room = (uint64_t)small->cqe;

	for (uint64_t i = 0; i < room; i++)
		POST(&a, .op = IBV_WR_RDMA_WRITE, .id = i, .m = &m, .len = 8, .far = f);
	SAME(next_event(&d, 50), -1); /* a full queue is not an overrun */
	SAME(state_of(a.qp), IBV_QPS_RTS);
	POST(&a, .op = IBV_WR_RDMA_WRITE, .id = room, .m = &m, .len = 8, .far = f);
	expect_event(&d, IBV_EVENT_CQ_ERR);
	expect_event(&d, IBV_EVENT_QP_FATAL);
	SAME(state_of(a.qp), IBV_QPS_ERR);
	SAME(state_of(b.qp), IBV_QPS_RTS);
	for (uint64_t i = 0; i < room; i++)
		expect(small, i, IBV_WC_SUCCESS);
	expect_none(small, 5);
	SAME(next_event(&d, 20), -1);
	link_end(&a);
	CHECK(!ibv_destroy_cq(small));
}

/* A queue of a few entries, where an overrun is no error: IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN. */
static struct ibv_cq *careless(struct dev *d)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 3,
	                                .wc_flags = IBV_WC_STANDARD_FLAGS,
	                                .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
	                                .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(d->ctx, &a);

	CHECK(cq);
	return ibv_cq_ex_to_cq(cq);
}

/* Polls until the last of so many completions is there, in order; those that the queue had no room for are missing, and
 * these alone: `under_way` may have come after the last post. */
static void has_kept_the_newest(struct ibv_cq *cq, uint64_t n, uint64_t under_way)
{
	uint64_t room = (uint64_t)cq->cqe, next = n - room - under_way;

	CHECK(n > 2 * (room + under_way));
	do {
		struct ibv_wc wc = wait_wc(cq);

		SAME(wc.status, IBV_WC_SUCCESS);
		CHECK(wc.wr_id >= next && wc.wr_id < n);
		next = wc.wr_id + 1;
	} while (next < n);
	expect_none(cq, 5);
}

static void post_as_slots_come_back(struct two *t, const struct wr *w)
{
	uint64_t until = now_ms() + PATIENCE;
	int err;

	while ((err = try_post(&t->a, w)) == ENOMEM && now_ms() < until)
		expect_none(t->b.scq, 0); /* makes progress */
	SAME(err, 0);
}

static void a_queue_that_ignores_its_overrun_keeps_the_newest(void)
{
	struct two t;

	dev_open(&t.d);
	mem_make(&t.m, &t.d, 1 << 16);
	struct ibv_cq *sends = careless(&t.d), *receives = careless(&t.d);
	const uint64_t n = 100;

	link_make(&t.a, &t.d, &(struct conf){.depth = DEPTH, .inline_max = 16, .scq = sends});
	link_make(&t.b, &t.d, &(struct conf){.rdepth = (unsigned)n, .rcq = receives});
	link_to(&t.a, &t.b.me);
	link_to(&t.b, &t.a.me);
	for (uint64_t i = 0; i < n; i++)
		post_recv(&t.b, i, &t.m, 4096 + i * 64, 64);
	for (uint64_t i = 0; i < n; i++) {
		t.m.p[0] = (uint8_t)i;
		post_as_slots_come_back(
		        &t, &(struct wr){.op = IBV_WR_SEND, .id = i, .m = &t.m, .len = 1, .flags = IBV_SEND_INLINE});
	}
	has_kept_the_newest(sends, n, DEPTH);
	has_kept_the_newest(receives, n, DEPTH);
	for (uint64_t i = 0; i < n; i++)
		SAME(t.m.p[4096 + i * 64], i);
	for (int i = 0; i < 2; i++) { /* COMM_EST at most */
		int event = next_event(&t.d, 20);

		CHECK(event == -1 || event == IBV_EVENT_COMM_EST);
	}
	SAME(state_of(t.a.qp), IBV_QPS_RTS);
	SAME(state_of(t.b.qp), IBV_QPS_RTS);
	link_end(&t.a);
	link_end(&t.b);
	CHECK(!ibv_destroy_cq(sends) && !ibv_destroy_cq(receives));
}

/* --- threads --- */

#define THREADS 4u
#define EACH 20000u

struct crowd {
	struct two t;
	post_fn *one;
	atomic_uint done;
};

static void *posts(void *arg)
{
	struct crowd *c = arg;

	for (unsigned i = 0; i < EACH;) {
		int err = c->one(&c->t, i, false);

		if (err != ENOMEM)
			SAME(err, 0);
		else
			sched_yield();
		i += !err;
	}
	return NULL;
}

static void four_threads_post(post_fn *one, bool ex)
{
	static struct crowd c;
	pthread_t th[THREADS];
	struct ibv_wc wc[16];
	unsigned n = 0;

	c.one = one;
	two_open(&c.t, (struct conf){.depth = 128, .cqe = 4096, .ex = ex}, (struct conf){0});
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&th[i], NULL, posts, &c));
	for (uint64_t last = now_ms(); n < THREADS * EACH;) {
		int got = ibv_poll_cq(c.t.a.scq, 16, wc);

		for (int i = 0; i < got; i++)
			SAME(wc[i].status, IBV_WC_SUCCESS);
		n += (unsigned)got;
		if (got)
			last = now_ms();
		else if (now_ms() - last > PATIENCE / 4)
			fail(__FILE__, __LINE__, "no completion after %u, event %d", n, next_event(&c.t.d, 0));
		if (got && n % 7 == 0)
			sleep_ms(1); /* they are faster than the poller */
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	expect_none(c.t.a.scq, 5);
}

static void all_that_four_threads_post_to_a_queue_pair_completes(void)
{
	four_threads_post(write_8, false);
}

static void all_that_four_threads_build_for_a_queue_pair_completes(void)
{
	four_threads_post(write_by_builder, true);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"requests hold their slots until their completions are polled",
	         requests_hold_their_slots_until_their_completions_are_polled},
	        {"built requests hold their slots until their completions are polled",
	         built_requests_hold_their_slots_until_their_completions_are_polled},
	        {"extended polling gives slots back", extended_polling_gives_slots_back},
	        {"requests without a completion hold no slot when they are done",
	         requests_without_a_completion_hold_no_slot_when_they_are_done},
	        {"requests before one that is signaled wait for it", requests_before_one_that_is_signaled_wait_for_it},
	        {"failed requests hold their slots too", failed_requests_hold_their_slots_too},
	        {"after reset all slots are free", after_reset_all_slots_are_free},
	        {"receives hold their slots until their completions are polled",
	         receives_hold_their_slots_until_their_completions_are_polled},
	        {"receives of a shared queue hold their slots until their completions are polled",
	         receives_of_a_shared_queue_hold_their_slots_until_their_completions_are_polled},
	        {"a shared queue has back what a queue pair leaves", a_shared_queue_has_back_what_a_queue_pair_leaves},
	        {"a queue that overruns ends its queue pairs", a_queue_that_overruns_ends_its_queue_pairs},
	        {"a queue that ignores its overrun keeps the newest",
	         a_queue_that_ignores_its_overrun_keeps_the_newest},
	        {"all that four threads post to a queue pair completes",
	         all_that_four_threads_post_to_a_queue_pair_completes},
	        {"all that four threads build for a queue pair completes",
	         all_that_four_threads_build_for_a_queue_pair_completes},
	};

	return RUN_TESTS(argc, argv, tests);
}
