// cq_faulty.c - the polling of completions while a rule of fault injection is about receives
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#include "core/cq.h"
#include "core/device.h"
#include "core/node.h"
#include "core/verbs.h"
#include "fault/set.h"

void vb_cq_judge(struct vb_cq *cq, struct ibv_wc *wc)
{
	const struct vb_fault_subject s = {.kind = VB_FAULT_KIND_RECV,
	                                   .opcode = -1,
	                                   .qpn = wc->qp_num,
	                                   .device = VB_CONTEXT_OF(cq)->dev->dev.name};
	struct vb_fault_verdict v;

	bool op = wc->opcode >= IBV_WC_TM_ADD && wc->opcode <= IBV_WC_TM_SYNC; /* on a list of tags */

	if (wc->status != IBV_WC_SUCCESS || !(wc->opcode & IBV_WC_RECV) || op || !vb_fault_ask_work(&s, &v))
		return;
	if (v.status) { /* the rest as in other failed completions */
		wc->status = v.status;
		wc->byte_len = 0;
		wc->wc_flags = 0;
	}
	if (v.overflow)
		vb_cq_overflow(cq);
	else
		vb_qp_end(cq->node, wc->qp_num, v.fatal);
}

int vb_poll_cq_faulty(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = vb_poll_cq(cq, n, wc);

	for (int i = 0; i < got; i++)
		vb_cq_judge(vb_cq(cq), &wc[i]);
	return got;
}
