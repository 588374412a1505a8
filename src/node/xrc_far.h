// xrc_far.h - what a process that opens the XRC target of another one says to it, and hears from it
// follows: ibv_open_qp(3); unix(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_XRC_FAR_H
#define VB_NODE_XRC_FAR_H

#include "core/xrc.h"
#include "node/io.h"

/*
 * The target's process, its owner, listens on a SOCK_SEQPACKET socket of this name in the runtime directory: its network
 * namespace and its lane. Each handle of another process has a connection, on which the owner answers each question
 * before the next. Another socket, whose end came with VB_XRC_OPEN, carries the target's events. The end of a connection
 * closes its handle.
 */
#define VB_XRC_NAME "xrc-%llu-%u"
#define VB_XRC_FAR_VERSION 1u

enum vb_xrc_question { VB_XRC_OPEN, VB_XRC_MODIFY, VB_XRC_QUERY, VB_XRC_CLOSE };

struct vb_xrc_ask {
	uint32_t version, question;
	uint32_t qpn;
	int32_t mask;
	struct vb_xrc_id id;
	struct ibv_qp_attr attr;
};

struct vb_xrc_answer {
	int32_t err;
	uint32_t state;
	struct ibv_qp_attr attr;
};

struct vb_xrc_event {
	uint32_t type;
};

/* Writes the path of the socket, in the open runtime directory, of the process with this lane. */
struct sockaddr_un;
void vb_xrc_socket_of(struct sockaddr_un *sun, int dir_fd, uint32_t lane);
/* Opens the runtime directory. Returns a descriptor, or -1 with errno. */
int vb_xrc_dir_open(void);
/* Is the process at the other end this user's? */
bool vb_xrc_is_ours(int sock);

struct vb_xrc_owner;
/* Ends with the node, or in a child of fork(). */
void vb_xrc_owner_stop(struct vb_xrc_owner *o);
void vb_xrc_owner_in_child(struct vb_xrc_owner *o);
void vb_xrc_owner_remove_name(const struct vb_xrc_owner *o);
void vb_xrc_offer(struct vb_node *node);

#endif
