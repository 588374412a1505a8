// lanes.h - the group of sockets on UDP port 4791: made at once, one per lane, each datagram to the lane of its QP number
// follows: design "Receiving on UDP 4791 in several processes"; IBA 9.2 (BTH), RoCEv2 annex A17.4
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_LANES_H
#define VB_BROKER_SERVER_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/proto.h"
#include "broker/server/table.h"

#define VB_ROCE_PORT 4791
#define VB_MIN_LANE_SOCKETS 16
#define VB_DESCRIPTORS_EACH 9 /* a session's: 5, one in use meanwhile; and the 8 under way that another user's may have not read */

/* Whoever owns a group closes it as a whole: when one socket goes, the kernel gives its index to the last. */
struct vb_lane_group {
	uint32_t n;                    /* sockets, a power of two; 0: there is no group */
	int fd[VB_LANE_COUNT];         /* the first n */
	bool shut[VB_LANE_COUNT];      /* of a socket: it drops what arrives */
	bool split;                    /* it serves several users: see vb_lanes_socket */
	struct vb_lane_set given;      /* lanes, not sockets: below 1024 sockets several lanes share one, 0 excepted */
	struct vb_lane_set relayed;    /* of those: their programs get datagrams from us, and no socket */
};

/* Makes the group, every socket shut: as many as fit beside spare other descriptors, a power of two. 0, EADDRINUSE
 * (somebody has the port), EMFILE (not even 16 fit), or another errno. */
int vb_lanes_open(struct vb_lane_group *g, uint32_t spare);
void vb_lanes_close(struct vb_lane_group *g);

/* Which socket is this lane's. */
uint32_t vb_lanes_socket(const struct vb_lane_group *g, uint32_t lane);

/* The socket of a lane that gets a holder: open, and rid of what arrived for an earlier one. It stays the group's.
 * relayed: the holder is another user's program, which must not have it. -1: it is shared with lanes of the other kind. */
int vb_lanes_give(struct vb_lane_group *g, uint32_t lane, bool relayed);

/* Its holder has gone: shut, unless another lane shares it. */
void vb_lanes_take_back(struct vb_lane_group *g, uint32_t lane);

#endif
