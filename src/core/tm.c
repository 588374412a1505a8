// tm.c - SRQs of tag matching: made and destroyed; tags are added and removed, and the two sides synchronised
// follows: rdma-core's Documentation/tag_matching.md; ibv_create_srq_ex(3), ibv_post_srq_ops(3)
// SPDX-License-Identifier: MIT
#include "core/tm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/cq.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"

#define FLAGS (IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC)

/* --- the SRQ --- */

int vb_tm_check(const struct ibv_context *context, const struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t needed = IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;

	if (vb_device_rc_only(vb_ctx((struct ibv_context *)context)->dev)) /* iWARP, which tm_caps says */
		return EOPNOTSUPP;
	if ((attr->comp_mask & needed) != needed || !attr->cq || attr->cq->context != context ||
	    !vb_cq_is_sound(attr->cq))
		return EINVAL;
	if (!attr->tm_cap.max_num_tags || attr->tm_cap.max_num_tags > VB_MAX_TAGS || !attr->tm_cap.max_ops ||
	    attr->tm_cap.max_ops > VB_MAX_TAG_OPS)
		return EINVAL;
	return 0;
}

static void enter_node(struct vb_tm *tm, struct vb_node *node)
{
	vb_lock(&node->progress);
	tm->next = node->tms;
	tm->prev = &node->tms;
	if (tm->next)
		tm->next->prev = &tm->next;
	node->tms = tm;
	vb_unlock(&node->progress);
}

int vb_tm_enter(struct vb_srq *srq, const struct ibv_srq_init_attr_ex *attr)
{
	uint32_t n = attr->tm_cap.max_num_tags;
	struct vb_tm *tm = calloc(1, sizeof(*tm) + n * sizeof(tm->tag[0]));

	if (!tm)
		return ENOMEM;
	tm->srq = srq;
	tm->max_tags = n;
	tm->max_ops = attr->tm_cap.max_ops;
	tm->listed_end = &tm->listed;
	tm->waiting_end = &tm->waiting;
	for (uint32_t i = n; i--;)
		vb_tag_free(tm, &tm->tag[i]);
	srq->tm = tm;
	srq->rq.tagged = true;
	srq->cq = vb_cq(attr->cq);
	atomic_fetch_add(&srq->cq->users, 1);
	enter_node(tm, srq->node);
	return 0;
}

void vb_tm_leave(struct vb_srq *srq)
{
	struct vb_tm *tm = srq->tm;

	vb_lock(&srq->node->progress);
	*tm->prev = tm->next;
	if (tm->next)
		tm->next->prev = tm->prev;
	vb_unlock(&srq->node->progress);
	vb_cq_clean_receives(srq->cq, &srq->rq);
	atomic_fetch_sub(&srq->cq->users, 1);
	srq->tm = NULL;
	free(tm);
}

void vb_tm_leaves(struct vb_rq *rq, enum ibv_wc_opcode opcode)
{
	if (opcode == IBV_WC_TM_ADD || opcode == IBV_WC_TM_DEL || opcode == IBV_WC_TM_SYNC)
		atomic_fetch_sub(&VB_UPCAST(rq, struct vb_srq, rq)->tm->ops, 1);
	else
		vb_rq_give_back(rq);
}

/* --- tags: under rq.lock --- */

void vb_tag_free(struct vb_tm *tm, struct vb_tag *t)
{
	t->state = VB_TAG_FREE;
	t->generation++; /* its handle is no longer valid */
	t->qp = NULL;
	t->next = tm->unused;
	tm->unused = t;
}

static bool in_step(const struct vb_tm *tm)
{
	return tm->unexpected == tm->handled;
}

/* The program has seen all unexpected messages, and knows that none of them is for a tag that it has added since. */
static void enable_tags(struct vb_tm *tm)
{
	for (struct vb_tag *t = tm->listed; t && in_step(tm); t = t->next)
		t->enabled = true;
}

void vb_tm_uncount(struct vb_tm *tm)
{
	vb_lock(&tm->srq->rq.lock);
	tm->unexpected--;
	enable_tags(tm);
	vb_unlock(&tm->srq->rq.lock);
}

static uint32_t handle_of(const struct vb_tm *tm, const struct vb_tag *t)
{
	return (uint32_t)t->generation << 16 | (uint32_t)(t - tm->tag);
}

static int check_add(const struct vb_tm *tm, const struct ibv_ops_wr *wr)
{
	if (wr->tm.add.num_sge < 0 || wr->tm.add.num_sge > VB_MAX_TAG_SGE)
		return EINVAL;
	return tm->unused ? 0 : ENOMEM;
}

static void add_tag(struct vb_tm *tm, struct ibv_ops_wr *wr)
{
	struct vb_tag *t = tm->unused;

	tm->unused = t->next;
	t->next = NULL;
	t->tag = wr->tm.add.tag;
	t->mask = wr->tm.add.mask;
	t->wr_id = wr->tm.add.recv_wr_id;
	t->num_sge = (uint32_t)wr->tm.add.num_sge;
	t->length = 0;
	for (uint32_t i = 0; i < t->num_sge; i++) {
		t->sge[i] = wr->tm.add.sg_list[i];
		t->length += t->sge[i].length;
	}
	t->state = VB_TAG_LISTED;
	t->enabled = in_step(tm);
	*tm->listed_end = t;
	tm->listed_end = &t->next;
	wr->tm.handle = handle_of(tm, t);
}

/* A tag that a message has taken, or that was removed before, is not there. */
static enum ibv_wc_status remove_tag(struct vb_tm *tm, uint32_t handle)
{
	struct vb_tag **at = &tm->listed, *t;

	while (*at && handle_of(tm, *at) != handle)
		at = &(*at)->next;
	t = *at;
	if (!t)
		return IBV_WC_TM_ERR;
	*at = t->next;
	if (!*at)
		tm->listed_end = at;
	vb_tag_free(tm, t);
	return IBV_WC_SUCCESS;
}

/* --- ibv_post_srq_ops --- */

static void tell_op(struct vb_tm *tm, const struct ibv_ops_wr *wr, enum ibv_wc_opcode opcode, enum ibv_wc_status status)
{
	struct vb_cqe cqe = {.wc = {.wr_id = wr->wr_id,
	                            .status = status,
	                            .opcode = opcode,
	                            .wc_flags = in_step(tm) ? 0 : IBV_WC_TM_SYNC_REQ},
	                     .receive = &tm->srq->rq};

	atomic_fetch_add(&tm->ops, 1);
	vb_cq_push(tm->srq->cq, &cqe, false);
}

static void take_count(struct vb_tm *tm, uint32_t handled)
{
	tm->handled = (uint16_t)handled; /* 16 bits of it count, as with mlx5 */
	enable_tags(tm);
}

/* Executes one operation, which completes at once. Under rq.lock. */
static int do_op(struct vb_tm *tm, struct ibv_ops_wr *wr)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	enum ibv_wc_opcode opcode = IBV_WC_TM_ADD;
	bool sync = wr->flags & IBV_OPS_TM_SYNC;
	int err;

	if (wr->flags & ~FLAGS)
		return EINVAL;
	if ((wr->flags & IBV_OPS_SIGNALED) && atomic_load(&tm->ops) >= tm->max_ops)
		return ENOMEM;
	switch (wr->opcode) {
	case IBV_WR_TAG_ADD:
		err = check_add(tm, wr);
		if (err)
			return err;
		if (sync) /* first, because the tag counts from then on */
			take_count(tm, wr->tm.unexpected_cnt);
		add_tag(tm, wr);
		break;
	case IBV_WR_TAG_DEL:
		opcode = IBV_WC_TM_DEL;
		if ((wr->tm.handle & 0xffff) >= tm->max_tags)
			return EINVAL;
		status = remove_tag(tm, wr->tm.handle);
		if (sync)
			take_count(tm, wr->tm.unexpected_cnt);
		break;
	case IBV_WR_TAG_SYNC: /* which has no other purpose */
		opcode = IBV_WC_TM_SYNC;
		take_count(tm, wr->tm.unexpected_cnt);
		break;
	default:
		return EINVAL;
	}
	if (wr->flags & IBV_OPS_SIGNALED)
		tell_op(tm, wr, opcode, status);
	return 0;
}

int vb_post_srq_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad_wr)
{
	struct vb_srq *srq = vb_srq(ibsrq);
	int err = srq->tm ? 0 : EINVAL;

	vb_lock(&srq->rq.lock);
	while (!err && wr) {
		err = do_op(srq->tm, wr);
		if (!err)
			wr = wr->next;
	}
	vb_unlock(&srq->rq.lock);
	if (err)
		*bad_wr = wr;
	return err;
}
