// dm.c - device memory: allocated, copied to and from, registered
// follows: ibv_alloc_dm(3), ibv_import_dm(3)
// SPDX-License-Identifier: MIT
#include "core/dm.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/mr.h"
#include "core/share.h"
#include "core/verbs.h"
#include "util/guard.h"

#define WORD 4u /* bytes: copies begin and end at such words, as on adapters whose memory has no smaller ones */
#define DM_ACCESS                                                                                            \
	(IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

static bool dm_is_sound(const struct ibv_dm *dm)
{
	return VB_IS_SOUND((const struct vb_dm *)dm, dm);
}

static struct vb_dm_memory *memory_of(struct ibv_dm *dm)
{
	return ((struct vb_dm *)dm)->memory;
}

static bool has_range(const struct vb_dm_memory *m, uint64_t offset, size_t length)
{
	return offset <= m->length && length <= m->length - offset;
}

static int check_copy(struct ibv_dm *dm, uint64_t offset, size_t length)
{
	if (!dm_is_sound(dm) || offset % WORD || length % WORD)
		return EINVAL;
	return has_range(memory_of(dm), offset, length) ? 0 : EINVAL;
}

static int copy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *host, size_t length)
{
	int err = check_copy(dm, offset, length);

	return err ? err : vb_guard_copy(memory_of(dm)->bytes + offset, host, length) ? 0 : EFAULT;
}

static int copy_from_dm(void *host, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	int err = check_copy(dm, offset, length);

	return err ? err : vb_guard_copy(host, memory_of(dm)->bytes + offset, length) ? 0 : EFAULT;
}

static void bytes_return(struct vb_device *dev, size_t bytes)
{
	atomic_fetch_sub(&dev->dm_used, bytes);
}

/* Takes so many bytes of the adapter's memory. False: it has no more. */
static bool bytes_take(struct vb_device *dev, size_t bytes)
{
	if (bytes > VB_MAX_DM_SIZE)
		return false;
	if (atomic_fetch_add(&dev->dm_used, bytes) + bytes <= VB_MAX_DM_SIZE)
		return true;
	bytes_return(dev, bytes);
	return false;
}

/* Pages have any alignment that may be asked for. */
static struct vb_dm_memory *memory_new(struct vb_device *dev, size_t length)
{
	struct vb_dm_memory *m = calloc(1, sizeof(*m));
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (!m)
		return NULL;
	m->dev = dev;
	m->length = length;
	m->mapped = (length + page - 1) / page * page;
	m->bytes = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m->bytes == MAP_FAILED) {
		free(m);
		return NULL;
	}
	atomic_store(&m->refs, 1);
	return m;
}

static void memory_drop(struct vb_dm_memory *m)
{
	if (atomic_fetch_sub(&m->refs, 1) > 1)
		return;
	munmap(m->bytes, m->mapped);
	bytes_return(m->dev, m->length);
	free(m);
}

void vb_dm_leave(struct vb_dm_memory *m)
{
	atomic_fetch_sub(&m->users, 1);
	memory_drop(m);
}

/* Takes over a reference to the memory, also if it fails. */
static struct ibv_dm *dm_new(struct vb_context *ctx, struct vb_dm_memory *m)
{
	struct vb_dm *dm = calloc(1, sizeof(*dm));

	if (!dm) {
		memory_drop(m);
		errno = ENOMEM;
		return NULL;
	}
	dm->dm = (struct ibv_dm){.context = &ctx->vctx.context,
	                         .memcpy_to_dm = copy_to_dm,
	                         .memcpy_from_dm = copy_from_dm,
	                         .handle = m->handle};
	dm->made = VB_MADE(dm->dm);
	dm->memory = m;
	vb_context_hold(ctx);
	return &dm->dm;
}

static void dm_free(struct vb_dm *dm)
{
	struct vb_context *ctx = vb_ctx(dm->dm.context);

	memory_drop(dm->memory);
	vb_object_free(dm, &dm->made);
	vb_context_drop(ctx);
}

static void dms_add(struct vb_node *node, struct vb_dm_memory *m)
{
	atomic_fetch_add(&m->refs, 1); /* the list's, until ibv_free_dm */
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	m->next = node->dms;
	node->dms = m;
	vb_mutex_unlock(&node->mr_lock);
}

/* Returns whether it was in the list. */
static bool dms_remove(struct vb_node *node, const struct vb_dm_memory *m)
{
	bool found = false;

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	for (struct vb_dm_memory **at = &node->dms; *at; at = &(*at)->next)
		if (*at == m) {
			*at = m->next;
			found = true;
			break;
		}
	vb_mutex_unlock(&node->mr_lock);
	return found;
}

struct ibv_dm *vb_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct vb_context *ctx = vb_ctx(context);
	struct vb_dm_memory *m = NULL;

	if (!attr || attr->comp_mask || !attr->length || attr->log_align_req > VB_MAX_DM_LOG_ALIGN) {
		errno = EINVAL;
		return NULL;
	}
	vb_guard_install();
	if (bytes_take(ctx->dev, attr->length)) {
		m = memory_new(ctx->dev, attr->length);
		if (!m)
			bytes_return(ctx->dev, attr->length);
	}
	if (!m) {
		errno = ENOMEM;
		return NULL;
	}
	m->handle = vb_handle_next(&ctx->node->dm_next);
	struct ibv_dm *dm = dm_new(ctx, m);

	if (dm)
		dms_add(ctx->node, m);
	return dm;
}

int vb_free_dm(struct ibv_dm *ibdm)
{
	struct vb_dm *dm = (struct vb_dm *)ibdm;

	if (!dm_is_sound(ibdm))
		return ENOENT;
	if (atomic_load(&dm->memory->users))
		return EBUSY;
	if (dms_remove(VB_CONTEXT_OF(dm)->node, dm->memory))
		memory_drop(dm->memory); /* this handle has another reference */
	dm_free(dm);
	return 0;
}

/* Imports memory that was allocated in this process, by a context of the same adapter. */
struct ibv_dm *vb_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct vb_context *ctx = vb_ctx(context);
	struct vb_node *node = ctx->node;
	/* if not, the handle is another process's, and may be one here too */
	bool ours = vb_share_is_ours(node, ctx->share);
	struct vb_dm_memory *m;

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	for (m = ours ? node->dms : NULL; m && (m->handle != handle || m->dev != ctx->dev); m = m->next)
		;
	if (m)
		atomic_fetch_add(&m->refs, 1);
	vb_mutex_unlock(&node->mr_lock);
	if (!m) {
		errno = ours ? EINVAL : EOPNOTSUPP;
		return NULL;
	}
	return dm_new(ctx, m);
}

void vb_unimport_dm(struct ibv_dm *dm)
{
	if (dm_is_sound(dm))
		dm_free((struct vb_dm *)dm);
}

static int check_reg(const struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned access)
{
	if (!vb_pd_is_sound(pd) || !dm || !dm_is_sound(dm) || dm->context != pd->context)
		return EINVAL;
	if (!(access & IBV_ACCESS_ZERO_BASED) || (access & ~(unsigned)DM_ACCESS) ||
	    vb_mr_check_access(pd->context, access))
		return EINVAL;
	return has_range(memory_of(dm), offset, length) ? vb_context_fault(vb_ctx(pd->context), VB_FAULT_REG) : EINVAL;
}

/* As in rdma-core, the region has no address for the program. */
struct ibv_mr *vb_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned access)
{
	int err;

	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	err = check_reg(pd, dm, offset, length, access);
	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_dm_memory *m = memory_of(dm);

	atomic_fetch_add(&m->refs, 1);
	atomic_fetch_add(&m->users, 1);
	struct ibv_mr *mr = vb_mr_new(
	        pd,
	        &(struct vb_mr){.mr.length = length, .access = access, .start = (uintptr_t)m->bytes + offset, .dm = m});

	if (!mr)
		vb_dm_leave(m);
	return mr;
}
