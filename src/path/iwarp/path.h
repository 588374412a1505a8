// path.h - what joins a queue pair to its TCP connection, and all of them to whoever does the adapter's work
// follows: RFC 5040, RFC 5044
// see: docs/iwarp.md
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
	bool blocked;   /* there is more to send than the socket took */
	uint32_t asked; /* EPOLL*: what the set is asked for */
	uint8_t failed; /* 1 + enum vb_work_event: the engine gave up; the queue pair follows */
	int lost;       /* errno of the socket: nothing can be sent any more */
	int status;     /* for closed() */
	bool aborted;   /* by the program: it ends with a reset */
	uint32_t turn;
	struct vb_known known;
	/* A completion that waits for company; see may_hold. */
	bool may_hold, held;
	bool missed;   /* it waited in vain, and nothing was posted or came since */
	uint64_t hold; /* ns: how long one waits */
	uint64_t held_until;
	struct vb_work held_rq;
	_Atomic uint8_t heat; /* 0: it has been idle for long */
	/* it is looked at the more seldom: nothing has come for many looks, and nothing was posted */
	atomic_bool seldom;
	/* under progress + sq_lock */
	bool in_set;
	uint32_t in_vain;           /* looks, since something came */
	bool starving;              /* its input waits for a receive, and the sets are not asked for more of it */
	bool fin;                   /* … and will be the last */
	uint64_t look_at, patience; /* ns: when to see whether it still is connected; when it ends */
	/* under progress */
	struct vb_iwarp_path *next, **prev;
	struct vb_iwarp_path *starved_next, **starved_prev;

	struct vb_iwarp_tail *tail;
	uint8_t *memory; /* stage, then out */
	struct vb_work_sent sends[];
};

/* All of a process. */
struct vb_iwarp_host {
	int epoll_fd;                          /* a set that stands in the progress thread's while that has the duty */
	struct vb_iwarp_path *paths, *starved; /* under progress */
	unsigned n;
	uint32_t turn;            /* under progress: polls */
	char congestion[16];      /* VERBENA_CONGESTION; empty: not set */
	_Atomic uint64_t trim_at; /* ns: when to look for idle ones; 0: all are */
};

/* Counts of the streams that have ended. */
extern struct vb_iw_stats vb_iw_totals;

/* --- host.c --- */

#define VB_IWARP_FEW 8u /* streams up to this are looked at one by one: a system call each */

struct vb_iwarp_host *vb_iwarp_host_new(struct vb_node *node); /* NULL without memory or descriptors */
void vb_iwarp_host_free(struct vb_node *node);
void vb_iwarp_in_child(struct vb_node *node);
/* Who looks at the sockets: with watch, the progress thread is woken by them; without, somebody polls. Under
 * progress. */
void vb_iwarp_watch(struct vb_node *node, bool watch);
/* The set is asked for what is of interest now. Under sq_lock. */
void vb_iwarp_rewatch(struct vb_iwarp_path *w);
/* Under progress, no queue pair's lock held. */
void vb_iwarp_host_join(struct vb_iwarp_path *w);
/* Under progress + sq_lock. */
void vb_iwarp_host_leave(struct vb_iwarp_path *w);

/* --- path.c --- */

/* Takes what has come, sends what could not go. Under progress. Returns work done. wait: as with vb_local_visit. */
unsigned vb_iwarp_poll(struct vb_node *node, bool wait);
/* The program ends without a word: what it has said shall arrive. First the one, then vb_iwarp_tails_wait, then the
 * other. Under progress. */
void vb_iwarp_last_words(struct vb_node *node);
void vb_iwarp_last_ends(struct vb_node *node);
/* --- starve.c --- */

/* Follows what the engine says of starvation, after input. Under progress + sq_lock. */
void vb_iwarp_starve(struct vb_iwarp_path *w);
/* A starved one is looked at: is there a receive, is its peer still there, has it waited too long? thorough: at the
 * connection, too, whatever the time. Under progress + sq_lock. Returns work done. */
unsigned vb_iwarp_feed(struct vb_iwarp_path *w, bool thorough);
/* It ends. Under progress + sq_lock. */
void vb_iwarp_unstarve(struct vb_iwarp_path *w);
/* ns: when the progress thread is to look again; 0: never. Under progress. */
uint64_t vb_iwarp_due(struct vb_node *node);
/* It was used. Under sq_lock. */
void vb_iwarp_heat(struct vb_iwarp_path *w);
/* Now and then: memory of idle streams goes back. No lock held. */
void vb_iwarp_trim(struct vb_node *node);

/* --- ops.c --- */

extern const struct vb_iw_ops vb_iwarp_ops;
/* The completion that waits does not any longer. Under sq_lock. */
void vb_iwarp_release(struct vb_iwarp_path *w);
void vb_iwarp_release_all(struct vb_node *node); /* under progress */

/* --- socket.c --- */

void vb_iwarp_prepare_socket(int fd, const char *congestion);

/* --- tail.c: the end of a stream. All is allocated with its beginning --- */

/* Takes the descriptor, unless there is no memory: NULL. */
struct vb_iwarp_tail *vb_iwarp_tail_new(struct vb_node *node, const struct vb_iwarp_stream *s);
/* There was no stream after all: the descriptor is the caller's again. */
void vb_iwarp_tail_drop(struct vb_iwarp_tail *t);
/* The queue pair has left. rest (malloc'd, or NULL) is still to be sent. Any lock may be held. */
void vb_iwarp_tail_end(struct vb_iwarp_tail *t, int status, uint8_t *rest, size_t len);
/* Tells of ends, sees to what lingers; when it wants to be called again (0: never). Adapter thread, no lock held. */
void vb_iwarp_tails(struct vb_node *node);
uint64_t vb_iwarp_tails_at(void);
/* Until the peers of all streams have what was sent, or for half a second. No lock held. */
void vb_iwarp_tails_wait(struct vb_node *node);
/* The node ends, its progress thread has. */
void vb_iwarp_tails_free(struct vb_node *node);
void vb_iwarp_tails_in_child(void);

#endif
