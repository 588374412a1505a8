// fit.h - whether a program may get memory that peers can map
// see: docs/same-host.md, "Memory that peers can map"
// SPDX-License-Identifier: MIT
#ifndef VB_MEMORY_FIT_H
#define VB_MEMORY_FIT_H

#include <stdbool.h>
#include <stddef.h>

/* Looks up the definition of a name that follows this library's. NULL while dlsym(3) is looking up another one. */
void *vb_memory_find(void **to, const char *name);

/* May there be an arena? own_free: this library's free(), which need not be what the program's name means. Sets the
 * arena's order (vb_arena_make) and the most that the program may use of it. Allocates nothing. */
bool vb_memory_fits(void *own_free, unsigned *order, size_t *limit);

/* Ends the program, as the C library does at a wrong pointer. */
_Noreturn void vb_memory_die(const char *text);

#endif
