// node.h - the process on its host: its segment, its peers, and the functions of the layers above that core/ calls
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_NODE_H
#define VB_CORE_NODE_H

#include "core/path.h"

struct vb_keys;
struct vb_xrc;

enum vb_owner { VB_OWNER_THREAD, VB_OWNER_POLLER };

enum {
	VB_ATTEND_OVERRUN = 1, /* a CQ lost a completion, and its queue pairs are not in ERR yet */
	VB_ATTEND_WINDOWS = 4, /* bindings of memory windows have ended: core/mw.h */
	VB_ATTEND_TAGS = 8,    /* rendezvous of tag matching are to be posted: core/tm.h */
	VB_ATTEND_WALK = 2,    /* the progress thread wants to look at queue pairs: node/walk.c */
};

/* More polls than a poller makes before it yields. */
#define VB_YIELD_NOW (UINT32_MAX / 2)

/* One per process, alive while a context is open. Made by vb_node_get(), node/node.c. */
struct vb_node {
	void *seg; /* our segment, writable */
	struct vb_seg_header *hdr;
	struct vb_doorbell *doorbell; /* our doorbell page */
	uint32_t lane;
	uint64_t incarnation;
	bool membarrier; /* membarrier(2) works here, so fast paths need no fences */

	/* guards the receiving side: rings, responders, answers for requesters, timers, the lists below */
	struct vb_lock progress;
	struct vb_qp *_Atomic *qps; /* by VB_QP_INDEX, VB_LANE_QPS entries; written under progress */
	struct vb_peer *_Atomic
	        *peers;       /* by lane, VB_LANE_COUNT entries; never freed while the node lives, see peer->state */
	struct vb_qp *acks;   /* responders whose acknowledgement is not published yet (acks_next) */
	struct vb_qp *active; /* QPs with unfinished or recent work, which the owner of progress visits */
	struct vb_qp *_Atomic active_new; /* pushed by senders, moved to active by the owner of progress */
	struct vb_qp *active_cursor;

	_Atomic uint32_t owner;       /* enum vb_owner: the owner of progress */
	_Atomic uint8_t attention;    /* VB_ATTEND_*: what the owner of progress must do soon */
	_Atomic uint32_t polls;       /* counts polls for work; the progress thread watches it */
	_Atomic uint32_t idle_polls;  /* polls since the last ibv_req_notify_cq, or since progress changed its owner */
	_Atomic uint32_t empty_polls; /* consecutive polls without work since the last sched_yield, or VB_YIELD_NOW */
	_Atomic uint32_t yield_every; /* empty polls until the next sched_yield */
	_Atomic uint64_t yield_after; /* no sched_yield before this time (ns); 0: at any time */
	atomic_bool crowded;          /* another thread ran on the poller's core at its last sched_yield */
	_Atomic uint64_t nap_after;   /* no nap before this time (ns) */
	_Atomic uint32_t naps;        /* consecutive naps without work between them */
	atomic_uint
	        held_completions; /* completions that are held back for a moment, or until a thread sleeps: path/iwarp/path.c */
	/* ns: when the progress thread wakes for a timer; UINT64_MAX: unknown, or never */
	_Atomic uint64_t sleep_until;
	/* on a fabric: no message has been counted lately, and the progress thread may not look for more: the first one that is counted
	 * clears this, and wakes it (path/ib/traffic.c) */
	atomic_bool traffic_rests;
	/* another process, or a queue pair of this one, may write records for this process */
	atomic_bool has_peers;
	struct vb_io *io; /* node/'s part: threads, descriptors, broker */

	pthread_mutex_t mcast_lock; /* joining and leaving */
	struct vb_flow *flows;      /* in order of their rank; under progress, as their number and the next */
	struct vb_flow_counters *counters;
	unsigned flow_count;
	struct vb_wq *wqs; /* work queues; under progress, as the next two */
	uint32_t wq_next, wq_count;
	atomic_uint rwq_table_count;
	struct vb_mcast *mcasts; /* read under mcast_lock or progress, changed under both */
	unsigned mcast_groups;   /* that this process has joined; under mcast_lock */

	pthread_mutex_t ctx_lock;
	struct vb_context *contexts;  /* under ctx_lock */
	struct vb_share *shares;      /* the files behind descriptors of contexts; under ctx_lock */
	struct vb_cq *cqs, **cqs_end; /* in order of their handles; under ctx_lock */
	struct vb_cq *moderated;      /* those whose events are moderated; under ctx_lock */
	_Atomic uint64_t moderate_at; /* ns: when the first of their events is due; 0: never */
	struct vb_tm *tms;            /* SRQs of tag matching; under progress */
	atomic_bool relay_work;       /* vb_relays_work has something to do */
	struct vb_relay_ask *asks;    /* what other processes ask for: path/local/guest.c; under progress */
	atomic_bool guests_end;       /* the progress thread is ending guests. Set under ctx_lock */
	struct vb_xrc *xrc;           /* XRC domains and SRQs; NULL before the first. Set under ctx_lock */
	struct vb_pd *pds, **pds_end; /* the same */
	pthread_mutex_t mr_lock;      /* keys, and the key table in the segment */
	struct vb_keys *keys;
	uint32_t mr_count, mw_count;  /* under mr_lock */
	struct vb_lock mw_lock;       /* windows and their entries of the key table; the next two */
	uint32_t mw_fading;           /* the entry + 1 of the first window whose last binding has just ended */
	_Atomic uintptr_t mw_settler; /* the thread (vb_self) that is in vb_mw_settle, under progress; or 0 */
	struct vb_qp *mw_waiters;     /* QPs whose next request waits for the end of a binding (mw_next) */
	struct vb_dm_memory *dms;     /* under mr_lock */
	uint32_t qp_next, qp_count, qp_entries; /* under progress. qp_entries: entries that a QP number uses */
	uint64_t qp_key[2];                     /* random: makes the order of QP numbers secret */
	atomic_uint pd_next, pd_count, cq_count, cntr_count, srq_count, srq_next, ah_count, dm_next;
};

/* --- implemented in node/, path/ and engine/; core/ calls them --- */

/* Returns the process's node in *out. The first call starts it (segment, progress thread, broker). 0 or errno. */
int vb_node_get(struct vb_node **out);
/* Releases the node. The last call stops the progress thread and disconnects from the broker. */
void vb_node_put(struct vb_node *node);

/* Calls each() for every queue pair of the process, under its sq_lock. Under progress. */
void vb_node_each_qp(struct vb_node *node, void (*each)(struct vb_qp *qp, void *arg), void *arg);

/* Makes progress once, unless another thread is doing so: receives, acknowledges, retires. Returns the amount of
 * work. Stops early when cq (may be NULL) contains `want` completions. */
unsigned vb_progress(struct vb_node *node, struct vb_cq *cq, unsigned want);
/* The same, but waits for the other thread. No spin lock held. */
unsigned vb_progress_surely(struct vb_node *node);
/* Makes the progress thread the owner of progress, because the program is going to wait for events. Any thread, no
 * lock held. */
void vb_progress_handover(struct vb_node *node);

/* The QP has no path: it gets the operations of the same-host path, which send nothing without a peer. Under progress +
 * sq_lock, or no other thread knows the QP yet. */
void vb_path_none(struct vb_qp *qp);
/* Finds the path at RTR. For RC and UC this is the process of this host with attr.dest_qp_num at ah_attr.grh.dgid, or
 * the network if there is no such process. UD gets its network part. Waits a bounded time. Never fails: if the peer
 * does not exist yet, path resolution is retried. No lock held. */
void vb_path_connect(struct vb_qp *qp);
/* Maps the region with this handle of another process here, if it is shared memory. pd is its domain's handle there.
 * Fills *map, which vb_region_unmap takes, and *key. 0, or an errno value: EOPNOTSUPP (not shared memory), ENOENT (no such
 * region or process), EACCES (of another user). Waits a bounded time. No lock held. path/local/import.c */
int vb_region_import(struct vb_node *node, const struct vb_share *share, struct vb_device *dev, uint32_t handle,
                     uint32_t pd, struct vb_region_map **map);
void vb_region_unmap(struct vb_region_map *map);
/* Called when an address handle is made: finds out whether the address belongs to this host, because a send must not
 * wait for that. On a fabric it asks for the way, and waits a bounded time. No lock held. */
void vb_path_ah_made(struct vb_ah *ah);
/* Called when it is destroyed. No lock held. */
void vb_path_ah_ends(struct vb_ah *ah);
/* In SQD the address or the P_Key of the QP has changed. No lock held. */
void vb_path_moved(struct vb_qp *qp);
/* qp->rate has changed: requests leave accordingly. Under progress + sq_lock. */
void vb_path_limit(struct vb_qp *qp);
/* The next four are as in struct vb_path_ops, under the same locks. */
void vb_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
bool vb_path_idle(const struct vb_qp *qp);
void vb_path_abort(struct vb_qp *qp);
void vb_path_closed(struct vb_qp *qp);
/* Forgets peer, link, timers, list membership, ring state. Under progress + sq_lock. */
void vb_path_reset(struct vb_qp *qp);
/* Called before the program takes the QP to ERR. First completes the requests that the peer has executed, acknowledged
 * or not, with success: the program may know from the peer that they are done. No lock held. */
void vb_path_closing(struct vb_qp *qp);
/* Retires completed requests in order, and handles failures (QP to ERR or SQE). No lock held. */
void vb_path_settle(struct vb_qp *qp);
/* Returns when no process is copying with this key (or to this QP number). The key (QP) must be marked invalid
 * before. 0 as key or qpn: any. No lock held except control mutexes. */
void vb_quiesce(struct vb_node *node, uint32_t key, uint32_t qpn);
/* Is a process copying with this key? The key must be marked invalid before. *grace is 0 at the first call, and belongs
 * to this wait. Does not wait; any lock may be held. */
bool vb_copies_stand(struct vb_node *node, uint32_t key, uint64_t *grace);
/* A full fence in all threads of all peers: the slow side of an asymmetric fence. */
void vb_fence_all(struct vb_node *node);
/* Called before another process, or this process itself, becomes known as a peer. From then on it may write records for this
 * process, whose progress thread needs vb_fence_all before it sleeps. Any lock may be held. */
void vb_expect_records(struct vb_node *node);
/* Called when a deadline was set, so that the progress thread, if it owns progress, reads its timers again. Any lock
 * may be held. */
void vb_timer_armed(struct vb_node *node);
/* The same for a known deadline: does not wake the progress thread if that wakes earlier anyway. */
void vb_timer_at(struct vb_node *node, uint64_t at);
/* Asks the broker for this process's RoCE lane if needed, and waits a bounded time. 0 or an errno. No lock held. */
int vb_roce_request_lane(struct vb_node *node);
/* This process joins or leaves a multicast group. Under mcast_lock, no spin lock held. 0 or an errno. */
int vb_roce_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join);
/* An interface is deleted: this process leaves its groups there, although queue pairs are still attached. No spin lock
 * held. */
void vb_roce_interface_gone(struct vb_node *node, uint32_t ifindex);
/* A queue pair of this process is attached to a multicast group of a fabric, or detached. No lock held. 0 or an errno: ENOMEM
 * (too many groups), EAGAIN (the fabric process is stopped). */
int vb_ib_membership(struct vb_node *node, const union ibv_gid *group, uint16_t mlid, bool attach);
/* A raw packet queue pair is made: gets a packet socket. EPERM without the right to one, EOPNOTSUPP on an interface
 * without Ethernet frames. Its end frees what it has. No lock held. */
int vb_raw_open(struct vb_qp *qp);
void vb_raw_close(struct vb_qp *qp);
/* The rules of a queue pair have changed: its socket receives what they want. 0 or an errno. No spin lock held. */
int vb_raw_flows_changed(struct vb_qp *qp);
/* A request to the target names an SRQ of another process. NONE: there is no such process. Under progress. path/local/relay.c,
 * as the next four. */
enum vb_xrc_place vb_relay_place(struct vb_qp *qp, uint32_t srqn);
/* May a request be executed in this process now, or is one before it still being executed in another one? Under progress. */
bool vb_relay_allows(struct vb_qp *qp);
/* The target ends, or begins anew. Under progress + sq_lock. */
void vb_relay_reset(struct vb_qp *qp);
void vb_relay_free(struct vb_qp *qp);
/* Makes what targets need to pass requests on, and the guests that other processes ask for. Progress thread, no lock
 * held. */
void vb_relays_work(struct vb_node *node);
struct stat;
/* Opens the XRC domain of a file, which this process has not open, among all processes of the user. EINVAL: with O_EXCL,
 * and another process has it open. EAGAIN: without O_CREAT, and nobody has. *lock: a descriptor to close with the domain,
 * or -1. It waits a bounded time for others that look, too. node/xrc_files.c. No lock held. */
int vb_xrc_file_open(const char *device, const struct stat *st, int oflags, int *lock);
struct vb_xrc_id;
/*
 * Handles of the XRC targets of other processes (node/xrc_opener.c), and what makes this process's targets known to them
 * (node/xrc_owner.c). The functions wait a bounded time for the other process, and return 0 or errno. No lock held.
 */
struct vb_xrc_far_ops {
	/* A target was made in a domain of a file. */
	void (*offer)(struct vb_node *node);
	/* Opens the target with the handle's number in this domain. EINVAL: there is none. */
	int (*open)(struct vb_qp *handle, const struct vb_xrc_id *id);
	int (*modify)(struct vb_qp *handle, const struct ibv_qp_attr *attr, int mask);
	int (*query)(struct vb_qp *handle, struct ibv_qp_attr *attr);
	void (*close)(struct vb_qp *handle);
};
extern const struct vb_xrc_far_ops vb_xrc_far_ops;
/* Processes a packet that another process received for this one. Under progress. */
void vb_roce_take_forwarded(struct vb_node *node, const uint8_t *record, uint32_t length);
/* CLOCK_MONOTONIC, ns. */
uint64_t vb_now(void);

/* A context was opened: rules of fault injection may say that its port is down. */
void vb_faults_opened(void);

/* --- implemented in core/; engine/, path/ and node/ call them --- */

/* Appends a completion, and signals the channel if the CQ is armed. solicited: the completion is solicited; errors
 * always are. If the CQ is full, the entry is dropped, IBV_EVENT_CQ_ERR is raised once, and VB_ATTEND_OVERRUN is set. Any
 * thread; takes cq->lock. */
void vb_cq_push(struct vb_cq *cq, const struct vb_cqe *cqe, bool solicited);
/* Raises the moderated completion events that are due. Progress thread, no lock held. */
void vb_cq_raise_due(struct vb_node *node);
/* The queue loses a completion, as if it were full. Any thread; takes cq->lock. */
void vb_cq_overflow(struct vb_cq *cq);
/* Takes the QP to ERR: sets state and shared state, then completes every outstanding send and receive of its own
 * queues with IBV_WC_WR_FLUSH_ERR, in order. Raises IBV_EVENT_QP_LAST_WQE_REACHED if it has an SRQ. Under progress +
 * sq_lock. Idempotent. */
void vb_qp_error(struct vb_qp *qp);
/* Takes the queue pair with this number to ERR, if there is one; fatal: with IBV_EVENT_QP_FATAL. No lock held. */
void vb_qp_end(struct vb_node *node, uint32_t qpn, bool fatal);
/* Takes the queue pairs of overrun CQs to ERR, each with IBV_EVENT_QP_FATAL. Under progress, no sq_lock. */
void vb_qp_end_overrun(struct vb_node *node);
/* UC, UD: takes the QP to IBV_QPS_SQE and flushes outstanding sends. Under progress + sq_lock. */
void vb_qp_sq_error(struct vb_qp *qp);
/* A request is about to complete with an error: shows the state that the error leads to, because a program may query it
 * once it has polled the completion. vb_qp_error or vb_qp_sq_error follows. Under sq_lock. */
void vb_qp_show_error(struct vb_qp *qp);
/* Queues an asynchronous event on the context. element: a member of ibv_async_event's union (qp, cq, srq, or port). */
void vb_async_raise(struct vb_context *ctx, enum ibv_event_type type, void *element);
/* In SQD: raises IBV_EVENT_SQ_DRAINED when nothing is outstanding, if the program asked for it. Under sq_lock. */
void vb_qp_check_drained(struct vb_qp *qp);
/* Raises IBV_EVENT_SRQ_LIMIT_REACHED if the queue fell below the armed limit. Under progress. */
void vb_srq_check_limit(struct vb_srq *srq);

/* Keeps what the adapters have counted, so that it outlives them. Before a context is closed. No lock held.
 * node/stat_devices.c */
void vb_node_tally(struct vb_node *node);

#endif
