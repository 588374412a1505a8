// session.h - the broker's internal state: its sessions, one per connected program, and what happens to them
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_SESSION_H
#define VB_BROKER_SERVER_SESSION_H

#include "broker/server/addresses.h"
#include "broker/server/broker.h"
#include "broker/server/hold.h"
#include "broker/proto/proto.h"
#include "broker/server/gsi.h"
#include "broker/server/state.h"
#include "broker/server/table.h"

/* The answer to one MEET. It holds no descriptors: these are looked up when it is sent. */
struct vb_answer {
	uint64_t tag;
	int err;
	uint32_t lane;
	uint64_t incarnation; /* of lane when it was found: the lane's program may end before the answer is sent */
};

enum { VB_FD_SEG, VB_FD_BELL, VB_FD_WAKE };

/*
 * Messages to a program are bounded without a queue that could overflow. Introductions are a set, a status report is
 * a cursor, and the broker reads no more requests of a program that does not read its MEET replies. So a stopped
 * program needs no special treatment.
 */
struct vb_session {
	uint32_t slot, gen;
	int sock, pid_fd;
	pid_t pid; /* in our pid namespace; 0: not visible */
	uid_t uid;
	bool foreign;   /* of another user: not trusted, and gets no socket of the group */
	bool elsewhere; /* in another network namespace: a broker there serves its RoCE and queue pair 1 */
	uint32_t lane;  /* 0: not attached */
	int fds[3];
	int64_t deadline;            /* until it has attached; 0: none */
	uint32_t interest;           /* the socket's epoll events */
	bool full;                   /* its socket is, and epoll tells when there is room */
	bool stalled;                /* too many descriptors are in flight: send again after a pause */
	bool attached_due, roce_due; /* ATTACHED, ROCE_REPLY are to be sent */
	uint32_t groups_changed;     /* how often it has joined or left a multicast group */
	bool in_groups;              /* so it has, on a socket that it reads itself */
	int64_t roce_asked_at;       /* ms: its last ROCE request; limits those of another user's program */
	bool detached;               /* it has sent DETACH */
	uint32_t nanswers, nparked;
	struct vb_answer answers[VB_MAX_ANSWERS + VB_MAX_PARKED_EACH]; /* each parked MEET has its place */
	struct vb_lane_set introduce;
	uint32_t status_next;      /* next lane of the status report; 0: none was requested */
	struct vb_gsi_member *gsi; /* NULL: not a member of queue pair 1 */
};

/* A MEET that waits for a program that has not reattached to this broker yet. */
struct vb_parked {
	struct vb_parked *next;
	uint32_t asker, qpn;
	uint64_t asker_incarnation, tag;
	uint8_t dgid[16];
};

/* A lane that is reserved for a program of an earlier broker. */
struct vb_reserved {
	int pid_fd; /* -1: the pid is not visible from here; reserved until the deadline */
	int64_t deadline;
};

struct vb_broker {
	struct vb_broker_config config;
	int epoll_fd, listen_fd;
	uint64_t network; /* inode number of our network namespace; 0: unknown */
	dev_t sock_dev;
	ino_t sock_ino;
	bool accept_paused;
	int64_t retry_at; /* when to retry what failed for lack of descriptors; 0: nothing did */
	int64_t exit_at;  /* 0: programs are attached */
	bool stop;
	struct vb_table table;
	struct vb_state state;
	struct vb_hold hold;
	int64_t sweep_at; /* when to take back lanes of an earlier broker whose holders have not reattached; 0: never */
	/* lanes that were taken back like that: if a holder comes after all, its lane is opened again */
	struct vb_lane_set swept;
	uint32_t nsessions, npending, generation;
	struct vb_session *sessions[VB_MAX_SESSIONS];
	struct vb_session *holder[VB_LANE_COUNT]; /* the session that holds a lane */
	struct vb_reserved reserved[VB_LANE_COUNT];
	struct vb_parked *parked;
	uint32_t nparked;
	/* how many messages with descriptors of other users' programs may still be received in this turn */
	uint32_t takes_left;
	uint32_t max_lanes;             /* programs for which the descriptor limit suffices */
	struct vb_addresses *addresses; /* of this host; NULL: not known */
	struct vb_gsi *gsi;             /* NULL: queue pair 1 was not requested yet */
	int64_t began_at;               /* start time: bounds how long programs of an earlier broker are waited for */
	int64_t returned_at;            /* when a program of an earlier broker came back last; 0: never */
	struct vb_msg_status_end counters; /* head unused */
};

/* broker.c. Everything but the listening socket: tests and the fuzzer use these without one. */
int vb_broker_init(struct vb_broker *b, const struct vb_broker_config *config);
void vb_broker_fini(struct vb_broker *b, bool keep_state);
void vb_broker_stall(struct vb_broker *b);
/* The source of an epoll event. Its epoll data is kind, number and generation in one word. */
enum vb_source {
	VB_SRC_LISTEN = 1,
	VB_SRC_STOP,
	VB_SRC_SOCK,
	VB_SRC_PID,
	VB_SRC_RESERVED,
	VB_SRC_GSI,
	VB_SRC_ADDRESSES
};
#define VB_SOURCE_NUMBER_MASK 0xffff

static inline uint64_t vb_source_key(enum vb_source kind, uint32_t number, uint32_t gen)
{
	return (uint64_t)kind << 56 | (uint64_t)number << 32 | gen;
}

static inline enum vb_source vb_source_kind(uint64_t key)
{
	return (enum vb_source)(key >> 56);
}

static inline uint32_t vb_source_number(uint64_t key)
{
	return key >> 32 & VB_SOURCE_NUMBER_MASK;
}

int vb_broker_watch(struct vb_broker *b, int fd, uint32_t events, enum vb_source kind, uint32_t number, uint32_t gen);

/* session.c. Takes over a connected socket, which it closes on failure. Returns 0 or an errno. */
int vb_session_open(struct vb_broker *b, int sock, struct vb_session **out);
/* Also frees its lane. died: the program ended without DETACH. */
void vb_session_close(struct vb_broker *b, struct vb_session *s, bool died);
/* Sends pending messages until the socket is full, and updates the epoll events. */
void vb_session_flush(struct vb_broker *b, struct vb_session *s);
void vb_session_refuse(struct vb_broker *b, struct vb_session *s, int err, const char *text);
/* Returns 0, EAGAIN (the socket is full), ETOOMANYREFS (out of memory or of descriptors in flight: try again later),
 * or another errno: the connection is broken. */
int vb_session_send(struct vb_session *s, const void *msg, size_t len, const int *fds, int nfds);
/* Programs that share a socket pass datagrams to a group on to each other, so they have to meet. Introduces those that have
 * been in a group to this one, and this one, if it has been, to all that share its socket. ends: it may have left a group before, so
 * each of them is introduced to itself. Returns whether there are such programs. */
bool vb_session_introduce_sharers(struct vb_broker *b, struct vb_session *s, bool ends);
void vb_lane_release(struct vb_broker *b, uint32_t lane, enum vb_groups_left left);

/* session_in.c. Reads and handles some messages; at the end of the connection the session is closed. */
void vb_session_readable(struct vb_broker *b, struct vb_session *s);
/* Closes descriptors that a message brought and nobody needs. */
void vb_session_drop_fds(const struct vb_session *s, const int *fds, int nfds);

/* handle.c. Handles one message and takes over its descriptors. False: the session is over, an ERROR was sent. Also
 * called by the fuzzer. */
#define VB_FDS_PER_MESSAGE 253 /* the kernel's limit (SCM_MAX_FD) */
bool vb_session_handle(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len, const int *fds,
                       int nfds);
/* NULL, or the error in the descriptors of an ATTACH. */
const char *vb_attach_wrong(const int fds[3]);
/* Retries the parked MEETs whose target is lane. */
void vb_parked_retry(struct vb_broker *b, uint32_t lane);
/* Drops the parked MEETs of an asker. */
void vb_parked_forget(struct vb_broker *b, uint32_t asker);

#endif
