// active.c - the list of queue pairs with unfinished or recent work, which the owner of progress visits
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "core/active.h"

__attribute__((hot)) void vb_active_add(struct vb_qp *qp)
{
	struct vb_node *node = qp->node;

	if (atomic_exchange(&qp->on_active, true))
		return;
	struct vb_qp *head = atomic_load_explicit(&node->active_new, memory_order_relaxed);

	do
		qp->active_new_next = head;
	while (!atomic_compare_exchange_weak_explicit(&node->active_new, &head, qp, memory_order_release,
	                                              memory_order_relaxed));
}

__attribute__((hot)) void vb_active_collect(struct vb_node *node)
{
	if (!atomic_load_explicit(&node->active_new, memory_order_relaxed))
		return;
	struct vb_qp *qp = atomic_exchange_explicit(&node->active_new, NULL, memory_order_acquire);

	while (qp) {
		struct vb_qp *next = qp->active_new_next;

		qp->active_idle = 0;
		qp->active_next = node->active;
		qp->active_prev = &node->active;
		if (qp->active_next)
			qp->active_next->active_prev = &qp->active_next;
		node->active = qp;
		qp = next;
	}
}

void vb_active_remove(struct vb_qp *qp)
{
	if (!qp->active_prev)
		return;
	if (qp->node->active_cursor == qp)
		qp->node->active_cursor = qp->active_next;
	*qp->active_prev = qp->active_next;
	if (qp->active_next)
		qp->active_next->active_prev = qp->active_prev;
	qp->active_prev = NULL;
	atomic_store(&qp->on_active, false);
}
