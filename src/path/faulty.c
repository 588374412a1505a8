// faulty.c - path operations that ask the rules of fault injection about each posted request first
// follows: IBA volume 1, 9.9 (errors of requests), 10.3.1 (states), 9.7.6 (retries); docs/faults.md
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "core/cq.h"
#include "core/device.h"
#include "core/qp.h"
#include "core/sq.h"
#include "engine/local/local.h"
#include "engine/local/requester.h"
#include "fault/set.h"
#include "path/path.h"

/* The operations of each path, and the same with ours in place of some. Filled at first use, under lock. */
#define PATHS 11
static struct vb_lock fill_lock;
static const struct vb_path_ops *plain[PATHS];
static struct vb_path_ops faulty[PATHS];

#define NEVER UINT64_MAX
#define REORDER_NS 5000000u /* a datagram that others overtake waits so long, as a packet of RoCE does at most */

static bool is_faulty(const struct vb_path_ops *ops)
{
	return ops >= faulty && ops < faulty + PATHS;
}

/* Does it connect programs of this host? */
static bool is_local(const struct vb_path_ops *ops)
{
	ops = vb_path_unlimited(ops);
	return ops == &vb_local_path_ops || ops == &vb_ib_path_ops;
}

const struct vb_path_ops *vb_path_plain(const struct vb_qp *qp)
{
	return is_faulty(qp->path) ? plain[qp->path - faulty] : qp->path;
}

/* --- what the rules say about a request --- */

static enum vb_fault_kind kind_of_request(const struct vb_swqe *w)
{
	static const uint8_t kind[] = {
	        [IBV_WR_RDMA_WRITE] = VB_FAULT_KIND_WRITE,
	        [IBV_WR_RDMA_WRITE_WITH_IMM] = VB_FAULT_KIND_WRITE,
	        [IBV_WR_SEND] = VB_FAULT_KIND_SEND,
	        [IBV_WR_SEND_WITH_IMM] = VB_FAULT_KIND_SEND,
	        [IBV_WR_RDMA_READ] = VB_FAULT_KIND_READ,
	        [IBV_WR_ATOMIC_CMP_AND_SWP] = VB_FAULT_KIND_ATOMIC,
	        [IBV_WR_ATOMIC_FETCH_AND_ADD] = VB_FAULT_KIND_ATOMIC,
	        [IBV_WR_LOCAL_INV] = VB_FAULT_KIND_LOCAL_INV,
	        [IBV_WR_BIND_MW] = VB_FAULT_KIND_COUNT,
	        [IBV_WR_SEND_WITH_INV] = VB_FAULT_KIND_SEND,
	        [IBV_WR_TSO] = VB_FAULT_KIND_SEND,
	        [IBV_WR_TSO + 1 ... VB_IBV_WR_FLUSH] = VB_FAULT_KIND_COUNT,
	        [IBV_WR_ATOMIC_WRITE] = VB_FAULT_KIND_ATOMIC,
	};

	return w->opcode < sizeof(kind) ? kind[w->opcode] : VB_FAULT_KIND_COUNT;
}

/* Ends a request before it is sent: it completes in its turn. */
static void end_request(struct vb_swqe *w, enum ibv_wc_status status)
{
	if (w->state == VB_SWQE_DONE)
		return;
	w->state = VB_SWQE_DONE;
	w->status = (uint8_t)status;
	w->num_sge = 0;
	w->length = 0;
}

/* How long a request on one host is delayed. A lost one is repeated after the QP's timeout, as on a network, until its
 * retries are spent; of UC it is lost. */
static uint64_t delay_of_request(struct vb_qp *qp, struct vb_fault_subject *s, struct vb_swqe *w)
{
	uint64_t wait = 0, timeout = vb_local_timeout_ns(qp);
	struct vb_fault_verdict v;

	for (unsigned tries = 0; vb_fault_ask_wire(s, &v); tries++) {
		if (!v.drop && !v.corrupt)
			return wait + v.delay;
		if (!vb_qp_is_reliable(qp)) {
			end_request(w, IBV_WC_SUCCESS);
			return wait;
		}
		if (!timeout)
			return NEVER;
		s->later = wait += timeout;
		if (tries == qp->attr.retry_cnt) {
			end_request(w, IBV_WC_RETRY_EXC_ERR);
			return wait;
		}
	}
	return wait;
}

/* Sets when request i may be sent. A request never passes those before it. */
static void delay_request(struct vb_qp *qp, uint32_t i, uint64_t wait)
{
	struct vb_qp_fault *f = &qp->fault;
	uint64_t now = vb_now(), before = i == f->first_due ? 0 : f->due[(i - 1) & qp->sq_mask];
	uint64_t due = wait == NEVER ? NEVER : wait ? now + wait : 0;

	f->due[i & qp->sq_mask] = due > before ? due : before;
}

/* 0 for UD, which reaches each receiver by a path of its own, and for raw packets. */
static uint8_t path_of(const struct vb_qp *qp)
{
	if (qp->type == IBV_QPT_UD || qp->type == IBV_QPT_RAW_PACKET)
		return 0;
	return is_local(vb_path_plain(qp)) ? VB_FAULT_LOCAL : qp->iwarp ? VB_FAULT_IWARP : VB_FAULT_ROCE;
}

static void judge_request(struct vb_qp *qp, uint32_t i)
{
	struct vb_swqe *w = vb_sq_at(qp, i);
	bool local = is_local(vb_path_plain(qp));
	const struct vb_device *dev = vb_qp_device(qp);
	struct vb_fault_subject s = {
	        .path = path_of(qp),
	        .dir = VB_FAULT_TX,
	        .kind = (uint8_t)kind_of_request(w),
	        .opcode = -1,
	        .qpn = qp->qp.qp_num,
	        .peer = qp->attr.ah_attr.grh.dgid.raw,
	        .device = dev ? dev->dev.name : NULL,
	        .len = w->length,
	};
	struct vb_fault_verdict v;

	if (vb_fault_ask_work(&s, &v)) {
		if (v.status)
			end_request(w, v.status);
		if (v.overflow)
			vb_cq_overflow(qp->scq);
		qp->fault.fatal = qp->fault.fatal || v.fatal;
	}
	if (qp->fault.fatal) /* before the queue pair is in ERR, another thread may pass requests to TCP */
		end_request(w, IBV_WC_WR_FLUSH_ERR);
	if (local && qp->fault.due)
		delay_request(qp, i, w->state == VB_SWQE_DONE ? 0 : delay_of_request(qp, &s, w));
}

/* A datagram to a program of this host, which has a receiver there. One with a wrong checksum would be dropped. */
static enum vb_datagram_fault ask_about_datagram(struct vb_qp *qp, const struct vb_swqe *w, uint64_t *wait)
{
	const struct vb_device *dev = vb_qp_device(qp);
	const struct vb_fault_subject s = {
	        .path = VB_FAULT_DATAGRAM,
	        .dir = VB_FAULT_TX,
	        .kind = VB_FAULT_KIND_SEND,
	        .opcode = -1,
	        .qpn = qp->qp.qp_num,
	        .peer = w->ah->attr.grh.dgid.raw,
	        .device = dev ? dev->dev.name : NULL,
	        .len = w->length,
	};
	struct vb_fault_verdict v;

	if (!vb_fault_ask_wire(&s, &v))
		return VB_DATAGRAM_WHOLE;
	*wait = v.reorder && v.delay < REORDER_NS ? REORDER_NS : v.delay;
	if (v.drop || v.corrupt)
		return VB_DATAGRAM_DROPPED;
	if (v.reorder || v.delay)
		return v.reorder ? VB_DATAGRAM_PASSED : VB_DATAGRAM_DELAYED;
	return v.duplicate ? VB_DATAGRAM_TWICE : VB_DATAGRAM_WHOLE;
}

static void judge_new(struct vb_qp *qp)
{
	struct vb_qp_fault *f = &qp->fault;

	if ((int32_t)(f->judged - qp->sq_una) < 0) /* requests that were posted before there was a rule */
		f->judged = f->first_due = qp->sq_emit;
	for (; f->judged != qp->sq_head; f->judged++)
		judge_request(qp, f->judged);
}

/* --- the operations --- */

/* The first request that is not due yet, or sq_head. */
static uint32_t end_of_due(const struct vb_qp *qp)
{
	uint64_t now = vb_now();
	uint32_t i = qp->sq_emit;

	while (i != qp->sq_head && qp->fault.due[i & qp->sq_mask] <= now)
		i++;
	return i;
}

static enum vb_sq_status faulty_kick(struct vb_qp *qp)
{
	const struct vb_path_ops *path = vb_path_plain(qp);

	judge_new(qp);
	if (qp->fault.fatal)
		return VB_SQ_FAILED;
	if (!is_local(path) || !qp->fault.due || qp->sq_emit == qp->sq_head)
		return path->kick(qp);
	uint32_t end = end_of_due(qp);

	if (end == qp->sq_head)
		return path->kick(qp);
	enum vb_sq_status status = path->kick_until(qp, end);

	vb_timer_at(qp->node, qp->fault.due[end & qp->sq_mask]);
	return status;
}

static void faulty_settle(struct vb_qp *qp)
{
	if (!qp->fault.fatal) {
		vb_path_plain(qp)->settle(qp);
		return;
	}
	qp->fault.fatal = false;
	vb_qp_error(qp);
	vb_async_raise(VB_CONTEXT_OF(qp), IBV_EVENT_QP_FATAL, &qp->qp);
}

static uint64_t faulty_deadline(struct vb_qp *qp)
{
	const struct vb_path_ops *path = vb_path_plain(qp);
	uint64_t at = path->deadline ? path->deadline(qp) : 0, due = 0;

	if (!is_local(path) || !qp->fault.due)
		return at;
	vb_lock(&qp->sq_lock);
	if (qp->sq_emit != qp->sq_head && qp->fault.judged == qp->sq_head)
		due = qp->fault.due[qp->sq_emit & qp->sq_mask];
	vb_unlock(&qp->sq_lock);
	return due && due != NEVER && (!at || due < at) ? due : at;
}

static void faulty_forget_sends(struct vb_qp *qp)
{
	qp->fault.judged = qp->fault.first_due = qp->sq_head;
	if (vb_path_plain(qp)->forget_sends)
		vb_path_plain(qp)->forget_sends(qp);
}

static void faulty_reset(struct vb_qp *qp)
{
	qp->fault.judged = qp->fault.first_due = 0;
	qp->fault.fatal = false;
	vb_path_plain(qp)->reset(qp);
}

/* --- in and out --- */

static unsigned slot_of_path(const struct vb_path_ops *ops)
{
	unsigned i = 0;

	vb_lock(&fill_lock);
	while (i < PATHS - 1 && plain[i] && plain[i] != ops)
		i++;
	if (!plain[i]) {
		faulty[i] = *ops;
		faulty[i].kick = faulty_kick;
		faulty[i].judge = ops->ring && ops->datagram ? ask_about_datagram : NULL;
		faulty[i].settle = faulty_settle;
		faulty[i].deadline = ops->deadline || is_local(ops) ? faulty_deadline : NULL;
		faulty[i].forget_sends = faulty_forget_sends;
		faulty[i].reset = faulty_reset;
		plain[i] = ops;
	}
	vb_unlock(&fill_lock);
	return i;
}

const struct vb_path_ops *vb_path_faulty(struct vb_qp *qp, const struct vb_path_ops *ops)
{
	if (is_local(ops) && !qp->fault.due && qp->sq_max_wr)
		qp->fault.due = calloc(qp->sq_max_wr, sizeof(*qp->fault.due));
	if (!is_faulty(qp->path)) {
		qp->fault.judged = qp->fault.first_due = qp->sq_head;
		if (qp->fault.due) /* requests that wait already are not delayed */
			memset(qp->fault.due, 0, qp->sq_max_wr * sizeof(*qp->fault.due));
	}
	return &faulty[slot_of_path(ops)];
}

void vb_path_faulty_in_child(void)
{
	vb_lock_reset(&fill_lock);
}

static void arm_path(struct vb_qp *qp, void *arg)
{
	vb_qp_arm_wr(qp);
	/* a QP whose requests wait keeps asking, so that they are sent */
	if (vb_fault_is_armed(VB_FAULT_ARM_QUEUE) || qp->sq_emit == qp->sq_head)
		vb_path_use(qp, vb_path_plain(qp));
}

void vb_path_arm(struct vb_node *node)
{
	vb_lock(&node->progress);
	vb_node_each_qp(node, arm_path, NULL);
	vb_unlock(&node->progress);
}
