// ack.c - publishes the acknowledgements of the queue pairs that have executed requests
// follows: IBA volume 1, 9.7.5.1 (acknowledgements), as counters in shared memory
// SPDX-License-Identifier: MIT
#include "engine/local/responder.h"

static void publish_ack(struct vb_qp *qp)
{
	uint64_t n = atomic_load_explicit(&qp->local.executed, memory_order_relaxed);

	if (n != qp->local.taken)
		atomic_store_explicit(&qp->shared->taken, qp->local.taken, memory_order_release);
	if (atomic_load_explicit(&qp->local.ack_sent, memory_order_relaxed) != n || qp->local.nak_state) {
		atomic_store_explicit(&qp->shared->acked, n, memory_order_release);
		atomic_store_explicit(&qp->local.ack_sent, n, memory_order_relaxed);
		if (qp->local.peer)
			qp->local.peer->ack_doorbell = true;
	}
}

void vb_local_publish_acks(struct vb_node *node)
{
	struct vb_qp *again = NULL;

	while (node->acks) {
		struct vb_qp *qp = node->acks;
		struct vb_peer *peer = qp->local.peer;

		node->acks = qp->local.acks_next;
		qp->local.on_acks = false;
		if (qp->local.inread && qp->local.inread_head != qp->local.inread_tail && peer && vb_peer_alive(peer)) {
			vb_local_serve_reads(qp); /* may put the QP back into the list */
			if (qp->local.on_acks) {
				node->acks = qp->local.acks_next;
				qp->local.acks_next = again;
				again = qp;
			}
		}
		publish_ack(qp);
		if (peer && peer->ack_doorbell) {
			peer->ack_doorbell = false;
			vb_peer_notify(peer);
		}
	}
	node->acks = again;
}
