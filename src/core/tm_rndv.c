// tm_rndv.c - rendezvous of tag matching: the adapter reads the data, and tells the sender that it has it
// follows: rdma-core's Documentation/tag_matching.md; IBA volume 1, 9.7.5 (RDMA READ), 10.8.3.3 (fence)
// SPDX-License-Identifier: MIT
#include <string.h>

#include "core/pd.h"
#include "core/sq.h"
#include "core/tm.h"

/* A program that makes the queue pair with a send queue keeps it, and reads itself. */
bool vb_tm_can_read(const struct vb_qp *qp)
{
	uint8_t state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	return qp->sq_tagged && (state == IBV_QPS_RTS || state == IBV_QPS_SQD) && qp->attr.max_rd_atomic &&
	       vb_pd_id(qp->pd) == vb_pd_id(qp->srq->pd);
}

static void call_for_service(struct vb_node *node)
{
	atomic_fetch_or(&node->attention, VB_ATTEND_TAGS);
	vb_timer_armed(node);
}

static void set_state(struct vb_tm *tm, struct vb_tag *t, enum vb_tag_state state)
{
	vb_lock(&tm->srq->rq.lock);
	t->state = (uint8_t)state;
	vb_unlock(&tm->srq->rq.lock);
}

/* sq_lock may be held here, or not. So the requests are posted later. */
void vb_tm_start(struct vb_qp *qp, struct vb_tag *t)
{
	struct vb_tm *tm = qp->srq->tm;

	set_state(tm, t, VB_TAG_WAITING);
	t->next = NULL;
	*tm->waiting_end = t;
	tm->waiting_end = &t->next;
	atomic_fetch_add(&tm->waits, 1);
	call_for_service(qp->node);
}

/* --- posting: under progress + sq_lock --- */

static struct vb_swqe *new_request(struct vb_qp *qp, uint8_t opcode, uint8_t flags, uint64_t wr_id)
{
	struct vb_swqe *w = vb_sq_at(qp, qp->sq_head);

	w->wr_id = wr_id;
	w->opcode = opcode;
	w->flags = flags;
	w->slot = w->data_written = 0;
	w->imm = 0;
	w->num_sge = 0;
	return w;
}

static void post_read(struct vb_qp *qp, const struct vb_tag *t, uint32_t index)
{
	struct vb_swqe *w = new_request(qp, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, index);
	struct ibv_sge *sge = vb_sq_sges(qp, qp->sq_head);
	uint32_t left = t->source.len;

	w->remote_addr = t->source.va;
	w->rkey = t->source.rkey;
	for (uint32_t i = 0; i < t->num_sge && left; i++) {
		sge[i] = t->sge[i];
		if (sge[i].length > left)
			sge[i].length = left;
		left -= sge[i].length;
		w->num_sge++;
	}
	vb_sq_append(qp, w, t->source.len);
}

/* Not before the read has ended. Signaled, so that what waits for room gets it. */
static void post_fin(struct vb_qp *qp, const struct vb_tag *t)
{
	struct vb_swqe *w =
	        new_request(qp, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_FENCE, UINT64_MAX);

	w->rkey = 0;
	memcpy(vb_sq_inline(qp, qp->sq_head), t->fin, sizeof(t->fin));
	vb_sq_append(qp, w, sizeof(t->fin));
}

/* Posts both requests of a rendezvous. Returns false if there is no room. */
static bool post_both(struct vb_qp *qp, struct vb_tm *tm, struct vb_tag *t)
{
	if (qp->sq_head - qp->sq_una + 2 > qp->sq_max_wr)
		return false;
	set_state(tm, t, VB_TAG_READING);
	post_read(qp, t, (uint32_t)(t - tm->tag));
	post_fin(qp, t);
	return true;
}

static void leave_waiting(struct vb_tm *tm, struct vb_tag **at)
{
	*at = (*at)->next;
	if (!*at)
		tm->waiting_end = at;
	atomic_fetch_sub(&tm->waits, 1);
}

/* Posts the first that can be posted. Returns false if there is none. A failure flushes others, so the list is walked
 * anew each time. */
static bool post_first(struct vb_tm *tm)
{
	bool posted = false;

	for (struct vb_tag **at = &tm->waiting; *at && !posted; at = posted ? at : &(*at)->next) {
		struct vb_tag *t = *at;
		struct vb_qp *qp = t->qp;

		vb_lock(&qp->sq_lock);
		if (vb_sq_accepts(atomic_load_explicit(&qp->state, memory_order_relaxed)))
			posted = post_both(qp, tm, t);
		if (posted) {
			leave_waiting(tm, at);
			if (vb_sq_kick(qp) == VB_SQ_FAILED)
				qp->path->settle(qp);
		}
		vb_unlock(&qp->sq_lock);
	}
	return posted;
}

void vb_tm_serve(struct vb_node *node)
{
	atomic_fetch_and(&node->attention, (uint8_t)~VB_ATTEND_TAGS);
	for (struct vb_tm *tm = node->tms; tm; tm = tm->next)
		while (tm->waiting && post_first(tm))
			;
}

/* --- the end --- */

/* The data has arrived, or never will. Frees the tag. */
static void tell_data(struct vb_tm *tm, struct vb_tag *t, uint32_t qpn, enum ibv_wc_status status)
{
	bool ok = status == IBV_WC_SUCCESS;
	struct vb_cqe cqe = {.wc = {.wr_id = t->wr_id,
	                            .status = status,
	                            .opcode = IBV_WC_TM_RECV,
	                            .byte_len = ok ? t->source.len : 0,
	                            .wc_flags = ok ? IBV_WC_TM_DATA_VALID : 0,
	                            .qp_num = qpn}};

	vb_lock(&tm->srq->rq.lock);
	vb_cq_push(tm->srq->cq, &cqe, false);
	vb_tag_free(tm, t);
	vb_unlock(&tm->srq->rq.lock);
}

/* The end of a FIN is the adapter's own business: if it fails, the queue pair is in ERR. */
void vb_tm_sent(struct vb_qp *qp, const struct vb_swqe *w, enum ibv_wc_status status)
{
	struct vb_tm *tm = qp->srq->tm;

	if (w->opcode == IBV_WR_RDMA_READ)
		tell_data(tm, &tm->tag[w->wr_id], qp->qp.qp_num, status);
	if (atomic_load(&tm->waits))
		call_for_service(qp->node);
}

void vb_tm_flush(struct vb_qp *qp)
{
	struct vb_tm *tm = qp->srq->tm;

	for (struct vb_tag **at = &tm->waiting, *t; (t = *at);) {
		if (t->qp != qp) {
			at = &t->next;
			continue;
		}
		leave_waiting(tm, at);
		tell_data(tm, t, qp->qp.qp_num, IBV_WC_WR_FLUSH_ERR);
	}
}

void vb_tm_forget(struct vb_qp *qp)
{
	struct vb_tm *tm = qp->srq->tm;

	for (struct vb_tag **at = &tm->waiting; *at;) {
		if ((*at)->qp == qp)
			leave_waiting(tm, at);
		else
			at = &(*at)->next;
	}
	vb_lock(&tm->srq->rq.lock);
	for (uint32_t i = 0; i < tm->max_tags; i++)
		if (tm->tag[i].qp == qp)
			vb_tag_free(tm, &tm->tag[i]);
	vb_unlock(&tm->srq->rq.lock);
}
