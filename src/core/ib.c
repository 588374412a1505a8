// ib.c - adapters on an InfiniBand fabric: what the fabric process says of their port, and address vectors by LID
// follows: IBA volume 1, 14.2.5.6 (PortInfo), 11.2.2 (address handle); ibv_query_port(3), ibv_create_ah(3)
// SPDX-License-Identifier: MIT
#include "core/ib.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "core/device.h"

enum { LAST_UNICAST = 0xbfff, LAST_LID = 0xfffe, SLS = 16, MTU_256 = 1, MTU_4096 = 5, LMC_MAX = 7 };

static void set_gids(struct vb_device *dev)
{
	struct vb_gid_table old = dev->gids;
	const struct vb_ib_port *p = &dev->port;

	memset(&dev->gids, 0, sizeof(dev->gids));
	for (unsigned i = 0; i < VB_IB_GUIDS; i++) {
		uint64_t half[2] = {htobe64(p->prefix), htobe64(p->guids[i])};

		if (p->guids[i])
			memcpy(dev->gids.gid[i].raw, half, sizeof(half));
	}
	if (memcmp(&old, &dev->gids, sizeof(old)) != 0)
		dev->pending |= VB_DEV_GID_CHANGE;
}

static struct vb_ib_port possible_port(const struct vb_ib_port *port)
{
	struct vb_ib_port p = *port;

	if (p.state < IBV_PORT_DOWN || p.state > IBV_PORT_ACTIVE)
		p.state = IBV_PORT_DOWN;
	if (p.mtu < MTU_256 || p.mtu > MTU_4096)
		p.mtu = MTU_256;
	if (p.mtu_cap < p.mtu || p.mtu_cap > MTU_4096)
		p.mtu_cap = MTU_4096;
	if (p.lid > LAST_UNICAST)
		p.lid = 0;
	if (p.lmc > LMC_MAX)
		p.lmc = 0;
	return p;
}

static unsigned changes(const struct vb_ib_port *old, const struct vb_ib_port *new)
{
	bool was = old->state == IBV_PORT_ACTIVE, is = new->state == IBV_PORT_ACTIVE;
	unsigned bits = was == is ? 0 : is ? VB_DEV_PORT_UP : VB_DEV_PORT_DOWN;

	if (old->lid != new->lid || old->lmc != new->lmc)
		bits |= VB_DEV_LID_CHANGE;
	if (memcmp(old->pkey, new->pkey, sizeof(old->pkey)) != 0)
		bits |= VB_DEV_PKEY_CHANGE;
	if (old->sm_lid != new->sm_lid || old->sm_sl != new->sm_sl)
		bits |= VB_DEV_SM_CHANGE;
	if (old->reregisters != new->reregisters)
		bits |= VB_DEV_REREGISTER;
	return bits;
}

void vb_device_apply_ib(struct vb_device *dev, const struct vb_ib_port *port)
{
	vb_lock(&dev->lock);
	struct vb_ib_port now = possible_port(port);
	unsigned bits = changes(&dev->port, &now);

	if (bits & (VB_DEV_PORT_UP | VB_DEV_PORT_DOWN)) /* a change that is undone before it is told is not reported */
		dev->pending &= ~(unsigned)(VB_DEV_PORT_UP | VB_DEV_PORT_DOWN);
	dev->pending |= bits;
	dev->port = now;
	atomic_store_explicit(&dev->lids_of_ib, (uint32_t)now.lmc << 16 | now.lid, memory_order_relaxed);
	set_gids(dev);
	vb_unlock(&dev->lock);
}

void vb_device_ib_port(struct vb_device *dev, struct vb_ib_port *port)
{
	vb_lock(&dev->lock);
	*port = dev->port;
	vb_unlock(&dev->lock);
}

static uint32_t mask_of_path_bits(uint32_t lids)
{
	return (1u << (lids >> 16)) - 1;
}

uint16_t vb_ib_lid(const struct vb_device *dev, uint8_t path_bits)
{
	uint32_t lids = atomic_load_explicit(&dev->lids_of_ib, memory_order_relaxed);

	return (uint16_t)(lids | (path_bits & mask_of_path_bits(lids)));
}

uint8_t vb_ib_path_bits(const struct vb_device *dev, uint16_t lid)
{
	return (uint8_t)(lid & mask_of_path_bits(atomic_load_explicit(&dev->lids_of_ib, memory_order_relaxed)));
}

int vb_ib_query_port(struct vb_device *dev, struct ibv_port_attr *attr)
{
	struct vb_ib_port p;

	vb_device_ib_port(dev, &p);
	*attr = (struct ibv_port_attr){.state = p.state,
	                               .max_mtu = p.mtu_cap,
	                               .active_mtu = p.mtu,
	                               .gid_tbl_len = VB_IB_GUIDS,
	                               .port_cap_flags = p.cap_mask,
	                               .max_msg_sz = VB_MAX_MSG_SZ,
	                               .bad_pkey_cntr = p.bad_pkeys,
	                               .qkey_viol_cntr = p.bad_qkeys,
	                               .pkey_tbl_len = VB_IB_PKEYS,
	                               .lid = p.lid,
	                               .sm_lid = p.sm_lid,
	                               .lmc = p.lmc,
	                               .max_vl_num = p.vls,
	                               .sm_sl = p.sm_sl,
	                               .subnet_timeout = p.subnet_timeout,
	                               .active_width = p.width,
	                               .active_speed = p.speed,
	                               .phys_state = p.phys,
	                               .link_layer = IBV_LINK_LAYER_INFINIBAND};
	return 0;
}

uint16_t vb_ib_pkey(struct vb_device *dev, unsigned index)
{
	vb_lock(&dev->lock);
	uint16_t pkey = index < VB_IB_PKEYS ? dev->port.pkey[index] : 0;
	vb_unlock(&dev->lock);
	return pkey;
}

int vb_ib_check_av(struct vb_device *dev, const struct ibv_ah_attr *av, union ibv_gid *sgid)
{
	struct ibv_gid_entry entry;
	bool multicast = vb_ib_is_group_lid(av->dlid);

	if (av->port_num != 1 || !av->dlid || av->dlid > LAST_LID || av->sl >= SLS)
		return EINVAL;
	if (multicast &&
	    (!av->is_global || av->grh.dgid.raw[0] != 0xff)) /* 11.2.2.1: a group is named by its GID too */
		return EINVAL;
	if (vb_query_gid_entry(dev, 1, av->is_global ? av->grh.sgid_index : 0, &entry))
		return EINVAL;
	if (sgid)
		*sgid = entry.gid;
	return 0;
}

struct vb_ib_route vb_ib_route_of(const struct ibv_ah_attr *av, uint16_t pkey, bool both)
{
	struct vb_ib_route r = {.dlid = av->dlid,
	                        .pkey = pkey,
	                        .path_bits = av->src_path_bits & 0x7f,
	                        .sl = av->sl & 15,
	                        .grh = av->is_global,
	                        .both = both};

	if (av->is_global)
		r.dgid = av->grh.dgid;
	return r;
}
