// incoming.h - messages from the broker with their descriptors, as the client receives them
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_INCOMING_H
#define VB_BROKER_CLIENT_INCOMING_H

#include <stdbool.h>

#include "broker/proto/proto.h"
#include "broker/client/client.h"

/* One received message with its descriptors. */
struct vb_incoming {
	union {
		struct vb_msg_head head;
		struct vb_msg_attached attached;
		struct vb_msg_meet_reply peer;
		struct vb_msg_roce_reply roce;
		struct vb_msg_cm_mad mad;
		struct vb_msg_service_reply service;
		struct vb_msg_error error;
		char bytes[VB_MAX_MSG];
	};
	int fds[VB_MAX_FDS], nfds;
	bool fds_cut; /* descriptors were lost: this program has no free ones */
};

enum vb_incoming_result {
	VB_INCOMING_NONE,
	VB_INCOMING_MESSAGE,
	VB_INCOMING_CLOSED, /* the broker has closed the connection, or violates the protocol */
};

/* Receives a message and checks its length. */
enum vb_incoming_result vb_incoming_receive(int sock, struct vb_incoming *in);

/* Closes the descriptors of the message. */
void vb_incoming_close(struct vb_incoming *in);

/* Pass a peer or a RoCE grant, or the reason why there is none, to ops together with the descriptors. False if the
 * message is malformed; it then still owns the descriptors. */
bool vb_incoming_peer(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg);
bool vb_incoming_roce(struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg);

#endif
