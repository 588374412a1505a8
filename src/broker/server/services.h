// services.h - bindings: which program has which port of which port space; a data structure without I/O
// follows: IBA volume 1, annex A11 (RDMA IP CM service): service ids; ip(7), SO_REUSEADDR
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_SERVICES_H
#define VB_BROKER_SERVER_SERVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/proto.h"

#define VB_SERVICE_BUCKET_BITS 14
#define VB_SERVICE_BUCKETS (1 << VB_SERVICE_BUCKET_BITS)
#define VB_PORTS 65536
/* Limits of one user other than the broker's: in all, and at one port. */
#define VB_MAX_BINDINGS_USER 16384
#define VB_MAX_AT_PORT_USER 64
#define VB_MAX_AT_PORT 1024 /* at one port, of all such users */

/* A user other than the broker's who has bindings. */
struct vb_service_user {
	struct vb_service_user *next;
	uid_t uid;
	uint32_t n, ephemeral;
};

struct vb_binding {
	struct vb_binding *next_port, *next_id, *next_own; /* of the same port, in the same bucket, of the same lane */
	struct vb_binding **at_port, **at_id, **at_own;    /* the pointers that point to this binding */
	struct vb_service_user *user;                      /* NULL: the broker's own user */
	uint32_t lane, id;                                 /* lane of the program, and the id that it chose */
	uid_t uid;
	bool foreign, ephemeral; /* another user's; its port was in the ephemeral range */
	uint16_t port_space, port;
	uint8_t local[16]; /* zeros: any address; v4_only: any IPv4 address; v6_only: any IPv6 address */
	uint32_t ifindex;  /* 0: any */
	bool v4_only, v6_only, reuse, listening;
};

/* All zeros: an empty table. */
struct vb_services {
	uint32_t n, each[VB_LANE_COUNT];
	uint32_t foreign, foreign_ephemeral; /* part of n */
	uint64_t key[2];                     /* random: nobody can choose ids that share a bucket */
	struct vb_service_user *users;
	struct vb_binding *own[VB_LANE_COUNT], *by_port[VB_PORTS], *by_id[VB_SERVICE_BUCKETS];
};

/* The ephemeral ports, for bindings to port 0. */
struct vb_port_range {
	uint16_t low, high; /* inclusive */
	uint32_t start;     /* random */
};

/* Adds a copy of want, and chooses its port if that is 0. range is also needed for a given port if want is foreign.
 * Returns 0, EADDRINUSE (another binding has the port, and they may not share it), ENOSPC (no port is free, or the
 * program or its user has too many bindings), or ENOMEM. */
int vb_service_bind(struct vb_services *t, const struct vb_binding *want, const struct vb_port_range *range,
                    struct vb_binding **out);
/* Returns 0, or EADDRINUSE if another binding listens there. */
int vb_service_listen(struct vb_services *t, struct vb_binding *s);
/* The program's binding of this id, or NULL. */
struct vb_binding *vb_service_of(const struct vb_services *t, uint32_t lane, uint32_t id);
void vb_service_unbind(struct vb_services *t, struct vb_binding *s);
/* Removes all bindings of a program. */
void vb_services_forget(struct vb_services *t, uint32_t lane);

/* A binding of this port that does not listen (yet), or NULL. */
const struct vb_binding *vb_service_bound(const struct vb_services *t, uint16_t port_space, uint16_t port);

/* The listener for a MAD to this address on that interface (0: unknown). Listeners do not overlap. Only lanes for
 * which may() is true count. NULL: no listener. */
const struct vb_binding *vb_service_find(const struct vb_services *t, uint16_t port_space, uint16_t port,
                                         const uint8_t local[16], uint32_t ifindex,
                                         bool (*may)(void *arg, uint32_t lane), void *arg);

#endif
