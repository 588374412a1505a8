// traffic.c - the random walk: requests between ends, right ones and ones that must fail
// follows: ibv_post_send(3), ibv_wr_post(3), ibv_post_recv(3); IBA volume 1, 9.7.5.2 (errors), 11.4.1
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>

#include "note.h"
#include "walk.h"

/* --- wr_id: what it is for, of which use of the object --- */

uint64_t id_make(unsigned kind, uint32_t index, uint32_t round, uint32_t slot)
{
	return (uint64_t)kind << 60 | (uint64_t)index << 44 | (uint64_t)(round & 0xffffff) << 16 | slot;
}

/* --- posting --- */

static void build_ex(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add,
		                      wr->wr.atomic.swap);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(x, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(x, wr->invalidate_rkey);
		break;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(x, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		break;
	default:
		ibv_wr_send(x);
	}
}

/* The whole chain by the ibv_wr_ functions. */
int post_ex(struct end *e, const struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(e->o->p);
	bool ud = e->o->qp.type == IBV_QPT_UD;

	ibv_wr_start(x);
	for (; wr; wr = wr->next) {
		x->wr_id = wr->wr_id;
		x->wr_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
		build_ex(x, wr);
		if (ud)
			ibv_wr_set_ud_addr(x, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
		if (wr->opcode == IBV_WR_BIND_MW)
			continue;
		if (wr->send_flags & IBV_SEND_INLINE)
			ibv_wr_set_inline_data(x, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
		else
			ibv_wr_set_sge_list(x, (size_t)wr->num_sge, wr->sg_list);
	}
	return ibv_wr_complete(x);
}

/* Extended queue pairs are made without LOCAL_INV. */
static void post_chain(struct dice *d, struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	if (e->o->qp.extended && wr->opcode != IBV_WR_LOCAL_INV && one_in(d, 2))
		ANSWER(post_ex(e, wr), 0);
	else
		ANSWER(ibv_post_send(e->o->p, wr, &bad), 0);
}

/* A free slot, which is now this thread's. */
static struct slot *claim_slot(struct dice *d, struct end *e, unsigned *index)
{
	unsigned first = roll(d, SLOT_COUNT);

	for (unsigned i = 0; i < SLOT_COUNT; i++) {
		uint32_t is_free = SLOT_FREE;

		*index = (first + i) % SLOT_COUNT;
		if (atomic_compare_exchange_strong(&e->slot[*index].state, &is_free, SLOT_HELD))
			return &e->slot[*index];
	}
	return NULL;
}

/* SLOT_HELD until the caller posts for it. */
struct slot *begin_slot(struct dice *d, struct end *e, unsigned *index)
{
	struct slot *s = claim_slot(d, e, index);

	if (s) {
		s->must = IBV_WC_SUCCESS;
		s->seed = dice_word(d);
		s->window.is = false;
	}
	return s;
}

static uint32_t some_length(struct dice *d, uint32_t least, uint32_t most)
{
	uint32_t bits = 1 + roll(d, 31 - (uint32_t)__builtin_clz(most));
	uint32_t n = roll(d, 4) ? roll(d, 1u << bits) : roll(d, most + 1);

	return n < least ? least : n > most ? most : n;
}

/* [at, at + length) in up to four pieces. */
static int cut_pieces(struct dice *d, struct ibv_sge *sge, const uint8_t *at, uint32_t length, uint32_t lkey)
{
	int n = 1 + (int)roll(d, 4);
	uint32_t done = 0;

	for (int i = 0; i < n; i++) {
		uint32_t piece = i == n - 1 ? length - done : roll(d, length - done + 1);

		sge[i] = (struct ibv_sge){(uintptr_t)at + done, piece, lkey};
		done += piece;
	}
	return n;
}

/* A message carries a note about itself, then bytes. */
static void write_note(struct end *e, unsigned index, uint8_t *to, uint32_t key, uint32_t group)
{
	struct slot *s = &e->slot[index];
	struct note n = {.magic = NOTE_MAGIC,
	                 .from = self << 16 | e->o->index,
	                 .from_round = e->round,
	                 .slot = index,
	                 .number = s->number,
	                 .length = s->length,
	                 .key = key,
	                 .group = group,
	                 .grh = e->grh,
	                 .seed = s->seed};

	memcpy(to, &n, sizeof(n));
	fill_bytes(to + sizeof(n), s->length - sizeof(n), s->seed);
}

static __be32 imm_of(unsigned index, uint32_t number)
{
	return htonl(index << 24 | (number & 0xffffff));
}

struct request {
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN][4];
};

/* A write in several requests, of which the last is signaled. */
static void chain_writes(struct dice *d, struct end *e, struct request *r, unsigned index, unsigned n)
{
	const struct slot *s = &e->slot[index];
	uint32_t done = 0;

	for (unsigned i = 0; i < n; i++) {
		struct ibv_send_wr *wr = &r->wr[i];
		uint32_t piece = i == n - 1 ? s->length - done : roll(d, s->length - done + 1);

		*wr = r->wr[0];
		wr->opcode = i == n - 1 ? s->op : IBV_WR_RDMA_WRITE;
		wr->sg_list = r->sge[i];
		wr->num_sge = cut_pieces(d, r->sge[i], out_of(e, index) + done, piece, e->mr->lkey);
		wr->wr.rdma.remote_addr = r->wr[0].wr.rdma.remote_addr + done;
		wr->next = i == n - 1 ? NULL : wr + 1;
		done += piece;
		if (i < n - 1) {
			wr->wr_id = id_make(ID_PART, e->o->index, e->round, index);
			wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
		} else {
			wr->wr_id = id_make(ID_SLOT, e->o->index, e->round, index);
			wr->send_flags |= IBV_SEND_SIGNALED;
		}
	}
}

static void inline_if_short(struct dice *d, const struct slot *s, struct ibv_send_wr *wr)
{
	if (s->length > 64 || wr->next || !one_in(d, 2))
		return;
	wr->sg_list[0].length = s->length;
	wr->num_sge = 1;
	wr->send_flags |= IBV_SEND_INLINE;
}

static void build_write(struct dice *d, struct end *e, struct request *r, unsigned index)
{
	struct slot *s = &e->slot[index];

	s->length = some_length(d, 1, plan.area);
	s->offset = roll(d, plan.area - s->length + 1);
	fill_bytes(out_of(e, index), s->length, s->seed);
	s->number += s->op == IBV_WR_RDMA_WRITE_WITH_IMM;
	r->wr[0].imm_data = imm_of(index, s->number);
	r->wr[0].wr.rdma.remote_addr += s->offset;
	chain_writes(d, e, r, index, one_in(d, 3) ? 1 + roll(d, CHAIN) : 1);
	inline_if_short(d, s, r->wr);
}

static void build_send(struct dice *d, struct end *e, struct request *r, unsigned index)
{
	struct slot *s = &e->slot[index];

	s->length = some_length(d, sizeof(struct note), plan.area);
	s->number++;
	write_note(e, index, out_of(e, index), s->op == IBV_WR_SEND_WITH_INV ? s->window.key : 0, 0);
	if (s->op == IBV_WR_SEND_WITH_INV)
		r->wr[0].invalidate_rkey = s->window.key;
	else
		r->wr[0].imm_data = imm_of(index, s->number);
	r->wr[0].num_sge = cut_pieces(d, r->sge[0], out_of(e, index), s->length, e->mr->lkey);
	inline_if_short(d, s, r->wr);
}

static void build_read(struct dice *d, struct end *e, struct request *r, unsigned index)
{
	struct slot *s = &e->slot[index];

	s->length = some_length(d, 1, plan.area);
	s->offset = roll(d, plan.area - s->length + 1);
	memset(back_of(e, index), UNTOUCHED, plan.area);
	r->wr[0].wr.rdma.remote_addr += s->offset;
	r->wr[0].num_sge = cut_pieces(d, r->sge[0], back_of(e, index), s->length, e->mr->lkey);
}

/* A SEND with invalidate needs a window of the peer; what names memory may use one. */
static void choose_window(struct dice *d, struct end *e, struct slot *s)
{
	switch (s->op) {
	case IBV_WR_SEND_WITH_INV:
		if (!window_hold(d, e, true, &s->window))
			s->op = IBV_WR_SEND;
		break;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		break;
	default:
		if (one_in(d, 2))
			window_hold(d, e, false, &s->window);
	}
}

static uint32_t key_of(const struct end *e, const struct slot *s)
{
	return s->window.is ? s->window.key : (uint32_t)(e->there.rkey_type >> 32);
}

/* half of the swaps compare with the value that is there. */
static void build_atomic(struct dice *d, struct end *e, struct request *r, unsigned index)
{
	struct slot *s = &e->slot[index];

	s->length = 8;
	s->offset = roll(d, plan.area / 8) * 8;
	memcpy(&s->before, e->expect + (size_t)index * plan.area + s->offset, 8);
	memset(back_of(e, index), UNTOUCHED, plan.area);
	r->wr[0].num_sge = 1;
	r->sge[0][0] = (struct ibv_sge){(uintptr_t)back_of(e, index), 8, e->mr->lkey};
	r->wr[0].wr.atomic.remote_addr = e->there.window + (size_t)(window_of(e, index) - e->memory) + s->offset;
	r->wr[0].wr.atomic.rkey = key_of(e, s);
	s->chained = one_in(d, 2);
	r->wr[0].wr.atomic.compare_add = s->op == IBV_WR_ATOMIC_FETCH_AND_ADD ? s->seed : s->before ^ s->chained;
	r->wr[0].wr.atomic.swap = s->seed;
}

static const enum ibv_wr_opcode rc_ops[] = {
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_READ,
        IBV_WR_RDMA_READ,
        IBV_WR_SEND,
        IBV_WR_SEND,
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_ATOMIC_CMP_AND_SWP,
};
static const enum ibv_wr_opcode uc_ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
                                            IBV_WR_SEND_WITH_IMM};

static void request_begin(struct dice *d, struct end *e, struct request *r, unsigned index)
{
	memset(r, 0, sizeof(*r));
	r->wr[0] = (struct ibv_send_wr){
	        .wr_id = id_make(ID_SLOT, e->o->index, e->round, index),
	        .sg_list = r->sge[0],
	        .opcode = e->slot[index].op,
	        .send_flags = IBV_SEND_SIGNALED | (one_in(d, 2) ? IBV_SEND_SOLICITED : 0) |
	                      (e->o->qp.type == IBV_QPT_RC && one_in(d, 8) ? IBV_SEND_FENCE : 0),
	        .wr.rdma = {.remote_addr = e->there.window + (size_t)(window_of(e, index) - e->memory),
	                    .rkey = key_of(e, &e->slot[index])},
	};
}

static void post_right(struct dice *d, struct end *e)
{
	bool rc = e->o->qp.type == IBV_QPT_RC;
	unsigned index;
	struct slot *s = begin_slot(d, e, &index);
	struct request r;

	if (!s)
		return;
	s->op = rc ? rc_ops[roll(d, sizeof(rc_ops) / sizeof(*rc_ops))] : uc_ops[roll(d, 4)];
	choose_window(d, e, s);
	request_begin(d, e, &r, index);
	if (s->op == IBV_WR_RDMA_WRITE || s->op == IBV_WR_RDMA_WRITE_WITH_IMM)
		build_write(d, e, &r, index);
	else if (s->op == IBV_WR_RDMA_READ)
		build_read(d, e, &r, index);
	else if (s->op == IBV_WR_SEND || s->op == IBV_WR_SEND_WITH_IMM || s->op == IBV_WR_SEND_WITH_INV)
		build_send(d, e, &r, index);
	else
		build_atomic(d, e, &r, index);
	s->state = SLOT_BUSY;
	post_chain(d, e, r.wr);
}

/* An end that is joined, to send on, held for reading. */
struct end *pick_joined(struct hold *h, struct dice *d, bool ud)
{
	struct object *o = pick(h, d, QP);
	struct end *e = o && !o->qp.loose ? end_of(o) : NULL;

	return e && e->joined && (o->qp.type == IBV_QPT_UD) == ud ? e : NULL;
}

void post_some(struct dice *d)
{
	struct hold h = {0};
	struct end *e = pick_joined(&h, d, false);

	/* in trouble requests are flushed, or time out: a few of them are enough */
	for (unsigned n = e && (!end_trouble(e) || one_in(d, 8)) ? 1 + roll(d, 4) : 0; n; n--)
		post_right(d, e);
	let_go(&h);
}

/* --- requests that must fail, and take both sides to ERR --- */

static void make_wrong(struct dice *d, struct end *e, struct request *r, unsigned index)
{
	struct slot *s = &e->slot[index];
	struct ibv_send_wr *wr = r->wr;

	switch (roll(d, 8)) {
	case 6: /* nobody has such a key */
		s->must = IBV_WC_REM_ACCESS_ERR;
		s->op = wr->opcode = IBV_WR_SEND_WITH_INV;
		wr->invalidate_rkey = (uint32_t)(e->there.rkey_type >> 32) ^ (1 + roll(d, 255));
		break;
	case 7: /* not even an own one */
		s->must = IBV_WC_MW_BIND_ERR;
		s->op = wr->opcode = IBV_WR_LOCAL_INV;
		wr->num_sge = 0;
		wr->invalidate_rkey = e->mr->rkey ^ (1 + roll(d, 255));
		break;
	case 0:
		s->must = IBV_WC_REM_ACCESS_ERR;
		wr->wr.rdma.rkey ^= 1 + roll(d, 1u << 30);
		break;
	case 1: /* behind the end of the window */
		s->must = IBV_WC_REM_ACCESS_ERR;
		wr->wr.rdma.remote_addr = e->there.window + (size_t)(out_of(e, 0) - GUARD - e->memory) - roll(d, 8);
		break;
	case 2:
		s->must = IBV_WC_LOC_PROT_ERR;
		r->sge[0][0].lkey ^= 1 + roll(d, 1u << 30);
		break;
	case 3: /* before the beginning of the region */
		s->must = IBV_WC_LOC_PROT_ERR;
		r->sge[0][0].addr = (uintptr_t)e->mr->addr - 1 - roll(d, 7);
		break;
	case 4:
		s->must = IBV_WC_REM_INV_REQ_ERR;
		s->op = wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->wr.atomic.remote_addr = e->there.window + 1 + roll(d, 7);
		wr->wr.atomic.rkey = (uint32_t)(e->there.rkey_type >> 32);
		r->sge[0][0] = (struct ibv_sge){(uintptr_t)back_of(e, index), 8, e->mr->lkey};
		break;
	default: /* longer than the receive */
		s->must = IBV_WC_REM_INV_REQ_ERR;
		s->op = wr->opcode = IBV_WR_SEND;
		r->sge[0][0].length = plan.area;
		r->sge[0][1] = (struct ibv_sge){(uintptr_t)back_of(e, index), GRH + 1, e->mr->lkey};
		wr->num_sge = 2;
	}
}

void post_wrong(struct dice *d)
{
	struct hold h = {0};
	struct end *e = pick_joined(&h, d, false);
	struct slot *s = NULL;
	unsigned index;
	struct request r;

	if (e && e->o->qp.type == IBV_QPT_RC && !end_trouble(e) && (s = begin_slot(d, e, &index))) {
		s->op = one_in(d, 2) ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
		s->length = s->offset = 0;
		request_begin(d, e, &r, index);
		s->op = r.wr[0].opcode = IBV_WR_RDMA_WRITE;
		r.wr[0].num_sge = 1;
		r.sge[0][0] = (struct ibv_sge){(uintptr_t)out_of(e, index), 16, e->mr->lkey};
		make_wrong(d, e, &r, index);
		end_fails_soon(e, WRONG);
		COUNT(wrong);
		s->state = SLOT_BUSY;
		post_chain(d, e, r.wr);
	}
	let_go(&h);
}

/* --- datagrams --- */

static bool find_receiver(struct dice *d, uint32_t *qpn, uint32_t *process)
{
	*process = roll(d, plan.processes);
	uint32_t first = roll(d, plan.ends);

	for (uint32_t i = 0; i < plan.ends; i++) {
		struct place *p = place_of(*process << 16 | (first + i) % plan.ends);
		uint64_t state = p->state, type = p->address[2], number = p->address[1];

		if (phase_in(state) == JOINED && (uint32_t)type == IBV_QPT_UD && p->state == state) {
			*qpn = (uint32_t)(number >> 32);
			return true;
		}
	}
	return false;
}

#define MULTICAST_QPN 0xffffffu

/* To a queue pair, or to all that have joined a group. One in eight has a wrong Q_Key and must not arrive. */
void send_datagram(struct dice *d)
{
	struct hold h = {0};
	struct end *e = pick_joined(&h, d, true);
	struct slot *s = NULL;
	bool lost = one_in(d, 8);
	uint32_t qpn = MULTICAST_QPN, process = 0, group = !plan.fabric && one_in(d, 4) ? 1 + roll(d, GROUP_COUNT) : 0;
	struct ibv_ah *ah = NULL;
	unsigned index;
	struct request r;

	if (e && (group || find_receiver(d, &qpn, &process)))
		ah = group ? e->group_ah[group - 1] : e->ah[plan.fabric ? process : 0];
	if (ah && (s = begin_slot(d, e, &index))) {
		s->op = one_in(d, 2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
		s->length = some_length(d, sizeof(struct note), plan.area < 1000 ? plan.area : 1000);
		s->number++;
		write_note(e, index, out_of(e, index), 0, group);
		if (lost)
			memset(out_of(e, index), UNTOUCHED, 4); /* no note */
		request_begin(d, e, &r, index);
		r.wr[0].wr.ud.ah = ah;
		r.wr[0].wr.ud.remote_qpn = qpn;
		r.wr[0].wr.ud.remote_qkey = lost ? QKEY + 1 : QKEY;
		r.wr[0].imm_data = imm_of(index, s->number);
		r.wr[0].num_sge = cut_pieces(d, r.sge[0], out_of(e, index), s->length, e->mr->lkey);
		s->state = SLOT_BUSY;
		post_chain(d, e, r.wr);
	}
	let_go(&h);
}

/* --- receives --- */

static bool claim_recv(struct recv_slot *r)
{
	uint32_t not_posted = 0;

	return atomic_compare_exchange_strong(&r->posted, &not_posted, 1);
}

static int fill_recv(struct dice *d, struct ibv_sge *sge, const uint8_t *at, uint32_t lkey)
{
	uint32_t whole = GRH + plan.area, first = roll(d, whole + 1);

	sge[0] = (struct ibv_sge){(uintptr_t)at, first, lkey};
	sge[1] = (struct ibv_sge){(uintptr_t)at + first, whole - first, lkey};
	return 2;
}

void post_receives(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, QP);
	struct end *e = o && !o->qp.loose ? end_of(o) : NULL;
	struct ibv_qp *qp = e ? o->p : NULL;

	if (!e || qp->srq || __atomic_load_n(&qp->state, __ATOMIC_RELAXED) == IBV_QPS_RESET)
		qp = NULL;
	for (unsigned i = 0; qp && i < RECV_COUNT; i++) {
		struct ibv_sge sge[2];
		struct ibv_recv_wr wr = {.wr_id = id_make(ID_RECV, o->index, e->round, i), .sg_list = sge}, *bad;

		if (!claim_recv(&e->recv[i]))
			continue;
		wr.num_sge = fill_recv(d, sge, recv_of(e, i), e->mr->lkey);
		ANSWER(ibv_post_recv(qp, &wr, &bad), 0);
	}
	let_go(&h);
}

void post_srq(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, SRQ);

	for (unsigned i = 0; o && i < RECV_COUNT; i++) {
		struct ibv_sge sge[2];
		struct ibv_recv_wr wr = {.wr_id = id_make(ID_SRQ, o->index, o->round, i), .sg_list = sge}, *bad;

		if (!claim_recv(&o->srq.recv[i]))
			continue;
		wr.num_sge = fill_recv(d, sge, o->srq.memory + i * recv_size(), o->srq.mr->lkey);
		ANSWER(ibv_post_srq_recv(o->p, &wr, &bad), 0);
	}
	let_go(&h);
}
