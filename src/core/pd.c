// pd.c - protection domains, thread domains, parent domains
// follows: IBA volume 1, 10.2.3, 11.2.1.7; ibv_alloc_pd(3), ibv_import_pd(3), ibv_alloc_td(3), ibv_alloc_parent_domain(3)
// SPDX-License-Identifier: MIT
#include "core/pd.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/share.h"
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
	pd->id = id;
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
	vb_share_enter(ctx->share, pd->id);
	pd_enter_list(node, pd);
	return &pd->pd;
}

static void unlist_import(struct vb_pd *pd)
{
	struct vb_context *ctx = VB_CONTEXT_OF(pd);
	struct vb_pd **at = &ctx->share->imported;

	vb_mutex_lock(&ctx->node->ctx_lock, VB_RANK_CONTEXTS);
	while (*at != pd)
		at = &(*at)->import_next;
	*at = pd->import_next;
	vb_mutex_unlock(&ctx->node->ctx_lock);
}

static void pd_free(struct vb_pd *pd)
{
	struct vb_context *ctx = VB_CONTEXT_OF(pd);

	if (pd->parent) {
		vb_pd_drop(pd->parent);
	} else if (pd->import_of) {
		unlist_import(pd);
	} else {
		pd_leave_list(ctx->node, pd);
		atomic_fetch_sub(&ctx->node->pd_count, 1);
	}
	if (pd->td)
		atomic_fetch_sub(&pd->td->users, 1);
	vb_object_free(pd, &pd->made);
	vb_context_drop(ctx);
}

int vb_dealloc_pd(struct ibv_pd *ibpd)
{
	struct vb_pd *pd = vb_pd(ibpd);

	if (!vb_pd_is_sound(ibpd))
		return ENOENT;
	if (atomic_load(&pd->users))
		return EBUSY;
	if (!pd->parent) /* cannot be imported any more; through an import of this process too */
		vb_share_remove(vb_ctx(ibpd->context)->share, pd->id);
	pd_free(pd);
	return 0;
}

void vb_pd_drop(struct vb_pd *pd)
{
	/* another thread may free a domain without users at once */
	if (atomic_fetch_sub(&pd->users, 1) == (VB_PD_UNIMPORTED | 1))
		pd_free(pd);
}

/* The id of another process's domain is the same for all its imports here, so that their objects go together. Under
 * ctx_lock. */
static uint32_t import_id(struct vb_node *node, struct vb_share *share, uint32_t handle)
{
	struct vb_pd *pd = share->imported;

	if (vb_share_is_ours(node, share))
		return handle;
	while (pd && pd->import_of != handle)
		pd = pd->import_next;
	return pd ? pd->id : vb_handle_next(&node->pd_next);
}

struct ibv_pd *vb_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct vb_context *ctx = vb_ctx(context);
	struct vb_share *share = ctx->share;

	if (!vb_share_has(share, handle)) {
		errno = ENOENT;
		return NULL;
	}
	struct vb_pd *pd = pd_new(ctx, handle);

	if (!pd)
		return NULL;
	vb_mutex_lock(&ctx->node->ctx_lock, VB_RANK_CONTEXTS);
	pd->id = import_id(ctx->node, share, handle);
	pd->import_of = handle;
	pd->import_next = share->imported;
	share->imported = pd;
	vb_mutex_unlock(&ctx->node->ctx_lock);
	return &pd->pd;
}

void vb_unimport_pd(struct ibv_pd *ibpd)
{
	struct vb_pd *pd = vb_pd(ibpd);

	if (!vb_pd_is_sound(ibpd) || pd->parent)
		return;
	pd->made.handle = 0; /* so that it is not sound any more */
	if (!atomic_fetch_or(&pd->users, VB_PD_UNIMPORTED))
		pd_free(pd);
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

static int check_parent_attr(struct ibv_context *context, const struct ibv_parent_domain_init_attr *attr)
{
	/* memory need not be unprotected for a device without IBV_DEVICE_CC_DMA_BOUNCE, so the last one changes nothing */
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
	                       VB_IBV_PARENT_DOMAIN_ALLOW_UNPROTECTED;
	struct vb_td *td = (struct vb_td *)attr->td;

	if (!attr->pd || attr->pd->context != context || !vb_pd_is_sound(attr->pd) ||
	    (td && (td->td.context != context || !vb_td_is_sound(&td->td))) || (attr->comp_mask & ~known))
		return EINVAL;
	if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) && (!attr->alloc || !attr->free))
		return EINVAL;
	return 0;
}

struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	struct vb_td *td = (struct vb_td *)attr->td;
	int err = check_parent_attr(context, attr);

	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_pd *pd = pd_new(vb_ctx(context), vb_pd_id(vb_pd(attr->pd)));
	if (!pd)
		return NULL;
	pd->parent = vb_pd(attr->pd);
	atomic_fetch_add(&pd->parent->users, 1);
	pd->td = td;
	if (td)
		atomic_fetch_add(&td->users, 1);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->context = attr->pd_context;
	return &pd->pd;
}
