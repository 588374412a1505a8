// tagged.c - SRQs of tag matching: eager messages, rendezvous, unexpected ones, operations on the list of tags
// follows: rdma-core's Documentation/tag_matching.md; ibv_create_srq_ex(3), ibv_post_srq_ops(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <endian.h>
#include <infiniband/tm_types.h>

#define SIZE (4u << 20)
#define HALF (SIZE / 2) /* the lower half is sent, the upper half receives */
#define HEAD sizeof(struct ibv_tmh)
#define ALL_BITS (~0ull)

/* A queue pair that sends, and one that receives by a TM-SRQ, in one process. */
struct ends {
	struct dev d;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct link from, to;
	struct mem m;
};

static struct ibv_srq *make_srq(struct dev *d, struct ibv_cq *cq, uint32_t tags, uint32_t ops)
{
	struct ibv_srq_init_attr_ex a = {.attr = {64, 2, 0},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
	                                 .srq_type = IBV_SRQT_TM,
	                                 .pd = d->pd,
	                                 .cq = cq,
	                                 .tm_cap = {tags, ops}};

	return ibv_create_srq_ex(d->ctx, &a);
}

/* sends: the receiving queue pair has a send queue of its own. */
static void ends_open(struct ends *e, bool sends)
{
	struct ibv_cq_init_attr_ex ca = {.cqe = 1024, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};

	dev_open(&e->d);
	e->cq = ibv_create_cq_ex(e->d.ctx, &ca);
	CHECK(e->cq);
	e->srq = make_srq(&e->d, ibv_cq_ex_to_cq(e->cq), 64, 16);
	CHECK(e->srq);
	mem_make(&e->m, &e->d, SIZE);
	link_make(&e->from, &e->d, &(struct conf){.depth = 128});
	link_make(&e->to, &e->d, &(struct conf){.srq = e->srq, .no_sends = !sends});
	link_to(&e->from, &e->to.me);
	link_to(&e->to, &e->from.me);
}

static void ends_close(struct ends *e)
{
	if (e->to.qp)
		link_end(&e->to);
	link_end(&e->from);
	SAME(ibv_destroy_srq(e->srq), 0);
	SAME(ibv_destroy_cq(ibv_cq_ex_to_cq(e->cq)), 0);
	mem_end(&e->m);
	dev_close(&e->d);
}

/* --- completions of the TM-SRQ --- */

struct done {
	uint64_t id, tag;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned flags;
	uint32_t len, priv;
};

static bool next_done(struct ends *e, struct done *out, unsigned ms)
{
	struct ibv_poll_cq_attr none = {0};
	struct ibv_wc_tm_info info;
	uint64_t until = now_ms() + ms;

	while (ibv_start_poll(e->cq, &none)) {
		if (now_ms() >= until)
			return false;
		usleep(20);
	}
	ibv_wc_read_tm_info(e->cq, &info);
	*out = (struct done){.id = e->cq->wr_id,
	                     .tag = info.tag,
	                     .status = e->cq->status,
	                     .opcode = ibv_wc_read_opcode(e->cq),
	                     .flags = ibv_wc_read_wc_flags(e->cq),
	                     .len = ibv_wc_read_byte_len(e->cq),
	                     .priv = info.priv};
	ibv_end_poll(e->cq);
	return true;
}

static struct done want(struct ends *e, uint64_t id, enum ibv_wc_opcode opcode, unsigned flags)
{
	struct done w;

	CHECK(next_done(e, &w, PATIENCE));
	SAME(w.status, IBV_WC_SUCCESS);
	SAME(w.opcode, opcode);
	SAME(w.id, id);
	SAME(w.flags, flags);
	return w;
}

/* --- operations --- */

static int op(struct ends *e, struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad = NULL;
	int err = ibv_post_srq_ops(e->srq, wr, &bad);

	CHECK(!err == !bad);
	return err;
}

/* Where the tagged receive `id` is. */
static uint8_t *place(struct ends *e, uint64_t id)
{
	return e->m.p + HALF + id * 4096;
}

static struct ibv_ops_wr add_op(struct ibv_sge *sge, int n, uint64_t id, uint64_t tag, uint64_t mask)
{
	return (struct ibv_ops_wr){
	        .wr_id = 1000 + id,
	        .opcode = IBV_WR_TAG_ADD,
	        .flags = IBV_OPS_SIGNALED,
	        .tm.add = {.recv_wr_id = id, .sg_list = sge, .num_sge = n, .tag = tag, .mask = mask}};
}

static uint32_t add(struct ends *e, uint64_t id, uint64_t tag, uint64_t mask, uint32_t len, unsigned flags)
{
	struct ibv_sge sge = {(uintptr_t)place(e, id), len, e->m.mr->lkey};
	struct ibv_ops_wr wr = add_op(&sge, 1, id, tag, mask);

	SAME(op(e, &wr), 0);
	want(e, 1000 + id, IBV_WC_TM_ADD, flags);
	return wr.tm.handle;
}

static enum ibv_wc_status del(struct ends *e, uint32_t handle)
{
	struct ibv_ops_wr wr = {.wr_id = 77, .opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_SIGNALED, .tm.handle = handle};
	struct done w;

	SAME(op(e, &wr), 0);
	CHECK(next_done(e, &w, PATIENCE));
	SAME(w.id, 77);
	SAME(w.opcode, IBV_WC_TM_DEL);
	return w.status;
}

static void synchronise(struct ends *e, uint32_t count, unsigned flags)
{
	struct ibv_ops_wr wr = {.wr_id = 78,
	                        .opcode = IBV_WR_TAG_SYNC,
	                        .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC,
	                        .tm.unexpected_cnt = count};

	SAME(op(e, &wr), 0);
	want(e, 78, IBV_WC_TM_SYNC, flags);
}

static void post_untagged(struct ends *e, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)place(e, id), len, e->m.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	SAME(ibv_post_srq_recv(e->srq, &wr, &bad), 0);
}

/* --- messages --- */

static uint8_t *head_at(struct ends *e, uint32_t off, uint8_t opcode, uint64_t tag)
{
	struct ibv_tmh h = {.opcode = opcode, .app_ctx = htobe32(0xabcd0000u | (uint32_t)tag), .tag = htobe64(tag)};

	memcpy(e->m.p + off, &h, sizeof(h));
	return e->m.p + off + sizeof(h);
}

static void send_bytes(struct ends *e, uint64_t id, uint32_t off, uint32_t len)
{
	POST(&e->from, .op = IBV_WR_SEND, .id = id, .m = &e->m, .off = off, .len = len);
}

/* A message whose payload has len bytes. */
static void send_tagged(struct ends *e, uint8_t opcode, uint64_t tag, uint32_t len, uint32_t seed)
{
	fill(head_at(e, 0, opcode, tag), len, seed);
	send_bytes(e, tag, 0, (uint32_t)HEAD + len);
	expect(e->from.scq, tag, IBV_WC_SUCCESS);
}

/* A rendezvous request, from a place of its own, for len bytes at `off`. */
static void request(struct ends *e, uint32_t at, uint64_t tag, uint32_t off, uint32_t len, uint32_t size)
{
	struct ibv_rvh r = {
	        .va = htobe64((uintptr_t)e->m.p + off), .rkey = htobe32(e->m.mr->rkey), .len = htobe32(len)};

	memcpy(head_at(e, at, IBV_TMH_RNDV, tag), &r, sizeof(r));
	send_bytes(e, tag, at, size);
}

#define BOTH (IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)

static void eager_messages_find_their_tags(void)
{
	struct ends e;

	ends_open(&e, true);
	for (uint64_t i = 0; i < 8; i++)
		add(&e, i, 100 + i, ALL_BITS, 4096, 0);
	add(&e, 8, 103, ALL_BITS, 4096, 0); /* the same as an earlier one */
	add(&e, 9, 0x500, 0xff00, 4096, 0); /* any of 256 */
	for (uint64_t i = 8; i--;) {
		send_tagged(&e, IBV_TMH_EAGER, 100 + i, 10 + (uint32_t)i, (uint32_t)i);
		struct done w = want(&e, i, IBV_WC_TM_RECV, BOTH);

		SAME(w.tag, 100 + i);
		SAME(w.priv, 0xabcd0000u | (100 + i));
		SAME(w.len, 10 + i);
		CHECK(holds(place(&e, i), 10 + i, (uint32_t)i));
	}
	send_tagged(&e, IBV_TMH_EAGER, 0x5aa, 0, 0); /* nothing but a header */
	SAME(want(&e, 9, IBV_WC_TM_RECV, BOTH).tag, 0x5aa);
	send_tagged(&e, IBV_TMH_EAGER, 103, 100, 5);
	want(&e, 8, IBV_WC_TM_RECV, BOTH);
	CHECK(holds(place(&e, 8), 100, 5));
	ends_close(&e);
}

static void a_long_message_has_a_match_and_then_its_data(void)
{
	static const uint32_t lengths[] = {1009, 5000, 70000, 1000000};
	struct ends e;

	ends_open(&e, true);
	for (unsigned i = 0; i < 4; i++) {
		uint32_t n = lengths[i];
		struct ibv_sge sge[3] = {{(uintptr_t)place(&e, 0), 7, e.m.mr->lkey},
		                         {(uintptr_t)place(&e, 0) + 7, 900, e.m.mr->lkey},
		                         {(uintptr_t)place(&e, 0) + 907, n - 907, e.m.mr->lkey}};
		struct ibv_ops_wr wr = add_op(sge, 3, 5, 42, ALL_BITS);

		SAME(op(&e, &wr), 0);
		want(&e, 1005, IBV_WC_TM_ADD, 0);
		memset(place(&e, 0), 0, n);
		fill(head_at(&e, 0, IBV_TMH_EAGER, 42), n, n);
		send_bytes(&e, 1, 0, (uint32_t)HEAD + n);
		struct done w = want(&e, 5, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);

		SAME(w.tag, 42);
		w = want(&e, 5, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
		SAME(w.tag, 0);
		SAME(w.len, n);
		CHECK(holds(place(&e, 0), n, n));
		expect(e.from.scq, 1, IBV_WC_SUCCESS);
	}
	ends_close(&e);
}

static void after_an_unexpected_message_new_tags_wait_for_the_program(void)
{
	struct ends e;

	ends_open(&e, true);
	for (uint64_t i = 20; i < 24; i++)
		post_untagged(&e, i, 4096);
	add(&e, 1, 1, ALL_BITS, 4096, 0);
	send_tagged(&e, IBV_TMH_EAGER, 7, 50, 3);
	struct done w = want(&e, 20, IBV_WC_TM_RECV, 0);

	SAME(w.len, HEAD + 50); /* the whole message, with its header */
	SAME(w.tag, 0);
	CHECK(!memcmp(place(&e, 20), e.m.p, HEAD + 50));
	uint32_t handle = add(&e, 2, 8, ALL_BITS, 4096, IBV_WC_TM_SYNC_REQ);

	send_tagged(&e, IBV_TMH_EAGER, 8, 50, 4); /* not even this one finds the new tag */
	want(&e, 21, IBV_WC_TM_RECV, 0);
	send_tagged(&e, IBV_TMH_EAGER, 1, 50, 5); /* a tag from before finds its message */
	want(&e, 1, IBV_WC_TM_RECV, BOTH);
	synchronise(&e, 1, IBV_WC_TM_SYNC_REQ); /* there are two */
	synchronise(&e, 2, 0);
	send_tagged(&e, IBV_TMH_EAGER, 8, 50, 6);
	want(&e, 2, IBV_WC_TM_RECV, BOTH);
	SAME(del(&e, handle), IBV_WC_TM_ERR);
	/* the count may come with a tag, too */
	send_tagged(&e, IBV_TMH_EAGER, 9, 50, 6);
	want(&e, 22, IBV_WC_TM_RECV, 0);
	struct ibv_sge sge = {(uintptr_t)place(&e, 3), 4096, e.m.mr->lkey};
	struct ibv_ops_wr wr = add_op(&sge, 1, 3, 10, ALL_BITS);

	wr.flags |= IBV_OPS_TM_SYNC;
	wr.tm.unexpected_cnt = 3;
	SAME(op(&e, &wr), 0);
	want(&e, 1003, IBV_WC_TM_ADD, 0);
	send_tagged(&e, IBV_TMH_EAGER, 10, 50, 6);
	want(&e, 3, IBV_WC_TM_RECV, BOTH);
	ends_close(&e);
}

static void what_has_no_tag_takes_a_receive_of_the_queue(void)
{
	static const uint8_t opcodes[] = {IBV_TMH_NO_TAG, IBV_TMH_FIN, 4, 255};
	struct ends e;

	ends_open(&e, true);
	add(&e, 1, 0, 0, 4096, 0); /* matches everything */
	for (uint64_t i = 0; i < 6; i++)
		post_untagged(&e, 20 + i, 4096);
	for (uint64_t i = 0; i < 4; i++) {
		send_tagged(&e, opcodes[i], 7, 50, 3);
		struct done w = want(&e, 20 + i, IBV_WC_TM_NO_TAG, 0);

		SAME(w.tag, 0);
		SAME(w.len, HEAD + 50);
		CHECK(!memcmp(place(&e, 20 + i), e.m.p, HEAD + 50));
	}
	head_at(&e, 0, IBV_TMH_EAGER, 7);
	for (uint32_t i = 0; i < 2; i++) { /* no whole header */
		send_bytes(&e, i, 0, i * 15);
		SAME(want(&e, 24 + i, IBV_WC_TM_NO_TAG, 0).len, i * 15);
		expect(e.from.scq, i, IBV_WC_SUCCESS);
	}
	add(&e, 2, 0, 0, 4096, 0); /* they were not unexpected */
	ends_close(&e);
}

static void a_write_with_immediate_takes_a_receive_of_the_queue(void)
{
	struct ends e;

	ends_open(&e, true);
	add(&e, 1, 0, 0, 4096, 0);
	post_untagged(&e, 20, 4096);
	POST(&e.from, .op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 1, .m = &e.m, .len = 100,
	     .far = {(uintptr_t)place(&e, 30), e.m.mr->rkey, 0});
	want(&e, 20, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM);
	expect(e.from.scq, 1, IBV_WC_SUCCESS);
	ends_close(&e);
}

static void an_unexpected_message_waits_for_a_receive_and_an_expected_one_does_not(void)
{
	struct ends e;

	ends_open(&e, true);
	add(&e, 1, 1, ALL_BITS, 4096, 0);
	send_tagged(&e, IBV_TMH_EAGER, 1, 50, 3);
	want(&e, 1, IBV_WC_TM_RECV, BOTH);
	fill(head_at(&e, 0, IBV_TMH_EAGER, 2), 50, 4);
	send_bytes(&e, 2, 0, HEAD + 50);
	struct done w;

	CHECK(!next_done(&e, &w, 50)); /* RNR */
	add(&e, 2, 2, ALL_BITS, 4096, 0);
	want(&e, 2, IBV_WC_TM_RECV, BOTH); /* the retry finds the tag */
	expect(e.from.scq, 2, IBV_WC_SUCCESS);
	send_bytes(&e, 3, 0, HEAD + 50);
	CHECK(!next_done(&e, &w, 50));
	post_untagged(&e, 20, 4096);
	want(&e, 20, IBV_WC_TM_RECV, 0);
	expect(e.from.scq, 3, IBV_WC_SUCCESS);
	ends_close(&e);
}

static void a_removed_tag_matches_nothing(void)
{
	struct ends e;

	ends_open(&e, true);
	post_untagged(&e, 20, 4096);
	uint32_t one = add(&e, 1, 1, ALL_BITS, 4096, 0), two = add(&e, 2, 1, ALL_BITS, 4096, 0),
	         three = add(&e, 3, 1, ALL_BITS, 4096, 0);

	CHECK(one != two && two != three);
	SAME(del(&e, two), IBV_WC_SUCCESS);
	SAME(del(&e, two), IBV_WC_TM_ERR);
	send_tagged(&e, IBV_TMH_EAGER, 1, 5, 3);
	want(&e, 1, IBV_WC_TM_RECV, BOTH);
	SAME(del(&e, one), IBV_WC_TM_ERR); /* taken */
	SAME(del(&e, three), IBV_WC_SUCCESS);
	send_tagged(&e, IBV_TMH_EAGER, 1, 5, 3);
	want(&e, 20, IBV_WC_TM_RECV, 0);
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_DEL, .tm.handle = 0xffff};

	SAME(op(&e, &wr), EINVAL);
	ends_close(&e);
}

static void limits_are_kept(void)
{
	struct ends e;
	struct ibv_device_attr_ex attr;
	struct ibv_sge sge[16] = {0};

	ends_open(&e, false);
	SAME(ibv_query_device_ex(e.d.ctx, NULL, &attr), 0);
	struct ibv_tm_caps c = attr.tm_caps;

	CHECK(c.flags == IBV_TM_CAP_RC && c.max_rndv_hdr_size >= 32 && c.max_num_tags && c.max_ops && c.max_sge);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(e.cq);

	CHECK(!make_srq(&e.d, cq, c.max_num_tags + 1, 1) && errno == EINVAL);
	CHECK(!make_srq(&e.d, cq, 1, c.max_ops + 1) && errno == EINVAL);
	CHECK(!make_srq(&e.d, cq, 0, 1) && errno == EINVAL);
	CHECK(!make_srq(&e.d, NULL, 1, 1) && errno == EINVAL);
	struct ibv_srq *most = make_srq(&e.d, cq, c.max_num_tags, c.max_ops);

	CHECK(most && !ibv_destroy_srq(most));
	SAME(ibv_destroy_srq(e.srq), EBUSY);
	SAME(ibv_destroy_cq(e.to.rcq), EBUSY);
	struct ibv_qp_init_attr uc = {.send_cq = e.to.scq, .recv_cq = e.to.rcq, .srq = e.srq, .qp_type = IBV_QPT_UC};

	CHECK(!ibv_create_qp(e.d.pd, &uc) && errno == EINVAL);
	struct ibv_send_wr sw = {.opcode = IBV_WR_SEND}, *bad;

	SAME(ibv_post_send(e.to.qp, &sw, &bad), ENOMEM); /* the send queue is the adapter's */
	struct ibv_ops_wr wr = add_op(sge, (int)c.max_sge + 1, 1, 1, 1);

	SAME(op(&e, &wr), EINVAL);
	wr = add_op(sge, -1, 1, 1, 1);
	SAME(op(&e, &wr), EINVAL);
	wr.opcode = (enum ibv_ops_wr_opcode)3;
	SAME(op(&e, &wr), EINVAL);
	for (uint64_t i = 0; i < 16; i++) { /* max_ops */
		wr = add_op(sge, 1, i, i, ALL_BITS);
		SAME(op(&e, &wr), 0);
	}
	wr = add_op(sge, 1, 16, 16, ALL_BITS);
	SAME(op(&e, &wr), ENOMEM);
	want(&e, 1000, IBV_WC_TM_ADD, 0);
	SAME(op(&e, &wr), 0);
	for (uint64_t i = 1; i < 17; i++)
		want(&e, 1000 + i, IBV_WC_TM_ADD, 0);
	for (uint64_t i = 17; i < 64; i++) { /* without completions there is no limit but that of the tags */
		wr = add_op(sge, 1, i, i, ALL_BITS);
		wr.flags = 0;
		SAME(op(&e, &wr), 0);
	}
	SAME(op(&e, &wr), ENOMEM);
	ends_close(&e);
}

static void the_adapter_reads_the_data_of_a_rendezvous(void)
{
	static const uint32_t lengths[] = {1, 1000, 0, 300000};
	struct ends e;

	ends_open(&e, false);
	for (unsigned i = 0; i < 4; i++) {
		uint32_t n = lengths[i];
		uint8_t fin[64];

		memset(place(&e, 1), 0, n + 1);
		add(&e, 1, 9, ALL_BITS, 400000, 0);
		fill(e.m.p + 4096, n, n);
		post_recv(&e.from, 50, &e.m, HALF - 4096, 64);
		request(&e, 0, 9, 4096, n, i % 2 ? 32 : 64);
		struct done w = want(&e, 1, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);

		SAME(w.tag, 9);
		SAME(w.priv, 0xabcd0009u);
		w = want(&e, 1, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
		SAME(w.len, n);
		CHECK(holds(place(&e, 1), n, n) && !place(&e, 1)[n]);
		expect(e.from.scq, 9, IBV_WC_SUCCESS);
		struct ibv_wc f = expect(e.from.rcq, 50, IBV_WC_SUCCESS);

		SAME(f.byte_len, 32);
		memcpy(fin, e.m.p, 32);
		fin[0] = IBV_TMH_FIN;
		CHECK(!memcmp(e.m.p + HALF - 4096, fin, 32));
	}
	expect_none(e.to.scq, 0); /* the requests are the adapter's own */
	ends_close(&e);
}

static void many_rendezvous_wait_for_room(void)
{
	struct ends e;
	unsigned matches = 0, data = 0;
	struct done w;

	ends_open(&e, false);
	for (uint32_t i = 0; i < 40; i++) {
		add(&e, i, i, ALL_BITS, 4096, 0);
		post_recv(&e.from, 100 + i, &e.m, HALF - 4096 - i * 64, 64);
		fill(e.m.p + 65536 + i * 4096, 4096, i);
	}
	for (uint32_t i = 0; i < 40; i++)
		request(&e, i * 64, i, 65536 + i * 4096, 4096, 64);
	while (data < 40) {
		CHECK(next_done(&e, &w, PATIENCE));
		SAME(w.status, IBV_WC_SUCCESS);
		if (w.flags == IBV_WC_TM_MATCH) {
			SAME(w.id, matches++);
			continue;
		}
		SAME(w.flags, IBV_WC_TM_DATA_VALID);
		SAME(w.id, data++);
		CHECK(holds(place(&e, w.id), 4096, (uint32_t)w.id));
	}
	for (uint32_t i = 0; i < 40; i++) {
		expect(e.from.scq, i, IBV_WC_SUCCESS);
		expect(e.from.rcq, 100 + i, IBV_WC_SUCCESS);
	}
	ends_close(&e);
}

static void what_the_adapter_cannot_read_is_left_to_the_program(void)
{
	struct ends e;
	struct done w;

	for (int own = 0; own < 2; own++) { /* a tag without room; a queue pair whose send queue is the program's */
		ends_open(&e, own);
		post_untagged(&e, 20, 4096);
		add(&e, 1, 9, ALL_BITS, own ? 4096 : 40, 0);
		request(&e, 0, 9, 4096, 1000, 48);
		CHECK(next_done(&e, &w, PATIENCE));
		SAME(w.status, IBV_WC_TM_RNDV_INCOMPLETE);
		SAME(w.opcode, IBV_WC_TM_RECV);
		SAME(w.id, 1);
		SAME(w.tag, 9);
		SAME(w.len, own ? 48 : 40);
		CHECK(!memcmp(place(&e, 1), e.m.p, 32)); /* the headers */
		expect(e.from.scq, 9, IBV_WC_SUCCESS);
		/* one that is longer than tm_caps allow is unexpected */
		add(&e, 2, 9, ALL_BITS, 4096, 0);
		request(&e, 0, 9, 4096, 1000, 65);
		want(&e, 20, IBV_WC_TM_RECV, 0);
		expect(e.from.scq, 9, IBV_WC_SUCCESS);
		ends_close(&e);
	}
}

static void data_that_cannot_be_read_fails_its_receive(void)
{
	struct ends e;
	struct done w;

	ends_open(&e, false);
	add(&e, 1, 9, ALL_BITS, 4096, 0);
	uint32_t other = add(&e, 2, 10, ALL_BITS, 4096, 0);

	e.m.mr->rkey ^= 0xff; /* no such key */
	request(&e, 0, 9, 4096, 1000, 32);
	e.m.mr->rkey ^= 0xff;
	want(&e, 1, IBV_WC_TM_RECV, IBV_WC_TM_MATCH);
	CHECK(next_done(&e, &w, PATIENCE));
	SAME(w.status, IBV_WC_REM_ACCESS_ERR);
	SAME(w.id, 1);
	SAME(state_of(e.to.qp), IBV_QPS_ERR);
	SAME(del(&e, other), IBV_WC_SUCCESS); /* tags are the SRQ's */
	ends_close(&e);
}

static void a_message_that_is_too_long_fails_its_tag(void)
{
	struct ends e;
	struct done w;

	ends_open(&e, true);
	add(&e, 1, 9, ALL_BITS, 100, 0);
	fill(head_at(&e, 0, IBV_TMH_EAGER, 9), 101, 1);
	send_bytes(&e, 4, 0, HEAD + 101);
	CHECK(next_done(&e, &w, PATIENCE));
	SAME(w.status, IBV_WC_LOC_LEN_ERR);
	SAME(w.opcode, IBV_WC_TM_RECV);
	SAME(w.id, 1);
	expect(e.from.scq, 4, IBV_WC_REM_INV_REQ_ERR);
	SAME(state_of(e.to.qp), IBV_QPS_ERR);
	ends_close(&e);
}

/* how: RESET, ERR; or destroyed */
static void end_amid_rendezvous(int how)
{
	unsigned matches[32] = {0}, ends[32] = {0};
	struct ends e;
	struct done w;

	ends_open(&e, false);
	for (uint32_t i = 0; i < 32; i++)
		add(&e, i, i, ALL_BITS, 4096, 0);
	for (uint32_t i = 0; i < 32; i++)
		request(&e, i * 64, i, 65536 + i * 4096, 4096, 64); /* there is no receive for the FIN, so it waits */
	CHECK(next_done(&e, &w, PATIENCE));
	SAME(w.flags, IBV_WC_TM_MATCH);
	matches[w.id] = 1;
	if (how < 0) {
		link_end(&e.to);
		e.to.qp = NULL;
	} else {
		SAME(to_state(e.to.qp, (enum ibv_qp_state)how), 0);
	}
	while (next_done(&e, &w, how == IBV_QPS_ERR ? 200 : 0)) {
		CHECK(how == IBV_QPS_ERR && w.id < 32);
		CHECK(w.status == IBV_WC_SUCCESS || w.status == IBV_WC_WR_FLUSH_ERR);
		SAME(++(w.flags == IBV_WC_TM_MATCH ? matches : ends)[w.id], 1);
	}
	for (unsigned i = 0; i < 32 && how == IBV_QPS_ERR; i++)
		SAME(ends[i], matches[i]); /* what has begun has an end */
	ends_close(&e);
}

static void rendezvous_end_with_their_queue_pair(void)
{
	end_amid_rendezvous(IBV_QPS_ERR);
	end_amid_rendezvous(IBV_QPS_RESET);
	end_amid_rendezvous(-1);
}

/* --- another process --- */

#define ROUNDS 300u

static void sends_at_random(int fd, void *arg)
{
	struct ends e;
	uint64_t seed = 7;

	dev_open(&e.d);
	mem_make(&e.m, &e.d, SIZE);
	link_open(&e.from, &e.d, &(struct conf){.depth = 16}, fd);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t n = random_next(&seed) % (i % 10 ? 3000 : 200000), kind = random_next(&seed) % 3;

		if (kind == 0) {
			post_recv(&e.from, i, &e.m, HALF, 64);
			fill(e.m.p + 4096, n, i);
			request(&e, 0, i, 4096, n, 32);
			expect(e.from.rcq, i, IBV_WC_SUCCESS);
			expect(e.from.scq, i, IBV_WC_SUCCESS);
		} else {
			send_tagged(&e, kind == 1 ? IBV_TMH_EAGER : IBV_TMH_NO_TAG, i, n, i);
		}
		meet_up(fd);
	}
	link_end(&e.from);
	mem_end(&e.m);
	dev_close(&e.d);
}

static void all_kinds_arrive_from_another_process(void)
{
	struct peer p = start(sends_at_random, NULL);
	struct ends e;
	uint64_t seed = 7;

	struct ibv_cq_init_attr_ex ca = {.cqe = 1024, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};

	dev_open(&e.d);
	e.cq = ibv_create_cq_ex(e.d.ctx, &ca);
	e.srq = make_srq(&e.d, ibv_cq_ex_to_cq(e.cq), 64, 16);
	CHECK(e.cq && e.srq);
	mem_make(&e.m, &e.d, SIZE);
	link_open(&e.to, &e.d, &(struct conf){.srq = e.srq, .no_sends = true}, p.fd);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t n = random_next(&seed) % (i % 10 ? 3000 : 200000), kind = random_next(&seed) % 3;
		bool longer = n + HEAD > 1024;
		uint32_t handle = 0;

		if (kind == 2)
			post_untagged(&e, 1, 300000);
		else
			handle = add(&e, 1, i, ALL_BITS, 300000, 0);
		if (kind == 2) {
			SAME(want(&e, 1, IBV_WC_TM_NO_TAG, 0).len, n + HEAD);
		} else {
			struct done w = want(&e, 1, IBV_WC_TM_RECV, kind && !longer ? BOTH : IBV_WC_TM_MATCH);

			SAME(w.tag, i);
			if (!kind || longer)
				w = want(&e, 1, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID);
			SAME(w.len, n);
			SAME(del(&e, handle), IBV_WC_TM_ERR);
		}
		CHECK(holds(place(&e, 1) + (kind == 2 ? HEAD : 0), n, i));
		meet_up(p.fd);
	}
	link_end(&e.to);
	SAME(ibv_destroy_srq(e.srq), 0);
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"eager messages find their tags", eager_messages_find_their_tags, 0},
	        {"a long message has a match, and then its data", a_long_message_has_a_match_and_then_its_data, 0},
	        {"after an unexpected message new tags wait for the program",
	         after_an_unexpected_message_new_tags_wait_for_the_program, 0},
	        {"what has no tag takes a receive of the queue", what_has_no_tag_takes_a_receive_of_the_queue, 0},
	        {"a write with immediate takes a receive of the queue",
	         a_write_with_immediate_takes_a_receive_of_the_queue, 0},
	        {"an unexpected message waits for a receive, and an expected one does not",
	         an_unexpected_message_waits_for_a_receive_and_an_expected_one_does_not, 0},
	        {"a removed tag matches nothing", a_removed_tag_matches_nothing, 0},
	        {"limits are kept", limits_are_kept, 0},
	        {"the adapter reads the data of a rendezvous", the_adapter_reads_the_data_of_a_rendezvous, 0},
	        {"many rendezvous wait for room", many_rendezvous_wait_for_room, 0},
	        {"what the adapter cannot read is left to the program",
	         what_the_adapter_cannot_read_is_left_to_the_program, 0},
	        {"data that cannot be read fails its receive", data_that_cannot_be_read_fails_its_receive, 0},
	        {"a message that is too long fails its tag", a_message_that_is_too_long_fails_its_tag, 0},
	        {"rendezvous end with their queue pair", rendezvous_end_with_their_queue_pair, 0},
	        {"all kinds arrive from another process", all_kinds_arrive_from_another_process, 0},
	};

	return RUN_TESTS(argc, argv, tests);
}
