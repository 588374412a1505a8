// client.h - a program that is connected: what it is, and the messages that wait for it
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_SERVER_CLIENT_H
#define VB_FABRIC_SERVER_CLIENT_H

#include "fabric/server/server.h"

struct queued;

struct client {
	struct client *next, **at;
	struct server *server;
	int fd;
	struct vb_agent_file *file; /* of a umad port */
	struct joined *joined;      /* of a verbs device */
	struct cm *cm;              /* of a connection manager, which has file too */
	struct link *link;          /* of its packets */
	struct capture *capture;
	const struct vb_fabric_node *node; /* of the last four */
	bool paused;
	struct queued *first, **last; /* messages that wait for room in its socket */
	size_t queued, queued_bytes;
};

/* --- client_queue.c; server.h declares what other parts of the server call --- */

/* Takes fd over: a memfd that goes with the message, or -1. */
void client_post_with(struct client *c, const void *bytes, size_t len, int fd);
/* Its connection ends. */
void client_drop_all(struct client *c);

#endif
