// yield.h - a program that polls in vain gives way
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_YIELD_H
#define VB_NODE_YIELD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"

/* Called after so many polls of cq in vain (NULL: a counter was read). Returns whether other threads may have run
 * meanwhile. */
bool vb_yield(struct vb_node *node, struct vb_cq *cq, uint32_t polls);
/* The program does not poll in vain. */
static inline void vb_yield_not(struct vb_node *node, struct vb_cq *cq)
{
	atomic_store_explicit(&node->empty_polls, 0, memory_order_relaxed);
	atomic_store_explicit(&node->naps, 0, memory_order_relaxed);
	if (cq)
		atomic_store_explicit(&cq->seen, atomic_load_explicit(&cq->tail, memory_order_relaxed),
		                      memory_order_relaxed);
}

#endif
