// fabric_guest.h - VERBENA_FABRIC=udp:HOST: a fabric process of this host that has VERBENA_NODE
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_FABRIC_GUEST_H
#define VB_TOOLS_FABRIC_GUEST_H

#include <stdbool.h>

/* Finds or starts it, and makes VERBENA_FABRIC its socket. Does nothing unless VERBENA_FABRIC begins with udp:. False after
 * a complaint. */
bool fabric_guest_start(void);

#endif
