// iwarp.c - start, configuration and state of a stream
// follows: RFC 5040, 6 (streams); RFC 6581, 9.2 (RTR); RFC 5044, 7.1 (connection setup)
// SPDX-License-Identifier: MIT
#include "engine/iwarp/machine.h"

static uint16_t min16(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

void vb_iw_init(struct vb_iw_qp *q, const struct vb_iw_config *cfg, const struct vb_iw_ops *ops, void *own,
                struct vb_work_sent *sends, uint32_t sends_len, uint8_t *stage, size_t stage_len, uint8_t *out,
                size_t out_len)
{
	*q = (struct vb_iw_qp){
	        .cfg = *cfg,
	        .ops = ops,
	        .own = own,
	        .sends = sends,
	        .mask = sends_len - 1,
	        .stage = stage,
	        .out_bytes = out,
	        .stage_len = stage_len < UINT32_MAX ? (uint32_t)stage_len : UINT32_MAX,
	        .out_len = out_len < UINT32_MAX ? (uint32_t)out_len : UINT32_MAX,
	};
	q->cfg.ird = min16(cfg->ird, VB_IW_ANSWERS);
	/* RFC 5041, 4.3: the first message of a queue is number 1 */
	for (int i = 0; i < VB_QN_COUNT; i++)
		q->rs.msn[i] = 1;
	q->rs.atomic_msn = q->rq.msn[VB_QN_SEND] = q->rq.msn[VB_QN_READ] = 1;
}

void vb_iw_reconfigure(struct vb_iw_qp *q, const struct vb_iw_config *cfg)
{
	q->cfg.emss = cfg->emss;
	q->cfg.access = cfg->access;
	q->cfg.ord = cfg->ord;
	q->cfg.ird = min16(cfg->ird, VB_IW_ANSWERS);
}

void vb_iw_send_rtr(struct vb_iw_qp *q, enum vb_iw_rtr kind)
{
	q->rq.rtr = kind;
}

void vb_iw_expect_rtr(struct vb_iw_qp *q, enum vb_iw_rtr kind)
{
	q->rs.rtr = kind;
}

void vb_iw_hold_until_input(struct vb_iw_qp *q)
{
	q->waits_for_input = true;
}

void vb_iw_hold_no_longer(struct vb_iw_qp *q)
{
	q->waits_for_input = false;
}

void vb_iw_pause(struct vb_iw_qp *q, bool paused)
{
	q->rq.paused = paused;
}

bool vb_iw_idle(const struct vb_iw_qp *q)
{
	return !q->rq.started && !q->rq.unsent && !q->rq.rd;
}

bool vb_iw_quiet(const struct vb_iw_qp *q)
{
	return q->life == VB_IW_LIVES && q->out.head == q->out.tail && q->rq.cur == q->rq.tail && !q->rq.started &&
	       !q->rq.rtr && q->rs.cur == q->rs.tail;
}

bool vb_iw_over(const struct vb_iw_qp *q)
{
	return q->life != VB_IW_LIVES;
}

static struct vb_iw_terminate split_terminate(uint16_t term)
{
	return (struct vb_iw_terminate){
	        .layer = (uint8_t)(term >> 12), .etype = term >> 8 & 15, .code = (uint8_t)(term & 0xff)};
}

bool vb_iw_sent_terminate(const struct vb_iw_qp *q, struct vb_iw_terminate *t)
{
	if (q->terminate_sent)
		*t = split_terminate(q->terminate.term);
	return q->terminate_sent;
}

bool vb_iw_got_terminate(const struct vb_iw_qp *q, struct vb_iw_terminate *t)
{
	if (q->terminate_received)
		*t = split_terminate(q->terminate_cause);
	return q->terminate_received;
}
