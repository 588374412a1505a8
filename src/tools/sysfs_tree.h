// sysfs_tree.h - the tree that stands for /sys/class/infiniband* and /dev/infiniband
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_SYSFS_TREE_H
#define VB_TOOLS_SYSFS_TREE_H

#include <infiniband/verbs.h>

/*
 * Brings the tree (vb_runtime_tree_place, which comes back in path) in line with these devices. Many may do so at once, and programs may read meanwhile:
 * each file has its old or its new content at any time, a new device appears with all its files. Our trees of namespaces that have
 * ended are removed. 0 or an errno value.
 */
int vb_sysfs_tree_write(struct ibv_device *const *devices, int n, char *path, size_t size);

#endif
