// counted.c - completion counters count what completes, signaled or not
// follows: rdma-core 65, ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), ibv_query_comp_cntr_caps(3)
// SPDX-License-Identifier: MIT
#include "counters.h"
#include "pair.h"

static struct cntr *counter(struct dev *d, int type)
{
	struct cntr_attr a = {.type = type};
	struct cntr *c = ibv_create_comp_cntr(d->ctx, &a);

	CHECK(c && c->context == d->ctx);
	return c;
}

static int attach(struct link *l, struct cntr *c, uint32_t ops)
{
	struct attach_attr a = {.op_mask = ops};

	return ibv_qp_attach_comp_cntr(l->qp, c, &a);
}

static uint64_t count_of(struct cntr *c)
{
	uint64_t n;

	SAME(ibv_read_comp_cntr(c, &n), 0);
	return n;
}

static uint64_t errors_of(struct cntr *c)
{
	uint64_t n;

	SAME(ibv_read_err_comp_cntr(c, &n), 0);
	return n;
}

/* The reader's calls are all that makes progress. */
static void await_count(struct cntr *c, uint64_t count)
{
	for (uint64_t until = now_ms() + PATIENCE; count_of(c) != count && now_ms() < until;)
		;
	SAME(count_of(c), count);
}

#define SIZE 20000u
#define ROUNDS 10u

/* --- all kinds --- */

static void receives_counted(int fd, void *arg)
{
	struct conf c = {.type = *(enum ibv_qp_type *)arg};
	bool rdma = c.type == IBV_QPT_RC;
	unsigned receives = rdma ? 3 * ROUNDS : 2 * ROUNDS;
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, SIZE);
	struct cntr *got = counter(&d, WRS);
	link_make(&l, &d, &c);
	SAME(attach(&l, got, RECV), 0);
	for (unsigned i = 0; i < receives; i++)
		post_recv(&l, i, &m, 0, SIZE);
	link_join(&l, fd);
	mem_tell(&m, fd);
	await_count(got, receives);
	for (unsigned i = 0; i < receives; i++)
		expect(l.rcq, i, IBV_WC_SUCCESS); /* the queue has them, too */
	meet_up(fd);
	post_recv(&l, 100, &m, 0, SIZE);
	to_state(l.qp, IBV_QPS_ERR);
	await_count(got, receives);
	SAME(errors_of(got), 1);
	SAME(ibv_destroy_comp_cntr(got), EBUSY);
	link_end(&l);
	SAME(ibv_destroy_comp_cntr(got), 0);
	mem_end(&m);
	dev_close(&d);
}

static void all_kinds_of(enum ibv_qp_type type)
{
	struct conf c = {.type = type};
	bool rdma = type == IBV_QPT_RC;
	uint32_t length = 100;
	struct peer p = start(receives_counted, &type);
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, SIZE);
	struct cntr *sends = counter(&d, WRS), *bytes = counter(&d, BYTES), *reads = counter(&d, WRS);
	link_make(&l, &d, &c);
	SAME(attach(&l, sends, SEND), 0);
	SAME(attach(&l, bytes, WRITE), 0);
	SAME(attach(&l, reads, READ), 0);
	SAME(attach(&l, sends, SEND | RECV), EBUSY);
	link_join(&l, p.fd);
	struct far far = far_hear(p.fd);
	for (unsigned i = 0; i < ROUNDS; i++) {
		POST(&l, IBV_WR_SEND, i, &m, .len = length, .quiet = true);
		POST(&l, IBV_WR_SEND, 100 + i, &m, .len = rdma ? SIZE : length);
		if (!rdma)
			continue;
		POST(&l, IBV_WR_RDMA_WRITE, 0, &m, .len = 8, .far = far, .quiet = true);
		POST(&l, IBV_WR_RDMA_WRITE_WITH_IMM, 0, &m, .len = SIZE, .far = far, .quiet = true);
		POST(&l, IBV_WR_RDMA_READ, 0, &m, .len = 1000, .far = far, .quiet = true);
	}
	await_count(sends, 2 * ROUNDS);
	await_count(bytes, rdma ? ROUNDS * (8 + SIZE) : 0);
	await_count(reads, rdma ? ROUNDS : 0);
	for (unsigned i = 0; i < ROUNDS; i++)
		expect(l.scq, 100 + i, IBV_WC_SUCCESS);
	expect_none(l.scq, 1); /* what is only counted has no completion */
	SAME(attach(&l, sends, RECV), EINVAL);
	to_state(l.qp, IBV_QPS_ERR);
	POST(&l, IBV_WR_SEND, 7, &m, .len = length, .quiet = true);
	expect(l.scq, 7, IBV_WC_WR_FLUSH_ERR);
	SAME(errors_of(sends), 1);
	SAME(count_of(sends), 2 * ROUNDS);
	meet_up(p.fd);
	finish(&p);
	SAME(ibv_destroy_comp_cntr(bytes), EBUSY);
	link_end(&l);
	SAME(ibv_destroy_comp_cntr(sends), 0);
	SAME(ibv_destroy_comp_cntr(bytes), 0);
	SAME(ibv_destroy_comp_cntr(reads), 0);
	mem_end(&m);
	dev_close(&d);
}

static void counts_all_kinds(void)
{
	all_kinds_of(IBV_QPT_RC);
}

static void counts_messages_of_uc(void)
{
	all_kinds_of(IBV_QPT_UC);
}

/* --- the counter itself --- */

static void is_set_and_increased(void)
{
	struct cntr_attr wrong = {.comp_mask = 1};
	struct cntr_caps caps = {0};
	struct dev d;

	dev_open(&d);
	SAME(_ibv_query_comp_cntr_caps(d.ctx, &caps, sizeof(caps)), 0);
	CHECK(caps.max_value == UINT64_MAX && caps.max_counters >= 1024);
	SAME(caps.supported_qp_attach_ops, SEND | RECV | READ | WRITE);
	CHECK(!ibv_create_comp_cntr(d.ctx, &wrong) && errno == EINVAL);
	wrong = (struct cntr_attr){.type = 2};
	CHECK(!ibv_create_comp_cntr(d.ctx, &wrong) && errno == EINVAL);
	wrong = (struct cntr_attr){.flags = 1};
	CHECK(!ibv_create_comp_cntr(d.ctx, &wrong) && errno == EINVAL);
	struct cntr *c = counter(&d, WRS);
	CHECK(!count_of(c) && !errors_of(c));
	SAME(ibv_set_comp_cntr(c, UINT64_MAX), 0);
	SAME(ibv_inc_comp_cntr(c, 3), 0);
	SAME(count_of(c), 2);
	SAME(ibv_set_err_comp_cntr(c, 5), 0);
	SAME(ibv_inc_err_comp_cntr(c, 1), 0);
	CHECK(errors_of(c) == 6 && count_of(c) == 2);
	SAME(ibv_read_comp_cntr(c, NULL), EINVAL);
	SAME(ibv_destroy_comp_cntr(c), 0);
	dev_close(&d);
}

static void is_attached_where_it_can_count(void)
{
	struct attach_attr wrong = {.comp_mask = 1, .op_mask = SEND};
	struct dev d, other;
	struct link l;

	dev_open(&d);
	dev_open(&other);
	struct cntr *c = counter(&d, WRS), *foreign = counter(&other, WRS);
	link_make(&l, &d, &(struct conf){0});
	SAME(attach(&l, c, REMOTE_READ), EOPNOTSUPP);
	SAME(attach(&l, c, SEND | REMOTE_WRITE), EOPNOTSUPP);
	SAME(attach(&l, c, 64), EOPNOTSUPP);
	SAME(attach(&l, c, 0), EINVAL);
	SAME(attach(&l, foreign, SEND), EINVAL);
	SAME(ibv_qp_attach_comp_cntr(l.qp, c, &wrong), EINVAL);
	SAME(ibv_destroy_comp_cntr(c), 0); /* no attempt has succeeded */
	SAME(ibv_destroy_comp_cntr(foreign), 0);
	link_end(&l);
	dev_close(&other);
	dev_close(&d);
}

static const struct test tests[] = {
        {"counters of an RC queue pair count each kind of request, with and without a completion", counts_all_kinds, 0},
        {"counters of a UC queue pair count its messages", counts_messages_of_uc, 0},
        {"a counter is set, increased and wraps around", is_set_and_increased, 0},
        {"a counter is attached to operations that are counted, of its own device", is_attached_where_it_can_count, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
