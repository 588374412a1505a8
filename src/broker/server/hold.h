// hold.h - the broker's hold on the group of RoCE sockets, which a keeper or its own process owns
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_HOLD_H
#define VB_BROKER_SERVER_HOLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/runtime.h"
#include "broker/server/groups.h"
#include "broker/server/table.h"

enum vb_lanes_mode {
	VB_LANES_NONE,   /* every request fails: for tests and the fuzzer */
	VB_LANES_KEEPER, /* forks a keeper: for a process without other threads */
	VB_LANES_INSIDE, /* owns the group itself: it ends with this program, but programs that live keep the port */
};

struct vb_lane_group;

/* Which user holds UDP port 4791, if known. */
struct vb_holder {
	bool known;
	uid_t uid;
};

struct vb_hold {
	enum vb_lanes_mode mode;
	uint64_t dev, ino;           /* of the runtime directory */
	uint32_t n;                  /* sockets in the group; 0: there is no group */
	int sock;                    /* connection to the keeper; -1: none */
	struct vb_lane_group *group; /* the group that this process owns, or NULL */
	int lifeline;                /* writing end of the lifeline: our user's programs get duplicates */
	int lane0; /* socket of lane 0, closed to packets until it is given; borrowed if the group is our own */
	struct vb_lane_set given; /* lanes whose holders have, or had, their socket */
	bool unchecked;           /* an earlier broker gave lanes whose holders may have ended since */
	int64_t again_at;         /* after a failure: until then the same error is returned */
	int failed;
	struct vb_holder failed_for;
	/* Called after the group was closed: close every other socket of it, because they hold the port. May be
	 * NULL. */
	void (*ended)(void *of);
	void *ended_of;
};

void vb_hold_init(struct vb_hold *h, enum vb_lanes_mode mode);

/* Takes over the group of an earlier broker of this runtime directory. False if no keeper lives. */
bool vb_hold_adopt(struct vb_hold *h, const struct vb_runtime *rt);

/*
 * Gets the receiving end of a lane; makes the group if there is none. relay false: the lane's socket. relay true: a
 * channel (broker/server/relay.h), for a program of another user, which must not have a socket of the group. Blocks
 * while the keeper works, one or two seconds at most.
 * Returns 0 (the caller closes *fd) or an errno: EADDRINUSE (holder tells who holds the port), EBUSY (sockets are
 * few, and this one serves programs of the other kind), EOPNOTSUPP (this broker does not relay).
 */
int vb_hold_give(struct vb_hold *h, const struct vb_runtime *rt, uint32_t lane, bool relay, int *fd,
                 struct vb_holder *holder);

/* A relayed lane joins or leaves a multicast group. */
void vb_hold_group(struct vb_hold *h, uint32_t lane, const uint8_t group[16], uint32_t ifindex, bool join);

/* The lane's holder has ended. Does nothing for a lane that was not given. */
void vb_hold_take_back(struct vb_hold *h, uint32_t lane, enum vb_groups_left left);
/* Waits until the keeper has taken back what it was asked to: one or two seconds at most. */
void vb_hold_settle(struct vb_hold *h);

/* Closes our hold on the group. A keeper goes on while programs hold its lifeline. */
void vb_hold_close(struct vb_hold *h);

#endif
