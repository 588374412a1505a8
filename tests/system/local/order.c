// order.c - requests of one queue pair are executed and completed in posting order
// follows: IBA volume 1, 10.8.3.3, table 76 (ordering); C9-114
// SPDX-License-Identifier: MIT
#include "pair.h"

/* The receiver of a test: registers memory, posts receives on request, and reports what it observes. */
struct receiver {
	struct dev d;
	struct link l;
	struct mem m;
};

static void receiver_open(struct receiver *r, int fd, const struct conf *c)
{
	dev_open(&r->d);
	link_make(&r->l, &r->d, c);
	mem_make(&r->m, &r->d, 1 << 20);
	mem_tell(&r->m, fd);
	link_join(&r->l, fd);
}

/*
 * A send without a receive, then writes of several sizes: small ones (which may go by ring) and large ones (one-copy).
 * Fails if one-copy operations do not wait for the ring: then the bytes arrive while the send still waits.
 */
static void held_back_target(int fd, void *arg)
{
	struct conf c = {.rnr_timer = 14 /* 1 ms */};
	struct receiver r;
	char go;

	receiver_open(&r, fd, &c);
	hear(fd, &go, 1); /* all requests are posted */
	uint64_t until = now_ms() + 300;

	while (now_ms() < until) {
		struct ibv_wc wc;

		SAME(ibv_poll_cq(r.l.rcq, 1, &wc), 0);
		for (int i = 0; i < 5; i++)
			SAME(((volatile uint8_t *)r.m.p)[i * 0x20000], 0);
	}
	post_recv(&r.l, 7, &r.m, 0xf0000, 64);
	expect(r.l.rcq, 7, IBV_WC_SUCCESS);
	hear(fd, &go, 1); /* completed at the other end */
	for (int i = 0; i < 5; i++)
		SAME(r.m.p[i * 0x20000], 100 + i);
}

static void a_write_behind_a_send_that_waits_for_a_receive_does_not_land_before_it(void)
{
	static const uint32_t sizes[5] = {1, 64, 4096, 16384, 0x20000};
	struct peer p = start(held_back_target, NULL);
	struct conf c = {0};
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	link_make(&l, &d, &c);
	mem_make(&m, &d, 1 << 20);
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 8);
	for (unsigned i = 0; i < 5; i++) {
		m.p[i * 0x20000] = (uint8_t)(100 + i);
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2 + i, .m = &m, .off = i * 0x20000, .len = sizes[i], .far = far,
		     .far_off = i * 0x20000);
	}
	tell(p.fd, "", 1);
	expect_none(l.scq, 100);
	for (unsigned i = 1; i <= 6; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	tell(p.fd, "", 1);
	finish(&p);
}

/* A read after a send after a write returns the written data. Fails if a read overtakes small writes that go by
 * ring. */
static void reader_target(int fd, void *arg)
{
	struct conf c = {0};
	struct receiver r;

	receiver_open(&r, fd, &c);
	for (int i = 0; i < 2000; i++)
		post_recv(&r.l, (uint64_t)i, &r.m, 0x80000, 64), (void)wait_wc(r.l.rcq);
	meet_up(fd);
}

static void a_read_sees_what_was_written_before_it(void)
{
	struct peer p = start(reader_target, NULL);
	struct conf c = {0};
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	link_make(&l, &d, &c);
	mem_make(&m, &d, 1 << 16);
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	for (uint32_t i = 1; i <= 2000; i++) {
		*(volatile uint32_t *)m.p = i;
		*(volatile uint32_t *)(m.p + 4096) = 0;
		POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .off = 64, .len = 8, .quiet = true);
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &m, .len = 4, .far = far, .quiet = true);
		POST(&l, .op = IBV_WR_RDMA_READ, .id = 3, .m = &m, .off = 4096, .len = 4, .far = far);
		expect(l.scq, 3, IBV_WC_SUCCESS);
		SAME(*(volatile uint32_t *)(m.p + 4096), i);
	}
	meet_up(p.fd);
	finish(&p);
}

/*
 * Random mixes. The target refills its receive queue only now and then, so that RNR NAKs are frequent. It checks that
 * messages arrive in order (each has a number), and that all writes posted before message k have landed, and none
 * posted after message k + window. The writes store their number in one place. Fails if completions are reordered, lost
 * or doubled, or if a write passes a send.
 */
#define MIX 3000u

static void mix_target(int fd, void *arg)
{
	struct conf c = {.depth = 32, .rnr_timer = 1};
	struct receiver r;
	uint64_t seed = 42;
	uint32_t last = 0, posted = 0, left;

	receiver_open(&r, fd, &c);
	hear(fd, &left, sizeof(left));
	volatile uint32_t *written = (uint32_t *)(r.m.p + 0x80000);

	for (uint32_t got = 0; got < left;) {
		struct ibv_wc wc;

		if (posted - got < 16 && !(random_next(&seed) % 8)) {
			post_recv(&r.l, posted, &r.m, (posted % 32) * 64, 64);
			posted++;
		}
		if (!ibv_poll_cq(r.l.rcq, 1, &wc))
			continue;
		SAME(wc.status, IBV_WC_SUCCESS);
		SAME(wc.wr_id, got);
		if (wc.opcode == IBV_WC_RECV) {
			uint32_t *m = (uint32_t *)(r.m.p + (got % 32) * 64);

			CHECK(m[0] > last); /* the number of the request */
			last = m[0];
			CHECK(*written >= m[1]); /* the write before it has landed */
		} else {
			SAME(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			CHECK(*written >= wc.imm_data);
		}
		got++;
	}
	meet_up(fd);
}

static void run_mix(uint64_t seed, unsigned depth, const char *kind)
{
	struct peer p = start(mix_target, NULL);
	struct conf c = {.depth = depth};
	uint32_t sends = 0, last_write = 0, done = 0, head = 0;
	static uint8_t op[MIX], quiet[MIX];
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	link_make(&l, &d, &c);
	mem_make(&m, &d, 1 << 20);
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	for (uint32_t i = 0; i < MIX; i++) {
		op[i] = (uint8_t)(random_next(&seed) % 6);
		quiet[i] = i != MIX - 1 && random_next(&seed) % 3 == 0;
		sends += op[i] == 0 || op[i] == 3;
	}
	tell(p.fd, &sends, sizeof(sends));
	uint64_t expected_add = 0;

	while (done < MIX) {
		struct ibv_wc wc;

		/* unsignalled entries are freed by a later completion: count those that are certainly free */
		if (head < MIX && head - done < depth) {
			uint32_t i = head, slot = i % depth;
			uint32_t *mine = (uint32_t *)(m.p + slot * 64);
			struct wr w = {.id = i, .m = &m, .off = slot * 64, .quiet = quiet[i], .far = far};

			if (random_next(&seed) % 4 == 0)
				w.flags |= IBV_SEND_FENCE;
			switch (op[i]) {
			case 0:
				mine[0] = i + 1;
				mine[1] = last_write;
				w.op = IBV_WR_SEND;
				w.len = 8 + 4 * (random_next(&seed) % 8);
				break;
			case 1:
			case 3:
				mine[0] = last_write = i + 1;
				w.op = op[i] == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
				w.imm = i + 1;
				w.len = 4;
				w.far_off = 0x80000;
				break;
			case 2: /* a large write to another place */
				w.op = IBV_WR_RDMA_WRITE;
				w.off = 0x40000;
				w.len = 20000;
				w.far_off = 0xa0000;
				break;
			case 4:
				w.op = IBV_WR_RDMA_READ;
				w.off = 0x80000 + slot * 64;
				w.len = 4;
				w.far_off = 0x80000;
				break;
			default:
				w.op = IBV_WR_ATOMIC_FETCH_AND_ADD;
				w.off = 0x90000 + slot * 64;
				w.len = 8;
				w.compare_add = 3;
				w.far_off = 0x90000;
			}
			post(&l, &w);
			if (op[i] == 4)
				mine[8] = last_write; /* the lower limit for the read's result */
			head++;
		}
		if (!ibv_poll_cq(l.scq, 1, &wc))
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			fail(__FILE__, __LINE__, "%s: request %llu: %s", kind, (unsigned long long)wc.wr_id,
			     ibv_wc_status_str(wc.status));
		while (quiet[done] || done < wc.wr_id) {
			if (!quiet[done])
				fail(__FILE__, __LINE__, "request %u is passed by %llu", done,
				     (unsigned long long)wc.wr_id);
			if (op[done] == 5)
				expected_add += 3;
			done++;
		}
		SAME(wc.wr_id, done);
		uint32_t slot = done % depth;

		if (op[done] == 4) {
			/* ordered after earlier writes; later ones may have landed as well */
			CHECK(*(uint32_t *)(m.p + 0x80000 + slot * 64) >= ((uint32_t *)(m.p + slot * 64))[8]);
		} else if (op[done] == 5) {
			SAME(*(uint64_t *)(m.p + 0x90000 + slot * 64), expected_add);
			expected_add += 3;
		}
		done++;
	}
	meet_up(p.fd);
	finish(&p);
}

static void requests_of_all_kinds_complete_in_posting_order(void)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		run_mix(seed * 0x9e3779b97f4a7c15ull, seed % 2 ? 16 : 64, "mix");
}

/* Fails if a fence does not wait for earlier reads: the send would contain data from before the read. */
static void fence_target(int fd, void *arg)
{
	struct conf c = {0};
	struct receiver r;

	receiver_open(&r, fd, &c);
	for (uint32_t i = 1; i <= 1000; i++) {
		*(volatile uint32_t *)r.m.p = i;
		fill(r.m.p + 64, 60000, i);
		post_recv(&r.l, i, &r.m, 0x80000, 4096);
		meet_up(fd);
		expect(r.l.rcq, i, IBV_WC_SUCCESS);
		SAME(*(uint32_t *)(r.m.p + 0x80000), i);
	}
	meet_up(fd);
}

static void fenced_send_carries_what_the_read_before_it_brought(void *env)
{
	struct peer p = start(fence_target, NULL);
	struct conf c = {0};
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	if (env)
		CHECK(forbid_process_vm(EPERM));
	link_make(&l, &d, &c);
	mem_make(&m, &d, 1 << 20);
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	for (uint32_t i = 1; i <= 1000; i++) {
		meet_up(p.fd);
		POST(&l, .op = IBV_WR_RDMA_READ, .id = 1, .m = &m, .off = 64, .len = i % 4 ? 4 : 60000, .far = far,
		     .far_off = 64, .quiet = true);
		POST(&l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &m, .len = 4, .far = far, .quiet = true);
		POST(&l, .op = IBV_WR_SEND, .id = 3, .m = &m, .len = 4, .flags = IBV_SEND_FENCE);
		expect(l.scq, 3, IBV_WC_SUCCESS);
	}
	meet_up(p.fd);
	finish(&p);
}

static void a_fenced_send_carries_what_the_read_before_it_brought(void)
{
	fenced_send_carries_what_the_read_before_it_brought(NULL);
}

static void a_fenced_send_carries_what_a_read_by_ring_brought(void)
{
	fenced_send_carries_what_the_read_before_it_brought(&(int){1});
}

/* PSNs wrap at 24 bits. Fails if they are compared as plain numbers. */
static void wrap_target(int fd, void *arg)
{
	struct conf c = {.psn = 0xfffff8};
	struct receiver r;

	receiver_open(&r, fd, &c);
	for (uint32_t i = 0; i < 100; i++)
		post_recv(&r.l, i, &r.m, 0, 64), expect(r.l.rcq, i, IBV_WC_SUCCESS);
	meet_up(fd);
}

static void sequence_numbers_wrap_around(void)
{
	struct peer p = start(wrap_target, NULL);
	struct conf c = {.psn = 0xfffff0};
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	CHECK(forbid_process_vm(EPERM));
	link_make(&l, &d, &c);
	mem_make(&m, &d, 4096);
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	for (uint32_t i = 0; i < 100; i++) {
		POST(&l, .op = IBV_WR_RDMA_READ, .id = 1, .m = &m, .len = 64, .far = far);
		POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 8);
		expect(l.scq, 1, IBV_WC_SUCCESS);
		expect(l.scq, 2, IBV_WC_SUCCESS);
	}
	meet_up(p.fd);
	finish(&p);
}

static void list_target(int fd, void *arg)
{
	struct conf c = {0};
	struct receiver r;

	receiver_open(&r, fd, &c);
	meet_up(fd);
}

/* Far more at once than a sender lays out before it sends. Each message of this length has two pieces. */
static void post_list(struct link *l, enum ibv_wr_opcode op, struct mem *m, uint64_t off, struct far far, unsigned n,
                      uint32_t len)
{
	struct ibv_send_wr wr[64] = {0}, *bad;
	struct ibv_sge sge[64];

	for (unsigned i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)m->p + off + i * len, len, m->mr->lkey};
		wr[i] = (struct ibv_send_wr){.wr_id = i,
		                             .next = i + 1 < n ? &wr[i + 1] : NULL,
		                             .sg_list = &sge[i],
		                             .num_sge = 1,
		                             .opcode = op,
		                             .send_flags = IBV_SEND_SIGNALED,
		                             .wr.rdma = {far.addr + i * len, far.rkey}};
	}
	SAME(ibv_post_send(l->qp, wr, &bad), 0);
	for (unsigned i = 0; i < n; i++)
		expect(l->scq, i, IBV_WC_SUCCESS);
}

static void a_list_of_many_requests_arrives_whole(void)
{
	static const uint32_t lens[] = {2000, 3072, 4096, 5000, 8192, 16000};
	struct peer p = start(list_target, NULL);
	struct conf c = {0};
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	link_make(&l, &d, &c);
	mem_make(&m, &d, 2 << 20);
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	for (unsigned round = 0; round < 60; round++) { /* the window has to open first */
		uint32_t len = lens[round % 6];

		fill(m.p, 60 * len, round);
		memset(m.p + (1 << 20), 0, 1 << 20);
		post_list(&l, IBV_WR_RDMA_WRITE, &m, 0, far, 60, len);
		post_list(&l, IBV_WR_RDMA_READ, &m, 1 << 20, far, 60, len);
		CHECK(holds(m.p + (1 << 20), 60 * len, round));
	}
	meet_up(p.fd);
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a write behind a send that waits for a receive does not land before it",
	         a_write_behind_a_send_that_waits_for_a_receive_does_not_land_before_it},
	        {"a read sees what was written before it", a_read_sees_what_was_written_before_it},
	        {"requests of all kinds complete in posting order", requests_of_all_kinds_complete_in_posting_order},
	        {"a fenced send carries what the read before it brought",
	         a_fenced_send_carries_what_the_read_before_it_brought},
	        {"a fenced send carries what a read by ring brought",
	         a_fenced_send_carries_what_a_read_by_ring_brought},
	        {"a list of many requests arrives whole", a_list_of_many_requests_arrives_whole},
	        {"sequence numbers wrap around", sequence_numbers_wrap_around},
	};

	return RUN_TESTS(argc, argv, tests);
}
