// lid.h - local identifiers for programs that do not use GIDs (VERBENA_LIDS): the host part of an IPv4 address
// follows: IBA volume 1, 4.1.3 (LIDs); verbena(7)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_LID_H
#define VB_CORE_LID_H

#include "core/device.h"

/* The LID of an interface: the host part of its first IPv4 address, or 0 if that is no unicast LID. */
uint16_t vb_lid_of(const struct vb_netdev *nd);

/*
 * Resolves an address vector without a GRH. The source is the interface's first IPv4 address, the destination the
 * address of the same subnet with dlid as its host part. Fills in av->grh and does not change is_global. EINVAL if the
 * device has no LIDs or the subnet has no such address.
 */
int vb_lid_route(struct vb_device *dev, struct ibv_ah_attr *av);

#endif
