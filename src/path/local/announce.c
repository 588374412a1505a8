// announce.c - tells the broker the addresses by which other processes find this one
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <poll.h>
#include <string.h>

#include "core/device.h"
#include "node/io.h"
#include "path/local/meeting.h"
#include "path/wire_mode.h"

/* Stores the addresses by which peers find this program: for RoCE the GIDs of the device, for iWARP the addresses of
 * its interface. Returns how many. */
static size_t addresses_of(struct vb_device *dev, union ibv_gid *all, size_t max)
{
	struct vb_netdev nd;
	size_t n = 0;

	if (dev->ib)
		return 0; /* it has an address of its own */
	vb_device_netdev(dev, &nd);
	for (size_t i = 0; dev->iwarp && i < nd.n_addrs && n < max; i++)
		memcpy(all[n++].raw, nd.addrs[i], sizeof(all->raw));
	for (int i = 0; !dev->iwarp && i < VB_GID_TBL_LEN && n < max; i++) {
		union ibv_gid gid;

		if (!vb_query_gid_at(dev, 1, i, &gid) && !vb_gid_is_zero(&gid))
			all[n++] = gid;
	}
	return n;
}

void vb_announce_gids(struct vb_node *node)
{
	struct ibv_device **list;
	union ibv_gid all[256];
	int count = 0;
	size_t n = 0;

	if (vb_wire_mode() == VB_WIRE_MODE_ALWAYS) /* this mode forbids shared memory */
		return;
	if (!vb_gid_is_zero(&node->io->ib_address))
		all[n++] = node->io->ib_address;
	list = vb_device_list_kept(&count);
	for (int d = 0; list && d < count; d++)
		n += addresses_of(vb_device_of(list[d]), all + n, 256 - n);
	vb_device_list_free(list);
	vb_broker_set_gids(node->io->broker, all, n);
}

static void on_settled(void *arg, uint64_t tag, int err, const struct vb_peer_info *info)
{
	*(bool *)arg = true;
}

static void on_introduced_ignored(void *arg, const struct vb_peer_info *info)
{
	vb_peer_info_close(info);
}

static void on_another_broker(void *arg)
{
	*(bool *)arg = true; /* the client has reconnected, and has announced everything to the new broker */
}

/*
 * Waits until the broker has our addresses, at most a second. The answer to a later message of the connection proves
 * it. Without the wait, the broker might tell another program that no process has our address. Called before the
 * progress thread runs.
 */
void vb_await_broker(struct vb_node *node)
{
	static const struct vb_broker_ops ops = {
	        .meet_reply = on_settled, .introduced = on_introduced_ignored, .reattached = on_another_broker};
	struct vb_broker_client *broker = node->io->broker;
	union ibv_gid none = {0};
	bool settled = false;

	if (vb_broker_meet(broker, 0, node->lane << VB_LANE_SHIFT, &none))
		return;
	for (int i = 0; i < 100 && !settled; i++) {
		struct pollfd p = {.fd = vb_broker_pollfd(broker), .events = POLLIN};

		poll(&p, 1, 10);
		vb_broker_dispatch(broker, &ops, &settled);
	}
}
