// handle.c - destroyed objects, whose memory is freed after a delay
// follows: the uverbs commands of Linux: a program that destroys an object twice gets ENOENT
// SPDX-License-Identifier: MIT
#include "core/handle.h"

#include <stdlib.h>

/* The last KEPT destroyed objects of this process stay readable. */
#define KEPT 64

void vb_object_free(void *object, struct vb_made *made)
{
	made->context = NULL; /* differs from the context in the public part, so the object is no longer sound */
#ifdef VB_SANITIZED
	/* freed at once, so that AddressSanitizer finds uses after free */
	free(object);
#else
	static _Atomic(void *) kept[KEPT];
	static atomic_uint next;

	free(atomic_exchange(&kept[atomic_fetch_add(&next, 1) % KEPT], object));
#endif
}
