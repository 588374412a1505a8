// handle.c - destroyed objects, whose memory is freed after a delay
// follows: ibv_destroy_qp(3) and the like: a program that destroys an object twice gets ENOENT, as from a kernel's look-up
// SPDX-License-Identifier: MIT
#include "core/handle.h"

#include <stdlib.h>

/* The number of destroyed objects that stay readable: the last ones of this process. */
#define KEPT 64

void vb_object_free(void *object, struct vb_made *made)
{
	made->context = NULL; /* no public part has this value, so the object is no longer sound */
#ifdef VB_SANITIZED
	/* freed at once, so that AddressSanitizer finds uses after free */
	free(object);
#else
	static _Atomic(void *) kept[KEPT];
	static atomic_uint next;

	free(atomic_exchange(&kept[atomic_fetch_add(&next, 1) % KEPT], object));
#endif
}
