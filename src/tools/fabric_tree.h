// fabric_tree.h - the CA of a simulated InfiniBand subnet in the tree that replaces /sys and /dev
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_FABRIC_TREE_H
#define VB_TOOLS_FABRIC_TREE_H

#include <stdint.h>

#include "tools/tree_files.h"

/* All do nothing without VERBENA_FABRIC, or if its process does not answer. */

/* Writes the CA's files as they are now. The path shim asks the fabric whenever one is opened. */
void vb_fabric_tree_write(struct vb_tree *t);
/* An entry of a class or of /dev/infiniband. */
bool vb_fabric_tree_has(const char *name);
/* h with what the files are about. */
uint64_t vb_fabric_tree_fingerprint(uint64_t h);

#endif
