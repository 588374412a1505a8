// ring.h - a ring of records in shared memory: its producer and its consumer
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_RING_H
#define VB_ENGINE_LOCAL_RING_H

#include "engine/local/peer.h"

/*
 * A record is published by its mark, the first word of its first line, so that one cache line can carry a small
 * message. The consumer polls the word at the end of the last record. The producer keeps that word 0 until it publishes
 * the next record, so that old payload is never read as a mark. It zeroes words ahead after it has published a record,
 * so that this does not delay the message.
 */
#define VB_RING_AHEAD 1024u
#define VB_RING_MASK (VB_RING_BYTES - 1)

static inline uint32_t vb_ring_size(uint32_t bytes)
{
	return (bytes + VB_LINE - 1) & ~(VB_LINE - 1);
}

static inline _Atomic uint64_t *vb_ring_word(uint8_t *ring, uint64_t pos)
{
	return (_Atomic uint64_t *)(ring + (pos & VB_RING_MASK));
}

/* The consumer's position. A value outside the published range is ignored. */
static inline uint64_t vb_ring_consumed(struct vb_peer *p)
{
	uint64_t head = atomic_load_explicit(&p->theirs->rx_head, memory_order_acquire);

	if (head - p->tx_head <= p->tx_tail - p->tx_head)
		p->tx_head = head;
	return p->tx_head;
}

static inline bool vb_ring_room(struct vb_peer *p, uint64_t bytes)
{
	/* the line behind the record must be free too, because its first word is zeroed */
	return p->tx_tail + bytes + VB_LINE - p->tx_head <= VB_RING_BYTES;
}

static inline void vb_ring_publish(struct vb_peer *p, uint64_t pos, uint32_t size)
{
	uint64_t end = pos + size;

	if (p->tx_zeroed < end + VB_LINE) {
		atomic_store_explicit(vb_ring_word(p->tx, end), 0, memory_order_relaxed);
		p->tx_zeroed = end + VB_LINE;
	}
	p->tx_tail = end;
	if (p->tx_zeroed < end + VB_RING_AHEAD / 2)
		atomic_store_explicit(&p->tx_low, true, memory_order_relaxed);
	atomic_store_explicit(vb_ring_word(p->tx, pos),
	                      (uint64_t)(size / VB_LINE) | (uint64_t)(uint32_t)(pos / VB_LINE) << 32,
	                      memory_order_release);
}

/* What vb_ring_reserve does if the peer must have consumed more, or if the record does not fit before the ring's end. */
static inline __attribute__((cold)) struct vb_rec *vb_ring_make_room(struct vb_peer *p, uint32_t size)
{
	uint32_t left = VB_RING_BYTES - (p->tx_tail & VB_RING_MASK);
	uint64_t need = size + (size > left ? left : 0);

	/* another process may own the lane and the ring now (path/local/peer.c, reset_lane) */
	if (atomic_load_explicit(&p->state, memory_order_relaxed) == VB_PEER_DEAD)
		return NULL;
	if (!vb_ring_room(p, need)) {
		vb_ring_consumed(p);
		if (!vb_ring_room(p, need))
			return NULL;
	}
	if (size > left) {
		struct vb_rec *pad = (struct vb_rec *)(p->tx + (p->tx_tail & VB_RING_MASK));

		pad->dest = vb_rec_word(0, VB_REC_PAD);
		vb_ring_publish(p, p->tx_tail, left);
	}
	return (struct vb_rec *)(p->tx + (p->tx_tail & VB_RING_MASK));
}

/*
 * Returns contiguous space for a record of `bytes`, or NULL if the ring is full. Under tx_lock. The caller fills all
 * but the mark and calls vb_ring_commit with the same size.
 */
static inline __attribute__((always_inline)) struct vb_rec *vb_ring_reserve(struct vb_peer *p, uint32_t bytes)
{
	uint32_t size = vb_ring_size(bytes);

	if (__builtin_expect(!vb_ring_room(p, size) || (p->tx_tail & VB_RING_MASK) + size > VB_RING_BYTES ||
	                             atomic_load_explicit(&p->state, memory_order_relaxed) == VB_PEER_DEAD,
	                     0))
		return vb_ring_make_room(p, size);
	return (struct vb_rec *)(p->tx + (p->tx_tail & VB_RING_MASK));
}

static inline void vb_ring_commit(struct vb_peer *p, uint32_t bytes)
{
	vb_ring_publish(p, p->tx_tail, vb_ring_size(bytes));
}

/* Zeroes words ahead of the tail. Called after the doorbell, so that this does not delay the message. Under tx_lock. */
static inline void vb_ring_prepare(struct vb_peer *p)
{
	uint64_t limit = p->tx_head + VB_RING_BYTES, want = p->tx_tail + VB_RING_AHEAD;

	if (want > limit)
		want = limit;
	if (p->tx_zeroed < p->tx_tail)
		p->tx_zeroed = p->tx_tail;
	for (; p->tx_zeroed + VB_LINE <= want; p->tx_zeroed += VB_LINE)
		atomic_store_explicit(vb_ring_word(p->tx, p->tx_zeroed), 0, memory_order_relaxed);
	atomic_store_explicit(&p->tx_low, false, memory_order_relaxed);
}

/* Is there a record to consume? */
static inline bool vb_ring_ready(const struct vb_peer *p)
{
	return atomic_load_explicit((_Atomic uint64_t *)(p->rx + (p->rx_head & VB_RING_MASK)), memory_order_acquire) !=
	       0;
}

#endif
