// wr.c - posting sends by the ibv_wr_ functions
// follows: ibv_wr_post(3)
// SPDX-License-Identifier: MIT
#include "core/device.h"
#include "core/place.h"
#include "core/mw.h"
#include "core/sq.h"
#include "core/verbs.h"
#include "fault/set.h"
#include "frame/fields.h"

/*
 * Requests are built in the free entries behind sq_head, under wr_lock, and become part of the queue in wr_complete.
 * Errors are stored until then, because the setters return nothing.
 */
static struct vb_qp *qp_of(struct ibv_qp_ex *qpx)
{
	return (struct vb_qp *)qpx;
}

static void fail_request(struct vb_qp *qp, int err)
{
	if (!qp->wr_error)
		qp->wr_error = err;
}

static uint32_t wr_index(const struct vb_qp *qp)
{
	return qp->sq_head + qp->wr_count - 1;
}

/* The entry that the setters fill; NULL after an error, or before the first builder. */
static struct vb_swqe *open_wr(struct vb_qp *qp)
{
	if (!qp->wr_count)
		fail_request(qp, EINVAL);
	return qp->wr_error ? NULL : vb_sq_at(qp, wr_index(qp));
}

/* --- the critical region --- */

static void wr_start(struct ibv_qp_ex *qpx)
{
	struct vb_qp *qp = qp_of(qpx);

	vb_lock(&qp->wr_lock);
	qp->wr_count = 0;
	qp->wr_error = 0;
}

static void wr_abort(struct ibv_qp_ex *qpx)
{
	struct vb_qp *qp = qp_of(qpx);

	qp->wr_count = 0;
	vb_unlock(&qp->wr_lock);
}

#define NO_SRQ UINT32_MAX /* ibv_wr_set_xrc_srqn was not called for this request */

static void check_srq_numbers(struct vb_qp *qp)
{
	for (uint32_t i = qp->sq_head; qp->type == IBV_QPT_XRC_SEND && i != qp->sq_head + qp->wr_count; i++)
		if (qp->xrc.srqns[i & qp->sq_mask] == NO_SRQ && vb_sq_at(qp, i)->opcode != IBV_WR_LOCAL_INV &&
		    vb_sq_at(qp, i)->opcode != IBV_WR_BIND_MW)
			fail_request(qp, EINVAL);
}

static void check_addresses(struct vb_qp *qp)
{
	for (uint32_t i = 0; qp->type == IBV_QPT_UD && i < qp->wr_count; i++)
		if (!vb_sq_at(qp, qp->sq_head + i)->ah)
			fail_request(qp, EINVAL);
}

static int wr_complete(struct ibv_qp_ex *qpx)
{
	struct vb_qp *qp = qp_of(qpx);

	vb_lock(&qp->sq_lock);
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	check_addresses(qp);
	check_srq_numbers(qp);
	if (!vb_sq_accepts(state))
		fail_request(qp, EINVAL);
	int err = qp->wr_error;

	if (err) {
		vb_unlock(&qp->sq_lock);
	} else {
		for (uint32_t n = qp->wr_count; n; n--) {
			struct vb_swqe *w = vb_sq_at(qp, qp->sq_head);

			vb_sq_append(qp, w, w->length);
		}
		vb_sq_submit(qp, state);
	}
	qp->wr_count = 0;
	vb_unlock(&qp->wr_lock);
	return err;
}

/* In place of wr_complete while there are rules of fault injection about calls. */
static int wr_complete_faulty(struct ibv_qp_ex *qpx)
{
	struct vb_qp *qp = qp_of(qpx);
	int err = vb_fault_ask_verb(VB_FAULT_POST_SEND, vb_qp_device(qp)->dev.name);

	if (err)
		fail_request(qp, err);
	return wr_complete(qpx);
}

/* --- builders --- */

static struct vb_swqe *wr_begin(struct vb_qp *qp, enum ibv_wr_opcode opcode)
{
	if (!(vb_wr_lookup(opcode)->send_op & qp->send_ops))
		fail_request(qp, EOPNOTSUPP);
	else if (!vb_sq_has_room(qp, qp->sq_head + qp->wr_count)) /* sq_lock is not needed: room can only grow */
		fail_request(qp, ENOMEM);
	if (qp->wr_error)
		return NULL;
	qp->wr_count++;
	struct vb_swqe *w = vb_sq_at(qp, wr_index(qp));

	w->wr_id = qp->qpx.wr_id;
	w->opcode = (uint8_t)opcode;
	w->flags = (uint8_t)((qp->qpx.wr_flags & VB_SEND_FLAGS & ~(unsigned)IBV_SEND_INLINE) | qp->sq_flags);
	w->num_sge = w->slot = w->data_written = 0;
	w->length = 0;
	w->imm = 0;
	w->ah = NULL;
	if (qp->type == IBV_QPT_XRC_SEND)
		qp->xrc.srqns[wr_index(qp) & qp->sq_mask] = NO_SRQ;
	return w;
}

static struct vb_swqe *begin_remote(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode, uint32_t rkey,
                                    uint64_t remote_addr)
{
	struct vb_swqe *w = wr_begin(qp_of(qpx), opcode);

	if (w) {
		w->rkey = rkey;
		w->remote_addr = remote_addr;
	}
	return w;
}

static void begin_imm(struct ibv_qp_ex *qpx, enum ibv_wr_opcode opcode, uint32_t imm)
{
	struct vb_swqe *w = wr_begin(qp_of(qpx), opcode);

	if (w)
		w->imm = w->rkey = imm;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
                              uint64_t swap)
{
	struct vb_swqe *w = begin_remote(qpx, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr);

	if (w) {
		w->compare_add = compare;
		w->swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	struct vb_swqe *w = begin_remote(qpx, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr);

	if (w) {
		w->compare_add = add;
		w->swap = 0;
	}
}

static void wr_local_inv(struct ibv_qp_ex *qpx, uint32_t invalidate_rkey)
{
	begin_imm(qpx, IBV_WR_LOCAL_INV, invalidate_rkey);
}

static void wr_rdma_read(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(qpx, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_rdma_write(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(qpx, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr, __be32 imm_data)
{
	struct vb_swqe *w = begin_remote(qpx, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr);

	if (w)
		w->imm = imm_data;
}

static void wr_send(struct ibv_qp_ex *qpx)
{
	wr_begin(qp_of(qpx), IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qpx, __be32 imm_data)
{
	begin_imm(qpx, IBV_WR_SEND_WITH_IMM, imm_data);
}

static void wr_send_inv(struct ibv_qp_ex *qpx, uint32_t invalidate_rkey)
{
	begin_imm(qpx, IBV_WR_SEND_WITH_INV, invalidate_rkey);
}

/* The 8 bytes are read now. */
static void wr_atomic_write(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr, const void *value)
{
	struct vb_swqe *w = begin_remote(qpx, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);

	if (!w)
		return;
	memcpy(&w->swap, value, sizeof(w->swap));
	w->length = VB_ATOMIC_WRITE_LEN;
	w->slot = 1;
}

static void wr_flush(struct ibv_qp_ex *qpx, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
                     uint8_t level)
{
	struct vb_swqe *w = begin_remote(qpx, (enum ibv_wr_opcode)VB_IBV_WR_FLUSH, rkey, remote_addr);
	struct vb_feth flush = {type, level};

	if (!w)
		return;
	if (level == VB_IBV_FLUSH_MR) /* which has no range */
		len = 0;
	if (!vb_feth_is_known(flush) || len > VB_FLUSH_MAX) {
		fail_request(qp_of(qpx), EINVAL);
		return;
	}
	w->compare_add = vb_feth_word(flush);
	w->swap = len;
}

static void wr_bind_mw(struct ibv_qp_ex *qpx, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct vb_qp *qp = qp_of(qpx);
	struct vb_swqe *w = wr_begin(qp, IBV_WR_BIND_MW);
	int err = w ? vb_mw_fill(qp, w, IBV_MW_TYPE_2, mw, rkey, info) : 0;

	if (err)
		fail_request(qp, err);
}

static void wr_send_tso(struct ibv_qp_ex *qpx, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	struct vb_qp *qp = qp_of(qpx);
	struct vb_swqe *w = wr_begin(qp, IBV_WR_TSO);
	int err = w ? vb_sq_take_tso(qp, w, hdr, hdr_sz, mss) : 0;

	if (err)
		fail_request(qp, err);
}

/* --- setters --- */

static void wr_set_ud_addr(struct ibv_qp_ex *qpx, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct vb_qp *qp = qp_of(qpx);
	struct vb_swqe *w = open_wr(qp);

	if (!w)
		return;
	if (qp->type != IBV_QPT_UD || !ah) {
		fail_request(qp, EINVAL);
		return;
	}
	w->ah = vb_ah(ah);
	w->ud_qpn = remote_qpn & VB_QPN_MASK;
	w->ud_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qpx, uint32_t remote_srqn)
{
	struct vb_qp *qp = qp_of(qpx);

	if (!open_wr(qp))
		return;
	if (qp->type == IBV_QPT_XRC_SEND)
		qp->xrc.srqns[wr_index(qp) & qp->sq_mask] = remote_srqn & VB_QPN_MASK;
	else
		fail_request(qp, EINVAL);
}

static void wr_set_sge_list(struct ibv_qp_ex *qpx, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct vb_qp *qp = qp_of(qpx);
	struct vb_swqe *w = open_wr(qp);
	uint64_t length = 0;

	if (!w)
		return;
	if (num_sge > qp->sq_max_sge) {
		fail_request(qp, EINVAL);
		return;
	}
	struct ibv_sge *sge = vb_sq_sges(qp, wr_index(qp));

	for (size_t i = 0; i < num_sge; i++) {
		sge[i] = sg_list[i];
		length += sge[i].length;
	}
	w->num_sge = (uint8_t)num_sge;
	w->length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX; /* UINT32_MAX is too long as well */
	w->flags &= (uint8_t)~IBV_SEND_INLINE;
}

static void wr_set_sge(struct ibv_qp_ex *qpx, uint32_t lkey, uint64_t addr, uint32_t length)
{
	const struct ibv_sge sge = {addr, length, lkey};

	wr_set_sge_list(qpx, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qpx, size_t num_buf, const struct ibv_data_buf *buf_list)
{
	struct vb_qp *qp = qp_of(qpx);
	struct vb_swqe *w = open_wr(qp);
	size_t length = 0;

	if (!w)
		return;
	if (!(vb_wr_lookup(w->opcode)->flags & VB_WR_PAYLOAD)) {
		fail_request(qp, EINVAL);
		return;
	}
	for (size_t i = 0; i < num_buf; i++) {
		if (buf_list[i].length > qp->sq_max_inline - length) {
			fail_request(qp, EINVAL);
			return;
		}
		if (buf_list[i].length)
			memcpy(vb_sq_inline(qp, wr_index(qp)) + length, buf_list[i].addr, buf_list[i].length);
		length += buf_list[i].length;
	}
	w->num_sge = 0;
	w->length = (uint32_t)length;
	w->flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qpx, void *addr, size_t length)
{
	const struct ibv_data_buf buf = {addr, length};

	wr_set_inline_data_list(qpx, 1, &buf);
}

void vb_qp_arm_wr(struct vb_qp *qp)
{
	/* programs read this at any time */
	if (qp->is_ex)
		__atomic_store_n(&qp->qpx.wr_complete,
		                 vb_fault_is_armed(VB_FAULT_ARM_VERB) ? wr_complete_faulty : wr_complete,
		                 __ATOMIC_RELAXED);
}

void vb_qp_fill_wr(struct vb_qp *qp)
{
	struct ibv_qp_ex *x = &qp->qpx;

	x->wr_start = wr_start;
	x->wr_abort = wr_abort;
	x->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	x->wr_atomic_fetch_add = wr_atomic_fetch_add;
	x->wr_bind_mw = wr_bind_mw;
	x->wr_local_inv = wr_local_inv;
	x->wr_rdma_read = wr_rdma_read;
	x->wr_rdma_write = wr_rdma_write;
	x->wr_rdma_write_imm = wr_rdma_write_imm;
	x->wr_send = wr_send;
	x->wr_send_imm = wr_send_imm;
	x->wr_send_inv = wr_send_inv;
	x->wr_send_tso = wr_send_tso;
	/* Programs (librpma) see by these two whether the queue pair has the operation. As with rdma-core's drivers, they
	 * are NULL if it was not asked for. Without the others' flags, ibv_wr_complete says EOPNOTSUPP. */
	x->wr_atomic_write = qp->send_ops & IBV_QP_EX_WITH_ATOMIC_WRITE ? wr_atomic_write : NULL;
	qp->qpx_newer.wr_flush = qp->send_ops & VB_IBV_QP_EX_WITH_FLUSH ? wr_flush : NULL;
	x->wr_set_ud_addr = wr_set_ud_addr;
	x->wr_set_xrc_srqn = wr_set_xrc_srqn;
	x->wr_set_inline_data = wr_set_inline_data;
	x->wr_set_inline_data_list = wr_set_inline_data_list;
	x->wr_set_sge = wr_set_sge;
	x->wr_set_sge_list = wr_set_sge_list;
}

struct ibv_qp_ex *vb_qp_to_qp_ex(struct ibv_qp *ibqp)
{
	struct vb_qp *qp = vb_qp(ibqp);

	if (!qp->is_ex) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return &qp->qpx;
}
