// lid.c - local identifiers for programs that do not use GIDs (VERBENA_LIDS): the host part of an IPv4 address
// follows: IBA volume 1, 4.1.3 (LIDs); verbena(7)
// SPDX-License-Identifier: MIT
#include "core/lid.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { LAST_UNICAST = 0xbfff };

/* The first address of an interface and the mask of its host part. False if it is not an IPv4 address. */
static bool first_v4(const struct vb_netdev *nd, uint32_t *addr, uint32_t *host_bits)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (!nd->n_addrs || memcmp(nd->addrs[0], mapped, sizeof(mapped)))
		return false;
	memcpy(addr, nd->addrs[0] + sizeof(mapped), sizeof(*addr));
	*addr = be32toh(*addr);
	*host_bits = nd->v4_prefix < 32 ? ~0u >> nd->v4_prefix : 0;
	return true;
}

uint16_t vb_lid_of(const struct vb_netdev *nd)
{
	uint32_t addr, host_bits;

	if (!first_v4(nd, &addr, &host_bits))
		return 0;
	return (addr & host_bits) <= LAST_UNICAST ? (uint16_t)(addr & host_bits) : 0;
}

static void map_v4(union ibv_gid *gid, uint32_t addr)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	addr = htobe32(addr);
	memcpy(gid->raw + 12, &addr, sizeof(addr));
}

int vb_lid_route(struct vb_device *dev, struct ibv_ah_attr *av)
{
	uint32_t addr, host_bits;
	union ibv_gid own;

	vb_lock(&dev->lock);
	bool found = dev->lids && first_v4(&dev->nd, &addr, &host_bits);
	vb_unlock(&dev->lock);
	if (!found || !av->dlid || av->dlid > LAST_UNICAST || av->dlid & ~host_bits)
		return EINVAL;
	map_v4(&own, addr);
	int index = vb_query_gid_index(dev, 1, &own);
	if (index < 0)
		return EINVAL;
	av->grh = (struct ibv_global_route){.sgid_index = (uint8_t)index};
	map_v4(&av->grh.dgid, (addr & ~host_bits) | av->dlid);
	return 0;
}
