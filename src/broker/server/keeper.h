// keeper.h - the process that owns the group of lane sockets, so that a broker may die without moving a lane
// follows: design "Receiving on UDP 4791 in several processes"
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_KEEPER_H
#define VB_BROKER_SERVER_KEEPER_H

#include <stddef.h>
#include <stdint.h>

#include "broker/proto/runtime.h"
#include "broker/server/table.h"

#define VB_KEEPER_MAGIC 0x56424b32u /* of this layout; keeper and broker may be of different builds */

enum vb_keeper_op {
	VB_KEEPER_HELLO = 1, /* the first; the answer brings the lifeline's writing end and the socket of lane 0 */
	VB_KEEPER_GIVE,      /* the answer brings the lane's socket */
	VB_KEEPER_TAKE_BACK, /* no answer */
	VB_KEEPER_RELAY,     /* the answer brings the program's end of a channel: broker/server/relay.h */
	VB_KEEPER_JOIN,      /* of a lane that is relayed to; no answer, as to LEAVE */
	VB_KEEPER_LEAVE,
};

struct vb_keeper_ask {
	uint32_t magic, op;
	uint64_t dev, ino; /* HELLO: the runtime directory, which tells whose broker asks */
	uint32_t lane;
	uint32_t ifindex;    /* JOIN, LEAVE */
	uint8_t group[16];
};

struct vb_keeper_answer {
	int32_t err; /* EADDRINUSE: somebody has the port; EBUSY: its broker is here already, or the socket is shared */
	uint32_t n;
	struct vb_lane_set given;
};

/* Where the keeper of this runtime directory and this network namespace listens: only its own user, and root, get there. */
void vb_keeper_runtime(const struct vb_runtime *broker, struct vb_runtime *rt);

/* Forks one, as nobody's child, and says HELLO to it: *sock will have the answer. The caller has no other threads. 0 or
 * an errno. */
int vb_keeper_start(const struct vb_runtime *rt, const struct vb_keeper_ask *hello, int *sock);

/* One message with at most two descriptors. 0 or an errno. */
int vb_keeper_send(int sock, const void *msg, size_t len, const int *fds, int nfds);

#endif
