// fault.h - fault injection: VERBENA_FAULT
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_ROCE_FAULT_H
#define VB_PATH_ROCE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Faults in the RoCE packets that this process sends. VERBENA_FAULT="loss=1,dup=5,reorder=5,corrupt=0.1,seed=7" gives
 * percentages (0 to 100, fractions allowed), independent for each packet. The same seed and the same packets give the
 * same faults. Unknown words are logged and ignored.
 */
enum { VB_FAULT_LOSE = 1, VB_FAULT_REPEAT = 2, VB_FAULT_HOLD = 4, VB_FAULT_CORRUPT = 8 };

struct vb_fault;

/* Returns NULL if VERBENA_FAULT requests no faults. */
struct vb_fault *vb_fault_new(void);
void vb_fault_free(struct vb_fault *f);

/* Draws the faults of the next packet. */
unsigned vb_fault_next(struct vb_fault *f);
/* Copies and holds a packet, with a tag (its address), until some later packets are sent. Returns false if it cannot,
 * because another packet is held. */
bool vb_fault_hold(struct vb_fault *f, const uint8_t *packet, size_t len, const void *tag, size_t tag_len);
/* Copies out the held packet and its tag if it is due. Returns its length, otherwise 0. */
size_t vb_fault_release(struct vb_fault *f, uint8_t *packet, void *tag, size_t tag_len);
/* Inverts one random bit. */
void vb_fault_corrupt(struct vb_fault *f, uint8_t *packet, size_t len);

#endif
