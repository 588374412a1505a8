// tm_match.c - tag matching: which receive a message takes, what of it is stored, and its completions
// follows: rdma-core's Documentation/tag_matching.md
// SPDX-License-Identifier: MIT
#include <string.h>

#include "core/cq.h"
#include "core/inbound.h"
#include "core/tm.h"

#define FAR_BEHIND \
	0x3fffu /* unexpected messages that the program has not seen: it is asked to say what it has, as by mlx5 */

/* The headers of a message. */
struct headers {
	struct vb_tmh tmh;
	struct vb_rvh rvh;
	bool tagged, rendezvous;
};

/* A rendezvous request that is longer than tm_caps allow, or not all there, is left to the program, as unexpected. */
static struct headers headers_of(const uint8_t *head, uint32_t n, bool single)
{
	struct vb_reader r = vb_reader(head, n);
	struct headers h = {0};

	vb_tmh_decode(&r, &h.tmh);
	h.tagged = !r.failed && (h.tmh.opcode == VB_TMH_EAGER || h.tmh.opcode == VB_TMH_RNDV);
	if (!h.tagged || h.tmh.opcode == VB_TMH_EAGER)
		return h;
	vb_rvh_decode(&r, &h.rvh);
	h.rendezvous = !r.failed && single && n <= VB_MAX_RNDV_LEN;
	return h;
}

/* Removes the oldest tag that matches from the list, and returns it, or NULL. Under rq.lock. */
static struct vb_tag *take_tag(struct vb_tm *tm, const struct headers *h)
{
	if (!h->tagged || (h->tmh.opcode == VB_TMH_RNDV && !h->rendezvous))
		return NULL;
	for (struct vb_tag **at = &tm->listed, *t; (t = *at); at = &t->next) {
		if (!t->enabled || (h->tmh.tag & t->mask) != t->tag)
			continue;
		*at = t->next;
		if (!*at)
			tm->listed_end = at;
		return t;
	}
	return NULL;
}

/* What a match completion says, which comes first if the data comes later. vendor_err, which has no use in a success,
 * carries app_ctx to ibv_wc_read_tm_info. */
static struct vb_cqe match_cqe(struct vb_qp *qp, unsigned flags)
{
	return (struct vb_cqe){.wc = {.wr_id = qp->inbound->wqe.wr_id,
	                              .opcode = IBV_WC_TM_RECV,
	                              .wc_flags = flags,
	                              .vendor_err = qp->inbound->priv,
	                              .qp_num = qp->qp.qp_num},
	                       .tag = qp->inbound->tag};
}

/* Makes the tagged receive that of the message. Under rq.lock. */
static void use_tag(struct vb_qp *qp, struct vb_tm *tm, struct vb_tag *t, const struct headers *h, const uint8_t *head)
{
	bool reads = h->rendezvous && h->rvh.len <= t->length && vb_tm_can_read(qp);
	uint64_t room = h->rendezvous ? VB_MAX_RNDV_LEN : t->length + VB_TMH_LEN;

	qp->inbound->kind = h->rendezvous ? reads ? VB_TM_RENDEZVOUS : VB_TM_INCOMPLETE : VB_TM_MATCHED;
	qp->inbound->tag = h->tmh.tag;
	qp->inbound->priv = h->tmh.app_ctx;
	qp->inbound->wqe = (struct vb_rwqe){.wr_id = t->wr_id,
	                                    .num_sge = reads ? 0 : t->num_sge,
	                                    .length = room < UINT32_MAX ? (uint32_t)room : UINT32_MAX};
	qp->inbound->stores = t->length;
	memcpy(qp->inbound->sge, t->sge, t->num_sge * sizeof(t->sge[0]));
	qp->inbound->chosen = NULL;
	if (!reads) {
		vb_tag_free(tm, t);
		return;
	}
	t->state = VB_TAG_CHOSEN;
	t->qp = qp;
	t->source = h->rvh;
	memcpy(t->fin, head, sizeof(t->fin));
	t->fin[VB_TMH_OPCODE_AT] = VB_TMH_FIN;
	qp->inbound->chosen = t;
}

bool vb_tm_take(struct vb_qp *qp, const uint8_t *head, uint32_t n, bool single)
{
	struct vb_tm *tm = qp->srq->tm;
	struct headers h = headers_of(head, n, single);
	bool taken = true;

	vb_lock(&tm->srq->rq.lock);
	struct vb_tag *t = take_tag(tm, &h);

	if (t) {
		use_tag(qp, tm, t, &h, head);
		qp->inbound->active = true;
		qp->inbound->offset = 0;
		qp->inbound->told = !single;
		if (!single) {
			struct vb_cqe cqe = match_cqe(qp, IBV_WC_TM_MATCH);

			vb_cq_push(qp->rcq, &cqe, false);
		}
	} else if ((taken = vb_receive_take(qp))) {
		qp->inbound->kind = h.tagged ? VB_TM_UNEXPECTED : VB_TM_NO_TAG;
		/* now, and not when the message is complete: a tag that is added from now on must wait for the program */
		tm->unexpected = (uint16_t)(tm->unexpected + h.tagged);
	}
	vb_unlock(&tm->srq->rq.lock);
	return taken;
}

uint32_t vb_tm_clip(const struct vb_qp *qp, uint64_t *off, uint32_t *n)
{
	uint32_t skips = vb_tm_skips(qp->inbound->kind), before = 0;

	if (skips) {
		before = *off >= skips ? 0 : skips - (uint32_t)*off < *n ? skips - (uint32_t)*off : *n;
		*off = *off > skips ? *off - skips : 0;
		*n -= before;
	}
	if (qp->inbound->kind == VB_TM_RENDEZVOUS)
		*n = 0;
	else if (qp->inbound->kind == VB_TM_INCOMPLETE)
		*n = *off >= qp->inbound->stores       ? 0
		     : qp->inbound->stores - *off < *n ? (uint32_t)(qp->inbound->stores - *off)
		                                       : *n;
	return before;
}

/* A tagged receive has no slot of the queue. */
static void complete_tagged(struct vb_qp *qp, uint8_t kind, struct vb_cqe *cqe)
{
	unsigned had = cqe->wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV);
	uint32_t length = cqe->wc.byte_len, imm = cqe->wc.imm_data;

	if (cqe->wc.status != IBV_WC_SUCCESS) {
		cqe->tag = 0;
		return;
	}
	*cqe = match_cqe(qp, kind == VB_TM_RENDEZVOUS ? IBV_WC_TM_MATCH : IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	cqe->wc.imm_data = imm;
	if (kind == VB_TM_MATCHED) {
		cqe->wc.byte_len = length - VB_TMH_LEN;
		cqe->wc.wc_flags |= had;
	} else if (kind == VB_TM_INCOMPLETE) {
		cqe->wc.status = IBV_WC_TM_RNDV_INCOMPLETE;
		cqe->wc.byte_len = qp->inbound->stores < length ? (uint32_t)qp->inbound->stores : length;
	}
	if (qp->inbound->told) { /* the match was told before */
		cqe->wc.wc_flags &= ~(unsigned)IBV_WC_TM_MATCH;
		cqe->wc.vendor_err = 0;
		cqe->tag = 0;
	}
}

static bool far_behind(struct vb_tm *tm)
{
	vb_lock(&tm->srq->rq.lock);
	uint16_t behind = (uint16_t)(tm->unexpected - tm->handled);
	vb_unlock(&tm->srq->rq.lock);

	return behind > FAR_BEHIND;
}

void vb_tm_complete(struct vb_qp *qp, struct vb_cqe *cqe)
{
	struct vb_tm *tm = qp->srq->tm;
	uint8_t kind = qp->inbound->kind;
	struct vb_tag *chosen = qp->inbound->chosen;

	qp->inbound->kind = VB_TM_PLAIN;
	qp->inbound->chosen = NULL;
	cqe->wc.opcode = kind == VB_TM_NO_TAG ? IBV_WC_TM_NO_TAG : IBV_WC_TM_RECV;
	if (kind == VB_TM_UNEXPECTED) {
		if (cqe->wc.status != IBV_WC_SUCCESS)
			vb_tm_uncount(tm);
		else if (far_behind(tm))
			cqe->wc.wc_flags |= IBV_WC_TM_SYNC_REQ;
		return;
	}
	if (kind == VB_TM_NO_TAG)
		return;
	complete_tagged(qp, kind, cqe);
	if (!chosen)
		return;
	if (cqe->wc.status == IBV_WC_SUCCESS) {
		vb_tm_start(qp, chosen);
		return;
	}
	vb_lock(&tm->srq->rq.lock);
	vb_tag_free(tm, chosen);
	vb_unlock(&tm->srq->rq.lock);
}

bool vb_tm_abandon(struct vb_qp *qp)
{
	uint8_t kind = qp->inbound->kind;

	vb_tm_forget(qp);
	qp->inbound->kind = VB_TM_PLAIN;
	qp->inbound->chosen = NULL;
	if (qp->inbound->active && kind == VB_TM_UNEXPECTED)
		vb_tm_uncount(qp->srq->tm);
	return kind < VB_TM_MATCHED;
}
