// device.c - an adapter: its lifetime, and its state, which follows its network interface
// follows: IBA 11.2.1 (HCA), 11.6.3 (asynchronous events of a port)
// SPDX-License-Identifier: MIT
#include "core/device.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/lid.h"

static_assert(offsetof(struct vb_device, dev) == 0, "programs hold a pointer to it");
static_assert(offsetof(struct vb_device, ifindex) >= 4096, "libmlx5 reads past struct ibv_device");

/* iWARP adapters have minors above those of all RoCE adapters, because an interface may have both kinds. */
#define IWARP_MINOR 65536
#define IB_MINOR (2 * IWARP_MINOR)

static struct vb_device *named_device(const char *name, int number)
{
	struct vb_device *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->dev.node_type = IBV_NODE_CA;
	dev->dev.transport_type = IBV_TRANSPORT_IB;
	snprintf(dev->dev.name, sizeof(dev->dev.name), "%s", name);
	dev->number = number;
	snprintf(dev->dev.dev_name, sizeof(dev->dev.dev_name), "uverbs%d", dev->number);
	snprintf(dev->dev.dev_path, sizeof(dev->dev.dev_path), "/sys/class/infiniband_verbs/%s", dev->dev.dev_name);
	snprintf(dev->dev.ibdev_path, sizeof(dev->dev.ibdev_path), "/sys/class/infiniband/%s", dev->dev.name);
	dev->refs = 1;
	vb_lock_init(&dev->lock, VB_RANK_DEVICE);
	return dev;
}

struct vb_device *vb_device_new_ib(const char *name, const struct vb_ib_port *port)
{
	struct vb_device *dev = named_device(name, IB_MINOR);

	if (!dev)
		return NULL;
	dev->ib = true;
	dev->node_guid = htobe64(port->node_guid);
	vb_device_apply_ib(dev, port);
	dev->pending = 0;
	return dev;
}

static struct vb_device *device_new(bool iwarp, const struct vb_netdev *nd, const char *name, __be64 node_guid)
{
	/* The interface index is stable, unique in its namespace, and the same in all processes. */
	struct vb_device *dev = named_device(name, nd->ifindex - 1 + (iwarp ? IWARP_MINOR : 0));

	if (!dev)
		return NULL;
	dev->iwarp = iwarp;
	if (iwarp) {
		dev->dev.node_type = IBV_NODE_RNIC;
		dev->dev.transport_type = IBV_TRANSPORT_IWARP;
	}
	dev->ifindex = nd->ifindex;
	dev->node_guid = node_guid;
	vb_device_apply(dev, nd);
	dev->pending = 0;
	return dev;
}

struct vb_device *vb_device_new(const struct vb_netdev *nd, const char *name, __be64 node_guid)
{
	return device_new(false, nd, name, node_guid);
}

struct vb_device *vb_device_new_iwarp(const struct vb_netdev *nd, const char *name, __be64 node_guid)
{
	return device_new(true, nd, name, node_guid);
}

struct vb_device *vb_device_get(struct vb_device *dev)
{
	__atomic_add_fetch(&dev->refs, 1, __ATOMIC_RELAXED);
	return dev;
}

void vb_device_put(struct vb_device *dev)
{
	if (!dev || __atomic_sub_fetch(&dev->refs, 1, __ATOMIC_ACQ_REL))
		return;
	free(dev);
}

static unsigned port_change(bool was_up, bool is_up)
{
	if (was_up == is_up)
		return 0;
	return is_up ? VB_DEV_PORT_UP : VB_DEV_PORT_DOWN;
}

/* A link that is down, or that of a virtual interface, tells no speed. */
static unsigned speed_change(struct vb_device *dev, const struct vb_netdev *nd)
{
	uint32_t was = dev->speed;

	if (!vb_netdev_is_up(nd) || !nd->speed_mbps || nd->speed_mbps == was)
		return 0;
	dev->speed = nd->speed_mbps;
	return was ? VB_DEV_SPEED : 0;
}

/* The GID is the MAC address, then zeros. lo has no MAC and uses bytes of its GUID. */
static bool update_iwarp_gid(struct vb_device *dev)
{
	static const uint8_t none[6];
	union ibv_gid gid = {0};

	memcpy(gid.raw, dev->nd.mac, 6);
	if (!memcmp(dev->nd.mac, none, 6)) {
		memcpy(gid.raw, &dev->node_guid, 3);
		memcpy(gid.raw + 3, (const uint8_t *)&dev->node_guid + 5, 3);
	}
	if (!memcmp(&gid, &dev->gids.gid[0], sizeof(gid)))
		return false;
	dev->gids.gid[0] = gid;
	return true;
}

static bool update_gids(struct vb_device *dev)
{
	if (dev->iwarp)
		return update_iwarp_gid(dev);
	return vb_gid_table_update(&dev->gids, dev->nd.mac, (const uint8_t(*)[16])dev->nd.addrs, dev->nd.n_addrs);
}

void vb_device_apply(struct vb_device *dev, const struct vb_netdev *nd)
{
	vb_lock(&dev->lock);
	uint16_t lid = vb_lid_of(&dev->nd);

	if (!nd && !dev->gone) {
		dev->pending |= VB_DEV_GONE | port_change(vb_netdev_is_up(&dev->nd), false);
		dev->nd.flags = 0;
		dev->nd.n_addrs = 0;
		dev->gone = true;
	} else if (nd && !dev->gone) {
		unsigned change = port_change(vb_netdev_is_up(&dev->nd), vb_netdev_is_up(nd));

		/* A change of the port that is undone before vb_device_refresh is not reported. */
		if (change)
			dev->pending &= ~(unsigned)(VB_DEV_PORT_UP | VB_DEV_PORT_DOWN);
		dev->pending |= change;
		if (vb_mtu_of_ip_mtu(dev->nd.mtu) != vb_mtu_of_ip_mtu(nd->mtu))
			dev->pending |= VB_DEV_MTU;
		dev->pending |= speed_change(dev, nd);
		dev->nd = *nd;
	}
	if (dev->lids && vb_lid_of(&dev->nd) != lid)
		dev->pending |= VB_DEV_LID_CHANGE;
	if (update_gids(dev))
		dev->pending |= VB_DEV_GID_CHANGE;
	vb_unlock(&dev->lock);
}

unsigned vb_device_take_pending(struct vb_device *dev)
{
	vb_lock(&dev->lock);
	unsigned pending = dev->pending;
	dev->pending = 0;
	vb_unlock(&dev->lock);
	return pending;
}

void vb_device_netdev(struct vb_device *dev, struct vb_netdev *nd)
{
	vb_lock(&dev->lock);
	*nd = dev->nd;
	vb_unlock(&dev->lock);
}
