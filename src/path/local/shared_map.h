// shared_map.h - a peer's shared memory, mapped here too
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_SHARED_MAP_H
#define VB_PATH_LOCAL_SHARED_MAP_H

#include "engine/local/peer.h"

/* Unmaps all of this list of a peer's. No copy is in progress. */
void vb_maps_free(struct vb_map *maps);

#endif
