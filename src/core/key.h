// key.h - memory keys: random, so that no key tells of another; each names its entry in the segment's table
// follows: IBA volume 1, 10.6 (memory keys)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_KEY_H
#define VB_CORE_KEY_H

#include <stdint.h>

#include "engine/seg.h"

/*
 * All 32 bits of a key are drawn from the kernel's generator. The upper 18 are also the region's entry in the table, so that a
 * lookup is one load and one comparison of 32 bits, and needs no secret. A peer that knows other keys of the process knows
 * which entries they take, and nothing else of the next one. With R regions a guess hits one of them with R / 2^32.
 *
 * Secret from whom: from programs of other users and of other hosts, which see a key only when they are told it. Programs of
 * the same user map the table (engine/seg.h), and may read it.
 *
 * A process's keys are its own: two processes may have the same. A key is looked up in the table of the process that
 * the queue pair leads to, and in no other.
 *
 * The entry is in the upper bits because the low eight belong to the program in keys that it changes itself (ibv_inc_rkey,
 * IBA 10.6.3.3): a type 2 memory window would keep its entry and the six bits above those eight, and its bind would store the
 * whole key in the entry.
 */
#define VB_KEY_TAG_BITS 14
#define VB_KEY_INDEX(key) ((key) >> VB_KEY_TAG_BITS)
_Static_assert(VB_KEY_INDEX(UINT32_MAX) == VB_SEG_MRS - 1, "a key is an entry and a tag");

/* An entry whose region has gone is not used again before so many other regions have gone, while the table has room. */
#define VB_KEY_REST 16384u
#define VB_KEY_ROOM (VB_SEG_MRS / 4 * 3) /* entries used or resting; above it the oldest rest no longer */

struct vb_keys {
	uint8_t state[VB_SEG_MRS];
	uint32_t rest[VB_KEY_REST]; /* entries, a ring */
	uint32_t resting, rest_head, used;
	uint32_t drawn[256]; /* random words to come: `left` of them */
	uint32_t left;
};

/* A new key, whose entry no region has. Fewer than VB_SEG_MRS keys are in use. 0, or an errno where the kernel gives no random
 * bits; *key is untouched then. keys starts as zeros. */
int vb_key_take(struct vb_keys *keys, uint32_t *key);
/* Its region has gone. */
void vb_key_give_back(struct vb_keys *keys, uint32_t key);

#endif
