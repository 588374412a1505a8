// allocate.c - the memory of queues: from the allocators of the program's parent domain, if it has some
// follows: ibv_alloc_parent_domain(3)
// SPDX-License-Identifier: MIT
#include "core/allocate.h"

#include <errno.h>
#include <string.h>

#define ALIGNMENT 64u

int vb_memory_ask(struct vb_pd *pd, size_t size, enum vb_resource what, void **theirs)
{
	void *p = pd && pd->alloc ? pd->alloc(&pd->pd, pd->context, size, ALIGNMENT, what) : IBV_ALLOCATOR_USE_DEFAULT;

	*theirs = NULL;
	if (p == IBV_ALLOCATOR_USE_DEFAULT)
		return 0;
	if (!p)
		return ENOMEM;
	if ((uintptr_t)p % ALIGNMENT) {
		pd->free(&pd->pd, pd->context, p, what);
		return EINVAL;
	}
	memset(p, 0, size); /* the callback should have, but then the queue would be full of garbage */
	*theirs = p;
	return 0;
}

void vb_memory_give(struct vb_pd *pd, void *theirs, enum vb_resource what)
{
	if (theirs)
		pd->free(&pd->pd, pd->context, theirs, what);
}
