// uc.c - what an unreliable connection makes of gaps
// follows: IBA volume 1, 9.8.2.2 (UC responder)
// SPDX-License-Identifier: MIT
#include "engine/wire/machine.h"

/*
 * A gap ends the message that was under way, without a word to anybody, and its receive is used for the next. What then
 * comes is dropped up to the next FIRST or ONLY. A message that is cut off by a new one is dropped too.
 */
bool vb_uc_in_sequence(struct vb_wire_qp *qp, const struct vb_packet *p)
{
	struct vb_wire_responder *rs = &qp->rs;
	bool first = p->info->flags & VB_FIRST, gap = !vb_psn_equal(p->bth.psn, rs->epsn);

	rs->epsn = vb_psn_add(p->bth.psn, 1);
	if (rs->in.active && (gap || first)) {
		rs->in.active = false;
		qp->stats.drop_sequence++;
	}
	if (first) {
		rs->in.drop = false;
		return true;
	}
	if (!gap && !rs->in.drop && rs->in.active)
		return true;
	rs->in.drop = true;
	qp->stats.drop_sequence++;
	return false;
}
