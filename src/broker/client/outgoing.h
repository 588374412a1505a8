// outgoing.h - a program's connection to the broker, as its two halves share it: finding one, and sending to it
// follows: broker/proto/proto.h
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
 * AWAY -> ATTACHING -> ATTACHED, with STARTING between AWAY and AWAY where no broker runs. Each step is short; what takes
 * time is waited for in the epoll descriptor, or by a deadline.
 */
enum client_state {
	AWAY,
	STARTING,  /* a broker of ours comes up: ready_fd tells, lock_fd is held */
	ATTACHING, /* ATTACH is sent */
	ATTACHED,
};

struct vb_outgoing; /* a message that the socket did not take yet */

struct vb_broker_client {
	pthread_mutex_t lock; /* guards what the any-thread calls touch: down to pending_tail */
	enum client_state state;
	int sock;             /* -1 but when ATTACHING or ATTACHED */
	uint32_t ngids;
	uint8_t gids[VB_MAX_GIDS][16];
	bool gids_due;        /* the broker has not been told */
	bool due;        /* … nor asked */
	bool want_out;        /* epoll watches for room in the socket */
	struct vb_outgoing *pending, **pending_tail;

	/* the progress thread's own */
	struct vb_attach_fds fds;
	pid_t owner;          /* a child of a fork must not speak for its parent */
	int epoll_fd, ready_fd, lock_fd;
	struct vb_runtime rt; /* the place that is being started */
	bool as_thread;       /* an exec failed before: the broker runs in here */
	bool refused;         /* said in the log already */
	int error;            /* why the last attempt was refused; 0: it was not */
	int64_t deadline;     /* AWAY: when to try again; STARTING, ATTACHING: when to give up */
	int backoff_ms;
	uint32_t lane;        /* 0 before the first ATTACHED; these three stay for life */
	uint64_t incarnation;
	uid_t giver;          /* the user whose broker gave the lane */
	uid_t asked;          /* … whose broker we are attached to, or want to be */
	bool missed;          /* said in the log that the giver's broker has gone */
};

struct vb_msg_head vb_outgoing_head(uint8_t type, size_t len);
/* 0, EAGAIN, or EPIPE: then the end shows on the receiving side, too. */
int vb_outgoing_send(int sock, const void *msg, size_t len);
/* What waited for room, in order. Caller holds the lock; state is ATTACHED. */
void vb_outgoing_flush(struct vb_broker_client *c);
/* What waits is given up. Caller holds the lock, or is the last. */
void vb_outgoing_drop(struct vb_broker_client *c);

#endif
