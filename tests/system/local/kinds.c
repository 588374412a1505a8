// kinds.c - all kinds of queue pairs, operations and flags, between two processes or within one
// follows: IBA volume 1, chapters 9 to 11; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>

struct two {
	struct dev d;
	struct link a, b;
	struct mem m, n;
	struct far far;
};

static void two_open(struct two *t, const struct conf *a, const struct conf *b)
{
	dev_open(&t->d);
	mem_make(&t->m, &t->d, 1 << 20);
	mem_make(&t->n, &t->d, 1 << 20);
	link_make(&t->a, &t->d, a);
	link_make(&t->b, &t->d, b);
	link_to(&t->a, &t->b.me);
	link_to(&t->b, &t->a.me);
	t->far = (struct far){(uintptr_t)t->n.p, t->n.mr->rkey, 0};
}

/* --- pieces --- */

static void gather_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_sge sge[32];
	struct ibv_recv_wr r = {.wr_id = 1, .sg_list = sge, .num_sge = 32}, *bad;

	dev_open(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){.sge = 32});
	for (uint32_t round = 0; round < 3; round++) {
		memset(m.p, 0, m.n);
		for (uint32_t i = 0; i < 32; i++)
			sge[i] =
			        (struct ibv_sge){(uintptr_t)m.p + i * 8192 + 1, round == 2 ? 1000 : 50 + i, m.mr->lkey};
		CHECK(!ibv_post_recv(l.qp, &r, &bad));
		if (!round)
			link_join(&l, fd);
		else
			meet_up(fd);
		struct ibv_wc wc = expect(l.rcq, 1, IBV_WC_SUCCESS);
		uint32_t at = 0;

		for (uint32_t i = 0; at < wc.byte_len; i++)
			for (uint32_t k = 0; k < sge[i].length && at < wc.byte_len; k++, at++)
				SAME(m.p[i * 8192 + 1 + k], (uint8_t)(at * 7 + round));
		SAME(m.p[0], 0);
	}
	meet_up(fd);
}

/* Fails if a boundary on one side falls into a piece of the other, and bytes are lost, doubled or moved. */
static void thirty_two_pieces_on_both_sides(void)
{
	static const uint32_t sizes[3] = {1000, 1500, 20000};
	struct peer p = start(gather_target, NULL);
	struct ibv_sge sge[32];
	struct ibv_send_wr w = {.wr_id = 1,
	                        .sg_list = sge,
	                        .num_sge = 32,
	                        .opcode = IBV_WR_SEND,
	                        .send_flags = IBV_SEND_SIGNALED},
	                   *bad;
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){.sge = 32});
	link_join(&l, p.fd);
	for (uint32_t round = 0; round < 3; round++) {
		uint32_t at = 0, left = sizes[round];

		if (round)
			meet_up(p.fd);
		for (uint32_t i = 0; i < 32; i++) {
			uint32_t n = i == 31 ? left : left / (32 - i) + (i & 1) * 3;

			sge[i] = (struct ibv_sge){(uintptr_t)m.p + i * 4096 + 3, n, m.mr->lkey};
			for (uint32_t k = 0; k < n; k++, at++)
				m.p[i * 4096 + 3 + k] = (uint8_t)(at * 7 + round);
			left -= n;
		}
		CHECK(!ibv_post_send(l.qp, &w, &bad));
		expect(l.scq, 1, IBV_WC_SUCCESS);
	}
	meet_up(p.fd);
	finish(&p);
}

/* Fails if the data is read after the call has returned. */
static void inline_data_may_be_overwritten_at_once(void)
{
	struct two t;

	two_open(&t, &(struct conf){.inline_max = 1024, .depth = 64}, &(struct conf){.depth = 64, .rnr_timer = 1});
	for (uint32_t i = 0; i < 32; i++) { /* they wait for receives, and then arrive */
		uint32_t len = i == 31 ? 1024 : 1 + i * 33;

		fill(t.m.p, len, i);
		POST(&t.a, .op = IBV_WR_SEND, .id = i, .p = t.m.p, .len = len,
		     .flags = IBV_SEND_INLINE); /* no key is needed */
		memset(t.m.p, 0xff, len);
	}
	for (uint32_t i = 0; i < 32; i++)
		post_recv(&t.b, i, &t.n, i * 2048, 2048);
	for (uint32_t i = 0; i < 32; i++) {
		struct ibv_wc wc = expect(t.b.rcq, i, IBV_WC_SUCCESS);

		SAME(wc.byte_len, i == 31 ? 1024 : 1 + i * 33);
		CHECK(holds(t.n.p + i * 2048, wc.byte_len, i));
		expect(t.a.scq, i, IBV_WC_SUCCESS);
	}
	fill(t.m.p, 100, 9);
	POST(&t.a, .op = IBV_WR_RDMA_WRITE, .id = 1, .p = t.m.p, .len = 100, .flags = IBV_SEND_INLINE, .far = t.far);
	memset(t.m.p, 0xff, 100);
	expect(t.a.scq, 1, IBV_WC_SUCCESS);
	CHECK(holds(t.n.p, 100, 9));
	SAME(try_post(&t.a, &(struct wr){.op = IBV_WR_SEND, .p = t.m.p, .len = 1025, .flags = IBV_SEND_INLINE}),
	     EINVAL);
}

/* --- invalidate --- */

static void a_send_with_invalidate_ends_the_key(void)
{
	struct two t;
	struct mem x;

	two_open(&t, &(struct conf){0}, &(struct conf){0});
	mem_make(&x, &t.d, 4096);
	struct far f = {(uintptr_t)x.p, x.mr->rkey, 0};

	POST(&t.a, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &t.m, .len = 8, .far = f);
	expect(t.a.scq, 1, IBV_WC_SUCCESS);
	post_recv(&t.b, 2, &t.n, 0, 64);
	POST(&t.a, .op = IBV_WR_SEND_WITH_INV, .id = 2, .m = &t.m, .len = 8, .imm = x.mr->rkey);
	expect(t.a.scq, 2, IBV_WC_SUCCESS);
	struct ibv_wc wc = expect(t.b.rcq, 2, IBV_WC_SUCCESS);

	CHECK(wc.wc_flags & IBV_WC_WITH_INV);
	SAME(wc.invalidated_rkey, x.mr->rkey);
	POST(&t.a, .op = IBV_WR_RDMA_WRITE, .id = 3, .m = &t.m, .len = 8, .far = f);
	expect(t.a.scq, 3, IBV_WC_REM_ACCESS_ERR);
	mem_end(&x);
}

static void a_local_invalidate_ends_the_key_in_its_turn(void)
{
	struct two t;
	struct mem x;

	two_open(&t, &(struct conf){0}, &(struct conf){0});
	mem_make(&x, &t.d, 1 << 16);
	post_recv(&t.b, 1, &t.n, 0, 1 << 16);
	POST(&t.a, .op = IBV_WR_SEND, .id = 1, .m = &x, .len = 1 << 16);
	POST(&t.a, .op = IBV_WR_LOCAL_INV, .id = 2, .imm = x.mr->rkey);
	POST(&t.a, .op = IBV_WR_SEND, .id = 3, .m = &x, .len = 8);
	expect(t.a.scq, 1, IBV_WC_SUCCESS);
	SAME(expect(t.a.scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_LOCAL_INV);
	expect(t.a.scq, 3, IBV_WC_LOC_PROT_ERR);
	mem_end(&x);
}

/* --- solicited events --- */

static void only_a_solicited_completion_wakes_who_asked_for_such(void)
{
	struct two t;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	void *x;

	dev_open(&t.d);
	CHECK((ch = ibv_create_comp_channel(t.d.ctx)));
	mem_make(&t.m, &t.d, 4096);
	link_make(&t.a, &t.d, &(struct conf){0});
	link_make(&t.b, &t.d, &(struct conf){.channel = ch});
	link_to(&t.a, &t.b.me);
	link_to(&t.b, &t.a.me);
	for (uint64_t i = 0; i < 4; i++)
		post_recv(&t.b, i, &t.m, 1024, 64);
	CHECK(!ibv_req_notify_cq(t.b.rcq, 1));
	POST(&t.a, .op = IBV_WR_SEND, .id = 0, .m = &t.m, .len = 8);
	expect(t.a.scq, 0, IBV_WC_SUCCESS);
	CHECK(!heard(ch->fd, 30));
	POST(&t.a, .op = IBV_WR_SEND, .id = 1, .m = &t.m, .len = 8, .flags = IBV_SEND_SOLICITED);
	CHECK(heard(ch->fd, PATIENCE));
	CHECK(!ibv_get_cq_event(ch, &cq, &x));
	CHECK(cq == t.b.rcq);
	ibv_ack_cq_events(cq, 1);
	expect(t.b.rcq, 0, IBV_WC_SUCCESS);
	expect(t.b.rcq, 1, IBV_WC_SUCCESS);
	/* after one event the channel is silent; if armed for any completion, one is enough; an error counts as
	 * solicited */
	POST(&t.a, .op = IBV_WR_SEND, .id = 2, .m = &t.m, .len = 8, .flags = IBV_SEND_SOLICITED);
	CHECK(!heard(ch->fd, 30));
	CHECK(!ibv_req_notify_cq(t.b.rcq, 1));
	CHECK(!to_state(t.b.qp, IBV_QPS_ERR));
	CHECK(heard(ch->fd, PATIENCE));
	CHECK(!ibv_get_cq_event(ch, &cq, &x));
	ibv_ack_cq_events(cq, 1);
}

/* A hundred wake-ups by events, with both sides asleep. Fails if a doorbell between the last look and the sleep is
 * lost. */
static void event_side(int fd, void *arg)
{
	bool first = arg;
	struct dev d;
	struct link l;
	struct mem m;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	void *x;
	uint32_t n = 2000;

	dev_open(&d);
	CHECK((ch = ibv_create_comp_channel(d.ctx)));
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.channel = ch});
	CHECK(!ibv_req_notify_cq(l.rcq, 0));
	post_recv(&l, 0, &m, 0, 64);
	link_join(&l, fd);
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_wc wc;

		if (first || i) {
			POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .off = 64, .len = 8);
			expect(l.scq, i, IBV_WC_SUCCESS);
		}
		while (!ibv_poll_cq(l.rcq, 1, &wc)) {
			if (!heard(ch->fd, PATIENCE))
				fail(__FILE__, __LINE__, "round %u: no event", i);
			CHECK(!ibv_get_cq_event(ch, &cq, &x));
			ibv_ack_cq_events(cq, 1);
			CHECK(!ibv_req_notify_cq(cq, 0));
		}
		SAME(wc.status, IBV_WC_SUCCESS);
		post_recv(&l, 0, &m, 0, 64);
	}
	if (!first) {
		POST(&l, .op = IBV_WR_SEND, .id = n, .m = &m, .off = 64, .len = 8);
		expect(l.scq, n, IBV_WC_SUCCESS);
	}
	meet_up(fd);
}

static void two_that_sleep_wake_each_other(void)
{
	struct peer p = start(event_side, NULL);

	event_side(p.fd, &(int){1});
	finish(&p);
}

/* --- shared receive queue --- */

static void srq_sender(int fd, void *arg)
{
	struct dev d;
	struct link l[4];
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	for (int i = 0; i < 4; i++)
		link_open(&l[i], &d, &(struct conf){.depth = 128}, fd);
	for (uint32_t k = 0; k < 400; k++) {
		uint32_t *p = (uint32_t *)(m.p + (k % 64) * 64);

		if (k >= 64)
			expect(l[(k - 64) % 4].scq, k - 64, IBV_WC_SUCCESS);
		p[0] = k;
		POST(&l[k % 4], .op = IBV_WR_SEND, .id = k, .m = &m, .off = (k % 64) * 64, .len = 32);
	}
	for (uint32_t k = 336; k < 400; k++)
		expect(l[k % 4].scq, k, IBV_WC_SUCCESS);
	meet_up(fd);
}

/* Fails if a receive is used twice, or if messages of one queue pair are reordered. */
static void four_queue_pairs_share_a_receive_queue(void)
{
	struct peer p = start(srq_sender, NULL);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 16, .max_sge = 1}};
	uint32_t last[4] = {0};
	struct dev d;
	struct link l[4];
	struct mem m;
	struct ibv_cq *cq;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	struct ibv_srq *srq = ibv_create_srq(d.pd, &sa);

	cq = ibv_create_cq(d.ctx, 64, NULL, NULL, 0);
	CHECK(srq && cq);
	for (int i = 0; i < 4; i++)
		link_open(&l[i], &d, &(struct conf){.srq = srq, .rcq = cq, .rnr_timer = 1}, p.fd);
	for (uint32_t i = 0; i < 16; i++)
		post_recv(&l[0], i, &m, i * 64, 64);
	for (uint32_t k = 0; k < 400; k++) {
		struct ibv_wc wc = wait_wc(cq);
		uint32_t i, *msg = (uint32_t *)(m.p + wc.wr_id * 64);

		SAME(wc.status, IBV_WC_SUCCESS);
		for (i = 0; i < 4 && l[i].qp->qp_num != wc.qp_num; i++)
			;
		CHECK(i < 4);
		SAME(msg[0] % 4, i);
		CHECK(!last[i] || msg[0] == last[i] + 4);
		last[i] = msg[0];
		post_recv(&l[0], wc.wr_id, &m, wc.wr_id * 64, 64);
	}
	meet_up(p.fd);
	finish(&p);
}

/* --- UC --- */

static void uc_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UC});
	mem_tell(&m, fd);
	link_join(&l, fd);
	meet_up(fd); /* sends without a receive */
	expect_none(l.rcq, 5);
	SAME(state_of(l.qp), IBV_QPS_RTS);
	for (uint64_t i = 0; i < 3; i++)
		post_recv(&l, i, &m, 65536 * (i + 1), 65536);
	meet_up(fd);
	SAME(expect(l.rcq, 0, IBV_WC_SUCCESS).byte_len, 60000);
	CHECK(holds(m.p + 65536, 60000, 4));
	struct ibv_wc wc = expect(l.rcq, 1, IBV_WC_SUCCESS);

	SAME(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	SAME(wc.imm_data, 77);
	CHECK(holds(m.p, 30000, 5));
	wc = expect(l.rcq, 2, IBV_WC_SUCCESS);
	SAME(wc.imm_data, 78);
	SAME(wc.byte_len, 0);
	meet_up(fd);
}

static void uc_delivers_and_forgives(void)
{
	struct peer p = start(uc_target, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UC});
	struct far far = far_hear(p.fd);
	link_join(&l, p.fd);
	for (uint64_t i = 0; i < 3; i++) {
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = i == 1 ? 60000 : 64);
		expect(l.scq, i, IBV_WC_SUCCESS);
	}
	/* a write without permission is dropped silently */
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 3, .m = &m, .len = 64, .far = {far.addr, far.rkey ^ 0x77, 0});
	expect(l.scq, 3, IBV_WC_SUCCESS);
	sleep_ms(20);
	meet_up(p.fd);
	meet_up(p.fd);
	fill(m.p, 60000, 4);
	POST(&l, .op = IBV_WR_SEND, .id = 4, .m = &m, .len = 60000);
	expect(l.scq, 4, IBV_WC_SUCCESS);
	fill(m.p, 30000, 5);
	POST(&l, .op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 5, .m = &m, .len = 30000, .far = far, .imm = 77);
	POST(&l, .op = IBV_WR_SEND_WITH_IMM, .id = 6, .imm = 78);
	expect(l.scq, 5, IBV_WC_SUCCESS);
	expect(l.scq, 6, IBV_WC_SUCCESS);
	SAME(try_post(&l, &(struct wr){.op = IBV_WR_RDMA_READ, .m = &m, .len = 8, .far = far}), EINVAL);
	SAME(try_post(&l, &(struct wr){.op = IBV_WR_ATOMIC_FETCH_AND_ADD, .m = &m, .len = 8, .far = far}), EINVAL);
	meet_up(p.fd);
	finish(&p);
}

/* --- UD --- */

static uint16_t ip_sum(const uint8_t *p)
{
	uint32_t s = 0;

	for (int i = 0; i < 20; i += 2)
		s += (uint32_t)p[i] << 8 | p[i + 1];
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)s;
}

static void ud_target(int fd, void *arg)
{
	bool v6 = arg;
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	if (v6) {
		d.gid_index = 0;
		CHECK(!ibv_query_gid(d.ctx, 1, 0, &d.gid));
	}
	mem_make(&m, &d, 65536);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	for (uint64_t i = 0; i < 3; i++)
		post_recv(&l, i, &m, i * 8192, 4096 + 40);
	link_join(&l, fd);
	struct ibv_wc wc = expect(l.rcq, 0, IBV_WC_SUCCESS); /* the one with the wrong Q_Key has not arrived */
	uint8_t *grh = m.p;

	CHECK(!ibv_query_port(d.ctx, 1, &d.port));
	SAME(d.port.qkey_viol_cntr, 1); /* but it is counted */
	SAME(d.port.bad_pkey_cntr, 0);
	SAME(wc.byte_len, 40 + 1000);
	CHECK(wc.wc_flags & IBV_WC_GRH);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
	SAME(wc.imm_data, 99);
	SAME(wc.src_qp, l.it.qpn);
	CHECK(holds(m.p + 40, 1000, 3));
	if (v6) {
		SAME(grh[0] >> 4, 6);
		CHECK(!memcmp(grh + 8, l.it.gid.raw, 16));
		CHECK(!memcmp(grh + 24, d.gid.raw, 16));
	} else {
		SAME(grh[20], 0x45);
		SAME(grh[20 + 9], 17);
		SAME(ip_sum(grh + 20), 0xffff);
		CHECK(!memcmp(grh + 20 + 12, l.it.gid.raw + 12, 4));
		CHECK(!memcmp(grh + 20 + 16, d.gid.raw + 12, 4));
	}
	/* the answer uses the addresses in the completion */
	struct ibv_ah *ah = ibv_create_ah_from_wc(d.pd, &wc, (struct ibv_grh *)grh, 1);

	CHECK(ah);
	fill(m.p + 32768, 100, 6);
	POST(&l, .op = IBV_WR_SEND, .id = 7, .m = &m, .off = 32768, .len = 100, .ah = ah, .qpn = wc.src_qp,
	     .qkey = QKEY);
	expect(l.scq, 7, IBV_WC_SUCCESS);
	meet_up(fd);
	CHECK(!ibv_destroy_ah(ah));
}

static void datagrams(bool v6)
{
	struct peer p = start(ud_target, v6 ? &v6 : NULL);
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	if (v6) {
		d.gid_index = 0;
		CHECK(!ibv_query_gid(d.ctx, 1, 0, &d.gid));
	}
	mem_make(&m, &d, 65536);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	post_recv(&l, 1, &m, 16384, 200);
	link_join(&l, p.fd);
	struct ibv_ah_attr a = {
	        .is_global = 1,
	        .port_num = 1,
	        .grh = {.dgid = l.it.gid, .sgid_index = (uint8_t)d.gid_index, .hop_limit = 9, .traffic_class = 4}};
	struct ibv_ah *ah = ibv_create_ah(d.pd, &a);

	CHECK(ah);
	fill(m.p, 1000, 3);
	POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 100, .ah = ah, .qpn = l.it.qpn,
	     .qkey = QKEY ^ 1); /* dropped */
	POST(&l, .op = IBV_WR_SEND_WITH_IMM, .id = 2, .m = &m, .len = 1000, .ah = ah, .qpn = l.it.qpn, .qkey = QKEY,
	     .imm = 99);
	POST(&l, .op = IBV_WR_SEND, .id = 3, .m = &m, .len = 64, .ah = ah, .qpn = 0xabcdef,
	     .qkey = QKEY); /* to nobody */
	for (uint64_t i = 1; i <= 3; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	SAME(expect(l.rcq, 1, IBV_WC_SUCCESS).byte_len, 140);
	CHECK(holds(m.p + 16384 + 40, 100, 6));
	POST(&l, .op = IBV_WR_SEND, .id = 4, .m = &m, .len = 8192, .ah = ah, .qpn = l.it.qpn,
	     .qkey = QKEY); /* above the MTU */
	expect(l.scq, 4, IBV_WC_LOC_LEN_ERR);
	SAME(state_of(l.qp), IBV_QPS_SQE);
	meet_up(p.fd);
	finish(&p);
}

static void datagrams_over_ipv4_addresses(void)
{
	datagrams(false);
}

static void datagrams_over_ipv6_addresses(void)
{
	datagrams(true);
}

#define WAITING 8

static void ud_stranger(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 65536);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	for (uint64_t i = 0; i < WAITING; i++)
		post_recv(&l, i, &m, i * 4096, 1000 + 40);
	link_join(&l, fd);
	for (uint64_t i = 0; i < WAITING; i++) {
		SAME(expect(l.rcq, i, IBV_WC_SUCCESS).byte_len, 1000 - i + 40);
		CHECK(holds(m.p + i * 4096 + 40, 1000 - (uint32_t)i, 20 + (uint32_t)i));
	}
	meet_up(fd);
}

/* An adapter has read the buffer long before the program can change it, and keeps the order of the path. */
static void datagrams_that_wait_for_a_stranger_say_what_they_said_when_they_were_posted(void)
{
	struct peer p = start(ud_stranger, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	link_join(&l, p.fd);
	struct ibv_ah_attr a = {.is_global = 1,
	                        .port_num = 1,
	                        .grh = {.dgid = l.it.gid, .sgid_index = (uint8_t)d.gid_index, .hop_limit = 9}};
	struct ibv_ah *ah = ibv_create_ah(d.pd, &a);

	CHECK(ah);
	for (uint32_t i = 0; i < WAITING; i++) {
		fill(m.p, 1000 - i, 20 + i);
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 1000 - i, .ah = ah, .qpn = l.it.qpn, .qkey = QKEY);
	}
	fill(m.p, 1000, 99);
	for (uint64_t i = 0; i < WAITING; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
	CHECK(!ibv_destroy_ah(ah));
}

/* --- within a process --- */

static void a_queue_pair_connected_to_itself(void)
{
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 1 << 20);
	link_make(&l, &d, &(struct conf){0});
	link_to(&l, &l.me);
	struct far far = {(uintptr_t)m.p, m.mr->rkey, 0};

	for (uint32_t i = 0; i < 200; i++) {
		uint32_t len = i % 3 ? 100 : 100000;

		fill(m.p, len, i);
		post_recv(&l, i, &m, 1 << 19, 200000);
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = len);
		expect(l.scq, i, IBV_WC_SUCCESS);
		SAME(expect(l.rcq, i, IBV_WC_SUCCESS).byte_len, len);
		CHECK(holds(m.p + (1 << 19), len, i));
		POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = len, .far = far, .far_off = 1 << 18);
		POST(&l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &m, .off = 1 << 19, .len = len, .far = far,
		     .far_off = 1 << 18);
		POST(&l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 3, .m = &m, .off = 900000, .len = 8, .far = far,
		     .far_off = 950000, .compare_add = 2);
		for (uint64_t k = 1; k <= 3; k++)
			expect(l.scq, k, IBV_WC_SUCCESS);
		CHECK(holds(m.p + (1 << 19), len, i));
		SAME(*(uint64_t *)(m.p + 900000), 2 * i);
	}
}

/* --- threads --- */

struct worker {
	struct two *t;
	unsigned n, id;
	atomic_bool *stop;
	_Atomic unsigned *sent, *completed;
};

/* Posts on a queue pair that other threads use, too. Any thread may poll the completions, and counts them. */
static void *poster(void *arg)
{
	struct worker *w = arg;
	struct ibv_wc wc[8];
	uint64_t seed = w->id + 1;

	for (unsigned i = 0; i < w->n;) {
		struct wr r = {.op = random_next(&seed) & 1 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
		               .id = i,
		               .m = &w->t->m,
		               .off = w->id * 4096,
		               .len = 64,
		               .far = w->t->far,
		               .far_off = w->id * 4096};

		if (!try_post(&w->t->a, &r)) {
			i++;
			(*w->sent)++;
		}
		int n = ibv_poll_cq(w->t->a.scq, 8, wc);

		for (int k = 0; k < n; k++)
			SAME(wc[k].status, IBV_WC_SUCCESS);
		*w->completed += (unsigned)n;
		n = ibv_poll_cq(w->t->b.rcq, 8, wc);
		for (int k = 0; k < n; k++) {
			SAME(wc[k].status, IBV_WC_SUCCESS);
			post_recv(&w->t->b, 0, &w->t->n, 65536 + w->id * 64, 64);
		}
	}
	return NULL;
}

static void four_threads_on_one_queue_pair(void)
{
	_Atomic unsigned sent = 0, completed = 0;
	struct two t;
	pthread_t th[4];
	struct worker w[4];
	struct ibv_wc wc;

	two_open(&t, &(struct conf){.depth = 256}, &(struct conf){.depth = 256, .rnr_timer = 1});
	for (int i = 0; i < 200; i++)
		post_recv(&t.b, 0, &t.n, 65536, 64);
	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct worker){&t, under_sanitizer() ? 500 : 5000, i, NULL, &sent, &completed};
		CHECK(!pthread_create(&th[i], NULL, poster, &w[i]));
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	while (completed < sent) {
		wc = wait_wc(t.a.scq);
		SAME(wc.status, IBV_WC_SUCCESS);
		completed++;
		while (ibv_poll_cq(t.b.rcq, 1, &wc))
			post_recv(&t.b, 0, &t.n, 65536, 64);
	}
	expect_none(t.a.scq, 5);
}

static void *own_pair(void *arg)
{
	struct dev *d = arg;
	struct link a, b;
	struct mem m;

	mem_make(&m, d, 1 << 16);
	for (unsigned round = 0; round < (under_sanitizer() ? 3 : 10); round++) {
		link_make(&a, d, &(struct conf){0});
		link_make(&b, d, &(struct conf){0});
		link_to(&a, &b.me);
		link_to(&b, &a.me);
		for (uint32_t i = 0; i < 200; i++) {
			fill(m.p, 64, i);
			post_recv(&b, i, &m, 4096, 64);
			POST(&a, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 64);
			expect(a.scq, i, IBV_WC_SUCCESS);
			expect(b.rcq, i, IBV_WC_SUCCESS);
			CHECK(holds(m.p + 4096, 64, i));
		}
		link_end(&a);
		link_end(&b);
	}
	mem_end(&m);
	return NULL;
}

static void four_threads_with_queue_pairs_of_their_own(void)
{
	struct dev d;
	pthread_t th[4];

	dev_open(&d);
	for (unsigned i = 0; i < 4; i++)
		CHECK(!pthread_create(&th[i], NULL, own_pair, &d));
	for (unsigned i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	dev_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"thirty-two pieces on both sides", thirty_two_pieces_on_both_sides},
	        {"inline data may be overwritten at once", inline_data_may_be_overwritten_at_once},
	        {"a send with invalidate ends the key", a_send_with_invalidate_ends_the_key},
	        {"a local invalidate ends the key in its turn", a_local_invalidate_ends_the_key_in_its_turn},
	        {"only a solicited completion wakes who asked for such",
	         only_a_solicited_completion_wakes_who_asked_for_such},
	        {"two that sleep wake each other", two_that_sleep_wake_each_other},
	        {"four queue pairs share a receive queue", four_queue_pairs_share_a_receive_queue},
	        {"UC delivers, and forgives", uc_delivers_and_forgives},
	        {"datagrams over IPv4 addresses", datagrams_over_ipv4_addresses},
	        {"datagrams over IPv6 addresses", datagrams_over_ipv6_addresses},
	        {"datagrams that wait for a stranger say what they said when they were posted",
	         datagrams_that_wait_for_a_stranger_say_what_they_said_when_they_were_posted},
	        {"a queue pair connected to itself", a_queue_pair_connected_to_itself},
	        {"four threads on one queue pair", four_threads_on_one_queue_pair},
	        {"four threads with queue pairs of their own", four_threads_with_queue_pairs_of_their_own},
	};

	return RUN_TESTS(argc, argv, tests);
}
