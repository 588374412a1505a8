// seg.h - the segment: shared memory of a process, which only its owner writes and peers on the same host read
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_SEG_H
#define VB_CORE_SEG_H

#include <stdatomic.h>
#include <stdint.h>

#include "util/lane.h"

/*
 * The segment is a memfd that only its owner can write (F_SEAL_FUTURE_WRITE); peers map it read-only. A peer's segment
 * is untrusted: indices are masked, lengths compared, values read once into a local variable. A second, small memfd,
 * the doorbell page, is writable by peers. A wrong value there can only cause needless polls.
 */
#define VB_SEG_MAGIC 0x56524253u /* "VRBS" */
#define VB_SEG_VERSION 10u

#define VB_LANE_QPS (1u << VB_LANE_SHIFT)
#define VB_QP_INDEX(qpn) ((qpn) & (VB_LANE_QPS - 1))
#define VB_QP_LANE(qpn) (((qpn) >> VB_LANE_SHIFT) & (VB_LANE_COUNT - 1))
#define VB_SEG_MRS (1u << 18)
#define VB_KEY_TAG_BITS 14 /* low bits of a memory key; the upper 18 are its slot: core/key.h */
#define VB_KEY_SLOT(key) ((key) >> VB_KEY_TAG_BITS)

#define VB_DOORBELL_BYTES 4096u    /* the doorbell page */
#define VB_RING_BYTES (256u << 10) /* data of one ring; a power of two */
#define VB_RING_PIECE (16u << 10)  /* most data of one record, so that both ends copy at the same time */
#define VB_LINE 64u

/* Kinds of regions, beside IBV_ACCESS_* in the same word. */
#define VB_MR_NULL (1u << 30)     /* a null region: core/null.c */
#define VB_MR_BY_OWNER (1u << 31) /* only the owner's own loads and stores reach the memory: core/dmabuf.c */

/* The part of a memory region, or of a bound memory window, that other processes read. key == 0: there is none. Written
 * under the owner's MR lock, a window's under its lock of windows. */
struct vb_mr_shared {
	_Atomic uint32_t key;    /* the rkey (lkey is the same number) */
	_Atomic uint32_t access; /* IBV_ACCESS_*, VB_MR_* */
	_Atomic uint32_t pd;     /* protection domain id, unique in the owner; 0: a null region, or a memory window */
	_Atomic uint32_t map_id; /* != 0: backed by a shared mapping that a peer may map (path/local/shared_map.c) */
	_Atomic uint64_t iova;   /* the first address that peers use in requests */
	_Atomic uint64_t length;
	_Atomic uint64_t addr;   /* the owner's virtual address of iova */
	_Atomic uint64_t seq;    /* odd while the owner rewrites this entry */
	_Atomic uint64_t device; /* the number of the adapter; for the owner alone */
	/* of a memory window, whose pd is 0: its protection domain << 32 | the QP that may use it; 0: every QP of that
	 * protection domain. Of a null region, whose pd is 0 too: its protection domain. No window has the
	 * protection domain 0, so this is no window's */
	_Atomic uint64_t window;
};

/* nak: counter << 32 | psn << 8 | code; a new value is a new NAK. */
#define VB_RING_NAK(counter, psn, code) ((uint64_t)(counter) << 32 | (uint64_t)(psn) << 8 | (code))
#define VB_RING_NAK_COUNTER(nak) ((uint32_t)((nak) >> 32))
#define VB_RING_NAK_CODE(nak) ((nak)&0xff)
enum vb_ring_nak {
	VB_RING_NAK_NONE,
	VB_RING_NAK_RNR,     /* IBA 9.7.5.2.8 */
	VB_RING_NAK_INV_REQ, /* invalid request */
	VB_RING_NAK_ACCESS,  /* remote access error */
	VB_RING_NAK_OP,      /* remote operational error */
	VB_RING_NAK_SOURCE,  /* the requester's own memory was not mapped when it was fetched: its local error */
	VB_RING_NAK_AGAIN,   /* XRC: the request had to wait for another process, and may be sent again now */
};

#define VB_RD_ATOM_SLOTS 16u

/* The part of a queue pair that peers read. Cache line 0 changes with ibv_modify_qp, the others with progress. */
struct vb_qp_shared {
	_Atomic uint32_t gen; /* counts entries into RTR and exits to ERR or RESET; odd: may receive (RTR to SQE) */
	_Atomic uint32_t qpn;
	_Atomic uint32_t type;   /* enum ibv_qp_type */
	_Atomic uint32_t access; /* qp_access_flags */
	_Atomic uint32_t pd;
	_Atomic uint32_t dest_qpn;
	_Atomic uint32_t dest_lane;
	_Atomic uint32_t rq_psn;
	_Atomic uint32_t min_rnr_timer;
	_Atomic uint32_t max_dest_rd_atomic;
	_Atomic uint32_t qkey;
	/* 1 << 24 | PSN of the last read that this requester has withdrawn: the responder forgets it, and all reads
	 * before it. 0: the responder has none of these any more */
	_Atomic uint32_t withdrawn;
	_Atomic uint32_t
	        pingpong; /* not 0: small writes to this QP may come in the ring, because its program polls for a completion */
	_Atomic uint32_t unheard;   /* in RTR, without a packet yet: the owner must see the first request */
	_Atomic uint32_t partition; /* VB_IB_SHARED (core/ib.h), or 0 */
	uint32_t reserved0[1];
	/* line 1: written by the responder */
	_Atomic uint64_t acked; /* requests executed since RTR, in order */
	_Atomic uint64_t nak;
	_Atomic uint64_t taken; /* requests received, in order: a read among them may not be answered yet */
	uint64_t reserved1[5];
	/* lines 2, 3: results of atomics, by the slot that the requester chose */
	_Atomic uint64_t atomic_result[VB_RD_ATOM_SLOTS];
	/* line 4: like acked, but stored at once. Peers read it only after the owner or its QP has ended, so the line
	 * usually stays in the owner's cache */
	_Atomic uint64_t executed;
	/* bytes that the owner has written to its peer, and read from it, by one copy since RTS. For people */
	_Atomic uint64_t copied[2];
	uint64_t reserved2[5];
};

#define VB_HAZARDS 8u /* copies that may be in progress at once to or from one peer */

enum vb_send_way {
	VB_SEND_FETCHED, /* a record names the sender's memory, from which the receiver copies */
	VB_SEND_RING,    /* the data lies in the ring */
};

/* What the receiver's copies cost, in ns per 64 KiB; 0: not measured yet. Hints for the sender. */
struct vb_send_costs {
	_Atomic uint32_t fetch, ring;
};

/* Classes of lengths, for each of which the way is chosen: one piece, and several. */
#define VB_CHOICE_CLASSES 2u

/* One per peer process, indexed by the peer's lane. */
struct vb_slot_shared {
	/* line 0: rarely written */
	_Atomic uint64_t peer_incarnation; /* != 0: this process has mapped that peer, and waits for its hazards */
	_Atomic uint32_t hot; /* this process polls that peer's ring and acknowledgements, and needs no doorbell */
	/* this process waits for room in its ring to that peer, which must ring the doorbell after it has consumed */
	_Atomic uint32_t want_space;
	_Atomic uint32_t can_pull; /* this process can read that peer's memory, so large SENDs may come by reference */
	struct vb_send_costs costs[VB_CHOICE_CLASSES]; /* of SENDs from that peer */
	_Atomic uint32_t can_place; /* this process can store data that the peer may withdraw (util/guard.h) */
	uint32_t reserved0[6];
	/* line 1: often written */
	_Atomic uint64_t rx_head; /* bytes of the peer's ring that this process has consumed */
	uint64_t reserved1[7];
	/* line 2: hazards: this process's copies in progress to or from that peer's memory: key << 32 | qpn; 0: none */
	_Atomic uint64_t hazard[VB_HAZARDS];
	/* line 3: where in the peer's ring a record ends whose data this process stores (VB_RECF_MAY_HOLD): claimed is
	 * set before, placed afterwards, or claimed back to placed */
	_Atomic uint64_t claimed, placed;
	uint64_t reserved2[6];
};

struct vb_seg_header {
	uint32_t magic;
	uint32_t version;
	uint32_t lane;
	uint32_t pid; /* in the owner's pid namespace; informative */
	uint64_t incarnation;
	uint64_t self; /* the owner's address of this header, where process_vm_readv must find the same incarnation */
	uint32_t fence_needed;     /* the owner has no membarrier, so its peers fence after they publish */
	_Atomic uint32_t sleeping; /* the progress thread sleeps: a doorbell must also ring the wake descriptor */
	uint32_t reserved0[6];
	/* own cache line: a robust futex of the progress thread. The kernel sets FUTEX_OWNER_DIED when the program
	 * exits or execs, before its pid can be used again. */
	_Atomic uint32_t life;
	uint32_t reserved1[15];
};

#define VB_SEG_SLOT_STRIDE 256ull
#define VB_SEG_SLOTS_OFF 4096ull
#define VB_SEG_QPS_OFF (VB_SEG_SLOTS_OFF + VB_LANE_COUNT * VB_SEG_SLOT_STRIDE)
#define VB_SEG_MRS_OFF (VB_SEG_QPS_OFF + VB_LANE_QPS * sizeof(struct vb_qp_shared))
#define VB_SEG_KEYS_OFF (VB_SEG_MRS_OFF + VB_SEG_MRS * sizeof(struct vb_mr_shared))
#define VB_SEG_QP_PLACES_OFF (VB_SEG_KEYS_OFF + VB_SEG_MRS * 4ull)
#define VB_SEG_RINGS_OFF (VB_SEG_QP_PLACES_OFF + VB_LANE_QPS * 2ull)
#define VB_SEG_BYTES (VB_SEG_RINGS_OFF + VB_LANE_COUNT * (uint64_t)VB_RING_BYTES)

_Static_assert(sizeof(struct vb_mr_shared) == 64, "one line");
_Static_assert(sizeof(struct vb_qp_shared) == 320, "five lines");
_Static_assert(sizeof(struct vb_slot_shared) == 256, "four lines");
_Static_assert(sizeof(struct vb_slot_shared) <= VB_SEG_SLOT_STRIDE, "slots do not overlap");

static inline struct vb_slot_shared *vb_seg_slot(void *seg, uint32_t lane)
{
	return (struct vb_slot_shared *)((char *)seg + VB_SEG_SLOTS_OFF +
	                                 (lane & (VB_LANE_COUNT - 1)) * VB_SEG_SLOT_STRIDE);
}

/* QP numbers are used in a secret order, but entries in sequence, so that few queue pairs touch few pages. The table
 * has for each index of a QP number its entry ^ the index. */
static inline _Atomic uint16_t *vb_seg_qp_places(void *seg)
{
	return (_Atomic uint16_t *)((char *)seg + VB_SEG_QP_PLACES_OFF);
}

static inline struct vb_qp_shared *vb_seg_qp(void *seg, uint32_t qpn)
{
	uint32_t i = VB_QP_INDEX(qpn), place = atomic_load_explicit(&vb_seg_qp_places(seg)[i], memory_order_relaxed);

	return (struct vb_qp_shared *)((char *)seg + VB_SEG_QPS_OFF +
	                               VB_QP_INDEX(place ^ i) * sizeof(struct vb_qp_shared));
}

static inline struct vb_mr_shared *vb_seg_mr(void *seg, uint32_t index)
{
	return (struct vb_mr_shared *)((char *)seg + VB_SEG_MRS_OFF +
	                               (index & (VB_SEG_MRS - 1)) * sizeof(struct vb_mr_shared));
}

/* The table of slots: the entry of each slot of a key. Readers mask it, because the owner uses the other bits. */
static inline _Atomic uint32_t *vb_seg_key_slots(void *seg)
{
	return (_Atomic uint32_t *)((char *)seg + VB_SEG_KEYS_OFF);
}

/* The entry for a key. If the entry has another key, the region does not exist. */
static inline struct vb_mr_shared *vb_seg_mr_of(void *seg, uint32_t key)
{
	return vb_seg_mr(seg, atomic_load_explicit(&vb_seg_key_slots(seg)[VB_KEY_SLOT(key)], memory_order_relaxed));
}

/* The doorbell page. To ring, a peer sets the bit of its lane, then the summary bit of that word. */
struct vb_doorbell {
	_Atomic uint64_t summary; /* bit w: word[w] is not zero */
	uint64_t reserved[7];
	_Atomic uint64_t word[VB_LANE_COUNT / 64];
};

#endif
