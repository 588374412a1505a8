// keeper.h - the process that owns the group of RoCE sockets, so that a broker's death does not change the group
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_KEEPER_H
#define VB_BROKER_SERVER_KEEPER_H

#include <stddef.h>
#include <stdint.h>

#include "broker/proto/runtime.h"
#include "broker/server/table.h"

#define VB_KEEPER_MAGIC 0x56424b33u /* of this layout: keeper and broker may be of different builds */

enum vb_keeper_op {
	/* the first message; the answer brings the writing end of the lifeline and the socket of lane 0 */
	VB_KEEPER_HELLO = 1,
	VB_KEEPER_GIVE,      /* the answer brings the lane's socket */
	VB_KEEPER_TAKE_BACK, /* no answer */
	VB_KEEPER_RELAY,     /* the answer brings the program's end of a relay channel: broker/server/relay.h */
	VB_KEEPER_JOIN,      /* a relayed lane joins a multicast group; JOIN and LEAVE have no answer */
	VB_KEEPER_LEAVE,
	VB_KEEPER_SETTLE, /* the answer brings nothing: all earlier messages have been served */
};

struct vb_keeper_ask {
	uint32_t magic, op;
	uint64_t dev, ino; /* HELLO: the runtime directory, which identifies the broker */
	uint32_t lane;
	uint32_t ifindex;  /* JOIN, LEAVE: of the group */
	uint8_t group[16]; /* JOIN, LEAVE */
	uint32_t left;     /* TAKE_BACK: an enum vb_groups_left */
	uint32_t reserved;
};

struct vb_keeper_answer {
	int32_t err; /* EADDRINUSE: of another runtime directory; EBUSY: it has a broker, or the socket serves the other kind */
	uint32_t n;
	struct vb_lane_set given;
};

/* The listener's path of the keeper of this runtime directory and network namespace. Only its own user and root can
 * connect. */
void vb_keeper_runtime(const struct vb_runtime *broker, struct vb_runtime *rt);

/* Forks a keeper that is not our child, and sends it HELLO: *sock will bring the answer. The caller has no other
 * threads. Returns 0 or an errno. */
int vb_keeper_start(const struct vb_runtime *rt, const struct vb_keeper_ask *hello, int *sock);

/* Sends one message with at most two descriptors. Returns 0 or an errno. */
int vb_keeper_send(int sock, const void *msg, size_t len, const int *fds, int nfds);

#endif
