// key.h - memory keys: random, so that no key reveals another; each leads to its entry in the segment's table
// follows: IBA volume 1, 10.6 (memory keys)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_KEY_H
#define VB_CORE_KEY_H

#include <stdint.h>

#include "core/seg.h"

/*
 * All 32 bits of a key are drawn from the kernel's generator. The upper 18 are the region's slot, which says which
 * entry of the segment's table is the region's: a lookup is two loads and one comparison of 32 bits, and needs no
 * secret. Entries are taken one beside the other, so that few regions touch few pages. A peer that knows other keys of
 * the process knows which slots they take, and nothing else of the next one. With R regions a guess hits one of them
 * with R / 2^32.
 *
 * Keys are secret from programs of other users and of other hosts, which know only the keys that they were told.
 * Programs of the same user map the table (core/seg.h), and may read it.
 *
 * A process's keys are its own: two processes may have the same. A key is looked up in the table of the process that
 * the queue pair leads to, and in no other.
 *
 * The slot is in the upper bits because the low eight belong to the program in keys that it changes itself
 * (ibv_inc_rkey, IBA 10.6.3.3): a type 2 memory window would keep its slot and the six bits above those eight, and its
 * bind would store the whole key in the entry.
 */
_Static_assert(VB_KEY_SLOT(UINT32_MAX) == VB_SEG_MRS - 1, "a key is a slot and a tag");

/* A slot and an entry are used again only after so many other regions were deregistered, as long as the table has
 * room. */
#define VB_KEY_REST 16384u
#define VB_KEY_ROOM (VB_SEG_MRS / 4 * 3) /* slots used or resting; beyond it the oldest is reused */

struct vb_keys {
	_Atomic uint32_t *slots;    /* of the segment (vb_seg_key_slots), all zero at first */
	uint32_t rest[VB_KEY_REST]; /* slots, a ring */
	uint32_t resting, rest_head, used;
	uint32_t drawn[256]; /* random words; the first `left` are unused */
	uint32_t left;
	uint32_t fresh, nspare;     /* the first entry that no key has had; how many have none any more: */
	uint32_t spare[VB_SEG_MRS]; /* a stack */
};

/* Draws a key whose slot is free, and chooses its entry. Fewer than VB_SEG_MRS keys may be in use. Returns 0, or an
 * errno if the kernel gives no random bits; *key and *entry are untouched then. keys is all zeros at first, except
 * slots. */
int vb_key_take(struct vb_keys *keys, uint32_t *key, uint32_t *entry);
/* Frees the key of a deregistered region. */
void vb_key_give_back(struct vb_keys *keys, uint32_t key);

#endif
