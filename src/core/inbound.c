// inbound.c - the receive that an incoming message takes, and the event of the first packet
// follows: IBA volume 1, 10.7.3 (scatter), 10.8.3 (receive queues), 11.6.3.1 (communication established)
// SPDX-License-Identifier: MIT
#include "core/inbound.h"

#include <string.h>

#include "core/async.h"
#include "core/counters.h"
#include "core/mr.h"
#include "core/pd.h"
#include "core/rq.h"
#include "core/tm.h"
#include "util/guard.h"

struct vb_counters vb_counters;

__attribute__((hot)) bool vb_receive_take(struct vb_qp *qp)
{
	struct vb_rq *rq = vb_rq_of(qp);
	struct ibv_sge *sge;

	if (!vb_rq_peek(rq, &qp->inbound->wqe, &sge))
		return false;
	if (qp->inbound->wqe.num_sge > VB_MAX_SGE)
		qp->inbound->wqe.num_sge = VB_MAX_SGE;
	if (qp->inbound->wqe.num_sge == 1)
		qp->inbound->sge[0] = *sge;
	else
		memcpy(qp->inbound->sge, sge, qp->inbound->wqe.num_sge * sizeof(*sge));
	vb_rq_advance(rq);
	qp->inbound->active = true;
	qp->inbound->offset = 0;
	if (qp->srq)
		vb_srq_check_limit(qp->srq);
	return true;
}

/* iov has room for n_sges pieces. */
static inline int find_pieces(struct vb_node *node, uint32_t pd, const struct ibv_sge *sges, uint32_t n_sges,
                              uint64_t off, uint64_t n, struct iovec *iov)
{
	int k = 0;

	for (uint32_t i = 0; i < n_sges && n; i++) {
		const struct ibv_sge *sge = &sges[i];
		uint64_t va;

		if (off >= sge->length) {
			off -= sge->length;
			continue;
		}
		uint64_t piece = sge->length - off < n ? sge->length - off : n;

		if (!vb_mr_check_local(node, pd, sge->lkey, sge->addr + off, (uint32_t)piece, IBV_ACCESS_LOCAL_WRITE,
		                       &va))
			return -1;
		iov[k++] = (struct iovec){(void *)(uintptr_t)va, piece};
		n -= piece;
		off = 0;
	}
	return n ? -1 : k;
}

__attribute__((hot)) int vb_receive_pieces(struct vb_qp *qp, uint64_t off, uint64_t n, struct iovec *iov)
{
	uint32_t pd = qp->srq ? vb_pd_id(qp->srq->pd) : vb_pd_id(qp->pd);

	return find_pieces(qp->node, pd, qp->inbound->sge, qp->inbound->wqe.num_sge, off, n, iov);
}

static inline bool store_pieces(const struct iovec *iov, int k, const uint8_t *src)
{
	for (int i = 0; i < k; i++) {
		if (!vb_guard_copy_tail(iov[i].iov_base, src, iov[i].iov_len))
			return false;
		src += iov[i].iov_len;
	}
	return k >= 0;
}

__attribute__((hot)) bool vb_receive_store(struct vb_qp *qp, uint64_t off, const void *from, uint32_t n)
{
	struct iovec iov[VB_MAX_SGE];
	const uint8_t *src = from;

	if (__builtin_expect(qp->inbound->kind != VB_TM_PLAIN, 0))
		src += vb_tm_clip(qp, &off, &n);
	return store_pieces(iov, vb_receive_pieces(qp, off, n, iov), src);
}

bool vb_scatter_store(struct vb_node *node, uint32_t pd, const struct ibv_sge *sges, uint32_t n_sges, const void *from,
                      uint32_t n)
{
	struct iovec iov[VB_MAX_SGE];

	return store_pieces(iov, find_pieces(node, pd, sges, n_sges, 0, n, iov), from);
}

__attribute__((hot)) void vb_first_contact(struct vb_qp *qp)
{
	if (atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTR && !qp->comm_est_raised) {
		qp->comm_est_raised = true; /* IBA 11.6.3.1 */
		atomic_store_explicit(&qp->shared->unheard, 0, memory_order_relaxed);
		vb_async_raise(VB_CONTEXT_OF(qp), IBV_EVENT_COMM_EST, &qp->qp);
	}
}
