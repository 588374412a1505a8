// import.c - maps a memory region of another process that has given us its device's descriptor
// follows: ibv_import_mr(3); docs/same-host.md
// SPDX-License-Identifier: MIT
#include "core/import.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/share.h"
#include "engine/local/local.h"
#include "node/io.h"
#include "path/local/shared_map.h"
#include "path/roce/roce.h"
#include "util/log.h"

/* Reads the region from its owner's segment, which may say anything. */
static int read_region(struct vb_peer *peer, uint32_t handle, uint32_t pd, struct vb_mr_view *view, uint32_t *key)
{
	struct vb_mr_shared *e = vb_seg_mr(peer->seg, handle - 1);

	if (!handle || handle - 1 >= VB_SEG_MRS)
		return ENOENT;
	*key = atomic_load_explicit(&e->key, memory_order_acquire);
	if (!*key || vb_seg_mr_of(peer->seg, *key) != e || !vb_mr_read_shared(peer->seg, *key, view) ||
	    view->pd != pd || !view->length)
		return ENOENT;
	/* nothing here depends on these, but a hostile owner may say so */
	if (view->access & (VB_MR_NULL | VB_MR_BY_OWNER))
		return ENOENT;
	return 0;
}

static int map_of_peer(struct vb_peer *peer, uint32_t handle, uint32_t pd, struct vb_region_map *map)
{
	static atomic_bool said;
	struct vb_mr_view view;
	int err = read_region(peer, handle, pd, &view, &map->key);

	if (err)
		return err;
	map->length = view.length;
	map->iova = view.iova;
	map->access = view.access;
	if (vb_shared_map_region(peer, &view, map))
		return 0;
	if (!atomic_exchange(&said, true))
		vb_log(VB_LOG_ERROR,
		       "ibv_import_mr: the region of process %d is not shared memory: map it with MAP_SHARED (a file, memfd_create, "
		       "shm_open or shmat) in one piece before it is registered",
		       peer->pid);
	return EOPNOTSUPP;
}

/* An address of the host, by which the broker finds the other process (path/local/announce.c). */
static bool any_gid(struct vb_device *dev, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	struct vb_netdev nd;

	vb_device_netdev(dev, &nd);
	if (dev->iwarp && nd.n_addrs) /* its GID is a MAC address */
		memcpy(gid->raw, nd.addrs[0], sizeof(gid->raw));
	if (dev->iwarp)
		return nd.n_addrs;
	for (uint32_t i = 0; i < VB_GID_TBL_LEN; i++)
		if (!vb_query_gid_entry(dev, 1, i, &entry)) {
			*gid = entry.gid;
			return true;
		}
	return false;
}

int vb_region_import(struct vb_node *node, const struct vb_share *share, struct vb_device *dev, uint32_t handle,
                     uint32_t pd, struct vb_region_map **out)
{
	union ibv_gid gid;

	if (!any_gid(dev, &gid))
		return ENETDOWN;
	struct vb_region_map *map = calloc(1, sizeof(*map));
	int err = 0;
	if (!map)
		return ENOMEM;
	struct vb_peer *peer = vb_peer_find(node, share->lane << VB_LANE_SHIFT, &gid, VB_RESOLVE_WAIT, &err);

	if (peer && !vb_peer_hold(peer))
		peer = NULL;
	if (!peer) {
		free(map);
		return err ? err : ENOENT;
	}
	err = peer->incarnation == share->incarnation ? map_of_peer(peer, handle, pd, map) : ENOENT;
	vb_peer_release(peer);
	if (err)
		free(map);
	else
		*out = map;
	return err;
}

void vb_region_unmap(struct vb_region_map *map)
{
	if (!map)
		return;
	vb_shared_map_end(map);
	free(map);
}
