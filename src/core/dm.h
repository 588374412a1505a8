// dm.h - device memory
// follows: ibv_alloc_dm(3), ibv_import_dm(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_DM_H
#define VB_CORE_DM_H

#include "core/core.h"

/* Ordinary memory of this process, which the program reaches by copies and by regions only. */
struct vb_dm_memory {
	uint8_t *bytes;
	size_t length, mapped; /* mapped: rounded up to pages */
	struct vb_device *dev;
	uint32_t handle;
	atomic_int refs;           /* allocation, imports, MRs */
	atomic_int users;          /* MRs: ibv_free_dm answers EBUSY while there are any */
	struct vb_dm_memory *next; /* node->dms, under mr_lock: those that may be imported */
};

struct vb_dm {
	struct ibv_dm dm;
	struct vb_made made;
	struct vb_dm_memory *memory;
};

/* An MR of the memory has ended. */
void vb_dm_leave(struct vb_dm_memory *memory);

#endif
