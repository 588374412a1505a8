// dmah.c - DMA handles: objects that name a processor and a kind of memory. No PCI bus is here to which they matter
// follows: rdma-core 65, ibv_alloc_dmah(3), ibv_reg_mr_ex; PCI Express 6.2, TLP processing hints
// SPDX-License-Identifier: MIT
#include "core/dmah.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/verbs.h"

#define PH_MAX 3u /* two bits */
#define MEM_TYPES 2u

struct dma_handle {
	struct vb_dmah dmah;
	struct vb_made made; /* no handle */
	atomic_uint users;   /* regions: ibv_dealloc_dmah answers EBUSY while there are any */
};

static struct dma_handle *handle_of(struct vb_dmah *d)
{
	return (struct dma_handle *)d;
}

static bool dmah_is_sound(const struct vb_dmah *d)
{
	return d && d->context && ((const struct dma_handle *)d)->made.context == d->context;
}

/* May this thread run on it? */
static bool is_allowed(uint32_t cpu)
{
	cpu_set_t set;

	return cpu < CPU_SETSIZE && !sched_getaffinity(0, sizeof(set), &set) && CPU_ISSET(cpu, &set);
}

/* The errors are those of the kernel's core; drivers ask for more. */
static int check_dmah_attr(const struct vb_dmah_init_attr *a)
{
	if (!a || (a->comp_mask & ~(uint32_t)(VB_DMAH_CPU_ID | VB_DMAH_PH | VB_DMAH_MEM_TYPE)))
		return EINVAL;
	if ((a->comp_mask & VB_DMAH_CPU_ID) && !is_allowed(a->cpu_id))
		return EPERM;
	if ((a->comp_mask & VB_DMAH_PH) && a->ph > PH_MAX)
		return EINVAL;
	return (a->comp_mask & VB_DMAH_MEM_TYPE) && a->tph_mem_type >= MEM_TYPES ? EINVAL : 0;
}

struct vb_dmah *vb_alloc_dmah(struct ibv_context *context, void *attr)
{
	int err = check_dmah_attr(attr);
	struct dma_handle *d = err ? NULL : calloc(1, sizeof(*d));

	if (!d) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	d->dmah.context = context;
	d->made = (struct vb_made){context, 0};
	vb_context_hold(vb_ctx(context));
	return &d->dmah;
}

int vb_dealloc_dmah(struct vb_dmah *dmah)
{
	struct dma_handle *d = handle_of(dmah);

	if (!dmah_is_sound(dmah))
		return ENOENT;
	if (atomic_load(&d->users))
		return EBUSY;
	struct vb_context *ctx = vb_ctx(dmah->context);

	vb_object_free(d, &d->made);
	vb_context_drop(ctx);
	return 0;
}

int vb_dmah_check(const struct vb_dmah *dmah, const struct ibv_pd *pd)
{
	return dmah_is_sound(dmah) && pd && dmah->context == pd->context ? 0 : EINVAL;
}

void vb_dmah_join(struct vb_dmah *dmah, struct vb_mr *mr)
{
	atomic_fetch_add(&handle_of(dmah)->users, 1);
	mr->dmah = dmah;
}

void vb_dmah_leave(struct vb_mr *mr)
{
	if (mr->dmah)
		atomic_fetch_sub(&handle_of(mr->dmah)->users, 1);
	mr->dmah = NULL;
}
