// flow.h - flow steering: which queue pair of the process receives a frame
// follows: ibv_create_flow(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_FLOW_H
#define VB_CORE_FLOW_H

#include "core/core.h"
#include "core/flow_match.h"

struct vb_flow {
	struct ibv_flow flow;
	struct vb_made made;
	struct vb_qp *qp;
	struct vb_flow *next; /* node->flows, the most important first; under progress */
	uint32_t rank;        /* of the type, then of the program's priority: a small one is asked first */
	uint8_t type;         /* enum ibv_flow_attr_type */
	bool dont_trap;       /* the frame goes on to less important rules */
	struct vb_flow_match match;
	struct vb_flow_counters *counters; /* that it was made with, or NULL; under progress, as points */
	struct vb_counter_point *points;   /* of counters objects that were attached later; freed with the flow */
};

/* Does this queue pair receive the frame? The first rule that matches decides, of all queue pairs of the process on this
 * adapter; a sniffer gets a copy in any case. Each rule of the queue pair that the frame reaches counts it.
 * tag: what its completion will have; 0 without a rule that tags. Under progress. */
bool vb_flow_takes(struct vb_qp *qp, const uint8_t *frame, uint32_t len, uint32_t *tag);

/* What the interface must receive for the rules of a queue pair. Under progress. */
struct vb_flow_wants {
	bool any;    /* it has rules */
	bool all;    /* frames for other stations, too */
	bool groups; /* all groups */
	bool sniffs; /* what this host sends, too */
	unsigned n;  /* addresses of groups and stations; more than fit: all */
	uint8_t mac[16][6];
};
void vb_flow_collect(const struct vb_qp *qp, struct vb_flow_wants *wants);

#endif
