// passed.c - requests to an XRC target that its owner passes on, because another one has the SRQ
// follows: IBA volume 1, annexes A14 (XRC), A19, A20; 9.7.5 (acknowledgements)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

/* They are in sequence, and count as received. The owner says when they are executed: then they are acknowledged. */

/* An atomic waits for its result, a flush and an atomic write until they are executed. */
static void add_answer(struct vb_roce_qp *qp, const struct vb_packet *p)
{
	bool atomic = p->info->ext & VB_EXT_ATOMIC;
	struct vb_roce_resource r = {.atomic = atomic,
	                             .placed = atomic ? 0 : p->info->op,
	                             .waits = true,
	                             .psn = p->bth.psn,
	                             .packets = 1,
	                             .va = atomic ? p->atomic.va : p->reth.va,
	                             .rkey = atomic ? p->atomic.rkey : p->reth.rkey,
	                             .msn = (qp->rs.msn + 1) & VB_MSN_MASK};

	vb_roce_resource_add(qp, &r);
}

bool vb_roce_pass_on(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload)
{
	struct vb_roce_responder *rs = &qp->rs;
	bool write = p->info->op == VB_OP_WRITE;

	if (!qp->ops->pass(qp->own, p, payload, &rs->in, p->bth.psn, rs->msn))
		return false;
	if (p->info->flags & VB_ANSWERED)
		add_answer(qp, p);
	rs->kept_in = write && !(p->info->flags & VB_FIRST) && p->info->ext & VB_EXT_IMMDT;
	if (rs->kept_in) {
		rs->in_before = rs->in;
		rs->in_psn = p->bth.psn;
	}
	if (write) {
		rs->in.va += p->payload_len;
		rs->in.left -= p->payload_len;
	}
	return true;
}

void vb_roce_passed_again(struct vb_roce_qp *qp)
{
	struct vb_roce_responder *rs = &qp->rs;

	if (qp->dead || rs->owed > VB_ROCE_ACK)
		return;
	vb_roce_owe_nak(qp, VB_NAK_PSN_SEQUENCE, rs->epsn);
	rs->refused = true;
}

void vb_roce_passed_executed(struct vb_roce_qp *qp, uint64_t now)
{
	vb_roce_owe_ack(qp, now);
	qp->rs.ack_at = 0;
}

void vb_roce_passed_result(struct vb_roce_qp *qp, struct vb_psn psn, uint64_t value)
{
	for (uint32_t i = qp->rs.res_head; i != qp->rs.res_tail; i++) {
		struct vb_roce_resource *r = &qp->rs.res[i % VB_ROCE_MAX_RESOURCES];

		if (r->waits && vb_psn_equal(r->psn, psn)) {
			r->original = value;
			r->waits = false;
		}
	}
}

void vb_roce_passed_rnr(struct vb_roce_qp *qp, struct vb_psn psn, uint32_t msn)
{
	struct vb_roce_responder *rs = &qp->rs;

	if (qp->dead)
		return;
	/* the peer repeats the reads behind it */
	while (rs->res_tail != rs->res_head) {
		struct vb_roce_resource *r = &rs->res[(rs->res_tail - 1) % VB_ROCE_MAX_RESOURCES];

		if (vb_psn_diff(r->psn, psn) < 0)
			break;
		rs->unanswered -= r->next != r->end;
		rs->res_tail--;
	}
	rs->epsn = psn;
	rs->msn = msn;
	if (rs->kept_in && vb_psn_equal(rs->in_psn, psn))
		rs->in = rs->in_before;
	else
		rs->in.active = false;
	vb_roce_owe_rnr(qp);
	vb_roce_ahead_drop(qp);
	rs->refused = rs->not_ready = true;
}

void vb_roce_passed_refused(struct vb_roce_qp *qp, enum vb_refusal why, struct vb_psn psn)
{
	if (qp->dead)
		return;
	qp->rs.unanswered = 0;
	qp->rs.res_head = qp->rs.res_tail;
	vb_roce_responder_refuse(qp, why, psn);
}

struct vb_psn vb_roce_unanswered_psn(struct vb_roce_qp *qp)
{
	const struct vb_roce_resource *r = vb_roce_resource_unanswered(qp);

	return r ? vb_psn_add(r->psn, (int32_t)r->next) : qp->rs.epsn;
}
