// complete.c - completes send requests in posting order
// follows: IBA volume 1, 9.9.2 (requester errors), 10.8.5 (completions)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

static __attribute__((hot)) void complete_oldest(struct vb_roce_qp *qp, enum vb_work_status status)
{
	struct vb_work_sent *s = vb_roce_send_at(qp, qp->rq.head);

	if (qp->rq.cur == qp->rq.head)
		qp->rq.cur++;
	qp->rq.head++;
	qp->ops->complete_send(qp->own, &s->work, status);
}

void vb_roce_requester_flush(struct vb_roce_qp *qp)
{
	while (qp->rq.head != qp->rq.tail)
		complete_oldest(qp, VB_WORK_WR_FLUSH_ERR);
}

/* RC: the QP goes to error. UC, UD: only the send queue does (IBA 10.3.1, SQE); vb_roce_start restarts it. */
void vb_roce_requester_fail(struct vb_roce_qp *qp, enum vb_work_status status)
{
	struct vb_roce_requester *rq = &qp->rq;

	complete_oldest(qp, status);
	if (qp->cfg.type == VB_ROCE_RC) {
		vb_roce_kill(qp, VB_WORK_EVENT_SQ);
		return;
	}
	vb_roce_requester_flush(qp);
	rq->started = false;
	rq->taken_seq = rq->una = rq->high = rq->seq;
	qp->ops->failed(qp->own, VB_WORK_EVENT_SQ);
}

__attribute__((hot)) void vb_roce_requester_retire(struct vb_roce_qp *qp)
{
	struct vb_roce_requester *rq = &qp->rq;

	while (rq->head != rq->tail) {
		struct vb_work_sent *s = vb_roce_send_at(qp, rq->head);

		if (s->status) {
			vb_roce_requester_fail(qp, s->status);
			return;
		}
		if (s->work.verb == VB_VERB_LOCAL_INV ? !s->done : s->seq + s->packets > rq->una)
			return;
		complete_oldest(qp, VB_WORK_SUCCESS);
	}
}
