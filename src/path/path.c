// path.c - chooses a queue pair's path; the path functions of core/node.h
// see: ARCHITECTURE.md, "The tree"
// SPDX-License-Identifier: MIT
#include "path/path.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/device.h"
#include "engine/local/ring.h"
#include "path/roce/roce.h"
#include "util/calls.h"
#include "util/guard.h"
#include "util/log.h"

#define IWARP_WAIT 1000 /* ms: the broker's time to tell whether an iWARP QP's peer is on this host */

const struct vb_transport_ops *const vb_transports[VB_TRANSPORTS] = {
        [VB_TRANSPORT_ROCE] = &vb_roce_transport,
        [VB_TRANSPORT_IWARP] = &vb_iwarp_transport,
};

void vb_path_new(struct vb_qp *qp)
{
	qp->path = qp->type == IBV_QPT_UD ? &vb_datagram_path_ops : &vb_local_path_ops;
}

/* --- the choice --- */

/* Connects the QP to the process of its destination number, if that is on this host and can be met. Returns false if
 * the path is the network, or an iWARP connection. */
static bool connect_here(struct vb_qp *qp, bool iwarp)
{
	struct vb_peer *p;
	int err;

	p = vb_peer_find(qp->node, qp->attr.dest_qp_num, &qp->attr.ah_attr.grh.dgid,
	                 iwarp ? IWARP_WAIT : VB_RESOLVE_WAIT, &err);
	if (!p && (iwarp || ((err == ENOENT || err == EACCES) && !vb_roce_up(qp->node, VB_RESOLVE_WAIT))))
		return false;
	if (err == EAGAIN)
		vb_log(VB_LOG_WARN, "queue pair 0x%x: the broker does not answer where its peer is", qp->qp.qp_num);
	if (p && !vb_peer_hold(p))
		p = NULL;
	/* the peer maps us while it handles the introduction */
	for (int i = 0; p && !vb_peer_ready(p) && vb_peer_alive(p) && i < 1000; i++) {
		struct timespec ts = {0, i < 100 ? 10000 : 1000000};

		if (i % 128 == 127)
			vb_peer_remind(p);
		nanosleep(&ts, NULL);
	}
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	qp->peer = p;
	qp->remote = NULL;
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	if (p)
		vb_peer_release(p);
	return true;
}

/* Undoes an earlier try during which the state changed. */
static void start_over(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	vb_active_collect(qp->node);
	vb_active_remove(qp);
	vb_roce_path_close(qp);
	vb_path_new(qp);
	vb_unresolved_drop(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

void vb_path_connect(struct vb_qp *qp)
{
	bool always = vb_wire_mode() == VB_WIRE_MODE_ALWAYS;
	int err = 0;

	VB_MAY_WAIT();
	vb_guard_install();
	start_over(qp);
	if (vb_ctx(qp->qp.context)->dev->iwarp) {
		if (!always)
			connect_here(qp, true);
	} else if (qp->type == IBV_QPT_UD) {
		qp->roce_always = always;
		/* without RoCE, programs of this host can still be met; and the broker may answer later */
		if (vb_roce_up(qp->node, VB_RESOLVE_WAIT) != ENETUNREACH)
			err = vb_roce_path_open(qp);
	} else if (always) {
		err = vb_roce_up(qp->node, VB_RESOLVE_WAIT);
		if (!err)
			err = vb_roce_path_open(qp);
	} else if (!connect_here(qp, false)) {
		err = vb_roce_path_open(qp);
	}
	if (err)
		vb_log(VB_LOG_WARN, "queue pair 0x%x has no path to the network: %s", qp->qp.qp_num, strerror(err));
	vb_unresolved_check(qp);
}

/* --- functions of core/node.h --- */

void vb_path_settle(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	qp->path->settle(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

void vb_path_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	if (qp->path->entered)
		qp->path->entered(qp, cur, next);
}

bool vb_path_idle(const struct vb_qp *qp)
{
	return qp->path->idle(qp);
}

void vb_path_closing(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	if (qp->path->socket)
		vb_progress_locked(qp->node, NULL, 0, true);
	vb_lock(&qp->sq_lock);
	qp->path->closing(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

void vb_path_abort(struct vb_qp *qp)
{
	if (qp->path->abort)
		qp->path->abort(qp);
}

void vb_path_closed(struct vb_qp *qp)
{
	int cancel;

	vb_cancel_defer(&cancel); /* descriptors are closed, and streams reset */
	qp->path->closed(qp);
	vb_cancel_restore(cancel);
}

void vb_path_reset(struct vb_qp *qp)
{
	int cancel;

	vb_cancel_defer(&cancel);
	qp->path->reset(qp);
	vb_cancel_restore(cancel);
	vb_unresolved_drop(qp);
	vb_path_new(qp);
}
