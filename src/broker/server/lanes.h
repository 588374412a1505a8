// lanes.h - the group of sockets on UDP port 4791: one per lane; each datagram goes to the lane of its QP number
// follows: IBA volume 1, section 9.2 (BTH); annex A17.4 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_LANES_H
#define VB_BROKER_SERVER_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/proto.h"
#include "broker/server/table.h"
#include "frame/fields.h"

#define VB_MIN_LANE_SOCKETS 16
/* The broker's, and one shared by all programs. split: one for programs of the broker's user, two for those of others. */
#define VB_FEWEST_SOCKETS(split) ((split) ? 4 : 2)
#define VB_DESCRIPTORS_EACH \
	9 /* of a session: 5, 1 in temporary use, and for another user's program up to 8 in unread messages */

/* The owner closes a group as a whole: if one socket is closed, the kernel moves the last one to its index. */
struct vb_lane_group {
	uint32_t n;               /* sockets, a power of two; 0: there is no group */
	int fd[VB_LANE_COUNT];    /* the first n are open */
	int sink, family;         /* of the sockets: AF_INET6, or AF_INET if there is no IPv6 */
	bool has_sink;            /* the socket after them: drops what comes for lanes without a holder */
	bool shut[VB_LANE_COUNT]; /* per socket: no lane of it is given */
	bool split;               /* it serves several users: see vb_lanes_socket */
	struct vb_lane_set given; /* lanes, not sockets: with fewer than 1024 sockets, lanes other than 0 share them */
	struct vb_lane_set relayed; /* given lanes whose programs get relayed datagrams and no socket */
};

/* Makes the group with all sockets shut: as many as fit beside spare other descriptors, a power of two. Returns 0,
 * EADDRINUSE (another program holds the port), EMFILE (not even 16 fit), or another errno. */
int vb_lanes_open(struct vb_lane_group *g, uint32_t spare);
void vb_lanes_close(struct vb_lane_group *g);

/* The index of the lane's socket. */
uint32_t vb_lanes_socket(const struct vb_lane_group *g, uint32_t lane);

/* Opens a lane's socket for a new holder, and discards packets for an earlier one. The socket stays the group's.
 * relayed: the holder is another user's program, which must not get the socket. Returns -1 if the socket serves lanes
 * of the other kind. */
int vb_lanes_give(struct vb_lane_group *g, uint32_t lane, bool relayed);

/* The holder has ended: shuts the socket unless another lane uses it. Returns whether none does. */
bool vb_lanes_take_back(struct vb_lane_group *g, uint32_t lane);

#endif
