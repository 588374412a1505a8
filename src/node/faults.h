// faults.h - fault injection in this process
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_FAULTS_H
#define VB_NODE_FAULTS_H

#include "node/io.h"

/* Reads VERBENA_FAULT at the first start, and serves the control verbs. Called by node.c when the node starts, before its
 * first queue pair. */
void vb_faults_start(struct vb_node *node);
/* Ends the thread of fault injection. Called before the node is freed. */
void vb_faults_stop(void);
void vb_faults_in_child(void);

#endif
