// pace.h - chooses how large RDMA operations travel: by one copy of the requester, or in the ring, copied by both ends
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_PACE_H
#define VB_ENGINE_LOCAL_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/local/choice.h"

/* Shorter operations always travel by one copy. */
#define VB_PACE_MIN 8192u

enum vb_rdma_way {
	VB_RDMA_COPY, /* one copy, by the requester */
	VB_RDMA_RING, /* the peer takes part */
	VB_RDMA_WAYS,
};

/*
 * What the operations of one queue pair and one class of lengths took. From time to time a trial: some operations by
 * each way, measured. The faster way wins by a fifth or more, so that the choice does not swing. All zeros is a valid
 * start. Under sq_lock.
 */
struct vb_pace {
	uint8_t way; /* enum vb_rdma_way, outside trials */
	uint8_t stage;
	uint32_t sent;     /* operations sent in this stage */
	uint32_t interval; /* operations between two trials; 0: there was none yet */
	struct {
		bool begun; /* the first measured operation has completed: it only sets done_at */
		uint64_t ns, bytes;
	} seen[VB_RDMA_WAYS]; /* in this trial */
	uint64_t done_at;     /* when the last measured operation was completed */
};

/* The way that VERBENA_RDMA forces. */
enum vb_forced vb_pace_forced(void);
/* How the next operation travels, if it is sent now. Changes nothing. */
enum vb_rdma_way vb_pace_way(const struct vb_pace *p);
/* An operation is sent by the way that vb_pace_way chose. Returns the time if it is to be measured, else 0. */
uint64_t vb_pace_sent(struct vb_pace *p);
/* It has completed. begun: what vb_pace_sent returned. */
void vb_pace_done(struct vb_pace *p, enum vb_rdma_way way, uint64_t begun, uint32_t bytes);
/* The peer did not take part in time: one copy for a while. */
void vb_pace_failed(struct vb_pace *p);

#endif
