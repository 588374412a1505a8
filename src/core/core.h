// core.h - the objects of an adapter: protection domains, regions, queues, queue pairs, and their rings and locks
// follows: IBA volume 1, chapters 10 and 11; ibv_* man pages
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CORE_H
#define VB_CORE_CORE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/counts.h"
#include "core/limits.h"
#include "core/newer.h"
#include "core/rate.h"
#include "core/seg.h"
#include "util/lock.h"

/*
 * enum vb_lock_rank (util/lock.h) is the order of all locks; docs/locking.md says what each guards. No lock is held
 * across a callback into the program or librdmacm. No thread is cancelled while it holds one (util/calls.h).
 */
struct vb_node;
struct vb_peer;
struct vb_device;
struct vb_roce_path;
struct vb_iwarp_path;
struct vb_raw_path;
struct vb_flow;
struct vb_rss;
struct vb_wq;
struct vb_flow_counters;
struct vb_counter_point;
struct vb_dm_memory;
struct vb_tx;
struct vb_share;
struct vb_region_map;
struct vb_xrcd;
struct vb_tm;
struct vb_tag;
struct vb_xrc_domain;
struct vb_xrc_far;
struct vb_cntr;
struct vb_ib_way;
struct vb_ib_sent;

/* Allocated with zeros behind it (context.c), because libmlx5 and others read past it as if it were their own. */
struct vb_context {
	struct verbs_context vctx; /* the program has a pointer to vctx.context */
	struct vb_device *dev;
	struct vb_node *node;
	pthread_mutex_t lock;    /* objects */
	struct vb_context *next; /* in node->contexts, under node->ctx_lock */
	int async_event_fd;      /* the eventfd inside context.async_fd, an epoll descriptor; semaphore mode */
	struct vb_async *async_head, **async_tail;
	pthread_cond_t async_acked;
	atomic_int objects;          /* PDs, TDs, DMs, CQs, channels, XRC objects: they keep a closed context */
	struct vb_share *share;      /* the file behind cmd_fd: core/share.h */
	bool closed;                 /* ibv_close_device was called; under lock */
	bool fault_down, fault_gone; /* what rules of fault injection made of port and device; under node->ctx_lock */
	struct vb_lock async_lock;   /* async queue: of high rank, because events are raised under other spin locks */
};

/* The public part of an object as it was when the object was made (core/handle.h). */
struct vb_made {
	const struct ibv_context *context;
	uint32_t handle;
};
/* The context that an object was made in. A program may overwrite the public part's `context`, which nothing follows. */
#define VB_CONTEXT_OF(object) vb_ctx((struct ibv_context *)(object)->made.context)

#define VB_PD_UNIMPORTED (1 << 30) /* in users: the program has no handle any more; it ends with its last object */

struct vb_pd {
	struct ibv_pd pd;
	struct vb_made made; /* made.handle is unique in the process, never 0 */
	atomic_int
	        users; /* MRs, MWs, QPs, SRQs, AHs, a parent's CQs: ibv_dealloc_pd answers EBUSY while there are any */
	struct vb_pd *parent; /* a parent domain's protection domain, whose id it shares; or NULL */
	struct vb_td *td;     /* a parent domain's thread domain, or NULL */
	/* a parent domain's allocators, or NULL, and their context: core/allocate.h */
	void *(*alloc)(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *context, void *ptr, uint64_t resource_type);
	void *context;
	uint32_t id;                /* made.handle, unless it is another process's */
	uint32_t import_of;         /* the handle that was imported; 0: none */
	struct vb_pd *import_next;  /* share->imported, under node->ctx_lock */
	struct vb_pd *next, **prev; /* the list of protection domains, without parent domains: under node->ctx_lock */
};

struct vb_mr {
	struct ibv_mr mr; /* lkey == rkey */
	struct vb_made made;
	struct vb_pd *pd;
	uint64_t iova;
	uint32_t access, key; /* IBV_ACCESS_*, VB_MR_* */
	struct vb_mr_shared *shared;
	struct vb_mr *origin;      /* the region of which this is an import (core/import.c), or NULL */
	unsigned imports;          /* of an origin; under node->mr_lock, as the next two */
	bool released;             /* the program has no handle of it any more, but imports */
	bool ended;                /* it was deregistered, by this handle or by an import */
	struct vb_region_map *map; /* memory of another process that is mapped here for it, or NULL */
	uint64_t start;            /* the address of iova in this process */
	struct vb_dm_memory *dm;   /* its device memory, or NULL */
	struct vb_dmah *dmah;      /* its DMA handle, or NULL */
	void *dmabuf;              /* its dma-buf, mapped, or NULL */
	size_t dmabuf_len;
};

struct vb_mw {
	struct ibv_mw mw;
	struct vb_made made;
};

struct vb_ah {
	struct ibv_ah ah;
	struct ibv_ah_attr attr;
	union ibv_gid sgid;    /* the GID at sgid_index when the handle was made */
	union ibv_gid met;     /* the address by which the broker finds the receiver, unless `way` has it */
	struct vb_ib_way *way; /* on a fabric: the way to the receiver; else NULL. Constant */
	_Atomic uint32_t turn; /* way->turn when last_peer was found */
	/* lane << 40 | ms: until this time the broker is not asked for a program of this lane, because there was
	 * none */
	_Atomic uint64_t far;
	struct vb_made made;
	_Atomic(struct vb_peer *)
	        last_peer; /* the receiver of the last datagram: a cache, checked against the QP number's lane */
};

struct vb_channel {
	struct ibv_comp_channel ch; /* ch.fd is an epoll descriptor that holds event_fd */
	struct vb_made made;        /* no handle */
	int event_fd;               /* semaphore eventfd: one unit per queued event */
	struct vb_lock lock;        /* queue */
	struct vb_cq *head, *tail;  /* CQs with events not yet taken, linked by ch_next */
};

/* A completion in the queue. Its request keeps its slot until the completion leaves the queue. The opcode determines
 * whether that is a slot of the send queue or of the receive queue. */
struct vb_cqe {
	struct ibv_wc wc;
	uint64_t timestamp; /* CLOCK_MONOTONIC, ns; 0 if the CQ has no timestamps */
	union {
		struct vb_swqe *send;
		struct vb_rq *receive;
		uint64_t tag; /* of a message that a tagged receive took (IBV_WC_TM_MATCH): it has no slot */
	};
};
_Static_assert(sizeof(struct vb_cqe) == 64, "one line");

/* Moderation of a CQ's events: core/cq_moderate.c. Under the CQ's lock. */
struct vb_moderation {
	uint32_t count;             /* completions per event; 0: it is not moderated */
	uint32_t seen;              /* completions that wait for an event */
	uint64_t period;            /* ns: how long the first of them waits at most */
	uint64_t due;               /* ns: when their event is due; 0: none waits */
	struct vb_cq *next, **prev; /* node->moderated, under node->ctx_lock */
};

struct vb_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	struct vb_node *node;
	struct vb_made made;
	struct vb_lock lock;   /* ring, arm */
	uint32_t mask;         /* slots - 1; slots is a power of two */
	_Atomic uint32_t head; /* next to poll */
	_Atomic uint32_t tail; /* next to fill */
	_Atomic uint32_t seen; /* tail when a poll last found work, or a poller last had to yield */
	uint32_t capacity;     /* slots; equal to cq.cqe */
	struct vb_cqe *ring;
	void *theirs;     /* the ring, if the program has allocated it */
	atomic_int armed; /* 0, 1: next solicited, 2: next of any kind */
	/* a completion was lost: IBV_EVENT_CQ_ERR was raised, and no completions are added. Written under lock */
	atomic_bool overrun;
	bool is_ex, single_threaded, want_timestamp;
	struct vb_channel *channel;
	struct vb_pd *domain;          /* the parent domain that it was made in, or NULL */
	struct vb_cq *ch_next;         /* under channel->lock */
	uint32_t ch_pending;           /* events queued in the channel, under channel->lock */
	_Atomic uint32_t events_taken; /* written under channel->lock */
	uint32_t events_acked;         /* under ack_lock */
	_Atomic uint32_t async_taken;  /* written under async_lock of the context */
	uint32_t async_acked;          /* under ack_lock */
	pthread_mutex_t ack_lock;
	pthread_cond_t ack_cond;
	atomic_int users;      /* QPs */
	struct vb_cqe current; /* extended polling: the entry between start_poll/next_poll and the next */
	uint64_t wc_flags;
	struct vb_lock poll_lock; /* extended polling: held from start_poll to end_poll, taken before all others */
	bool ignore_overrun;      /* the oldest entry makes room */
	/* completions with an error, by [receive][flushed]; under lock */
	uint64_t errors[2][2];
	struct vb_moderation moderation;
	struct vb_cq *next, **prev; /* node->cqs, under node->ctx_lock */
};

/* A receive queue entry: sges lie in rq->sge[slot * max_sge]. */
struct vb_rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length; /* sum, saturated at UINT32_MAX */
};

/* A receive queue, a QP's own or an SRQ's. Producers hold lock; the consumer is the responder, under node->progress. */
struct vb_rq {
	struct vb_lock lock;
	uint32_t mask, max_wr, max_sge;
	_Atomic uint32_t head;      /* next to consume */
	_Atomic uint32_t tail;      /* next to post */
	_Atomic uint32_t polled;    /* consumed receives that have been polled: their slots are free again */
	bool shared;                /* an SRQ's, whose completions may be in several CQs */
	bool tagged;                /* an SRQ of tag matching: core/tm.h */
	struct vb_node *rnr_waiter; /* the adapter that waits for a receive, or NULL. Under lock */
	struct vb_rwqe *wqe;
	struct ibv_sge *sge;
	void *theirs; /* an SRQ's queue, if the program has allocated it */
};

struct vb_srq {
	struct ibv_srq srq;
	struct vb_rq rq;
	struct vb_node *node;
	struct vb_pd *pd;
	_Atomic uint32_t limit; /* armed limit; 0: none. Below it: IBV_EVENT_SRQ_LIMIT_REACHED, once */
	atomic_int users;
	struct vb_made made;
	_Atomic uint32_t async_taken; /* written under async_lock of the context */
	uint32_t async_acked;         /* under ack_lock */
	pthread_mutex_t ack_lock;
	pthread_cond_t ack_cond;
	/* XRC (core/xrc.h): its number and its domain; otherwise 0 and NULL */
	uint32_t number;
	struct vb_xrcd *xrcd;
	struct vb_cq *cq; /* where its receives complete, of XRC or tag matching; otherwise NULL */
	struct vb_tm *tm; /* tag matching, or NULL */
};

/* Where is the SRQ that a request names? */
enum vb_xrc_place {
	VB_XRC_NONE,
	VB_XRC_HERE,
	VB_XRC_THERE, /* in another process, to which the request may be passed on now */
	VB_XRC_BUSY,  /* the request has to wait for requests before it, or for that process: it is asked for again */
};

enum vb_swqe_state { VB_SWQE_POSTED, VB_SWQE_SENT, VB_SWQE_DONE };

/* In the flags of a send queue entry, beside the program's IBV_SEND_*: completion counters count it (core/cntr.h). */
#define VB_SEND_FLAGS 0x1fu
#define VB_SEND_COUNTED 0x40u
/* Entries whose success vb_sq_tell must hear of. */
#define VB_SEND_TOLD (IBV_SEND_SIGNALED | VB_SEND_COUNTED)

#define VB_CNTR_OPS 5 /* kinds of operations that completion counters count: core/cntr.h */

/* A send queue entry. */
struct vb_swqe {
	uint64_t wr_id;
	union {
		uint64_t ring_end; /* position in the ring to the peer behind its last record */
		uint64_t until;    /* UD: when it is dropped (ns); 0: it does not wait */
	};
	union {
		uint64_t remote_addr;
		struct vb_held *held; /* UD: a copy of its payload, made when it had to wait; else NULL */
	};
	union {
		struct {
			uint64_t compare_add, swap; /* atomics */
		};
		uint64_t begun; /* read, write: when it was sent (ns), if it is measured; else 0 */
		struct {
			struct vb_ah *ah; /* UD */
			uint32_t ud_qpn, ud_qkey;
		};
	};
	uint32_t rkey; /* or the key to invalidate, as in imm */
	/* in network order, or the key that SEND_WITH_INV or LOCAL_INV invalidates. TSO: the length of the headers, and
	 * rkey is that of a segment */
	uint32_t imm;
	uint32_t length; /* sum of the sges, or of the inline data in sinline */
	uint32_t psn;
	uint8_t num_sge; /* 0 with IBV_SEND_INLINE */
	uint8_t opcode;  /* enum ibv_wr_opcode */
	uint8_t flags;   /* IBV_SEND_*: SIGNALED already merged with sq_sig_all; VB_SEND_COUNTED */
	uint8_t state;   /* enum vb_swqe_state */
	uint8_t status;  /* enum ibv_wc_status, when DONE */
	/* atomics: result slot; reads: 1 if answered by ring, so that it has used a PSN; writes: 1 if in the ring by
	 * choice, so that it may be withdrawn; atomic writes: 1 if swap has the 8 bytes; datagrams: enum vb_ud_judged */
	uint8_t slot;
	/* RDMA write with immediate: the data is copied, the record is not in the ring yet. LOCAL_INV and BIND_MW of a
	 * window: its binding has ended, copies may be in progress */
	uint8_t data_written;
	_Atomic bool in_cq; /* its completion is in the CQ, so the slot is not free. Cleared under cq->lock */
};
_Static_assert(sizeof(struct vb_swqe) == 64, "one line");

/* A read that the responder answers by the ring, piece by piece. */
struct vb_inread {
	uint64_t index; /* the QP's count `taken` before it */
	uint64_t addr;  /* our address */
	uint32_t key;   /* looked up again for every piece */
	uint32_t psn, length, offset;
	uint32_t srqn; /* XRC: the SRQ that the request names */
};

/* Small RDMA writes to and fro (engine/local/pingpong.c). Under sq_lock. */
struct vb_pingpong {
	/* ns: the oldest request's completion is held until then, or until the peer's answer; 0: it is not. Read (relaxed)
	 * without the lock */
	_Atomic uint64_t until;
	uint64_t written;                /* the QP's count of that name when the hold began */
	uint32_t allowed;                /* the last number in shared->pingpong */
	uint32_t missed;                 /* the peer's number when it did not store a write in the ring */
	uint16_t skip, ring_skip;        /* so many of the next writes are not held, or do not go into the ring */
	uint8_t hits, misses;            /* holds in a row with an answer; without one, after that */
	uint8_t failures, ring_failures; /* the logarithms of the next skips */
	uint8_t looks;
};

/*
 * The same-host path's part of a queue pair (engine/local). It lies in struct vb_qp, not behind a pointer as those of
 * RoCE and iWARP, so that a send touches no more cache lines.
 */
struct vb_local_qp {
	/* requester: all under sq_lock */
	uint32_t sq_emit_off;    /* bytes of sq_emit's message already in the ring */
	uint32_t rd_outstanding; /* reads by ring and atomics in flight */
	uint32_t rd_slot;        /* next result slot */
	uint32_t map_key;        /* the R_Key of which `mapped` is known */
	/* on a fabric: remote->partition that was last seen to match, or VB_IB_UNCHECKED; else 0 */
	uint32_t remote_partition;
	uint32_t remote_gen;         /* remote->gen when it was linked */
	struct vb_peer *peer;        /* RC, UC: the peer's process, once met */
	struct vb_qp_shared *remote; /* the peer's QP in its segment; NULL: not linked */
	uint64_t acked_base;         /* the count like ssn_una that corresponds to remote->acked == 0 */
	uint64_t ssn_una, ssn_emit;  /* messages completed and emitted since RTS: counts, not PSNs */
	uint64_t sent_bytes[2];      /* sent or written; read. For people */
	uint64_t acked_seen;         /* highest acknowledgement known, as a count like ssn_una */
	uint32_t nak_seen;           /* counter of the last NAK that was processed */
	/* remote->acked (its low half), or a later count, and ack_in, as they were last read */
	uint32_t acked_read, ack_in_read;
	uint32_t looks; /* visits that found nothing published */
	uint8_t retry_left, rnr_left;
	uint8_t mapped;            /* a hint: is that region mapped here (enum vb_mapped) */
	uint8_t stall;             /* checks in a row in which a record looked dropped */
	bool gone;                 /* the peer's program has ended; the deadline covers all retries */
	uint64_t last_ring_end;    /* where the last record of this QP ends in the ring */
	_Atomic uint64_t deadline; /* ns; 0: no timer */
	uint64_t meet_after;       /* ns: when the broker may be asked again for the peer */
	uint64_t ready_by;         /* ns: how long retries to a peer that has not met us yet do not count; 0: not set */
	/* ns: when the peer's work on our requests is looked at; what was seen at the last look */
	uint64_t look, look_seen;
	uint32_t read_data; /* pieces of data for our reads */
	/* reads among rd_outstanding that were withdrawn: the peer still has them, until it has acknowledged as many
	 * messages as withdrawn_end, a count like ssn_una */
	uint32_t rd_withdrawn;
	uint64_t withdrawn_end;
	bool holding; /* writes in the ring are held (engine/local/withdraw.c) */
	/* 1 << 24 | PSN of a withdrawn write whose last record is not in the ring yet; or 0. VB_LOCAL_SHOWN: requests are
	 * shown to a capture (engine/local/frames.c) */
	uint32_t owed;
#define VB_LOCAL_SHOWN (1u << 31)
	struct vb_local_frames *frames; /* or NULL */
	struct vb_pingpong pingpong;
	enum { VB_TIMER_NONE, VB_TIMER_RNR, VB_TIMER_RETRY } timer_kind;
	bool cut;                   /* no way leads through the fabric: nothing is sent. Under progress + sq_lock */
	struct vb_ib_way *way;      /* on a fabric: the way to the peer, from RTR on. Under progress + sq_lock */
	uint16_t pkey;              /* so too: that of the queue pair's pkey_index */
	struct vb_ib_sent *sent_by; /* that way, under sq_lock; NULL: nothing is counted, or there is no way */
	struct vb_local_sent sent;

	/* responder: all under node->progress; on lines of its own, because one thread may send while another receives */
	_Alignas(VB_LINE) uint32_t epsn; /* PSN expected next */
	uint32_t nak_counter;
	uint64_t taken; /* requests taken since RTR */
	/* how many of these may be acknowledged, which are all before the oldest pending read. Written under
	 * progress, read (relaxed) by senders */
	_Atomic uint64_t executed;
	_Atomic uint64_t ack_sent; /* highest count that a record or shared->acked has carried to the peer */
	uint32_t ack_in;           /* low half of the highest count that the peer's records acknowledged */
	bool nak_state;            /* a NAK was sent, or waits; records are dropped until epsn arrives */
	_Atomic uint64_t written;  /* RDMA writes of the peer that this process has stored. Read (relaxed) by senders */
	bool on_acks;              /* in node's list of QPs whose shared->acked lags */
	struct vb_qp *acks_next;
	struct vb_inread *inread; /* reads answered by the ring: max_dest_rd_atomic entries */
	uint32_t inread_head, inread_tail;
	uint8_t refusal; /* enum vb_verdict: of the request at epsn. It waits until all reads are answered. 0: none */
	uint64_t received_bytes[2]; /* received; read by the peer. For people */
	struct vb_local_received received;
};

/* The part of a UD queue pair. */
struct vb_datagram_qp {
	bool roce_always;      /* VERBENA_WIRE=always, or a fabric of several processes. Set under progress + sq_lock */
	bool shown;            /* datagrams are shown to a capture. Set under progress + sq_lock */
	struct vb_tx *tx_open; /* the batch that is being filled, until the end of the kick; under sq_lock */
};

struct vb_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex qpx; /* ibv_qp_to_qp_ex() returns it if is_ex */
		struct vb_ibv_qp_ex qpx_newer;
	};
	struct vb_node *node;
	struct vb_pd *pd;
	struct vb_cq *scq, *rcq;
	struct vb_srq *srq;          /* NULL: the QP uses rq below */
	struct vb_qp_shared *shared; /* in our segment */
	bool is_ex, sq_sig_all;
	bool ib;                 /* its device is on an InfiniBand fabric. Constant */
	bool sq_tagged;          /* the adapter's rendezvous have the send queue: core/tm.h */
	bool sq_apart;           /* vb_sq_tell_apart hears of its completions: sq_tagged, or they are counted */
	bool rq_counted;         /* cntrs has a counter of receives */
	uint8_t sq_flags;        /* added to the flags of each request: IBV_SEND_SIGNALED, VB_SEND_COUNTED */
	uint8_t type;            /* enum ibv_qp_type */
	_Atomic uint8_t state;   /* enum ibv_qp_state; written under progress + sq_lock */
	struct ibv_qp_attr attr; /* as set by ibv_modify_qp; under progress + sq_lock */
	struct ibv_qp_cap cap;
	int attr_valid; /* masks seen since RESET */

	/* the send queue: all under sq_lock */
	struct vb_lock sq_lock;
	uint32_t sq_mask, sq_max_wr, sq_max_sge, sq_max_inline;
	uint32_t sq_head; /* next to post */
	uint32_t sq_emit; /* next to hand to the path */
	uint32_t sq_una;  /* oldest that has not completed */
	struct vb_swqe *swqe;
	struct ibv_sge *ssge; /* sq_max_sge per slot */
	uint8_t *sinline;     /* sq_max_inline per slot, or NULL */
	uint8_t *stso;        /* headers of TSO requests, sq_max_tso per slot, or NULL */
	uint32_t sq_max_tso;
	uint32_t psn_next;                        /* PSN of the next message to post */
	_Atomic uint32_t sq_pending;              /* sq_head - sq_una, a hint that may be read without the lock */
	atomic_bool on_active;                    /* in the node's list of QPs with unfinished work, or in active_new */
	struct vb_qp *active_next, **active_prev; /* under node->progress */
	struct vb_qp *active_new_next;            /* node->active_new, a lock-free stack */
	uint32_t active_idle;                     /* visits that found nothing */

	union ibv_gid met;              /* the address by which the broker finds the peer; under progress + sq_lock */
	const struct vb_path_ops *path; /* set under progress + sq_lock, as are roce and iwarp below */
	struct vb_local_qp local;       /* shared memory: RC, UC and UD */
	struct vb_datagram_qp datagram; /* UD */
	struct vb_roce_path *roce;      /* RoCE: all traffic of RC and UC; for UD, traffic of the network */
	struct vb_iwarp_path *iwarp;    /* a TCP connection */
	struct vb_raw_path *raw;        /* raw packets: a packet socket. Set at creation */
	uint32_t wants;                 /* of frames that arrive: VB_ARRIVAL_FLAGS. Set at creation */
	unsigned flows;                 /* rules of flow steering; under progress */
	_Atomic uint64_t due;           /* ns: when the path must be visited; 0: never */
	unsigned mcasts;                /* multicast groups that it has joined; as node->mcasts */
	bool unresolved;                /* its path is not resolved yet: path/unresolved.c; under progress */

	/* the receive queue: under node->progress */
	struct vb_rq rq;
	struct { /* a message that arrives in several records or packets */
		bool active;
		bool dropped;  /* UC: the rest of the message is dropped */
		uint8_t kind;  /* enum vb_tm_kind */
		bool told;     /* tag matching: its match has a completion already */
		uint32_t slot; /* the receive queue slot that it takes */
		uint32_t offset;
		struct vb_rwqe wqe;
		struct ibv_sge sge[VB_MAX_SGE];
		/* tag matching */
		uint32_t priv; /* app_ctx of the message's header */
		uint64_t tag;
		uint64_t stores;       /* the size of the tagged receive */
		struct vb_tag *chosen; /* of a rendezvous */
	} * inbound;                   /* allocated with the QP */

	_Atomic uint32_t async_taken; /* written under async_lock of the context */
	uint32_t async_acked;         /* under ack_lock */
	pthread_mutex_t ack_lock;
	pthread_cond_t ack_cond;
	bool comm_est_raised, last_wqe_raised;
	void *theirs; /* its queues, if the program has allocated them */

	struct vb_made made;
	pthread_mutex_t modify_lock; /* held for a whole ibv_modify_qp, and while it leaves the node's table */
	atomic_uint holders;         /* vb_qp_hold; incremented under progress, decremented under ack_lock */
	uint32_t max_msg;            /* the longest message that may be posted; for UD the port's MTU */
	uint64_t send_ops;           /* IBV_QP_EX_WITH_*, as requested at creation */
	/* ibv_wr_*: held from wr_start to wr_complete or wr_abort, taken before sq_lock. ibv_post_send takes it if
	 * is_ex. */
	struct vb_lock wr_lock;
	uint32_t wr_count; /* entries built behind sq_head */
	int wr_error;      /* the first error since wr_start */

	struct vb_qp *mw_next; /* node->mw_waiters; this and the next two under node->mw_lock */
	bool mw_waits;         /* it is in that list */
	uint32_t mw_bound;     /* windows of type 2 that this QP has bound */

	struct vb_rss *rss; /* core/wq.h: it receives by an indirection table; or NULL. Set at creation */
	struct vb_cntr *cntrs[VB_CNTR_OPS]; /* completion counters; set in RESET and INIT, under progress + sq_lock */
	struct vb_cq *named_rcq; /* that the program named, if receives complete in the CQ of a TM-SRQ; else NULL */

	struct vb_qp_fault {        /* fault injection: path/faulty.c; under sq_lock */
		uint32_t judged;    /* the next request about which the rules are asked */
		uint32_t first_due; /* from this request on due[] is filled */
		uint64_t *due;      /* by slot, ns: when a request may be sent on one host; or NULL */
		bool fatal;         /* a rule takes the QP to ERR */
	} fault;

	struct vb_rate rate; /* ibv_modify_qp_rate_limit */
	bool blocks_self;    /* UD: its own datagrams to a group do not come back. Set at creation */

	/* core/xrc.h. For an XRC target, pd, srq and rcq above are those of the SRQ that the current request names */
	struct {
		uint32_t *srqns;              /* XRC_SEND: the SRQ of each request, by slot; else NULL */
		struct vb_xrc_domain *domain; /* XRC_RECV, as the next three */
		struct vb_qp *real;           /* of a program's handle: its queue pair. NULL: this is the queue pair */
		struct vb_qp *handles;        /* the first handle; of a handle: the next. Under progress + sq_lock */
		struct vb_xrcd *by;           /* of a handle: the domain by which the program got it */
		/* of a handle of another process's target: the way to it (node/xrc_opener.c) */
		struct vb_xrc_far *far;
		/* of a handle that another process has: tells it of an event. Under progress + sq_lock of the target */
		void (*tell)(struct vb_qp *handle, enum ibv_event_type type);
		/* a target's requests for SRQs of other processes: engine/local/relay.h; or NULL. Set under progress +
		 * sq_lock. due: when it is looked after, ns; 0: never. wanted: an SRQ whose process it has to ask, or 0 */
		struct vb_relay *relay;
		_Atomic uint64_t relay_due;
		uint32_t wanted;
		/* of a guest (path/local/guest.c): the initiator of its target, that one's generation, the next guest of the
		 * domain; otherwise 0 */
		uint32_t initiator, host_gen;
		struct vb_qp *next_guest;
	} xrc;
};

/* Are its requests acknowledged and repeated? RC, and both kinds of XRC. */
static inline bool vb_qp_is_reliable(const struct vb_qp *qp)
{
	return (1u << IBV_QPT_RC | 1u << IBV_QPT_XRC_SEND | 1u << IBV_QPT_XRC_RECV) >> (qp->type & 31) & 1;
}

#define VB_UPCAST(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
static inline struct vb_context *vb_ctx(struct ibv_context *c)
{
	return VB_UPCAST(c, struct vb_context, vctx.context);
}
static inline struct vb_pd *vb_pd(struct ibv_pd *p)
{
	return (struct vb_pd *)p;
}
static inline struct vb_mr *vb_mr(struct ibv_mr *p)
{
	return (struct vb_mr *)p;
}
static inline struct vb_mw *vb_mw(struct ibv_mw *p)
{
	return (struct vb_mw *)p;
}
static inline struct vb_cq *vb_cq(struct ibv_cq *p)
{
	return (struct vb_cq *)p;
}
static inline struct vb_srq *vb_srq(struct ibv_srq *p)
{
	return (struct vb_srq *)p;
}
static inline struct vb_qp *vb_qp(struct ibv_qp *p)
{
	return (struct vb_qp *)p;
}
static inline struct vb_ah *vb_ah(struct ibv_ah *p)
{
	return (struct vb_ah *)p;
}
static inline struct vb_channel *vb_channel(struct ibv_comp_channel *p)
{
	return (struct vb_channel *)p;
}

#endif
