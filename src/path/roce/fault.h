// fault.h - a bad network on purpose: VERBENA_FAULT
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_ROCE_FAULT_H
#define VB_PATH_ROCE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What happens to packets that this process sends on the wire:
 * VERBENA_FAULT="loss=1,dup=5,reorder=5,corrupt=0.1,seed=7", in percent (0 to 100, fractions allowed), each packet by
 * itself. Same seed, same packets: same faults. Unknown words are complained of and ignored.
 */
enum { VB_FAULT_LOSE = 1, VB_FAULT_REPEAT = 2, VB_FAULT_HOLD = 4, VB_FAULT_CORRUPT = 8 };

struct vb_fault;

/* NULL: VERBENA_FAULT asks for none. */
struct vb_fault *vb_fault_new(void);
void vb_fault_free(struct vb_fault *f);

/* What is to happen to the next packet. */
unsigned vb_fault_next(struct vb_fault *f);
/* Keeps it until some later packets have gone; false: another is being kept. */
bool vb_fault_hold(struct vb_fault *f, const uint8_t *packet, size_t len, const void *tag, size_t tag_len);
/* The one that was kept, if its time has come: its length, else 0. */
size_t vb_fault_release(struct vb_fault *f, uint8_t *packet, void *tag, size_t tag_len);
/* Flips a bit. */
void vb_fault_corrupt(struct vb_fault *f, uint8_t *packet, size_t len);

#endif
