// cntr.c - completion counters, which count what completes with or without a completion queue entry
// follows: rdma-core 65, ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), ibv_query_comp_cntr_caps(3)
// SPDX-License-Identifier: MIT
#include "core/cntr.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"

struct vb_cntr {
	struct vb_comp_cntr cntr;
	struct vb_made made;
	uint32_t type;
	_Atomic uint64_t done, failed; /* requests, or bytes; requests */
	atomic_uint users;             /* queue pairs and operations that it is attached to */
};

static struct vb_cntr *cntr_of(struct vb_comp_cntr *c)
{
	return (struct vb_cntr *)c;
}

static bool cntr_is_sound(const struct vb_comp_cntr *c)
{
	return VB_IS_SOUND((const struct vb_cntr *)c, cntr);
}

/* --- counting --- */

static void cntr_add(struct vb_cntr *c, enum ibv_wc_status status, unsigned n, uint64_t bytes)
{
	if (status == IBV_WC_SUCCESS)
		atomic_fetch_add_explicit(&c->done, c->type == VB_COMP_CNTR_BYTES ? bytes : n, memory_order_release);
	else
		atomic_fetch_add_explicit(&c->failed, n, memory_order_release);
}

/* Which counter counts the request? Atomics, windows, flushes and invalidations are of no kind. */
static enum vb_comp_cntr_op op_of(uint8_t opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return VB_CNTR_SEND;
	case IBV_WR_RDMA_READ:
		return VB_CNTR_RDMA_READ;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return VB_CNTR_RDMA_WRITE;
	default:
		return VB_CNTR_OPS;
	}
}

void vb_cntr_sent(struct vb_qp *qp, const struct vb_swqe *w, enum ibv_wc_status status)
{
	enum vb_comp_cntr_op op = op_of(w->opcode);

	if (op != VB_CNTR_OPS && qp->cntrs[op])
		cntr_add(qp->cntrs[op], status, 1, w->length);
}

void vb_cntr_received(struct vb_qp *qp, enum ibv_wc_status status, unsigned n, uint64_t bytes)
{
	cntr_add(qp->cntrs[VB_CNTR_RECV], status, n, bytes);
}

/* --- verbs --- */

void vb_query_comp_cntr_caps(struct vb_comp_cntr_caps *caps)
{
	*caps = (struct vb_comp_cntr_caps){.max_value = UINT64_MAX,
	                                   .max_counters = VB_MAX_COMP_CNTR,
	                                   .supported_qp_attach_ops = VB_CNTR_SUPPORTED};
}

struct vb_comp_cntr *vb_create_comp_cntr(struct ibv_context *context, void *attr)
{
	static _Atomic uint32_t last;
	const struct vb_comp_cntr_init_attr *a = attr;
	struct vb_context *ctx = vb_ctx(context);
	int err = !a || a->comp_mask || a->flags || a->type > VB_COMP_CNTR_BYTES ? EINVAL : 0;
	struct vb_cntr *c = err ? NULL : calloc(1, sizeof(*c));

	if (!err && !c)
		err = ENOMEM;
	if (!err && atomic_fetch_add(&ctx->node->cntr_count, 1) >= VB_MAX_COMP_CNTR) {
		atomic_fetch_sub(&ctx->node->cntr_count, 1);
		err = ENOMEM;
	}
	if (err) {
		free(c);
		errno = err;
		return NULL;
	}
	c->cntr.context = context;
	c->cntr.handle = vb_handle_next(&last);
	c->made = VB_MADE(c->cntr);
	c->type = a->type;
	vb_context_hold(ctx);
	return &c->cntr;
}

int vb_destroy_comp_cntr(struct vb_comp_cntr *cntr)
{
	struct vb_cntr *c = cntr_of(cntr);

	if (!cntr_is_sound(cntr))
		return ENOENT;
	if (atomic_load(&c->users))
		return EBUSY;
	struct vb_context *ctx = VB_CONTEXT_OF(c);

	atomic_fetch_sub(&ctx->node->cntr_count, 1);
	vb_object_free(c, &c->made);
	vb_context_drop(ctx);
	return 0;
}

/* Under progress + sq_lock. */
static int attach_counter(struct vb_qp *qp, struct vb_cntr *c, uint32_t ops)
{
	uint8_t state = atomic_load(&qp->state);

	if (state != IBV_QPS_RESET && state != IBV_QPS_INIT)
		return EINVAL;
	for (unsigned op = 0; op < VB_CNTR_OPS; op++)
		if ((ops >> op & 1) && qp->cntrs[op])
			return EBUSY;
	for (unsigned op = 0; op < VB_CNTR_OPS; op++)
		if (ops >> op & 1) {
			qp->cntrs[op] = c;
			atomic_fetch_add(&c->users, 1);
		}
	if (ops & 1u << VB_CNTR_RECV)
		qp->rq_counted = true;
	if (ops & ~(1u << VB_CNTR_RECV)) {
		qp->sq_apart = true;
		qp->sq_flags |= VB_SEND_COUNTED;
	}
	return 0;
}

/* Queue pairs that complete elsewhere: raw packets in work queues, XRC targets in SRQs, tag matching by tags. */
static bool counts(const struct vb_qp *qp, uint32_t ops)
{
	const uint32_t receives = 1u << VB_CNTR_RECV;

	switch (qp->type) {
	case IBV_QPT_XRC_SEND:
		return !(ops & receives);
	case IBV_QPT_RC:
		return !(ops & receives && qp->srq && qp->srq->tm) && !(ops & ~receives && qp->sq_tagged);
	default:
		return qp->type == IBV_QPT_UC || qp->type == IBV_QPT_UD;
	}
}

int vb_qp_attach_comp_cntr(struct ibv_qp *ibqp, struct vb_comp_cntr *cntr, void *attr)
{
	const struct vb_comp_cntr_attach_attr *a = attr;
	struct vb_qp *qp = vb_qp(ibqp);

	if (!a || a->comp_mask || !a->op_mask || !cntr || !vb_qp_is_sound(ibqp) || !cntr_is_sound(cntr) ||
	    cntr->context != ibqp->context)
		return EINVAL;
	if ((a->op_mask & ~VB_CNTR_SUPPORTED) || !counts(qp, a->op_mask))
		return EOPNOTSUPP;
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	int err = attach_counter(qp, cntr_of(cntr), a->op_mask);

	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	return err;
}

void vb_cntr_detach(struct vb_qp *qp)
{
	for (unsigned op = 0; op < VB_CNTR_OPS; op++)
		if (qp->cntrs[op])
			atomic_fetch_sub(&qp->cntrs[op]->users, 1);
}

static int cntr_change(struct vb_comp_cntr *cntr, _Atomic uint64_t *which, uint64_t value, bool set)
{
	if (!cntr_is_sound(cntr))
		return EINVAL;
	if (set)
		atomic_store(which, value);
	else
		atomic_fetch_add(which, value);
	return 0;
}

int vb_set_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value)
{
	return cntr_change(cntr, &cntr_of(cntr)->done, value, true);
}

int vb_set_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t value)
{
	return cntr_change(cntr, &cntr_of(cntr)->failed, value, true);
}

int vb_inc_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount)
{
	return cntr_change(cntr, &cntr_of(cntr)->done, amount, false);
}

int vb_inc_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t amount)
{
	return cntr_change(cntr, &cntr_of(cntr)->failed, amount, false);
}

/* Without a CQ nobody polls, so a reader makes progress as ibv_poll_cq does. */
static int cntr_read(struct vb_comp_cntr *cntr, const _Atomic uint64_t *which, uint64_t *value)
{
	if (!cntr_is_sound(cntr) || !value)
		return EINVAL;
	vb_progress(VB_CONTEXT_OF(cntr_of(cntr))->node, NULL, 0);
	*value = atomic_load_explicit(which, memory_order_acquire);
	return 0;
}

int vb_read_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value)
{
	return cntr_read(cntr, &cntr_of(cntr)->done, value);
}

int vb_read_err_comp_cntr(struct vb_comp_cntr *cntr, uint64_t *value)
{
	return cntr_read(cntr, &cntr_of(cntr)->failed, value);
}
