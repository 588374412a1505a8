// peer.h - another process of this host (or this one): its segment as we see it, and the ring each way
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_PEER_H
#define VB_ENGINE_LOCAL_PEER_H

#include <sys/uio.h>

#include "core/node.h"
#include "engine/local/record.h"

enum vb_peer_state {
	VB_PEER_MAPPED, /* we see it; it may not see us yet */
	VB_PEER_DEAD,
};

struct vb_peer;

/*
 * One copy between this process's memory and a peer's. remote is one stretch; local are the program's buffers.
 * Both return 0, or EFAULT_LOCAL / EFAULT when a side is not mapped, ESRCH when the peer is gone, EPERM when such
 * copies are forbidden (then peer->copy_ok is cleared and the ring carries the data).
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
	const struct vb_copy_ops *copy_mapped; /* within our own address space */

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
	atomic_bool tx_low; /* that stretch is getting short: a hint, read without the lock */

	/* its ring to us: under node->progress */
	const uint8_t *rx __attribute__((aligned(64)));
	uint64_t rx_head;  /* bytes consumed */
	uint32_t quiet;    /* looks in a row that found nothing, while hot */
	int hot_index;     /* in io's list of rings looked at by ourselves, or -1 */
	bool ack_doorbell; /* acknowledgements were published since its doorbell was rung */
	bool dropped;      /* a record was dropped: its sender is told to look */

	struct vb_lock map_lock; /* regions of it that are mapped here too: path/local/shared_map.c */
	struct vb_map *maps;

	/* io/'s part */
	int pid, pid_fd, wake_fd;
	void *map;
	size_t map_len;
	void *ring_map;
	union ibv_gid gids[VB_PEER_GIDS]; /* addresses the broker has confirmed for it; under io->questions_lock */
	unsigned ngids;
	unsigned held;        /* by whom it was found, and no queue pair says so yet; under io->questions_lock */
	uint64_t reminded;    /* ns; under io->questions_lock */
	struct vb_peer *next; /* every peer ever met */
};

static inline bool vb_peer_alive(struct vb_peer *p)
{
	/* The second word is set by the kernel when the program exits or execs, before its pid can be used again. */
	return atomic_load_explicit(&p->state, memory_order_acquire) != VB_PEER_DEAD &&
	       !(atomic_load_explicit(&p->seg->life, memory_order_acquire) & 0x40000000u /* FUTEX_OWNER_DIED */);
}

/* It has mapped us too, and watches our hazards: one-copy transfers and records may start. */
static inline bool vb_peer_ready(struct vb_peer *p)
{
	return atomic_load_explicit(&p->theirs->peer_incarnation, memory_order_acquire) == p->node->incarnation;
}

struct vb_mr_view;
/*
 * Where the peer's address va, under a key that stands for view, is mapped in this process, if its memory is shared
 * already: *local, and a handle to drop after the copy. NULL: it is not. path/local/shared_map.c; any lock may be held.
 */
struct vb_map *vb_map_take(struct vb_peer *peer, uint32_t key, const struct vb_mr_view *view, uint64_t va,
                           uint64_t *local);
void vb_map_drop(struct vb_peer *peer, struct vb_map *m);

/* Sets our bit in its doorbell page and, where it sleeps, writes its wake descriptor. node/progress.c. */
void vb_peer_doorbell(struct vb_peer *p);

/* After publishing: tells the peer, unless it is looking by itself. */
static inline void vb_peer_notify(struct vb_peer *p)
{
	if (__builtin_expect(p->fence, 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst); /* the consumer's membarrier is the other half */
	if (!atomic_load_explicit(&p->theirs->hot, memory_order_relaxed))
		vb_peer_doorbell(p);
}

/* The ring was full: asks the peer to tell when it has consumed. true: this is news to it, so try once more. */
static inline bool vb_want_space(struct vb_peer *p)
{
	if (atomic_load_explicit(&p->ours->want_space, memory_order_relaxed))
		return false;
	atomic_store(&p->ours->want_space, 1);
	vb_fence_all(p->node);
	return true;
}

/*
 * The process that owns lane(qpn) at address dgid, if it was met before; else asks the broker and, with wait, stays up
 * to that many ms. *err: 0, EAGAIN (asked, no answer yet), ENOENT, EACCES; ENOMEM with wait. path/local/peer.c; no spin
 * lock held if wait > 0, else any lock.
 */
struct vb_peer *vb_peer_find(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, unsigned wait_ms, int *err);

/* It is not ready yet: our introduction may have been lost to it, by want of descriptors. Now and then the broker is
 * asked to introduce us again. Any lock may be held. */
void vb_peer_remind(struct vb_peer *p);

#endif
