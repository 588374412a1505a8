// services.h - which program has which port of which port space; a data structure without I/O
// follows: IBA annex A11 (RDMA IP CM service): service ids; ip(7), SO_REUSEADDR
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_SERVICES_H
#define VB_BROKER_SERVER_SERVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/proto.h"

#define VB_SERVICE_BUCKETS 16384
#define VB_PORTS 65536
/* Of a user other than the broker's; and of one port, for who walks along them. */
#define VB_MAX_BINDINGS_USER 16384
#define VB_MAX_AT_PORT_USER 64
#define VB_MAX_AT_PORT 1024 /* … of all such users */

/* A user other than the broker's that has bindings. */
struct vb_service_user {
	struct vb_service_user *next;
	uid_t uid;
	uint32_t n, ephemeral;
};

struct vb_binding {
	struct vb_binding *next_port, *next_id, *next_own; /* of the same port, in the same bucket, of the same lane */
	struct vb_binding **at_port, **at_id, **at_own;    /* what points to this one */
	struct vb_service_user *user;                      /* NULL: the broker's own */
	uint32_t lane, id;                                 /* whose; the number is its program's choice */
	uid_t uid;
	bool foreign, ephemeral; /* another user's than the broker's; the port was in the range that any port comes from */
	uint16_t port_space, port;
	uint8_t local[16]; /* zeros: any address; an IPv4 one where v4_only, none of those where v6_only */
	uint32_t ifindex;  /* 0: any */
	bool v4_only, v6_only, reuse, listening;
};

/* Zeros are an empty one. */
struct vb_services {
	uint32_t n, each[VB_LANE_COUNT];
	uint32_t foreign, foreign_ephemeral; /* of n */
	uint64_t key[2];                     /* random: nobody chooses numbers that are in one bucket */
	struct vb_service_user *users;
	struct vb_binding *own[VB_LANE_COUNT], *by_port[VB_PORTS], *by_id[VB_SERVICE_BUCKETS];
};

/* Where ports are taken from that the program leaves to us. */
struct vb_port_range {
	uint16_t low, high; /* both are in it */
	uint32_t start;     /* random */
};

/* A copy of want, with a port. range: also where the port is given, if want is foreign. 0, EADDRINUSE (somebody else's, and
 * not for both to share), ENOSPC (no port is free, or the program or its user has too many), ENOMEM. */
int vb_service_bind(struct vb_services *t, const struct vb_binding *want, const struct vb_port_range *range,
                    struct vb_binding **out);
/* 0, EADDRINUSE (another listens). */
int vb_service_listen(struct vb_services *t, struct vb_binding *s);
/* NULL: the program has none of this number. */
struct vb_binding *vb_service_of(const struct vb_services *t, uint32_t lane, uint32_t id);
void vb_service_unbind(struct vb_services *t, struct vb_binding *s);
/* All of a program. */
void vb_services_forget(struct vb_services *t, uint32_t lane);

/* Who has bound this port and does not listen, or not yet? NULL: nobody. */
const struct vb_binding *vb_service_bound(const struct vb_services *t, uint16_t port_space, uint16_t port);

/* Who listens for what came to this address, on that interface (0: unknown). No two that listen overlap. may: only lanes
 * for which it says so. NULL: nobody. */
const struct vb_binding *vb_service_find(const struct vb_services *t, uint16_t port_space, uint16_t port,
                                         const uint8_t local[16], uint32_t ifindex,
                                         bool (*may)(void *arg, uint32_t lane), void *arg);

#endif
