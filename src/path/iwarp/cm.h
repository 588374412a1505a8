// cm.h - connections of iWARP queue pairs: TCP listeners, TCP connections, and the exchange of MPA frames
// follows: RFC 5044, 7 (connection setup); RFC 6581 (enhanced connection setup)
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_IWARP_CM_H
#define VB_PATH_IWARP_CM_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * librdmacm.so.1 calls these in libibverbs.so.1, by symbols of a version of their own, as those of gsi.h. One for each
 * process. Nothing here has a lock: all functions but those that say otherwise are called under the caller's, which
 * lock and unlock take and give back in the progress thread. Errors are errno values, addresses are GIDs (IPv4 mapped).
 */
struct vb_iwcm;
struct vb_iwcm_listener;
struct vb_iwcm_conn;

enum {
	VB_IWCM_PRIVATE_MAX = 508,      /* private data: what MPA has room for, less the words of RFC 6581 */
	VB_IWCM_DEPTH_UNKNOWN = 0xffff, /* ird, ord: the peer has not said (MPA revision 1) */
};

struct vb_iwcm_ends {
	uint8_t local[16], remote[16];
	uint16_t local_port, remote_port;
	uint32_t ifindex; /* of link-local addresses; 0 with the others */
};

/* What the peer has said; the data for the length of the call. */
struct vb_iwcm_said {
	const void *data;
	size_t len;
	uint16_t ird, ord; /* the peer's: reads it serves, reads it asks for */
};

/* Called by the progress thread, under lock. They may call any function below that wants the lock. */
struct vb_iwcm_ops {
	void (*lock)(void);
	void (*unlock)(void); /* vb_iwcm_deadline may have changed */
	/* A request, complete: who owns it from now on (accept, reject or end it), NULL: refused. */
	void *(*request)(void *listener, struct vb_iwcm_conn *c, const struct vb_iwcm_said *said);
	/* The end of vb_iwcm_connect. 0: agreed, vb_iwcm_start is next. ECONNREFUSED: refused, by the host or with
	 * said by the program; ECONNRESET: closed before the reply, or what came is no MPA reply; ENOMEM: the peer
	 * would read more at once than was offered; ETIMEDOUT, EHOSTUNREACH and others. */
	void (*replied)(void *own, int err, const struct vb_iwcm_said *said);
	/* The stream has ended: once, and only after vb_iwcm_told. */
	void (*closed)(void *own, int err);
	/* And a second after that. */
	void (*exited)(void *own);
};

int vb_iwcm_open(const struct vb_iwcm_ops *ops, struct vb_iwcm **out); /* no lock held */
/* In a child of fork(): the parent's sockets are closed here, and everything else forgotten. No lock held. */
void vb_iwcm_in_child(struct vb_iwcm *cm);
/* When vb_iwcm_timeout is to be called, by the progress thread; CLOCK_MONOTONIC, ns; 0: never. */
uint64_t vb_iwcm_deadline(const struct vb_iwcm *cm);
void vb_iwcm_timeout(struct vb_iwcm *cm, uint64_t now);

/* --- for the same host; any lock --- */

/* Do programs of this host meet in memory (VERBENA_WIRE)? */
bool vb_iwcm_here(void);
/* Has the interface of this iWARP device the address? *ifindex: the interface. */
bool vb_iwcm_address(struct ibv_context *ctx, const uint8_t gid[16], uint32_t *ifindex);
/* As ibv_modify_qp of a RoCE device's queue pair, where the peer is a program of this host. No lock held. 0 or an
 * errno. */
int vb_iwcm_modify_here(struct ibv_context *ctx, uint32_t qpn, const struct ibv_qp_attr *attr, int mask);

/* Listens at local and local_port; zeros: all addresses, of IPv4 where v4, of IPv6 alone where v6_only. */
int vb_iwcm_listen(struct vb_iwcm *cm, const struct vb_iwcm_ends *at, bool v4, bool v6_only, uint8_t tos, void *own,
                   struct vb_iwcm_listener **out);
/* Those whose request is not complete are closed. The port is free when it returns. */
void vb_iwcm_unlisten(struct vb_iwcm_listener *l);

struct vb_iwcm_offer {
	const void *data[2]; /* private data in two parts, one behind the other */
	size_t len[2];
	uint16_t ird, ord; /* ours: reads we serve, reads we ask for */
	uint8_t tos;
};
/* any_port: where local_port is taken for TCP, another will do. */
int vb_iwcm_connect(struct vb_iwcm *cm, const struct vb_iwcm_ends *ends, bool any_port,
                    const struct vb_iwcm_offer *offer, void *own, struct vb_iwcm_conn **out);
/* The queue pair of this number gets the stream and goes to RTS. Without the lock; nobody else uses the connection
 * meanwhile. An error: only vb_iwcm_end is left, but for EINVAL, where nothing was done. */
int vb_iwcm_accept(struct vb_iwcm_conn *c, uint32_t qpn, const struct vb_iwcm_offer *offer);
int vb_iwcm_start(struct vb_iwcm_conn *c, uint32_t qpn);
/* The program knows of the connection: closed() may be called from now on, and is at once if the stream has ended. */
void vb_iwcm_told(struct vb_iwcm_conn *c);
/* The request is refused. The connection is still the owner's, to be ended. */
int vb_iwcm_reject(struct vb_iwcm_conn *c, const void *data, size_t len);
/* Ends the stream as vb_iwarp_disconnect does; closed() follows. Without the lock. */
int vb_iwcm_disconnect(struct vb_iwcm_conn *c);
/* In any state: a request that was not answered is refused. A stream goes on: vb_iwcm_disconnect is to be called
 * before. The pointer is no longer the caller's, and its own is not told anything any more. */
void vb_iwcm_end(struct vb_iwcm_conn *c);
void vb_iwcm_ends(const struct vb_iwcm_conn *c, struct vb_iwcm_ends *out);
/* What both have agreed on, once they have. */
void vb_iwcm_depths(const struct vb_iwcm_conn *c, uint16_t *ird, uint16_t *ord);

/* X(name, text) */
#define VB_IWCM_COUNTERS(X)                                                \
	X(accepted, "TCP connections taken")                               \
	X(requests, "MPA requests")                                        \
	X(refused, "of those, refused by us")                              \
	X(asked, "MPA requests sent")                                      \
	X(older, "asked once more by revision 1")                          \
	X(replies, "MPA replies")                                          \
	X(disagreed, "ended by a Terminate before a stream began")         \
	X(malformed, "closed: not an MPA frame, or not one that may come") \
	X(lost, "closed by the peer in the middle of the exchange")        \
	X(expired, "closed: the exchange took too long")                   \
	X(crowded_out, "closed: too many at once")                         \
	X(streams, "streams given to queue pairs")                         \
	X(ended, "streams ended")

/* live, listening: how many there are now. */
struct vb_iwcm_stats {
#define X(name, text) uint64_t name;
	VB_IWCM_COUNTERS(X)
#undef X
	uint64_t live, listening;
};
/* Of this process, zeros where there is none. Both without the lock. */
void vb_iwcm_stats(struct vb_iwcm_stats *out);
/* For tests: times are divided by this. */
void vb_iwcm_hurry(unsigned by);

#endif
