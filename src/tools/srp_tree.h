// srp_tree.h - what the kernel's SRP initiator has in /sys, in the tree that replaces it
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp; man/verbena-srp-host.8
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_SRP_TREE_H
#define VB_TOOLS_SRP_TREE_H

#include <infiniband/verbs.h>

#include "tools/tree_files.h"

/* add_target for each of these devices, and the logins of verbena-srp-host. Nothing without VERBENA_SRP: another value of it
 * is another tree. */
void vb_srp_tree_write(struct vb_tree *t, struct ibv_device *const *devices, int n);

#endif
