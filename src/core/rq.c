// rq.c - posting to a receive queue
// follows: IBA volume 1, 11.4.1.2 (post receive request); ibv_post_recv(3), ibv_post_srq_recv(3)
// SPDX-License-Identifier: MIT
#include "core/rq.h"

#include <errno.h>
#include <string.h>

#include "core/node.h"

static void rwqe_fill(struct vb_rq *rq, uint32_t slot, const struct ibv_recv_wr *wr)
{
	struct ibv_sge *sge = &rq->sge[(size_t)slot * rq->max_sge];
	uint64_t length = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(&sge[i], &wr->sg_list[i],
		       sizeof(sge[i])); /* lists may be misaligned: libiscsi has them in packed structs */
		length += sge[i].length;
	}
	rq->wqe[slot] = (struct vb_rwqe){
	        .wr_id = wr->wr_id,
	        .num_sge = (uint32_t)wr->num_sge,
	        .length = length < UINT32_MAX ? (uint32_t)length : UINT32_MAX,
	};
}

/* Wakes an iWARP stream that waits for a receive. */
static void wake_rnr_waiter(struct vb_rq *rq)
{
	vb_timer_armed(rq->rnr_waiter);
	rq->rnr_waiter = NULL;
}

static inline bool slot_is_free(const struct vb_rq *rq, uint32_t tail)
{
	return tail - atomic_load_explicit(&rq->polled, memory_order_acquire) < rq->max_wr;
}

__attribute__((hot)) int vb_rq_post(struct vb_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	uint32_t tail = atomic_load_explicit(&rq->tail, memory_order_relaxed);
	int err = 0;

	for (; wr; wr = wr->next) {
		if (__builtin_expect(wr->num_sge == 1 && slot_is_free(rq, tail), 1)) {
			uint32_t slot = tail++ & rq->mask;
			struct ibv_sge *sge = &rq->sge[(size_t)slot * rq->max_sge];

			memcpy(sge, wr->sg_list, sizeof(*sge));
			rq->wqe[slot] = (struct vb_rwqe){.wr_id = wr->wr_id, .num_sge = 1, .length = sge->length};
			continue;
		}
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
			err = EINVAL;
		else if (!slot_is_free(rq, tail))
			err = ENOMEM;
		if (err) {
			*bad_wr = wr;
			break;
		}
		rwqe_fill(rq, tail++ & rq->mask, wr);
	}
	atomic_store_explicit(&rq->tail, tail, memory_order_release);
	if (__builtin_expect(rq->rnr_waiter != NULL, 0))
		wake_rnr_waiter(rq);
	return err;
}
