// address.c - the addresses of a queue pair's packets, from an address vector
// follows: IBA annex A17.4.1.1 (GIDs are IP addresses)
// SPDX-License-Identifier: MIT
#include <net/if_arp.h>
#include <string.h>

#include "path/roce/roce.h"

#include "core/device.h"
#include "core/mcast.h"
#include "frame/lrh.h"

/* The default GID of an interface without a MAC address, which is lo. */
static const uint8_t default_of_lo[VB_GID_LEN] = {0xfe, 0x80, [8] = 2, [11] = 0xff, [12] = 0xfe};

static bool is_default_of_lo(const uint8_t gid[VB_GID_LEN])
{
	return !memcmp(gid, default_of_lo, VB_GID_LEN);
}

/* Returns an address of the interface, or NULL. Prefers IPv6, because the receiver of a datagram then gets a GRH. */
static const uint8_t *choose_address(const struct vb_netdev *nd)
{
	for (size_t i = 0; i < nd->n_addrs; i++)
		if (!vb_gid_is_ipv4(nd->addrs[i]))
			return nd->addrs[i];
	return nd->n_addrs ? nd->addrs[0] : NULL;
}

/* The default GID of lo is not an address of this host, so the kernel cannot send packets to it. Both ends replace it
 * with the same address of lo. These packets do not leave the host. */
static void replace_default(struct vb_roce_addr *to, struct vb_device *dev)
{
	bool src = is_default_of_lo(to->src), dst = is_default_of_lo(to->dst);
	struct vb_netdev nd;

	vb_device_netdev(dev, &nd);
	if (nd.arphrd != ARPHRD_LOOPBACK)
		return;
	for (size_t i = 0; i < nd.n_addrs; i++)
		if (is_default_of_lo(nd.addrs[i])) /* an administrator has assigned it to lo as an address */
			return;
	const uint8_t *own = choose_address(&nd);
	if (own && src)
		memcpy(to->src, own, VB_GID_LEN);
	if (own && dst)
		memcpy(to->dst, own, VB_GID_LEN);
}

/* On an InfiniBand link. The port's LID is that of now. */
static void link_address(struct vb_roce_addr *to, const struct vb_device *dev, const union ibv_gid *sgid,
                         const struct ibv_ah_attr *ah)
{
	*to = (struct vb_roce_addr){.link = ah->is_global ? VB_LINK_GLOBAL : VB_LINK_LOCAL,
	                            .sl = ah->sl & 15,
	                            .slid = vb_ib_lid(dev, ah->src_path_bits),
	                            .dlid = ah->dlid};
	if (!ah->is_global) {
		vb_lid_address(to->src, to->slid);
		vb_lid_address(to->dst, to->dlid);
		return;
	}
	to->traffic_class = ah->grh.traffic_class;
	to->hop_limit = ah->grh.hop_limit;
	to->flow_label = ah->grh.flow_label & VB_FLOW_LABEL_MASK;
	memcpy(to->src, sgid->raw, VB_GID_LEN);
	memcpy(to->dst, ah->grh.dgid.raw, VB_GID_LEN);
}

void vb_roce_address(struct vb_roce_addr *to, struct vb_qp *qp, const union ibv_gid *sgid, const struct ibv_ah_attr *ah)
{
	union ibv_gid group; /* the multicast IP address, or the unicast destination */

	if (qp->ib) {
		link_address(to, VB_CONTEXT_OF(qp)->dev, sgid, ah);
		return;
	}
	*to = (struct vb_roce_addr){.ifindex = (uint32_t)VB_CONTEXT_OF(qp)->dev->ifindex,
	                            .traffic_class = ah->grh.traffic_class,
	                            .hop_limit = ah->grh.hop_limit};
	memcpy(to->src, sgid->raw, VB_GID_LEN);
	vb_mcast_address(&ah->grh.dgid, &group);
	memcpy(to->dst, group.raw, VB_GID_LEN);
	if (is_default_of_lo(to->dst) || is_default_of_lo(to->src))
		replace_default(to, VB_CONTEXT_OF(qp)->dev);
}
