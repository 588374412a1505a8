// shared_map.h - a peer's shared memory, mapped here too
// follows: ARCHITECTURE.md, "The same host"
// SPDX-License-Identifier: MIT
#ifndef VB_IO_SHARED_MAP_H
#define VB_IO_SHARED_MAP_H

#include "engine/peer.h"

/* Unmaps all. No copy is under way. */
void vb_maps_free(struct vb_peer *peer);

#endif
