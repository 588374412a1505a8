// shared_map.h - a peer's shared memory, mapped here too
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_SHARED_MAP_H
#define VB_PATH_LOCAL_SHARED_MAP_H

#include "engine/local/peer.h"

/* Unmaps and frees a peer's list. The caller knows that no copy is in progress. */
void vb_maps_free(struct vb_map *maps);

#endif
