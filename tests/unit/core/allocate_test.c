// allocate_test.c - parent domains with the program's allocators
// follows: ibv_alloc_parent_domain(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/allocate.h"

static struct ibv_context *ctx;
static struct ibv_pd *pd, *parent;

/* What the allocators were called with. */
static struct {
	int alive, calls;
	size_t size, alignment;
	enum { GIVES, GIVES_DEFAULT, GIVES_NOTHING, GIVES_CROOKED } mode;
	bool forbidden;
} seen;

static void *take_memory(struct ibv_pd *of, void *context, size_t size, size_t alignment, uint64_t type)
{
	CHECK(of == parent && context == &seen && type >= VB_RESOURCE_QP && type <= VB_RESOURCE_WQ && size);
	CHECK(!seen.forbidden && !atomic_load(&fake_node.progress.held));
	seen.calls++;
	seen.size = size;
	seen.alignment = alignment;
	if (seen.mode == GIVES_DEFAULT)
		return IBV_ALLOCATOR_USE_DEFAULT;
	if (seen.mode == GIVES_NOTHING)
		return NULL;
	char *p = aligned_alloc(alignment, (size + 2 * alignment - 1) / alignment * alignment);

	memset(p, 0xa5, size);
	seen.alive++;
	return seen.mode == GIVES_CROOKED ? p + 1 : p;
}

static void give_memory(struct ibv_pd *of, void *context, void *ptr, uint64_t type)
{
	CHECK(of == parent && context == &seen && type >= VB_RESOURCE_QP && type <= VB_RESOURCE_WQ);
	CHECK(!atomic_load(&fake_node.progress.held));
	seen.alive--;
	free(seen.mode == GIVES_CROOKED ? (char *)ptr - 1 : ptr);
}

static void domain_make(int mode)
{
	struct ibv_parent_domain_init_attr a = {.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
	                                                     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	                                        .alloc = take_memory,
	                                        .free = give_memory,
	                                        .pd_context = &seen};

	memset(&seen, 0, sizeof(seen));
	seen.mode = mode;
	a.pd = pd;
	CHECK((parent = vb_alloc_parent_domain(ctx, &a)) && !seen.calls);
}

static void domain_end(void)
{
	SAME(vb_dealloc_pd(parent), 0);
	SAME(seen.alive, 0);
}

static struct ibv_cq *cq_make(void)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};

	return (struct ibv_cq *)vb_create_cq_ex(ctx, &a);
}

static struct ibv_srq *srq_make(void)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 8, .max_sge = 2}};

	return vb_create_srq(parent, &a);
}

static struct ibv_wq *wq_make(struct ibv_cq *cq)
{
	struct ibv_wq_init_attr a = {.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 2, .pd = parent, .cq = cq};
	struct ibv_wq *wq = vb_create_wq(ctx, &a);

	if (wq) { /* as ibv_create_wq, inline in the program */
		pthread_mutex_init(&wq->mutex, NULL);
		pthread_cond_init(&wq->cond, NULL);
	}
	return wq;
}

static struct ibv_qp *qp_make(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .cap = {8, 8, 2, 2, 64}, .qp_type = IBV_QPT_RC};

	return vb_create_qp(parent, &a);
}

static void push_and_poll(struct ibv_cq *cq)
{
	struct vb_cqe e = {.wc.wr_id = 7};
	struct ibv_wc wc;

	vb_cq_push(vb_cq(cq), &e, false);
	CHECK(vb_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == 7);
}

static void all_queues_lie_in_the_programs_memory(void)
{
	struct ibv_recv_wr wr = {0}, *bad;

	domain_make(GIVES);
	struct ibv_cq *cq = cq_make();
	CHECK(cq && seen.calls == 1 && seen.size >= 8 * sizeof(struct vb_cqe) && seen.alignment == 64);
	struct ibv_srq *srq = srq_make();
	CHECK(srq && seen.calls == 2);
	struct ibv_qp *qp = qp_make(cq);
	CHECK(qp && seen.calls == 3 && seen.alive == 3);
	struct ibv_wq *wq = wq_make(cq);
	CHECK(wq && seen.calls == 4 && seen.alive == 4);
	SAME(vb_destroy_wq(wq), 0);
	CHECK(seen.alive == 3);
	seen.calls--;
	push_and_poll(cq);
	SAME(vb_resize_cq(cq, 64), 0);
	CHECK(seen.calls == 4 && seen.alive == 3 && cq->cqe == 64);
	push_and_poll(cq);
	SAME(vb_post_srq_recv(srq, &wr, &bad), 0);
	SAME(vb_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 32}, IBV_SRQ_MAX_WR), 0);
	CHECK(seen.calls == 5 && seen.alive == 3);
	seen.forbidden = true; /* nothing is allocated later */
	to_state(qp, IBV_QPS_INIT);
	for (int i = 0; i < 8; i++)
		SAME(vb_post_recv(qp, &wr, &bad), 0);
	SAME(vb_dealloc_pd(parent), EBUSY);
	CHECK(!vb_destroy_qp(qp) && !vb_destroy_srq(srq) && !vb_destroy_cq(cq));
	domain_end();
}

static void the_program_may_leave_it_to_the_adapter(void)
{
	domain_make(GIVES_DEFAULT);
	struct ibv_cq *cq = cq_make();
	struct ibv_srq *srq = srq_make();
	struct ibv_qp *qp = qp_make(cq);

	CHECK(cq && srq && qp && seen.calls == 3);
	push_and_poll(cq);
	SAME(vb_resize_cq(cq, 64), 0);
	CHECK(!vb_destroy_qp(qp) && !vb_destroy_srq(srq) && !vb_destroy_cq(cq));
	domain_end();
}

static void the_programs_failure_is_the_calls(void)
{
	static const int modes[] = {GIVES_NOTHING, GIVES_CROOKED}, errors[] = {ENOMEM, EINVAL};

	for (int i = 0; i < 2; i++) {
		struct ibv_cq *cq = vb_create_cq(ctx, 8, NULL, NULL, 0);

		domain_make(modes[i]);
		CHECK(!cq_make() && errno == errors[i]);
		CHECK(!srq_make() && errno == errors[i]);
		CHECK(!qp_make(cq) && errno == errors[i]);
		CHECK(!wq_make(cq) && errno == errors[i]);
		seen.mode = GIVES;
		struct ibv_cq *mine = cq_make();
		struct ibv_srq *srq = srq_make();
		seen.mode = modes[i];
		SAME(vb_resize_cq(mine, 64), errors[i]);
		SAME(vb_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 32}, IBV_SRQ_MAX_WR), errors[i]);
		CHECK(mine->cqe == 8 && fake_node.cq_count == 2);
		push_and_poll(mine);
		seen.mode = GIVES;
		CHECK(!vb_destroy_srq(srq) && !vb_destroy_cq(mine) && !vb_destroy_cq(cq));
		domain_end();
	}
}

static void both_allocators_are_needed(void)
{
	struct ibv_parent_domain_init_attr a = {.pd = pd, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS};

	a.alloc = take_memory;
	CHECK(!vb_alloc_parent_domain(ctx, &a) && errno == EINVAL);
	a.alloc = NULL;
	a.free = give_memory;
	CHECK(!vb_alloc_parent_domain(ctx, &a) && errno == EINVAL);
}

int main(void)
{
	ctx = vb_open_device(&fake_device.dev);
	int nodes = fake.nodes;

	CHECK((pd = vb_alloc_pd(ctx)));
	RUN(all_queues_lie_in_the_programs_memory);
	RUN(the_program_may_leave_it_to_the_adapter);
	RUN(the_programs_failure_is_the_calls);
	RUN(both_allocators_are_needed);
	fake.nodes = nodes;
	CHECK(!vb_dealloc_pd(pd) && !vb_close_device(ctx) && !fake.nodes);
}
