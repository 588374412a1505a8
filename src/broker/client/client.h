// client.h - a program's connection to the broker: its lane, the meeting of other programs
// follows: nothing; the messages are those of broker/proto/proto.h
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_CLIENT_H
#define VB_BROKER_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

union ibv_gid;
struct vb_msg_cm_mad;
struct vb_msg_service_reply;

/* Thread rules: dispatch, pollfd, timeout_ms and disconnect belong to one thread (the adapter's); set_gids, meet, wire,
 * post and the two getters may be called from any. After fork() a child leaves its parent's client alone (disconnect is safe
 * there: it closes the child's copies and nothing else); it may connect one of its own. */
struct vb_broker_client;

/* What peers get of this program. Borrowed for the client's life; duplicates are sent. The broker refuses (EBADF) a
 * segment that is not a memfd of whole pages sealed F_SEAL_SHRINK and F_SEAL_FUTURE_WRITE, a doorbell that is not one sealed
 * F_SEAL_SHRINK and F_SEAL_GROW and writable, a wake descriptor that is not an eventfd. */
struct vb_attach_fds {
	int seg_fd, doorbell_fd, wake_fd;
};

/* A peer. The descriptors are the callee's to close. pid_fd shares its file description with other programs: whoever adds
 * it to an epoll set must delete it from the set before closing it. */
struct vb_peer_info {
	uint32_t proc_id;
	uint64_t incarnation;
	int pid; /* in our pid namespace, 0: not visible */
	uid_t uid;
	int seg_fd, doorbell_fd, wake_fd, pid_fd;
};

/*
 * The receiving end of our lane. err: 0, EADDRINUSE (UDP port 4791 is somebody else's: holder_uid tells whose where
 * holder_known), EMFILE (no room for the descriptors, here or there), or another errno. The descriptors, -1 where there is
 * none, are the callee's to close. From a broker of our own user: the lane's socket, non-blocking, and the lifeline, which
 * nobody reads or writes: the group lives until the last one has closed it. Never connect() a lane, or give it another
 * reuseport program: that takes it out of the group. With fewer than 1024 sockets, programs share them. A lane asked for
 * twice is the same socket. From root's broker to another user, relayed: a channel, non-blocking, with no lifeline, that
 * brings a struct vb_relay_head (broker/proto/proto.h) and packets in each message; a lane asked for twice is another channel, and
 * the first has ended.
 */
struct vb_roce_grant {
	int err, lane_fd, lifeline_fd;
	uint32_t nlanes;
	bool relayed, holder_known;
	uid_t holder_uid;
};

struct vb_broker_ops {
	/* Answer to vb_broker_meet. info is NULL when err is not 0. err: 0, ENOENT (nobody), EACCES (another user's),
	 * EINVAL (ourselves), EMFILE (no room in this program for the descriptors). */
	void (*meet_reply)(void *arg, uint64_t tag, int err, const struct vb_peer_info *info);
	/* Somebody met us; may repeat for a peer already known. */
	void (*introduced)(void *arg, const struct vb_peer_info *info);
	/* A broker came back, with our lane: meets that were not answered are to be repeated. */
	void (*reattached)(void *arg);
	/* Answer to vb_broker_roce; may be NULL. */
	void (*roce_reply)(void *arg, const struct vb_roce_grant *g);
	/* From queue pair 1, and what became of a binding; both may be NULL. */
	void (*mad)(void *arg, const struct vb_msg_cm_mad *m);
	void (*service_reply)(void *arg, const struct vb_msg_service_reply *m);
};

/* Finds a broker, or starts one, and attaches. Blocks for at most about five seconds. 0 or an errno: EACCES (refused),
 * EBADF (descriptors not as above), ENOSPC (no lane left), EPROTONOSUPPORT (other version), ETIMEDOUT, ENOMEM, EMFILE. */
int vb_broker_connect(const struct vb_attach_fds *fds, struct vb_broker_client **out);

uint32_t vb_broker_proc_id(const struct vb_broker_client *c);     /* our lane, 1..1023; the same for the client's life */
uint64_t vb_broker_incarnation(const struct vb_broker_client *c); /* never 0; the same for the client's life */

/* One descriptor to poll for reading, valid for the client's life, across reconnects. */
int vb_broker_pollfd(const struct vb_broker_client *c);

/* -1, or after how many milliseconds dispatch wants to be called at the latest. */
int vb_broker_timeout_ms(const struct vb_broker_client *c);

/* Reads what came and calls ops; brings a lost broker back step by step. Never blocks for longer than an exec takes. */
void vb_broker_dispatch(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg);

/* Replaces the set of our GIDs; remembered for the next broker. 0, EINVAL (more than 256), ENOMEM. */
int vb_broker_set_gids(struct vb_broker_client *c, const union ibv_gid *gids, size_t n);

/* Asks for the program that owns qpn and has dgid; answered by meet_reply with tag. 0, ENOTCONN while the broker is away
 * (repeat at reattached), ENOMEM. */
int vb_broker_meet(struct vb_broker_client *c, uint64_t tag, uint32_t qpn, const union ibv_gid *dgid);

/* Asks for the receiving socket of our lane; answered by roce_reply, once or more for several calls before the answer.
 * 0, or ENOTCONN while the broker is away. An answer that is outstanding when the broker dies never comes (ask again at
 * reattached); what was answered holds for good, whoever is the broker. */
int vb_broker_roce(struct vb_broker_client *c);

/* A message about the lane's multicast groups or queue pair 1 (broker/proto/proto.h, 0x11, 0x20 to 0x3f), whose head is filled in here. lossy: it is dropped where
 * the socket is full, others wait for room. 0, ENOTCONN while the broker is away (say it again at reattached), EAGAIN
 * (dropped), ENOMEM. */
int vb_broker_post(struct vb_broker_client *c, uint8_t type, void *msg, size_t len, bool lossy);

/* Leaves: the lane is free for others. NULL is allowed. */
void vb_broker_disconnect(struct vb_broker_client *c);

/* One lane of a status report. */
struct vb_broker_lane {
	uint32_t proc_id;
	int pid; /* in the broker's pid namespace, 0: unknown */
	uid_t uid;
	uint32_t ngids;
	bool reserved; /* its holder lives but has not come back to this broker yet */
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
	struct vb_broker_lane lanes[1024]; /* the asker's own only, all for root */
};

/* Asks a running broker, without attaching or starting one. Blocks for at most about two seconds. 0, ENOENT where no
 * broker runs, or another errno. */
int vb_broker_status(struct vb_broker_report *report);

#endif
