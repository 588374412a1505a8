// common.h - shared by the examples: ending with an error message, and waiting for the next event
// follows: rdma_get_cm_event(3), ibv_poll_cq(3)
// SPDX-License-Identifier: MIT
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "7471"

/* Most calls of rdma_cm return -1 and set errno; those of verbs return NULL and set errno, or return the errno
 * value. */
static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

#define TRY(call)                   \
	do {                        \
		if ((call) == -1)   \
			die(#call); \
	} while (0)

#define TRY_VERB(call)                     \
	do {                               \
		if ((errno = (call)) != 0) \
			die(#call);        \
	} while (0)

/*
 * Waits for an event and insists on its kind. The caller acknowledges it with rdma_ack_cm_event, after reading its
 * private data and before destroying its id.
 */
static inline struct rdma_cm_event *await(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;

	TRY(rdma_get_cm_event(channel, &event));
	if (event->event != kind) {
		fprintf(stderr, "%s (status %d) came, where %s was expected\n", rdma_event_str(event->event),
		        event->status, rdma_event_str(kind));
		exit(1);
	}
	return event;
}

static inline void await_and_ack(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
	TRY(rdma_ack_cm_event(await(channel, kind)));
}

/*
 * The address of a host, for a client. NULL stands for all interfaces of this host, for a server: the IPv6 wildcard
 * address, which IPv4 clients reach too.
 */
static inline struct rdma_addrinfo *find_address(const char *host, enum rdma_port_space space)
{
	struct rdma_addrinfo hints = {.ai_port_space = space}, *found;

	if (!host) {
		hints.ai_flags = RAI_PASSIVE | RAI_FAMILY;
		hints.ai_family = AF_INET6;
	}
	if (rdma_getaddrinfo(host, PORT, &hints, &found)) {
		fprintf(stderr, "%s: no such host\n", host ? host : "this machine");
		exit(1);
	}
	return found;
}

/* Resolves the adapter and the route to this host: events report both. */
static inline void resolve(struct rdma_cm_id *id, const char *host, enum rdma_port_space space)
{
	struct rdma_addrinfo *found = find_address(host, space);

	TRY(rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000));
	await_and_ack(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	TRY(rdma_resolve_route(id, 2000));
	await_and_ack(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_freeaddrinfo(found);
}

static inline void bind_and_listen(struct rdma_cm_id *id, enum rdma_port_space space)
{
	struct rdma_addrinfo *found = find_address(NULL, space);

	TRY(rdma_bind_addr(id, found->ai_src_addr));
	TRY(rdma_listen(id, 1));
	rdma_freeaddrinfo(found);
}

static inline void check_completion(const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return;
	fprintf(stderr, "work request %llu: %s\n", (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
	exit(1);
}

#endif
