// import.c - memory regions of other contexts: several handles of one region, and regions of other processes
// follows: ibv_import_mr(3)
// SPDX-License-Identifier: MIT
#include "core/import.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/mr.h"
#include "core/pd.h"
#include "core/share.h"
#include "core/verbs.h"

static struct vb_mr *origin_of(struct vb_mr *mr)
{
	return mr->origin ? mr->origin : mr;
}

bool vb_mr_ends(struct vb_node *node, struct vb_mr *mr)
{
	struct vb_mr *origin = origin_of(mr);

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	bool ends = !origin->ended;
	origin->ended = true;
	vb_mutex_unlock(&node->mr_lock);
	return ends;
}

void vb_mr_goes_on(struct vb_node *node, struct vb_mr *mr)
{
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	origin_of(mr)->ended = false;
	vb_mutex_unlock(&node->mr_lock);
}

/* Under mr_lock. Returns whether it was the last handle of the region. */
static bool handle_ends(struct vb_mr *mr)
{
	struct vb_mr *origin = origin_of(mr);

	if (mr == origin)
		origin->released = true;
	else
		origin->imports--;
	mr->made.handle = 0; /* so that it is not sound any more */
	return origin->released && !origin->imports;
}

static void free_handle(struct vb_mr *mr, bool last)
{
	struct vb_mr *origin = origin_of(mr);
	struct vb_context *ctx = VB_CONTEXT_OF(mr);
	struct vb_pd *pd = mr->access & VB_MR_NULL ? NULL : mr->pd;

	if (last) {
		vb_region_unmap(origin->map);
		vb_mr_drop_memory(origin);
		vb_object_free(origin, &origin->made);
	}
	if (mr != origin)
		vb_object_free(mr, &mr->made);
	if (pd)
		vb_pd_drop(pd);
	else
		vb_context_drop(ctx);
}

void vb_mr_release(struct vb_node *node, struct vb_mr *mr)
{
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	bool last = handle_ends(mr);

	vb_mutex_unlock(&node->mr_lock);
	free_handle(mr, last);
}

/* Another handle of a region that has an entry here. Under mr_lock. */
static struct vb_mr *another_handle(struct ibv_pd *pd, struct vb_mr *origin, uint32_t handle)
{
	struct vb_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	origin->imports++;
	*mr = (struct vb_mr){.mr = {.context = pd->context,
	                            .pd = pd,
	                            .length = origin->mr.length,
	                            .handle = handle,
	                            .lkey = origin->mr.lkey,
	                            .rkey = origin->mr.rkey},
	                     .pd = vb_pd(pd),
	                     .key = origin->key,
	                     .iova = origin->iova,
	                     .access = origin->access,
	                     .shared = origin->shared,
	                     .origin = origin};
	mr->made = VB_MADE(mr->mr);
	return mr;
}

/* Is it a region of this domain, or NULL? Under mr_lock. */
static bool is_of(const struct vb_mr *origin, struct ibv_pd *pd)
{
	return origin && !origin->ended && atomic_load(&origin->shared->pd) == vb_pd_id(vb_pd(pd));
}

/* A region of this process. */
static struct vb_mr *import_own(struct ibv_pd *pd, uint32_t handle)
{
	struct vb_node *node = vb_ctx(pd->context)->node;
	struct vb_mr *mr = NULL;

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	struct vb_mr *origin = handle - 1 < VB_SEG_MRS ? node->keys->mr[handle - 1] : NULL;
	bool found = is_of(origin, pd);
	if (found)
		mr = another_handle(pd, origin, handle);
	vb_mutex_unlock(&node->mr_lock);
	if (!mr)
		errno = found ? ENOMEM : ENOENT;
	return mr;
}

/* A region of another process that was imported before. NULL: its key stands for another region here, or no memory. */
static struct vb_mr *import_again(struct ibv_pd *pd, uint32_t handle, uint32_t key)
{
	struct vb_node *node = vb_ctx(pd->context)->node;
	struct vb_mr *mr = NULL;

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	struct vb_mr *origin = node->keys->mr[vb_seg_mr_of(node->seg, key) - vb_seg_mr(node->seg, 0)];
	if (is_of(origin, pd) && origin->map && origin->map->key == key)
		mr = another_handle(pd, origin, handle);
	vb_mutex_unlock(&node->mr_lock);
	return mr;
}

/* A region of another process. It gets the same key here, so that peers can use the key with our queue pairs too. */
static struct vb_mr *import_foreign(struct ibv_pd *pd, uint32_t handle)
{
	struct vb_context *ctx = vb_ctx(pd->context);
	const struct vb_pd *domain = vb_pd(pd);
	struct vb_region_map *map = NULL;

	while (domain->parent)
		domain = domain->parent;
	if (!domain->import_of) {
		errno = ENOENT;
		return NULL;
	}
	int err = vb_region_import(ctx->node, ctx->share, ctx->dev, handle, domain->import_of, &map);

	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_mr *mr = vb_mr_enter(pd,
	                               &(struct vb_mr){.mr = {.addr = map->local, .length = map->length},
	                                               .iova = map->iova,
	                                               .access = map->access,
	                                               .map = map,
	                                               .start = (uintptr_t)map->local},
	                               map->key);

	if (!mr) {
		mr = import_again(pd, handle, map->key);
		vb_region_unmap(map);
		if (!mr)
			errno = ENOMEM;
		return mr;
	}
	mr->mr.addr = NULL; /* as the manual page has it */
	mr->mr.handle = handle;
	mr->made = VB_MADE(mr->mr);
	return mr;
}

struct ibv_mr *vb_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct vb_context *ctx = vb_ctx(pd->context);

	if (!vb_pd_is_sound(pd)) {
		errno = EINVAL;
		return NULL;
	}
	struct vb_mr *mr =
	        vb_share_is_ours(ctx->node, ctx->share) ? import_own(pd, handle) : import_foreign(pd, handle);

	if (!mr)
		return NULL;
	atomic_fetch_add(&vb_pd(pd)->users, 1);
	return &mr->mr;
}

/* A region without a handle could never be deregistered, so the last handle takes it along. */
void vb_unimport_mr(struct ibv_mr *ibmr)
{
	struct vb_mr *mr = vb_mr(ibmr);

	if (!vb_mr_is_sound(ibmr))
		return;
	struct vb_node *node = VB_CONTEXT_OF(mr)->node;

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	struct vb_mr *origin = origin_of(mr);
	bool takes_along = origin->imports + !origin->released == 1 && !origin->ended;
	bool last = false;

	if (takes_along)
		origin->ended = true;
	else
		last = handle_ends(mr);
	vb_mutex_unlock(&node->mr_lock);
	if (takes_along)
		vb_mr_end(node, mr);
	else
		free_handle(mr, last);
}
