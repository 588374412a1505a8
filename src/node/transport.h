// transport.h - operations of a transport (RoCE, iWARP, raw packets) for the node
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_TRANSPORT_H
#define VB_NODE_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb_node;
struct vb_qp;
struct vb_counts;

enum vb_transport_index { VB_TRANSPORT_ROCE, VB_TRANSPORT_IWARP, VB_TRANSPORT_RAW, VB_TRANSPORT_IB, VB_TRANSPORTS };

/* A function may be NULL unless stated otherwise: the transport has nothing to do then. */
struct vb_transport_ops {
	/* Called when the node starts. 0 or an errno. This and the next four are never NULL. */
	int (*start)(struct vb_node *node);
	/* Called when the node ends, after its progress thread. The transport may not have been started. */
	void (*free)(struct vb_node *node);
	/* Called in a child of fork(). The transport may not have been started. */
	void (*in_child)(struct vb_node *node);
	/* Receives data, and sends data that had to wait. finish: no work may be left, because the next poll may be
	 * late. Under progress. Returns the amount of work. */
	unsigned (*poll)(struct vb_node *node, bool finish);
	/* watch: the transport's sockets must wake the progress thread; otherwise a program polls. Under progress. */
	void (*watch)(struct vb_node *node, bool watch);
	/* Releases held completions. Under progress. */
	void (*release)(struct vb_node *node);
	/* Returns when the progress thread must call poll or look; ns, 0: never. Under progress. */
	uint64_t (*due)(struct vb_node *node);
	/* Does work that belongs to no queue pair. Progress thread, no lock held. */
	void (*look)(struct vb_node *node);
	/* Called in this order when the program ends without closing its devices: sends its data (under progress),
	 * waits for its peers (no lock held), ends its streams (under progress). */
	void (*last_words)(struct vb_node *node);
	void (*last_wait)(struct vb_node *node);
	void (*last_ends)(struct vb_node *node);
	/* Logs the counters of ended queue pairs and, unless node is NULL, of existing ones, under its progress. */
	void (*log_counters)(struct vb_node *node);
	/* If the queue pair uses the transport: adds its counters, and writes the peer's address (or "") unless peer is NULL. False if it
	 * does not. Must not allocate. Under progress. Never NULL. */
	bool (*show)(const struct vb_qp *qp, struct vb_counts *c, char *peer, size_t size);
	/* The rules of fault injection have changed. No lock held. Never NULL, like the next. */
	void (*arm)(struct vb_node *node);
	/* Sends and receives what rules have held until now. Returns when to call it again; ns, 0: never. No lock held. */
	uint64_t (*serve_faults)(struct vb_node *node);
};

/* The state of a transport in a node. */
struct vb_transport {
	atomic_uint users; /* queue pairs that may receive by the transport, which is polled if there are any */
};

/* path/path.c, by enum vb_transport_index. */
extern const struct vb_transport_ops *const vb_transports[VB_TRANSPORTS];

#endif
