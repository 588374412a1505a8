// request.c - the wrong request of a case, and the memory of both ends
// follows: ibv_post_send(3), ibv_reg_mr(3)
// SPDX-License-Identifier: MIT
#include "request.h"

#include <arpa/inet.h>
#include <sys/mman.h>

#include "../../support/check.h"
#include "windows.h"

#define OTHER_KEY 0x5a5u /* a key with these bits inverted is nobody's */
#define GIB (1u << 30)
#define SGES_MAX 256
#define IMMEDIATE 0x1234u

/* --- memory --- */

void memory_map(struct memory *m)
{
	*m = (struct memory){0};
	area_map(&m->data);
	area_map(&m->receives);
	area_map(&m->spare);
}

/* A region whose key may be invalidated, or to which a window is bound. */
static void register_spare(struct memory *m, const struct device *d, const struct plan *p)
{
	bool binds = BINDS >> p->operation & 1 || (p->operation == OP_INV && plan_is_window(p));
	unsigned rights = binds ? IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_LOCAL_WRITE | REMOTE_RIGHTS;

	if (p->wrong == WRONG_BIND_RIGHT)
		rights &= ~(unsigned)IBV_ACCESS_MW_BIND;
	if (p->wrong == WRONG_BIND_WRITE)
		rights &= ~(unsigned)IBV_ACCESS_LOCAL_WRITE;
	area_register(&m->spare, p->wrong == WRONG_INV_PD || p->wrong == WRONG_BIND_PD ? d->other_pd : d->pd, rights);
	m->spare_key = m->spare.mr->rkey ^ (p->wrong == WRONG_INV_KEY ? OTHER_KEY : 0);
}

void memory_of_requester(struct memory *m, const struct device *d, const struct plan *p)
{
	area_fill(&m->data, plan_is_answered(p) ? SINK_BYTE : SENT_BYTE);
	area_register(&m->data, p->wrong == WRONG_LKEY_PD ? d->other_pd : d->pd,
	              p->wrong == WRONG_LOCAL_RIGHT ? 0 : IBV_ACCESS_LOCAL_WRITE);
	m->lkey = m->data.mr->lkey ^ (p->wrong == WRONG_LKEY ? OTHER_KEY : 0);
	register_spare(m, d, p);
	if (p->wrong == WRONG_LKEY_GONE)
		area_forget(&m->data);
}

static void register_receives(struct memory *m, const struct device *d, const struct plan *p)
{
	enum wrong wrong = plan_receive(p);

	area_register(&m->receives, wrong == WRONG_RECV_PD ? d->other_pd : d->pd,
	              wrong == WRONG_RECV_RIGHT ? 0 : IBV_ACCESS_LOCAL_WRITE);
	m->lkey = m->receives.mr->lkey ^ (wrong == WRONG_RECV_LKEY ? OTHER_KEY : 0);
}

void memory_of_responder(struct memory *m, const struct device *d, const struct plan *p, struct hello *hello)
{
	unsigned rights = end_rights(p) & ~(p->wrong == WRONG_REGION_RIGHT ? end_right(p) : 0);
	bool other = p->wrong == WRONG_RKEY_PD || p->wrong == WRONG_WINDOW_PD;

	area_fill(&m->data, UNTOUCHED_BYTE);
	area_fill(&m->receives, UNTOUCHED_BYTE);
	if (plan_is_window(p)) /* only the window has rights */
		rights = IBV_ACCESS_MW_BIND;
	area_register(&m->data, other ? d->other_pd : d->pd, IBV_ACCESS_LOCAL_WRITE | rights);
	register_receives(m, d, p);
	register_spare(m, d, p);
	hello->data = (uintptr_t)area_start(&m->data);
	hello->rkey = m->data.mr->rkey ^ (p->wrong == WRONG_RKEY || p->wrong == WRONG_EMPTY ? OTHER_KEY : 0);
	hello->spare_key = m->spare_key;
}

void memory_take_away(struct memory *m, const struct plan *p)
{
	if (p->wrong == WRONG_RKEY_GONE)
		area_forget(&m->data);
	if (p->wrong == WRONG_RECV_GONE)
		area_forget(&m->receives);
}

void memory_forget(struct memory *m)
{
	area_forget(&m->data);
	area_forget(&m->receives);
	area_forget(&m->spare);
}

/* --- receives --- */

static uint32_t header_of(const struct plan *p)
{
	return p->type == UD ? GRH_BYTES : 0;
}

/* Where the first receive begins in its area. */
static uint32_t receive_at(const struct plan *p)
{
	return plan_receive(p) == WRONG_RECV_END ? AREA_BYTES - header_of(p) - plan_length(p) + 1 : 0;
}

static void post_receive(struct end *e, const struct memory *m, uint64_t id, uint32_t at, uint32_t length,
                         uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)area_start(&m->receives) + at, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	SAME(e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad), 0);
}

void request_post_receives(struct end *e, struct memory *m)
{
	const struct plan *p = e->p;
	uint32_t length = header_of(p) + plan_length(p);
	enum wrong wrong = plan_receive(p);

	if (wrong == WRONG_RNR_0 || wrong == WRONG_RNR_7)
		return;
	if (!length)
		length = SMALL_BYTES;
	post_receive(e, m, 1, receive_at(p), length - (wrong == WRONG_RECV_SHORT), m->lkey);
	post_receive(e, m, 2, SECOND_RECEIVE, length, m->receives.mr->lkey);
	if (p->wrong == WRONG_SRQ_LIMIT)
		SAME(ibv_modify_srq(e->srq, &(struct ibv_srq_attr){.srq_limit = 2}, IBV_SRQ_LIMIT), 0);
}

/* --- the request --- */

static uint64_t remote_offset(const struct plan *p)
{
	uint32_t length = plan_length(p), unit = plan_unit(p);

	return p->wrong == WRONG_PAST_END       ? AREA_BYTES - length + unit
	       : p->wrong == WRONG_BEFORE_START ? -(uint64_t)unit
	       : p->wrong == WRONG_MISALIGNED   ? 4
	       : p->wrong == WRONG_WINDOW_END   ? WINDOW_AT + WINDOW_BYTES - length + unit
	       : p->wrong == WRONG_WINDOW_START ? WINDOW_AT - unit
	       : plan_is_window(p)              ? WINDOW_AT
	                                        : 0;
}

static uint64_t remote_address(const struct plan *p, const struct hello *it)
{
	if (p->wrong == WRONG_WRAPS)
		return -(uint64_t)(plan_unit(p) == 8 ? 8 : plan_length(p) / 2);
	return it->data + remote_offset(p);
}

static uint64_t local_address(const struct memory *m, const struct plan *p)
{
	uint64_t start = (uintptr_t)area_start(&m->data);

	switch (p->wrong) {
	case WRONG_LOCAL_END:
		return start + AREA_BYTES - plan_length(p) + 1;
	case WRONG_LOCAL_START:
		return start - 1;
	case WRONG_LOCAL_WRAP:
		return -(uint64_t)(plan_length(p) / 2);
	default:
		return start;
	}
}

static uint32_t local_length(const struct end *e)
{
	switch (e->p->wrong) {
	case WRONG_FOUR:
		return 4;
	case WRONG_MTU:
		return e->d->mtu + 1;
	case WRONG_INLINE:
		return plan_is_atomic(e->p) ? 8 : e->cap.max_inline_data + 1;
	default:
		return plan_length(e->p);
	}
}

/* Two sges of 1 GiB, and one of a byte. */
static struct ibv_mr *register_huge(const struct end *e, struct ibv_sge *sge)
{
	static void *huge;

	if (!huge)
		huge = mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr = huge == MAP_FAILED ? NULL : ibv_reg_mr(e->d->pd, huge, GIB, IBV_ACCESS_LOCAL_WRITE);

	for (int i = 0; mr && i < 3; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)huge, i < 2 ? GIB : 1, mr->lkey};
	return mr;
}

static int make_sges(const struct end *e, const struct memory *m, struct ibv_sge *sge)
{
	const struct plan *p = e->p;

	if (p->operation == OP_INV || p->operation == OP_FLUSH || p->wrong == WRONG_NO_SGE)
		return 0;
	if (p->wrong == WRONG_SGES) {
		CHECK(e->cap.max_send_sge < SGES_MAX);
		for (uint32_t i = 0; i <= e->cap.max_send_sge; i++)
			sge[i] = (struct ibv_sge){(uintptr_t)area_start(&m->data) + i, 1, m->lkey};
		return (int)e->cap.max_send_sge + 1;
	}
	sge[0] = (struct ibv_sge){local_address(m, p), local_length(e), m->lkey};
	return 1;
}

static struct ibv_ah *make_ah(const struct end *e, const struct hello *it)
{
	struct ibv_ah_attr a = end_address(e->d, it);
	struct ibv_ah *ah = ibv_create_ah(e->d->pd, &a);

	CHECK(ah);
	return ah;
}

static void fill_remote(struct ibv_send_wr *wr, const struct end *e, const struct hello *it)
{
	const struct plan *p = e->p;

	if (plan_is_atomic(p)) {
		wr->wr.atomic.remote_addr = remote_address(p, it);
		wr->wr.atomic.rkey = it->rkey;
		wr->wr.atomic.compare_add = 0x0101010101010101u * UNTOUCHED_BYTE;
		wr->wr.atomic.swap = 0x0101010101010101u * SENT_BYTE;
	} else if (REMOTE >> p->operation & 1) {
		wr->wr.rdma.remote_addr = remote_address(p, it);
		wr->wr.rdma.rkey = it->rkey;
	} else if (p->type == UD) {
		wr->wr.ud.ah = p->wrong == WRONG_NO_AH ? NULL : e->ah;
		wr->wr.ud.remote_qpn = p->wrong == WRONG_QPN ? it->qpn ^ 0xff : it->qpn;
		wr->wr.ud.remote_qkey = p->wrong == WRONG_QKEY ? QKEY + 1 : QKEY;
	}
}

static uint32_t immediate_of(const struct memory *m, const struct plan *p, const struct hello *it)
{
	return p->operation == OP_SEND_INV ? it->spare_key : p->operation == OP_INV ? m->spare_key : htonl(IMMEDIATE);
}

/* struct ibv_qp_ex as it is since rdma-core 46.0 */
struct later_qp_ex {
	struct ibv_qp_ex ex;
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
	                 uint8_t level);
};

static int post_flush(struct end *e, const struct hello *it)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(e->qp);

	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	((struct later_qp_ex *)x)->wr_flush(x, it->rkey, remote_address(e->p, it), plan_length(e->p), 1, 0);
	if (e->p->type == XRC)
		ibv_wr_set_xrc_srqn(x, it->srqn);
	return ibv_wr_complete(x);
}

int request_post(struct end *e, const struct memory *m, const struct hello *it, bool *named)
{
	const struct plan *p = e->p;
	struct ibv_sge sge[SGES_MAX];
	struct ibv_send_wr *bad = NULL,
	                   wr = {.wr_id = 1,
	                         .sg_list = sge,
	                         .num_sge = make_sges(e, m, sge),
	                         .opcode = p->wrong == WRONG_OPCODE ? (enum ibv_wr_opcode)99 : plan_opcode(p),
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .imm_data = immediate_of(m, p, it)};

	if (BINDS >> p->operation & 1)
		return window_post_bind(e, m->spare.mr, named);
	if (p->operation == OP_FLUSH) {
		*named = true;
		return post_flush(e, it);
	}
	if (p->type == XRC)
		wr.qp_type.xrc.remote_srqn = it->srqn;
	e->ah = p->type == UD ? make_ah(e, it) : NULL;
	e->huge = p->wrong == WRONG_HUGE ? register_huge(e, sge) : NULL;
	if (p->wrong == WRONG_HUGE && !e->huge)
		return -1;
	if (e->huge)
		wr.num_sge = 3;
	if (p->wrong == WRONG_INLINE)
		wr.send_flags |= IBV_SEND_INLINE;
	fill_remote(&wr, e, it);
	struct ibv_send_wr again = wr;

	if (p->wrong == WRONG_CQ_FULL) /* two requests, and room for one completion */
		wr.next = &again;
	int err = ibv_post_send(e->qp, &wr, &bad);

	*named = bad == &wr;
	return err;
}

/* --- what has changed --- */

/* Compares an area that held `before` with length bytes of `after` at an offset. Bytes at [skip, offset) do not count. */
static enum change judge(const struct area *a, uint8_t before, uint8_t after, int64_t skip, int64_t offset,
                         uint32_t length)
{
	int64_t size = AREA_BYTES + 2 * MARGIN_BYTES, begin = offset + MARGIN_BYTES;
	uint32_t inside = 0;

	for (int64_t i = 0; i < size; i++) {
		if (i >= begin && i < begin + length)
			inside += a->map[i] == after;
		else if (a->map[i] != before && (i < skip + MARGIN_BYTES || i >= begin))
			return CHANGE_OUTSIDE;
	}
	return !inside ? CHANGE_NONE : inside == length ? CHANGE_WHOLE : CHANGE_PART;
}

static enum change judge_word(const struct memory *m, const struct plan *p)
{
	const uint8_t *at = area_start(&m->data) + (int64_t)remote_offset(p);

	for (unsigned i = 0; i < 8; i++)
		if (at[i] != UNTOUCHED_BYTE)
			return CHANGE_WHOLE;
	return judge(&m->data, UNTOUCHED_BYTE, 0, 0, 0, 0);
}

enum change memory_changed(const struct memory *m, const struct plan *p)
{
	if (plan_is_atomic(p))
		return judge_word(m, p);
	if (p->wrong == WRONG_WRAPS)
		return judge(&m->data, UNTOUCHED_BYTE, SENT_BYTE, 0, 0, 0);
	if ((WRITES | OP(STORE)) >> p->operation & 1)
		return judge(&m->data, UNTOUCHED_BYTE, SENT_BYTE, 0, (int64_t)remote_offset(p), plan_length(p));
	if (SENDS >> p->operation & 1)
		return judge(&m->receives, UNTOUCHED_BYTE, SENT_BYTE, receive_at(p), receive_at(p) + header_of(p),
		             plan_length(p));
	return judge(&m->data, UNTOUCHED_BYTE, 0, 0, 0, 0);
}

enum change memory_answered(const struct memory *m, const struct plan *p)
{
	int64_t at = p->wrong == WRONG_LOCAL_END     ? AREA_BYTES - plan_length(p) + 1
	             : p->wrong == WRONG_LOCAL_START ? -1
	                                             : 0;

	return judge(&m->data, SINK_BYTE, UNTOUCHED_BYTE, at, at, plan_length(p));
}
