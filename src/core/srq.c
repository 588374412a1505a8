// srq.c - shared receive queues
// follows: IBA volume 1, 10.2.9, 11.2.3 (shared receive queue), annex A14 (XRC SRQ); ibv_create_srq(3), ibv_modify_srq(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/async.h"
#include "core/context.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/rq.h"
#include "core/tm.h"
#include "core/verbs.h"
#include "core/xrc.h"

/* Allocates room for max_wr receives of max_sge each, in one block that begins at rq->wqe. */
static int rq_alloc(struct vb_pd *pd, struct vb_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	uint32_t slots = vb_pow2(max_wr ? max_wr : 1);
	size_t wqes = slots * sizeof(*rq->wqe);

	size_t size = wqes + (size_t)slots * max_sge * sizeof(*rq->sge);
	int err = vb_memory_ask(pd, size, VB_RESOURCE_SRQ, &rq->theirs);

	if (err)
		return err;
	rq->wqe = rq->theirs ? rq->theirs : calloc(1, size);
	if (!rq->wqe)
		return ENOMEM;
	rq->sge = (struct ibv_sge *)((char *)rq->wqe + wqes);
	rq->mask = slots - 1;
	rq->max_wr = slots;
	rq->max_sge = max_sge;
	rq->shared = true;
	return 0;
}

static void rq_free(struct vb_pd *pd, void *wqe, void *theirs)
{
	if (theirs)
		vb_memory_give(pd, theirs, VB_RESOURCE_SRQ);
	else
		free(wqe);
}

static int check_srq_attr(const struct ibv_srq_attr *attr)
{
	return !attr->max_wr || attr->max_wr > VB_MAX_SRQ_WR || attr->max_sge > VB_MAX_SRQ_SGE ? EINVAL : 0;
}

/* NULL with errno on failure. */
static struct vb_srq *srq_new(struct vb_node *node, struct vb_pd *pd, const struct ibv_srq_attr *attr)
{
	struct vb_srq *srq = calloc(1, sizeof(*srq));
	int err = ENOMEM;

	if (!srq)
		return NULL;
	if (atomic_fetch_add(&node->srq_count, 1) < VB_MAX_SRQ)
		err = rq_alloc(pd, &srq->rq, attr->max_wr, attr->max_sge ? attr->max_sge : 1);
	if (err) {
		atomic_fetch_sub(&node->srq_count, 1);
		free(srq);
		errno = err;
		return NULL;
	}
	srq->srq.handle = atomic_fetch_add(&node->srq_next, 1) + 1;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	pthread_mutex_init(&srq->ack_lock, NULL);
	pthread_cond_init(&srq->ack_cond, NULL);
	vb_lock_init(&srq->rq.lock, VB_RANK_RQ);
	return srq;
}

struct ibv_srq *vb_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct vb_context *ctx = vb_ctx(pd->context);
	int err = vb_pd_is_sound(pd) ? check_srq_attr(&attr->attr) : EINVAL;

	if (!err)
		err = vb_context_fault(ctx, VB_FAULT_CREATE_SRQ);
	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_srq *srq = srq_new(ctx->node, vb_pd(pd), &attr->attr);

	if (!srq)
		return NULL;
	srq->srq.context = pd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = pd;
	srq->node = ctx->node;
	srq->pd = vb_pd(pd);
	srq->made = VB_MADE(srq->srq);
	atomic_fetch_add(&srq->pd->users, 1);
	attr->attr.max_wr = srq->rq.max_wr;
	attr->attr.max_sge = srq->rq.max_sge;
	return &srq->srq;
}

static bool is_xrc(const struct ibv_srq_init_attr_ex *attr)
{
	return (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_XRC;
}

static bool is_tagged(const struct ibv_srq_init_attr_ex *attr)
{
	return (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_TM;
}

static bool has_xrc_parts(const struct ibv_context *context, const struct ibv_srq_init_attr_ex *attr)
{
	return (attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) && vb_xrcd_is_of(attr->xrcd, context) &&
	       (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) && attr->cq && attr->cq->context == context &&
	       vb_cq_is_sound(attr->cq);
}

/* Makes a new SRQ an XRC one. Returns 0 or errno; then it is a basic one still. */
static int enter_domain(struct vb_srq *srq, const struct ibv_srq_init_attr_ex *attr)
{
	srq->xrcd = vb_xrcd(attr->xrcd);
	srq->cq = vb_cq(attr->cq);
	int err = vb_xrc_srq_enter(srq);

	if (err) {
		srq->xrcd = NULL;
		return err;
	}
	atomic_fetch_add(&srq->xrcd->users, 1);
	atomic_fetch_add(&srq->cq->users, 1);
	return 0;
}

static void leave_domain(struct vb_srq *srq)
{
	vb_xrc_srq_leave(srq);
	atomic_fetch_sub(&srq->xrcd->users, 1);
	atomic_fetch_sub(&srq->cq->users, 1);
}

struct ibv_srq *vb_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr basic = {.srq_context = attr->srq_context, .attr = attr->attr};
	bool typed = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE;
	int err = 0;

	if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		err = EINVAL;
	else if (typed && (uint32_t)attr->srq_type > IBV_SRQT_TM)
		err = EOPNOTSUPP;
	else if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		err = EINVAL;
	else if (is_xrc(attr) && !has_xrc_parts(context, attr))
		err = EINVAL;
	else if (is_tagged(attr))
		err = vb_tm_check(context, attr);
	if (err) {
		errno = err;
		return NULL;
	}
	struct ibv_srq *srq = vb_create_srq(attr->pd, &basic);

	if (srq && is_xrc(attr))
		err = enter_domain(vb_srq(srq), attr);
	else if (srq && is_tagged(attr))
		err = vb_tm_enter(vb_srq(srq), attr);
	if (err) {
		vb_destroy_srq(srq);
		errno = err;
		return NULL;
	}
	if (srq)
		attr->attr = basic.attr;
	return srq;
}

/* Moves the receives to a ring of another size. Under progress (the responder is not running) and rq->lock. */
static void move_ring(struct vb_rq *from, struct vb_rq *to)
{
	uint32_t head = atomic_load(&from->head), n = atomic_load(&from->tail) - head;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t old = (head + i) & from->mask;

		to->wqe[i] = from->wqe[old];
		memcpy(&to->sge[(size_t)i * to->max_sge], &from->sge[(size_t)old * from->max_sge],
		       from->max_sge * sizeof(*to->sge));
	}
	from->wqe = to->wqe;
	from->sge = to->sge;
	from->theirs = to->theirs;
	atomic_fetch_sub(&from->polled, head); /* keeps the number of receives that are consumed but not polled */
	from->mask = to->mask;
	from->max_wr = to->max_wr;
	atomic_store(&from->head, 0);
	atomic_store(&from->tail, n);
}

/* Changes both attributes, or neither. */
int vb_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct vb_srq *srq = vb_srq(ibsrq);
	struct vb_rq bigger = {0};
	int err = 0;

	if (!vb_srq_is_sound(ibsrq) || (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR) {
		if (!attr->max_wr || attr->max_wr > VB_MAX_SRQ_WR)
			return EINVAL;
		err = rq_alloc(srq->pd, &bigger, attr->max_wr, srq->rq.max_sge);
		if (err)
			return err;
	}
	void *unused = bigger.wqe, *unused_theirs = bigger.theirs;
	vb_lock(&srq->node->progress);
	vb_lock(&srq->rq.lock);
	if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > (bigger.wqe ? bigger.max_wr : srq->rq.max_wr))
		err = EINVAL;
	if (bigger.wqe && vb_rq_count(&srq->rq) > bigger.max_wr)
		err = EINVAL;
	if (!err && bigger.wqe) {
		unused = srq->rq.wqe;
		unused_theirs = srq->rq.theirs;
		move_ring(&srq->rq, &bigger);
	}
	if (!err && (mask & IBV_SRQ_LIMIT))
		atomic_store(&srq->limit, attr->srq_limit);
	vb_unlock(&srq->rq.lock);
	vb_unlock(&srq->node->progress);
	rq_free(srq->pd, unused, unused_theirs);
	return err;
}

int vb_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct vb_srq *srq = vb_srq(ibsrq);

	if (!vb_srq_is_sound(ibsrq))
		return EINVAL;
	vb_lock(&srq->rq.lock);
	*attr = (struct ibv_srq_attr){
	        .max_wr = srq->rq.max_wr, .max_sge = srq->rq.max_sge, .srq_limit = atomic_load(&srq->limit)};
	vb_unlock(&srq->rq.lock);
	return 0;
}

int vb_destroy_srq(struct ibv_srq *ibsrq)
{
	struct vb_srq *srq = vb_srq(ibsrq);

	if (!vb_srq_is_sound(ibsrq))
		return ENOENT;
	if (atomic_load(&srq->users))
		return EBUSY;
	if (srq->xrcd)
		leave_domain(srq);
	if (srq->tm)
		vb_tm_leave(srq);
	vb_async_forget(VB_CONTEXT_OF(srq), IBV_EVENT_SRQ_ERR, srq);
	rq_free(srq->pd, srq->rq.wqe, srq->rq.theirs);
	vb_pd_drop(srq->pd);
	atomic_fetch_sub(&srq->node->srq_count, 1);
	pthread_mutex_destroy(&ibsrq->mutex);
	pthread_cond_destroy(&ibsrq->cond);
	pthread_mutex_destroy(&srq->ack_lock);
	pthread_cond_destroy(&srq->ack_cond);
	vb_object_free(srq, &srq->made);
	return 0;
}

int vb_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct vb_srq *srq = vb_srq(ibsrq);

	vb_lock(&srq->rq.lock);
	int err = vb_rq_post(&srq->rq, wr, bad_wr);
	vb_unlock(&srq->rq.lock);
	return err;
}

/* The event disarms the limit, which is 0 afterwards (IBA 10.2.9.1). */
void vb_srq_check_limit(struct vb_srq *srq)
{
	uint32_t limit = atomic_load_explicit(&srq->limit, memory_order_relaxed);

	if (!limit || vb_rq_count(&srq->rq) >= limit)
		return;
	if (atomic_compare_exchange_strong(&srq->limit, &limit, 0))
		vb_async_raise(VB_CONTEXT_OF(srq), IBV_EVENT_SRQ_LIMIT_REACHED, &srq->srq);
}
