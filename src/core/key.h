// key.h - memory keys: random, so that no key reveals another, and the entry of the segment's table for each key
// follows: IBA volume 1, 10.6 (memory keys)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_KEY_H
#define VB_CORE_KEY_H

#include <stdint.h>

#include "core/seg.h"

/*
 * All 32 bits of a key are drawn from the kernel's random number generator. The upper 18 bits are the region's slot,
 * which contains the index of its entry in the segment's table. So a lookup is two loads and one comparison of 32 bits,
 * and needs no secret. Entries are taken in sequence, so that few regions touch few pages. A peer that knows other keys
 * of the process knows the slots that they take, and nothing else about the next key. With R regions a guess hits one
 * of them with probability R / 2^32.
 *
 * Keys are secret from programs of other users and other hosts, which know only the keys that they were given. Programs
 * of the same user map the table (core/seg.h) and can read it.
 *
 * Two processes may have the same key. A key is looked up only in the table of the process to which the queue pair is
 * connected.
 *
 * The slot is in the upper bits because the low eight belong to the program in keys that it changes itself
 * (ibv_inc_rkey, IBA 10.6.3.3): a type 2 memory window keeps its slot and the six bits above those eight (core/mw.h).
 */
_Static_assert(VB_KEY_SLOT(UINT32_MAX) == VB_SEG_MRS - 1, "a key is a slot and a tag");

/* A slot and its entry are reused only after this many other regions were deregistered, as long as the table has room.
 */
#define VB_KEY_REST 16384u
#define VB_KEY_ROOM (VB_SEG_MRS / 4 * 3) /* slots used or resting; beyond it the oldest is reused */

struct vb_mr;

/* What only the owner knows of an entry of the table: of a window's, or of a region's with windows. Under node->mw_lock. */
struct vb_window {
	uint32_t windows; /* of a region: the windows that are bound to it */
	uint32_t key;     /* of a window: its key, bound or not. 0: the entry is no window's */
	uint32_t pd, qpn; /* qpn: of type 2 while it is bound: the QP that bound it */
	uint32_t region;  /* the entry of the region to which it is bound, + 1; 0: not bound */
	uint32_t ended; /* the key of a binding that has ended, while somebody may still copy with it; 0: nobody does */
	uint32_t next;  /* node->mw_fading: the next such window's entry + 1 */
	uint8_t type;   /* enum ibv_mw_type */
	uint64_t grace; /* vb_copies_stand */
};

struct vb_keys {
	_Atomic uint32_t *slots;    /* of the segment (vb_seg_key_slots), all zero at first */
	uint32_t rest[VB_KEY_REST]; /* slots, a ring */
	uint32_t resting, rest_head, used;
	uint32_t drawn[256]; /* random words; the first `left` are unused */
	uint32_t left;
	uint32_t fresh, nspare;               /* the first entry that was never used; the number of entries in spare */
	uint32_t spare[VB_SEG_MRS];           /* a stack of entries to reuse */
	struct vb_mr *mr[VB_SEG_MRS];         /* by entry; those of imports: their origin */
	struct vb_window windows[VB_SEG_MRS]; /* by entry */
};

/* Draws a key whose slot is free, and chooses its entry. Fewer than VB_SEG_MRS keys may be in use. Returns 0, or an
 * errno if the kernel gives no random bits; *key and *entry are untouched then. keys is all zeros at first, except
 * slots. */
int vb_key_take(struct vb_keys *keys, uint32_t *key, uint32_t *entry);
/* The same with a key that the caller chooses. EBUSY: its slot is not free. */
int vb_key_take_this(struct vb_keys *keys, uint32_t key, uint32_t *entry);
/* Draws another key in the slot of this one, for its entry. Returns 0 or an errno, as vb_key_take. */
int vb_key_change(struct vb_keys *keys, uint32_t *key);
/* Frees the key of a deregistered region, or of a window. */
void vb_key_give_back(struct vb_keys *keys, uint32_t key);

#endif
