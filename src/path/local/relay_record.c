// relay_record.c - passes on what a requester of this host sends to an XRC target
// follows: IBA volume 1, 9.7.4.1 (checks of the responder); annexes A14 (XRC), A19, A20
// SPDX-License-Identifier: MIT
#include "core/place.h"
#include "engine/local/responder.h"
#include "path/local/relay_state.h"
#include "util/units.h"

#define STALL_MAX \
	VB_MS(100) /* ns: how long a record waits in the ring, and others behind it, for room in the next ring */

/* IBA 9.7.4.1.4: what the target does not allow is an invalid request. The guest looks at the rest. */
static bool is_allowed(const struct vb_qp *qp, const struct vb_local_req *q)
{
	struct vb_feth flush = vb_feth_of((uint32_t)q->ext.compare_add);

	switch (q->type) {
	case VB_REC_SEND:
		return true;
	case VB_REC_WRITE:
		return vb_local_allows(qp, IBV_ACCESS_REMOTE_WRITE);
	case VB_REC_ATOMIC:
		return qp->attr.max_dest_rd_atomic && vb_local_allows(qp, IBV_ACCESS_REMOTE_ATOMIC) &&
		       !(q->ext.remote_addr & 7);
	case VB_REC_ATOMIC_WRITE:
		return qp->attr.max_dest_rd_atomic && vb_local_allows(qp, IBV_ACCESS_REMOTE_WRITE);
	case VB_REC_FLUSH:
		return qp->attr.max_dest_rd_atomic && vb_feth_is_known(flush) &&
		       vb_local_allows(qp, vb_flush_access(flush.type));
	default:
		return false;
	}
}

/* There is no room for it. The beginning of a message is dropped, and asked for again. A later piece waits in the ring,
 * because the whole message would have to be repeated; but not for long, because it stops others. */
static enum vb_verdict wait_for_room(struct vb_qp *qp, struct vb_local_req *q)
{
	struct vb_relay *r = qp->xrc.relay;
	uint64_t now = vb_now();

	if (q->flags & VB_RECF_FIRST)
		return VB_VERDICT_AGAIN;
	if (!r->stalled_since)
		r->stalled_since = now;
	if (now - r->stalled_since > STALL_MAX) {
		r->stalled_since = 0;
		r->in_message = false;
		return VB_VERDICT_AGAIN;
	}
	r->dropped = false;
	r->stalled = true;
	q->held = true;
	return VB_VERDICT_HELD;
}

enum vb_verdict vb_relay_record(struct vb_qp *qp, struct vb_local_req *q)
{
	struct vb_relay *r = qp->xrc.relay;
	bool atomic = q->type == VB_REC_ATOMIC, last = q->flags & VB_RECF_LAST;
	bool carries = q->type == VB_REC_SEND || q->type == VB_REC_WRITE;

	if (q->type == VB_REC_READ) {
		q->there = true;
		return vb_local_accept_read(qp, q);
	}
	if (!is_allowed(qp, q))
		return VB_VERDICT_INVALID;
	if (!(q->flags & VB_RECF_FIRST) && !r->in_message)
		return VB_VERDICT_DROP;
	struct vb_relayed what = {.type = q->type,
	                          .flags = q->flags & ~(q->type == VB_REC_WRITE ? VB_RECF_MAY_HOLD : 0),
	                          .srqn = q->rec.ack,
	                          .imm = q->rec.imm,
	                          .length = carries ? q->rec.length : 0,
	                          .ext = q->ext,
	                          .payload = q->payload,
	                          .psn = qp->local.epsn,
	                          .slot = VB_REC_SLOT(&q->ext),
	                          .count = qp->local.taken,
	                          .alone = atomic};

	if (atomic)
		VB_REC_SLOT(&what.ext) = VB_RELAY_SLOT;
	if (!vb_relay_put(qp, &what))
		return wait_for_room(qp, q);
	r->stalled_since = 0;
	qp->local.received_bytes[0] += q->type == VB_REC_ATOMIC_WRITE ? VB_ATOMIC_WRITE_LEN : what.length;
	if (last)
		vb_local_count_taken(qp);
	return VB_VERDICT_OK;
}
