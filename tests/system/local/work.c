// work.c - random work between two processes; every byte is checked
// SPDX-License-Identifier: MIT
#include "work.h"

#include <sched.h>

#define SLOTS 8u
#define RECVS 16u
#define GUARD 64u /* bytes beside each slot that must not change */
#define GUARD_BYTE 0xc3

struct head { /* header of every message */
	uint32_t seq, len, seed, magic;
};
#define MAGIC 0x5eed5eedu

enum kind { K_SEND, K_WRITE, K_READ_BACK, K_ADD, K_SWAP, K_KINDS };

struct op {
	enum kind kind;
	uint32_t slot, len, seed;
	bool signalled;
	uint64_t result_off, expected;
};

struct qpair {
	struct link l;
	struct ibv_ah *ah;
	uint32_t stride; /* of a slot */
	size_t out, back, in, recv,
	        words; /* offsets in the memory: data to send, data read back, the peer's writes, receives */
	struct op op[64];
	uint32_t head, done; /* operations posted, retired */
	uint32_t posted_ops;
	uint32_t slot_busy; /* bits */
	uint32_t seq_out, seq_in;
	uint64_t counter; /* value of our word at the peer */
	uint32_t received;
};

struct ctx {
	struct dev *d;
	const struct work *w;
	struct mem m;
	struct far far;
	struct qpair *q;
	uint64_t rnd;
	uint64_t base_of;
};

static unsigned depth_of(const struct work *w)
{
	return w->depth ? w->depth : 16;
}

static enum ibv_qp_type type_of(const struct work *w, unsigned i)
{
	unsigned n = 0;

	while (n < 4 && w->types[n])
		n++;
	return n ? w->types[i % n] : IBV_QPT_RC;
}

/* Both sides compute the same layout. */
static size_t lay_out(struct ctx *c)
{
	size_t at = 4096;

	for (unsigned i = 0; i < c->w->qps; i++) {
		struct qpair *q = &c->q[i];

		q->stride = (c->w->max + 2 * GUARD + 63) & ~63u;
		q->out = at;
		q->back = q->out + (size_t)SLOTS * q->stride;
		q->in = q->back + (size_t)SLOTS * q->stride;
		q->recv = q->in + (size_t)SLOTS * q->stride;
		q->words = q->recv + (size_t)RECVS * (q->stride + 64);
		at = q->words + 4096;
	}
	return at;
}

static uint8_t *slot_at(struct ctx *c, struct qpair *q, size_t base, unsigned slot)
{
	return c->m.p + base + (size_t)slot * q->stride + GUARD;
}

static void recv_one(struct ctx *c, struct qpair *q, unsigned slot)
{
	size_t off = q->recv + (size_t)slot * (q->stride + 64) + GUARD;

	post_recv(&q->l, slot, &c->m, off, c->w->max + (q->l.c.type == IBV_QPT_UD ? 40 : 0));
}

static uint32_t length(struct ctx *c, uint32_t max)
{
	uint32_t bits = 0, n;

	while (max >> bits)
		bits++;
	n = random_next(&c->rnd) & ((1u << (random_next(&c->rnd) % bits + 1)) - 1);
	return n < 1 ? 1 : n > max ? max : n;
}

/* Posts [off, off + len) in up to four pieces. */
static void post_pieces(struct ctx *c, struct qpair *q, struct ibv_send_wr *wr, size_t off, uint32_t len)
{
	struct ibv_sge sge[4];
	struct ibv_send_wr *bad;
	unsigned n = len < 64 ? 1 : random_next(&c->rnd) % 4 + 1;
	uint32_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		uint32_t piece = i == n - 1 ? len - at : random_next(&c->rnd) % (len - at - (n - i - 1)) + (i ? 0 : 1);

		sge[i] = (struct ibv_sge){(uintptr_t)c->m.p + off + at, piece, c->m.mr->lkey};
		at += piece;
	}
	wr->sg_list = sge;
	wr->num_sge = (int)n;
	SAME(ibv_post_send(q->l.qp, wr, &bad), 0);
}

static struct op *next_op(struct qpair *q)
{
	return &q->op[q->head++ % 64];
}

static int free_slot(struct qpair *q)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (!(q->slot_busy >> i & 1)) {
			q->slot_busy |= 1u << i;
			return (int)i;
		}
	return -1;
}

static void do_send(struct ctx *c, struct qpair *q, int slot, unsigned flags)
{
	uint32_t max = q->l.c.type == IBV_QPT_UD && c->w->max > 1000 ? 1000 : c->w->max;
	uint32_t len = length(c, max), seed = random_next(&c->rnd);
	uint8_t *p = slot_at(c, q, q->out, (unsigned)slot);
	bool imm = random_next(&c->rnd) & 1;

	if (len < sizeof(struct head))
		len = sizeof(struct head);
	*(struct head *)p = (struct head){q->seq_out, len, seed, MAGIC};
	fill(p + sizeof(struct head), len - sizeof(struct head), seed);
	struct ibv_send_wr wr = {
	        .wr_id = q->head,
	        .opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
	        .imm_data = q->seq_out,
	        .send_flags = flags | (random_next(&c->rnd) & 1 ? IBV_SEND_SOLICITED : 0),
	};

	q->seq_out++;
	if (q->l.c.type == IBV_QPT_UD) {
		wr.wr.ud.ah = q->ah;
		wr.wr.ud.remote_qpn = q->l.it.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	}
	*next_op(q) =
	        (struct op){.kind = K_SEND, .slot = (uint32_t)slot, .len = len, .signalled = flags & IBV_SEND_SIGNALED};
	post_pieces(c, q, &wr, (size_t)(p - c->m.p), len);
}

/* A write, and then a read of the same bytes. */
static void do_write(struct ctx *c, struct qpair *q, int slot, unsigned flags)
{
	bool rc = q->l.c.type == IBV_QPT_RC, imm = random_next(&c->rnd) % 3 == 0;
	uint32_t len = length(c, c->w->max), seed = random_next(&c->rnd);
	uint8_t *p = slot_at(c, q, q->out, (unsigned)slot), *back = slot_at(c, q, q->back, (unsigned)slot);
	uint64_t far = c->far.addr + q->in + (size_t)slot * q->stride + GUARD;
	struct ibv_send_wr wr = {
	        .wr_id = q->head,
	        .opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
	        .imm_data = len,
	        .send_flags = rc ? flags & ~(unsigned)IBV_SEND_SIGNALED : flags,
	        .wr.rdma = {.remote_addr = far, .rkey = c->far.rkey},
	};

	fill(p, len, seed);
	*next_op(q) = (struct op){
	        .kind = K_WRITE, .slot = (uint32_t)slot, .len = len, .signalled = !rc && (flags & IBV_SEND_SIGNALED)};
	post_pieces(c, q, &wr, (size_t)(p - c->m.p), len);
	if (!rc)
		return;
	memset(back, 0, len < 256 ? len : 256);
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr_id = q->head;
	wr.send_flags = flags | IBV_SEND_SIGNALED;
	*next_op(q) =
	        (struct op){.kind = K_READ_BACK, .slot = (uint32_t)slot, .len = len, .seed = seed, .signalled = true};
	post_pieces(c, q, &wr, (size_t)(back - c->m.p), len);
}

static void do_atomic(struct ctx *c, struct qpair *q, int slot, unsigned flags)
{
	bool add = random_next(&c->rnd) & 1, hit = random_next(&c->rnd) & 1;
	uint64_t n = random_next(&c->rnd);
	size_t back = (size_t)(slot_at(c, q, q->back, (unsigned)slot) - c->m.p);
	struct ibv_send_wr wr =
	                           {
	                                   .wr_id = q->head,
	                                   .opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
	                                   .send_flags = flags | IBV_SEND_SIGNALED,
	                                   .wr.atomic = {.remote_addr = c->far.addr + q->words,
	                                                 .rkey = c->far.rkey,
	                                                 .compare_add = add   ? n
	                                                                : hit ? q->counter
	                                                                      : ~q->counter,
	                                                 .swap = n},
	                           },
	                   *bad;
	struct ibv_sge sge = {(uintptr_t)c->m.p + back, 8, c->m.mr->lkey};

	*next_op(q) = (struct op){
	        .kind = K_ADD, .slot = (uint32_t)slot, .result_off = back, .expected = q->counter, .signalled = true};
	q->counter = add ? q->counter + n : hit ? n : q->counter;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	SAME(ibv_post_send(q->l.qp, &wr, &bad), 0);
}

static bool post_some(struct ctx *c, struct qpair *q)
{
	unsigned depth = depth_of(c->w);

	if (q->head - q->done + 2 > depth || (c->w->ops && q->posted_ops >= c->w->ops))
		return false;
	int slot = free_slot(q);

	if (slot < 0)
		return false;
	/* the last one that fits is signalled, so that the queue always empties */
	bool must = q->head - q->done + 4 > depth || __builtin_popcount(q->slot_busy) == SLOTS;
	unsigned flags = must || random_next(&c->rnd) % 4 == 0 || (c->w->ops && q->posted_ops + 1 >= c->w->ops)
	                         ? IBV_SEND_SIGNALED
	                         : 0;

	if (random_next(&c->rnd) % 16 == 0)
		flags |= IBV_SEND_FENCE;
	q->posted_ops++;
	switch (q->l.c.type == IBV_QPT_UD ? 0 : random_next(&c->rnd) % (q->l.c.type == IBV_QPT_UC ? 3 : 5)) {
	case 0:
	case 1:
		do_send(c, q, slot, flags);
		break;
	case 2:
	case 3:
		do_write(c, q, slot, flags);
		break;
	default:
		do_atomic(c, q, slot, flags);
	}
	return true;
}

/* The last request of a burst may be unsignalled: an empty one after it brings its completion. */
static void flush_sends(struct ctx *c, struct qpair *q)
{
	int slot = free_slot(q);

	if (slot >= 0)
		do_send(c, q, slot, IBV_SEND_SIGNALED);
}

static void wrong_bytes(struct ctx *c, struct qpair *q, const struct op *o, const uint8_t *back)
{
	const uint8_t *out = slot_at(c, q, q->out, o->slot);
	uint32_t first = 0, last = o->len - 1;

	while (back[first] == out[first])
		first++;
	while (back[last] == out[last])
		last--;
	fail(__FILE__, __LINE__,
	     "QP 0x%x: of %u bytes that were written, 0x%x to 0x%x are others when they are read back: %02x, not %02x",
	     q->l.qp->qp_num, o->len, first, last, back[first], out[first]);
}

static void retire(struct ctx *c, struct qpair *q, struct op *o)
{
	uint8_t *back = slot_at(c, q, q->back, o->slot);

	if (o->kind == K_READ_BACK && !holds(back, o->len, o->seed))
		wrong_bytes(c, q, o, back);
	if (o->kind == K_ADD && *(uint64_t *)(c->m.p + o->result_off) != o->expected)
		fail(__FILE__, __LINE__, "an atomic returns %llx, not %llx",
		     *(unsigned long long *)(c->m.p + o->result_off), (unsigned long long)o->expected);
	if (o->kind != K_WRITE || q->l.c.type != IBV_QPT_RC) /* a write keeps its slot for the read after it */
		q->slot_busy &= ~(1u << o->slot);
}

static void sent(struct ctx *c, struct qpair *q, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		fail(__FILE__, __LINE__, "QP 0x%x type %d: request %u of %u bytes, kind %d: %s", q->l.qp->qp_num,
		     q->l.c.type, (unsigned)wc->wr_id, q->op[wc->wr_id % 64].len, q->op[wc->wr_id % 64].kind,
		     ibv_wc_status_str(wc->status));
	if ((uint32_t)wc->wr_id - q->done >= q->head - q->done)
		fail(__FILE__, __LINE__, "completion of %u, but %u to %u are under way", (unsigned)wc->wr_id, q->done,
		     q->head);
	for (; q->done != (uint32_t)wc->wr_id; q->done++) {
		if (q->op[q->done % 64].signalled)
			fail(__FILE__, __LINE__, "request %u is passed by %u", q->done, (unsigned)wc->wr_id);
		retire(c, q, &q->op[q->done % 64]);
	}
	CHECK(q->op[q->done % 64].signalled);
	retire(c, q, &q->op[q->done % 64]);
	q->done++;
}

static void received(struct ctx *c, struct qpair *q, const struct ibv_wc *wc)
{
	size_t off = q->recv + (size_t)wc->wr_id * (q->stride + 64) + GUARD;
	uint8_t *p = c->m.p + off;
	uint32_t len = wc->byte_len;

	if (wc->status != IBV_WC_SUCCESS) {
		struct ibv_wc w = {.status = IBV_WC_SUCCESS};

		while (ibv_poll_cq(q->l.scq, 1, &w) > 0 && w.status == IBV_WC_SUCCESS)
			;
		fail(__FILE__, __LINE__,
		     "receive: %s; the first send that fails: %u of %u bytes, kind %d, behind %u: %s",
		     ibv_wc_status_str(wc->status), (unsigned)w.wr_id, q->op[w.wr_id % 64].len,
		     q->op[w.wr_id % 64].kind, q->done, ibv_wc_status_str(w.status));
	}
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		SAME(wc->imm_data, len);
	} else {
		if (q->l.c.type == IBV_QPT_UD) {
			p += 40;
			len -= 40;
		}
		struct head *h = (struct head *)p;

		SAME(h->magic, MAGIC);
		SAME(h->len, len);
		if (q->l.c.type == IBV_QPT_RC)
			SAME(h->seq, q->seq_in);
		else
			CHECK((int32_t)(h->seq - q->seq_in) >= 0); /* some may be lost; none is late or doubled */
		q->seq_in = h->seq + 1;
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			SAME(wc->imm_data, h->seq);
		if (!holds(p + sizeof(*h), len - sizeof(*h), h->seed))
			fail(__FILE__, __LINE__, "message %u of %u bytes has other bytes", h->seq, len);
		for (unsigned i = 0; i < GUARD; i++)
			SAME(c->m.p[off - 1 - i], GUARD_BYTE);
		h->magic = 0;
	}
	q->received++;
	recv_one(c, q, (unsigned)wc->wr_id);
}

static unsigned serve(struct ctx *c, struct qpair *q)
{
	struct ibv_wc wc[4];
	unsigned work = 0;
	int n;

	while ((n = ibv_poll_cq(q->l.rcq, 4, wc)) > 0)
		for (int i = 0; i < n; i++, work++)
			received(c, q, &wc[i]);
	while ((n = ibv_poll_cq(q->l.scq, 4, wc)) > 0)
		for (int i = 0; i < n; i++, work++)
			sent(c, q, &wc[i]);
	return work;
}

static void open_all(struct ctx *c, int fd)
{
	const struct work *w = c->w;

	for (unsigned i = 0; i < w->qps; i++) {
		struct qpair *q = &c->q[i];
		struct conf k = {
		        .type = type_of(w, i),
		        .depth = depth_of(w) + 2,
		        .rdepth = RECVS,
		        .rnr_timer = 1,
		        .rd = (int)(i % 3 == 2 ? 1 : 4 + i % 12),
		};

		link_make(&q->l, c->d, &k);
		for (unsigned s = 0; s < RECVS; s++)
			recv_one(c, q, s);
		link_join(&q->l, fd);
		if (k.type != IBV_QPT_UD)
			continue;
		struct ibv_ah_attr a = {
		        .is_global = 1,
		        .port_num = 1,
		        .grh = {.dgid = q->l.it.gid, .sgid_index = (uint8_t)c->d->gid_index, .hop_limit = 1}};

		CHECK((q->ah = ibv_create_ah(c->d->pd, &a)));
	}
}

static void check_guards(struct ctx *c)
{
	for (unsigned i = 0; i < c->w->qps; i++) {
		struct qpair *q = &c->q[i];

		for (unsigned s = 0; s < SLOTS; s++)
			for (unsigned k = 0; k < GUARD; k++) {
				SAME(c->m.p[q->in + (size_t)s * q->stride + k], GUARD_BYTE);
				SAME(c->m.p[q->in + (size_t)(s + 1) * q->stride - 1 - k], GUARD_BYTE);
			}
	}
}

void work(struct dev *d, int fd, const struct work *w)
{
	struct ctx c = {.d = d, .w = w, .rnd = w->seed * 0x9e3779b97f4a7c15ull + (uint64_t)getpid()};
	bool stop = false, told = false, peer_done = false;
	unsigned turn = 0, idle = 0;

	CHECK(w->max >= sizeof(struct head) && depth_of(w) <= 62);
	CHECK((c.q = calloc(w->qps, sizeof(*c.q))));
	size_t bytes = lay_out(&c);

	if (w->shared)
		mem_make_shared(&c.m, d, bytes);
	else
		mem_make(&c.m, d, bytes);
	memset(c.m.p, GUARD_BYTE, bytes);
	for (unsigned i = 0; i < w->qps; i++)
		memset(c.m.p + c.q[i].words, 0, 4096);
	mem_tell(&c.m, fd);
	c.far = far_hear(fd);
	open_all(&c, fd);
	uint64_t t0 = now_ms(), last = t0;

	while (!told || !peer_done) {
		unsigned busy = 0, did = 0;

		for (unsigned i = 0; i < w->qps; i++) {
			struct qpair *q = &c.q[(i + turn) % w->qps];

			for (unsigned k = random_next(&c.rnd) % 4; k && !stop; k--)
				did += post_some(&c, q);
			did += serve(&c, q);
			if (stop && !told && q->head != q->done && !q->op[(q->head - 1) % 64].signalled)
				flush_sends(&c, q);
			busy += q->head != q->done;
		}
		turn++;
		uint64_t now = now_ms();

		if (w->tick)
			w->tick(now - t0);
		if (did)
			last = now;
		else if (++idle % 64 == 0)
			sched_yield();
		if (now - last > 15000)
			fail(__FILE__, __LINE__, "nothing moves: %u queue pairs wait, done here %d, there %d", busy,
			     told, peer_done);
		if (!stop) {
			stop = now - t0 >= w->ms;
			if (w->ops) {
				bool all = true;

				for (unsigned i = 0; i < w->qps; i++)
					all = all && c.q[i].posted_ops >= w->ops;
				stop = stop || all;
			}
		}
		if (stop && !busy && !told) {
			tell(fd, "d", 1);
			told = true;
		}
		if (!peer_done && heard(fd, 0)) {
			char x;

			hear(fd, &x, 1);
			peer_done = true;
		}
	}
	for (unsigned i = 0; i < w->qps; i++) /* the data of the peer's last completions has arrived */
		serve(&c, &c.q[i]);
	for (unsigned i = 0; i < w->qps; i++) {
		struct qpair *q = &c.q[i];
		uint64_t mine[2] = {q->seq_out, q->counter}, its[2];

		tell(fd, mine, sizeof(mine));
		hear(fd, its, sizeof(its));
		if (q->l.c.type == IBV_QPT_RC) {
			SAME(q->seq_in, its[0]);
			CHECK(*(uint64_t *)(c.m.p + q->words) == its[1]);
		}
	}
	check_guards(&c);
	meet_up(fd);
	for (unsigned i = 0; i < w->qps; i++) {
		if (c.q[i].ah)
			CHECK(!ibv_destroy_ah(c.q[i].ah));
		link_end(&c.q[i].l);
	}
	mem_end(&c.m);
	free(c.q);
}
