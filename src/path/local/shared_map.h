// shared_map.h - a peer's shared memory, mapped here too
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_SHARED_MAP_H
#define VB_PATH_LOCAL_SHARED_MAP_H

#include "engine/local/peer.h"

struct vb_region_map;
/* Maps the peer's region, which has this view and map->key, for as long as the program wants. False if it is not shared
 * memory, or not in one piece. The peer is held. No lock held. */
bool vb_shared_map_region(struct vb_peer *peer, const struct vb_mr_view *view, struct vb_region_map *map);
void vb_shared_map_end(struct vb_region_map *map);

/* Unmaps and frees a peer's list. The caller knows that no copy is in progress. */
void vb_maps_free(struct vb_map *maps);

#endif
