// ending.c - the end of a stream: violations, local errors, the peer's Terminate, the end of the connection
// follows: RFC 5040, 4.8, 5.4, 7.1 (Terminate, errors), 6.2.1 (streams); RFC 5041, 6.2, 7; RFC 5044, 8; RFC 7306, 8
// SPDX-License-Identifier: MIT
#include "engine/iwarp/machine.h"

/* --- accepted requests --- */

static void end_receive(struct vb_iw_qp *q, enum vb_work_status status)
{
	bool taken = q->rs.receive;

	q->rs.receive = q->rs.active = false;
	if (taken)
		q->ops->complete_receive(q->own, &(struct vb_receipt){.status = status});
}

/* Completes all accepted requests in posting order: `bad` with `status`, the others flushed. */
static void flush_requests(struct vb_iw_qp *q, uint32_t bad, enum vb_work_status status, enum vb_work_status receive)
{
	struct vb_iw_requester *rq = &q->rq;

	q->in.direct.active = q->in.starved = q->in.waited = q->in.framed = false;
	q->in.head = q->in.tail = 0;
	while (rq->head != rq->tail) {
		uint32_t i = rq->head++;

		q->ops->complete_send(q->own, &vb_iw_send_at(q, i)->work, i == bad ? status : VB_WORK_WR_FLUSH_ERR);
	}
	rq->cur = rq->tail;
	rq->started = rq->fault = rq->immediate = rq->rtr_read = false;
	rq->rd = rq->unsent = rq->offset = 0;
	rq->rtr = VB_IW_RTR_NONE;
	end_receive(q, receive);
}

static void end_stream(struct vb_iw_qp *q, uint8_t life, uint32_t bad, enum vb_work_status status,
                       enum vb_work_status receive)
{
	q->life = life;
	vb_iw_drop_output(q);
	flush_requests(q, bad, status, receive);
}

/* --- ended by this side --- */

void vb_iw_fail(struct vb_iw_qp *q, enum vb_term term, uint32_t bad, enum vb_work_status status,
                enum vb_work_status receive, enum vb_work_event event)
{
	if (q->life != VB_IW_LIVES)
		return;
	q->terminate = (struct vb_terminate){.term = (uint16_t)term};
	end_stream(q, VB_IW_TERMINATING, bad, status, receive);
	q->ops->failed(q->own, event);
}

/* RFC 5040, 4.8, figure 10, and RFC 7306, 8.1: a Terminate carries the RDMAP header only for a protection error. */
static bool tells_of_request(uint16_t term, const struct vb_iw_segment *s)
{
	return s->ddp.opcode == VB_RDMAP_READ_REQUEST && term >> 8 == (VB_TERM_RDMAP << 4 | 1);
}

void vb_iw_refuse(struct vb_iw_qp *q, uint64_t *counter, enum vb_term term, const struct vb_iw_segment *s,
                  const uint8_t *body, enum vb_refusal why)
{
	if (q->life != VB_IW_LIVES)
		return;
	if (counter)
		++*counter;
	q->waits_for_input = false; /* the peer has sent its first FPDU, so we may send */
	q->terminate = (struct vb_terminate){.term = (uint16_t)term};
	if (s) {
		q->terminate.has_ddp = true;
		q->terminate.ddp = s->ddp;
		q->terminate.segment_len = (uint16_t)(vb_ddp_len(s->ddp.tagged) + s->length);
	}
	if (s && body && tells_of_request(q->terminate.term, s)) {
		q->terminate.has_rdma = true;
		memcpy(q->terminate.rdma, body, sizeof(q->terminate.rdma));
	}
	end_stream(q, VB_IW_TERMINATING, VB_IW_NOBODY, VB_WORK_WR_FLUSH_ERR, vb_refused_rows[why].receive);
	q->ops->failed(q->own, vb_refused_rows[why].event);
}

enum vb_iw_made vb_iw_make_terminate(struct vb_iw_qp *q)
{
	uint8_t body[VB_TERMINATE_MAX];
	struct vb_writer w = vb_writer(body, sizeof(body));
	struct vb_iw_part p = {
	        .ddp = {.last = true,
	                .dv = VB_DDP_VERSION,
	                .rv = VB_RDMAP_VERSION,
	                .opcode = VB_RDMAP_TERMINATE,
	                .qn = VB_QN_TERMINATE,
	                .msn = 1},
	        .body = body,
	        .source = VB_IW_OF_STREAM,
	        .last = true,
	};

	vb_terminate_encode(&w, &q->terminate);
	p.body_len = (uint32_t)w.pos;
	enum vb_iw_made made = vb_iw_put(q, &p);

	if (made == VB_IW_MADE) {
		q->terminate_sent = true;
		q->stats.terminates_sent++;
	}
	return made;
}

/* --- ended by the peer --- */

/* The completion status for a Terminate code of the peer. */
static enum vb_work_status terminate_status(uint16_t term)
{
	switch (term) {
	case VB_TERM_OPERATION_VERSION:
	case VB_TERM_OPERATION_OPCODE:
	case VB_TERM_UNTAGGED_QUEUE:
	case VB_TERM_UNTAGGED_MSN:
	case VB_TERM_UNTAGGED_OFFSET:
	case VB_TERM_UNTAGGED_TOO_LONG:
		return VB_WORK_REM_INV_REQ_ERR;
	}
	switch (term >> 8) { /* layer and error type */
	case VB_TERM_RDMAP << 4 | 1:
	case VB_TERM_DDP << 4 | 1:
		return VB_WORK_REM_ACCESS_ERR;
	default:
		return VB_WORK_REM_OP_ERR;
	}
}

static bool is_meant(const struct vb_work_sent *s, const struct vb_ddp *h)
{
	if (h->tagged)
		return s->work.verb == VB_VERB_WRITE && h->stag == s->work.rkey &&
		       h->to - s->work.remote_addr < s->work.length;
	if (h->qn == VB_QN_READ)
		return vb_iw_is_answered(&s->work) && h->msn == (uint32_t)s->seq;
	return h->qn == VB_QN_SEND && s->work.verb == VB_VERB_SEND && h->msn == (uint32_t)s->seq;
}

/* Finds the request that caused the Terminate, among those that are being sent or await an answer. Sends and writes
 * that TCP has accepted have already completed. */
static uint32_t find_meant(struct vb_iw_qp *q, const struct vb_terminate *t)
{
	const struct vb_iw_requester *rq = &q->rq;
	uint32_t end = rq->cur + (rq->started ? 1 : 0);

	for (uint32_t i = rq->head; t->has_ddp && i != end; i++) {
		const struct vb_work_sent *s = vb_iw_send_at(q, i);

		if (!s->done && is_meant(s, &t->ddp))
			return i;
	}
	return rq->head != rq->tail ? rq->head : VB_IW_NOBODY;
}

/* deviates: a Terminate of siw without headers has layer and error type swapped. This corrects the important one, an
 * unknown opcode. Swapped it equals an error of RFC 6581, but that is always the peer's first FPDU. */
static uint16_t right_siw(const struct vb_iw_qp *q, const struct vb_terminate *t)
{
	bool speaks_first = q->stats.rcvd_fpdus == 1;

	return !t->has_ddp && !speaks_first && t->term == VB_TERM_MPA_IRD ? VB_TERM_OPERATION_OPCODE : t->term;
}

/* RFC 5040, 5.4: after a Terminate nothing is sent, and data behind it is not read. */
void vb_iw_heard_terminate(struct vb_iw_qp *q, const uint8_t *bytes, uint32_t len)
{
	struct vb_terminate t;

	if (!vb_terminate_decode(&t, bytes, len))
		t.term = VB_TERM_OPERATION_OTHER;
	t.term = right_siw(q, &t);
	q->terminate_received = true;
	q->terminate_cause = t.term;
	q->stats.terminates_rcvd++;
	end_stream(q, VB_IW_OVER, find_meant(q, &t), terminate_status(t.term), VB_WORK_WR_FLUSH_ERR);
	q->ops->failed(q->own, VB_WORK_EVENT_SQ);
}

/* --- ended by the program or by the network --- */

void vb_iw_abort(struct vb_iw_qp *q, bool terminate)
{
	/* if the rest of a partly sent FPDU is in the program's memory, it cannot be sent any more */
	bool ours = !q->out.sent || !q->out.fpdus[q->out.head % VB_IW_FPDUS].ref;

	if (q->life == VB_IW_LIVES) {
		q->terminate = (struct vb_terminate){.term = VB_TERM_LOCAL_CATASTROPHIC};
		end_stream(q, terminate ? VB_IW_TERMINATING : VB_IW_OVER, VB_IW_NOBODY, VB_WORK_WR_FLUSH_ERR,
		           VB_WORK_WR_FLUSH_ERR);
	}
	if (!ours || !terminate)
		q->life = VB_IW_OVER;
}

/* Finds the request whose memory the kernel could not access. */
static void find_faulty_request(struct vb_iw_qp *q, uint32_t *bad, enum vb_work_status *receive)
{
	const struct vb_iw_fpdu *f = &q->out.fpdus[q->out.head % VB_IW_FPDUS];
	const struct vb_iw_direct *d = &q->in.direct;

	q->stats.local_faults++;
	if (!q->filled) {
		if (q->out.head != q->out.tail && f->source == VB_IW_OF_REQUEST && f->ref)
			*bad = f->of;
	} else if (d->active && d->segment.ddp.opcode == VB_RDMAP_READ_RESPONSE) {
		vb_iw_oldest_read(q, bad);
	} else if (d->active && !d->segment.ddp.tagged) {
		*receive = VB_WORK_LOC_PROT_ERR;
	}
}

void vb_iw_closed(struct vb_iw_qp *q, enum vb_iw_end how)
{
	uint32_t bad = VB_IW_NOBODY;
	enum vb_work_status receive = VB_WORK_WR_FLUSH_ERR;

	if (q->life != VB_IW_LIVES) {
		q->life = VB_IW_OVER;
		return;
	}
	if (how == VB_IW_FAULT)
		find_faulty_request(q, &bad, &receive);
	end_stream(q, VB_IW_OVER, bad, VB_WORK_LOC_PROT_ERR, receive);
}
