// qp.c - queue pairs, shared receive queues and the completion queues that come with them
// follows: rdma_create_qp(3), rdma_create_srq(3); rdma_verbs.h (which uses id->send_cq, recv_cq, their channels, srq, pd)
// SPDX-License-Identifier: MIT
#include <rdma/rdma_verbs.h>

#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->qp_type == IBV_QPT_XRC_RECV && id->srq)
		return;
	if (id->send_cq == id->recv_cq)
		id->send_cq = NULL;
	if (id->send_cq_channel == id->recv_cq_channel)
		id->send_cq_channel = NULL;
	destroy_cq(&id->send_cq, &id->send_cq_channel);
	destroy_cq(&id->recv_cq, &id->recv_cq_channel);
}

static int create_cq(struct rdma_cm_id *id, uint32_t size, struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (!size)
		return 0;
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return errno;
	*cq = ibv_create_cq(id->verbs, (int)size, id, *channel, 0);
	return *cq ? 0 : errno;
}

static int create_cqs(struct rdma_cm_id *id, uint32_t send_size, uint32_t recv_size)
{
	int err = create_cq(id, recv_size, &id->recv_cq, &id->recv_cq_channel);

	if (!err)
		err = create_cq(id, send_size, &id->send_cq, &id->send_cq_channel);
	if (err)
		destroy_cqs(id);
	return err;
}

static int xrcd_of(struct rcm_id *id, struct ibv_xrcd **xrcd)
{
	int err = rcm_device_xrcd(id->source.dev);

	if (!err)
		*xrcd = id->source.dev->xrcd;
	return err;
}

static int complete_xrc_srq(struct rcm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	int err = 0;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd)
		err = xrcd_of(id, &attr->xrcd);
	if (err)
		return err;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq) {
		err = create_cqs(&id->id, 0, attr->attr.max_wr);
		if (err)
			return err;
		attr->cq = id->id.recv_cq;
	}
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	return 0;
}

RCM_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *cm_id, struct ibv_srq_init_attr_ex *attr)
{
	RCM_HARDWARE(create_srq_ex, cm_id, attr);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id))
		return -1;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || cm_id->srq || !cm_id->verbs || !id->source.dev)
		return rcm_fail(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->pd = cm_id->pd;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	}
	int err = attr->srq_type == IBV_SRQT_XRC ? complete_xrc_srq(id, attr) : 0;

	if (err)
		return rcm_fail(err);
	cm_id->srq = ibv_create_srq_ex(cm_id->verbs, attr);
	if (!cm_id->srq) {
		err = errno;
		destroy_cqs(cm_id);
		return rcm_fail(err);
	}
	if (!cm_id->pd)
		cm_id->pd = attr->pd;
	return 0;
}

RCM_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	RCM_HARDWARE(create_srq, id, pd, attr);
	struct ibv_srq_init_attr_ex ex = {
	        .srq_context = attr->srq_context,
	        .attr = attr->attr,
	        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
	        .srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
	        .pd = pd,
	};
	int ret = rdma_create_srq_ex(id, &ex);

	attr->attr = ex.attr;
	return ret;
}

RCM_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	RCM_HARDWARE_VOID(destroy_srq, id);
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
	destroy_cqs(id);
}

/* Fills in what the caller left out: protection domain, XRC domain, completion queues, SRQ. */
static int complete_attr(struct rcm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *cm_id = &id->id;
	int err;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = cm_id->pd;
	} else if (cm_id->verbs != attr->pd->context) {
		return EINVAL;
	}
	if ((cm_id->recv_cq && attr->recv_cq && cm_id->recv_cq != attr->recv_cq) ||
	    (cm_id->send_cq && attr->send_cq && cm_id->send_cq != attr->send_cq))
		return EINVAL;
	if (cm_id->qp_type == IBV_QPT_XRC_RECV && (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd)) {
		err = xrcd_of(id, &attr->xrcd);
		if (err)
			return err;
		attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	}
	err = create_cqs(cm_id, attr->send_cq || cm_id->send_cq ? 0 : attr->cap.max_send_wr,
	                 attr->recv_cq || cm_id->recv_cq ? 0 : attr->cap.max_recv_wr);
	if (err)
		return err;
	attr->send_cq = attr->send_cq ? attr->send_cq : cm_id->send_cq;
	attr->recv_cq = attr->recv_cq ? attr->recv_cq : cm_id->recv_cq;
	attr->srq = attr->srq ? attr->srq : cm_id->srq;
	return 0;
}

/* Hardware adapters keep inline data in the place of the scatter list, and some programs rely on that room. */
static void widen_inline(struct ibv_qp_cap *cap)
{
	uint32_t room = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);

	if (cap->max_send_sge < 64 && cap->max_inline_data < room)
		cap->max_inline_data = room;
}

/* Stores the local ECE options. A queue pair without options offers nothing, so that its REQ is like that of a program
 * without ECE: a peer of another vendor could refuse an offer. */
static void note_ece(struct rcm_id *id, struct ibv_qp *qp)
{
	struct ibv_ece ece = {0};

	if (!ibv_query_ece(qp, &ece) && ece.options)
		id->local_ece = ece;
}

RCM_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *cm_id, struct ibv_qp_init_attr_ex *attr)
{
	RCM_HARDWARE(create_qp_ex, cm_id, attr);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id))
		return -1;
	if (cm_id->qp || !cm_id->verbs || !id->source.dev)
		return rcm_fail(EINVAL);
	int err = complete_attr(id, attr);

	if (err)
		return rcm_fail(err);
	widen_inline(&attr->cap);
	struct ibv_qp *qp = ibv_create_qp_ex(cm_id->verbs, attr);

	if (qp) {
		note_ece(id, qp);
		err = rcm_qp_init(id, qp);
	} else {
		err = errno;
	}
	if (err) {
		if (qp)
			ibv_destroy_qp(qp);
		destroy_cqs(cm_id);
		return rcm_fail(err);
	}
	int cancel;

	cm_id->pd = qp->pd;
	rcm_qp_lock(id, &cancel);
	cm_id->qp = qp;
	rcm_qp_unlock(id, cancel);
	return 0;
}

RCM_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	RCM_HARDWARE(create_qp, id, pd, attr);
	struct ibv_qp_init_attr_ex ex = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd ? pd : id->pd};
	int ret;

	_Static_assert(offsetof(struct ibv_qp_init_attr_ex, comp_mask) >= offsetof(struct ibv_qp_init_attr, sq_sig_all),
	               "the extended attributes begin with the plain ones");
	memcpy(&ex, attr, offsetof(struct ibv_qp_init_attr, sq_sig_all) + sizeof(attr->sq_sig_all));
	ret = rdma_create_qp_ex(id, &ex);
	/* programs read the queues created for them from attr */
	attr->send_cq = ex.send_cq;
	attr->recv_cq = ex.recv_cq;
	attr->srq = ex.srq;
	attr->cap = ex.cap;
	return ret;
}

RCM_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	RCM_HARDWARE_VOID(destroy_qp, id);
	int cancel;

	if (rcm_id(id)->generation != rcm.generation) /* a thread of this child's parent may have the lock */
		pthread_mutex_init(&rcm_id(id)->qp_lock, NULL);
	rcm_qp_lock(rcm_id(id), &cancel);
	struct ibv_qp *qp = id->qp;
	if (rcm_id(id)->generation == rcm.generation)
		rcm_qp_hear(rcm_id(id));
	id->qp = NULL; /* no event that is presented from now on uses it */
	rcm_qp_unlock(rcm_id(id), cancel);
	/* without the lock: it waits until the program has acknowledged the queue pair's events, and the thread that does
	 * may get an event of the id before */
	if (qp)
		ibv_destroy_qp(qp);
	destroy_cqs(id);
}
