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
 * librdmacm.so.1 calls these functions in libibverbs.so.1. Like those of gsi.h, the symbols have a version of their
 * own. A process has one instance. It has no lock: unless stated otherwise, functions are called under the caller's
 * lock, which the progress thread takes with the callbacks lock and unlock. Errors are errno values, addresses are GIDs
 * (IPv4 mapped).
 */
struct vb_iwcm;
struct vb_iwcm_listener;
struct vb_iwcm_conn;

enum {
	VB_IWCM_PRIVATE_MAX = 508,      /* private data: the limit of MPA, minus the words of RFC 6581 */
	VB_IWCM_DEPTH_UNKNOWN = 0xffff, /* ird, ord: not sent by the peer (MPA revision 1) */
};

struct vb_iwcm_addresses {
	uint8_t local[16], remote[16];
	uint16_t local_port, remote_port;
	uint32_t ifindex; /* for link-local addresses; otherwise 0 */
};

/* The peer's request or reply. The data is valid during the call. */
struct vb_iwcm_said {
	const void *data;
	size_t len;
	uint16_t ird, ord; /* the most outstanding reads that the peer serves, that it requests */
};

/* Called by the progress thread, under the lock. They may call any function below that needs the lock. */
struct vb_iwcm_ops {
	void (*lock)(void);
	void (*unlock)(void); /* vb_iwcm_deadline may have changed */
	/* A complete request has arrived. Returns the owner of the connection, which must accept, reject or end it, or
	 * NULL to refuse it. */
	void *(*request)(void *listener, struct vb_iwcm_conn *c, const struct vb_iwcm_said *said);
	/* The result of vb_iwcm_connect. 0: accepted, call vb_iwcm_start next. ECONNREFUSED: refused by the host, or
	 * by the program (then `said` is its reply). ECONNRESET: closed before a reply, or the reply was not an MPA
	 * reply. ENOMEM: the peer wants more outstanding reads than offered. ETIMEDOUT, EHOSTUNREACH and others. */
	void (*replied)(void *own, int err, const struct vb_iwcm_said *said);
	/* The stream has ended. Called once, and only after vb_iwcm_owner_knows. */
	void (*closed)(void *own, int err);
	/* Called one second after closed. */
	void (*exited)(void *own);
};

int vb_iwcm_open(const struct vb_iwcm_ops *ops, struct vb_iwcm **out); /* no lock held */
/* Called in a child of fork(): closes the parent's sockets, and drops everything else. No lock held. */
void vb_iwcm_in_child(struct vb_iwcm *cm);
/* The time at which the progress thread must call vb_iwcm_timeout; CLOCK_MONOTONIC, ns; 0: never. */
uint64_t vb_iwcm_deadline(const struct vb_iwcm *cm);
void vb_iwcm_timeout(struct vb_iwcm *cm, uint64_t now);

/* --- same host; any lock may be held --- */

/* May programs of this host use shared memory (VERBENA_WIRE)? */
bool vb_iwcm_here(void);
/* Does the interface of this iWARP device have this address? *ifindex is the interface. */
bool vb_iwcm_address(struct ibv_context *ctx, const uint8_t gid[16], uint32_t *ifindex);
/* Like ibv_modify_qp of a RoCE device's queue pair, for a peer on this host. No lock held. 0 or an errno. */
int vb_iwcm_modify_here(struct ibv_context *ctx, uint32_t qpn, const struct ibv_qp_attr *attr, int mask);

/* Listens at local and local_port. An all-zero address means all addresses: of IPv4 if v4; otherwise of IPv6, and of
 * IPv4 unless v6_only. */
int vb_iwcm_listen(struct vb_iwcm *cm, const struct vb_iwcm_addresses *at, bool v4, bool v6_only, uint8_t tos,
                   void *own, struct vb_iwcm_listener **out);
/* Closes the listener, and connections without a complete request. The port is free when it returns. */
void vb_iwcm_unlisten(struct vb_iwcm_listener *l);

struct vb_iwcm_offer {
	const void *data[2]; /* private data in two consecutive parts */
	size_t len[2];
	uint16_t ird, ord; /* the most outstanding reads that we serve, that we request */
	uint8_t tos;
};
/* Connects, and sends an MPA request. any_port: if local_port is in use by TCP, chooses another one. */
int vb_iwcm_connect(struct vb_iwcm *cm, const struct vb_iwcm_addresses *ends, bool any_port,
                    const struct vb_iwcm_offer *offer, void *own, struct vb_iwcm_conn **out);
/* Give the stream to the queue pair with this number, which goes to RTS. Called without the lock; no other thread may
 * use the connection meanwhile. After EINVAL nothing was done; after any other error only vb_iwcm_release may follow. */
int vb_iwcm_accept(struct vb_iwcm_conn *c, uint32_t qpn, const struct vb_iwcm_offer *offer);
int vb_iwcm_start(struct vb_iwcm_conn *c, uint32_t qpn);
/* The program knows the connection: closed() may be called from now on, at once if the stream has ended. */
void vb_iwcm_owner_knows(struct vb_iwcm_conn *c);
/* Refuses the request. The owner must still call vb_iwcm_release. */
int vb_iwcm_reject(struct vb_iwcm_conn *c, const void *data, size_t len);
/* Ends the stream like vb_iwarp_disconnect; closed() follows. Called without the lock. */
int vb_iwcm_disconnect(struct vb_iwcm_conn *c);
/* Releases the connection in any state. Refuses an unanswered request. A stream continues, unless vb_iwcm_disconnect
 * was called before. The pointer is invalid afterwards, and no callback follows. */
void vb_iwcm_release(struct vb_iwcm_conn *c);
void vb_iwcm_addresses(const struct vb_iwcm_conn *c, struct vb_iwcm_addresses *out);
/* The negotiated numbers of outstanding reads. */
void vb_iwcm_depths(const struct vb_iwcm_conn *c, uint16_t *ird, uint16_t *ord);

/* X(name, text) */
#define VB_IWCM_COUNTERS(X)                                               \
	X(accepted, "TCP connections accepted")                           \
	X(requests, "MPA requests")                                       \
	X(refused, "of those, refused by this end")                       \
	X(asked, "MPA requests sent")                                     \
	X(older, "requests repeated with revision 1")                     \
	X(replies, "MPA replies")                                         \
	X(disagreed, "ended by a Terminate before a stream began")        \
	X(malformed, "closed: not an MPA frame, or not one allowed here") \
	X(lost, "closed by the peer in the middle of the exchange")       \
	X(expired, "closed: the exchange took too long")                  \
	X(crowded_out, "closed: too many at once")                        \
	X(streams, "streams given to queue pairs")                        \
	X(ended, "streams ended")

/* live, listening: the current numbers of connections and listeners. */
struct vb_iwcm_stats {
#define X(name, text) uint64_t name;
	VB_IWCM_COUNTERS(X)
#undef X
	uint64_t live, listening;
};
/* Statistics of this process; zeros if there is no instance. This and the next are called without the lock. */
void vb_iwcm_stats(struct vb_iwcm_stats *out);
/* For tests: divides all time limits by this. */
void vb_iwcm_hurry(unsigned by);

#endif
