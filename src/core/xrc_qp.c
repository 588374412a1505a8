// xrc_qp.c - XRC target queue pairs: programs hold handles of them, and the last handle ends the queue pair
// follows: IBA volume 1, annex A14 (XRC); ibv_create_qp_ex(3), ibv_open_qp(3)
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "core/async.h"
#include "core/context.h"
#include "core/handle.h"
#include "core/verbs.h"
#include "core/xrc.h"
#include "frame/fields.h"

/*
 * ibv_create_qp_ex and ibv_open_qp each return a handle: a queue pair object without queues, which is never in the
 * node's table. It has the context and qp_context of its opener, and gets the asynchronous events of the queue pair.
 */

/* Under progress + sq_lock. */
static void link_handle(struct vb_qp *qp, struct vb_qp *h)
{
	h->xrc.real = qp;
	h->xrc.handles = qp->xrc.handles;
	qp->xrc.handles = h;
	h->qp.state = qp->qp.state;
}

/* Returns whether it was the last one. Under progress + sq_lock. */
static bool unlink_handle(struct vb_qp *h)
{
	struct vb_qp **at = &h->xrc.real->xrc.handles;

	while (*at != h)
		at = &(*at)->xrc.handles;
	*at = h->xrc.handles;
	h->xrc.handles = NULL;
	return !h->xrc.real->xrc.handles;
}

/* A handle that another process has gets its context with its target, and no xrcd. */
static struct vb_qp *handle_new(struct vb_node *node, struct ibv_context *context, struct vb_xrcd *xrcd, uint32_t qpn,
                                void *qp_context)
{
	const struct ibv_qp_cap none = {.max_send_wr = 1, .max_send_sge = 1};
	struct vb_qp *h = vb_qp_alloc(&vb_xrc_no_pd, &none, IBV_QPT_XRC_RECV);

	if (!h)
		return NULL;
	h->qp.context = context;
	h->qp.qp_context = qp_context;
	h->qp.qp_type = IBV_QPT_XRC_RECV;
	h->qp.qp_num = h->qp.handle = qpn;
	h->type = IBV_QPT_XRC_RECV;
	h->node = node;
	h->made = VB_MADE(h->qp);
	h->xrc.by = xrcd;
	vb_path_none(h);
	return h;
}

/* Opens the queue pair with this number: that of `qp`, or if it is NULL one that exists in the XRC domain. */
static int join_handle(struct vb_qp *h, struct vb_qp *qp)
{
	struct vb_node *node = h->node;
	bool is_new = qp; /* no other handle has opened it yet; else one that has no handle any more is about to end */
	int err = EINVAL;

	vb_lock(&node->progress);
	if (!qp)
		qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(h->qp.qp_num)], memory_order_relaxed);
	if (qp && (is_new || qp->xrc.handles) && qp->qp.qp_num == h->qp.qp_num && qp->type == IBV_QPT_XRC_RECV &&
	    qp->xrc.domain == h->xrc.by->domain) {
		vb_lock(&qp->sq_lock);
		link_handle(qp, h);
		vb_unlock(&qp->sq_lock);
		err = 0;
	}
	vb_unlock(&node->progress);
	return err;
}

struct ibv_qp *vb_xrc_handle(struct vb_qp *qp, struct ibv_context *context, struct vb_xrcd *xrcd, void *qp_context)
{
	struct vb_qp *h = handle_new(qp->node, context, xrcd, qp->qp.qp_num, qp_context);

	if (!h) {
		errno = ENOMEM;
		return NULL;
	}
	join_handle(h, qp);
	atomic_fetch_add(&xrcd->users, 1);
	return &h->qp;
}

/* Links it to a target with this number that a program has open, in a domain that other processes know as id. Under
 * ctx_lock. */
static int join_for_another(struct vb_qp *h, struct vb_xrc_domain *d)
{
	struct vb_node *node = h->node;
	int err = EINVAL;

	vb_lock(&node->progress);
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(h->qp.qp_num)], memory_order_relaxed);

	if (qp && qp->xrc.handles && qp->qp.qp_num == h->qp.qp_num && qp->type == IBV_QPT_XRC_RECV &&
	    qp->xrc.domain == d) {
		vb_lock(&qp->sq_lock);
		h->qp.context = qp->qp.context;
		h->made = VB_MADE(h->qp);
		link_handle(qp, h);
		vb_unlock(&qp->sq_lock);
		err = 0;
	}
	vb_unlock(&node->progress);
	return err;
}

int vb_xrc_handle_for(struct vb_node *node, const struct vb_xrc_id *id, uint32_t qpn,
                      void (*tell)(struct vb_qp *handle, enum ibv_event_type type), void *opener, struct vb_qp **out)
{
	struct vb_xrcd *by = NULL;
	struct vb_qp *h = NULL;
	int err = EINVAL;

	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	struct vb_xrc_domain *d = vb_xrc_domain_of(node, id, &by);

	if (d) {
		h = handle_new(node, NULL, NULL, qpn, opener);
		err = h ? 0 : ENOMEM;
	}
	if (h) {
		h->xrc.tell = tell;
		err = join_for_another(h, d);
	}
	if (!err)
		vb_xrc_domain_hold(d);
	vb_mutex_unlock(&node->ctx_lock);
	if (err && h)
		vb_qp_free(h);
	*out = err ? NULL : h;
	return err;
}

void vb_xrc_handle_close(struct vb_qp *h)
{
	struct vb_qp *qp = h->xrc.real;
	struct vb_xrc_domain *kept = h->xrc.by ? NULL : qp->xrc.domain;
	struct vb_context *ctx = VB_CONTEXT_OF(qp);
	struct vb_node *node = h->node;

	if (kept) /* it may be the last that needs the context */
		vb_context_hold(ctx);
	vb_lock(&h->node->progress);
	vb_lock(&qp->sq_lock);
	bool last = unlink_handle(h);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&h->node->progress);
	if (!kept)
		vb_async_forget(vb_ctx(h->qp.context), IBV_EVENT_QP_FATAL, h);
	if (last)
		vb_qp_finish(qp);
	if (!kept)
		atomic_fetch_sub(&h->xrc.by->users, 1);
	vb_qp_free(h);
	if (!kept)
		return;
	vb_xrc_domain_drop(node, kept);
	vb_context_drop(ctx);
}

void vb_xrc_far_close(struct vb_qp *h)
{
	vb_xrc_far_ops.close(h);
	vb_async_forget(VB_CONTEXT_OF(h), IBV_EVENT_QP_FATAL, h);
	atomic_fetch_sub(&h->xrc.by->users, 1);
	vb_qp_free(h);
}

void vb_xrc_guests_end(struct vb_qp *guests)
{
	while (guests) {
		struct vb_qp *qp = guests;

		guests = qp->xrc.next_guest;
		vb_qp_finish(qp);
	}
}

static int check_open_attr(struct ibv_context *context, const struct ibv_qp_open_attr *a)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;

	if ((a->comp_mask & needed) != needed || a->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED ||
	    a->qp_type != IBV_QPT_XRC_RECV || a->qp_num > VB_QPN_MASK || !vb_xrcd_is_of(a->xrcd, context))
		return EINVAL;
	return 0;
}

/* The target may be another process's, if that has the same domain. */
static int join_any(struct vb_qp *h)
{
	struct vb_xrc_id id;

	if (VB_QP_LANE(h->qp.qp_num) == h->node->lane)
		return join_handle(h, NULL);
	return vb_xrc_id_of(h->xrc.by->domain, &id) ? vb_xrc_far_ops.open(h, &id) : EINVAL;
}

struct ibv_qp *vb_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	int err = check_open_attr(context, attr);
	void *qp_context = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? attr->qp_context : NULL;
	struct vb_qp *h =
	        err ? NULL : handle_new(vb_ctx(context)->node, context, vb_xrcd(attr->xrcd), attr->qp_num, qp_context);

	if (!err && !h)
		err = ENOMEM;
	if (!err)
		err = join_any(h);
	if (err) {
		if (h)
			vb_qp_free(h);
		errno = err;
		return NULL;
	}
	atomic_fetch_add(&h->xrc.by->users, 1);
	return &h->qp;
}
