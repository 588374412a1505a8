// qp_attr.c - the attributes of a queue pair: checks of their values, and their assignment
// follows: IBA volume 1, 11.2.5.2 (modify queue pair); ibv_modify_qp(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "core/ah.h"
#include "core/device.h"
#include "core/lid.h"
#include "core/qp.h"
#include "frame/fields.h"
#include "util/log.h"

/* --- checks of values --- */

static bool pkey_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	const struct vb_device *dev = VB_CONTEXT_OF(qp)->dev;

	return a->pkey_index < (dev->ib ? VB_IB_PKEYS : VB_PKEY_TBL_LEN);
}

static bool port_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->port_num >= 1 && a->port_num <= VB_PORTS;
}

static bool av_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return !vb_ah_check(VB_CONTEXT_OF(qp), &a->ah_attr, NULL, NULL);
}

/* The path MTU must fit the interface, because a longer packet would be lost silently. deviates: rxe accepts the
 * largest MTU of IBA in any case, and such a queue pair fails at its first large message. */
static bool mtu_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	struct vb_device *dev = VB_CONTEXT_OF(qp)->dev;
	static atomic_bool said;
	struct ibv_port_attr port;

	if (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096 || vb_query_port_attr(dev, 1, &port))
		return false;
	if (a->path_mtu <= port.active_mtu)
		return true;
	vb_log(atomic_exchange(&said, true) ? VB_LOG_WARN : VB_LOG_ERROR,
	       "%s: no path MTU of %u: its port can only receive packets of %u (choose a smaller one in the program, or \"ip "
	       "link set IF mtu N\")",
	       dev->dev.name, 128u << a->path_mtu, 128u << port.active_mtu);
	return false;
}

static bool timeout_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->timeout <= 31;
}

static bool retry_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->retry_cnt <= 7;
}

static bool rnr_retry_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->rnr_retry <= 7;
}

static bool rnr_timer_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->min_rnr_timer <= 31;
}

static bool rd_atomic_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->max_rd_atomic <= VB_MAX_QP_RD_ATOM;
}

static bool dest_rd_atomic_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->max_dest_rd_atomic <= VB_MAX_QP_RD_ATOM;
}

/* Automatic path migration exists on InfiniBand only: the kernel refuses it for RoCE. */
static bool alt_path_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return false;
}

static bool mig_state_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->path_mig_state == IBV_MIG_MIGRATED;
}

/* 0 ends the limit. */
static bool rate_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->rate_limit <= VB_MAX_RATE;
}

static bool cur_state_ok(const struct vb_qp *qp, const struct ibv_qp_attr *a)
{
	return a->cur_qp_state == atomic_load(&qp->state);
}

static const struct {
	int bit;
	bool (*ok)(const struct vb_qp *qp, const struct ibv_qp_attr *a);
} values[] = {
        {IBV_QP_CUR_STATE, cur_state_ok},
        {IBV_QP_PKEY_INDEX, pkey_ok},
        {IBV_QP_PORT, port_ok},
        {IBV_QP_AV, av_ok},
        {IBV_QP_PATH_MTU, mtu_ok},
        {IBV_QP_TIMEOUT, timeout_ok},
        {IBV_QP_RETRY_CNT, retry_ok},
        {IBV_QP_RNR_RETRY, rnr_retry_ok},
        {IBV_QP_MIN_RNR_TIMER, rnr_timer_ok},
        {IBV_QP_MAX_QP_RD_ATOMIC, rd_atomic_ok},
        {IBV_QP_MAX_DEST_RD_ATOMIC, dest_rd_atomic_ok},
        {IBV_QP_ALT_PATH, alt_path_ok},
        {IBV_QP_PATH_MIG_STATE, mig_state_ok},
        {IBV_QP_RATE_LIMIT, rate_ok},
};

/* While the send queue drains, ibv_modify_qp may only take the QP to RESET or ERR (IBA 10.3.1.6). */
static bool draining_forbids(const struct vb_qp *qp, enum ibv_qp_state next)
{
	return atomic_load(&qp->state) == IBV_QPS_SQD && __atomic_load_n(&qp->attr.sq_draining, __ATOMIC_RELAXED) &&
	       next != IBV_QPS_ERR && next != IBV_QPS_RESET;
}

bool vb_qp_is_iwarp(const struct vb_qp *qp)
{
	return VB_CONTEXT_OF(qp)->dev->iwarp;
}

int vb_qp_check_attr(const struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next,
                     const struct ibv_qp_attr *attr, int mask, bool here)
{
	bool iwarp = vb_qp_is_iwarp(qp) && !here;

	if (iwarp ? vb_qp_check_iwarp(cur, next) : vb_qp_check_mask(qp->type, cur, next, mask))
		return EINVAL;
	if (draining_forbids(qp, next))
		return EINVAL;
	if (iwarp && (mask & IBV_QP_RATE_LIMIT) && (cur != IBV_QPS_RTS || next != IBV_QPS_RTS))
		return EINVAL;
	if (iwarp)
		mask &= VB_QP_IWARP_ATTRS;
	if (here) /* only dgid is used, and no packet is sent */
		mask &= ~(IBV_QP_AV | IBV_QP_PATH_MTU);
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		if ((mask & values[i].bit) && !values[i].ok(qp, attr))
			return EINVAL;
	return 0;
}

/* --- assignment of attributes --- */

#define FIELD(bit, member)                                                                           \
	{                                                                                            \
		bit, offsetof(struct ibv_qp_attr, member), sizeof(((struct ibv_qp_attr *)0)->member) \
	}

static const struct {
	int bit;
	size_t offset, size;
} fields[] = {
        FIELD(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify),
        FIELD(IBV_QP_ACCESS_FLAGS, qp_access_flags),
        FIELD(IBV_QP_PKEY_INDEX, pkey_index),
        FIELD(IBV_QP_PORT, port_num),
        FIELD(IBV_QP_QKEY, qkey),
        FIELD(IBV_QP_AV, ah_attr),
        FIELD(IBV_QP_PATH_MTU, path_mtu),
        FIELD(IBV_QP_TIMEOUT, timeout),
        FIELD(IBV_QP_RETRY_CNT, retry_cnt),
        FIELD(IBV_QP_RNR_RETRY, rnr_retry),
        FIELD(IBV_QP_RQ_PSN, rq_psn),
        FIELD(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic),
        FIELD(IBV_QP_MIN_RNR_TIMER, min_rnr_timer),
        FIELD(IBV_QP_SQ_PSN, sq_psn),
        FIELD(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic),
        FIELD(IBV_QP_DEST_QPN, dest_qp_num),
        FIELD(IBV_QP_RATE_LIMIT, rate_limit),
};

void vb_qp_take_attr(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct vb_qp_shared *s = qp->shared;

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (mask & fields[i].bit)
			memcpy((char *)&qp->attr + fields[i].offset, (const char *)attr + fields[i].offset,
			       fields[i].size);
	if ((mask & IBV_QP_AV) && !qp->attr.ah_attr.is_global)
		vb_lid_route(VB_CONTEXT_OF(qp)->dev, &qp->attr.ah_attr);
	if ((mask & IBV_QP_AV) && !VB_CONTEXT_OF(qp)->dev->ib)
		qp->met = qp->attr.ah_attr.grh.dgid;
	qp->attr.rq_psn &= VB_PSN_MASK;
	qp->attr.sq_psn &= VB_PSN_MASK;
	qp->attr.dest_qp_num &= VB_QPN_MASK;
	qp->attr_valid |= mask;
	atomic_store(&s->access, qp->attr.qp_access_flags);
	atomic_store(&s->min_rnr_timer, qp->attr.min_rnr_timer);
	atomic_store(&s->max_dest_rd_atomic, qp->attr.max_dest_rd_atomic);
	atomic_store(&s->qkey, qp->attr.qkey);
}
