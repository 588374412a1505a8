// map.h - which paths the shim redirects, and to where
// follows: path_resolution(7)
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_MAP_H
#define VB_SHIM_MAP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* A redirected path on the stack. Only functions that are not inlined may have one: a signal handler that opens other
 * files may run on a stack of a few KiB. */
struct vb_shim_map_buf {
	char path[PATH_MAX];
};

/* A cheap test of the first bytes: false means that the path is certainly not redirected. NULL is not. */
bool vb_shim_may_map(const char *path);

/*
 * Returns path itself, or buf->path if it is /sys/class/infiniband* or /dev/infiniband*, absolute or relative to
 * dirfd, or with VERBENA_SRP /sys/class/scsi_host*. Signal handlers may open files: no allocation, no lock, errno is kept.
 */
const char *vb_shim_map(int dirfd, const char *path, struct vb_shim_map_buf *buf);

/* True if this redirected path is below dev/infiniband, where entries replace character devices. */
bool vb_shim_map_is_node(const struct vb_shim_map_buf *buf);

/* The part of this redirected path below the tree, "/class/..."; NULL if it is not in the tree. */
const char *vb_shim_map_below(const struct vb_shim_map_buf *buf);

/* Changes a path below the tree back to the name that it replaces, in place. */
void vb_shim_map_undo(char *path);

/* The path of a name in the tree ("class/infiniband"). Returns 0 or an errno. */
int vb_shim_map_tree_path(char *buf, size_t size, const char *name);

#endif
