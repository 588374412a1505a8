// map.h - which paths the shim redirects, and to where
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_MAP_H
#define VB_SHIM_MAP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* Room on the stack for a redirected path. Only functions that are not inlined have it: a signal handler may run on a
 * stack of a few KiB and open other files there. */
struct vb_map_buf {
	char path[PATH_MAX];
};

/* Cheap first look, a few bytes of the path: false means that it is certainly not one of ours. NULL is not. */
bool vb_map_maybe(const char *path);

/*
 * Where a path leads: path itself, or buf->path when it is /sys/class/infiniband* or /dev/infiniband*, given absolutely or
 * from dirfd. No allocation, no lock, errno kept: signal handlers may open files.
 */
const char *vb_map(int dirfd, const char *path, struct vb_map_buf *buf);

/* Is this redirected path one of dev/infiniband/..., which stands for a character device? */
bool vb_map_is_node(const struct vb_map_buf *buf);

/* Writes back over a path below the tree the name that it stands for. */
void vb_map_undo(char *path);

/* "NAME" of the tree ("class/infiniband"), for those who read it themselves; 0 or an errno value. */
int vb_map_tree_path(char *buf, size_t size, const char *name);

#endif
