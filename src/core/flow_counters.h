// flow_counters.h - counters objects: the frames and bytes that rules of flow steering take
// follows: ibv_create_counters(3), ibv_attach_counters_point_flow(3), ibv_read_counters(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_FLOW_COUNTERS_H
#define VB_CORE_FLOW_COUNTERS_H

#include "core/core.h"

#define VB_COUNTER_INDEXES 1024u /* an index is below it */

/* What one index shows: value + packets * the object's packets + bytes * the object's bytes. */
struct vb_counter {
	uint64_t value;
	uint32_t packets, bytes; /* how often each was attached */
};

struct vb_flow_counters {
	struct ibv_counters counters;
	struct vb_made made; /* no handle */
	struct vb_node *node;
	/* the rest under progress */
	struct vb_flow_counters *next; /* node->counters */
	uint64_t packets, bytes;       /* of the flows that were made with this object */
	unsigned bound;                /* flows that were made with this object */
	unsigned points;               /* points at existing flows */
	struct vb_counter counter[VB_COUNTER_INDEXES];
};

/* A point at an existing flow. */
struct vb_counter_point {
	struct vb_counter_point *next;
	struct vb_flow_counters *counters;
	uint32_t index;
	bool bytes;
};

/* Binds a new flow of this context to the object, which cannot be destroyed from then on. EINVAL: it is no object of that
 * context; another thread may just have destroyed it. No lock held. */
int vb_counters_bind(struct vb_flow *flow, const struct ibv_counters *counters, const struct ibv_context *context);
/* The flow ends. Under progress. */
void vb_counters_leave(struct vb_flow *flow);
/* A frame of this length reached the flow. Under progress. */
void vb_counters_count(struct vb_flow *flow, uint32_t len);

#endif
