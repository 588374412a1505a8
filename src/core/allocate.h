// allocate.h - the memory of queues: from the allocators of the program's parent domain, if it has some
// follows: ibv_alloc_parent_domain(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_ALLOCATE_H
#define VB_CORE_ALLOCATE_H

#include "core/core.h"

/* resource_type of the callbacks. The upper 32 bits are RDMA_DRIVER_UNKNOWN. */
enum vb_resource { VB_RESOURCE_QP = 1, VB_RESOURCE_CQ, VB_RESOURCE_SRQ, VB_RESOURCE_WQ };

/* Asks the allocators of pd (or NULL) for a buffer of zeros for a queue. *theirs is the buffer, or NULL if the caller is
 * to allocate it. 0, or an errno value. No lock held, because the program is called. */
int vb_memory_ask(struct vb_pd *pd, size_t size, enum vb_resource what, void **theirs);
/* Gives such a buffer (or NULL) back to the program. No lock held. */
void vb_memory_give(struct vb_pd *pd, void *theirs, enum vb_resource what);

#endif
