// pd.c - protection domains, thread domains, parent domains
// follows: IBA volume 1, 10.2.3, 11.2.1.7; ibv_alloc_pd(3), ibv_alloc_td(3), ibv_alloc_parent_domain(3)
// SPDX-License-Identifier: MIT
#include "core/pd.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"

static struct vb_pd *pd_new(struct vb_context *ctx, uint32_t id)
{
	struct vb_pd *pd = calloc(1, sizeof(*pd));

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->pd.context = &ctx->vctx.context;
	pd->pd.handle = id;
	pd->made = VB_MADE(pd->pd);
	vb_context_hold(ctx);
	return pd;
}

/* The list is only shown. */
static void pd_enter_list(struct vb_node *node, struct vb_pd *pd)
{
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	if (!node->pds)
		node->pds_end = &node->pds;
	pd->prev = node->pds_end;
	*node->pds_end = pd;
	node->pds_end = &pd->next;
	vb_mutex_unlock(&node->ctx_lock);
}

static void pd_leave_list(struct vb_node *node, struct vb_pd *pd)
{
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	*pd->prev = pd->next;
	if (pd->next)
		pd->next->prev = pd->prev;
	else
		node->pds_end = pd->prev;
	vb_mutex_unlock(&node->ctx_lock);
}

struct ibv_pd *vb_alloc_pd(struct ibv_context *context)
{
	struct vb_context *ctx = vb_ctx(context);
	struct vb_node *node = ctx->node;
	struct vb_pd *pd = NULL;
	int err = vb_context_fault(ctx, VB_FAULT_ALLOC_PD);

	if (err) {
		errno = err;
		return NULL;
	}
	if (atomic_fetch_add(&node->pd_count, 1) >= VB_MAX_PD) {
		errno = ENOMEM;
	} else {
		pd = pd_new(ctx, vb_handle_next(&node->pd_next));
	}
	if (!pd) {
		atomic_fetch_sub(&node->pd_count, 1);
		return NULL;
	}
	pd_enter_list(node, pd);
	return &pd->pd;
}

int vb_dealloc_pd(struct ibv_pd *ibpd)
{
	struct vb_pd *pd = vb_pd(ibpd);
	struct vb_context *ctx = vb_ctx(ibpd->context);

	if (!vb_pd_is_sound(ibpd))
		return ENOENT;
	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->parent) {
		atomic_fetch_sub(&pd->parent->users, 1);
	} else {
		pd_leave_list(ctx->node, pd);
		atomic_fetch_sub(&ctx->node->pd_count, 1);
	}
	if (pd->td)
		atomic_fetch_sub(&pd->td->users, 1);
	vb_object_free(pd, &pd->made);
	vb_context_drop(ctx);
	return 0;
}

/* With a thread domain the program promises that one thread at a time uses its objects. This adapter gains nothing by
 * that, so the domain is only stored. */
struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct vb_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td) {
		errno = ENOMEM;
		return NULL;
	}
	td->td.context = context;
	td->made.context = context;
	vb_context_hold(vb_ctx(context));
	return &td->td;
}

int vb_dealloc_td(struct ibv_td *ibtd)
{
	struct vb_td *td = (struct vb_td *)ibtd;
	struct vb_context *ctx = vb_ctx(ibtd->context);

	if (!vb_td_is_sound(ibtd))
		return ENOENT;
	if (atomic_load(&td->users))
		return EBUSY;
	vb_object_free(td, &td->made);
	vb_context_drop(ctx);
	return 0;
}

/* Refuses allocators of the program. A queue is in one allocation with the rest of its object, so they would never be
 * called. */
struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	struct vb_td *td = (struct vb_td *)attr->td;
	struct vb_pd *pd;

	if (!attr->pd || attr->pd->context != context || !vb_pd_is_sound(attr->pd) ||
	    (td && (td->td.context != context || !vb_td_is_sound(&td->td)))) {
		errno = EINVAL;
		return NULL;
	}
	if ((attr->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)) {
		errno = attr->comp_mask & ~3u ? EINVAL : EOPNOTSUPP;
		return NULL;
	}
	pd = pd_new(vb_ctx(context), vb_pd_id(vb_pd(attr->pd)));
	if (!pd)
		return NULL;
	pd->parent = vb_pd(attr->pd);
	atomic_fetch_add(&pd->parent->users, 1);
	pd->td = td;
	if (td)
		atomic_fetch_add(&td->users, 1);
	return &pd->pd;
}
