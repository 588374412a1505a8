// session.h - the broker's inside: its sessions (one per connected program) and what happens to them
// follows: nothing
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

/* The answer to one meet, small: descriptors are looked up when it is sent. */
struct vb_answer {
	uint64_t tag;
	int err;
	uint32_t lane;
	uint64_t incarnation; /* of lane when it was found: it may have gone before the answer could be sent */
};

enum { VB_FD_SEG, VB_FD_BELL, VB_FD_WAKE };

/*
 * What waits to be sent is bounded without a queue that could overflow: introductions are a set, a status report is a
 * cursor, and a program that does not read the answers to its meets is not read from either. So one that is stopped is
 * simply waited for.
 */
struct vb_session {
	uint32_t slot, gen;
	int sock, pid_fd;
	pid_t pid; /* in our pid namespace, 0: not visible */
	uid_t uid;
	bool foreign;     /* not our own user's: nothing of it is believed, and nothing of the group leaves us for it */
	uint32_t lane;    /* 0: not attached */
	int fds[3];
	int64_t deadline; /* of one that has not attached; 0: none */
	uint32_t interest; /* what epoll watches the socket for */
	bool stalled;     /* the kernel has too many descriptors in flight: again after a while */
	bool attached_due, due;
	uint32_t groups_changed; /* … how often it has joined or left a multicast group */
	int64_t wire_at; /* another user's program: when its lane was asked for last; not so soon again */
	bool detached;    /* it said good-bye */
	uint32_t nanswers, nparked;
	struct vb_answer answers[VB_MAX_ANSWERS + VB_MAX_PARKED_EACH]; /* a parked one has its room, too */
	struct vb_lane_set introduce;
	uint32_t status_next; /* 0: nobody asked */
	struct vb_gsi_member *gsi; /* NULL: not a member of queue pair 1 */
};

/* A meet with a program that lives but has not come back to this broker. */
struct vb_parked {
	struct vb_parked *next;
	uint32_t asker, qpn;
	uint64_t asker_incarnation, tag;
	uint8_t dgid[16];
};

/* A lane kept for a program of the earlier broker. */
struct vb_reserved {
	int pid_fd;    /* -1: not visible from here, kept until the deadline */
	int64_t deadline;
};

struct vb_broker {
	struct vb_broker_config config;
	int epoll_fd, listen_fd;
	dev_t sock_dev;
	ino_t sock_ino;
	bool accept_paused;
	int64_t retry_at; /* when to look again at what stalled for want of descriptors; 0: nothing did */
	int64_t exit_at;  /* 0: somebody is here */
	bool stop;
	struct vb_table table;
	struct vb_state state;
	struct vb_hold hold;
	int64_t sweep_at; /* when lanes that an earlier broker gave are taken back if nobody has come for them; 0: never */
	struct vb_lane_set swept; /* taken back so: a holder that comes after all gets its lane opened again */
	uint32_t nsessions, npending, generation;
	struct vb_session *sessions[VB_MAX_SESSIONS];
	struct vb_session *holder[VB_LANE_COUNT]; /* of a held lane */
	struct vb_reserved reserved[VB_LANE_COUNT];
	struct vb_parked *parked;
	uint32_t nparked;
	uint32_t takes_left;  /* messages with descriptors of other users' programs that are taken before the others have their turn */
	uint32_t max_lanes;   /* programs that our descriptors are enough for */
	struct vb_addresses *addresses; /* of this host; NULL: not known */
	struct vb_gsi *gsi;   /* NULL: nobody has asked for queue pair 1 yet */
	int64_t began_at;     /* when this broker began: who has not come back long after is not waited for */
	int64_t returned_at;  /* when the last program of an earlier broker came back; 0: never */
	struct vb_msg_status_end counters; /* head unused */
};

/* broker.c. Everything but the listening socket: what tests and the fuzzer drive without one. */
int vb_broker_init(struct vb_broker *b, const struct vb_broker_config *config);
void vb_broker_fini(struct vb_broker *b, bool keep_state);
void vb_broker_stall(struct vb_broker *b);
/* What an epoll event is about: kind, number, generation in one word. */
enum vb_source { VB_SRC_LISTEN = 1, VB_SRC_STOP, VB_SRC_SOCK, VB_SRC_PID, VB_SRC_RESERVED, VB_SRC_GSI, VB_SRC_ADDRESSES };
int vb_broker_watch(struct vb_broker *b, int fd, uint32_t events, enum vb_source kind, uint32_t number, uint32_t gen);

/* session.c. Takes a connected socket (closed on failure): 0 or an errno. */
int vb_session_open(struct vb_broker *b, int sock, struct vb_session **out);
/* Frees its lane. died: the program is gone, by whatever way. */
void vb_session_close(struct vb_broker *b, struct vb_session *s, bool died);
void vb_session_readable(struct vb_broker *b, struct vb_session *s);
/* Sends what waits, as far as the socket takes it, and tells epoll what else is of interest. */
void vb_session_flush(struct vb_broker *b, struct vb_session *s);
void vb_session_refuse(struct vb_broker *b, struct vb_session *s, int err, const char *text);
/* Descriptors that a message brought and nobody has a use for. */
void vb_session_drop_fds(const struct vb_session *s, const int *fds, int nfds);
/* 0, EAGAIN (the socket is full), ETOOMANYREFS (short of something; again later), or anything else: it is broken. */
int vb_session_send(struct vb_session *s, const void *msg, size_t len, const int *fds, int nfds);
void vb_lane_release(struct vb_broker *b, uint32_t lane);

/* handle.c. One message with its descriptors, whose owner it becomes; false: the session is over (an ERROR was sent).
 * The entry for the fuzzer, too. */
#define VB_FDS_PER_MESSAGE 253 /* as many as the kernel lets one bring (SCM_MAX_FD) */
bool vb_session_handle(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len, const int *fds, int nfds);
/* What is wrong with the descriptors of an ATTACH: NULL, or words for its program. */
const char *vb_attach_wrong(const int fds[3]);
/* Asks again for the parked meets whose target is lane. */
void vb_parked_retry(struct vb_broker *b, uint32_t lane);
/* Forgets those of an asker. */
void vb_parked_forget(struct vb_broker *b, uint32_t asker);

#endif
