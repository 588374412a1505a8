// gsi.h - queue pair 1 for a program: connection management datagrams through the broker, and service ids
// follows: IBA volume 1, 12 (communication management), 13.5 (general services); annex A11 (RDMA IP CM service)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_GSI_H
#define VB_NODE_GSI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame/mad.h"

/*
 * librdmacm.so.1 calls these functions in libibverbs.so.1. The symbols have a version of their own, because both
 * libraries must be of one build. Addresses are GIDs of 16 bytes, IPv4 mapped. Errors are errno values.
 */
struct vb_gsi_client;

/* All are called by the progress thread, one at a time, with no lock held. They must not block. */
struct vb_gsi_client_ops {
	/* A datagram for this program: a message for one of its communication ids (whose high bits are its lane), a
	 * REQ or SIDR_REQ to one of its listeners, or a REJ for all listeners. local is the destination address. The
	 * bytes are untrusted. */
	void (*mad)(void *own, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex, const uint8_t *mad,
	            size_t len);
	/* The time set by vb_gsi_client_timer has come. The timer must be set again. */
	void (*timeout)(void *own, uint64_t now);
	/* There is a new broker, which knows none of our connections: call vb_gsi_client_at_death for each. Recent
	 * datagrams may be lost. May be NULL. */
	void (*again)(void *own);
};

/* Opens the client, of which a process has one. Like an open device, it keeps the node until close. EBUSY: there is one
 * already. In a child of fork() the parent's client is dead: close it, and open another. */
int vb_gsi_client_open(const struct vb_gsi_client_ops *ops, void *own, struct vb_gsi_client **out);
/* No callback runs after it returns. Must not be called from a callback. */
void vb_gsi_client_close(struct vb_gsi_client *q);

uint32_t vb_gsi_client_lane(const struct vb_gsi_client *q);
/* The clock of all times here: CLOCK_MONOTONIC, ns. */
uint64_t vb_gsi_client_now(void);

/* Sends a datagram to queue pair 1 of remote, from our address local on that interface (0: chosen by routing). Never
 * blocks: if the broker cannot take the datagram now, it is queued. It is lost only with the broker or in the network.
 * Any thread. */
void vb_gsi_client_send(struct vb_gsi_client *q, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                        const uint8_t mad[VB_MAD_LEN]);

/* 0, or EADDRINUSE: another program, or another user's broker, holds UDP port 4791, so no host can answer what we send.
 * That is logged once, as an error. Blocks for some seconds at most. Not from a callback. */
int vb_gsi_client_port(struct vb_gsi_client *q);

/* Asks the broker to send the connection's peer a DREQ when this program dies (IBA 12.6.10). A broker that has relayed
 * the connection's messages does so anyway. Any thread. */
void vb_gsi_client_at_death(struct vb_gsi_client *q, const uint8_t local[16], const uint8_t remote[16],
                            uint32_t ifindex, uint32_t local_id, uint32_t remote_id, uint32_t remote_qpn);

/*
 * Binds a port of a port space (enum rdma_port_space) on this host, at an address of ours. Zeros: at all addresses, of
 * AF_INET only if v4_only, of AF_INET6 only if v6_only. *port 0 chooses an ephemeral port. reuse: like SO_REUSEADDR,
 * allowed if neither binding listens. Blocks for some seconds at most. Bindings survive a restart of the broker.
 * Returns 0, EADDRINUSE, EACCES (no right to a port below ip_unprivileged_port_start), ENOSPC or ETIMEDOUT.
 */
int vb_gsi_client_bind(struct vb_gsi_client *q, uint16_t port_space, const uint8_t local[16], bool v4_only,
                       bool v6_only, uint32_t ifindex, uint16_t *port, bool reuse, uint32_t *binding);
/* Changes the options of a binding that does not listen. 0 or ETIMEDOUT. Not from a callback. */
int vb_gsi_client_change(struct vb_gsi_client *q, uint32_t binding, bool v6_only, bool reuse);
/* From now on mad() gets the REQs and SIDR_REQs to the binding. 0 or EADDRINUSE (another binding listens). */
int vb_gsi_client_listen(struct vb_gsi_client *q, uint32_t binding);
/* Releases the binding and its number. If it listens, waits until the broker has released the port, so that other
 * programs may listen there; then it must not be called from a callback. */
void vb_gsi_client_unbind(struct vb_gsi_client *q, uint32_t binding);

/* Sets the time at which timeout() is called (ns; 0: never). Any thread; the caller may hold any lock of its own. */
void vb_gsi_client_timer(struct vb_gsi_client *q, uint64_t at);

#endif
