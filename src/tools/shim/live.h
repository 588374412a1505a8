// live.h - the files of counters in the tree, with the numbers of the running programs
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband; docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_LIVE_H
#define VB_SHIM_LIVE_H

#include <stdint.h>

/*
 * If rest, a path below the tree, is a counter that running programs have, asks the user's programs for half a second at
 * most, and returns a descriptor of a file with the sum. Returns -1 in all other cases: the file of the tree, which
 * says 0, is right then. cloexec: O_CLOEXEC or 0. Keeps errno. Unlike the rest of the shim it allocates memory, so it is
 * not for signal handlers.
 */
int vb_shim_live(const char *rest, int cloexec);

/* The sums of the user's programs for an adapter: names of members, or of counters, of an answer to the verb "devices".
 * Zeros if there are no programs. */
void vb_shim_live_numbers(const char *device, const char *const *names, unsigned n, uint64_t *values);

#endif
