// transport.h - what a node asks of a transport: RoCE and iWARP, each with its sockets
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_TRANSPORT_H
#define VB_NODE_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct vb_node;

enum vb_transport_index { VB_TRANSPORT_ROCE, VB_TRANSPORT_IWARP, VB_TRANSPORTS };

/* A function may be NULL where nothing is said of it: the transport then has nothing to do. */
struct vb_transport_ops {
	/* The node begins: 0 or an errno. Never NULL, as are the next four. */
	int (*start)(struct vb_node *node);
	/* The node ends, its progress thread has ended. It may not have been started. */
	void (*free)(struct vb_node *node);
	/* In the child of fork(). It may not have been started. */
	void (*in_child)(struct vb_node *node);
	/* Takes what has come, sends what could not go. wait: nobody may look again soon, so nothing is left undone.
	 * Under progress. Returns the work done. */
	unsigned (*poll)(struct vb_node *node, bool wait);
	/* true: its sockets wake the progress thread. false: a program polls. Under progress. */
	void (*watch)(struct vb_node *node, bool watch);
	/* Completions that wait for company wait no longer. Under progress. */
	void (*release)(struct vb_node *node);
	/* When the progress thread has to call poll or look: ns, 0: never. Under progress. */
	uint64_t (*due)(struct vb_node *node);
	/* What is not a queue pair's work. Progress thread, no lock held. */
	void (*look)(struct vb_node *node);
	/* The program ends and closes nothing: what it said goes out (under progress), its peers are waited for (no
	 * lock held), its streams end (under progress). */
	void (*last_words)(struct vb_node *node);
	void (*last_wait)(struct vb_node *node);
	void (*last_ends)(struct vb_node *node);
	/* Writes its counters to the log: of the queue pairs that ended, and of those that are there unless node is
	 * NULL. node: under its progress. */
	void (*log_counters)(struct vb_node *node);
};

/* A node's part of each. */
struct vb_transport {
	atomic_uint users; /* queue pairs that may receive by it: it is polled where there are any */
	unsigned turn;     /* under progress */
};

/* path/path.c, by enum vb_transport_index. */
extern const struct vb_transport_ops *const vb_transports[VB_TRANSPORTS];

#endif
