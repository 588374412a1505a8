// qp_modify.c - ibv_modify_qp: takes a queue pair from state to state
// follows: IBA volume 1, 10.3 (states), 11.2.5.2 (modify queue pair); ibv_modify_qp(3), ibv_modify_qp_rate_limit(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/context.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/qp.h"
#include "core/sq.h"
#include "core/static_rate.h"
#include "core/verbs.h"
#include "core/xrc.h"
#include "frame/packet.h"

#define UC_BURST (64u << 10) /* bytes: the default of a rate limit */
#define ARRIVED_POLLS 16     /* at most so many, because a peer may send all the time */

static struct vb_context *ctx_of(const struct vb_qp *qp)
{
	return VB_CONTEXT_OF(qp);
}

/* --- changes of state, under progress + sq_lock --- */

static void reset_inbound(struct vb_qp *qp)
{
	vb_receive_abandon(qp);
	qp->inbound->dropped = false;
}

/* Removes outstanding requests, and completions that are not polled yet (IBA 10.3.1.1). */
static void enter_reset(struct vb_qp *qp)
{
	vb_qp_set_state(qp, IBV_QPS_RESET);
	vb_qp_close_shared(qp); /* before vb_path_reset wakes peers */
	vb_path_reset(qp);
	qp->rate = (struct vb_rate){0}; /* until then the path sends its last words under the limit */
	vb_path_limit(qp);
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->attr_valid = 0;
	vb_sq_drop_held(qp);
	qp->sq_head = qp->sq_emit = qp->sq_una = 0;
	atomic_store(&qp->sq_pending, 0);
	qp->psn_next = 0;
	reset_inbound(qp);
	vb_qp_clean_cqs(qp);
	vb_lock(&qp->rq.lock);
	atomic_store(&qp->rq.head, 0);
	atomic_store(&qp->rq.tail, 0);
	atomic_store(&qp->rq.polled, 0); /* no completions of its receives are left */
	vb_unlock(&qp->rq.lock);
	qp->comm_est_raised = qp->last_wqe_raised = false;
}

/* Lets peers on this host send requests to the QP. They use the published fields once they read the new, odd gen. */
static void enter_rtr(struct vb_qp *qp)
{
	struct vb_qp_shared *s = qp->shared;
	uint32_t gen = atomic_load(&s->gen);

	reset_inbound(qp);
	if (qp->path->start_responder)
		qp->path->start_responder(qp);
	atomic_store(&s->dest_qpn, qp->attr.dest_qp_num);
	atomic_store(&s->dest_lane, VB_QP_LANE(qp->attr.dest_qp_num));
	atomic_store(&s->rq_psn, qp->attr.rq_psn);
	atomic_store(&s->acked, 0);
	atomic_store(&s->executed, 0);
	atomic_store(&s->taken, 0);
	atomic_store(&s->nak, 0);
	atomic_store(&s->unheard, 1);
	vb_qp_set_state(qp, IBV_QPS_RTR);
	atomic_store_explicit(&s->gen, (gen + 1) | 1, memory_order_release);
}

static void enter_rts(struct vb_qp *qp, enum ibv_qp_state cur)
{
	if (cur == IBV_QPS_RTR)
		qp->psn_next = qp->attr.sq_psn;
	vb_qp_set_state(qp, IBV_QPS_RTS);
	atomic_store_explicit(&qp->shared->unheard, 0, memory_order_relaxed);
	vb_path_entered(qp, cur, IBV_QPS_RTS);
}

static void enter_sqd(struct vb_qp *qp, enum ibv_qp_state cur)
{
	if (cur != IBV_QPS_SQD) {
		vb_qp_set_state(qp, IBV_QPS_SQD);
		vb_qp_set_draining(qp, true);
	}
	vb_path_entered(qp, cur, IBV_QPS_SQD);
	if (cur != IBV_QPS_SQD)
		vb_qp_check_drained(qp);
}

__attribute__((hot)) void vb_qp_check_drained(struct vb_qp *qp)
{
	if (atomic_load(&qp->state) != IBV_QPS_SQD || !qp->attr.sq_draining || !vb_path_idle(qp))
		return;
	vb_qp_set_draining(qp, false);
	if (qp->attr.en_sqd_async_notify)
		vb_async_raise(ctx_of(qp), IBV_EVENT_SQ_DRAINED, &qp->qp);
}

static enum vb_sq_status enter_state(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	switch (next) {
	case IBV_QPS_RESET:
		enter_reset(qp);
		return VB_SQ_GOOD;
	case IBV_QPS_RTR:
		enter_rtr(qp);
		return VB_SQ_GOOD;
	case IBV_QPS_RTS:
		enter_rts(qp, cur);
		return vb_sq_kick(qp);
	case IBV_QPS_SQD:
		enter_sqd(qp, cur);
		return VB_SQ_GOOD;
	case IBV_QPS_ERR:
		vb_path_abort(qp);
		vb_qp_error(qp);
		return VB_SQ_GOOD;
	default:
		vb_qp_set_state(qp, next);
		return VB_SQ_GOOD;
	}
}

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

void vb_qp_start_guest(struct vb_qp *qp, const struct ibv_qp_attr *attr, struct vb_peer *peer)
{
	lock_both(qp);
	qp->attr = *attr;
	qp->local.peer = peer;
	enter_rtr(qp);
	unlock_both(qp);
}

/* A datagram is one packet: its limit is the port's MTU at the time of this call. */
static void limit_message(struct vb_qp *qp)
{
	struct ibv_port_attr port;

	if (qp->type == IBV_QPT_UD && !vb_query_port_attr(ctx_of(qp)->dev, 1, &port))
		qp->max_msg = 128u << port.active_mtu;
}

/* The port's MTU in bytes. */
static uint32_t mtu_of_port(const struct vb_qp *qp)
{
	struct ibv_port_attr port;

	return vb_query_port_attr(ctx_of(qp)->dev, 1, &port) ? VB_PAYLOAD_MAX : 128u << port.active_mtu;
}

/* The limit by the static rate of a connected queue pair's path. 0: none. */
static uint32_t kbps_of_path(const struct vb_qp *qp)
{
	struct ibv_port_attr port;

	if (!qp->attr.ah_attr.static_rate || qp->type == IBV_QPT_XRC_RECV ||
	    vb_query_port_attr(ctx_of(qp)->dev, 1, &port))
		return 0;
	return vb_static_kbps(qp->attr.ah_attr.static_rate, &port);
}

/* The lower one of both limits. */
static uint32_t kbps_of(const struct vb_qp *qp)
{
	uint32_t path = kbps_of_path(qp), own = qp->attr.rate_limit;

	return !path || (own && own < path) ? own : path;
}

/* Takes over a rate limit. wish: its bursts and packets; NULL: the adapter chooses. Under progress + sq_lock. */
static void take_rate(struct vb_qp *qp, uint32_t kbps, const struct ibv_qp_rate_limit_attr *wish, uint32_t mtu)
{
	uint32_t packet = mtu + VB_RATE_HEADERS, burst = wish ? wish->max_burst_sz : 0;

	if (qp->type == IBV_QPT_RAW_PACKET) /* its frames have any length */
		packet = 0;
	if (qp->type == IBV_QPT_UC && !burst) /* it has no window, and sockets are small */
		burst = UC_BURST;
	if (!qp->rate.kbps) /* nothing has counted since the last limit, and positions go round */
		qp->rate.granted = qp->sq_emit;
	vb_rate_set(&qp->rate, kbps, burst, wish ? wish->typical_pkt_sz : 0, packet, mtu, vb_now());
	vb_path_limit(qp);
}

/* Finds the path, with the attributes set and no lock held. The state changes afterwards. */
static void prepare_rtr(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	lock_both(qp);
	vb_qp_take_attr(qp, attr, mask);
	unlock_both(qp);
	limit_message(qp);
	vb_path_connect(qp);
}

/* A peer may send, and disconnect at once: the program hears of that from the broker, perhaps before it has polled the
 * ring. */
void vb_qp_receive_arrived(struct vb_node *node)
{
	for (int i = 0; i < ARRIVED_POLLS && vb_progress_surely(node); i++)
		;
}

static int modify_held(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask, bool here,
                       const struct ibv_qp_rate_limit_attr *limit)
{
	bool iwarp = vb_qp_is_iwarp(qp) && !here;
	uint32_t mtu = mask & (IBV_QP_RATE_LIMIT | IBV_QP_AV) ? mtu_of_port(qp) : 0;
	enum ibv_qp_state cur, next;
	enum vb_sq_status status = VB_SQ_GOOD;

again:
	cur = atomic_load(&qp->state);
	next = mask & IBV_QP_STATE ? attr->qp_state : cur;
	if (vb_qp_check_attr(qp, cur, next, attr, mask, here))
		return EINVAL;
	if (qp->rss && next > IBV_QPS_RTR) /* it has nothing to send, and its work queues have states of their own */
		return EOPNOTSUPP;
	if (iwarp) {
		mask &= VB_QP_IWARP_ATTRS;
		if (next == IBV_QPS_RTR)
			next = cur;
	} else if (next == IBV_QPS_RTR) {
		prepare_rtr(qp, attr, mask);
	}
	if (next == IBV_QPS_ERR && cur != IBV_QPS_ERR)
		vb_qp_receive_arrived(qp->node);
	if (next == IBV_QPS_ERR && (cur == IBV_QPS_RTS || cur == IBV_QPS_SQD))
		vb_path_closing(qp);
	lock_both(qp);
	/* an error changed the state meanwhile, so the transition must be checked again */
	if (atomic_load(&qp->state) != cur) {
		unlock_both(qp);
		goto again;
	}
	if (here && next == IBV_QPS_RTR && !vb_path_resolved(qp)) {
		unlock_both(qp);
		return EHOSTUNREACH;
	}
	if (cur == IBV_QPS_SQE) /* the thread whose request has failed may not have flushed the others yet */
		qp->path->settle(qp);
	vb_qp_take_attr(qp, attr, mask);
	if (mask & IBV_QP_RATE_LIMIT || (mask & IBV_QP_AV && kbps_of(qp) != qp->rate.kbps))
		take_rate(qp, kbps_of(qp), limit, mtu);
	if (!iwarp || next != IBV_QPS_RTR) /* iWARP: the state stays as it is */
		status = enter_state(qp, cur, next);
	unlock_both(qp);
	if (next == IBV_QPS_SQD && mask & (IBV_QP_AV | IBV_QP_PKEY_INDEX))
		vb_path_moved(qp);
	if (status == VB_SQ_FAILED)
		vb_path_settle(qp);
	if (next == IBV_QPS_RESET || next == IBV_QPS_ERR) { /* peers write no memory for this QP after the return */
		atomic_thread_fence(memory_order_seq_cst);
		vb_quiesce(qp->node, 0, qp->qp.qp_num);
	}
	return 0;
}

/* limit: of IBV_QP_RATE_LIMIT; may be NULL. */
static int modify_alone(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask, bool here,
                        const struct ibv_qp_rate_limit_attr *limit)
{
	if (!vb_qp_hold(qp))
		return EINVAL;
	vb_mutex_lock(&qp->modify_lock, VB_RANK_MODIFY);
	int err = vb_qp_is_listed(qp) ? modify_held(qp, attr, mask, here, limit) : EINVAL;
	vb_mutex_unlock(&qp->modify_lock);
	vb_qp_drop(qp);
	return err;
}

int vb_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	if (!vb_qp_is_sound(ibqp))
		return EINVAL;
	int err = vb_context_fault(ctx_of(vb_qp(ibqp)), VB_FAULT_MODIFY_QP);

	if (!err && vb_qp(ibqp)->xrc.far)
		return vb_xrc_far_ops.modify(vb_qp(ibqp), attr, mask);
	return err ? err : modify_alone(vb_qp_real(vb_qp(ibqp)), attr, mask, false, NULL);
}

int vb_modify_qp_here(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return modify_alone(qp, attr, mask, true, NULL);
}

/* As libmlx5: bursts and packets without a rate are refused. */
int vb_modify_qp_rate_limit(struct ibv_qp *ibqp, struct ibv_qp_rate_limit_attr *limit)
{
	if (!vb_qp_is_sound(ibqp))
		return EINVAL;
	if (limit->comp_mask || (!limit->rate_limit && (limit->max_burst_sz || limit->typical_pkt_sz)))
		return EINVAL;
	const struct ibv_qp_attr attr = {.rate_limit = limit->rate_limit};
	int err = vb_context_fault(ctx_of(vb_qp(ibqp)), VB_FAULT_MODIFY_QP);

	if (!err && vb_qp(ibqp)->xrc.far) /* a target sends nothing */
		return EINVAL;
	return err ? err : modify_alone(vb_qp_real(vb_qp(ibqp)), &attr, IBV_QP_RATE_LIMIT, false, limit);
}
