// post.c - posting work requests
// follows: IBA volume 1, 11.4.1 (post send request, post receive request); ibv_post_send(3), ibv_post_recv(3)
// SPDX-License-Identifier: MIT
#include "core/mw.h"
#include "core/rq.h"
#include "core/sq.h"
#include "core/verbs.h"
#include "frame/fields.h"

static __attribute__((hot)) inline __attribute__((always_inline)) void submit(struct vb_qp *qp, uint8_t state)
{
	bool flush = state == IBV_QPS_SQE || state == IBV_QPS_ERR;
	bool settle = !flush && vb_sq_kick(qp) == VB_SQ_FAILED;

	vb_unlock(&qp->sq_lock);
	if (__builtin_expect(flush, 0))
		vb_qp_flush(qp);
	if (__builtin_expect(settle, 0))
		vb_path_settle(qp);
}

void vb_sq_submit(struct vb_qp *qp, uint8_t state)
{
	submit(qp, state);
}

/* Sum of the lengths; cannot wrap around. */
static inline uint64_t sge_sum(const struct ibv_sge *sge, int n)
{
	uint64_t length = 0;

	for (int i = 0; i < n; i++)
		length += sge[i].length;
	return length;
}

/* An atomic write of RC or XRC, but not of iWARP. A flush has no place in struct ibv_send_wr. */
static bool is_atomic_write(const struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_WRITE && vb_qp_is_reliable(qp) && !vb_qp_is_iwarp(qp);
}

/* Checks the queue, the request and the operation, in the order of the man page's errors. 0 or errno. */
static inline int check_send(struct vb_qp *qp, const struct ibv_send_wr *wr, const struct vb_wr_info *info)
{
	if (!vb_sq_has_room(qp, qp->sq_head))
		return qp->type == IBV_QPT_XRC_RECV ? EINVAL : ENOMEM; /* a target has no send queue */
	if ((uint32_t)wr->num_sge > qp->sq_max_sge)                    /* negative numbers, too */
		return EINVAL;
	if (!(info->qp_types & VB_QPT_BIT(qp->type)) && !is_atomic_write(qp, wr))
		return EINVAL;
	if (qp->type == IBV_QPT_UD && !wr->wr.ud.ah)
		return EINVAL;
	return 0;
}

/* Copies inline data into the queue, because the program may reuse its buffers when the call returns. */
static inline int take_inline(struct vb_qp *qp, struct vb_swqe *w, const struct ibv_send_wr *wr, uint64_t length)
{
	if (length > qp->sq_max_inline)
		return EINVAL;
	uint8_t *to = vb_sq_inline(qp, qp->sq_head);

	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
	w->num_sge = 0;
	return 0;
}

static inline void take_sges(struct vb_qp *qp, struct vb_swqe *w, const struct ibv_send_wr *wr)
{
	struct ibv_sge *sge = vb_sq_sges(qp, qp->sq_head);

	for (int i = 0; i < wr->num_sge; i++)
		sge[i] = wr->sg_list[i];
	w->num_sge = (uint8_t)wr->num_sge;
}

static inline void take_address(const struct vb_qp *qp, struct vb_swqe *w, const struct ibv_send_wr *wr,
                                const struct vb_wr_info *info)
{
	w->imm = wr->invalidate_rkey; /* or imm_data, in the same union */
	if (info->flags & VB_WR_ATOMIC) {
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	} else if (info->flags & VB_WR_REMOTE) {
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	} else if (qp->type == IBV_QPT_UD) {
		w->ah = vb_ah(wr->wr.ud.ah);
		w->ud_qpn = wr->wr.ud.remote_qpn & VB_QPN_MASK;
		w->ud_qkey = wr->wr.ud.remote_qkey;
	} else {
		w->rkey = wr->invalidate_rkey;
	}
}

static __attribute__((hot)) inline int post_one(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	const struct vb_wr_info *info = vb_wr_lookup(wr->opcode);
	int err = check_send(qp, wr, info);

	if (err)
		return err;
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_head);
	uint64_t length = sge_sum(wr->sg_list, wr->num_sge);

	w->wr_id = wr->wr_id;
	w->opcode = (uint8_t)wr->opcode;
	w->flags = (uint8_t)((wr->send_flags & VB_SEND_FLAGS) | qp->sq_flags);
	w->slot = w->data_written = 0;
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		take_sges(qp, w, wr);
	} else if (info->flags & VB_WR_PAYLOAD) {
		err = take_inline(qp, w, wr, length);
	} else if (wr->num_sge) {
		err = EINVAL; /* an operation without payload has no data to inline */
	} else {
		w->flags &= (uint8_t)~IBV_SEND_INLINE;
		w->num_sge = 0;
	}
	if (err)
		return err;
	if (__builtin_expect(info->flags & VB_WR_BIND, 0)) {
		err = vb_mw_fill(qp, w, IBV_MW_TYPE_2, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		if (err)
			return err;
		length = 0;
	} else if (__builtin_expect(info->flags & VB_WR_TSO, 0)) {
		err = vb_sq_take_tso(qp, w, wr->tso.hdr, wr->tso.hdr_sz, wr->tso.mss);
		if (err)
			return err;
	} else {
		take_address(qp, w, wr, info);
	}
	if (__builtin_expect(qp->type == IBV_QPT_XRC_SEND, 0))
		qp->xrc.srqns[qp->sq_head & qp->sq_mask] = wr->qp_type.xrc.remote_srqn & VB_QPN_MASK;
	vb_sq_append(qp, w, length);
	return 0;
}

/* The same for the most frequent request, a SEND of one piece over a connection. False: post_one has to judge it. */
static inline bool post_plain(struct vb_qp *qp, const struct ibv_send_wr *wr)
{
	const unsigned connected = VB_QPT_BIT(IBV_QPT_RC) | VB_QPT_BIT(IBV_QPT_UC);

	if (wr->opcode != IBV_WR_SEND || wr->num_sge != 1 || (wr->send_flags & IBV_SEND_INLINE) ||
	    !(connected & VB_QPT_BIT(qp->type & 31)) || !qp->sq_max_sge || !vb_sq_has_room(qp, qp->sq_head))
		return false;
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_head);
	struct ibv_sge *sge = vb_sq_sges(qp, qp->sq_head);

	*sge = wr->sg_list[0];
	w->wr_id = wr->wr_id;
	w->opcode = IBV_WR_SEND;
	w->flags = (uint8_t)((wr->send_flags & VB_SEND_FLAGS) | qp->sq_flags);
	w->slot = w->data_written = 0;
	w->num_sge = 1;
	w->imm = w->rkey = 0;
	vb_sq_append(qp, w, sge->length);
	return true;
}

__attribute__((hot)) int vb_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct vb_qp *qp = vb_qp(ibqp);
	bool is_ex = qp->is_ex;
	int err = 0;

	if (__builtin_expect(is_ex, 0))
		vb_lock(&qp->wr_lock);
	vb_lock(&qp->sq_lock);
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	if (!vb_sq_accepts(state))
		err = EINVAL;
	while (!err && wr) {
		if (__builtin_expect(!post_plain(qp, wr), 0))
			err = post_one(qp, wr);
		if (!err)
			wr = wr->next;
	}
	if (err)
		*bad_wr = wr;
	submit(qp, state);
	if (__builtin_expect(is_ex, 0))
		vb_unlock(&qp->wr_lock);
	return err;
}

__attribute__((hot)) int vb_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct vb_qp *qp = vb_qp(ibqp);
	int err = EINVAL;

	vb_lock(&qp->rq.lock);
	/* The flush takes this lock after it has set ERR. So either the flush finds this receive, or this thread reads
	 * ERR. */
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	/* iWARP has one state for RESET and INIT */
	if ((state == IBV_QPS_RESET && !vb_qp_is_iwarp(qp)) || qp->srq)
		*bad_wr = wr;
	else
		err = vb_rq_post(&qp->rq, wr, bad_wr);
	vb_unlock(&qp->rq.lock);
	if (__builtin_expect(state == IBV_QPS_ERR, 0))
		vb_qp_flush(qp);
	return err;
}
