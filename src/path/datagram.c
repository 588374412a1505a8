// datagram.c - the path of UD: shared memory if the receiver is on this host, otherwise packets
// follows: IBA volume 1, 9.8.3
// SPDX-License-Identifier: MIT
#include "core/ah.h"
#include "core/ib.h"
#include "engine/local/local.h"
#include "path/ib/ib.h"
#include "path/path.h"
#include "path/roce/roce.h"

/* Programs of this host are met for each datagram; only the network is looked for. */
static bool datagram_resolved(const struct vb_qp *qp)
{
	return qp->roce && atomic_load(&vb_roce_sockets_for(qp)->up);
}

/* The receiver of a datagram ignores its PSN. */
static void datagram_next_psns(const struct vb_qp *qp, uint32_t *sq_psn, uint32_t *rq_psn)
{
	*sq_psn = qp->psn_next;
	*rq_psn = qp->attr.rq_psn;
}

/* To a multicast group of a fabric no packets go: path/ib/groups.c. */
static enum vb_datagram_result datagram_far(struct vb_qp *qp, struct vb_swqe *w)
{
	bool to_group = qp->ib && vb_ib_is_group_lid(w->ah->attr.dlid);

	return to_group ? vb_ib_datagram(qp, w) : vb_roce_datagram(qp, w);
}

const struct vb_path_ops vb_datagram_path_ops = {
        .name = "datagrams",
        .ring = true,
        .socket = true,
        .kick = vb_local_kick_datagrams,
        .kick_until = vb_local_kick_datagrams_until,
        .settle = vb_local_settle,
        .visit = vb_local_visit,
        .deadline = vb_local_deadline,
        .entered = vb_roce_path_entered,
        .resolved = datagram_resolved,
        .idle = vb_local_idle,
        .closing = vb_local_settle,
        .closed = vb_roce_path_closed,
        .forget_sends = vb_local_forget_sends,
        .next_psns = datagram_next_psns,
        .reset = vb_roce_path_reset,
        .datagram = datagram_far,
        .datagrams_end = vb_roce_datagrams_end,
};
