// groups.h - multicast groups of programs that are relayed to: the owner of the sockets is a member in their place
// follows: ip(7) (IP_ADD_MEMBERSHIP), ipv6(7)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_GROUPS_H
#define VB_BROKER_SERVER_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/server/lanes.h"

#define VB_GROUPS_EACH 20 /* of one lane: what a socket may have by default (net.ipv4.igmp_max_memberships) */
#define VB_GROUPS (VB_LANE_COUNT * VB_GROUPS_EACH) /* nobody takes another's */

struct vb_groups {
	uint32_t n;
	struct vb_membership {
		uint32_t lane, ifindex;
		uint8_t group[16];
	} all[VB_GROUPS];
};

/* The lane is in the group, or is so no longer. 0 or an errno: ENOBUFS (too many), EINVAL (not a group). Said twice: 0. */
int vb_groups_set(struct vb_groups *t, const struct vb_lane_group *g, uint32_t lane, const uint8_t group[16],
                  uint32_t ifindex, bool join);
/* Its program has gone. */
void vb_groups_forget(struct vb_groups *t, const struct vb_lane_group *g, uint32_t lane);

#endif
