// wrong.c - the random walk: calls with wrong arguments, which change nothing
// follows: the ibv_* man page of each call; IBA volume 1, 11.2
// SPDX-License-Identifier: MIT
#include <limits.h>

#include "walk.h"

/* A call with one wrong argument. o is held for reading. */
struct wrong {
	enum kind kind;
	void (*call)(struct dice *d, struct object *o);
};

/* --- contexts --- */

static void cq_of_no_size(struct dice *d, struct object *o)
{
	static const int sizes[] = {INT_MIN, -1, 0, 4194305, INT_MAX};

	REFUSED(ibv_create_cq(o->p, sizes[roll(d, 5)], NULL, NULL, 0), EINVAL);
}

static void cq_on_no_vector(struct dice *d, struct object *o)
{
	const struct ibv_context *ctx = o->p;

	REFUSED(ibv_create_cq(o->p, 1, NULL, NULL, one_in(d, 2) ? -1 : ctx->num_comp_vectors + (int)roll(d, 1000)),
	        EINVAL);
}

static void cq_ex_of_unknown_kind(struct dice *d, struct object *o)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 1};

	switch (roll(d, 4)) {
	case 0:
		attr.comp_mask = 1u << (2 + roll(d, 30));
		break;
	case 1:
		attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
		attr.flags = 1u << (2 + roll(d, 30));
		break;
	case 2:
		attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
		break;
	default:
		attr.wc_flags = 1ull << (20 + roll(d, 44));
	}
	REFUSED(ibv_create_cq_ex(o->p, &attr), EINVAL);
}

static void td_of_unknown_kind(struct dice *d, struct object *o)
{
	struct ibv_td_init_attr attr = {.comp_mask = 1 + roll(d, INT_MAX)};

	REFUSED(ibv_alloc_td(o->p, &attr), EOPNOTSUPP);
}

static void parent_of_nothing(struct dice *d, struct object *o)
{
	struct ibv_parent_domain_init_attr attr = {.comp_mask = roll(d, 4)};

	REFUSED(ibv_alloc_parent_domain(o->p, &attr), EINVAL);
}

static void qp_ex_without_pd(struct dice *d, struct object *o)
{
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC, .comp_mask = one_in(d, 2) ? IBV_QP_INIT_ATTR_PD : 0};

	REFUSED(ibv_create_qp_ex(o->p, &attr), EINVAL);
}

/* --- protection domains --- */

static void region_without_memory(struct dice *d, struct object *o)
{
	uint8_t *end = (uint8_t *)UINTPTR_MAX;

	if (one_in(d, 2))
		REFUSED(ibv_reg_mr(o->p, end - 4095, 8192 + roll(d, 1000), IBV_ACCESS_LOCAL_WRITE), EINVAL);
	else
		REFUSED(ibv_reg_mr(o->p, end - 8192, 1 + roll(d, 100), IBV_ACCESS_LOCAL_WRITE), EFAULT);
}

static void region_of_unknown_access(struct dice *d, struct object *o)
{
	static char bytes[64];

	REFUSED(ibv_reg_mr(o->p, bytes, sizeof(bytes), 1 << (11 + roll(d, 9))), EINVAL);
}

static void srq_beyond_limits(struct dice *d, struct object *o)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = one_in(d, 2) ? 0 : 16385 + roll(d, INT_MAX), .max_sge = 1}};

	if (one_in(d, 3))
		attr.attr = (struct ibv_srq_attr){.max_wr = 1, .max_sge = 33 + roll(d, INT_MAX)};
	REFUSED(ibv_create_srq(o->p, &attr), EINVAL);
}

static void handle_to_nowhere(struct dice *d, struct object *o)
{
	struct ibv_ah_attr attr = address_of(o->ctx, &o->ctx->c.gid, o->ctx->c.lid, true);

	switch (roll(d, 4)) {
	case 0:
		attr.port_num = one_in(d, 2) ? 0 : (uint8_t)(2 + roll(d, 254));
		break;
	case 1:
		attr.grh.sgid_index = (uint8_t)(128 + roll(d, 128));
		break;
	case 2:
		attr.is_global = 0;
		attr.dlid = plan.fabric && one_in(d, 2) ? 0xffff : 0; /* it is not looked at where ports have no LIDs */
		break;
	default:
		attr.dlid = 0;
		memset(&attr.grh.dgid, 0, sizeof(attr.grh.dgid));
	}
	REFUSED(ibv_create_ah(o->p, &attr), o->ctx->c.iwarp ? EOPNOTSUPP : EINVAL);
}

static void qp_without_queues(struct dice *d, struct object *o)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};

	REFUSED(ibv_create_qp(o->p, &attr), EINVAL);
}

/* --- completion queues --- */

static void qp_beyond_limits(struct dice *d, struct object *o)
{
	struct object *pd = o->up[2]; /* the parent domain of some extended CQs: the only PD that is certain to exist */
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC, .send_cq = o->p, .recv_cq = o->p, .cap = {1, 1, 1, 1, 0}};

	if (!pd)
		return;
	switch (roll(d, 4)) {
	case 0:
		attr.cap.max_send_wr = 16385 + roll(d, INT_MAX);
		break;
	case 1:
		attr.cap.max_recv_wr = 16385 + roll(d, INT_MAX);
		break;
	case 2:
		attr.cap.max_send_sge = 33 + roll(d, INT_MAX);
		break;
	default:
		attr.cap.max_inline_data = 1025 + roll(d, INT_MAX);
	}
	REFUSED(ibv_create_qp(pd->p, &attr), EINVAL);
}

/* With a count of 0 or 1 every completion raises its event, as without moderation. */
static void moderates_nothing(struct dice *d, struct object *o)
{
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE,
	                                  .moderate = {(uint16_t)roll(d, 2), (uint16_t)roll(d, 65536)}};

	if (!o->cq.extended)
		return;
	ANSWER(ibv_modify_cq(o->p, &attr), 0);
	attr.attr_mask = 2u << roll(d, 30);
	ANSWER(ibv_modify_cq(o->p, &attr), EINVAL);
}

/* --- queue pairs: posting --- */

/* A single queue pair in ERR may be full of requests that nobody has polled yet; that is told first. */
static void send_is_refused(struct object *o, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(o->p, wr, &bad);

	COUNT(calls);
	COUNT(refused);
	CHECK(err == EINVAL || (err == ENOMEM && o->qp.loose && o->qp.state == IBV_QPS_ERR));
	CHECK(bad == wr);
}

static void send_too_many_pieces(struct dice *d, struct object *o)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .num_sge = one_in(d, 2) ? -1 : 100};

	send_is_refused(o, &wr);
}

static void send_unknown_operation(struct dice *d, struct object *o)
{
	struct ibv_send_wr wr = {.opcode = (enum ibv_wr_opcode)(100 + roll(d, INT_MAX - 100))};

	send_is_refused(o, &wr);
}

static void send_operation_of_another_type(struct dice *d, struct object *o)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};

	if (o->qp.type != IBV_QPT_RC && o->qp.type != IBV_QPT_XRC_SEND)
		send_is_refused(o, &wr);
}

static void send_datagram_without_address(struct dice *d, struct object *o)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	if (o->qp.type == IBV_QPT_UD)
		send_is_refused(o, &wr);
}

static void receive_too_many_pieces(struct dice *d, struct object *o)
{
	struct ibv_recv_wr wr = {.num_sge = one_in(d, 2) ? -1 : 100}, *bad = NULL;

	ANSWER(ibv_post_recv(o->p, &wr, &bad), EINVAL);
	CHECK(bad == &wr);
}

static void build_what_was_not_asked_for(struct dice *d, struct object *o)
{
	struct ibv_qp_ex *x;

	if (!o->qp.extended)
		return;
	x = ibv_qp_to_qp_ex(o->p);
	ibv_wr_start(x);
	if (one_in(d, 2)) {
		ibv_wr_local_inv(x, 5);
		ANSWER(ibv_wr_complete(x), EOPNOTSUPP);
	} else {
		ibv_wr_send(x);
		ibv_wr_abort(x);
	}
}

static void modify_what_cannot_be(struct dice *d, struct object *o)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET, .cap = {1, 1, 1, 1, 1}};

	/* not CUR_STATE and the like, which some states allow */
	if (!o->ctx->c.iwarp)
		ANSWER(ibv_modify_qp(o->p, &attr, one_in(d, 2) ? IBV_QP_CAP : IBV_QP_STATE | IBV_QP_CAP), EINVAL);
}

static void attach_to_no_group(struct dice *d, struct object *o)
{
	union ibv_gid gid = o->ctx->c.gid;

	ANSWER(ibv_attach_mcast(o->p, &gid, 0), EINVAL);
}

static const struct wrong wrongs[] = {
        {CTX, cq_of_no_size},
        {CTX, cq_on_no_vector},
        {CTX, cq_ex_of_unknown_kind},
        {CTX, td_of_unknown_kind},
        {CTX, parent_of_nothing},
        {CTX, qp_ex_without_pd},
        {PD, region_without_memory},
        {PD, region_of_unknown_access},
        {PD, srq_beyond_limits},
        {PD, handle_to_nowhere},
        {PD, qp_without_queues},
        {CQ, qp_beyond_limits},
        {CQ, moderates_nothing},
        {QP, send_too_many_pieces},
        {QP, send_unknown_operation},
        {QP, send_operation_of_another_type},
        {QP, send_datagram_without_address},
        {QP, receive_too_many_pieces},
        {QP, build_what_was_not_asked_for},
        {QP, modify_what_cannot_be},
        {QP, attach_to_no_group},
};

void wrong_call(struct dice *d)
{
	const struct wrong *w = &wrongs[roll(d, sizeof(wrongs) / sizeof(*wrongs))];
	struct hold h = {0};
	struct object *o = pick(&h, d, w->kind);

	if (o)
		w->call(d, o);
	let_go(&h);
}
