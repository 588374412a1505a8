// incoming.h - messages from the broker, with their descriptors, as the client takes them from its socket
// follows: broker/proto/proto.h
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_INCOMING_H
#define VB_BROKER_CLIENT_INCOMING_H

#include <stdbool.h>

#include "broker/proto/proto.h"
#include "broker/client/client.h"

/* One message as it came, with its descriptors. */
struct vb_incoming {
	union {
		struct vb_msg_head head;
		struct vb_msg_attached attached;
		struct vb_msg_meet_reply peer;
		struct vb_msg_roce_reply wire;
		struct vb_msg_cm_mad mad;
		struct vb_msg_service_reply service;
		struct vb_msg_error error;
		char bytes[VB_MAX_MSG];
	};
	int fds[VB_MAX_FDS], nfds;
	bool fds_cut; /* this program had no room for all */
};

/* 1: a message, its length the one that it states; 0: nothing now; -1: the connection is over. */
int vb_incoming_receive(int sock, struct vb_incoming *in);

/* Closes what came with it. */
void vb_incoming_close(struct vb_incoming *in);

/* A peer, or why there is none, and the wire's sockets: given to ops, with the descriptors. False: no such message can be;
 * the descriptors are still in it. */
bool vb_incoming_peer(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg);
bool vb_incoming_roce(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg);

#endif
