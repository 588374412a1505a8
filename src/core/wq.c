// wq.c - work queues: receive queues that belong to no queue pair
// follows: ibv_create_wq(3), ibv_modify_wq(3)
// SPDX-License-Identifier: MIT
#include "core/wq.h"

#include <errno.h>
#include <stdlib.h>

#include "core/allocate.h"
#include "core/arrival.h"
#include "core/async.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/inbound.h"
#include "core/node.h"
#include "core/rq.h"
#include "core/verbs.h"
#include "fault/set.h"

/* Work queues have the numbers of lane 0, where no program has queue pairs. So a completion's qp_num names one thing. 0
 * and 1 are the numbers of queue pairs of each adapter. */
#define FIRST_NUMBER 2u
#define NUMBERS (1u << VB_LANE_SHIFT)
_Static_assert(VB_MAX_WQ <= NUMBERS - FIRST_NUMBER, "a number for each");

static struct vb_wq *wq_of(struct ibv_wq *wq)
{
	return (struct vb_wq *)wq;
}

bool vb_wq_is_sound(const struct ibv_wq *wq)
{
	return VB_IS_SOUND((const struct vb_wq *)wq, wq);
}

/* --- receiving, flushing: under progress --- */

/* a: what has arrived, if status is success. */
static void complete_receive(struct vb_wq *wq, uint64_t wr_id, enum ibv_wc_status status, const struct vb_arrival *a)
{
	struct vb_cqe cqe = {
	        .wc = {.wr_id = wr_id, .status = status, .opcode = IBV_WC_RECV, .qp_num = wq->number},
	        .receive = &wq->rq,
	};

	if (status == IBV_WC_SUCCESS)
		vb_arrival_complete(a, &cqe.wc);
	vb_cq_push(wq->cq, &cqe, status != IBV_WC_SUCCESS);
}

bool vb_wq_take(struct vb_wq *wq, struct vb_arrival *a)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct vb_rwqe w;
	struct ibv_sge *sges;

	if (atomic_load_explicit(&wq->state, memory_order_relaxed) != IBV_WQS_RDY || !vb_rq_peek(&wq->rq, &w, &sges))
		return false;
	vb_arrive(a, wq->wants);
	if (a->len > w.length)
		status = IBV_WC_LOC_LEN_ERR;
	else if (!vb_scatter_store(wq->node, vb_pd_id(wq->pd), sges, w.num_sge, a->frame, a->len))
		status = IBV_WC_LOC_PROT_ERR;
	vb_rq_advance(&wq->rq);
	complete_receive(wq, w.wr_id, status, a);
	return true;
}

static void set_wq_state(struct vb_wq *wq, enum ibv_wq_state state)
{
	__atomic_store_n(&wq->wq.state, state, __ATOMIC_RELAXED); /* programs read this field directly */
	atomic_store_explicit(&wq->state, (uint8_t)state, memory_order_release);
}

static void enter_error(struct vb_wq *wq)
{
	struct vb_rwqe w;
	struct ibv_sge *sges;

	set_wq_state(wq, IBV_WQS_ERR);
	vb_lock(&wq->rq.lock); /* post_receives reads the state under it, and flushes a receive that it posts later */
	while (vb_rq_peek(&wq->rq, &w, &sges)) {
		vb_rq_advance(&wq->rq);
		complete_receive(wq, w.wr_id, IBV_WC_WR_FLUSH_ERR, NULL);
	}
	vb_unlock(&wq->rq.lock);
}

/* Removes receives, and completions that are not polled yet, as with a queue pair. */
static void reset_queue(struct vb_wq *wq)
{
	set_wq_state(wq, IBV_WQS_RESET);
	vb_cq_clean_receives(wq->cq, &wq->rq);
	vb_lock(&wq->rq.lock);
	atomic_store(&wq->rq.head, 0);
	atomic_store(&wq->rq.tail, 0);
	atomic_store(&wq->rq.polled, 0);
	vb_unlock(&wq->rq.lock);
}

void vb_wq_end_overrun(struct vb_node *node)
{
	for (struct vb_wq *wq = node->wqs; wq; wq = wq->next) {
		if (atomic_load(&wq->state) != IBV_WQS_RDY || !atomic_load(&wq->cq->overrun))
			continue;
		enter_error(wq);
		vb_async_raise(VB_CONTEXT_OF(wq), IBV_EVENT_WQ_FATAL, &wq->wq);
	}
}

void vb_wq_end_device(struct vb_node *node, const struct vb_device *dev)
{
	for (struct vb_wq *wq = node->wqs; wq; wq = wq->next)
		if (VB_CONTEXT_OF(wq)->dev == dev && atomic_load(&wq->state) == IBV_WQS_RDY)
			enter_error(wq);
}

/* --- posting --- */

static void flush_late(struct vb_wq *wq)
{
	vb_lock(&wq->node->progress);
	if (atomic_load(&wq->state) == IBV_WQS_ERR)
		enter_error(wq);
	vb_unlock(&wq->node->progress);
}

static int post_receives(struct ibv_wq *ibwq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct vb_wq *wq = wq_of(ibwq);
	int err = EINVAL;

	vb_lock(&wq->rq.lock);
	uint8_t state = atomic_load_explicit(&wq->state, memory_order_relaxed);

	if (state == IBV_WQS_RESET)
		*bad_wr = wr;
	else
		err = vb_rq_post(&wq->rq, wr, bad_wr);
	vb_unlock(&wq->rq.lock);
	if (__builtin_expect(state == IBV_WQS_ERR, 0))
		flush_late(wq);
	return err;
}

static int faulty_post_receives(struct ibv_wq *ibwq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	int err = vb_fault_ask_verb(VB_FAULT_POST_RECV, VB_CONTEXT_OF(wq_of(ibwq))->dev->dev.name);

	if (!err)
		return post_receives(ibwq, wr, bad_wr);
	*bad_wr = wr;
	return err;
}

/* Under progress. */
static void arm_queue(struct vb_wq *wq)
{
	/* programs read this at any time */
	__atomic_store_n(&wq->wq.post_recv, vb_fault_is_armed(VB_FAULT_ARM_VERB) ? faulty_post_receives : post_receives,
	                 __ATOMIC_RELAXED);
}

void vb_wq_arm_all(struct vb_node *node)
{
	vb_lock(&node->progress);
	for (struct vb_wq *wq = node->wqs; wq; wq = wq->next)
		arm_queue(wq);
	vb_unlock(&node->progress);
}

/* --- creation --- */

static uint32_t wq_flags(const struct ibv_wq_init_attr *attr)
{
	return attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS ? attr->create_flags : 0;
}

static int check_wq_attr(const struct ibv_context *context, const struct ibv_wq_init_attr *attr)
{
	if (!vb_device_has_raw_packets(vb_device_of(context->device))) /* there is no use for it */
		return EOPNOTSUPP;
	if (attr->comp_mask >= IBV_WQ_INIT_ATTR_RESERVED || attr->wq_type != IBV_WQT_RQ)
		return EINVAL;
	if (wq_flags(attr) & ~(uint32_t)VB_ARRIVAL_FLAGS)
		return EOPNOTSUPP;
	if (!attr->pd || attr->pd->context != context || !vb_pd_is_sound(attr->pd))
		return EINVAL;
	if (!attr->cq || attr->cq->context != context || !vb_cq_is_sound(attr->cq))
		return EINVAL;
	return attr->max_wr && attr->max_wr <= VB_MAX_QP_WR && attr->max_sge <= VB_MAX_SGE ? 0 : EINVAL;
}

/* NULL with errno set on failure. */
static struct vb_wq *wq_new(struct vb_pd *pd, uint32_t max_wr, uint32_t max_sge)
{
	uint32_t slots = vb_pow2(max_wr);
	size_t receives = slots * sizeof(struct vb_rwqe);
	size_t size = receives + (size_t)slots * max_sge * sizeof(struct ibv_sge);
	struct vb_wq *wq = calloc(1, sizeof(*wq));
	int err = wq ? vb_memory_ask(pd, size, VB_RESOURCE_WQ, &wq->rq.theirs) : ENOMEM;

	if (!err)
		wq->rq.wqe = wq->rq.theirs ? wq->rq.theirs : calloc(1, size);
	if (!err && !wq->rq.wqe)
		err = ENOMEM;
	if (err) {
		free(wq);
		errno = err;
		return NULL;
	}
	wq->pd = pd;
	wq->rq.sge = (struct ibv_sge *)((char *)wq->rq.wqe + receives);
	wq->rq.max_wr = slots;
	wq->rq.mask = slots - 1;
	wq->rq.max_sge = max_sge;
	vb_lock_init(&wq->rq.lock, VB_RANK_RQ);
	pthread_mutex_init(&wq->ack_lock, NULL);
	pthread_cond_init(&wq->ack_cond, NULL);
	return wq;
}

static void wq_free(struct vb_wq *wq)
{
	pthread_mutex_destroy(&wq->ack_lock);
	pthread_cond_destroy(&wq->ack_cond);
	if (wq->rq.theirs)
		vb_memory_give(wq->pd, wq->rq.theirs, VB_RESOURCE_WQ);
	else
		free(wq->rq.wqe);
	vb_object_free(wq, &wq->made);
}

static bool number_is_used(const struct vb_node *node, uint32_t number)
{
	for (const struct vb_wq *wq = node->wqs; wq; wq = wq->next)
		if (wq->number == number)
			return true;
	return false;
}

/* Gives the queue the next free number, and makes it known. */
static int enter_node(struct vb_wq *wq)
{
	struct vb_node *node = wq->node;
	int err = ENOMEM;

	vb_lock(&node->progress);
	if (node->wq_count < VB_MAX_WQ) {
		do
			wq->number = FIRST_NUMBER + node->wq_next++ % (NUMBERS - FIRST_NUMBER);
		while (number_is_used(node, wq->number));
		wq->wq.wq_num = wq->number;
		wq->next = node->wqs;
		wq->prev = &node->wqs;
		if (wq->next)
			wq->next->prev = &wq->next;
		node->wqs = wq;
		node->wq_count++;
		arm_queue(wq); /* rules that are armed now see this queue, or this sees them */
		err = 0;
	}
	vb_unlock(&node->progress);
	return err;
}

static void leave_node(struct vb_wq *wq)
{
	struct vb_node *node = wq->node;

	vb_lock(&node->progress);
	reset_queue(wq);
	*wq->prev = wq->next;
	if (wq->next)
		wq->next->prev = wq->prev;
	node->wq_count--;
	vb_unlock(&node->progress);
}

struct ibv_wq *vb_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	static _Atomic uint32_t last;
	int err = check_wq_attr(context, attr);

	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_wq *wq = wq_new(vb_pd(attr->pd), attr->max_wr, attr->max_sge ? attr->max_sge : 1);

	if (!wq)
		return NULL;
	wq->wq.context = context;
	wq->wq.pd = attr->pd;
	wq->wq.cq = attr->cq;
	wq->wq.wq_type = attr->wq_type;
	wq->wq.handle = vb_handle_next(&last);
	wq->made = VB_MADE(wq->wq);
	wq->node = vb_ctx(context)->node;
	wq->cq = vb_cq(attr->cq);
	wq->wants = wq_flags(attr);
	err = enter_node(wq);
	if (err) {
		wq_free(wq);
		errno = err;
		return NULL;
	}
	atomic_fetch_add(&wq->pd->users, 1);
	atomic_fetch_add(&wq->cq->users, 1);
	attr->max_wr = wq->rq.max_wr;
	attr->max_sge = wq->rq.max_sge;
	return &wq->wq;
}

int vb_destroy_wq(struct ibv_wq *ibwq)
{
	struct vb_wq *wq = wq_of(ibwq);

	if (!vb_wq_is_sound(ibwq))
		return ENOENT;
	if (atomic_load(&wq->users)) /* it is in a table */
		return EBUSY;
	leave_node(wq);
	vb_async_forget(VB_CONTEXT_OF(wq), IBV_EVENT_WQ_FATAL, wq);
	atomic_fetch_sub(&wq->cq->users, 1);
	pthread_mutex_destroy(&ibwq->mutex); /* ibv_create_wq, inline in the program, has made these */
	pthread_cond_destroy(&ibwq->cond);
	struct vb_pd *pd = wq->pd;

	wq_free(wq);
	vb_pd_drop(pd); /* after the program's allocator has its memory back */
	return 0;
}

/* --- changes of state --- */

static bool change_is_allowed(unsigned cur, unsigned next)
{
	static const bool allowed[IBV_WQS_UNKNOWN][IBV_WQS_UNKNOWN] = {
	        [IBV_WQS_RESET] = {[IBV_WQS_RESET] = true, [IBV_WQS_RDY] = true},
	        [IBV_WQS_RDY] = {[IBV_WQS_RESET] = true, [IBV_WQS_RDY] = true, [IBV_WQS_ERR] = true},
	        [IBV_WQS_ERR] = {[IBV_WQS_RESET] = true, [IBV_WQS_ERR] = true},
	};

	return cur < IBV_WQS_UNKNOWN && next < IBV_WQS_UNKNOWN && allowed[cur][next];
}

/* Under progress. */
static int change_state(struct vb_wq *wq, const struct ibv_wq_attr *attr)
{
	unsigned cur = atomic_load(&wq->state);
	unsigned next = attr->attr_mask & IBV_WQ_ATTR_STATE ? (unsigned)attr->wq_state : cur;

	if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) && (unsigned)attr->curr_wq_state != cur)
		return EINVAL;
	if (!change_is_allowed(cur, next))
		return EINVAL;
	if (attr->attr_mask & IBV_WQ_ATTR_FLAGS)
		wq->wants = (wq->wants & ~attr->flags_mask) | (attr->flags & attr->flags_mask);
	if (!(attr->attr_mask & IBV_WQ_ATTR_STATE))
		return 0;
	if (next == IBV_WQS_RESET)
		reset_queue(wq);
	else if (next == IBV_WQS_ERR)
		enter_error(wq);
	else
		set_wq_state(wq, IBV_WQS_RDY);
	return 0;
}

int vb_modify_wq(struct ibv_wq *ibwq, struct ibv_wq_attr *attr)
{
	struct vb_wq *wq = wq_of(ibwq);

	if (!vb_wq_is_sound(ibwq) || !attr->attr_mask || attr->attr_mask >= IBV_WQ_ATTR_RESERVED)
		return EINVAL;
	if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) && (attr->flags_mask & ~(uint32_t)VB_ARRIVAL_FLAGS))
		return EOPNOTSUPP;
	vb_lock(&wq->node->progress);
	int err = change_state(wq, attr);
	vb_unlock(&wq->node->progress);
	return err;
}
