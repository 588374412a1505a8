// host_guid.h - a GUID for an adapter whose interface has no MAC
// follows: IEEE EUI-64, locally administered
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_HOST_GUID_H
#define VB_NODE_HOST_GUID_H

#include <stdint.h>

/* The GUID is the same for each call on one machine (until reboot, if it has no /etc/machine-id), differs by name,
 * and is never zero. In host order. It does not reveal the machine's id. */
uint64_t vb_host_guid(const char *ifname);

#endif
