// network.h - the client's second broker, where several network namespaces share one runtime directory
// see: docs/connections.md
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_NETWORK_H
#define VB_BROKER_CLIENT_NETWORK_H

#include <stdatomic.h>
#include <stdint.h>

#include "broker/client/outgoing.h"

/* The client that asks for sockets and queue pair 1. */
static inline struct vb_broker_client *vb_client_of_network(struct vb_broker_client *c)
{
	struct vb_broker_client *network = atomic_load_explicit(&c->network, memory_order_acquire);

	return network ? network : c;
}

/* Called when c has attached to a broker in the network namespace with this inode number (0: unknown). Makes the client
 * of our namespace's own broker if that is needed; vb_broker_dispatch connects it. */
void vb_client_find_network(struct vb_broker_client *c, uint64_t of_broker);

/* A client that is not connected yet; NULL with errno. */
struct vb_broker_client *vb_client_new(const struct vb_attach_fds *fds);

#endif
