// null.c - null regions: what is written to them vanishes, and reads give zeros
// follows: ibv_alloc_null_mr(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/mr.h"
#include "core/verbs.h"

/*
 * All null regions of a process use the same two ranges, each as long as a message can be, so that every way to copy
 * works as it does for other memory. Pages of the first are only read, so the kernel backs all of them with its page of
 * zeros. The second is SINK bytes of memory, mapped again and again. Made for the first null region, and kept.
 */
#define SINK (4u << 20)
_Static_assert(VB_MAX_MSG_SZ % SINK == 0, "the sink fills its range");

static uint8_t *zeros, *sink; /* under mr_lock */

static void *range_new(int prot)
{
	void *p = mmap(NULL, VB_MAX_MSG_SZ, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static bool sink_fill(uint8_t *range, int fd)
{
	for (size_t off = 0; off < VB_MAX_MSG_SZ; off += SINK)
		if (mmap(range + off, SINK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			return false;
	return true;
}

static uint8_t *sink_new(void)
{
	int fd = memfd_create("verbena null region", MFD_CLOEXEC);
	uint8_t *range = fd < 0 ? NULL : range_new(PROT_NONE);

	if (range && (ftruncate(fd, SINK) || !sink_fill(range, fd))) {
		munmap(range, VB_MAX_MSG_SZ);
		range = NULL;
	}
	if (fd >= 0)
		close(fd);
	return range;
}

static bool ranges_exist(struct vb_node *node)
{
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	if (!zeros)
		zeros = range_new(PROT_READ);
	if (!sink)
		sink = sink_new();
	bool exist = zeros && sink;

	vb_mutex_unlock(&node->mr_lock);
	return exist;
}

/* It keeps its context, but not its PD, which may be deallocated before. Programs rely on that (perftest), because mlx5's
 * null region is no object of the kernel. */
struct ibv_mr *vb_alloc_null_mr(struct ibv_pd *pd)
{
	int err = EINVAL;

	if (vb_pd_is_sound(pd))
		err = vb_context_fault(vb_ctx(pd->context), VB_FAULT_REG);
	if (!err && !ranges_exist(vb_ctx(pd->context)->node))
		err = ENOMEM;
	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_mr *mr = vb_mr_enter(pd,
	                               &(struct vb_mr){.mr.length = SIZE_MAX,
	                                               .iova = (uintptr_t)sink,
	                                               .access = VB_MR_NULL | IBV_ACCESS_LOCAL_WRITE,
	                                               .start = (uintptr_t)zeros},
	                               0);

	if (!mr)
		return NULL;
	vb_context_hold(vb_ctx(pd->context));
	return &mr->mr;
}
