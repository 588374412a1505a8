// mcast.h - multicast groups, and the queue pairs of this process that have joined them
// follows: IBA volume 1, 10.5 (multicast); ibv_attach_mcast(3); annex A17 (RoCEv2), A17.4.3
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_MCAST_H
#define VB_CORE_MCAST_H

#include "core/node.h"

struct vb_mcast {
	union ibv_gid group; /* IPv4 groups as mapped addresses; on a fabric, any MGID */
	uint32_t ifindex;
	uint16_t lid; /* on a fabric: the MLID; else 0 */
	struct vb_qp *qp;
	struct vb_mcast *next;
};

/* Converts the GID of a group to its address. Some programs write an IPv4 group as ff0e::ffff:a.b.c.d, which becomes
 * ::ffff:a.b.c.d. False if it is not a group. */
bool vb_mcast_address(const union ibv_gid *gid, union ibv_gid *group);

/* Has the queue pair sent this datagram itself, and does not want to get it? sgid: the sender's GID. Any lock may be held. */
bool vb_mcast_is_unwanted(const struct vb_qp *qp, uint32_t src_qpn, const uint8_t sgid[16]);

#endif
