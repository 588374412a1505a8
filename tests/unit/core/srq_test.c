// srq_test.c - shared receive queues
// follows: IBA volume 1, 10.2.9; ibv_modify_srq(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <fcntl.h>

#include "core/rq.h"

static struct objects o;

static struct ibv_srq *make(uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr a = {.attr = {wr, sge, 0}};
	struct ibv_srq *srq = vb_create_srq(o.pd, &a);

	CHECK(!srq || (a.attr.max_wr >= wr && a.attr.max_sge >= sge));
	return srq;
}

static int post(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_sge sge = {id, 100, 1};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return vb_post_srq_recv(srq, &wr, &bad);
}

static uint64_t take(struct ibv_srq *srq)
{
	struct vb_rwqe w;
	struct ibv_sge *sge;

	if (!vb_rq_peek(&vb_srq(srq)->rq, &w, &sge))
		return 0;
	CHECK(sge[0].addr == w.wr_id && w.num_sge == 1 && w.length == 100);
	vb_rq_advance(&vb_srq(srq)->rq);
	vb_srq_check_limit(vb_srq(srq));
	return w.wr_id;
}

static void poll_one(struct ibv_srq *srq)
{
	vb_rq_give_back(&vb_srq(srq)->rq);
}

/* … and its completion is polled. */
static uint64_t consume(struct ibv_srq *srq)
{
	uint64_t id = take(srq);

	if (id)
		poll_one(srq);
	return id;
}

static void limits_hold(void)
{
	CHECK(!make(0, 1) && errno == EINVAL);
	CHECK(!make(VB_MAX_SRQ_WR + 1, 1) && errno == EINVAL);
	CHECK(!make(1, VB_MAX_SRQ_SGE + 1) && errno == EINVAL);
	struct ibv_srq *srq = make(VB_MAX_SRQ_WR, VB_MAX_SRQ_SGE);

	CHECK(srq && !vb_destroy_srq(srq));
}

static void receives_come_out_in_order_and_a_full_queue_says_so(void)
{
	struct ibv_srq *srq = make(4, 2);

	for (uint64_t i = 1; i <= 4; i++)
		CHECK(!post(srq, i));
	CHECK(post(srq, 5) == ENOMEM);
	CHECK(take(srq) == 1 && post(srq, 5) == ENOMEM);
	poll_one(srq);
	CHECK(!post(srq, 5));
	for (uint64_t i = 2; i <= 5; i++)
		CHECK(consume(srq) == i);
	CHECK(!consume(srq) && !vb_destroy_srq(srq));
}

static void the_first_bad_request_is_named(void)
{
	struct ibv_srq *srq = make(4, 1);
	struct ibv_sge sge[2] = {{1, 100, 1}, {2, 100, 1}};
	struct ibv_recv_wr b = {.wr_id = 2, .sg_list = sge, .num_sge = 2},
	                   a = {.wr_id = 1, .sg_list = sge, .num_sge = 1, .next = &b}, *bad = NULL;

	CHECK(vb_post_srq_recv(srq, &a, &bad) == EINVAL && bad == &b);
	CHECK(consume(srq) == 1 && !consume(srq));
	b.num_sge = -1;
	CHECK(vb_post_srq_recv(srq, &b, &bad) == EINVAL && !vb_destroy_srq(srq));
}

static void below_the_limit_one_event_comes(void)
{
	struct ibv_srq *srq = make(8, 1);
	struct ibv_srq_attr a = {.srq_limit = 3};
	struct ibv_async_event ev;

	for (uint64_t i = 1; i <= 5; i++)
		post(srq, i);
	CHECK(!vb_modify_srq(srq, &a, IBV_SRQ_LIMIT) && !vb_query_srq(srq, &a) && a.srq_limit == 3 && a.max_wr == 8);
	CHECK(consume(srq) == 1 && consume(srq) == 2);
	CHECK(vb_get_async_event(o.ctx, &ev) == -1 && errno == EAGAIN); /* three are not below three */
	CHECK(consume(srq) == 3 && consume(srq) == 4);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && ev.element.srq == srq);
	CHECK(vb_get_async_event(o.ctx, &ev) == -1 && !vb_query_srq(srq, &a) && !a.srq_limit);
	ev = (struct ibv_async_event){.element.srq = srq, .event_type = IBV_EVENT_SRQ_LIMIT_REACHED};
	vb_ack_async_event(&ev);
	CHECK(!vb_destroy_srq(srq));
}

static void resizing_keeps_receives_and_changes_all_or_nothing(void)
{
	struct ibv_srq *srq = make(4, 2);
	struct ibv_srq_attr a = {.max_wr = 16, .srq_limit = 17};

	for (uint64_t i = 1; i <= 4; i++)
		post(srq, i);
	consume(srq);
	CHECK(!post(srq, 5));
	CHECK(vb_modify_srq(srq, &a, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == EINVAL);
	CHECK(post(srq, 6) == ENOMEM);
	CHECK(!vb_modify_srq(srq, &a, IBV_SRQ_MAX_WR) && !post(srq, 6));
	a.max_wr = 4;
	CHECK(vb_modify_srq(srq, &a, IBV_SRQ_MAX_WR) == EINVAL);
	CHECK(vb_modify_srq(srq, &a, 4) == EINVAL);
	for (uint64_t i = 2; i <= 6; i++)
		CHECK(consume(srq) == i);
	CHECK(!vb_destroy_srq(srq));
}

static void resizing_keeps_the_slots_of_what_nobody_has_polled(void)
{
	struct ibv_srq *srq = make(4, 1);
	struct ibv_srq_attr a = {.max_wr = 8};

	for (uint64_t i = 1; i <= 4; i++)
		post(srq, i);
	CHECK(consume(srq) == 1 && take(srq) == 2 && take(srq) == 3);
	CHECK(!vb_modify_srq(srq, &a, IBV_SRQ_MAX_WR));
	for (uint64_t i = 5; i <= 9; i++) /* with the fourth and two unpolled ones: eight */
		CHECK(!post(srq, i));
	CHECK(post(srq, 10) == ENOMEM);
	poll_one(srq);
	CHECK(!post(srq, 10) && post(srq, 11) == ENOMEM && !vb_destroy_srq(srq));
}

static void a_queue_in_use_stays(void)
{
	struct ibv_srq *srq = make(4, 2);
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, srq);

	CHECK(vb_destroy_srq(srq) == EBUSY && !vb_destroy_qp(qp) && !vb_destroy_srq(srq));
}

static void other_types_need_what_they_are_made_of(void)
{
	struct ibv_srq_init_attr_ex a = {
	        .attr = {4, 1, 0}, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, .pd = o.pd};
	struct ibv_srq *srq = vb_create_srq_ex(o.ctx, &a);

	CHECK(srq && !vb_destroy_srq(srq));
	a.srq_type = IBV_SRQT_TM;
	CHECK(!vb_create_srq_ex(o.ctx, &a) && errno == EINVAL); /* it needs a CQ and limits */
	a.srq_type = (enum ibv_srq_type)3;
	CHECK(!vb_create_srq_ex(o.ctx, &a) && errno == EOPNOTSUPP);
	a.srq_type = IBV_SRQT_XRC;
	CHECK(!vb_create_srq_ex(o.ctx, &a) && errno == EINVAL);
	a.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	a.srq_type = IBV_SRQT_BASIC;
	CHECK(!vb_create_srq_ex(o.ctx, &a) && errno == EINVAL);
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, O_NONBLOCK));
	RUN(limits_hold);
	RUN(receives_come_out_in_order_and_a_full_queue_says_so);
	RUN(the_first_bad_request_is_named);
	RUN(below_the_limit_one_event_comes);
	RUN(resizing_keeps_receives_and_changes_all_or_nothing);
	RUN(resizing_keeps_the_slots_of_what_nobody_has_polled);
	RUN(a_queue_in_use_stays);
	RUN(other_types_need_what_they_are_made_of);
	fake.nodes = nodes;
	close_objects(&o);
}
