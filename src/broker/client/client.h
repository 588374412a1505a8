// client.h - a program's connection to the broker: its lane, meeting other programs
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_CLIENT_H
#define VB_BROKER_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/lane.h"

union ibv_gid;
struct vb_msg_cm_mad;
struct vb_msg_service_reply;

/* Thread rules: dispatch, pollfd, timeout_ms and disconnect belong to one thread, the progress thread. set_gids,
 * meet, roce, post and the two getters may be called by any thread. After fork() a child leaves its parent's client
 * alone, except for disconnect, which then only closes the child's copies of the descriptors. The child may connect a
 * client of its own. */
struct vb_broker_client;

/* The descriptors that peers get of this program. They stay the caller's and must stay open for the client's life;
 * duplicates are sent. The broker refuses (EBADF) a segment that is not a memfd of whole pages sealed F_SEAL_SHRINK
 * and F_SEAL_FUTURE_WRITE, a doorbell that is not a writable memfd sealed F_SEAL_SHRINK and F_SEAL_GROW, and a wake
 * descriptor that is not an eventfd. */
struct vb_attach_fds {
	int seg_fd, doorbell_fd, wake_fd;
};

/* A peer. The callee closes the descriptors. Other programs share the file description of pid_fd: remove it from
 * every epoll set before closing it. */
struct vb_peer_info {
	uint32_t lane;
	uint64_t incarnation;
	int pid; /* in our pid namespace; 0: not visible */
	uid_t uid;
	int seg_fd, doorbell_fd, wake_fd, pid_fd;
};

/*
 * The receiving socket of our lane. err: 0, EADDRINUSE (another program holds UDP port 4791; holder_uid is its user
 * if holder_known), EMFILE (the broker or this program has no free descriptors), or another errno. The callee closes
 * the descriptors; -1: there is none.
 * From a broker of our own user: the lane's socket, non-blocking, and the lifeline. Nobody reads or writes the
 * lifeline: the group of sockets lives until its last copy is closed. Never connect() a lane's socket or attach
 * another reuseport program: either takes it out of the group. With fewer than 1024 sockets several lanes share one.
 * Asking twice returns the same socket.
 * From root's broker to another user (relayed): a non-blocking channel without a lifeline. Each message is a struct
 * vb_relay_head (broker/proto/proto.h) and packets. Asking again returns a new channel and ends the earlier one.
 */
struct vb_roce_grant {
	int err, lane_fd, lifeline_fd;
	uint32_t nlanes;
	bool relayed, split, holder_known; /* split: lanes below VB_FOREIGN_LANES share half of the sockets */
	uid_t holder_uid;
};

struct vb_broker_ops {
	/* Answer to vb_broker_meet. info is NULL unless err is 0. err: 0, ENOENT (no such program), EACCES (it is
	 * another user's), EINVAL (it is this program), EMFILE (no free descriptors in this program). */
	void (*meet_reply)(void *arg, uint64_t tag, int err, const struct vb_peer_info *info);
	/* Another program met this one. May be repeated for a known peer. */
	void (*introduced)(void *arg, const struct vb_peer_info *info);
	/* A broker is back and has confirmed our lane: repeat meets that were not answered. */
	void (*reattached)(void *arg);
	/* Answer to vb_broker_roce; may be NULL. */
	void (*roce_reply)(void *arg, const struct vb_roce_grant *g);
	/* A MAD from queue pair 1, and the answer about a binding; both may be NULL. */
	void (*mad)(void *arg, const struct vb_msg_cm_mad *m);
	void (*service_reply)(void *arg, const struct vb_msg_service_reply *m);
};

/* Finds a broker, or starts one, and attaches. Blocks, mostly for milliseconds, for 15 seconds at most. Returns 0 or
 * an errno: EACCES (refused), EBADF (descriptors not as above), ENOSPC (no lane is free), EPROTONOSUPPORT (other
 * version), ETIMEDOUT, ENOMEM, EMFILE. */
int vb_broker_connect(const struct vb_attach_fds *fds, struct vb_broker_client **out);

uint32_t
vb_broker_lane_number(const struct vb_broker_client *c); /* our lane, 1..1023; constant for the client's life */
uint64_t vb_broker_incarnation(const struct vb_broker_client *c); /* never 0; constant for the client's life */

/* One descriptor to poll for reading, valid for the client's life, also across reconnects. */
int vb_broker_pollfd(const struct vb_broker_client *c);

/* Milliseconds until dispatch must be called, or -1. */
int vb_broker_timeout_ms(const struct vb_broker_client *c);

/* Handles messages, calls ops, and reconnects to a lost broker step by step. Blocks at most for the time of an exec. */
void vb_broker_dispatch(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg);

/* Replaces the set of our GIDs; kept for the next broker. Returns 0 or EINVAL (more than 256). */
int vb_broker_set_gids(struct vb_broker_client *c, const union ibv_gid *gids, size_t n);

/* Asks for the program that owns qpn and has dgid; meet_reply answers with tag. Returns 0, ENOTCONN while the broker
 * is away (repeat at reattached), or ENOMEM. */
int vb_broker_meet(struct vb_broker_client *c, uint64_t tag, uint32_t qpn, const union ibv_gid *dgid);

/* Asks for the receiving socket of our lane; roce_reply answers. Calls before the answer may share one. Returns 0, or
 * ENOTCONN while the broker is away. If the broker dies before it answers, ask again at reattached. A socket once
 * received stays valid with any later broker. */
int vb_broker_roce(struct vb_broker_client *c);

/* Sends a message about multicast groups or queue pair 1 (broker/proto/proto.h, types 0x11 and 0x20 to 0x3f), and
 * fills in its head. If the socket is full, a lossy message is dropped and others are queued. Returns 0, ENOTCONN
 * while the broker is away (repeat at reattached), EAGAIN (dropped), or ENOMEM. */
int vb_broker_post(struct vb_broker_client *c, uint8_t type, void *msg, size_t len, bool lossy);

/* Detaches and frees the lane. NULL is allowed. */
void vb_broker_disconnect(struct vb_broker_client *c);

/* One lane of a status report. */
struct vb_broker_lane {
	uint32_t lane;
	int pid; /* in the broker's pid namespace; 0: unknown */
	uid_t uid;
	uint32_t ngids;
	bool reserved; /* its holder lives, but has not reattached to this broker yet */
	char comm[16];
};

struct vb_broker_counters {
	uint64_t attaches, refused, bad_messages, deaths, meets, introductions;
};

struct vb_broker_report {
	pid_t broker_pid;
	uid_t broker_uid;
	struct vb_broker_counters counters;
	size_t nlanes;
	struct vb_broker_lane lanes[VB_LANE_COUNT]; /* of the caller's user; for root, of all users */
};

/* Asks a running broker for its status, without attaching or starting one. Blocks for two seconds at most. Returns 0,
 * ENOENT if no broker runs, or another errno. */
int vb_broker_status(struct vb_broker_report *report);

#endif
