// counts.c - the counters of a queue pair's traffic on this host
// see: core/counts.h
// SPDX-License-Identifier: MIT
#include "core/device.h"
#include "core/qp.h"
#include "engine/local/local.h"
#include "engine/local/peer.h"

/* What the peer has copied by itself: its segment has the numbers. They are only shown, so they need not be true. */
static void add_copied_by_peer(const struct vb_qp *qp, struct vb_counts *c)
{
	struct vb_peer *peer = qp->local.peer;

	if (qp->type == IBV_QPT_UD || !peer || !vb_peer_ready(peer))
		return;
	struct vb_qp_shared *theirs = vb_seg_qp(peer->seg, qp->attr.dest_qp_num);

	if (atomic_load_explicit(&theirs->qpn, memory_order_relaxed) != qp->attr.dest_qp_num ||
	    atomic_load_explicit(&theirs->dest_qpn, memory_order_relaxed) != qp->qp.qp_num)
		return;
	c->port_rcv_data += atomic_load_explicit(&theirs->copied[0], memory_order_relaxed);
	c->port_xmit_data += atomic_load_explicit(&theirs->copied[1], memory_order_relaxed);
}

/* Other threads may send meanwhile: what people see may be a moment old. */
__attribute__((no_sanitize("thread"))) void vb_local_counts(const struct vb_qp *qp, struct vb_counts *c)
{
	const struct vb_local_sent *s = &qp->local.sent;
	const struct vb_local_received *r = &qp->local.received;

	c->port_xmit_data += qp->local.sent_bytes[0] + qp->local.received_bytes[1];
	c->port_rcv_data += qp->local.received_bytes[0] + qp->local.sent_bytes[1];
	c->port_xmit_packets += qp->local.ssn_emit + s->messages;
	c->port_rcv_packets += qp->local.taken + r->datagrams;
	c->rnr_nak_retry_err += s->rnr_naks;
	c->local_ack_timeout_err += s->timeouts;
	c->out_of_sequence += r->ahead;
	c->duplicate_request += r->duplicates;
	c->out_of_buffer += r->no_receive;
	c->qkey_viol_cntr += r->wrong_qkey;
	c->bad_pkey_cntr += r->wrong_pkey;
	add_copied_by_peer(qp, c);
}

void vb_local_counts_leave(struct vb_qp *qp)
{
	struct vb_device *dev = vb_qp_device(qp);

	if (dev)
		vb_local_counts(qp, &dev->ended);
	qp->local.sent = (struct vb_local_sent){0};
	qp->local.received = (struct vb_local_received){0};
	for (int i = 0; i < 2; i++)
		qp->local.sent_bytes[i] = qp->local.received_bytes[i] = 0;
	atomic_store_explicit(&qp->shared->copied[0], 0, memory_order_relaxed);
	atomic_store_explicit(&qp->shared->copied[1], 0, memory_order_relaxed);
}
