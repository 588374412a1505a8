// qp.c - queue pairs: create, destroy
// follows: IBA volume 1, 11.2.5.1 (create queue pair), 11.2.5.4 (destroy); ibv_create_qp(3), ibv_create_qp_ex(3)
// SPDX-License-Identifier: MIT
#include "core/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocate.h"
#include "core/arrival.h"
#include "core/async.h"
#include "core/cntr.h"
#include "core/context.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/mw.h"
#include "core/opcode.h"
#include "core/pd.h"
#include "core/rq.h"
#include "core/sq.h"
#include "core/tm.h"
#include "core/verbs.h"
#include "core/wq.h"
#include "core/xrc.h"
#include "util/sip.h"

static int check_cap(const struct ibv_qp_cap *cap, bool has_srq)
{
	if (cap->max_send_wr > VB_MAX_QP_WR || cap->max_send_sge > VB_MAX_SGE || cap->max_inline_data > VB_MAX_INLINE)
		return EINVAL;
	if (!has_srq && (cap->max_recv_wr > VB_MAX_QP_WR || cap->max_recv_sge > VB_MAX_SGE))
		return EINVAL;
	return 0;
}

/* The parts that the program gives it. An XRC target has an XRC domain only, and an XRC initiator receives nothing. */
static int check_parts(const struct ibv_context *context, const struct ibv_qp_init_attr_ex *a)
{
	if (a->qp_type == IBV_QPT_XRC_RECV)
		return (a->comp_mask & IBV_QP_INIT_ATTR_XRCD) && vb_xrcd_is_of(a->xrcd, context) ? 0 : EINVAL;
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd || a->pd->context != context || !vb_pd_is_sound(a->pd))
		return EINVAL;
	if (vb_rss_is_wanted(a))
		return vb_rss_check(context, a);
	if (!a->send_cq || a->send_cq->context != context || !vb_cq_is_sound(a->send_cq))
		return EINVAL;
	if (a->qp_type == IBV_QPT_XRC_SEND)
		return 0;
	if (!a->recv_cq || a->recv_cq->context != context || (a->srq && a->srq->context != context))
		return EINVAL;
	if (a->srq && vb_srq_is_sound(a->srq) && vb_srq(a->srq)->tm && a->qp_type != IBV_QPT_RC)
		return EINVAL;
	return vb_cq_is_sound(a->recv_cq) && (!a->srq || (vb_srq_is_sound(a->srq) && !vb_srq(a->srq)->xrcd)) ? 0
	                                                                                                     : EINVAL;
}

static bool is_xrc(enum ibv_qp_type type)
{
	return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

static bool type_exists(const struct vb_device *dev, enum ibv_qp_type type)
{
	if (type == IBV_QPT_RAW_PACKET)
		return vb_device_has_raw_packets(dev);
	return type == IBV_QPT_RC ||
	       (!vb_device_rc_only(dev) && (type == IBV_QPT_UC || type == IBV_QPT_UD || is_xrc(type)));
}

static uint32_t tso_header(const struct ibv_qp_init_attr_ex *a)
{
	return a->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER ? a->max_tso_header : 0;
}

static uint32_t create_flags(const struct ibv_qp_init_attr_ex *a)
{
	return a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? a->create_flags : 0;
}

/* About multicast, which connected queue pairs have none of, so that it has no effect there; and those of raw packets. Where
 * they receive into work queues, these have flags of their own. */
static bool flags_exist(const struct vb_device *dev, const struct ibv_qp_init_attr_ex *a)
{
	bool arrival = a->qp_type == IBV_QPT_RAW_PACKET && !vb_rss_is_wanted(a);
	uint32_t flags = vb_device_rc_only(dev) ? 0 : IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;

	return !(create_flags(a) & ~(flags | (uint32_t)(arrival ? VB_QP_ARRIVAL_FLAGS : 0)));
}

static int check_init_attr(struct ibv_context *context, const struct ibv_qp_init_attr_ex *a)
{
	const uint32_t supported =
	        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
	        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | (is_xrc(a->qp_type) ? IBV_QP_INIT_ATTR_XRCD : 0) |
	        (a->qp_type == IBV_QPT_RAW_PACKET ? IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH : 0);

	const struct vb_device *dev = vb_device_of(context->device);

	if (!type_exists(dev, a->qp_type))
		return EOPNOTSUPP;
	if ((a->comp_mask & ~supported) || !flags_exist(dev, a) ||
	    (tso_header(a) && (a->qp_type != IBV_QPT_RAW_PACKET || vb_rss_is_wanted(a))))
		return EOPNOTSUPP;
	if (tso_header(a) > VB_MAX_TSO_HEADER)
		return EINVAL;
	int err = check_parts(context, a);

	if (err)
		return err;
	if ((a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	    (a->send_ops_flags & ~vb_wr_send_ops((uint8_t)a->qp_type, vb_device_rc_only(dev))))
		return EOPNOTSUPP;
	return a->qp_type == IBV_QPT_XRC_RECV ? 0 : check_cap(&a->cap, a->srq || a->qp_type == IBV_QPT_XRC_SEND);
}

/* The requested capacities, rounded up to those of the rings. The program gets them back. */
static struct ibv_qp_cap round_cap(const struct ibv_qp_cap *cap, bool has_srq)
{
	struct ibv_qp_cap r = {
	        .max_send_wr = vb_pow2(cap->max_send_wr),
	        .max_send_sge = cap->max_send_sge ? cap->max_send_sge : 1,
	        .max_inline_data = (cap->max_inline_data + 7) & ~7u,
	};

	if (!has_srq) {
		r.max_recv_wr = vb_pow2(cap->max_recv_wr);
		r.max_recv_sge = cap->max_recv_sge ? cap->max_recv_sge : 1;
	}
	return r;
}

/* Takes the next n bytes of the block. If base is NULL it only counts them. */
static void *block_cut(char *base, size_t *used, size_t n)
{
	char *p = base ? base + *used : NULL;

	*used += (n + 15) & ~(size_t)15;
	return p;
}

/* Lays the rings of a queue pair out at base. The first call (base NULL) computes their size. */
static size_t lay_out(struct vb_qp *qp, char *base, const struct ibv_qp_cap *cap, bool rc, bool xrc)
{
	size_t used = 0, sq = cap->max_send_wr, rq = cap->max_recv_wr;
	struct vb_qp at = {
	        .swqe = block_cut(base, &used, sq * sizeof(*qp->swqe)),
	        .ssge = block_cut(base, &used, sq * cap->max_send_sge * sizeof(*qp->ssge)),
	        .sinline = block_cut(base, &used, sq * cap->max_inline_data),
	        .rq.wqe = block_cut(base, &used, rq * sizeof(*qp->rq.wqe)),
	        .rq.sge = block_cut(base, &used, rq * cap->max_recv_sge * sizeof(*qp->rq.sge)),
	        .inbound = block_cut(base, &used, sizeof(*qp->inbound)),
	        .local.inread = rc ? block_cut(base, &used, VB_RD_ATOM_SLOTS * sizeof(*qp->local.inread)) : NULL,
	        .xrc.srqns = xrc ? block_cut(base, &used, sq * sizeof(*qp->xrc.srqns)) : NULL,
	};

	if (base) {
		qp->swqe = at.swqe;
		qp->ssge = at.ssge;
		qp->sinline = cap->max_inline_data ? at.sinline : NULL;
		qp->rq.wqe = at.rq.wqe;
		qp->rq.sge = at.rq.sge;
		qp->inbound = at.inbound;
		qp->local.inread = at.local.inread;
		qp->xrc.srqns = at.xrc.srqns;
	}
	return used;
}

/* A queue pair is one allocation, the struct and then its rings, unless the program allocates the rings. NULL with errno
 * on failure. */
struct vb_qp *vb_qp_alloc(struct vb_pd *pd, const struct ibv_qp_cap *cap, enum ibv_qp_type type)
{
	bool rc = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV, xrc = type == IBV_QPT_XRC_SEND;
	size_t head = (sizeof(struct vb_qp) + 63) & ~(size_t)63,
	       rings = (lay_out(NULL, NULL, cap, rc, xrc) + 63) & ~(size_t)63;
	void *theirs;
	int err = vb_memory_ask(pd, rings, VB_RESOURCE_QP, &theirs);
	size_t size = theirs ? head : head + rings;
	struct vb_qp *qp = err ? NULL : aligned_alloc(64, size);

	if (!qp) {
		if (!err)
			vb_memory_give(pd, theirs, VB_RESOURCE_QP);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	memset(qp, 0, size);
	qp->theirs = theirs;
	lay_out(qp, theirs ? theirs : (char *)qp + head, cap, rc, xrc);
	qp->cap = *cap;
	qp->sq_max_wr = cap->max_send_wr;
	qp->sq_mask = cap->max_send_wr - 1;
	qp->sq_max_sge = cap->max_send_sge;
	qp->sq_max_inline = cap->max_inline_data;
	qp->rq.max_wr = cap->max_recv_wr;
	qp->rq.mask = cap->max_recv_wr ? cap->max_recv_wr - 1 : 0;
	qp->rq.max_sge = cap->max_recv_sge;
	qp->max_msg = VB_MAX_MSG_SZ;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	pthread_mutex_init(&qp->ack_lock, NULL);
	pthread_cond_init(&qp->ack_cond, NULL);
	pthread_mutex_init(&qp->modify_lock, NULL);
	vb_lock_init(&qp->sq_lock, VB_RANK_SQ);
	vb_lock_init(&qp->wr_lock, VB_RANK_PROGRAM);
	vb_lock_init(&qp->rq.lock, VB_RANK_RQ);
	return qp;
}

void vb_qp_free(struct vb_qp *qp)
{
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	pthread_mutex_destroy(&qp->ack_lock);
	pthread_cond_destroy(&qp->ack_cond);
	pthread_mutex_destroy(&qp->modify_lock);
	vb_relay_free(qp);
	free(qp->fault.due);
	free(qp->stso);
	vb_object_free(qp, &qp->made);
}

/* The parts of a queue pair that is not an XRC target. An XRC initiator completes everything in one queue. */
static void fill_parts(struct vb_qp *qp, const struct ibv_qp_init_attr_ex *a)
{
	bool receives = a->qp_type != IBV_QPT_XRC_SEND;

	qp->qp.pd = a->pd;
	qp->pd = vb_pd(a->pd);
	if (vb_rss_is_wanted(a)) /* its queues are those of its table */
		return;
	qp->qp.send_cq = a->send_cq;
	qp->qp.recv_cq = a->recv_cq;
	qp->qp.srq = receives ? a->srq : NULL;
	qp->scq = vb_cq(a->send_cq);
	qp->rcq = vb_cq(receives ? a->recv_cq : a->send_cq);
	qp->srq = receives && a->srq ? vb_srq(a->srq) : NULL;
	if (qp->srq && qp->srq->tm) {
		qp->named_rcq = qp->rcq;
		qp->rcq = qp->srq->cq;
	}
}

static void fill_public(struct vb_qp *qp, struct ibv_context *context, const struct ibv_qp_init_attr_ex *a)
{
	qp->qp.context = context;
	qp->qp.qp_context = a->qp_context;
	qp->qp.qp_type = a->qp_type;
	qp->node = vb_ctx(context)->node;
	qp->type = (uint8_t)a->qp_type;
	if (a->qp_type == IBV_QPT_XRC_RECV) {
		qp->pd = &vb_xrc_no_pd;
		qp->xrc.domain = vb_xrcd(a->xrcd)->domain;
		qp->cap = (struct ibv_qp_cap){0};
	} else {
		fill_parts(qp, a);
	}
	qp->wants = vb_arrival_of_qp(create_flags(a));
	qp->blocks_self = create_flags(a) & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	qp->sq_sig_all = a->sq_sig_all;
	qp->sq_flags = a->sq_sig_all ? IBV_SEND_SIGNALED : 0;
	qp->ib = vb_ctx(context)->dev->ib;
	vb_path_none(qp);
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qp->is_ex = true;
		qp->send_ops = a->send_ops_flags;
		vb_qp_fill_wr(qp);
	}
}

/* Gives the QP the next free number of the lane, and publishes the QP in RESET. A number is reused only after all
 * others, and no number reveals another. */
static int enter_table(struct vb_qp *qp)
{
	struct vb_node *node = qp->node;
	uint32_t i;

	vb_lock(&node->progress);
	if (node->qp_count >= VB_MAX_QP) {
		vb_unlock(&node->progress);
		return ENOMEM;
	}
	do
		i = vb_shuffle(node->qp_key, VB_LANE_SHIFT, VB_QP_INDEX(node->qp_next++));
	while (atomic_load_explicit(&node->qps[i], memory_order_relaxed));
	qp->qp.qp_num = node->lane << VB_LANE_SHIFT | i;
	qp->qp.handle = qp->qp.qp_num;
	if (node->qp_entries < VB_LANE_QPS) /* the first use of this number, which keeps this entry from now on */
		atomic_store_explicit(&vb_seg_qp_places(node->seg)[i], (uint16_t)(node->qp_entries++ ^ i),
		                      memory_order_relaxed);
	qp->made = VB_MADE(qp->qp);
	qp->shared = vb_seg_qp(node->seg, qp->qp.qp_num);
	atomic_store(&qp->shared->qpn, qp->qp.qp_num);
	atomic_store(&qp->shared->type, qp->type);
	atomic_store(&qp->shared->partition, qp->ib ? VB_IB_SHARED(0, VB_IB_ANY_LID) : 0);
	atomic_store(&qp->shared->pd, vb_pd_id(qp->pd));
	atomic_store(&qp->shared->access, 0);
	vb_qp_arm_wr(qp); /* under progress, as vb_path_arm: rules that are armed now see this QP, or this sees them */
	atomic_store_explicit(&node->qps[i], qp, memory_order_release);
	node->qp_count++;
	vb_unlock(&node->progress);
	return 0;
}

static void count_users(struct vb_qp *qp, int n)
{
	if (qp->type == IBV_QPT_XRC_RECV) /* its handles hold the XRC domain, and the SRQs their parts */
		return;
	if (n > 0)
		atomic_fetch_add(&qp->pd->users, n);
	else
		vb_pd_drop(qp->pd);
	if (!qp->scq)
		return;
	atomic_fetch_add(&qp->scq->users, n);
	atomic_fetch_add(&qp->rcq->users, n);
	if (qp->named_rcq)
		atomic_fetch_add(&qp->named_rcq->users, n);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->users, n);
}

/* Room for the headers of its requests. */
static int add_tso(struct vb_qp *qp, uint32_t header)
{
	qp->stso = calloc(qp->sq_max_wr, header);
	qp->sq_max_tso = header;
	return qp->stso || !qp->sq_max_wr ? 0 : ENOMEM;
}

/* Makes the queue pair. NULL with errno set on failure. */
static struct vb_qp *make_queue_pair(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr,
                                     const struct ibv_qp_cap *cap)
{
	struct vb_pd *pd = attr->qp_type == IBV_QPT_XRC_RECV ? &vb_xrc_no_pd : vb_pd(attr->pd);
	struct vb_qp *qp = vb_qp_alloc(pd, cap, attr->qp_type);
	int err = 0;

	if (!qp)
		return NULL;
	fill_public(qp, context, attr);
	if (tso_header(attr))
		err = add_tso(qp, tso_header(attr));
	if (!err && attr->qp_type == IBV_QPT_RAW_PACKET)
		err = vb_raw_open(qp);
	if (!err && vb_rss_is_wanted(attr))
		err = vb_rss_open(qp, attr);
	if (!err)
		err = enter_table(qp);
	if (err) {
		vb_memory_give(qp->pd, qp->theirs, VB_RESOURCE_QP);
		vb_raw_close(qp);
		vb_rss_close(qp);
		vb_qp_free(qp);
		errno = err;
		return NULL;
	}
	count_users(qp, 1);
	return qp;
}

/* What is allocated for a queue pair without queues of its own. */
static const struct ibv_qp_cap no_queues = {.max_send_wr = 1, .max_send_sge = 1};

/* An XRC target can outlive the handle of the program that made it, and needs the context until then. */
struct vb_qp *vb_qp_make_target(struct ibv_context *context, struct vb_xrcd *xrcd)
{
	const struct ibv_qp_init_attr_ex attr = {
	        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = &xrcd->xrcd};
	struct vb_qp *qp = make_queue_pair(context, &attr, &no_queues);

	if (qp)
		vb_context_hold(vb_ctx(context));
	return qp;
}

static struct ibv_qp *make_target(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct vb_qp *qp = vb_qp_make_target(context, vb_xrcd(attr->xrcd));
	struct vb_xrc_id id;

	if (!qp)
		return NULL;
	struct ibv_qp *handle = vb_xrc_handle(qp, context, vb_xrcd(attr->xrcd), attr->qp_context);

	if (!handle) {
		vb_qp_finish(qp);
		errno = ENOMEM;
		return NULL;
	}
	handle->pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL; /* librdmacm reads it; it has no effect */
	attr->cap = qp->cap;
	if (vb_xrc_id_of(qp->xrc.domain, &id))
		vb_xrc_far_ops.offer(qp->node);
	return handle;
}

/* The send queue is the adapter's, for rendezvous. To the program it is always full. */
static void give_sends(struct vb_qp *qp)
{
	qp->sq_tagged = qp->sq_apart = true;
	qp->cap = (struct ibv_qp_cap){0};
	for (uint32_t i = 0; i <= qp->sq_mask; i++)
		atomic_store(&qp->swqe[i].in_cq, true);
}

struct ibv_qp *vb_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	int err = check_init_attr(context, attr);

	if (!err)
		err = vb_context_fault(vb_ctx(context), VB_FAULT_CREATE_QP);

	if (err) {
		errno = err;
		return NULL;
	}
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return make_target(context, attr);
	bool rss = vb_rss_is_wanted(attr);
	struct ibv_qp_cap cap = rss ? no_queues : round_cap(&attr->cap, attr->srq || attr->qp_type == IBV_QPT_XRC_SEND);
	bool tagged = attr->qp_type == IBV_QPT_RC && attr->srq && vb_srq(attr->srq)->tm && !attr->cap.max_send_wr;
	const struct ibv_qp_cap of_adapter = {
	        .max_send_wr = VB_TM_SENDS, .max_send_sge = VB_MAX_TAG_SGE, .max_inline_data = VB_TM_FIN_LEN};
	struct vb_qp *qp = make_queue_pair(context, attr, tagged ? &of_adapter : &cap);

	if (!qp)
		return NULL;
	if (tagged)
		give_sends(qp);
	attr->cap = qp->cap;
	return &qp->qp;
}

struct ibv_qp *vb_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
	        .qp_context = attr->qp_context,
	        .send_cq = attr->send_cq,
	        .recv_cq = attr->recv_cq,
	        .srq = attr->srq,
	        .cap = attr->cap,
	        .qp_type = attr->qp_type,
	        .sq_sig_all = attr->sq_sig_all,
	        .comp_mask = IBV_QP_INIT_ATTR_PD,
	        .pd = pd,
	};
	struct ibv_qp *qp = vb_create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

void vb_qp_clean_cqs(struct vb_qp *qp)
{
	if (!qp->scq) /* the messages have arrived, and are the SRQs' or the work queues' */
		return;
	vb_cq_clean(qp->scq, qp->qp.qp_num);
	if (qp->rcq != qp->scq)
		vb_cq_clean(qp->rcq, qp->qp.qp_num);
}

static void leave_table(struct vb_qp *qp)
{
	struct vb_node *node = qp->node;

	vb_lock(&node->progress);
	vb_lock(&qp->sq_lock);
	vb_qp_set_state(qp, IBV_QPS_RESET);
	vb_qp_close_shared(qp); /* before vb_path_reset wakes peers */
	vb_path_reset(qp);
	vb_sq_drop_held(qp);
	vb_receive_abandon(qp);
	vb_mw_forget(qp);
	atomic_store_explicit(&node->qps[VB_QP_INDEX(qp->qp.qp_num)], NULL, memory_order_release);
	node->qp_count--;
	vb_unlock(&qp->sq_lock);
	vb_unlock(&node->progress);
}

bool vb_qp_is_listed(const struct vb_qp *qp)
{
	return atomic_load(&qp->node->qps[VB_QP_INDEX(qp->made.handle)]) == qp;
}

bool vb_qp_hold(struct vb_qp *qp)
{
	struct vb_node *node = qp->node;

	vb_lock(&node->progress);
	bool listed = vb_qp_is_listed(qp);

	if (listed)
		atomic_fetch_add(&qp->holders, 1);
	vb_unlock(&node->progress);
	return listed;
}

struct vb_qp *vb_qp_hold_number(struct vb_node *node, uint32_t qpn)
{
	vb_lock(&node->progress);
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);

	if (qp && qp->made.handle != qpn)
		qp = NULL;
	if (qp)
		atomic_fetch_add(&qp->holders, 1);
	vb_unlock(&node->progress);
	return qp;
}

void vb_qp_drop(struct vb_qp *qp)
{
	vb_mutex_lock(&qp->ack_lock, VB_RANK_ACK);
	if (atomic_fetch_sub(&qp->holders, 1) == 1)
		pthread_cond_broadcast(&qp->ack_cond);
	vb_mutex_unlock(&qp->ack_lock);
}

/* Takes the lock even if nobody holds it: who has held it last may still have the lock. */
static void await_holders(struct vb_qp *qp)
{
	VB_MAY_WAIT();
	vb_mutex_lock(&qp->ack_lock, VB_RANK_ACK);
	while (atomic_load(&qp->holders))
		pthread_cond_wait(&qp->ack_cond, &qp->ack_lock);
	vb_mutex_unlock(&qp->ack_lock);
}

static bool may_receive(const struct vb_qp *qp)
{
	uint8_t state = atomic_load(&qp->state);

	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

void vb_qp_finish(struct vb_qp *qp)
{
	struct vb_context *held = qp->type == IBV_QPT_XRC_RECV ? VB_CONTEXT_OF(qp) : NULL;

	if (may_receive(qp))
		vb_qp_receive_arrived(qp->node);
	vb_mutex_lock(&qp->modify_lock, VB_RANK_MODIFY);
	leave_table(qp);
	vb_mutex_unlock(&qp->modify_lock);
	await_holders(qp);
	atomic_thread_fence(memory_order_seq_cst);
	/* Nobody copies for a guest. The progress thread ends it: it must not wait for a process that claims to copy */
	if (!qp->xrc.initiator)
		vb_quiesce(qp->node, 0, qp->qp.qp_num);
	vb_mw_unbind(qp);
	vb_raw_close(qp);
	vb_rss_close(qp);
	vb_qp_clean_cqs(qp);
	if (!held)
		vb_async_forget(VB_CONTEXT_OF(qp), IBV_EVENT_QP_FATAL, qp);
	vb_memory_give(qp->pd, qp->theirs, VB_RESOURCE_QP);
	vb_cntr_detach(qp);
	count_users(qp, -1);
	vb_qp_free(qp);
	if (held)
		vb_context_drop(held);
}

int vb_destroy_qp(struct ibv_qp *ibqp)
{
	struct vb_qp *qp = vb_qp(ibqp);

	if (!vb_qp_is_sound(ibqp))
		return ENOENT;
	if (qp->mcasts || qp->flows) /* still attached to a multicast group or a flow: ibv_destroy_qp(3) */
		return EBUSY;
	if (qp->xrc.far)
		vb_xrc_far_close(qp);
	else if (qp->xrc.real)
		vb_xrc_handle_close(qp);
	else
		vb_qp_finish(qp);
	return 0;
}
