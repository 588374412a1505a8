// active.h - the list of queue pairs that the owner of progress visits
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_ACTIVE_H
#define VB_CORE_ACTIVE_H

#include "core/node.h"

/* Moves newly active QPs into node->active. Under progress. */
void vb_active_collect(struct vb_node *node);
void vb_active_remove(struct vb_qp *qp);
/* Called by the sending side: adds the QP to the list. Under sq_lock. */
void vb_active_add(struct vb_qp *qp);

#endif
