// handle.c - the memory of destroyed objects, kept for a while
// follows: ibv_destroy_qp(3) and its like: a program that destroys an object twice gets ENOENT, as from a kernel's look-up
// SPDX-License-Identifier: MIT
#include "core/handle.h"

#include <stdlib.h>

/* How many destroyed objects stay readable: the last ones of this process. */
#define KEPT 64

void vb_object_free(void *object, struct vb_made *made)
{
	made->context = NULL; /* no public part has this: the object is not sound any more */
#ifdef VB_SANITIZED
	/* AddressSanitizer finds uses after free, our own among them */
	free(object);
#else
	static _Atomic(void *) kept[KEPT];
	static atomic_uint next;

	free(atomic_exchange(&kept[atomic_fetch_add(&next, 1) % KEPT], object));
#endif
}
