// choice.h - chooses how a large SEND travels: in the ring, or fetched by the receiver in one copy
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_CHOICE_H
#define VB_ENGINE_LOCAL_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/seg.h"

/* Shorter SENDs always travel in the ring. */
#define VB_CHOICE_MIN 8192u

/* VERBENA_SENDS, VERBENA_RDMA: one way for all large messages, or a new choice at each. For tests and figures. */
enum vb_forced { VB_LEARN = 1, VB_FORCE_RING, VB_FORCE_COPY, VB_FORCE_RANDOM };

/* What an environment variable forces. copy: its word for one copy. The variable is read once; *known, 0 at first, keeps
 * the answer. */
enum vb_forced vb_forced_way(const char *variable, const char *copy, _Atomic int *known);

/* What a copy costs, in ns per 64 KiB; 0: not measured yet. Single copies that were interrupted count little. */
struct vb_cost {
	uint32_t ns;
	uint32_t copies; /* copies made, measured or not */
};

/* The time, if the next copy is to be measured; else 0. The first copies are, and every sixteenth later. */
uint64_t vb_cost_begin(struct vb_cost *c);
/* Takes the copy of so many bytes into account. begin: what vb_cost_begin returned. Returns whether c->ns is new. */
bool vb_cost_end(struct vb_cost *c, uint64_t begin, uint64_t bytes);

/* The sender's view of one class of lengths (VB_CHOICE_CLASSES). Under tx_lock. */
struct vb_choice {
	struct vb_cost ring;     /* our copies into the ring */
	enum vb_send_way way;    /* how SENDs travel now */
	uint32_t sends;          /* of this class */
	uint32_t look, interval; /* at this count the other way is tried again, and after how many then */
};

static inline unsigned vb_choice_class(uint64_t length)
{
	return length > VB_RING_PIECE;
}

/*
 * How the next SEND of this class travels. theirs: the costs that the receiver has published; its values are hints,
 * and any value is harmless. The cheaper way wins by a fifth or more, so that the choice does not swing.
 */
enum vb_send_way vb_choose(struct vb_choice *c, const struct vb_send_costs *theirs);

#endif
