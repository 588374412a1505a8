// peer.h - a peer: another process of this host, or this one; its mapped segment, and the rings in both directions
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_PEER_H
#define VB_ENGINE_LOCAL_PEER_H

#include <linux/futex.h>
#include <sys/uio.h>

#include "core/node.h"
#include "engine/local/choice.h"
#include "engine/local/lull.h"
#include "engine/local/pace.h"
#include "engine/local/record.h"

enum vb_peer_state {
	VB_PEER_MAPPED, /* we have mapped it; it may not have mapped us yet */
	VB_PEER_DEAD,
};

struct vb_peer;

/*
 * Copies between this process's memory and a peer's. remote is one range, local are the program's buffers. They return
 * 0; VB_EFAULT_LOCAL or EFAULT if local or remote memory is not mapped; ESRCH if the peer has ended; EPERM if such
 * copies are forbidden (then peer->copy_ok is cleared, and the ring transfers the data).
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
	bool fence;          /* it has no membarrier(2), so this process must fence after publishing */
	const struct vb_copy_ops *copy;
	const struct vb_copy_ops *copy_mapped; /* copies within our own address space */

	struct vb_seg_header *seg;     /* the peer's segment, read-only (self: ours) */
	struct vb_slot_shared *theirs; /* its slot for us */
	struct vb_slot_shared *ours;   /* our slot for it */
	struct vb_doorbell *doorbell;  /* its doorbell page */

	/* our ring to it: under tx_lock */
	struct vb_lock tx_lock __attribute__((aligned(64)));
	uint8_t *tx;
	uint64_t tx_tail;                           /* bytes published */
	uint64_t tx_head;                           /* bytes that it has consumed, as last read */
	uint64_t tx_zeroed;                         /* the first word of every line in [tx_tail, tx_zeroed) is 0 */
	atomic_bool tx_low;                         /* that range is short; a hint, read without the lock */
	struct vb_choice choice[VB_CHOICE_CLASSES]; /* of large SENDs: not in the line of small ones */
	struct vb_pace reads[VB_CHOICE_CLASSES], writes[VB_CHOICE_CLASSES]; /* large RDMA reads and writes */

	/* its ring to us: under node->progress */
	const uint8_t *rx __attribute__((aligned(64)));
	uint64_t rx_head;  /* bytes consumed */
	uint32_t quiet;    /* consecutive polls without a record, while hot */
	int hot_index;     /* index in the node's list of polled rings, or -1 */
	bool ack_doorbell; /* acknowledgements were published since its doorbell was last rung */
	bool dropped;      /* a record was dropped, so its sender must be woken */
	bool held;         /* the next record is held: its sender will ring our doorbell */
	struct vb_lull lull;
	struct vb_cost fetch_cost[VB_CHOICE_CLASSES], ring_cost[VB_CHOICE_CLASSES]; /* of the copies of its SENDs */

	struct vb_lock map_lock; /* guards maps: its regions that are mapped here too (path/local/shared_map.c) */
	struct vb_map *maps;

	/* used by node/ and path/local/ */
	int pid, pid_fd, wake_fd;
	void *map;
	size_t map_len;
	void *ring_map;
	union ibv_gid gids[VB_PEER_GIDS]; /* its addresses, confirmed by the broker; under io->questions_lock */
	unsigned ngids;
	/* callers of vb_peer_hold, which keeps its mappings; under io->questions_lock */
	unsigned users;
	uint64_t reminded;    /* time of the last reminder (ns); under io->questions_lock */
	struct vb_peer *next; /* in io->all, the list of all peers ever met */
};

static inline bool vb_peer_alive(struct vb_peer *p)
{
	/* The kernel sets the bit in life when the program exits or execs, before its pid can be reused. */
	return atomic_load_explicit(&p->state, memory_order_acquire) != VB_PEER_DEAD &&
	       !(atomic_load_explicit(&p->seg->life, memory_order_acquire) & FUTEX_OWNER_DIED);
}

/* Has the peer mapped us too? Then it waits for our hazards, and one-copy transfers and records may start. */
static inline bool vb_peer_ready(struct vb_peer *p)
{
	return atomic_load_explicit(&p->theirs->peer_incarnation, memory_order_acquire) == p->node->incarnation;
}

struct vb_mr_view;
/*
 * If the peer's region in view is a shared mapping that is mapped in this process too, sets *local to the address here
 * of the peer's address va. Returns a handle to drop after the copy, or NULL if it is not mapped here.
 * path/local/shared_map.c. Any lock may be held.
 */
struct vb_map *vb_map_take(struct vb_peer *peer, uint32_t key, const struct vb_mr_view *view, uint64_t va,
                           uint64_t *local);
void vb_map_drop(struct vb_peer *peer, struct vb_map *m);
/* Is it, or will it be, if the program goes on using it? Counts as a use. */
enum vb_mapped { VB_MAPPED_LATER, VB_MAPPED_NEVER, VB_MAPPED };
enum vb_mapped vb_map_ask(struct vb_peer *peer, uint32_t key, const struct vb_mr_view *view);

/* Sets our bit in its doorbell page. If its progress thread sleeps, rings its wake descriptor. node/progress.c. */
void vb_peer_doorbell(struct vb_peer *p);

/* Called after publishing: rings the peer's doorbell, unless our ring is hot there. */
static inline void vb_peer_notify(struct vb_peer *p)
{
	if (__builtin_expect(p->fence, 0))
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst); /* pairs with the consumer's membarrier */
	if (!atomic_load_explicit(&p->theirs->hot, memory_order_relaxed))
		vb_peer_doorbell(p);
}

/* Called when the ring is full: asks the peer to ring our doorbell after it has consumed. Returns true if this is a new
 * request; then the caller tries once more. */
static inline bool vb_ring_want_space(struct vb_peer *p)
{
	if (atomic_load_explicit(&p->ours->want_space, memory_order_relaxed))
		return false;
	atomic_store(&p->ours->want_space, 1);
	vb_fence_all(p->node);
	return true;
}

/*
 * Returns the process that owns the lane of qpn at address dgid, if it was met before. Otherwise asks the broker, and
 * waits up to wait_ms for its answer. *err: 0, EAGAIN (asked, no answer yet), ENOENT, EACCES; ENOMEM if wait_ms > 0.
 * path/local/meeting.c. If wait_ms > 0 no spin lock may be held, otherwise any lock.
 */
struct vb_peer *vb_peer_find(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, unsigned wait_ms, int *err);

/* Has the broker answered the question of vb_peer_find since then (ns)? The answer that it returns may be older.
 * path/local/meeting.c. Any lock may be held. */
bool vb_peer_answered(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, uint64_t since);

/* Copies the address by which the broker finds programs at the end of the way. path/ib/ways.c. Any lock may be held. */
void vb_ib_way_address(struct vb_node *node, const struct vb_ib_way *way, union ibv_gid *address);

/* Is no thread of the peer running, or ready to run? Reads /proc, which waits for nobody. path/local/sleeps.c. Any lock
 * may be held. */
bool vb_peer_sleeps(const struct vb_peer *peer);

/* Called while a peer is not ready: it may have lost our introduction because it had no free descriptors. Asks the
 * broker from time to time to introduce us again. Any lock may be held. */
void vb_peer_remind(struct vb_peer *p);

#endif
