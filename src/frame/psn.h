// psn.h - packet sequence numbers: 24 bits, and their order
// follows: IBA volume 1, 9.7.1 (packet sequence numbers)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_PSN_H
#define VB_FRAME_PSN_H

#include <stdbool.h>
#include <stdint.h>

#include "frame/fields.h"

/* A struct, so that a PSN cannot be added to or compared with a plain number. v is below 2^24. */
struct vb_psn {
	uint32_t v;
};

/* Makes a PSN of the low 24 bits, as a program gives them in sq_psn and rq_psn. */
static inline struct vb_psn vb_psn(uint32_t v)
{
	return (struct vb_psn){v & VB_PSN_MASK};
}

static inline struct vb_psn vb_psn_add(struct vb_psn psn, int32_t n)
{
	return vb_psn(psn.v + (uint32_t)n);
}

/* a - b as -2^23 to 2^23 - 1. If b is the expected PSN and the result is negative, a is a duplicate. */
static inline int32_t vb_psn_diff(struct vb_psn a, struct vb_psn b)
{
	uint32_t ahead = (a.v - b.v) & VB_PSN_MASK;

	return ahead < VB_PSN_HALF ? (int32_t)ahead : (int32_t)(ahead - VB_PSN_MASK - 1);
}

static inline bool vb_psn_equal(struct vb_psn a, struct vb_psn b)
{
	return a.v == b.v;
}

static inline bool vb_psn_before(struct vb_psn a, struct vb_psn b)
{
	return vb_psn_diff(a, b) < 0;
}

#endif
