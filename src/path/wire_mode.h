// wire_mode.h - VERBENA_WIRE: when queue pairs use the network
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_WIRE_MODE_H
#define VB_PATH_WIRE_MODE_H

/* VERBENA_WIRE: auto (the network if the peer is no program of this host that can be met), always, never. */
enum vb_wire_mode { VB_WIRE_MODE_AUTO, VB_WIRE_MODE_ALWAYS, VB_WIRE_MODE_NEVER };
/* Reads the variable once. */
enum vb_wire_mode vb_wire_mode(void);

#endif
