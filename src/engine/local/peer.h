// peer.h - another process of this host (or this one): its mapped segment, and the rings in both directions
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_PEER_H
#define VB_ENGINE_LOCAL_PEER_H

#include <sys/uio.h>

#include "core/node.h"
#include "engine/local/record.h"

enum vb_peer_state {
	VB_PEER_MAPPED, /* we have mapped it; it may not have mapped us yet */
	VB_PEER_DEAD,
};

struct vb_peer;

/*
 * One copy between this process's memory and a peer's. remote is one range; local are the program's buffers. Both
 * return 0, or VB_EFAULT_LOCAL / EFAULT if a side is not mapped, ESRCH if the peer is gone, EPERM if such copies are
 * forbidden (then peer->copy_ok is cleared and the ring carries the data).
 */
#define VB_EFAULT_LOCAL 1000
struct vb_copy_ops {
	int (*write)(struct vb_peer *peer, uint64_t remote, const struct iovec *local, int n, size_t total);
	int (*read)(struct vb_peer *peer, uint64_t remote, const struct iovec *local, int n, size_t total);
};

#define VB_PEER_GIDS 8

struct vb_peer {
	uint32_t lane;
	uint64_t incarnation;
	_Atomic uint32_t state;
	struct vb_node *node;
	bool self;
	atomic_bool copy_ok; /* one-copy transfers work with this peer */
	bool fence;          /* it has no membarrier: fence after publishing */
	const struct vb_copy_ops *copy;
	const struct vb_copy_ops *copy_mapped; /* copies within our own address space */

	struct vb_seg_header *seg;     /* the peer's segment, read-only (self: ours) */
	struct vb_slot_shared *theirs; /* its slot for us: hot, and how far it has consumed our ring */
	struct vb_slot_shared *ours;   /* our slot for it */
	struct vb_doorbell *doorbell;  /* its doorbell page */

	/* our ring to it: under tx_lock */
	struct vb_lock tx_lock __attribute__((aligned(64)));
	uint8_t *tx;
	uint64_t tx_tail;   /* bytes published */
	uint64_t tx_head;   /* bytes it has consumed, as last seen */
	uint64_t tx_zeroed; /* the first word of every line in [tx_tail, tx_zeroed) is 0 */
	atomic_bool tx_low; /* that range is getting short: a hint, read without the lock */

	/* its ring to us: under node->progress */
	const uint8_t *rx __attribute__((aligned(64)));
	uint64_t rx_head;  /* bytes consumed */
	uint32_t quiet;    /* consecutive polls that found nothing, while hot */
	int hot_index;     /* index in the node's list of polled rings, or -1 */
	bool ack_doorbell; /* acknowledgements were published since its doorbell was last rung */
	bool dropped;      /* a record was dropped: its sender must be woken */

	struct vb_lock map_lock; /* guards its regions that are mapped here too: path/local/shared_map.c */
	struct vb_map *maps;

	/* the part of node/ and path/local/ */
	int pid, pid_fd, wake_fd;
	void *map;
	size_t map_len;
	void *ring_map;
	union ibv_gid gids[VB_PEER_GIDS]; /* addresses the broker has confirmed for it; under io->questions_lock */
	unsigned ngids;
	/* callers that found it and whose queue pairs do not point to it yet; under io->questions_lock */
	unsigned held;
	uint64_t reminded;    /* ns; under io->questions_lock */
	struct vb_peer *next; /* every peer ever met */
};

static inline bool vb_peer_alive(struct vb_peer *p)
{
	/* The kernel sets the bit in life when the program exits or execs, before its pid can be used again. */
	return atomic_load_explicit(&p->state, memory_order_acquire) != VB_PEER_DEAD &&
	       !(atomic_load_explicit(&p->seg->life, memory_order_acquire) & 0x40000000u /* FUTEX_OWNER_DIED */);
}

/* Has it mapped us too, so that it watches our hazards? Then one-copy transfers and records may start. */
static inline bool vb_peer_ready(struct vb_peer *p)
{
	return atomic_load_explicit(&p->theirs->peer_incarnation, memory_order_acquire) == p->node->incarnation;
}

struct vb_mr_view;
/*
 * Finds where the peer's address va, of the region in view, is mapped in this process, if its memory is shared already:
 * *local, and a handle to drop after the copy. NULL: it is not mapped. path/local/shared_map.c; any lock may be held.
 */
struct vb_map *vb_map_take(struct vb_peer *peer, uint32_t key, const struct vb_mr_view *view, uint64_t va,
                           uint64_t *local);
void vb_map_drop(struct vb_peer *peer, struct vb_map *m);

/* Sets our bit in its doorbell page and, where it sleeps, writes its wake descriptor. node/progress.c. */
void vb_peer_doorbell(struct vb_peer *p);

/* Called after publishing: rings the peer's doorbell, unless it polls. */
static inline void vb_peer_notify(struct vb_peer *p)
{
	if (__builtin_expect(p->fence, 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst); /* pairs with the consumer's membarrier */
	if (!atomic_load_explicit(&p->theirs->hot, memory_order_relaxed))
		vb_peer_doorbell(p);
}

/* Called when the ring is full: asks the peer for a doorbell after it has consumed. Returns true if the request is
 * new; the caller then tries once more. */
static inline bool vb_want_space(struct vb_peer *p)
{
	if (atomic_load_explicit(&p->ours->want_space, memory_order_relaxed))
		return false;
	atomic_store(&p->ours->want_space, 1);
	vb_fence_all(p->node);
	return true;
}

/*
 * Returns the process that owns lane(qpn) at address dgid, if it was met before. Otherwise asks the broker, and waits
 * up to wait_ms for its answer. *err: 0, EAGAIN (asked, no answer yet), ENOENT, EACCES; ENOMEM if wait_ms > 0.
 * path/local/peer.c. No spin lock held if wait_ms > 0, else any lock.
 */
struct vb_peer *vb_peer_find(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, unsigned wait_ms, int *err);

/* Called while a peer is not ready: it may have lost our introduction for lack of descriptors. Asks the broker from
 * time to time to introduce us again. Any lock may be held. */
void vb_peer_remind(struct vb_peer *p);

#endif
