// groups.h - multicast groups of programs whose datagrams are relayed: the keeper joins in their place
// follows: ip(7) (IP_ADD_MEMBERSHIP), ipv6(7)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_GROUPS_H
#define VB_BROKER_SERVER_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/server/lanes.h"

#define VB_GROUPS_EACH 20 /* per lane: the default limit of one socket (net.ipv4.igmp_max_memberships) */
#define VB_GROUPS (VB_LANE_COUNT * VB_GROUPS_EACH) /* enough for all lanes: no lane takes another's */

struct vb_groups {
	uint32_t n;
	struct vb_membership {
		uint32_t lane, ifindex;
		uint8_t group[16];
	} all[VB_GROUPS];
};

/* The lane joins or leaves the group. Repeating is allowed. Returns 0 or an errno: ENOBUFS (too many), EINVAL (not a
 * multicast group). */
int vb_groups_set(struct vb_groups *t, const struct vb_lane_group *g, uint32_t lane, const uint8_t group[16],
                  uint32_t ifindex, bool join);
/* Leaves all groups of a lane whose program has ended. */
void vb_groups_forget(struct vb_groups *t, const struct vb_lane_group *g, uint32_t lane);

/* The groups that a program has joined by itself, on a socket that it read. */
enum vb_groups_left {
	VB_GROUPS_NONE,
	VB_GROUPS_MAYBE, /* leave what the socket is in, if no program has it any more */
	VB_GROUPS_TOLD,  /* leave what it is in: those that share it join theirs again */
};
/* Takes the lane's socket back from a program that has ended (vb_lanes_take_back), and takes it out of groups. */
void vb_groups_take_back(struct vb_lane_group *g, uint32_t lane, enum vb_groups_left left);

#endif
