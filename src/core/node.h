// node.h - the process on its host: its segment, its peers, and the functions that core/ needs of the layers above it
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_NODE_H
#define VB_CORE_NODE_H

#include "core/path.h"

struct vb_keys;

enum vb_owner { VB_OWNER_THREAD, VB_OWNER_POLLER };

/* One per process, alive while a context is open. Made by vb_node_get(), node/node.c. */
struct vb_node {
	void *seg; /* our segment, writable */
	struct vb_seg_header *hdr;
	struct vb_doorbell *doorbell; /* our doorbell page */
	uint32_t lane;
	uint64_t incarnation;
	bool membarrier; /* asymmetric fences work here */

	/* the receiving side: rings, responders, requesters' answers, timers, the lists below */
	struct vb_lock progress;
	struct vb_qp *_Atomic *qps; /* by VB_QP_INDEX, VB_LANE_QPS entries; written under progress */
	struct vb_peer *_Atomic
	        *peers;     /* by lane, VB_LANES entries; never freed while the node lives, see peer->state */
	struct vb_qp *acks; /* responders whose acknowledgement is not published yet (acks_next) */
	struct vb_qp
	        *active; /* QPs with unfinished work, or with some until lately: visited by the owner of progress */
	struct vb_qp *_Atomic active_new; /* pushed by senders, moved to active by the owner of progress */
	struct vb_qp *active_cursor;

	_Atomic uint32_t owner;       /* enum vb_owner: who makes progress */
	atomic_bool overrun;          /* a CQ lost a completion, and its queue pairs have not been ended yet */
	_Atomic uint32_t polls;       /* counts calls that looked for work; the progress thread watches it */
	_Atomic uint32_t idle_polls;  /* calls since the last ibv_req_notify_cq, or since progress changed its owner */
	_Atomic uint32_t empty_polls; /* consecutive ones that found nothing, since the last sched_yield */
	_Atomic uint32_t yield_every; /* empty polls until the next sched_yield */
	_Atomic uint64_t yield_after; /* and not before this time (ns); 0: at any time */
	atomic_uint held; /* completions that are held for a moment, or until a thread sleeps: path/iwarp/path.c */
	/* ns: when the progress thread wakes for a timer; UINT64_MAX: unknown, or never */
	_Atomic uint64_t sleep_until;
	struct vb_io *io; /* the part of node/: threads, descriptors, broker */

	struct vb_mcast *mcasts; /* under progress */
	unsigned mcast_count;

	pthread_mutex_t ctx_lock;
	struct vb_context *contexts; /* under ctx_lock */
	pthread_mutex_t mr_lock;     /* keys, and the key table in the segment */
	struct vb_keys *keys;
	uint32_t mr_count;
	uint32_t qp_next, qp_count, qp_entries; /* under progress. qp_entries: entries that have a number */
	uint64_t qp_key[2];                     /* random: gives QP numbers a secret order */
	atomic_uint pd_next, pd_count, cq_count, srq_count, srq_next, ah_count;
};

/* --- implemented in node/, path/ and engine/; core/ calls them --- */

/* Returns the process's node in *out. The first call starts it (segment, progress thread, broker). 0 or errno. */
int vb_node_get(struct vb_node **out);
/* Releases the node. The last call stops the progress thread and leaves the broker. */
void vb_node_put(struct vb_node *node);

/* Makes progress once, unless another thread is doing so: receives, acknowledges, retires. Returns the amount of
 * work. Stops early when cq (may be NULL) holds `want` completions. */
unsigned vb_progress(struct vb_node *node, struct vb_cq *cq, unsigned want);
/* Makes the progress thread the owner of progress, because the program is going to wait for events. Any thread, no
 * lock held. */
void vb_progress_handover(struct vb_node *node);

/* Gives a new QP the same-host path. No other thread knows the QP yet. */
void vb_path_new(struct vb_qp *qp);
/* Finds the path at RTR. For RC and UC it leads to the process of attr.dest_qp_num at ah_attr.grh.dgid, or to the
 * network if no process of this host has that number. UD gets its network part. Waits a bounded time. Never fails: a
 * peer that does not exist yet is looked for again when there is something to send. No lock held. */
void vb_path_connect(struct vb_qp *qp);
/* Called when an address handle is made: finds out whether the address is this host's, because a send must not wait
 * for that. No lock held. */
void vb_path_address(struct vb_node *node, const union ibv_gid *dgid);
/* The next four are as in struct vb_path_ops, under the same locks. */
void vb_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
bool vb_path_idle(const struct vb_qp *qp);
void vb_path_abort(struct vb_qp *qp);
void vb_path_closed(struct vb_qp *qp);
/* Forgets peer, link, timers, list membership, ring state. Under progress + sq_lock. */
void vb_path_reset(struct vb_qp *qp);
/* Called before the program takes the QP to ERR. Requests that the peer has executed complete with success first,
 * acknowledged or not: the peer's program may have told the program by other means that all is done. No lock held. */
void vb_path_closing(struct vb_qp *qp);
/* Retires completed requests in order, and handles failures (QP to ERR or SQE). No lock held. */
void vb_path_settle(struct vb_qp *qp);
/* Returns when no process is copying with this key (or to this QP number). The key (QP) must be marked invalid
 * before. 0 as key or qpn: any. No lock held except control mutexes. */
void vb_quiesce(struct vb_node *node, uint32_t key, uint32_t qpn);
/* A full fence for all threads of all peers: the slow side that allows the fast side to do without fences. */
void vb_fence_all(struct vb_node *node);
/* Called when a deadline was set: the progress thread, if it owns progress, reads its timers again. Any lock may be
 * held. */
void vb_timer_armed(struct vb_node *node);
/* The same for a known deadline: the progress thread is not woken if it wakes earlier by itself. */
void vb_timer_at(struct vb_node *node, uint64_t at);
/* Makes RoCE usable for this process, or requests it. 0 or an errno. No lock held. */
int vb_roce_ready(struct vb_node *node);
/* This process joins or leaves a multicast group. Under progress. 0 or an errno. */
int vb_roce_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join);
/* Processes a packet that another process received for this one. Under progress. */
void vb_roce_forwarded(struct vb_node *node, const uint8_t *record, uint32_t length);
/* CLOCK_MONOTONIC, ns. */
uint64_t vb_now(void);

/* --- implemented in core/; engine/, path/ and node/ call them --- */

/* Appends a completion, and signals the channel if the CQ is armed. solicited: counts for solicited-only arming
 * (errors always do). If the CQ is full, the entry is dropped, IBV_EVENT_CQ_ERR is raised once, and node->overrun is
 * set. Any thread; takes cq->lock. */
void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe, bool solicited);
/* Takes the QP to ERR: sets state and shared state, then completes every outstanding send and receive of its own
 * queues with IBV_WC_WR_FLUSH_ERR, in order. Raises IBV_EVENT_QP_LAST_WQE_REACHED if it has an SRQ. Under progress +
 * sq_lock. Idempotent. */
void vb_qp_error(struct vb_qp *qp);
/* Takes the queue pairs of overrun CQs to ERR, each with IBV_EVENT_QP_FATAL. Under progress, no sq_lock. */
void vb_qp_end_overrun(struct vb_node *node);
/* UC, UD: takes the QP to IBV_QPS_SQE and flushes outstanding sends. Under progress + sq_lock. */
void vb_qp_sq_error(struct vb_qp *qp);
/* Queues an asynchronous event on the context; element as ibv_async_event's union wants it (qp, cq, srq, or port). */
void vb_async_raise(struct vb_context *ctx, enum ibv_event_type type, void *element);
/* In SQD: raises IBV_EVENT_SQ_DRAINED when nothing is outstanding, if the program asked for it. Under sq_lock. */
void vb_qp_check_drained(struct vb_qp *qp);
/* Raises IBV_EVENT_SRQ_LIMIT_REACHED if the queue fell below the armed limit. Under progress. */
void vb_srq_check_limit(struct vb_srq *srq);

#endif
