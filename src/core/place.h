// place.h - the two operations that place data with a promise: ATOMIC WRITE and FLUSH
// follows: IBA annexes A19 (memory placement extensions: FLUSH), A20 (ATOMIC WRITE)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_PLACE_H
#define VB_CORE_PLACE_H

#include "core/node.h"
#include "frame/header.h"

#define VB_ATOMIC_WRITE_LEN 8u
#define VB_FLUSH_MAX 0x80000000u /* bytes of a range: as a message */

/* A flush in a send queue entry: its placement type and level in compare_add, the length of its range in swap. */
static inline struct vb_feth vb_swqe_feth(const struct vb_swqe *w)
{
	return vb_feth_of((uint32_t)w->compare_add);
}

/* Reads the 8 bytes of an atomic write from the program's buffers into w->swap, once: they are the same whenever the
 * request is sent. Under sq_lock. */
enum ibv_wc_status vb_sq_take_word(struct vb_qp *qp, struct vb_swqe *w);

/* The IBV_ACCESS_ rights that a flush of this placement type needs. */
uint32_t vb_flush_access(uint8_t type);

/* Stores a peer's 8 bytes with one store, before which all earlier stores of this process are visible. va: what the
 * peer asked for; it must be aligned, as must the address here. */
enum vb_word_result { VB_WORD_STORED, VB_WORD_DENIED, VB_WORD_MISALIGNED };
enum vb_word_result vb_own_word(struct vb_qp *qp, uint32_t key, uint64_t va, uint64_t value);

/* Executes a peer's flush: false if its key does not allow that. Then all data that this process has stored before is
 * visible. */
bool vb_own_flush(struct vb_qp *qp, uint32_t key, uint64_t va, uint64_t length, struct vb_feth flush);

#endif
