// cq_ex.c - extended completion queues: one entry at a time, by accessor functions
// follows: ibv_create_cq_ex(3)
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "core/cq.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/node.h"
#include "core/verbs.h"
#include "fault/set.h"

#define TIMESTAMPS (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define OF_FRAMES (IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG)
#define FLAGS_KNOWN IBV_CREATE_CQ_SUP_WC_FLAGS

static struct vb_cq *cq_of(struct ibv_cq_ex *ex)
{
	return (struct vb_cq *)ex;
}

static bool cq_next(struct vb_cq *cq)
{
	if (vb_cq_empty(cq) || !vb_cq_pop(cq, 1, &cq->current))
		return false;
	cq->ex.status = cq->current.wc.status;
	cq->ex.wr_id = cq->current.wc.wr_id;
	return true;
}

/* The same while a rule of fault injection is about receives. */
static bool cq_next_faulty(struct vb_cq *cq)
{
	if (!cq_next(cq))
		return false;
	vb_cq_judge(cq, &cq->current.wc);
	cq->ex.status = cq->current.wc.status;
	return true;
}

static inline __attribute__((always_inline)) int start_with(struct ibv_cq_ex *ex, const struct ibv_poll_cq_attr *attr,
                                                            bool (*next)(struct vb_cq *))
{
	struct vb_cq *cq = cq_of(ex);

	if (attr && attr->comp_mask)
		return EINVAL;
	if (!cq->single_threaded)
		vb_lock(&cq->poll_lock);
	if (next(cq))
		return 0;
	vb_progress(cq->node, cq, 1);
	if (next(cq))
		return 0;
	if (!cq->single_threaded)
		vb_unlock(&cq->poll_lock);
	return ENOENT;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	return start_with(ex, attr, cq_next);
}

static int start_poll_faulty(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	return start_with(ex, attr, cq_next_faulty);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return cq_next(cq_of(ex)) ? 0 : ENOENT;
}

static int next_poll_faulty(struct ibv_cq_ex *ex)
{
	return cq_next_faulty(cq_of(ex)) ? 0 : ENOENT;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	if (!cq_of(ex)->single_threaded)
		vb_unlock(&cq_of(ex)->poll_lock);
}

#define READER(name, type, expr)                                  \
	static type read_##name(struct ibv_cq_ex *ex)             \
	{                                                         \
		const struct ibv_wc *wc = &cq_of(ex)->current.wc; \
                                                                  \
		return expr;                                      \
	}

READER(opcode, enum ibv_wc_opcode, wc->opcode)
READER(vendor_err, uint32_t, wc->vendor_err)
READER(byte_len, uint32_t, wc->byte_len)
READER(imm_data, __be32, wc->imm_data)
READER(qp_num, uint32_t, wc->qp_num)
READER(src_qp, uint32_t, wc->src_qp)
READER(wc_flags, unsigned int, wc->wc_flags)
READER(slid, uint32_t, wc->slid)
READER(sl, uint8_t, wc->sl)
READER(dlid_path_bits, uint8_t, wc->dlid_path_bits)

/* Only frames have one: core/arrival.h. */
static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	const struct ibv_wc *wc = &cq_of(ex)->current.wc;

	return wc->opcode == IBV_WC_RECV && !(wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
	               ? (uint16_t)wc->imm_data
	               : 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	const struct ibv_wc *wc = &cq_of(ex)->current.wc;

	return wc->opcode == IBV_WC_RECV && wc->status == IBV_WC_SUCCESS ? wc->vendor_err : 0;
}

/* The header of a message that matched; others have theirs in the receive. */
static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct vb_cqe *c = &cq_of(ex)->current;
	bool matched = c->wc.opcode == IBV_WC_TM_RECV && (c->wc.wc_flags & IBV_WC_TM_MATCH);

	*info = matched ? (struct ibv_wc_tm_info){.tag = c->tag, .priv = c->wc.vendor_err} : (struct ibv_wc_tm_info){0};
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.timestamp;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
	return vb_wall_clock(cq_of(ex)->current.timestamp);
}

/* Chooses the functions that poll: with or without the rules of fault injection. Under node->ctx_lock. */
static void arm_polls(struct vb_cq *cq)
{
	bool armed = vb_fault_is_armed(VB_FAULT_ARM_RECV);

	/* programs read these at any time */
	__atomic_store_n(&cq->ex.start_poll, armed ? start_poll_faulty : start_poll, __ATOMIC_RELAXED);
	__atomic_store_n(&cq->ex.next_poll, armed ? next_poll_faulty : next_poll, __ATOMIC_RELAXED);
}

void vb_cq_arm_all(struct vb_node *node)
{
	for (struct vb_cq *cq = node->cqs; cq; cq = cq->next)
		if (cq->is_ex)
			arm_polls(cq);
}

void vb_cq_ex_fill(struct vb_cq *cq)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_cvlan = read_cvlan;
	ex->read_flow_tag = read_flow_tag;
	ex->read_tm_info = read_tm_info;
	ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
	/* rules that are armed later find the queue in the list, which it is in already */
	vb_mutex_lock(&cq->node->ctx_lock, VB_RANK_CONTEXTS);
	cq->is_ex = true;
	arm_polls(cq);
	vb_mutex_unlock(&cq->node->ctx_lock);
}

/* The parent domain of the attributes, or NULL. */
static struct vb_pd *domain_of(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? vb_pd(attr->parent_domain) : NULL;
}

static int check_cq_attr(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t masks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

	if ((attr->comp_mask & ~masks) || ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~flags)))
		return EINVAL;
	if (attr->wc_flags & ~(uint64_t)FLAGS_KNOWN)
		return EINVAL;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		const struct vb_pd *domain = domain_of(attr);

		if (!domain || domain->pd.context != context || !vb_pd_is_sound(&domain->pd) || !domain->parent)
			return EINVAL;
	}
	return attr->wc_flags & OF_FRAMES && !vb_device_has_raw_packets(vb_device_of(context->device)) ? EOPNOTSUPP : 0;
}

struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	int err = check_cq_attr(context, attr);

	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_cq *cq =
	        vb_cq_new(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector, domain_of(attr));
	if (!cq)
		return NULL;
	cq->wc_flags = attr->wc_flags;
	cq->want_timestamp = attr->wc_flags & TIMESTAMPS;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) {
		cq->single_threaded = attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
		cq->ignore_overrun = attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	}
	vb_cq_ex_fill(cq);
	return &cq->ex;
}
