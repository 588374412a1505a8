// stat.h - the verbs of the control socket that show what a program has: devices, queue pairs, CQs, regions
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_STAT_H
#define VB_NODE_STAT_H

/* Makes the verbs known: devices, qps, cqs, mrs. */
void vb_stat_start(void);

#endif
