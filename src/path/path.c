// path.c - chooses a queue pair's path; the path functions of core/node.h
// see: ARCHITECTURE.md, "The tree"
// SPDX-License-Identifier: MIT
#include "path/path.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "capture/capture.h"
#include "core/device.h"
#include "core/qp.h"
#include "engine/local/local.h"
#include "engine/local/ring.h"
#include "path/ib/ib.h"
#include "path/roce/roce.h"
#include "path/wire_mode.h"
#include "util/calls.h"
#include "util/guard.h"
#include "util/log.h"

#define ONLY_WAIT \
	1000 /* ms; how long ibv_modify_qp waits for the broker to find a QP's peer, if RoCE is no other way */

const struct vb_transport_ops *const vb_transports[VB_TRANSPORTS] = {
        [VB_TRANSPORT_ROCE] = &vb_roce_transport,
        [VB_TRANSPORT_IWARP] = &vb_iwarp_transport,
        [VB_TRANSPORT_RAW] = &vb_raw_transport,
        [VB_TRANSPORT_IB] = &vb_ib_transport,
};

void vb_path_none(struct vb_qp *qp)
{
	if (qp->ib) {
		vb_path_use(qp, qp->type == IBV_QPT_UD ? &vb_ib_datagram_path_ops : &vb_ib_path_ops);
		return;
	}
	vb_path_use(qp, qp->type == IBV_QPT_UD           ? &vb_datagram_path_ops
	                : qp->type == IBV_QPT_RAW_PACKET ? &vb_raw_path_ops
	                                                 : &vb_local_path_ops);
}

/* --- the choice --- */

static void report_silence(const struct vb_qp *qp)
{
	static atomic_bool said;

	vb_log(atomic_exchange(&said, true) ? VB_LOG_WARN : VB_LOG_ERROR,
	       "queue pair 0x%x: the broker does not answer where its peer is (verbena doctor tells whether it is stopped)",
	       qp->qp.qp_num);
}

/* Connects the QP to the process that owns its destination QP number, if that process is on this host and the broker
 * can introduce it. Returns false if the path is the network or an iWARP connection. True: the peer of this host, or
 * none yet; then the QP is unresolved. only: RoCE is no other way. */
static bool settle_on_this_host(struct vb_qp *qp, bool only)
{
	struct vb_peer *p;
	int err;

	p = vb_peer_find(qp->node, qp->attr.dest_qp_num, &qp->met, only ? ONLY_WAIT : VB_RESOLVE_WAIT, &err);
	if (!p && (only || ((err == ENOENT || err == EACCES) && !vb_roce_bring_up(qp->node, VB_RESOLVE_WAIT))))
		return false;
	if (err == EAGAIN)
		report_silence(qp);
	if (p && !vb_peer_hold(p))
		p = NULL;
	/* wait until the peer has handled our introduction and mapped our segment */
	for (int i = 0; p && !vb_peer_ready(p) && vb_peer_alive(p) && i < 1000; i++) {
		struct timespec ts = {0, i < 100 ? 10000 : 1000000};

		if (i % 128 == 127)
			vb_peer_remind(p);
		nanosleep(&ts, NULL);
	}
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	qp->local.peer = p;
	qp->local.remote = NULL;
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	if (p)
		vb_peer_release(p);
	return true;
}

/* Undoes an earlier attempt that a state change interrupted. */
static void start_over(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	vb_active_collect(qp->node);
	vb_active_remove(qp);
	vb_roce_path_close(qp);
	vb_path_none(qp);
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
	if (qp->type == IBV_QPT_RAW_PACKET)
		return; /* it has its socket since its creation */
	if (vb_qp_is_iwarp(qp)) {
		if (!always)
			settle_on_this_host(qp, true);
		return; /* its connection resolves it */
	}
	if (qp->ib) {
		if (vb_ib_connect(qp))
			settle_on_this_host(qp, true);
		return; /* the requester looks for a peer that is not there yet */
	}
	if (qp->type == IBV_QPT_UC || qp->type == IBV_QPT_UD)
		vb_roce_ring_forbid(qp->node);
	if (qp->type == IBV_QPT_UD) {
		qp->datagram.roce_always = always;
		/* without RoCE the QP still reaches programs of this host, and the broker may answer later */
		if (vb_roce_bring_up(qp->node, VB_RESOLVE_WAIT) != ENETUNREACH)
			err = vb_roce_path_open(qp);
	} else if (always) {
		err = vb_roce_bring_up(qp->node, VB_RESOLVE_WAIT);
		if (!err)
			err = vb_roce_path_open(qp);
	} else if (!settle_on_this_host(qp, false)) {
		err = vb_roce_path_open(qp);
	}
	if (err)
		vb_log(VB_LOG_WARN, "queue pair 0x%x has no path to the network: %s", qp->qp.qp_num, strerror(err));
	vb_unresolved_check(qp);
}

/* --- functions of core/node.h --- */

void vb_path_ah_made(struct vb_ah *ah)
{
	struct vb_context *ctx = VB_CONTEXT_OF(ah);

	if (ctx->dev->ib)
		vb_ib_ah_made(ah);
	else
		vb_peer_address(ctx->node, &ah->met);
}

void vb_path_ah_ends(struct vb_ah *ah)
{
	if (ah->way)
		vb_ib_way_put(VB_CONTEXT_OF(ah)->node, ah->way);
}

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
	if (vb_capturing() && qp->path->ring && cur == IBV_QPS_RTR)
		vb_local_frames_open(qp);
}

void vb_path_moved(struct vb_qp *qp)
{
	if (qp->ib)
		vb_ib_moved(qp);
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

	vb_cancel_defer(&cancel); /* closed() closes descriptors and resets streams */
	qp->path->closed(qp);
	vb_cancel_restore(cancel);
}

void vb_path_reset(struct vb_qp *qp)
{
	int cancel;

	vb_local_counts_leave(qp);
	if (qp->type == IBV_QPT_XRC_RECV)
		vb_relay_reset(qp);
	vb_cancel_defer(&cancel);
	qp->path->reset(qp);
	vb_cancel_restore(cancel);
	vb_unresolved_drop(qp);
	vb_path_none(qp);
}
