// window_cases.c - the tests of memory windows: what a peer may do, and what it may not, and when that ends
// follows: IBA volume 1, 10.6 (memory windows), 9.7.4.1.5 (R_Key check); RFC 5040, 8.1
// SPDX-License-Identifier: MIT
#include "window_cases.h"

#define SIZE (1u << 20)
#define LW IBV_ACCESS_LOCAL_WRITE
#define RW IBV_ACCESS_REMOTE_WRITE
#define RR IBV_ACCESS_REMOTE_READ
#define RA IBV_ACCESS_REMOTE_ATOMIC
#define ZB IBV_ACCESS_ZERO_BASED

struct way way;

/* --- a peer that does what it is asked --- */

enum { NEXT = 100, QUIT }; /* beside opcodes: it takes new queue pairs, or ends */

struct ask {
	uint32_t op, on; /* on: the first or the second queue pair */
	uint32_t len, imm;
	struct far far;
};

struct reply {
	enum ibv_wc_status status;
	uint64_t got; /* the first word of its memory afterwards */
};

static void helper(int fd, void *arg)
{
	struct dev d;
	struct mem m;
	struct ask a = {.op = NEXT};

	way.open(&d);
	mem_make(&m, &d, SIZE);
	while (a.op != QUIT) {
		struct link l[2];

		for (int i = 0; i < 2; i++)
			way.join(&l[i], &d, &(struct conf){.timeout = 14}, fd);
		for (hear(fd, &a, sizeof(a)); a.op < NEXT; hear(fd, &a, sizeof(a))) {
			fill(m.p, SIZE, 5);
			POST(&l[a.on], .op = a.op, .id = 5, .m = &m, .len = a.len, .far = a.far, .imm = a.imm,
			     .compare_add = 3);
			struct ibv_wc wc = wait_wc(l[a.on].scq);
			struct reply r = {.status = wc.status};

			memcpy(&r.got, m.p, sizeof(r.got));
			tell(fd, &r, sizeof(r));
		}
		for (int i = 0; i < 2; i++)
			link_end(&l[i]);
	}
	mem_end(&m);
	dev_close(&d);
}

/* This side: memory that windows may be bound to, and two queue pairs, of which the second may have a PD of its own. */
struct side {
	struct dev d;
	struct mem m;
	struct link l[2];
	struct peer p;
	bool joined;
};

static void side_join(struct side *s, struct ibv_pd *second)
{
	const struct ask next = {.op = NEXT};

	if (s->joined) {
		tell(s->p.fd, &next, sizeof(next));
		for (int i = 0; i < 2; i++)
			link_end(&s->l[i]);
	}
	s->joined = true;
	for (int i = 0; i < 2; i++)
		way.join(&s->l[i], &s->d, &(struct conf){.pd = i ? second : NULL}, s->p.fd);
	memset(s->m.p, 0, SIZE);
}

static void side_open(struct side *s, unsigned access)
{
	*s = (struct side){.p = start(helper, NULL)};
	way.open(&s->d);
	mem_make(&s->m, &s->d, SIZE);
	CHECK(!ibv_dereg_mr(s->m.mr));
	mem_reg(&s->m, &s->d, access | IBV_ACCESS_MW_BIND);
	side_join(s, NULL);
}

static void side_close(struct side *s)
{
	const struct ask quit = {.op = QUIT};

	tell(s->p.fd, &quit, sizeof(quit));
	for (int i = 0; i < 2; i++)
		link_end(&s->l[i]);
	finish(&s->p);
	mem_end(&s->m);
	dev_close(&s->d);
}

static struct reply ask(struct side *s, struct ask a)
{
	struct reply r;
	struct ibv_wc wc;

	tell(s->p.fd, &a, sizeof(a));
	while (!heard(s->p.fd, 1)) /* this program makes progress, too */
		ibv_poll_cq(s->l[0].scq, 0, &wc);
	hear(s->p.fd, &r, sizeof(r));
	return r;
}

static void granted(struct side *s, struct ask a)
{
	SAME(ask(s, a).status, IBV_WC_SUCCESS);
}

/* A write, and with iWARP, where that completes before the data arrives, a read behind it. */
static void written(struct side *s, uint32_t on, uint32_t len, struct far far)
{
	granted(s, (struct ask){IBV_WR_RDMA_WRITE, on, len, 0, far});
	if (way.iwarp)
		granted(s, (struct ask){IBV_WR_RDMA_READ, on, 8, 0, far});
}

/* The peer is refused: its request fails, our queue pair is in error, and no byte has changed. */
static void denied_at(int line, struct side *s, struct ask a)
{
	struct reply r = ask(s, a);
	struct ibv_wc wc;

	if (!way.iwarp && r.status != IBV_WC_REM_ACCESS_ERR)
		fail(__FILE__, line, "the peer gets %s", ibv_wc_status_str(r.status));
	if (way.iwarp && r.status == IBV_WC_SUCCESS && a.op == IBV_WR_RDMA_READ)
		fail(__FILE__, line, "the peer is not refused");
	for (unsigned i = 0; state_of(s->l[a.on].qp) != IBV_QPS_ERR; i++) {
		if (i == PATIENCE)
			fail(__FILE__, line, "the queue pair is not in error");
		ibv_poll_cq(s->l[a.on].scq, 0, &wc);
		sleep_ms(1);
	}
	for (uint32_t i = 0; i < SIZE; i++)
		if (s->m.p[i])
			fail(__FILE__, line, "byte %u has changed", i);
}
#define denied(s, ...) denied_at(__LINE__, s, (struct ask){__VA_ARGS__})

/* --- windows --- */

static struct ibv_mw *window(struct side *s, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(s->d.pd, type);

	CHECK(mw);
	return mw;
}

/* Posts a bind of either type to the first queue pair, of length bytes from off on. mw->rkey is the new key. */
static void post_bind(struct side *s, struct ibv_mw *mw, uint64_t off, uint64_t length, unsigned access)
{
	struct ibv_mw_bind_info info = {s->m.mr, (uintptr_t)s->m.p + off, length, access};
	struct ibv_mw_bind bind = {.wr_id = 70, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
	struct ibv_send_wr wr = {.wr_id = 70,
	                         .opcode = IBV_WR_BIND_MW,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .bind_mw = {mw, ibv_inc_rkey(mw->rkey), info}},
	                   *bad;

	if (mw->type == IBV_MW_TYPE_1) {
		CHECK(!ibv_bind_mw(s->l[0].qp, mw, &bind));
		return;
	}
	CHECK(!ibv_post_send(s->l[0].qp, &wr, &bad));
	mw->rkey = wr.bind_mw.rkey;
}

static struct far bound(struct side *s, struct ibv_mw *mw, uint64_t off, uint64_t length, unsigned access)
{
	post_bind(s, mw, off, length, access);
	struct ibv_wc wc = expect(s->l[0].scq, 70, IBV_WC_SUCCESS);

	SAME(wc.opcode, IBV_WC_BIND_MW);
	return (struct far){access & ZB ? 0 : (uintptr_t)s->m.p + off, mw->rkey, 0};
}

static void invalidate(struct side *s, uint32_t rkey, enum ibv_wc_status status)
{
	POST(&s->l[0], .op = IBV_WR_LOCAL_INV, .id = 71, .imm = rkey);
	struct ibv_wc wc = expect(s->l[0].scq, 71, status);

	if (status == IBV_WC_SUCCESS)
		SAME(wc.opcode, IBV_WC_LOCAL_INV);
}

static struct far further(struct far f, uint64_t by)
{
	f.addr += by;
	return f;
}

/* --- tests --- */

static void a_peer_reaches_the_memory_of_a_window(void)
{
	static const enum ibv_mw_type types[] = {IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_MW_TYPE_2};
	static const unsigned based[] = {0, 0, ZB};
	struct side s;

	side_open(&s, LW);
	for (int i = 0; i < 3; i++) {
		struct ibv_mw *mw = window(&s, types[i]);
		uint64_t word = 0;

		memset(s.m.p, 0, SIZE);
		struct far far = bound(&s, mw, 4096, SIZE - 8192, RW | RR | RA | LW | based[i]);

		written(&s, 0, SIZE - 8192, far);
		CHECK(holds(s.m.p + 4096, SIZE - 8192, 5) && !s.m.p[4095] && !s.m.p[SIZE - 4096]);
		memcpy(&word, s.m.p + 4096 + 64, 8);
		SAME(ask(&s, (struct ask){IBV_WR_RDMA_READ, 0, 32, 0, further(far, 64)}).got, word);
		SAME(ask(&s, (struct ask){IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, 0, further(far, 64)}).got, word);
		memcpy(&word, s.m.p + 4096 + 64, 8);
		SAME(ask(&s, (struct ask){IBV_WR_RDMA_READ, 0, 8, 0, further(far, 64)}).got, word);
		if (types[i] == IBV_MW_TYPE_1) /* of the whole protection domain */
			written(&s, 1, 100, far);
		CHECK(ibv_dereg_mr(s.m.mr) == EBUSY);
		CHECK(!ibv_dealloc_mw(mw));
	}
	side_close(&s);
}

static void a_window_opens_no_more_than_it_says(void)
{
	struct side s;

	side_open(&s, LW | RW | RR | RA);
	struct ibv_mw *one = window(&s, IBV_MW_TYPE_1), *two = window(&s, IBV_MW_TYPE_2);
	struct far far = bound(&s, two, 8192, 4096, RW);

	denied(&s, IBV_WR_RDMA_WRITE, 0, 4097, 0, far); /* behind it */
	CHECK(!ibv_dealloc_mw(two));
	two = window(&s, IBV_MW_TYPE_2);
	side_join(&s, NULL);
	far = bound(&s, two, 8192, 4096, RW);
	denied(&s, IBV_WR_RDMA_WRITE, 0, 8, 0, further(far, -8ull)); /* before it */
	CHECK(!ibv_dealloc_mw(two));
	two = window(&s, IBV_MW_TYPE_2);
	side_join(&s, NULL);
	far = bound(&s, two, 8192, 4096, RR);
	denied(&s, IBV_WR_RDMA_WRITE, 0, 8, 0, far); /* another right */
	side_join(&s, NULL);                         /* ends the binding with its queue pair */
	far = bound(&s, two, 8192, 4096, RW);
	denied(&s, IBV_WR_RDMA_READ, 0, 8, 0, far);
	side_join(&s, NULL);
	far = bound(&s, two, 8192, 4096, RW);
	denied(&s, IBV_WR_RDMA_WRITE, 1, 8, 0, far); /* another queue pair */
	side_join(&s, NULL);
	far = bound(&s, two, 8192, 4096, RW);
	far.rkey ^= 1;
	denied(&s, IBV_WR_RDMA_WRITE, 0, 8, 0, far); /* another key */
	struct ibv_pd *pd = ibv_alloc_pd(s.d.ctx);

	side_join(&s, pd);
	far = bound(&s, one, 8192, 4096, RW);
	denied(&s, IBV_WR_RDMA_WRITE, 1, 8, 0, far); /* a queue pair of another protection domain */
	granted(&s, (struct ask){IBV_WR_RDMA_WRITE, 0, 8, 0, far});
	side_join(&s, NULL);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_dealloc_mw(one) && !ibv_dealloc_mw(two));
	side_close(&s);
}

static void an_invalidated_window_opens_nothing(void)
{
	struct side s;

	side_open(&s, LW);
	struct ibv_mw *one = window(&s, IBV_MW_TYPE_1), *two = window(&s, IBV_MW_TYPE_2);
	struct far far = bound(&s, two, 0, SIZE, RW);

	granted(&s, (struct ask){IBV_WR_RDMA_WRITE, 0, 0, 0, far});
	invalidate(&s, far.rkey, IBV_WC_SUCCESS);
	denied(&s, IBV_WR_RDMA_WRITE, 0, 64, 0, far);
	side_join(&s, NULL);
	far = bound(&s, two, 0, SIZE, RW);
	post_recv(&s.l[0], 9, &s.m, SIZE - 8, 8);
	granted(&s, (struct ask){IBV_WR_SEND_WITH_INV, 0, 0, far.rkey, {0}});
	struct ibv_wc wc = expect(s.l[0].rcq, 9, IBV_WC_SUCCESS);

	CHECK(wc.wc_flags & IBV_WC_WITH_INV);
	SAME(wc.invalidated_rkey, far.rkey);
	denied(&s, IBV_WR_RDMA_WRITE, 0, SIZE, 0, far);
	side_join(&s, NULL);
	far = bound(&s, one, 0, SIZE, RW);
	struct far next = bound(&s, one, 64, 64, RW);

	CHECK(next.rkey != far.rkey);
	denied(&s, IBV_WR_RDMA_WRITE, 0, 64, 0, far);
	side_join(&s, NULL);
	bound(&s, one, 0, 0, 0); /* of length 0: unbinds */
	denied(&s, IBV_WR_RDMA_WRITE, 0, 64, 0, next);
	side_join(&s, NULL);
	far = bound(&s, two, 0, SIZE, RW);
	CHECK(!ibv_dealloc_mw(two) && !ibv_dealloc_mw(one));
	denied(&s, IBV_WR_RDMA_WRITE, 0, 64, 0, far);
	side_close(&s);
}

/* The peer names keys that it may not invalidate: a remote access error. */
static void a_peer_invalidates_only_what_is_its_own(void)
{
	struct side s;

	side_open(&s, LW);
	struct ibv_mw *one = window(&s, IBV_MW_TYPE_1), *two = window(&s, IBV_MW_TYPE_2);
	struct far far = bound(&s, one, 0, SIZE, RW);

	post_recv(&s.l[0], 9, &s.m, 0, 8);
	denied(&s, IBV_WR_SEND_WITH_INV, 0, 0, far.rkey, {0});
	side_join(&s, NULL);
	far = bound(&s, two, 0, SIZE, RW);
	post_recv(&s.l[1], 9, &s.m, 0, 8);
	denied(&s, IBV_WR_SEND_WITH_INV, 1, 0, far.rkey, {0});
	granted(&s, (struct ask){IBV_WR_RDMA_WRITE, 0, 64, 0, far});
	CHECK(!ibv_dealloc_mw(one) && !ibv_dealloc_mw(two));
	side_close(&s);
}

static void a_bind_that_fails_takes_the_queue_pair_to_error(void)
{
	struct side s;
	struct mem closed;

	side_open(&s, LW);
	mem_make(&closed, &s.d, 4096);
	struct ibv_mw *two = window(&s, IBV_MW_TYPE_2), *one = window(&s, IBV_MW_TYPE_1);
	struct mem open = s.m;

	bound(&s, two, 0, 8, RW);
	post_bind(&s, two, 0, 8, RW); /* it is bound */
	expect(s.l[0].scq, 70, IBV_WC_MW_BIND_ERR);
	SAME(state_of(s.l[0].qp), IBV_QPS_ERR);
	side_join(&s, NULL);
	s.m = closed; /* not registered for windows */
	post_bind(&s, one, 0, 8, RW);
	expect(s.l[0].scq, 70, IBV_WC_MW_BIND_ERR);
	s.m = open;
	side_join(&s, NULL);
	post_bind(&s, two, 0, SIZE + 1, RW);
	POST(&s.l[0], .op = IBV_WR_SEND, .id = 72, .m = &s.m, .len = 8);
	expect(s.l[0].scq, 70, IBV_WC_MW_BIND_ERR);
	expect(s.l[0].scq, 72, IBV_WC_WR_FLUSH_ERR);
	side_join(&s, NULL);
	invalidate(&s, one->rkey, IBV_WC_MW_BIND_ERR);
	CHECK(!ibv_dealloc_mw(two) && !ibv_dealloc_mw(one));
	mem_end(&closed);
	side_close(&s);
}

/* Binds, invalidations and sends of one queue are executed in order. */
static void requests_of_a_queue_keep_their_order(void)
{
	struct side s;

	side_open(&s, LW);
	struct ibv_mw *one = window(&s, IBV_MW_TYPE_1), *two = window(&s, IBV_MW_TYPE_2);
	struct far far = {0};

	for (int i = 0; i < 12; i++) {
		post_bind(&s, two, 4096 * (uint64_t)i, 4096, RW | RR);
		POST(&s.l[0], .op = IBV_WR_LOCAL_INV, .id = 71, .imm = two->rkey);
		post_bind(&s, one, 4096 * (uint64_t)i, 4096, RW | RR);
	}
	post_bind(&s, two, 0, 4096, RW | RR);
	for (int i = 0; i < 12; i++) {
		expect(s.l[0].scq, 70, IBV_WC_SUCCESS);
		expect(s.l[0].scq, 71, IBV_WC_SUCCESS);
		expect(s.l[0].scq, 70, IBV_WC_SUCCESS);
	}
	expect(s.l[0].scq, 70, IBV_WC_SUCCESS);
	far = (struct far){(uintptr_t)s.m.p, two->rkey, 0};
	written(&s, 0, 4096, far);
	far = (struct far){(uintptr_t)s.m.p + 4096 * 11, one->rkey, 0};
	written(&s, 1, 4096, far);
	CHECK(holds(s.m.p, 4096, 5) && holds(s.m.p + 4096 * 11, 4096, 5));
	CHECK(!ibv_dealloc_mw(one) && !ibv_dealloc_mw(two));
	side_close(&s);
}

/* The peer may copy through a mapping of its own into shared memory. It must not do that with the next key's address. */
static void a_window_moves_over_shared_memory(void)
{
	struct side s;
	struct mem shared, plain;

	side_open(&s, LW);
	plain = s.m;
	mem_make_shared(&shared, &s.d, SIZE);
	CHECK(!ibv_dereg_mr(shared.mr));
	mem_reg(&shared, &s.d, LW | IBV_ACCESS_MW_BIND);
	s.m = shared;
	struct ibv_mw *two = window(&s, IBV_MW_TYPE_2);

	for (uint64_t off = 0; off < 4; off++) {
		memset(s.m.p, 0, SIZE);
		struct far far = bound(&s, two, off << 18, 1 << 18, RW | RR);

		for (int i = 0; i < 40; i++)
			written(&s, 0, 1 << 18, far);
		for (uint64_t k = 0; k < 4; k++)
			CHECK(holds(s.m.p + (k << 18), 1 << 18, 5) == (k == off));
		two->rkey -= off ? 1 : 0; /* the same key again, for every second binding */
		invalidate(&s, far.rkey, IBV_WC_SUCCESS);
	}
	CHECK(!ibv_dealloc_mw(two));
	s.m = plain;
	mem_end(&shared);
	side_close(&s);
}

/* --- no byte changes after the end of a window --- */

enum end { LOCAL_INV, REBIND, DEALLOC, END_QP, ENDS };

static void flooder(int fd, void *arg)
{
	uint32_t len;
	struct dev d;
	struct mem m;

	way.open(&d);
	mem_make(&m, &d, 2 * SIZE);
	memset(m.p, 0x55, SIZE);
	memset(m.p + SIZE, 0xaa, SIZE);
	for (hear(fd, &len, sizeof(len)); len; hear(fd, &len, sizeof(len))) {
		struct link l;
		struct ibv_wc wc = {0};
		uint64_t posted = 0, done = 0;

		way.join(&l, &d, &(struct conf){.timeout = 10, .retry = 3, .depth = 8}, fd);
		struct far far = far_hear(fd);

		while (wc.status == IBV_WC_SUCCESS) {
			for (; posted - done < 4; posted++)
				POST(&l, .op = IBV_WR_RDMA_WRITE, .id = posted, .m = &m, .off = posted & 1 ? SIZE : 0,
				     .len = len, .far = far);
			done += (uint64_t)ibv_poll_cq(l.scq, 1, &wc);
		}
		tell(fd, "d", 1);
		link_end(&l);
	}
}

static uint64_t sum(const uint8_t *p, size_t n)
{
	uint64_t h = 0;

	for (size_t i = 0; i + 8 <= n; i += 8)
		h = h * 31 + *(const volatile uint64_t *)(p + i);
	return h;
}

static void end_window(struct side *s, struct ibv_mw *mw, enum end end)
{
	switch (end) {
	case LOCAL_INV:
		invalidate(s, mw->rkey, IBV_WC_SUCCESS);
		break;
	case REBIND:
		bound(s, mw, 0, 0, 0);
		break;
	case DEALLOC:
		CHECK(!ibv_dealloc_mw(mw));
		break;
	default:
		CHECK(!ibv_destroy_qp(s->l[0].qp));
		s->l[0].qp = NULL;
	}
}

static void flood(struct side *s, enum end end, uint32_t len, uint64_t *seed)
{
	struct ibv_mw *mw = window(s, end == REBIND ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	struct ibv_wc wc;
	char c;

	tell(s->p.fd, &len, sizeof(len));
	memset(s->m.p, 1, SIZE);
	way.join(&s->l[0], &s->d, &(struct conf){0}, s->p.fd);
	struct far far = bound(s, mw, 0, SIZE, RW);

	tell(s->p.fd, &far, sizeof(far));
	volatile uint8_t *last = s->m.p + len - 1;

	for (uint64_t until = now_ms() + 5000; *last == 1 && now_ms() < until;)
		ibv_poll_cq(s->l[0].rcq, 1, &wc);
	for (unsigned spin = random_next(seed) % 20000; spin; spin--)
		if (spin % 64 == 0)
			ibv_poll_cq(s->l[0].rcq, 1, &wc);
	end_window(s, mw, end);
	uint64_t before = sum(s->m.p, SIZE);

	for (int i = 0; i < 3; i++) {
		sleep_ms(1);
		if (s->l[0].qp)
			ibv_poll_cq(s->l[0].rcq, 1, &wc);
		if (sum(s->m.p, SIZE) != before)
			fail(__FILE__, __LINE__, "bytes change after the end of a window (%d, %u bytes)", (int)end,
			     len);
	}
	while (!heard(s->p.fd, 1))
		ibv_poll_cq(s->l[0].rcq, 0, &wc);
	hear(s->p.fd, &c, 1); /* the peer has its error */
	SAME(sum(s->m.p, SIZE), before);
	if (end != DEALLOC)
		CHECK(!ibv_dealloc_mw(mw));
	if (s->l[0].qp)
		CHECK(!ibv_destroy_qp(s->l[0].qp));
	CHECK(!ibv_destroy_cq(s->l[0].scq) && !ibv_destroy_cq(s->l[0].rcq));
}

static void no_byte_changes_after_the_end_of_a_window(void)
{
	static const uint32_t lens[] = {8, 4096, SIZE};
	unsigned rounds = (unsigned)count_or(under_sanitizer() ? 3 : 10);
	struct side s = {.p = start(flooder, NULL)};
	uint32_t none = 0;
	uint64_t seed = 3;

	way.open(&s.d);
	mem_make(&s.m, &s.d, SIZE);
	CHECK(!ibv_dereg_mr(s.m.mr));
	mem_reg(&s.m, &s.d, LW | IBV_ACCESS_MW_BIND);
	for (unsigned round = 0; round < rounds; round++)
		for (int end = 0; end < ENDS; end++)
			for (int i = 0; i < 3; i++)
				flood(&s, (enum end)end, lens[i], &seed);
	tell(s.p.fd, &none, sizeof(none));
	finish(&s.p);
	mem_end(&s.m);
	dev_close(&s.d);
}

const struct test window_cases[] = {
        {"a peer reaches the memory of a window", a_peer_reaches_the_memory_of_a_window},
        {"a window opens no more than it says", a_window_opens_no_more_than_it_says},
        {"an invalidated window opens nothing", an_invalidated_window_opens_nothing},
        {"a peer invalidates only what is its own", a_peer_invalidates_only_what_is_its_own},
        {"a bind that fails takes the queue pair to error", a_bind_that_fails_takes_the_queue_pair_to_error},
        {"requests of a queue keep their order", requests_of_a_queue_keep_their_order},
        {"a window moves over shared memory", a_window_moves_over_shared_memory},
        {"no byte changes after the end of a window", no_byte_changes_after_the_end_of_a_window, 300},
};
const size_t window_cases_n = sizeof(window_cases) / sizeof(window_cases[0]);
