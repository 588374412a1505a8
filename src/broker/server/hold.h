// hold.h - the broker's hold on the group of lane sockets, in the keeper or in its own process
// follows: design "Receiving on UDP 4791 in several processes"
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_HOLD_H
#define VB_BROKER_SERVER_HOLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/runtime.h"
#include "broker/server/table.h"

enum vb_lanes_mode {
	VB_LANES_NONE,   /* every request fails: tests and the fuzzer */
	VB_LANES_KEEPER, /* forks a keeper: for a process without other threads */
	VB_LANES_INSIDE, /* keeps the group itself: it dies with this program, and the port stays with those that live */
};

struct vb_lane_group;

/* Who has the port, where that is known. */
struct vb_holder {
	bool known;
	uid_t uid;
};

struct vb_hold {
	enum vb_lanes_mode mode;
	uint64_t dev, ino;         /* of the runtime directory */
	uint32_t n;                /* sockets in the group; 0: we have none */
	int sock;                  /* to the keeper, -1: none */
	struct vb_lane_group *group; /* our own, else NULL */
	int lifeline;              /* what the own user's programs get a duplicate of */
	int lane0;                 /* shut until somebody opens it; borrowed of our own group */
	struct vb_lane_set given;  /* whose holders have, or had, their socket */
	bool unchecked;            /* some were given by an earlier broker: their holders may have gone since */
	int64_t again_at;          /* after a failure: until then the answer stays */
	int failed;
	struct vb_holder failed_for;
	void (*ended)(void *of); /* the group has been let go: whoever has a socket of it closes that, for it holds the port. May be NULL */
	void *ended_of;
};

void vb_hold_init(struct vb_hold *h, enum vb_lanes_mode mode);

/* Takes over the group of an earlier broker of this runtime directory, if its keeper lives. True: there is one. */
bool vb_hold_adopt(struct vb_hold *h, const struct vb_runtime *rt);

/* The receiving end of a lane, made with all others if need be: its socket, or, relay, a channel (broker/server/relay.h): for a
 * program of another user, which must not have a socket of the group. Blocks for as long as a keeper takes, a second or two
 * at most. 0: *fd is the caller's to close. An errno: EADDRINUSE tells whose the port is; EBUSY: of the few sockets that
 * there are, programs of the other kind have this lane's; EOPNOTSUPP: nobody relays here. */
int vb_hold_give(struct vb_hold *h, const struct vb_runtime *rt, uint32_t lane, bool relay, int *fd, struct vb_holder *holder);

/* A lane that is relayed to is in this multicast group, or no longer. */
void vb_hold_group(struct vb_hold *h, uint32_t lane, const uint8_t group[16], uint32_t ifindex, bool join);

/* Its holder has gone; others are left alone. */
void vb_hold_take_back(struct vb_hold *h, uint32_t lane);

/* Lets the group go: a keeper goes on while programs hold its lifeline. */
void vb_hold_close(struct vb_hold *h);

#endif
