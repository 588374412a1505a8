// path.c - queue pairs on an InfiniBand fabric: shared memory, while the fabric has a way
// follows: IBA volume 1, 10.9 (partitions), 9.7.5 (retries), 9.8 (unreliable services); docs/infiniband.md
// SPDX-License-Identifier: MIT
#include "path/ib/ib.h"

#include <string.h>

#include "core/device.h"
#include "core/qp.h"
#include "engine/local/local.h"
#include "frame/fields.h"
#include "path/path.h"
#include "path/roce/roce.h"
#include "path/wire_mode.h"
#include "util/log.h"

enum { REFRESHED_AT_A_TIME = 64 };

static void lock_both(struct vb_qp *qp)
{
	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
}

static void unlock_both(struct vb_qp *qp)
{
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
}

/* The P_Key that its port has for it now. */
static uint16_t pkey_of(const struct vb_qp *qp)
{
	struct vb_device *dev = vb_qp_device(qp);

	return dev ? vb_ib_pkey(dev, qp->attr.pkey_index) : 0;
}

static struct vb_ib_route route_of(const struct vb_qp *qp, uint16_t pkey)
{
	return vb_ib_route_of(&qp->attr.ah_attr, pkey, vb_qp_is_reliable(qp));
}

/* The LID from which it takes packets: that of its address. Datagrams come from all. */
static uint16_t source_of(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UD ? VB_IB_ANY_LID : qp->attr.ah_attr.dlid;
}

/* Under progress + sq_lock. */
static void set_pkey(struct vb_qp *qp, uint16_t pkey)
{
	qp->local.pkey = pkey;
	qp->local.remote_partition = VB_IB_UNCHECKED;
	atomic_store(&qp->shared->partition, VB_IB_SHARED(pkey, source_of(qp)));
	if (qp->roce)
		vb_roce_path_pkey(qp);
}

void vb_ib_take_pkey(struct vb_qp *qp)
{
	uint16_t pkey = pkey_of(qp);

	lock_both(qp);
	set_pkey(qp, pkey);
	unlock_both(qp);
}

static bool way_is_open(const struct vb_ib_way *way)
{
	return way && atomic_load(&way->open);
}

static const char *why_text(unsigned why)
{
	static const char *const text[] = {
#define X(name, said) said,
	        VB_FABRIC_WHY(X)
#undef X
	};

	return why < VB_WAYS ? text[why] : "it has not answered";
}

/* --- at RTR --- */

/* Gives the QP a way in place of another. Returns the other one. Under progress + sq_lock. */
static struct vb_ib_way *change_way(struct vb_qp *qp, struct vb_ib_way *way, struct vb_ib_sent *sent)
{
	struct vb_ib_way *old = qp->local.way;

	if (qp->local.sent_by)
		vb_ib_sender_put(qp->node->io->ib, qp->local.sent_by);
	qp->local.way = way;
	qp->local.sent_by = sent;
	return old;
}

/* Is the way open? If it leads to another port than before, the peer is another one. Under progress + sq_lock. */
static bool follow_way(struct vb_qp *qp)
{
	union ibv_gid now;

	if (!way_is_open(qp->local.way))
		return false;
	vb_ib_way_address(qp->node, qp->local.way, &now);
	if (memcmp(&now, &qp->met, sizeof(now)) != 0) {
		qp->met = now;
		vb_local_leave_peer(qp);
	}
	return true;
}

/* Do datagrams of queue pairs go as packets, whoever gets them? */
static bool datagrams_are_packets(const struct vb_node *node)
{
	const struct vb_ib_host *host = node->io->ib;

	return vb_wire_mode() == VB_WIRE_MODE_ALWAYS || (host && host->parts);
}

/* Both ends choose packets: the way from each leads through the other one's fabric process. */
static bool is_elsewhere(struct vb_qp *qp, struct vb_ib_way *way)
{
	return way && !way_is_open(way) && vb_ib_way_why(qp->node, way) == VB_WAY_ELSEWHERE;
}

bool vb_ib_connect(struct vb_qp *qp)
{
	uint16_t pkey = pkey_of(qp);
	bool datagrams = qp->type == IBV_QPT_UD;
	struct vb_ib_route route = route_of(qp, pkey);
	struct vb_ib_way *way = NULL;
	struct vb_ib_sent *sent = NULL;

	if (datagrams ? datagrams_are_packets(qp->node) : vb_wire_mode() == VB_WIRE_MODE_ALWAYS) {
		vb_ib_connect_link(qp);
		return false;
	}
	/* a P_Key of 0 is an empty entry, with which nobody may talk; as part of a route it means "any" */
	if (!datagrams && pkey)
		way = vb_ib_way_get(qp->node, &route, VB_RESOLVE_WAIT);
	if (is_elsewhere(qp, way)) {
		vb_ib_way_put(qp->node, way);
		vb_ib_connect_link(qp);
		return false;
	}
	if (way)
		sent = vb_ib_sender_get(qp->node->io->ib, way);
	if (way && !way_is_open(way))
		vb_log(VB_LOG_INFO, "queue pair 0x%x: the fabric has no way to LID %u: %s", qp->qp.qp_num, route.dlid,
		       why_text(vb_ib_way_why(qp->node, way)));
	lock_both(qp);
	set_pkey(qp, pkey);
	struct vb_ib_way *old = change_way(qp, way, sent);

	qp->local.peer = NULL;
	qp->local.remote = NULL;
	bool open = follow_way(qp);

	qp->local.cut = !datagrams && !open;
	unlock_both(qp);
	if (old)
		vb_ib_way_put(qp->node, old);
	return open;
}

/* The P_Key is the sending queue pair's, so receivers alone check it. Datagrams to groups take no way: groups.c. */
void vb_ib_ah_made(struct vb_ah *ah)
{
	struct vb_ib_route route = vb_ib_route_of(&ah->attr, 0, false);
	struct vb_context *ctx = VB_CONTEXT_OF(ah);

	if (vb_ib_is_group_lid(ah->attr.dlid))
		return;
	if (datagrams_are_packets(ctx->node))
		return;
	ah->way = vb_ib_way_get(ctx->node, &route, VB_RESOLVE_WAIT);
	if (!ah->way)
		return;
	vb_ib_way_address(ctx->node, ah->way, &ah->met);
	vb_peer_address(ctx->node, &ah->met);
}

/* --- changes --- */

/* A queue pair whose P_Key has changed needs another way. */
struct moved {
	struct vb_node *node;
	uint32_t qpn[REFRESHED_AT_A_TIME];
	struct vb_ib_route route[REFRESHED_AT_A_TIME];
	bool leads_elsewhere[REFRESHED_AT_A_TIME]; /* it keeps its P_Key, and gets packets */
	unsigned n;
	bool more;
	bool no_packets; /* there is no connection for them, or no memory */
};

/* From RTR on, until it ends. */
static bool has_way(const struct vb_qp *qp)
{
	enum ibv_qp_state state = atomic_load(&qp->state);

	return state >= IBV_QPS_RTR && state != IBV_QPS_ERR;
}

/* A way that was not there at RTR leads through another fabric process. What the queue pair has done in shared memory binds
 * it to that. Under progress + sq_lock. */
static bool changes_over(struct vb_qp *qp)
{
	const struct vb_local_qp *l = &qp->local;

	return atomic_load(&qp->state) != IBV_QPS_SQE && !l->ssn_emit && l->epsn == (qp->attr.rq_psn & VB_PSN_MASK) &&
	       is_elsewhere(qp, l->way);
}

/* Under progress + sq_lock. */
static void refresh_qp(struct vb_qp *qp, void *arg)
{
	struct moved *moved = arg;

	if (!qp->ib || !has_way(qp))
		return;
	uint16_t pkey = pkey_of(qp);
	bool connected = qp->type != IBV_QPT_UD && !qp->roce,
	     elsewhere = connected && !moved->no_packets && changes_over(qp);

	if (connected && (pkey != qp->local.pkey || elsewhere)) {
		if (moved->n == REFRESHED_AT_A_TIME) { /* it keeps the old P_Key, by which the next round finds it */
			moved->more = true;
			return;
		}
		moved->leads_elsewhere[moved->n] = elsewhere && pkey == qp->local.pkey;
		moved->qpn[moved->n] = qp->qp.qp_num;
		moved->route[moved->n++] = route_of(qp, pkey);
	}
	if (pkey != qp->local.pkey)
		set_pkey(qp, pkey);
	if (qp->type == IBV_QPT_UD || qp->roce)
		return;
	qp->local.remote_partition = VB_IB_UNCHECKED; /* our LID may be another one */
	vb_local_cut(qp, !follow_way(qp));
}

/* The queue pair may have been destroyed, or have left RTR and RTS, meanwhile. */
static void move_qp(struct vb_node *node, uint32_t qpn, const struct vb_ib_route *route)
{
	struct vb_ib_way *way = route->pkey ? vb_ib_way_get(node, route, 0) : NULL;
	struct vb_ib_sent *sent = way ? vb_ib_sender_get(node->io->ib, way) : NULL;

	vb_lock(&node->progress);
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);

	if (qp && qp->qp.qp_num == qpn && qp->ib) {
		vb_lock(&qp->sq_lock);
		if (has_way(qp)) {
			way = change_way(qp, way, sent);
			sent = NULL;
			vb_local_cut(qp, !follow_way(qp));
		}
		vb_unlock(&qp->sq_lock);
	}
	vb_unlock(&node->progress);
	if (sent)
		vb_ib_sender_put(node->io->ib, sent);
	if (way)
		vb_ib_way_put(node, way);
}

/* False: it stays as it is. */
static bool give_packets(struct vb_node *node, uint32_t qpn)
{
	struct vb_ib_way *way = NULL;
	bool done = true;

	if (vb_ib_open_link(node))
		return false;
	vb_lock(&node->progress);
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);

	if (qp && qp->qp.qp_num == qpn && qp->ib && qp->type != IBV_QPT_UD && !qp->roce) {
		vb_lock(&qp->sq_lock);
		if (has_way(qp) && changes_over(qp)) {
			done = vb_ib_change_over(qp);
			way = done ? change_way(qp, NULL, NULL) : NULL;
		}
		vb_unlock(&qp->sq_lock);
	}
	vb_unlock(&node->progress);
	if (way)
		vb_ib_way_put(node, way);
	return done;
}

void vb_ib_moved(struct vb_qp *qp)
{
	uint16_t pkey = pkey_of(qp);
	struct vb_ib_route route = route_of(qp, pkey);

	lock_both(qp);
	set_pkey(qp, pkey);
	unlock_both(qp);
	if (qp->type != IBV_QPT_UD && !qp->roce)
		move_qp(qp->node, qp->qp.qp_num, &route);
}

void vb_ib_refresh(struct vb_node *node)
{
	struct moved moved = {.no_packets = false};

	do {
		moved.n = 0;
		moved.more = false;
		vb_lock(&node->progress);
		vb_node_each_qp(node, refresh_qp, &moved);
		vb_unlock(&node->progress);
		for (unsigned i = 0; i < moved.n; i++) {
			if (moved.leads_elsewhere[i])
				moved.no_packets |= !give_packets(node, moved.qpn[i]);
			else
				move_qp(node, moved.qpn[i], &moved.route[i]);
		}
	} while (moved.more);
}

/* --- the operations --- */

/* The way may have changed since it was found: before RTR vb_ib_refresh leaves a queue pair out. */
static void ib_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	vb_local_entered(qp, cur, next);
	if (cur == IBV_QPS_RTR)
		vb_local_cut(qp, !follow_way(qp));
}

static void ib_reset(struct vb_qp *qp)
{
	if (qp->local.way)
		vb_ib_way_put(qp->node, change_way(qp, NULL, NULL));
	qp->local.cut = false;
	vb_local_closed(qp); /* drops the requests of the engine */
	vb_local_reset(qp);
}

static void ib_datagram_next_psns(const struct vb_qp *qp, uint32_t *sq_psn, uint32_t *rq_psn)
{
	*sq_psn = qp->psn_next;
	*rq_psn = qp->attr.rq_psn;
}

const struct vb_path_ops vb_ib_path_ops = {
        .name = "fabric",
        .ring = true,
        .kick = vb_local_kick,
        .kick_until = vb_local_kick_until,
        .settle = vb_local_settle,
        .visit = vb_local_visit,
        .deadline = vb_local_deadline,
        .start_responder = vb_local_start_responder,
        .entered = ib_entered,
        .idle = vb_local_idle,
        .closing = vb_local_closing,
        .closed = vb_local_closed,
        .forget_sends = vb_local_forget_sends,
        .next_psns = vb_local_next_psns,
        .reset = ib_reset,
};

const struct vb_path_ops vb_ib_datagram_path_ops = {
        .name = "fabric datagrams",
        .ring = true,
        .kick = vb_local_kick_datagrams,
        .kick_until = vb_local_kick_datagrams_until,
        .settle = vb_local_settle,
        .visit = vb_local_visit,
        .deadline = vb_local_deadline,
        .entered = vb_local_entered,
        .idle = vb_local_idle,
        .closing = vb_local_settle,
        .closed = vb_local_closed,
        .forget_sends = vb_local_forget_sends,
        .next_psns = ib_datagram_next_psns,
        .reset = ib_reset,
        .datagram = vb_ib_datagram,
};
