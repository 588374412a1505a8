// node.h - the process as a member of its host: its segment, its peers, and what core/ asks of the layers above it
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

	struct vb_lock progress;    /* the receiving side: rings, responders, completers, timers, lists below */
	struct vb_qp *_Atomic *qps; /* by VB_QP_INDEX, VB_LANE_QPS entries; written under progress */
	struct vb_peer *_Atomic
	        *peers;       /* by lane, VB_LANES entries; never freed while the node lives, see peer->state */
	struct vb_qp *acks;   /* responders whose acknowledgement is not published yet (acks_next) */
	struct vb_qp *active; /* QPs with something unfinished, or lately so: the completer visits them */
	struct vb_qp *_Atomic active_new; /* pushed by senders, taken in by the completer */
	struct vb_qp *active_cursor;

	_Atomic uint32_t owner;       /* enum vb_owner: who makes progress */
	atomic_bool overrun;          /* a CQ lost a completion, and its queue pairs have not been ended yet */
	_Atomic uint32_t polls;       /* counts calls that looked for work; the progress thread watches it */
	_Atomic uint32_t idle_polls;  /* calls since the last ibv_req_notify_cq, or since the duty changed */
	_Atomic uint32_t empty_polls; /* consecutive ones that found nothing, since the last sched_yield */
	_Atomic uint32_t yield_every; /* how many of these until the next */
	_Atomic uint64_t yield_after; /* and not before; 0: whenever */
	atomic_uint held; /* completions that wait for a moment, or for who goes to sleep: path/iwarp/path.c */
	_Atomic uint64_t
	        sleep_until; /* ns: the progress thread looks at the clock then; UINT64_MAX: unknown, or never */
	struct vb_io *io;    /* io/'s own part: threads, descriptors, broker */

	struct vb_mcast *mcasts; /* under progress */
	unsigned mcast_count;

	pthread_mutex_t ctx_lock;
	struct vb_context *contexts; /* under ctx_lock */
	pthread_mutex_t mr_lock;     /* keys, and the key table in the segment */
	struct vb_keys *keys;
	uint32_t mr_count;
	uint32_t qp_next, qp_count, qp_entries; /* under progress. entries: that a number has been given */
	uint64_t qp_key[2];                     /* random: by it their numbers are in an order that nobody else knows */
	atomic_uint pd_next, pd_count, cq_count, srq_count, srq_next, ah_count;
};

/* --- implemented in io/ and engine/; core/ calls them --- */

/* The process's node, started (segment, progress thread, broker) by the first call. 0 or errno. */
int vb_node_get(struct vb_node **out);
/* The counterpart. The last one stops the progress thread and leaves the broker. */
void vb_node_put(struct vb_node *node);

/* Looks for work once, if no other thread is at it: receives, acknowledges, retires. Returns how much was done.
 * want: stop early when cq (may be NULL) holds that many completions. */
unsigned vb_progress(struct vb_node *node, struct vb_cq *cq, unsigned want);
/* The program is going to wait for events: the progress thread takes over. Any thread, no lock held. */
void vb_progress_handover(struct vb_node *node);

/* The QP begins on the path of the same host. Nobody else has it yet. */
void vb_path_new(struct vb_qp *qp);
/* Finds the path at RTR: for RC and UC to the process behind attr.dest_qp_num / ah_attr.grh.dgid, or the network where no
 * process of this host is; UD gets its part of the network. Waits a bounded time. Never fails: a peer that is not there
 * yet is looked for again when something is to be sent. No lock held. */
void vb_path_connect(struct vb_qp *qp);
/* An address handle with this address is made: whether it is ours is found out now, because a send must not wait for
 * that. No lock held. */
void vb_path_address(struct vb_node *node, const union ibv_gid *dgid);
/* The next four as in struct vb_path_ops, under the same locks. */
void vb_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
bool vb_path_idle(const struct vb_qp *qp);
void vb_path_abort(struct vb_qp *qp);
void vb_path_closed(struct vb_qp *qp);
/* Forgets peer, link, timers, list membership, ring state. Under progress + sq_lock. */
void vb_path_reset(struct vb_qp *qp);
/* The program is about to take the QP to ERR: what the peer has executed by now completes with success first, whether it has
 * said so or not; it may have said by another way that all is done. No lock held. */
void vb_path_closing(struct vb_qp *qp);
/* Retires what has completed, in order, and acts upon failures (QP to ERR or SQE). No lock held. */
void vb_path_settle(struct vb_qp *qp);
/* Returns when no copy by any process that uses this key (or: into this QP number) is under way. The key (QP) must be
 * marked invalid before. key or qpn 0: any. No lock held but control mutexes. */
void vb_quiesce(struct vb_node *node, uint32_t key, uint32_t qpn);
/* Our stores become visible to all, theirs to us: the slow side of the fences that the fast side leaves out. */
void vb_fence_all(struct vb_node *node);
/* A deadline was set: the progress thread, if it has the duty, looks at the clock anew. Any lock may be held. */
void vb_timer_armed(struct vb_node *node);
/* The same, where the deadline is this: it is left alone if it wakes before. */
void vb_timer_at(struct vb_node *node, uint64_t at);
/* The network can be used, or has been asked for: 0 or an errno. No lock held. */
int vb_roce_ready(struct vb_node *node);
/* This process joins or leaves a group. Under progress. 0 or an errno. */
int vb_roce_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join);
/* A packet that another program got for us. Under progress. */
void vb_roce_forwarded(struct vb_node *node, const uint8_t *record, uint32_t length);
/* CLOCK_MONOTONIC, ns. */
uint64_t vb_now(void);

/* --- implemented in core/; engine/ and io/ call them --- */

/* Appends a completion; rings the channel if armed. solicited: counts for solicited-only arming (errors always do).
 * Overrun: the entry is dropped, IBV_EVENT_CQ_ERR raised once, node->overrun set. Any thread; takes cq->lock. */
void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe, bool solicited);
/* Puts the QP into ERR: state, shared state, then every outstanding send and receive of its own queues completes with
 * IBV_WC_WR_FLUSH_ERR, in order; IBV_EVENT_QP_LAST_WQE_REACHED if it has an SRQ. Under progress + sq_lock. Idempotent.*/
void vb_qp_error(struct vb_qp *qp);
/* Ends the queue pairs of those CQs that overran, each with IBV_EVENT_QP_FATAL. Under progress, no sq_lock. */
void vb_qp_end_overrun(struct vb_node *node);
/* UC, UD: IBV_QPS_SQE, outstanding sends flushed. Under progress + sq_lock. */
void vb_qp_sq_error(struct vb_qp *qp);
/* Queues an asynchronous event on the context; element as ibv_async_event's union wants it (qp, cq, srq, or port). */
void vb_async_raise(struct vb_context *ctx, enum ibv_event_type type, void *element);
/* In SQD: raises IBV_EVENT_SQ_DRAINED once nothing is outstanding, where it was asked for. Under sq_lock. */
void vb_qp_check_drained(struct vb_qp *qp);
/* Raises IBV_EVENT_SRQ_LIMIT_REACHED if the queue fell below the armed limit. Under progress. */
void vb_srq_check_limit(struct vb_srq *srq);

#endif
