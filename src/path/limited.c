// limited.c - path operations of a queue pair whose rate has a limit, where no packets are made: each request has its time
// follows: ibv_modify_qp_rate_limit(3)
// see: core/rate.h; path/roce/limited.c and path/raw have packets, and iWARP's TCP has a pace of its own
// SPDX-License-Identifier: MIT
#include "engine/local/local.h"
#include "path/path.h"

/* The paths without packets, and the same with ours in place of some operations. Filled at first use, under lock. */
static const struct vb_path_ops *const unlimited[] = {&vb_local_path_ops, &vb_ib_path_ops, &vb_datagram_path_ops,
                                                      &vb_ib_datagram_path_ops};
#define PATHS (sizeof(unlimited) / sizeof(unlimited[0]))
static struct vb_lock fill_lock;
static struct vb_path_ops limited[PATHS];

static enum vb_sq_status limited_kick_until(struct vb_qp *qp, uint32_t end)
{
	const struct vb_path_ops *ops = vb_path_unlimited(vb_path_plain(qp));
	enum vb_sq_status status;
	uint32_t granted;

	do { /* again if requests have left that were let leave before */
		granted = vb_rate_grant(qp, end);
		status = ops->kick_until(qp, granted);
	} while (status == VB_SQ_GOOD && !qp->rate.due && granted != end && qp->sq_emit == granted);
	if (qp->rate.due)
		vb_timer_at(qp->node, qp->rate.due);
	return status;
}

static enum vb_sq_status limited_kick(struct vb_qp *qp)
{
	return limited_kick_until(qp, qp->sq_head);
}

static uint64_t limited_deadline(struct vb_qp *qp)
{
	uint64_t at = vb_local_deadline(qp), due = 0;

	vb_lock(&qp->sq_lock);
	if (atomic_load(&qp->state) == IBV_QPS_RTS && qp->rate.granted != qp->sq_head)
		due = qp->rate.due;
	vb_unlock(&qp->sq_lock);
	return due && (!at || due < at) ? due : at;
}

static void limited_forget_sends(struct vb_qp *qp)
{
	vb_rate_forget(qp);
	vb_local_forget_sends(qp);
}

static void fill(unsigned i)
{
	vb_lock(&fill_lock);
	if (!limited[i].name) {
		struct vb_path_ops ops = *unlimited[i];

		ops.kick = limited_kick;
		ops.kick_until = limited_kick_until;
		ops.deadline = limited_deadline;
		ops.forget_sends = limited_forget_sends;
		limited[i] = ops;
	}
	vb_unlock(&fill_lock);
}

const struct vb_path_ops *vb_path_limited(const struct vb_path_ops *ops)
{
	for (unsigned i = 0; i < PATHS; i++)
		if (ops == unlimited[i]) {
			fill(i);
			return &limited[i];
		}
	return ops;
}

const struct vb_path_ops *vb_path_unlimited(const struct vb_path_ops *ops)
{
	return ops >= limited && ops < limited + PATHS ? unlimited[ops - limited] : ops;
}

void vb_path_limited_in_child(void)
{
	vb_lock_reset(&fill_lock);
}

void vb_path_limit(struct vb_qp *qp)
{
	vb_path_use(qp, vb_path_unlimited(vb_path_plain(qp)));
}
