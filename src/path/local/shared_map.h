// shared_map.h - a peer's shared memory, mapped here too
// follows: ARCHITECTURE.md, "The same host"
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_SHARED_MAP_H
#define VB_PATH_LOCAL_SHARED_MAP_H

#include "engine/local/peer.h"

/* Unmaps all. No copy is under way. */
void vb_maps_free(struct vb_peer *peer);

#endif
