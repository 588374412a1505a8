// errors.c - every failure has its status at both ends, and its order of flushing
// follows: IBA volume 1, 9.9.2 and 9.9.3 (error behaviour), 10.10.2 (completion errors), 11.6.2, 11.6.3
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <sys/mman.h>
#include <sys/resource.h>

/* --- within one process: two queue pairs polled by one thread, so that both ends are easy to check --- */

struct two {
	struct dev d;
	struct link a, b;
	struct mem m, far; /* access of the requester; of the responder */
	struct far f;
};

static void two_open(struct two *t, const struct conf *ca, const struct conf *cb)
{
	dev_open(&t->d);
	mem_make(&t->m, &t->d, 1 << 20);
	mem_make(&t->far, &t->d, 1 << 20);
	link_make(&t->a, &t->d, ca);
	link_make(&t->b, &t->d, cb);
	link_to(&t->a, &t->b.me);
	link_to(&t->b, &t->a.me);
	t->f = (struct far){(uintptr_t)t->far.p, t->far.mr->rkey, 0};
}

/* --- between two processes: the responder follows orders and reports --- */

struct order {
	const char *what;
	struct conf c;             /* for the responder */
	unsigned access;           /* access of its region; 0: all */
	uint32_t recv_len;         /* length of the receives that it posts */
	unsigned recvs;            /* number of receives */
	bool foreign_pd;           /* its region belongs to another PD */
	bool foreign_recv;         /* its receive names a key of another PD */
	bool read_only_recv;       /* … or of a region without local write */
	enum ibv_wc_status status; /* status of its first receive; SUCCESS: receives only complete by a flush */
	bool first_fails;
	int event; /* expected event; 0: none */
	enum ibv_qp_state state;
};

static void responder(int fd, void *arg)
{
	const struct order *o = arg;
	struct dev d, other;
	struct link l;
	struct mem m, r;
	char c;

	dev_open(&d);
	other = d;
	if (o->foreign_pd || o->foreign_recv)
		CHECK((other.pd = ibv_alloc_pd(d.ctx)));
	m.n = r.n = 1 << 20;
	m.p = mmap(NULL, m.n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r.p = mmap(NULL, r.n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(m.p != MAP_FAILED && r.p != MAP_FAILED);
	fill(m.p, m.n, 77);
	mem_reg(&m, o->foreign_pd ? &other : &d, o->access ? o->access : ALL_ACCESS);
	mem_reg(&r, o->foreign_recv ? &other : &d, o->read_only_recv ? 0 : ALL_ACCESS);
	link_make(&l, &d, &o->c);
	for (unsigned i = 0; i < o->recvs; i++)
		post_recv(&l, 100 + i, &r, 0, o->recv_len);
	mem_tell(&m, fd);
	link_join(&l, fd);
	hear(fd, &c, 1); /* it has failed at the other end, too */
	unsigned i = 0;

	if (o->first_fails)
		expect(l.rcq, 100 + i++, o->status);
	for (; o->state == IBV_QPS_ERR && i < o->recvs; i++)
		expect(l.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	expect_none(l.rcq, 5);
	if (state_of(l.qp) != o->state)
		fail(__FILE__, __LINE__, "%s: the responder is in state %d", o->what, state_of(l.qp));
	int ev = next_event(&d, o->event ? PATIENCE : 5);

	if (ev == IBV_EVENT_COMM_EST)
		ev = next_event(&d, o->event ? PATIENCE : 5);
	if (ev != (o->event ? o->event : -1))
		fail(__FILE__, __LINE__, "%s: the responder has event %d, not %d", o->what, ev,
		     o->event ? o->event : -1);
	if (!o->access && !o->foreign_pd)
		CHECK(holds(m.p, m.n, 77)); /* nothing was written */
}

struct
try {
	struct order o;
	struct conf c;
	struct wr w;
	bool bad_key;
	uint64_t far_add;
	enum ibv_wc_status status;
};

/* One request fails, and the two behind it are flushed, also unsignalled ones. */
static void one_failure(const struct try *t)
{
	struct peer p = start(responder, (void *)&t->o);
	struct dev d;
	struct link l;
	struct mem m;
	struct wr w = t->w;

	dev_open(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &t->c);
	w.far = far_hear(p.fd);
	link_join(&l, p.fd);
	if (t->bad_key)
		w.far.rkey ^= 0x5a5;
	w.far.addr += t->far_add;
	if (w.len && !w.lkey)
		w.m = &m;
	w.id = 1;
	post(&l, &w);
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 8, .quiet = true);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 3, .m = &m, .len = 8, .far = w.far);
	struct ibv_wc wc = wait_wc(l.scq);

	if (wc.wr_id != 1 || wc.status != t->status)
		fail(__FILE__, __LINE__, "%s: request %d: %s, not %s", t->o.what, (int)wc.wr_id,
		     ibv_wc_status_str(wc.status), ibv_wc_status_str(t->status));
	expect(l.scq, 2, IBV_WC_WR_FLUSH_ERR);
	expect(l.scq, 3, IBV_WC_WR_FLUSH_ERR);
	expect_none(l.scq, 5);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	/* requests and receives posted from now on are flushed at once */
	post_recv(&l, 4, &m, 0, 64);
	expect(l.rcq, 4, IBV_WC_WR_FLUSH_ERR);
	POST(&l, .op = IBV_WR_SEND, .id = 5, .m = &m, .len = 8);
	expect(l.scq, 5, IBV_WC_WR_FLUSH_ERR);
	tell(p.fd, "", 1);
	finish(&p);
	link_end(&l);
	mem_end(&m);
	dev_close(&d);
}

#define ACCESS_EVENT .state = IBV_QPS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR
#define REQ_EVENT .state = IBV_QPS_ERR, .event = IBV_EVENT_QP_REQ_ERR
#define WRITE(n) .w = {.op = IBV_WR_RDMA_WRITE, .len = (n)}
#define READ(n) .w = {.op = IBV_WR_RDMA_READ, .len = (n)}
#define ADD .w = {.op = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8, .compare_add = 1}
#define SWAP .w = {.op = IBV_WR_ATOMIC_CMP_AND_SWP, .len = 8, .compare_add = 1}
#define SEND(n) .w = {.op = IBV_WR_SEND, .len = (n)}

/* Fails if a check is missing (success, or changed memory), or if the status, state or event differs. */
static const struct try remote_access[] = {
        {.o = {"a write with a bad key", .recvs = 2, .recv_len = 64, ACCESS_EVENT},
         WRITE(8),
         .bad_key = true,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a large write with a bad key", .recvs = 2, .recv_len = 64, ACCESS_EVENT},
         WRITE(65536),
         .bad_key = true,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a read with a bad key", .recvs = 2, .recv_len = 64, ACCESS_EVENT},
         READ(8),
         .bad_key = true,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"an atomic with a bad key", .recvs = 2, .recv_len = 64, ACCESS_EVENT},
         ADD,
         .bad_key = true,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a write to another protection domain", .foreign_pd = true, ACCESS_EVENT},
         WRITE(8),
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a read from another protection domain", .foreign_pd = true, ACCESS_EVENT},
         READ(8),
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"an atomic in another protection domain", .foreign_pd = true, ACCESS_EVENT},
         ADD,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a write past the end", ACCESS_EVENT},
         WRITE(9),
         .far_add = (1 << 20) - 8,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a large write past the end", ACCESS_EVENT},
         WRITE(65536),
         .far_add = (1 << 20) - 65535,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a read past the end", ACCESS_EVENT},
         READ(9),
         .far_add = (1 << 20) - 8,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"an atomic at the end", ACCESS_EVENT}, ADD, .far_add = 1 << 20, .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a write before the start", ACCESS_EVENT}, WRITE(8), .far_add = -1ull, .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a write across the end of the address space", ACCESS_EVENT},
         .w = {.op = IBV_WR_RDMA_WRITE, .len = 64, .far_off = 0},
         .far_add = 1ull << 63,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a write to a region without remote write", .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
               ACCESS_EVENT},
         WRITE(8),
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a read of a region without remote read", .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
               ACCESS_EVENT},
         READ(8),
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"an atomic in a region without remote atomic",
               .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, ACCESS_EVENT},
         ADD,
         .status = IBV_WC_REM_ACCESS_ERR},
        /* the receive for its immediate reports this (IBA 9.9.3), if the first packet is the one with the immediate */
        {.o = {"a write with immediate and a bad key", .recvs = 2, .recv_len = 64, .first_fails = true,
               .status = IBV_WC_LOC_ACCESS_ERR, ACCESS_EVENT},
         .w = {.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 8},
         .bad_key = true,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a large write with immediate and a bad key", .recvs = 2, .recv_len = 64, ACCESS_EVENT},
         .w = {.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 65536},
         .bad_key = true,
         .status = IBV_WC_REM_ACCESS_ERR},
        {.o = {"a write with immediate to a queue pair without remote write", .recvs = 2, .recv_len = 64,
               .c = {.access = IBV_ACCESS_REMOTE_READ}, REQ_EVENT},
         .w = {.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 8},
         .status = IBV_WC_REM_INV_REQ_ERR},
        /* IBA volume 1, table 44: a QP that does not accept such requests answers invalid request or remote access
         * error; ours answers invalid request */
        {.o = {"a write to a queue pair without remote write", .c = {.access = IBV_ACCESS_REMOTE_READ}, REQ_EVENT},
         WRITE(8),
         .status = IBV_WC_REM_INV_REQ_ERR},
        {.o = {"a read from a queue pair without remote read", .c = {.access = IBV_ACCESS_REMOTE_WRITE}, REQ_EVENT},
         READ(8),
         .status = IBV_WC_REM_INV_REQ_ERR},
        {.o = {"an atomic at a queue pair without remote atomic", .c = {.access = IBV_ACCESS_REMOTE_WRITE}, REQ_EVENT},
         SWAP,
         .status = IBV_WC_REM_INV_REQ_ERR},
};

static const struct try remote_request[] = {
        {.o = {"a send longer than its receive", .recvs = 3, .recv_len = 63, .first_fails = true,
               .status = IBV_WC_LOC_LEN_ERR, REQ_EVENT},
         SEND(64),
         .status = IBV_WC_REM_INV_REQ_ERR},
        {.o = {"a large send longer than its receive", .recvs = 3, .recv_len = 65535, .first_fails = true,
               .status = IBV_WC_LOC_LEN_ERR, REQ_EVENT},
         SEND(65536),
         .status = IBV_WC_REM_INV_REQ_ERR},
        {.o = {"an atomic that is not aligned", REQ_EVENT}, ADD, .far_add = 4, .status = IBV_WC_REM_INV_REQ_ERR},
        {.o = {"a compare and swap that is not aligned", REQ_EVENT},
         SWAP,
         .far_add = 1,
         .status = IBV_WC_REM_INV_REQ_ERR},
        {.o = {"a read that was not offered", .c = {.rd = -1}, REQ_EVENT},
         .c = {.rd = 4},
         ADD,
         .status = IBV_WC_REM_INV_REQ_ERR},
};

static const struct try remote_operation[] = {
        {.o = {"a send into a receive of another protection domain", .recvs = 2, .recv_len = 64, .foreign_recv = true,
               .first_fails = true, .status = IBV_WC_LOC_PROT_ERR, .state = IBV_QPS_ERR},
         SEND(64),
         .status = IBV_WC_REM_OP_ERR},
        {.o = {"a large send into a receive of another protection domain", .recvs = 2, .recv_len = 65536,
               .foreign_recv = true, .first_fails = true, .status = IBV_WC_LOC_PROT_ERR, .state = IBV_QPS_ERR},
         SEND(65536),
         .status = IBV_WC_REM_OP_ERR},
        {.o = {"a send into a receive without local write", .recvs = 2, .recv_len = 64, .read_only_recv = true,
               .first_fails = true, .status = IBV_WC_LOC_PROT_ERR, .state = IBV_QPS_ERR},
         SEND(64),
         .status = IBV_WC_REM_OP_ERR},
};

/* The receiver does not change, and keeps its receives (IBA table 56: local errors of the requester). */
static const struct try local[] = {
        {.o = {"a send with a bad local key", .recvs = 2, .recv_len = 64, .state = IBV_QPS_RTS},
         .w = {.op = IBV_WR_SEND, .len = 8, .lkey = 0x123, .p = (void *)4096},
         .status = IBV_WC_LOC_PROT_ERR},
        {.o = {"a write with a bad local key", .recvs = 2, .recv_len = 64, .state = IBV_QPS_RTS},
         .w = {.op = IBV_WR_RDMA_WRITE, .len = 8, .lkey = 0x123, .p = (void *)4096},
         .status = IBV_WC_LOC_PROT_ERR},
        {.o = {"a read with a bad local key", .recvs = 2, .recv_len = 64, .state = IBV_QPS_RTS},
         .w = {.op = IBV_WR_RDMA_READ, .len = 8, .lkey = 0x123, .p = (void *)4096},
         .status = IBV_WC_LOC_PROT_ERR},
        {.o = {"a send past the end of its region", .recvs = 2, .recv_len = 64, .state = IBV_QPS_RTS},
         .w = {.op = IBV_WR_SEND, .len = 9, .off = (1 << 20) - 8},
         .status = IBV_WC_LOC_PROT_ERR},
        {.o = {"an atomic of another length", .recvs = 2, .recv_len = 64, .state = IBV_QPS_RTS},
         .w = {.op = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 4},
         .status = IBV_WC_LOC_LEN_ERR},
        {.o = {"a message above the maximum", .recvs = 2, .recv_len = 64, .state = IBV_QPS_RTS},
         .w = {.op = IBV_WR_SEND, .len = 0x40000001},
         .status = IBV_WC_LOC_LEN_ERR},
};

#define EACH(table)                                                     \
	for (size_t i = 0; i < sizeof(table) / sizeof((table)[0]); i++) \
	one_failure(&(table)[i])

static void access_that_is_not_granted_is_a_remote_access_error(void)
{
	EACH(remote_access);
}

static void access_that_is_not_granted_is_a_remote_access_error_by_ring(void)
{
	CHECK(forbid_process_vm(EPERM));
	EACH(remote_access);
}

static void an_invalid_request_is_a_remote_invalid_request_error(void)
{
	EACH(remote_request);
}

static void a_receive_that_cannot_be_filled_is_a_remote_operation_error(void)
{
	EACH(remote_operation);
}

static void a_local_fault_hurts_only_the_requester(void)
{
	EACH(local);
}

static void a_local_fault_hurts_only_the_requester_by_ring(void)
{
	CHECK(forbid_process_vm(EPERM));
	EACH(local);
}

/* The answer of the read does not fit in the ring. Fails if the NAK overtakes it. */
static void a_read_before_a_refused_request_succeeds(void)
{
	static const struct order o[] = {{"a read before a refused atomic", .recvs = 1, .recv_len = 64, REQ_EVENT},
	                                 {"a read before a refused write", .recvs = 1, .recv_len = 64, ACCESS_EVENT}};
	struct dev d;
	struct link l;
	struct mem m;

	CHECK(forbid_process_vm(EPERM));
	for (int i = 0; i < 8; i++) {
		bool writes = i % 2; /* in several pieces */
		struct peer p = start(responder, (void *)&o[writes]);

		dev_open(&d);
		mem_make(&m, &d, 1 << 20);
		link_make(&l, &d, &(struct conf){0});
		struct far far = far_hear(p.fd);

		link_join(&l, p.fd);
		POST(&l, .op = IBV_WR_RDMA_READ, .id = 1, .m = &m, .len = 1 << 20, .far = far);
		far.rkey ^= writes ? 0x5a5 : 0;
		if (writes)
			POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &m, .len = 65536, .far = far);
		else
			POST(&l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 2, .m = &m, .len = 8, .compare_add = 1,
			     .far = far, .far_off = 1);
		expect(l.scq, 1, IBV_WC_SUCCESS);
		expect(l.scq, 2, writes ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR);
		CHECK(holds(m.p, m.n, 77));
		tell(p.fd, "", 1);
		finish(&p);
		link_end(&l);
		mem_end(&m);
		dev_close(&d);
	}
}

/* --- wrap-around: a zero-based region at the top --- */

static void an_address_that_wraps_is_refused(void)
{
	static const struct {
		uint64_t off;
		uint32_t len;
	} bad[] = {{-8ull, 16}, {-1ull, 2}, {-4096ull, 8192}, {(1 << 20) - 1, 2}, {1ull << 63, 8}};

	for (unsigned k = 0; k < 2 * sizeof(bad) / sizeof(bad[0]); k++) {
		struct two t;

		two_open(&t, &(struct conf){0}, &(struct conf){0});
		ibv_dereg_mr(t.far.mr);
		t.far.mr = ibv_reg_mr(t.d.pd, t.far.p, t.far.n, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
		CHECK(t.far.mr);
		t.f = (struct far){0, t.far.mr->rkey, 0};
		POST(&t.a, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &t.m, .len = 8, .far = t.f, .far_off = 8);
		expect(t.a.scq, 1, IBV_WC_SUCCESS);
		POST(&t.a, .op = k & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, .id = 2, .m = &t.m,
		     .len = bad[k / 2].len, .far = t.f, .far_off = bad[k / 2].off);
		expect(t.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
		link_end(&t.a);
		link_end(&t.b);
		mem_end(&t.m);
		mem_end(&t.far);
		dev_close(&t.d);
	}
}

/* --- retries --- */

static void silent(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_open(&l, &d, arg, fd);
	hear(fd, &c, 1);
	if (c == 'r')
		post_recv(&l, 1, &m, 0, 64), hear(fd, &c, 1);
}

/* Fails if the count is off by one (which the time shows), if 7 is not unlimited, or if the receiver's state
 * changes. */
static void a_receive_that_never_comes_exhausts_the_rnr_retries(void)
{
	for (int n = 0; n <= 2; n++) {
		struct peer p = start(silent, &(struct conf){.rnr_timer = 16 /* 2.56 ms */});
		struct dev d;
		struct link l;
		struct mem m;

		dev_open(&d);
		mem_make(&m, &d, 4096);
		link_open(&l, &d, &(struct conf){.rnr_retry = n ? n : -1, .timeout = 20}, p.fd);
		uint64_t t0 = now_ms();

		POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &m, .len = 8, .far = {(uintptr_t)m.p, m.mr->rkey, 0});
		expect(l.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		expect(l.scq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK(now_ms() - t0 + 1 >= (unsigned)n * 256 / 100);
		SAME(state_of(l.qp), IBV_QPS_ERR);
		tell(p.fd, "", 1);
		finish(&p);
	}
}

static void rnr_retry_seven_has_no_end(void)
{
	struct peer p = start(silent, &(struct conf){.rnr_timer = 1});
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_open(&l, &d, &(struct conf){.rnr_retry = 7, .timeout = 8, .retry = 1}, p.fd);
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	expect_none(l.scq, 300);
	tell(p.fd, "r", 1);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	tell(p.fd, "", 1);
	finish(&p);
}

/* No peer, or a peer that is not ready: retries for at least (retry_cnt + 1) * timeout. */
static void nobody_to_answer(struct addr it, struct dev *d)
{
	struct link l;
	struct mem m;

	mem_make(&m, d, 4096);
	link_make(&l, d, &(struct conf){.timeout = 13 /* 33.5 ms */, .retry = 2});
	link_to(&l, &it);
	uint64_t t0 = now_ms();

	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &m, .len = 8, .far = {(uintptr_t)m.p, m.mr->rkey, 0},
	     .quiet = true);
	expect(l.scq, 1, IBV_WC_RETRY_EXC_ERR);
	uint64_t took = now_ms() - t0;

	expect(l.scq, 2, IBV_WC_WR_FLUSH_ERR);
	if (took < 90)
		fail(__FILE__, __LINE__, "retries took %u ms", (unsigned)took);
	SAME(state_of(l.qp), IBV_QPS_ERR);
	link_end(&l);
	mem_end(&m);
}

static void a_queue_pair_that_does_not_exist_exhausts_the_retries(void)
{
	struct dev d;

	dev_open(&d);
	nobody_to_answer((struct addr){0x00abcd, 1, d.gid}, &d);
	nobody_to_answer((struct addr){0xffff00, 1, d.gid}, &d);
}

static void unready(int fd, void *arg)
{
	struct dev d;
	struct link l;
	char c;

	dev_open(&d);
	link_make(&l, &d, &(struct conf){0});
	if (*(int *)arg) { /* the peer is ready, but expects other PSNs */
		struct addr it;

		hear(fd, &it, sizeof(it));
		it.psn ^= 0x1000;
		link_to(&l, &it);
	} else {
		CHECK(!to_state(l.qp, IBV_QPS_RESET));
	}
	tell(fd, &l.me, sizeof(l.me));
	hear(fd, &c, 1);
}

static void a_queue_pair_in_reset_exhausts_the_retries(void)
{
	struct peer p = start(unready, &(int){0});
	struct addr it;
	struct dev d;

	dev_open(&d);
	hear(p.fd, &it, sizeof(it));
	nobody_to_answer(it, &d);
	tell(p.fd, "", 1);
	finish(&p);
}

static void wrong_sequence_numbers_exhaust_the_retries(void)
{
	struct peer p = start(unready, &(int){1});
	struct link l;
	struct addr it;
	struct mem m;
	struct dev d;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.timeout = 12, .retry = 2});
	tell(p.fd, &l.me, sizeof(l.me));
	hear(p.fd, &it, sizeof(it));
	link_to(&l, &it);
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 8, .far = {(uintptr_t)m.p, m.mr->rkey, 0});
	expect(l.scq, 1, IBV_WC_RETRY_EXC_ERR);
	tell(p.fd, "", 1);
	finish(&p);
}

/* A peer that becomes ready late is found before the retries run out. Fails if only the first look finds it. */
static void late_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	struct addr it;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	tell(fd, &l.me, sizeof(l.me));
	hear(fd, &it, sizeof(it));
	sleep_ms(150);
	post_recv(&l, 1, &m, 0, 64);
	link_to(&l, &it);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	meet_up(fd);
}

static void a_peer_that_becomes_ready_late_is_found(void)
{
	struct peer p = start(late_target, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct addr it;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.timeout = 18 /* 1.1 s */, .retry = 7});
	hear(p.fd, &it, sizeof(it));
	link_to(&l, &it);
	tell(p.fd, &l.me, sizeof(l.me));
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
}

/* A peer without a free descriptor at the introduction is met once it has one. Fails if the introduction is sent only
 * once. */
static void full_target(int fd, void *arg)
{
	struct rlimit before, full;
	struct dev d;
	struct link l;
	struct mem m;
	struct addr it;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 0, 64);
	CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	full = before;
	int lowest = dup(fd);
	close(lowest);
	full.rlim_cur = (rlim_t)lowest;
	CHECK(!setrlimit(RLIMIT_NOFILE, &full));
	tell(fd, &l.me, sizeof(l.me));
	hear(fd, &it, sizeof(it));
	link_to(&l, &it);
	tell(fd, "", 1);
	hear(fd, &c, 1); /* it has been introduced */
	CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	meet_up(fd);
}

static void a_peer_without_a_free_descriptor_is_met_when_it_has_one(void)
{
	struct peer p = start(full_target, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct addr it;
	char c;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.timeout = 18 /* 1.1 s */, .retry = 7});
	hear(p.fd, &it, sizeof(it));
	tell(p.fd, &l.me, sizeof(l.me));
	hear(p.fd, &c, 1);
	link_to(&l, &it);
	tell(p.fd, "", 1);
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
}

/* Programs that have just started meet at once, without a retry. Fails if the broker does not yet know where one of
 * them is while the other asks. */
static void just_started(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.timeout = 8, .retry = -1});
	post_recv(&l, 1, &m, 0, 64);
	link_join(&l, fd);
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	meet_up(fd);
}

static void programs_that_have_just_started_meet_at_once(void)
{
	for (int i = 0; i < 40; i++) {
		struct peer a = start(just_started, NULL), b = start(just_started, NULL);
		struct addr x, y;

		hear(a.fd, &x, sizeof(x));
		hear(b.fd, &y, sizeof(y));
		tell(a.fd, &y, sizeof(y));
		tell(b.fd, &x, sizeof(x));
		for (int k = 0; k < 2; k++) {
			char c;

			hear(a.fd, &c, 1);
			hear(b.fd, &c, 1);
			tell(a.fd, &c, 1);
			tell(b.fd, &c, 1);
		}
		finish(&a);
		finish(&b);
	}
}

/* --- posting --- */

static void posting_in_a_wrong_state_is_refused(void)
{
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_recv_wr r = {.wr_id = 1}, *bad = NULL;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	struct wr w = {.op = IBV_WR_SEND, .m = &m, .len = 8};

	SAME(try_post(&l, &w), EINVAL); /* INIT */
	SAME(ibv_post_recv(l.qp, &r, &bad), 0);
	link_rtr(&l, &l.me);
	SAME(try_post(&l, &w), EINVAL);
	CHECK(!to_state(l.qp, IBV_QPS_RESET));
	SAME(try_post(&l, &w), EINVAL);
	SAME(ibv_post_recv(l.qp, &r, &bad), EINVAL);
	CHECK(bad == &r);
	expect_none(l.rcq, 5); /* earlier requests were removed by the reset */
}

static void a_full_queue_is_ENOMEM_with_the_first_that_did_not_fit(void)
{
	struct peer p = start(silent, &(struct conf){.rnr_timer = 16});
	struct ibv_send_wr s[12] = {0}, *sbad = NULL;
	struct ibv_recv_wr r[12] = {0}, *rbad = NULL;
	struct dev d;
	struct link l;

	dev_open(&d);
	link_open(&l, &d, &(struct conf){.depth = 8, .rdepth = 8}, p.fd);
	for (int i = 0; i < 12; i++) {
		s[i] = (struct ibv_send_wr){.wr_id = (uint64_t)i,
		                            .next = i < 11 ? &s[i + 1] : NULL,
		                            .opcode = IBV_WR_SEND,
		                            .send_flags = IBV_SEND_SIGNALED};
		r[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)i, .next = i < 11 ? &r[i + 1] : NULL};
	}
	SAME(ibv_post_send(l.qp, s, &sbad), ENOMEM);
	CHECK(sbad == &s[8]);
	SAME(ibv_post_recv(l.qp, r, &rbad), ENOMEM);
	CHECK(rbad == &r[8]);
	CHECK(!to_state(l.qp, IBV_QPS_ERR));
	for (uint64_t i = 0; i < 8; i++)
		expect(l.scq, i, IBV_WC_WR_FLUSH_ERR);
	for (uint64_t i = 0; i < 8; i++)
		expect(l.rcq, i, IBV_WC_WR_FLUSH_ERR);
	expect_none(l.scq, 5);
	tell(p.fd, "", 1);
	finish(&p);
}

static void too_many_sges_are_EINVAL(void)
{
	struct ibv_sge sge[8] = {0};
	struct ibv_send_wr s = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 5}, *sbad = NULL;
	struct ibv_recv_wr r = {.sg_list = sge, .num_sge = 5}, *rbad = NULL;
	struct two t;

	two_open(&t, &(struct conf){.sge = 4}, &(struct conf){.sge = 4});
	SAME(ibv_post_send(t.a.qp, &s, &sbad), EINVAL);
	CHECK(sbad == &s);
	SAME(ibv_post_recv(t.a.qp, &r, &rbad), EINVAL);
	s.num_sge = -1;
	SAME(ibv_post_send(t.a.qp, &s, &sbad), EINVAL);
	s.num_sge = 0;
	s.opcode = (enum ibv_wr_opcode)99;
	SAME(ibv_post_send(t.a.qp, &s, &sbad), EINVAL);
}

/* --- completion queue overflow --- */

/* Fails if an entry beyond the end is written (the sanitizer, or wrong entries), or if the overflow is not reported. */
static void an_overrun_completion_queue_raises_an_event_and_loses_no_earlier_entry(void)
{
	struct two t;
	struct ibv_cq *small;

	two_open(&t, &(struct conf){0}, &(struct conf){0});
	small = ibv_create_cq(t.d.ctx, 4, NULL, NULL, 0);
	CHECK(small);
	int cqe = small->cqe;
	struct link a, b;

	link_make(&a, &t.d, &(struct conf){.scq = small, .rcq = t.a.rcq, .depth = 32});
	link_make(&b, &t.d, &(struct conf){0});
	link_to(&a, &b.me);
	link_to(&b, &a.me);
	for (uint64_t i = 0; i < (uint64_t)cqe + 4; i++)
		POST(&a, .op = IBV_WR_RDMA_WRITE, .id = i, .m = &t.m, .len = 8, .far = t.f);
	int ev = next_event(&t.d, PATIENCE);

	if (ev == IBV_EVENT_COMM_EST)
		ev = next_event(&t.d, PATIENCE);
	SAME(ev, IBV_EVENT_CQ_ERR);
	for (uint64_t i = 0; i < (uint64_t)cqe; i++)
		expect(small, i, IBV_WC_SUCCESS);
	expect_none(small, 5);
}

/* --- asynchronous events --- */

static void event_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	struct addr it;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 0, 64);
	tell(fd, &l.me, sizeof(l.me));
	hear(fd, &it, sizeof(it));
	link_rtr(&l, &it);
	meet_up(fd);
	SAME(next_event(&d, PATIENCE), IBV_EVENT_COMM_EST); /* in RTR, without polling */
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	link_rts(&l);
	SAME(next_event(&d, 20), -1);
	meet_up(fd);
}

static void a_first_message_in_rtr_raises_communication_established(void)
{
	struct peer p = start(event_target, NULL);
	struct dev d;
	struct link l;
	struct mem m;
	struct addr it;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	hear(p.fd, &it, sizeof(it));
	tell(p.fd, &l.me, sizeof(l.me));
	link_to(&l, &it);
	meet_up(p.fd);
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
}

static void a_queue_pair_with_a_shared_receive_queue_says_when_it_has_left(void)
{
	struct dev d;
	struct link a, b;
	struct mem m;
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 16, .max_sge = 1}};

	dev_open(&d);
	mem_make(&m, &d, 4096);
	struct ibv_srq *srq = ibv_create_srq(d.pd, &sa);

	CHECK(srq);
	link_make(&a, &d, &(struct conf){0});
	link_make(&b, &d, &(struct conf){.srq = srq});
	link_to(&a, &b.me);
	link_to(&b, &a.me);
	for (uint64_t i = 0; i < 8; i++)
		post_recv(&b, i, &m, 0, 64);
	struct ibv_srq_attr limit = {.srq_limit = 5};

	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	SAME(next_event(&d, 5), -1);
	for (uint64_t i = 0; i < 4; i++) {
		POST(&a, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 8);
		expect(a.scq, i, IBV_WC_SUCCESS);
		expect(b.rcq, i, IBV_WC_SUCCESS);
	}
	SAME(next_event(&d, PATIENCE), IBV_EVENT_SRQ_LIMIT_REACHED);
	SAME(next_event(&d, 5), -1); /* once */
	CHECK(!to_state(b.qp, IBV_QPS_ERR));
	SAME(next_event(&d, PATIENCE), IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_none(b.rcq, 5); /* receives in the SRQ are not flushed */
	CHECK(!ibv_query_srq(srq, &limit));
	SAME(limit.srq_limit, 0);
}

/* --- the end --- */

#define ENDS 30

static void poll_idly(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < 3000; i++)
		CHECK(!ibv_poll_cq(cq, 1, &wc));
}

static void says_what_it_has(int fd, void *arg)
{
	struct dev d;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	for (uint64_t i = 0; i < ENDS; i++) {
		struct link l;
		struct ibv_wc wc;

		link_make(&l, &d, &(struct conf){0});
		post_recv(&l, i, &m, 0, 64);
		link_join(&l, fd);
		poll_idly(l.rcq);
		meet_up(fd);
		while (!ibv_poll_cq(l.rcq, 1, &wc))
			;
		SAME(wc.status, IBV_WC_SUCCESS);
		tell(fd, &i, sizeof(i)); /* through a socket, before it looks for work again */
		meet_up(fd);
		link_end(&l);
	}
}

/* A program that ends a connection because the peer has confirmed receipt gets no error for those sends. A promise of
 * shared memory: on a network the acknowledgement may be on its way still, as with hardware. */
static void what_the_peer_has_is_no_failure_of_who_ends(void)
{
	const char *wire = getenv("VERBENA_WIRE");

	if (wire && !strcmp(wire, "always"))
		skip("on a network the acknowledgement may come later than the answer");
	struct peer p = start(says_what_it_has, NULL);
	struct dev d;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	for (uint64_t i = 0, n; i < ENDS; i++) {
		struct link l;

		link_open(&l, &d, &(struct conf){0}, p.fd);
		poll_idly(l.scq);
		meet_up(p.fd);
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 64);
		hear(p.fd, &n, sizeof(n));
		if (i % 2)
			CHECK(!to_state(l.qp, IBV_QPS_SQD));
		CHECK(!to_state(l.qp, IBV_QPS_ERR));
		expect(l.scq, i, IBV_WC_SUCCESS);
		meet_up(p.fd);
		link_end(&l);
	}
	finish(&p);
}

/* --- requests without data --- */

static void requests_of_length_zero_succeed(void)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
	                                         IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};

	for (int ring = 0; ring < 2; ring++) {
		struct two t;

		two_open(&t, &(struct conf){0}, &(struct conf){0});
		for (unsigned i = 0; i < 5; i++) {
			bool receives = i < 2 || i == 3;

			if (receives)
				post_recv(&t.b, 50 + i, NULL, 0, 0);
			POST(&t.a, .op = ops[i], .id = i, .imm = 0x1234,
			     .far = {0, 0xdead, 0}); /* no key is checked: IBA C9-88 */
			expect(t.a.scq, i, IBV_WC_SUCCESS);
			if (!receives)
				continue;
			struct ibv_wc wc = expect(t.b.rcq, 50 + i, IBV_WC_SUCCESS);

			SAME(wc.byte_len, 0);
			SAME(wc.opcode, i == 3 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
			SAME(!!(wc.wc_flags & IBV_WC_WITH_IMM), i != 0);
			if (i)
				SAME(wc.imm_data, 0x1234);
		}
		link_end(&t.a);
		link_end(&t.b);
	}
}

/* The same between processes, where a write of 0 bytes must not disturb requests that go by ring. */
static void zero_target(int fd, void *arg)
{
	struct dev d;
	struct link l;

	dev_open(&d);
	link_make(&l, &d, &(struct conf){0});
	for (uint64_t i = 0; i < 3; i++)
		post_recv(&l, i, NULL, 0, 0);
	link_join(&l, fd);
	for (uint64_t i = 0; i < 3; i++)
		expect(l.rcq, i, IBV_WC_SUCCESS);
	meet_up(fd);
}

static void requests_of_length_zero_succeed_between_programs(void *forbid)
{
	struct peer p = start(zero_target, NULL);
	struct dev d;
	struct link l;

	dev_open(&d);
	if (forbid)
		CHECK(forbid_process_vm(EPERM));
	link_open(&l, &d, &(struct conf){0}, p.fd);
	POST(&l, .op = IBV_WR_SEND, .id = 0);
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 2);
	POST(&l, .op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 3);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 4);
	POST(&l, .op = IBV_WR_SEND_WITH_IMM, .id = 5);
	for (uint64_t i = 0; i < 6; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
}

static void requests_of_length_zero_succeed_by_one_copy(void)
{
	requests_of_length_zero_succeed_between_programs(NULL);
}

static void requests_of_length_zero_succeed_by_ring(void)
{
	requests_of_length_zero_succeed_between_programs(&(int){1});
}

/* A message that does not fit is dropped as a whole, and the receive stays for the next one. An invalid local buffer is
 * an error of this end only. Fails if the same host reports more than the network. */
static void an_unreliable_connection_drops_what_does_not_fit(void)
{
	struct two t;
	struct mem read_only;

	two_open(&t, &(struct conf){.type = IBV_QPT_UC}, &(struct conf){.type = IBV_QPT_UC});
	read_only = t.far;
	mem_reg(&read_only, &t.d, 0);
	fill(t.m.p, 5000, 9);
	post_recv(&t.b, 1, &t.far, 0, 100000);
	POST(&t.a, .op = IBV_WR_SEND, .id = 1, .m = &t.m, .off = 5000, .len = 100001);
	expect(t.a.scq, 1, IBV_WC_SUCCESS);
	POST(&t.a, .op = IBV_WR_SEND, .id = 2, .m = &t.m, .off = 5000, .len = 300000);
	expect(t.a.scq, 2, IBV_WC_SUCCESS);
	POST(&t.a, .op = IBV_WR_SEND, .id = 3, .m = &t.m, .len = 5000);
	expect(t.a.scq, 3, IBV_WC_SUCCESS);
	SAME(expect(t.b.rcq, 1, IBV_WC_SUCCESS).byte_len, 5000);
	CHECK(holds(t.far.p, 5000, 9));
	SAME(state_of(t.b.qp), IBV_QPS_RTS);

	post_recv(&t.b, 2, &read_only, 0, 64);
	post_recv(&t.b, 3, &t.far, 0, 64);
	POST(&t.a, .op = IBV_WR_SEND, .id = 4, .m = &t.m, .len = 8);
	expect(t.a.scq, 4, IBV_WC_SUCCESS);
	expect(t.b.rcq, 2, IBV_WC_LOC_PROT_ERR);
	expect(t.b.rcq, 3, IBV_WC_WR_FLUSH_ERR);
	SAME(state_of(t.b.qp), IBV_QPS_ERR);
	SAME(state_of(t.a.qp), IBV_QPS_RTS);
	int event;

	while ((event = next_event(&t.d, 5)) != -1)
		SAME(event, IBV_EVENT_COMM_EST);
}

static void uc_refuser(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 1 << 20);
	fill(m.p, m.n, 6);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UC});
	post_recv(&l, 1, NULL, 0, 0);
	mem_tell(&m, fd);
	link_join(&l, fd);
	SAME(expect(l.rcq, 1, IBV_WC_SUCCESS).imm_data, 2);
	CHECK(holds(m.p, m.n, 6));
	meet_up(fd);
}

/* The first piece of a write decides for all of it: the rest, which would be within bounds, is not written. */
static void an_unreliable_write_that_is_refused_writes_nothing(void)
{
	struct peer p = start(uc_refuser, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	CHECK(forbid_process_vm(EPERM));
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UC});
	struct far far = far_hear(p.fd);

	far.addr += (1 << 20) - 150000;
	link_join(&l, p.fd);
	POST(&l, .op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 1, .m = &m, .len = 200000, .far = far, .imm = 1);
	POST(&l, .op = IBV_WR_SEND_WITH_IMM, .id = 2, .imm = 2);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
}

/* A queue pair that failed works again after RESET. */
static void a_queue_pair_works_again_after_reset(void)
{
	struct two t;

	two_open(&t, &(struct conf){0}, &(struct conf){0});
	for (int i = 0; i < 5; i++) {
		struct far bad = {t.f.addr, t.f.rkey ^ 0x111, 0};

		post_recv(&t.b, 1, &t.far, 0, 64);
		POST(&t.a, .op = IBV_WR_SEND, .id = 1, .m = &t.m, .len = 64);
		expect(t.a.scq, 1, IBV_WC_SUCCESS);
		expect(t.b.rcq, 1, IBV_WC_SUCCESS);
		POST(&t.a, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &t.m, .len = 64, .far = bad);
		expect(t.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
		SAME(state_of(t.b.qp), IBV_QPS_ERR);
		for (int k = 0; k < 2; k++) {
			struct link *l = k ? &t.a : &t.b;
			struct ibv_qp_attr q = {
			        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = l->c.access};

			CHECK(!to_state(l->qp, IBV_QPS_RESET));
			CHECK(!ibv_modify_qp(l->qp, &q,
			                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		}
		link_to(&t.a, &t.b.me);
		link_to(&t.b, &t.a.me);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"access that is not granted is a remote access error",
	         access_that_is_not_granted_is_a_remote_access_error},
	        {"access that is not granted is a remote access error, by ring",
	         access_that_is_not_granted_is_a_remote_access_error_by_ring},
	        {"an invalid request is a remote invalid request error",
	         an_invalid_request_is_a_remote_invalid_request_error},
	        {"a receive that cannot be filled is a remote operation error",
	         a_receive_that_cannot_be_filled_is_a_remote_operation_error},
	        {"a local fault hurts only the requester", a_local_fault_hurts_only_the_requester},
	        {"a local fault hurts only the requester, by ring", a_local_fault_hurts_only_the_requester_by_ring},
	        {"a read before a refused request succeeds", a_read_before_a_refused_request_succeeds},
	        {"an address that wraps is refused", an_address_that_wraps_is_refused},
	        {"a receive that never comes exhausts the RNR retries",
	         a_receive_that_never_comes_exhausts_the_rnr_retries},
	        {"RNR retry seven has no end", rnr_retry_seven_has_no_end},
	        {"a queue pair that does not exist exhausts the retries",
	         a_queue_pair_that_does_not_exist_exhausts_the_retries},
	        {"a queue pair in reset exhausts the retries", a_queue_pair_in_reset_exhausts_the_retries},
	        {"wrong sequence numbers exhaust the retries", wrong_sequence_numbers_exhaust_the_retries},
	        {"a peer that becomes ready late is found", a_peer_that_becomes_ready_late_is_found},
	        {"a peer without a free descriptor is met when it has one",
	         a_peer_without_a_free_descriptor_is_met_when_it_has_one},
	        {"programs that have just started meet at once", programs_that_have_just_started_meet_at_once},
	        {"posting in a wrong state is refused", posting_in_a_wrong_state_is_refused},
	        {"a full queue is ENOMEM with the first that did not fit",
	         a_full_queue_is_ENOMEM_with_the_first_that_did_not_fit},
	        {"too many sges are EINVAL", too_many_sges_are_EINVAL},
	        {"an overrun completion queue raises an event and loses no earlier entry",
	         an_overrun_completion_queue_raises_an_event_and_loses_no_earlier_entry},
	        {"a first message in RTR raises communication established",
	         a_first_message_in_rtr_raises_communication_established},
	        {"a queue pair with a shared receive queue says when it has left",
	         a_queue_pair_with_a_shared_receive_queue_says_when_it_has_left},
	        {"what the peer has is no failure of who ends", what_the_peer_has_is_no_failure_of_who_ends},
	        {"requests of length zero succeed", requests_of_length_zero_succeed},
	        {"requests of length zero succeed by one copy", requests_of_length_zero_succeed_by_one_copy},
	        {"requests of length zero succeed by ring", requests_of_length_zero_succeed_by_ring},
	        {"an unreliable connection drops what does not fit", an_unreliable_connection_drops_what_does_not_fit},
	        {"an unreliable write that is refused writes nothing",
	         an_unreliable_write_that_is_refused_writes_nothing},
	        {"a queue pair works again after reset", a_queue_pair_works_again_after_reset},
	};

	return RUN_TESTS(argc, argv, tests);
}
