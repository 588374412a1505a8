// unresolved.c - retries path resolution for queue pairs that had no path at RTR
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "engine/local/peer.h"
#include "path/roce/roce.h"
#include "path/wire_mode.h"
#include "util/log.h"
#include "util/units.h"

/* The pause between attempts grows by an eighth each time, from FIRST to LONGEST. If a path appears t ns after RTR, the
 * QP finds it about t / 8 ns later, and at most LONGEST later. */
#define FIRST VB_MS(200) /* ns */
#define LONGEST VB_S(60)
#define AT_A_TIME 64         /* queue pairs retried in one hold of the progress lock */
#define SLOTS_AT_A_TIME 1024 /* table entries read in one hold of the progress lock */

/* Under progress + sq_lock. */
static bool lacks_path(const struct vb_qp *qp)
{
	return vb_wire_mode() != VB_WIRE_MODE_NEVER && !vb_path_resolved(qp);
}

void vb_unresolved_drop(struct vb_qp *qp)
{
	qp->node->io->unresolved -= qp->unresolved;
	qp->unresolved = false;
}

void vb_unresolved_check(struct vb_qp *qp)
{
	struct vb_io *io = qp->node->io;

	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	bool lacks = lacks_path(qp) && !qp->unresolved;

	if (lacks) {
		qp->unresolved = true;
		io->unresolved++;
		io->resolve_pause = FIRST;
		atomic_store(&io->resolve_at, vb_now() + FIRST);
	}
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	if (lacks)
		vb_progress_wake(qp->node);
}

void vb_unresolved_again(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_lock(&node->progress);
	if (io->unresolved) {
		io->resolve_pause = FIRST;
		atomic_store(&io->resolve_at, vb_now());
	}
	vb_unlock(&node->progress);
}

/* Resolves the path without waiting. With `ask` it may ask the broker; otherwise it uses the broker's earlier answers
 * only. Returns 0 if it found a peer of this host (*peer) or RoCE is up (*peer is NULL). */
static int resolve_path(struct vb_qp *qp, bool ask, struct vb_peer **peer)
{
	const union ibv_gid *dgid = &qp->met;
	int err = 0;

	*peer = NULL;
	if (qp->type != IBV_QPT_UD && vb_wire_mode() != VB_WIRE_MODE_ALWAYS) {
		if (ask)
			vb_peer_find(qp->node, qp->attr.dest_qp_num, dgid, 0, &err);
		*peer = vb_peer_known(qp->node, qp->attr.dest_qp_num, dgid, &err);
		if (*peer || (err != ENOENT && err != EACCES))
			return *peer ? 0 : err;
	}
	return vb_roce_bring_up(qp->node, 0);
}

/* Gives the QP the RoCE path, and brings the engine to the QP's present state. */
static int join_roce(struct vb_qp *qp, enum ibv_qp_state state)
{
	const struct vb_path_ops *before = qp->path;
	int err = qp->roce ? 0 : vb_roce_path_open_locked(qp);

	if (err || qp->path == before) /* UD keeps its path */
		return err;
	before->forget_sends(qp);
	if (state == IBV_QPS_RTS || state == IBV_QPS_SQD)
		qp->path->entered(qp, IBV_QPS_RTR, IBV_QPS_RTS);
	if (state == IBV_QPS_SQD)
		qp->path->entered(qp, IBV_QPS_RTS, IBV_QPS_SQD);
	return 0;
}

/* Under progress + sq_lock. */
static void retry_path(struct vb_qp *qp, bool ask)
{
	enum ibv_qp_state state = atomic_load(&qp->state);
	struct vb_peer *peer;

	if (state == IBV_QPS_INIT) /* ibv_modify_qp is moving it to RTR */
		return;
	if (state == IBV_QPS_RESET || state == IBV_QPS_ERR || !lacks_path(qp)) {
		vb_unresolved_drop(qp);
		return;
	}
	if (resolve_path(qp, ask, &peer))
		return;
	if (peer) {
		qp->local.peer = peer;
		qp->local.remote = NULL;
	} else if (join_roce(qp, state)) {
		return;
	}
	vb_unresolved_drop(qp);
	vb_log(VB_LOG_INFO, "queue pair 0x%x has found its path", qp->qp.qp_num);
	vb_sq_kick(qp);
	qp->path->settle(qp);
}

/* Retries the unresolved QPs in one batch of table entries that starts at `from`. Returns where the next batch
 * starts. */
static uint32_t look_at_some(struct vb_node *node, uint32_t from, bool ask)
{
	uint32_t end = from + SLOTS_AT_A_TIME < VB_LANE_QPS ? from + SLOTS_AT_A_TIME : VB_LANE_QPS, i;
	unsigned n = 0;

	vb_lock(&node->progress);
	for (i = from; i < end && n < AT_A_TIME && node->io->unresolved; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		if (!qp || !qp->unresolved)
			continue;
		n++;
		vb_lock(&qp->sq_lock);
		retry_path(qp, ask);
		vb_unlock(&qp->sq_lock);
	}
	i = node->io->unresolved ? i : VB_LANE_QPS;
	vb_unlock(&node->progress);
	return i;
}

void vb_unresolved_look(struct vb_node *node)
{
	struct vb_io *io = node->io;
	uint64_t at = atomic_load(&io->resolve_at);
	bool news = atomic_exchange(&io->resolve_news, false), due;

	if (!at)
		return;
	due = vb_now() >= at;
	if (!due && !news)
		return;
	for (uint32_t i = 0; i < VB_LANE_QPS;)
		i = look_at_some(node, i, due);
	vb_lock(&node->progress);
	if (due) {
		io->resolve_pause += io->resolve_pause / 8;
		if (io->resolve_pause > LONGEST)
			io->resolve_pause = LONGEST;
		atomic_store(&io->resolve_at, vb_now() + io->resolve_pause);
	}
	if (!io->unresolved)
		atomic_store(&io->resolve_at, 0);
	vb_unlock(&node->progress);
}
