// keeper.h - the process that owns the group of lane sockets, so that a broker may die without moving a lane
// follows: design "Receiving on UDP 4791 in several processes"
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_KEEPER_H
#define VB_BROKER_KEEPER_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "broker/table.h"

#define VB_KEEPER_MAGIC 0x56424b31u /* of this layout; keeper and broker may be of different builds */

enum vb_keeper_op {
	VB_KEEPER_HELLO = 1, /* the first; the answer brings the lifeline's writing end and the socket of lane 0 */
	VB_KEEPER_GIVE,      /* the answer brings the lane's socket */
	VB_KEEPER_TAKE_BACK, /* no answer */
};

struct vb_keeper_ask {
	uint32_t magic, op;
	uint64_t dev, ino; /* HELLO: the runtime directory, which tells whose broker asks */
	uint32_t lane, zero;
};

struct vb_keeper_answer {
	int32_t err; /* EADDRINUSE: of another runtime directory; EBUSY: its broker is here already */
	uint32_t n;
	struct vb_lane_set given;
};

/* The name belongs to the network namespace, as the port does: who has it owns the port as far as Verbena goes. */
socklen_t vb_keeper_address(struct sockaddr_un *sun);

/* Forks one, as nobody's child, and says HELLO to it: *sock will have the answer. The caller has no other threads. 0 or
 * an errno. */
int vb_keeper_start(const struct vb_keeper_ask *hello, int *sock);

/* One message with at most two descriptors. 0 or an errno. */
int vb_keeper_send(int sock, const void *msg, size_t len, const int *fds, int nfds);

#endif
