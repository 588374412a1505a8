// path.h - the iWARP path of a queue pair, and the streams of a process
// follows: RFC 5040, RFC 5044; docs/iwarp.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_IWARP_PATH_H
#define VB_PATH_IWARP_PATH_H

#include "engine/iwarp/state.h"
#include "path/iwarp/iwarp.h"
#include "path/queue_ops.h"

#define VB_IWARP_STAGE (256u << 10)
#define VB_IWARP_OUT (512u << 10)

struct vb_iwarp_tail;

struct vb_iwarp_path {
	struct vb_iw_qp q;
	struct vb_qp *qp;
	int fd;
	/* under sq_lock */
	bool blocked;   /* the socket did not take all data, or a rule of fault injection holds it */
	bool faulty;    /* rules of fault injection are asked about each FPDU: fault.c */
	uint32_t asked; /* EPOLL*: events requested from the set */
	uint32_t kbps;  /* the pace of the socket; 0: TCP's own */
	uint8_t failed; /* enum vb_work_event: the engine has failed; the queue pair must follow */
	int lost;       /* errno of the socket: nothing can be sent any more */
	int status;     /* for closed() */
	bool aborted;   /* the program aborted it: it ends with a reset */
	uint32_t turn;
	uint64_t fault_until; /* ns: nothing is sent before; 0: not held */
	uint32_t fault_head;  /* the FPDU that was judged, if fault_judged */
	bool fault_judged;
	uint8_t peer[16]; /* its address; only if faulty or armed later */
	struct vb_known known;
	/* A held completion; see may_hold in path.c. */
	bool may_hold, held;
	bool missed; /* the hold was in vain, and nothing was posted or arrived since */
	uint64_t hold_ns;
	uint64_t held_until;
	struct vb_work held_work;
	_Atomic uint8_t heat; /* 0: the stream is idle */
	/* the stream is polled less often, because nothing arrived in many polls and nothing was posted */
	atomic_bool seldom;
	/* under progress + sq_lock */
	bool in_set;
	uint32_t in_vain;           /* polls since data arrived */
	bool starving;              /* the input waits for a receive, and EPOLLIN is not requested */
	bool fin;                   /* starving: the peer has closed */
	uint64_t look_at, patience; /* starving, ns: when to check the connection; when to give up */
	/* under progress */
	struct vb_iwarp_path *next, **prev;
	struct vb_iwarp_path *starved_next, **starved_prev;

	struct vb_iwarp_tail *tail;
	uint8_t *memory; /* stage, then out */
	struct vb_work_sent sends[];
};

/* The streams of a process. */
struct vb_iwarp_host {
	int epoll_fd;                          /* a set that is in the progress thread's set while that owns progress */
	struct vb_iwarp_path *paths, *starved; /* under progress */
	unsigned n;
	uint32_t turn;            /* under progress: polls */
	char congestion[16];      /* VERBENA_CONGESTION; empty: not set */
	_Atomic uint64_t trim_at; /* ns: when to look for idle streams; 0: all are idle */
};

/* Counters of ended streams. */
extern struct vb_iw_stats vb_iw_totals;

/* --- host.c --- */

#define VB_IWARP_FEW 8u /* up to this many streams are polled one by one, with one system call each */

struct vb_iwarp_host *vb_iwarp_host_new(struct vb_node *node); /* NULL if there is no memory or no descriptor */
void vb_iwarp_host_free(struct vb_node *node);
void vb_iwarp_in_child(struct vb_node *node);
/* watch: the sockets wake the progress thread; otherwise a thread polls them. Under progress. */
void vb_iwarp_watch(struct vb_node *node, bool watch);
/* Updates the events requested from the set. Under sq_lock. */
void vb_iwarp_rewatch(struct vb_iwarp_path *path);
/* Under progress, no queue pair's lock held. */
void vb_iwarp_host_join(struct vb_iwarp_path *path);
/* Under progress + sq_lock. */
void vb_iwarp_host_leave(struct vb_iwarp_path *path);

/* --- path.c --- */

/* Receives data, and sends data for which sockets had no room. finish: waits for sq_lock, as in visit of struct
 * vb_path_ops. Under progress. Returns the amount of work. */
unsigned vb_iwarp_poll(struct vb_node *node, bool finish);
/* Called when the program ends without closing its devices, so that data that it sent arrives: first last_words, then
 * vb_iwarp_tails_wait, then last_ends. Under progress. */
void vb_iwarp_last_words(struct vb_node *node);
void vb_iwarp_last_ends(struct vb_node *node);
/* Sends data of streams that a rule has held until now. Returns when the next is due; ns, 0: never. No lock held. */
uint64_t vb_iwarp_serve_faults(struct vb_node *node);
/* kick and settle of struct vb_path_ops. */
enum vb_sq_status vb_iwarp_kick(struct vb_qp *qp);
void vb_iwarp_settle(struct vb_qp *qp);
/* Sends all that may be sent. Under sq_lock. */
void vb_iwarp_emit(struct vb_iwarp_path *path);
/* Has its connection or its engine ended? Under sq_lock. */
bool vb_iwarp_ended(const struct vb_iwarp_path *path);
/* Tells the engine how long TCP's segments are now. Under sq_lock. */
void vb_iwarp_refresh_emss(struct vb_iwarp_path *path);

/* --- stream.c --- */

/* Adds its counters. Under progress. */
void vb_iwarp_path_counts(const struct vb_iwarp_path *path, struct vb_counts *c);

/* --- fault.c --- */

/* vb_iw_output for one FPDU, about which the rules are asked. 0 also if it is held, or the connection was reset. Under
 * sq_lock. */
int vb_iwarp_fault_output(struct vb_iwarp_path *path, struct iovec *iov, int max);
/* The rules have changed. No lock held. */
void vb_iwarp_arm(struct vb_node *node);
/* --- starve.c --- */

/* Called after input: starts or ends starvation as the engine reports. Under progress + sq_lock. */
void vb_iwarp_starve(struct vb_iwarp_path *path);
/* Visits a starved stream: continues if there is a receive, and ends the stream if the connection has ended or the
 * message has waited too long. finish: checks the connection now. Under progress + sq_lock. Returns the amount of
 * work. */
unsigned vb_iwarp_feed(struct vb_iwarp_path *path, bool finish);
/* Ends starvation. Under progress + sq_lock. */
void vb_iwarp_unstarve(struct vb_iwarp_path *path);
/* When the progress thread must visit starved or idle streams; ns, 0: never. Under progress. */
uint64_t vb_iwarp_due(struct vb_node *node);
/* Marks a stream as in use. Under sq_lock. */
void vb_iwarp_heat(struct vb_iwarp_path *path);
/* Called from time to time: frees memory of idle streams. No lock held. */
void vb_iwarp_trim(struct vb_node *node);

/* --- ops.c --- */

extern const struct vb_iw_ops vb_iwarp_ops;
/* Releases a held completion. Under sq_lock. */
void vb_iwarp_release(struct vb_iwarp_path *path);
void vb_iwarp_release_all(struct vb_node *node); /* under progress */

/* --- socket.c --- */

void vb_iwarp_prepare_socket(int fd, const char *congestion);
/* Limits its rate; 0: no longer. */
void vb_iwarp_limit_socket(int fd, uint32_t kbps);

/* --- tail.c: the end of a stream. The struct is allocated when the stream starts --- */

/* Takes ownership of the descriptor. NULL if there is no memory; the caller keeps the descriptor then. */
struct vb_iwarp_tail *vb_iwarp_tail_new(struct vb_node *node, const struct vb_iwarp_stream *s);
/* Called if the stream was not started: returns the descriptor to the caller. */
void vb_iwarp_tail_drop(struct vb_iwarp_tail *t);
/* Called when the queue pair has left the stream. rest (malloc'd, or NULL) must still be sent. Any lock may be held. */
void vb_iwarp_tail_end(struct vb_iwarp_tail *t, int status, uint8_t *rest, size_t len);
/* Reports ended streams, and serves lingering sockets. Progress thread, no lock held. vb_iwarp_tails_at is the time of
 * the next call (0: never). */
void vb_iwarp_tails(struct vb_node *node);
uint64_t vb_iwarp_tails_at(void);
/* Waits until the peers of all streams have received all data, at most half a second. No lock held. */
void vb_iwarp_tails_wait(struct vb_node *node);
/* Called when the node ends, after its progress thread. */
void vb_iwarp_tails_free(struct vb_node *node);
void vb_iwarp_tails_in_child(void);

#endif
