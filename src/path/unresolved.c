// unresolved.c - queue pairs that found no way when they were made ready to receive: it is looked for again, until there is one
// follows: ARCHITECTURE.md, "The wire"
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "core/device.h"
#include "engine/local/requester.h"
#include "path/roce/roce.h"
#include "util/log.h"

/* A way that comes free after some time is found within an eighth of that, but for the first pause and the longest. */
#define FIRST 200000000ull   /* ns */
#define LONGEST 60000000000ull
#define AT_A_TIME 64         /* queue pairs while progress is held */
#define SLOTS_AT_A_TIME 1024 /* … and places where there might be one */

/* Under progress + sq_lock. */
static bool lacks_way(const struct vb_qp *qp)
{
	if (vb_ctx(qp->qp.context)->dev->iwarp || vb_wire_mode() == VB_WIRE_MODE_NEVER)
		return false;
	if (qp->type == IBV_QPT_UD)
		return !qp->wire || !atomic_load(&qp->node->io->wire->up);
	return !qp->wire && !qp->remote && !(qp->peer && vb_peer_alive(qp->peer));
}

void vb_way_drop(struct vb_qp *qp)
{
	qp->node->io->wayless -= qp->wayless;
	qp->wayless = false;
}

void vb_way_check(struct vb_qp *qp)
{
	struct vb_io *io = qp->node->io;

	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	bool lacks = lacks_way(qp) && !qp->wayless;

	if (lacks) {
		qp->wayless = true;
		io->wayless++;
		io->way_pause = FIRST;
		atomic_store(&io->way_at, vb_now() + FIRST);
	}
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	if (lacks)
		vb_qp1_wake(qp->node);
}

void vb_way_again(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_lock(&node->progress);
	if (io->wayless) {
		io->way_pause = FIRST;
		atomic_store(&io->way_at, vb_now());
	}
	vb_unlock(&node->progress);
}

/* ask: the broker may be asked; else what it has said so far has to do. Nothing here waits for an answer. 0: a peer of this
 * host, or the network, is the way. */
static int find(struct vb_qp *qp, bool ask, struct vb_peer **peer)
{
	const union ibv_gid *dgid = &qp->attr.ah_attr.grh.dgid;
	int err = 0;

	*peer = NULL;
	if (qp->type != IBV_QPT_UD && vb_wire_mode() != VB_WIRE_MODE_ALWAYS) {
		if (ask)
			vb_peer_find(qp->node, qp->attr.dest_qp_num, dgid, 0, &err);
		*peer = vb_peer_known(qp->node, qp->attr.dest_qp_num, dgid, &err);
		if (*peer || (err != ENOENT && err != EACCES))
			return *peer ? 0 : err;
	}
	return vb_wire_up(qp->node, 0);
}

/* The network: as if it had been found at RTR, for what came since. */
static int join_wire(struct vb_qp *qp, enum ibv_qp_state state)
{
	int err = qp->wire ? 0 : vb_wire_path_open_locked(qp);

	if (err || qp->type == IBV_QPT_UD)
		return err;
	vb_stop_timer(qp);
	if (state == IBV_QPS_RTS || state == IBV_QPS_SQD) {
		vb_wire_start(&qp->wire->q);
		vb_wire_pause(&qp->wire->q, state == IBV_QPS_SQD);
	}
	return 0;
}

/* Under progress + sq_lock. */
static void look(struct vb_qp *qp, bool ask)
{
	enum ibv_qp_state state = atomic_load(&qp->state);
	struct vb_peer *peer;

	if (state == IBV_QPS_INIT) /* on its way to RTR */
		return;
	if (state == IBV_QPS_RESET || state == IBV_QPS_ERR || !lacks_way(qp)) {
		vb_way_drop(qp);
		return;
	}
	if (find(qp, ask, &peer))
		return;
	if (peer) {
		qp->peer = peer;
		qp->remote = NULL;
	} else if (join_wire(qp, state)) {
		return;
	}
	vb_way_drop(qp);
	vb_log(VB_LOG_INFO, "queue pair 0x%x has its way now", qp->qp.qp_num);
	vb_sq_kick(qp);
	qp->path->settle(qp);
}

/* From this place of the table on; returns where to go on. */
static uint32_t look_at_some(struct vb_node *node, uint32_t from, bool ask)
{
	uint32_t end = from + SLOTS_AT_A_TIME < VB_LANE_QPS ? from + SLOTS_AT_A_TIME : VB_LANE_QPS, i;
	unsigned n = 0;

	vb_lock(&node->progress);
	for (i = from; i < end && n < AT_A_TIME && node->io->wayless; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		if (!qp || !qp->wayless)
			continue;
		n++;
		vb_lock(&qp->sq_lock);
		look(qp, ask);
		vb_unlock(&qp->sq_lock);
	}
	i = node->io->wayless ? i : VB_LANE_QPS;
	vb_unlock(&node->progress);
	return i;
}

void vb_way_look(struct vb_node *node)
{
	struct vb_io *io = node->io;
	uint64_t at = atomic_load(&io->way_at);
	bool news = io->way_news, due;

	io->way_news = false;
	if (!at)
		return;
	due = vb_now() >= at;
	if (!due && !news)
		return;
	for (uint32_t i = 0; i < VB_LANE_QPS;)
		i = look_at_some(node, i, due);
	vb_lock(&node->progress);
	if (due) {
		io->way_pause += io->way_pause / 8;
		if (io->way_pause > LONGEST)
			io->way_pause = LONGEST;
		atomic_store(&io->way_at, vb_now() + io->way_pause);
	}
	if (!io->wayless)
		atomic_store(&io->way_at, 0);
	vb_unlock(&node->progress);
}
