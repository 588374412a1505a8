// placed.c - ATOMIC WRITE and FLUSH: on the same host, and over RoCE with VERBENA_WIRE=always
// follows: IBA annexes A19 (FLUSH), A20 (ATOMIC WRITE); ibv_wr_post(3); the numbers are those of rdma-core 46 and later
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <stddef.h>

/* The headers of 44.0 do not have these. */
enum {
	WC_FLUSH = 8,
	WR_FLUSH = 14,
	WITH_FLUSH = 1 << 11,
	ACCESS_FLUSH_GLOBAL = 1 << 8,
	ACCESS_FLUSH_PERSISTENT = 1 << 9,
	GLOBAL = 1,
	PERSISTENT = 2,
	RANGE = 0,
	REGION = 1,
};
#define DEVICE_FLUSH_GLOBAL (1ull << 38)
#define DEVICE_FLUSH_PERSISTENT (1ull << 39)
#define DEVICE_ATOMIC_WRITE (1ull << 40)

struct later_qp_ex {
	struct ibv_qp_ex ex;
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
	                 uint8_t level);
};

#define OPS (IBV_QP_EX_WITH_ATOMIC_WRITE | WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ)
#define RIGHTS (ALL_ACCESS | ACCESS_FLUSH_GLOBAL)

struct two {
	struct dev d;
	struct link a, b;
	struct mem m, n; /* of a; of b, which a may write and flush */
	struct far far;
};

static void two_open(struct two *t, unsigned qp_rights)
{
	struct conf c = {.ex = true, .ops = OPS, .access = qp_rights, .inline_max = 64};

	dev_open(&t->d);
	mem_make(&t->m, &t->d, 1 << 20);
	mem_make(&t->n, &t->d, 1 << 20);
	CHECK(!ibv_dereg_mr(t->n.mr));
	mem_reg(&t->n, &t->d, RIGHTS);
	CHECK(t->n.mr);
	link_make(&t->a, &t->d, &c);
	link_make(&t->b, &t->d, &c);
	link_to(&t->a, &t->b.me);
	link_to(&t->b, &t->a.me);
	t->far = (struct far){(uintptr_t)t->n.p, t->n.mr->rkey, 0};
}

static void two_end(struct two *t)
{
	link_end(&t->a);
	link_end(&t->b);
	mem_end(&t->m);
	mem_end(&t->n);
	dev_close(&t->d);
}

static int atomic_write(struct link *l, uint64_t id, uint32_t rkey, uint64_t addr, uint64_t value)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(l->qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(x, rkey, addr, &value);
	value = 0; /* it was read already */
	return ibv_wr_complete(x);
}

static int flush(struct link *l, uint64_t id, const struct far *f, size_t len, uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(l->qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	((struct later_qp_ex *)x)->wr_flush(x, f->rkey, f->addr, len, type, level);
	return ibv_wr_complete(x);
}

static uint64_t word_at(const struct mem *m, size_t at)
{
	return __atomic_load_n((uint64_t *)(void *)(m->p + at), __ATOMIC_ACQUIRE);
}

static void an_atomic_write_stores_its_eight_bytes(void)
{
	struct two t;

	two_open(&t, RIGHTS);
	SAME(atomic_write(&t.a, 1, t.far.rkey, t.far.addr + 64, 0x1122334455667788), 0);
	struct ibv_wc wc = expect(t.a.scq, 1, IBV_WC_SUCCESS);

	SAME(wc.opcode, IBV_WC_ATOMIC_WRITE);
	SAME(word_at(&t.n, 64), 0x1122334455667788);
	SAME(word_at(&t.n, 56), 0);
	SAME(word_at(&t.n, 72), 0);

	/* by ibv_post_send: from two pieces, and inline */
	struct ibv_sge pieces[2] = {{(uintptr_t)t.m.p, 3, t.m.mr->lkey}, {(uintptr_t)t.m.p + 100, 5, t.m.mr->lkey}};
	struct ibv_send_wr wr = {.wr_id = 2,
	                         .sg_list = pieces,
	                         .num_sge = 2,
	                         .opcode = IBV_WR_ATOMIC_WRITE,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .wr.rdma = {t.far.addr + 128, t.far.rkey}},
	                   *bad;

	memcpy(t.m.p, "abc", 3);
	memcpy(t.m.p + 100, "defgh", 5);
	SAME(ibv_post_send(t.a.qp, &wr, &bad), 0);
	expect(t.a.scq, 2, IBV_WC_SUCCESS);
	CHECK(!memcmp(t.n.p + 128, "abcdefgh", 8));
	static char letters[] = "ABCDEFGH";

	POST(&t.a, .op = IBV_WR_ATOMIC_WRITE, .id = 3, .p = letters, .len = 8, .flags = IBV_SEND_INLINE, .far = t.far,
	     .far_off = 136);
	expect(t.a.scq, 3, IBV_WC_SUCCESS);
	CHECK(!memcmp(t.n.p + 128, "abcdefghABCDEFGH", 16));
	two_end(&t);
}

/* More than may be outstanding at once, in order with everything else. */
static void keep_order(unsigned mr_rights)
{
	struct two t;
	uint64_t id = 0;

	two_open(&t, RIGHTS);
	CHECK(!ibv_dereg_mr(t.n.mr));
	mem_reg(&t.n, &t.d, mr_rights);
	t.far.rkey = t.n.mr->rkey;
	for (unsigned round = 0; round < 20; round++) {
		fill(t.m.p, 4096, round);
		for (uint64_t i = 0; i < 8; i++)
			SAME(atomic_write(&t.a, id + i, t.far.rkey, t.far.addr, round * 8 + i), 0);
		POST(&t.a, .op = IBV_WR_RDMA_WRITE, .id = id + 8, .m = &t.m, .len = 4096, .far = t.far, .far_off = 64);
		SAME(flush(&t.a, id + 9, &t.far, 8192, GLOBAL, RANGE), 0);
		POST(&t.a, .op = IBV_WR_RDMA_READ, .id = id + 10, .m = &t.m, .off = 8192, .len = 8, .far = t.far);
		for (uint64_t i = 0; i < 9; i++)
			expect(t.a.scq, id + i, IBV_WC_SUCCESS);
		struct ibv_wc wc = expect(t.a.scq, id + 9, IBV_WC_SUCCESS);

		SAME(wc.opcode, WC_FLUSH);
		CHECK(holds(t.n.p + 64, 4096, round)); /* the flush is done, so the write before it is */
		expect(t.a.scq, id + 10, IBV_WC_SUCCESS);
		SAME(word_at(&t.m, 8192), round * 8 + 7);
		id += 11;
	}
	SAME(flush(&t.a, id, &t.far, 0, GLOBAL, REGION), 0);
	expect(t.a.scq, id, IBV_WC_SUCCESS);
	SAME(flush(&t.a, id + 1, &t.far, 0, GLOBAL, RANGE), 0);
	expect(t.a.scq, id + 1, IBV_WC_SUCCESS);
	two_end(&t);
}

static void atomic_writes_and_flushes_keep_their_order(void)
{
	keep_order(RIGHTS);
	keep_order(RIGHTS | IBV_ACCESS_ON_DEMAND);
}

#define WORDS 4000u

/* Reads the word while the peer writes it. The two halves of each value are the same, and they grow. */
static void reads_words(int fd, void *arg)
{
	uint64_t last = 0, until = now_ms() + PATIENCE;
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_open(&l, &d, &(struct conf){.ex = true, .ops = OPS, .access = RIGHTS}, fd);
	mem_tell(&m, fd);
	while (last != WORDS) {
		uint64_t word = word_at(&m, 8);

		SAME(word >> 32, word & UINT32_MAX);
		CHECK(word >> 32 >= last);
		last = word >> 32;
		CHECK(now_ms() < until);
	}
	meet_up(fd);
}

static void no_reader_sees_half_of_an_atomic_write(void)
{
	struct peer p = start(reads_words, NULL);
	struct dev d;
	struct link l;

	dev_open(&d);
	link_open(&l, &d, &(struct conf){.ex = true, .ops = OPS, .access = RIGHTS}, p.fd);
	struct far far = far_hear(p.fd);

	for (uint64_t i = 1; i <= WORDS; i++) {
		SAME(atomic_write(&l, i, far.rkey, far.addr + 8, i << 32 | i), 0);
		if (i > 8)
			expect(l.scq, i - 8, IBV_WC_SUCCESS);
	}
	for (uint64_t i = WORDS - 7; i <= WORDS; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
}

static void what_the_peer_does_not_allow_is_refused(void)
{
	static const struct {
		unsigned qp_rights, mr_rights;
		bool flush;
		uint8_t type;
		uint32_t at, len;
		enum ibv_wc_status status;
	} rows[] = {
	        {RIGHTS, RIGHTS, false, 0, 4, 0, IBV_WC_REM_INV_REQ_ERR},
	        {RIGHTS, RIGHTS, false, 0, 1 << 20, 0, IBV_WC_REM_ACCESS_ERR},
	        {RIGHTS, RIGHTS & ~IBV_ACCESS_REMOTE_WRITE, false, 0, 0, 0, IBV_WC_REM_ACCESS_ERR},
	        {RIGHTS & ~IBV_ACCESS_REMOTE_WRITE, RIGHTS, false, 0, 0, 0, IBV_WC_REM_INV_REQ_ERR},
	        {RIGHTS, RIGHTS, true, GLOBAL, 1, 1 << 20, IBV_WC_REM_ACCESS_ERR},
	        {RIGHTS, ALL_ACCESS, true, GLOBAL, 0, 8, IBV_WC_REM_ACCESS_ERR},
	        {ALL_ACCESS, RIGHTS, true, GLOBAL, 0, 8, IBV_WC_REM_INV_REQ_ERR},
	        {RIGHTS, RIGHTS, true, PERSISTENT, 0, 8, IBV_WC_REM_INV_REQ_ERR},
	        {RIGHTS | ACCESS_FLUSH_PERSISTENT, RIGHTS, true, PERSISTENT, 0, 8, IBV_WC_REM_ACCESS_ERR},
	        {RIGHTS | ACCESS_FLUSH_PERSISTENT, RIGHTS, true, GLOBAL | PERSISTENT, 0, 8, IBV_WC_REM_ACCESS_ERR},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct two t;

		two_open(&t, rows[i].qp_rights);
		CHECK(!ibv_dereg_mr(t.n.mr));
		mem_reg(&t.n, &t.d, rows[i].mr_rights);
		struct far far = {(uintptr_t)t.n.p + rows[i].at, t.n.mr->rkey, 0};

		if (rows[i].flush)
			SAME(flush(&t.a, i, &far, rows[i].len, rows[i].type, RANGE), 0);
		else
			SAME(atomic_write(&t.a, i, far.rkey, far.addr, ~0ull), 0);
		expect(t.a.scq, i, rows[i].status);
		SAME(state_of(t.a.qp), IBV_QPS_ERR);
		SAME(word_at(&t.n, 0), 0);
		two_end(&t);
	}
}

static void what_makes_no_sense_is_refused_at_once(void)
{
	struct two t;

	two_open(&t, RIGHTS);
	SAME(flush(&t.a, 1, &t.far, 8, 0, RANGE), EINVAL);
	SAME(flush(&t.a, 1, &t.far, 8, 4, RANGE), EINVAL);
	SAME(flush(&t.a, 1, &t.far, 8, GLOBAL, 2), EINVAL);
	SAME(flush(&t.a, 1, &t.far, (1ull << 31) + 1, GLOBAL, RANGE), EINVAL);
	SAME(try_post(&t.a, &(struct wr){.op = (enum ibv_wr_opcode)WR_FLUSH, .far = t.far}), EINVAL);
	CHECK(!ibv_reg_mr(t.d.pd, t.m.p, 4096, RIGHTS | ACCESS_FLUSH_PERSISTENT) && errno == EOPNOTSUPP);
	SAME(flush(&t.a, 2, &t.far, 8, GLOBAL, RANGE), 0);
	expect(t.a.scq, 2, IBV_WC_SUCCESS);
	POST(&t.a, .op = IBV_WR_ATOMIC_WRITE, .id = 3, .m = &t.m, .len = 4, .far = t.far);
	expect(t.a.scq, 3, IBV_WC_LOC_LEN_ERR);
	two_end(&t);
	two_open(&t, RIGHTS);
	POST(&t.a, .op = IBV_WR_ATOMIC_WRITE, .id = 3, .p = t.m.p, .lkey = t.m.mr->lkey + 1, .len = 8, .far = t.far);
	expect(t.a.scq, 3, IBV_WC_LOC_PROT_ERR);
	two_end(&t);
}

static void the_device_says_what_it_can(void)
{
	struct ibv_device_attr_ex attr;
	struct dev d;

	dev_open(&d);
	SAME(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	SAME(attr.device_cap_flags_ex & (DEVICE_FLUSH_GLOBAL | DEVICE_FLUSH_PERSISTENT | DEVICE_ATOMIC_WRITE),
	     DEVICE_FLUSH_GLOBAL | DEVICE_ATOMIC_WRITE);
	SAME(attr.odp_caps.per_transport_caps.rc_odp_caps >> 6, 3); /* both in memory that is paged, too */
	SAME(attr.odp_caps.per_transport_caps.uc_odp_caps >> 6, 0);
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex x = {.send_cq = cq,
	                                .recv_cq = cq,
	                                .cap = {1, 1, 1, 1},
	                                .qp_type = IBV_QPT_UC,
	                                .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	                                .pd = d.pd,
	                                .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE};

	CHECK(!ibv_create_qp_ex(d.ctx, &x) && errno == EOPNOTSUPP);
	x.send_ops_flags = WITH_FLUSH;
	CHECK(!ibv_create_qp_ex(d.ctx, &x) && errno == EOPNOTSUPP);
	x.qp_type = IBV_QPT_RC;
	struct ibv_qp *qp = ibv_create_qp_ex(d.ctx, &x);

	CHECK(qp && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	dev_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"an atomic write stores its eight bytes", an_atomic_write_stores_its_eight_bytes, 0},
	        {"atomic writes and flushes keep their order", atomic_writes_and_flushes_keep_their_order, 0},
	        {"no reader sees half of an atomic write", no_reader_sees_half_of_an_atomic_write, 0},
	        {"what the peer does not allow is refused", what_the_peer_does_not_allow_is_refused, 0},
	        {"what makes no sense is refused at once", what_makes_no_sense_is_refused_at_once, 0},
	        {"the device says what it can", the_device_says_what_it_can, 0},
	};

	return RUN_TESTS(argc, argv, tests);
}
