// stat.h - the verbs of the control socket that show what a program has: devices, queue pairs, CQs, regions
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_STAT_H
#define VB_NODE_STAT_H

struct vb_node;

/* Makes the verbs known: devices, qps, cqs, mrs. */
void vb_stat_start(void);

/* As vb_node_tally, but gives up if a lock is held for long: the program may end in a signal handler. */
void vb_node_tally_at_end(struct vb_node *node);

#endif
