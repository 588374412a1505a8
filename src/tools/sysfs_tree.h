// sysfs_tree.h - writes the tree that replaces /sys/class/infiniband* and /dev/infiniband
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_SYSFS_TREE_H
#define VB_TOOLS_SYSFS_TREE_H

#include <infiniband/verbs.h>

/*
 * Updates the tree of this network namespace (vb_runtime_tree_place, returned in path) to these devices. Several
 * processes may do so at once, and programs may read meanwhile: every file has its old or its new content at any
 * time, and a new device appears with all its files. Removes our trees of namespaces that no longer exist. Returns 0
 * or an errno.
 */
int vb_sysfs_tree_write(struct ibv_device *const *devices, int n, char *path, size_t size);

#endif
