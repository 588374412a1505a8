// host_guid.h - a GUID for an adapter whose interface has no MAC
// follows: IEEE EUI-64, locally administered
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_HOST_GUID_H
#define VB_NODE_HOST_GUID_H

#include <stdint.h>

/* The same on each call on one machine (while it runs, where it has no /etc/machine-id), never zero, another one for
 * each name; in host order. The machine's id cannot be found out from it. */
uint64_t vb_host_guid(const char *ifname);

#endif
