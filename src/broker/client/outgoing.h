// outgoing.h - the client's state, and sending to the broker
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_OUTGOING_H
#define VB_BROKER_CLIENT_OUTGOING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/proto.h"
#include "broker/proto/runtime.h"
#include "broker/client/client.h"

/*
 * AWAY -> ATTACHING -> ATTACHED. If no broker runs: AWAY -> STARTING -> AWAY. No step blocks: the epoll descriptor or
 * the deadline ends each wait.
 */
enum client_state {
	AWAY,
	STARTING,  /* our broker is starting: ready_fd tells when it listens, lock_fd is held */
	ATTACHING, /* ATTACH was sent */
	ATTACHED,
};

struct vb_outgoing; /* a message that the socket has not accepted yet */

struct vb_broker_client {
	pthread_mutex_t lock; /* guards the members that any thread may touch: from state down to pending_tail */
	enum client_state state;
	int sock; /* -1 unless ATTACHING or ATTACHED */
	uint32_t ngids;
	uint8_t gids[VB_MAX_GIDS][16];
	bool gids_due; /* gids are not sent yet */
	bool roce_due; /* ROCE is not sent yet */
	bool want_out; /* epoll reports when the socket has room */
	struct vb_outgoing *pending, **pending_tail;

	/* The client of the broker that serves our network namespace, if that is not the broker that introduces us to
	 * other programs; NULL: it is. Once set it stays. client/network.h */
	_Atomic(struct vb_broker_client *) network;
	bool of_network; /* this is such a client. Constant */

	/* used by the progress thread only */
	struct vb_attach_fds fds;
	pid_t owner; /* our pid: a forked child must not speak for its parent */
	int epoll_fd, ready_fd, lock_fd;
	struct vb_runtime rt; /* where our broker is being started */
	bool as_thread;       /* executing the broker failed: it runs in a thread of this program */
	bool refused;         /* logged already */
	int error;            /* why the last attempt was refused; 0: it was not */
	int64_t deadline;     /* AWAY: when to retry; STARTING, ATTACHING: when the attempt has failed */
	int backoff_ms;
	uint32_t lane; /* 0 before the first ATTACHED. lane, incarnation and giver then stay for the client's life */
	uint64_t incarnation;
	uid_t giver; /* the user whose broker gave the lane */
	uid_t asked; /* the user of the broker that we are attached or attaching to */
	bool missed; /* logged already that the broker of giver has ended */
};

struct vb_msg_head vb_outgoing_head(uint8_t type, size_t len);
/* Returns 0, EAGAIN, or EPIPE: the connection is broken, which the receiving side sees too. */
int vb_outgoing_send(int sock, const void *msg, size_t len);
/* Sends what is queued, in order. The caller holds the lock; state is ATTACHED. */
void vb_outgoing_flush(struct vb_broker_client *c);
/* Drops what is queued. The caller holds the lock, or is the last user. */
void vb_outgoing_drop(struct vb_broker_client *c);

#endif
