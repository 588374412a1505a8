// resources.h - the objects of the running programs, for RDMA netlink
// follows: docs/control.md; rdma-resource(8)
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_RESOURCES_H
#define VB_SHIM_RESOURCES_H

#include "tools/shim/resource_row.h"

typedef void vb_shim_take_resource(void *arg, const struct vb_shim_resource *r);

/* Calls take with each object of this kind that the user's programs have on the device. Programs that do not answer have
 * none. */
void vb_shim_resources(enum vb_shim_kind kind, const char *device, vb_shim_take_resource *take, void *arg);

#endif
