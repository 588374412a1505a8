// handle_test.c - objects that a program has overwritten are rejected, with the errno of a kernel's look-up and no
// effect
// see: core/handle.h
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/mcast.h"
#include "core/mr.h"

static struct objects o;
static struct ibv_context *other;
static struct ibv_srq *srq;
static char buf[64];

/* Each object with another handle, and with the context of another device. */
#define SPOILT(object, check)              \
	do {                               \
		(object)->handle ^= 0x55;  \
		check;                     \
		(object)->handle ^= 0x55;  \
		(object)->context = other; \
		check;                     \
		(object)->context = o.ctx; \
	} while (0)
#define NO(made, err)                  \
	do {                           \
		errno = 0;             \
		CHECK(!(made));        \
		CHECK(errno == (err)); \
	} while (0)

static struct ibv_qp *make_raw(struct ibv_qp_init_attr *attr)
{
	attr->cap = (struct ibv_qp_cap){.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
	return vb_create_qp(o.pd, attr);
}

static void a_protection_domain(void)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_parent_domain_init_attr pa = {.pd = o.pd};
	struct ibv_ah_attr aa = {
	        .is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .dgid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 2}}};
	struct ibv_pd *pd = vb_alloc_pd(o.ctx);

	SPOILT(pd, CHECK(vb_dealloc_pd(pd) == ENOENT));
	SPOILT(o.pd, NO(vb_reg_mr(o.pd, buf, 8, 0, 0), EINVAL));
	SPOILT(o.pd, NO(vb_create_srq(o.pd, &sa), EINVAL));
	SPOILT(o.pd, NO(vb_create_ah(o.pd, &aa), EINVAL));
	SPOILT(o.pd, NO(make_raw(&(struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .send_cq = o.cq, .recv_cq = o.cq}),
	                EINVAL));
	SPOILT(o.pd, NO(vb_alloc_parent_domain(o.ctx, &pa), EINVAL));
	CHECK(!vb_dealloc_pd(pd));
}

static void a_region(void)
{
	struct ibv_mr *mr = vb_reg_mr(o.pd, buf, 8, 0, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_pd *pd = vb_alloc_pd(o.ctx);

	SPOILT(mr, CHECK(vb_dereg_mr(mr) == ENOENT));
	SPOILT(mr, CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == EINVAL));
	SPOILT(pd, CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) == EINVAL));
	CHECK(mr->pd == o.pd && !vb_dealloc_pd(pd) && !vb_dereg_mr(mr));
}

/* Registration and posting use the domain's own number. */
static void a_domain_that_was_written_to_later_is_the_same(void)
{
	struct ibv_mr *mr;
	uint64_t va;
	const uint32_t id = o.pd->handle;

	mr = vb_reg_mr(o.pd, buf, 8, 0, IBV_ACCESS_LOCAL_WRITE);
	o.pd->handle ^= 1;
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	o.pd->handle ^= 1;
	CHECK(vb_mr_check_local(&fake_node, id, mr->lkey, 0, 8, 0, &va));
	CHECK(!vb_dereg_mr(mr));
}

static void an_address_handle(void)
{
	struct ibv_ah_attr aa = {
	        .is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .dgid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 2}}};
	struct ibv_ah *ah = vb_create_ah(o.pd, &aa);

	CHECK(ah);
	SPOILT(ah, CHECK(vb_destroy_ah(ah) == ENOENT));
	CHECK(!vb_destroy_ah(ah));
}

static void a_completion_queue(void)
{
	struct ibv_cq *cq = vb_create_cq(o.ctx, 7, NULL, NULL, 0);

	SPOILT(cq, CHECK(vb_destroy_cq(cq) == ENOENT));
	SPOILT(cq, CHECK(vb_resize_cq(cq, 31) == EINVAL));
	SPOILT(cq, CHECK(vb_req_notify_cq(cq, 0) == EINVAL));
	SPOILT(cq,
	       NO(make_raw(&(struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = o.cq}), EINVAL));
	SPOILT(cq,
	       NO(make_raw(&(struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .send_cq = o.cq, .recv_cq = cq}), EINVAL));
	CHECK(cq->cqe == 8 && !vb_req_notify_cq(cq, 0) && !vb_destroy_cq(cq));
}

static void a_domain_of_threads_or_of_a_parent(void)
{
	struct ibv_td *td = vb_alloc_td(o.ctx, &(struct ibv_td_init_attr){0});
	struct ibv_parent_domain_init_attr pa = {.pd = o.pd, .td = td};
	struct ibv_pd *parent = vb_alloc_parent_domain(o.ctx, &pa);
	struct ibv_cq_init_attr_ex ca = {.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};

	SPOILT(parent, NO(vb_create_cq_ex(o.ctx, &ca), EINVAL));
	td->context = other;
	CHECK(vb_dealloc_td(td) == ENOENT);
	NO(vb_alloc_parent_domain(other, &pa), EINVAL);
	NO(vb_alloc_parent_domain(o.ctx, &pa), EINVAL);
	td->context = o.ctx;
	CHECK(!vb_dealloc_pd(parent) && !vb_dealloc_td(td));
}

/* Its events come by its descriptor, so that they can be read with another context, too, as in rdma-core. */
static void a_completion_channel(void)
{
	struct ibv_comp_channel *ch = vb_create_comp_channel(o.ctx);
	struct ibv_cq *cq = vb_create_cq(o.ctx, 4, NULL, ch, 0), *ready = NULL;
	void *context;

	CHECK(cq && !vb_req_notify_cq(cq, 0));
	vb_cq_push(vb_cq(cq), &(struct vb_cqe){0}, false);
	ch->context = other;
	NO(vb_create_cq(o.ctx, 4, NULL, ch, 0), EINVAL);
	NO(vb_create_cq(other, 4, NULL, ch, 0), EINVAL);
	CHECK(!vb_get_cq_event(ch, &ready, &context) && ready == cq);
	vb_ack_cq_events(cq, 1);
	CHECK(!vb_destroy_cq(cq) && vb_destroy_comp_channel(ch) == ENOENT);
	ch->context = o.ctx;
	CHECK(!vb_destroy_comp_channel(ch));
}

static void a_shared_receive_queue(void)
{
	struct ibv_srq_attr a = {.max_wr = 8};

	SPOILT(srq, CHECK(vb_destroy_srq(srq) == ENOENT));
	SPOILT(srq, CHECK(vb_query_srq(srq, &a) == EINVAL));
	SPOILT(srq, CHECK(vb_modify_srq(srq, &a, IBV_SRQ_MAX_WR) == EINVAL));
	SPOILT(srq, NO(make_raw(&(struct ibv_qp_init_attr){
	                       .qp_type = IBV_QPT_RC, .send_cq = o.cq, .recv_cq = o.cq, .srq = srq}),
	               EINVAL));
	CHECK(!vb_query_srq(srq, &a) && a.max_wr == 4);
}

static void a_queue_pair(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_init_attr init;
	union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 1}};
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_UD, NULL);

	SPOILT(qp, CHECK(vb_destroy_qp(qp) == ENOENT));
	SPOILT(qp, CHECK(vb_query_qp(qp, &a, 0, &init) == EINVAL));
	SPOILT(qp, CHECK(vb_modify_qp(qp, &a, IBV_QP_STATE) == EINVAL));
	SPOILT(qp, CHECK(vb_attach_mcast(qp, &group, 0) == EINVAL));
	SPOILT(qp, CHECK(vb_detach_mcast(qp, &group, 0) == EINVAL));
	qp->qp_num++;
	CHECK(vb_destroy_qp(qp) == ENOENT && vb_query_qp(qp, &a, 0, &init) == EINVAL);
	qp->qp_num--;
	CHECK(!vb_query_qp(qp, &a, 0, &init) && !vb_destroy_qp(qp));
}

#ifndef VB_SANITIZED
/* Sanitizers end a program that does this. */
static void destroyed_objects(void)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .send_cq = o.cq, .recv_cq = o.cq};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_ah_attr aa = {
	        .is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .dgid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 2}}};
	struct ibv_pd *pd = vb_alloc_pd(o.ctx);
	struct ibv_mr *mr = vb_reg_mr(pd, buf, 8, 0, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_ah *ah = vb_create_ah(pd, &aa);
	struct ibv_srq *gone = vb_create_srq(pd, &sa);
	struct ibv_cq *cq = vb_create_cq(o.ctx, 4, NULL, NULL, 0);
	struct ibv_qp *qp = make_raw(&qa);
	struct ibv_comp_channel *ch = vb_create_comp_channel(o.ctx);
	struct ibv_td *td = vb_alloc_td(o.ctx, &(struct ibv_td_init_attr){0});
	struct ibv_parent_domain_init_attr pa = {.pd = pd, .td = td};
	struct ibv_pd *parent = vb_alloc_parent_domain(o.ctx, &pa);
	struct ibv_cq_init_attr_ex ca = {.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
	void *context;

	CHECK(!vb_destroy_qp(qp) && vb_destroy_qp(qp) == ENOENT);
	CHECK(vb_modify_qp(qp, &init, IBV_QP_STATE) == EINVAL);
	CHECK(vb_query_qp(qp, &init, 0, &qa) == EINVAL);
	CHECK(!vb_dereg_mr(mr) && vb_dereg_mr(mr) == ENOENT);
	CHECK(!vb_destroy_ah(ah) && vb_destroy_ah(ah) == ENOENT);
	CHECK(!vb_destroy_srq(gone) && vb_destroy_srq(gone) == ENOENT);
	CHECK(!vb_destroy_cq(cq) && vb_destroy_cq(cq) == ENOENT);
	CHECK(vb_resize_cq(cq, 8) == EINVAL && vb_req_notify_cq(cq, 0) == EINVAL);
	CHECK(!vb_dealloc_pd(parent) && vb_dealloc_pd(parent) == ENOENT);
	NO(vb_create_cq_ex(o.ctx, &ca), EINVAL);
	CHECK(!vb_dealloc_td(td) && vb_dealloc_td(td) == ENOENT);
	NO(vb_alloc_parent_domain(o.ctx, &pa), EINVAL);
	CHECK(!vb_destroy_comp_channel(ch) && vb_destroy_comp_channel(ch) == ENOENT);
	NO(vb_create_cq(o.ctx, 4, NULL, ch, 0), EINVAL);
	CHECK(vb_get_cq_event(ch, &cq, &context) == -1 && errno == EBADF);
	CHECK(!vb_dealloc_pd(pd) && vb_dealloc_pd(pd) == ENOENT);
	NO(vb_reg_mr(pd, buf, 8, 0, 0), EINVAL);
	NO(vb_create_srq(pd, &sa), EINVAL);
	NO(make_raw(&(struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = o.cq}), EINVAL);
}
#endif

int main(void)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};

	o = open_objects(IBV_QPT_RC);
	other = vb_open_device(&fake_device.dev);
	srq = vb_create_srq(o.pd, &sa);
	CHECK(other && srq);
	int nodes = fake.nodes;

	RUN(a_protection_domain);
	RUN(a_region);
	RUN(a_domain_that_was_written_to_later_is_the_same);
	RUN(an_address_handle);
	RUN(a_domain_of_threads_or_of_a_parent);
	RUN(a_completion_queue);
	RUN(a_completion_channel);
	RUN(a_shared_receive_queue);
	RUN(a_queue_pair);
#ifndef VB_SANITIZED
	RUN(destroyed_objects);
#endif
	fake.nodes = nodes;
	CHECK(!vb_destroy_srq(srq) && !vb_close_device(other));
	close_objects(&o);
}
