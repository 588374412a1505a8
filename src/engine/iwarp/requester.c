// requester.c - turns work requests into messages, and completes them in posting order
// follows: RFC 5040, 5 (messages) and 5.5 (order); RFC 7306, 5 and 6 (atomics, immediate data); RFC 6581, 9.2 (RTR)
// SPDX-License-Identifier: MIT
#include "engine/iwarp/machine.h"

/* --- taking requests --- */

/*
 * Finds errors before anything is sent. RDMAP has no send with immediate data. The Immediate Data message of RFC 7306,
 * 6 consumes a receive of its own, which suits RDMA writes only.
 */
static enum vb_work_status request_fault(const struct vb_iw_qp *q, const struct vb_work *work)
{
	if (work->verb == VB_VERB_LOCAL_INV) /* it sends nothing, but ops->next_send may have refused it */
		return work->length > VB_WORK_MAX_MESSAGE ? VB_WORK_LOC_LEN_ERR : VB_WORK_SUCCESS;
	if (work->verb > VB_VERB_LOCAL_INV || (work->verb == VB_VERB_SEND && work->flags & VB_WORK_IMM))
		return VB_WORK_LOC_QP_OP_ERR;
	if (work->length > VB_WORK_MAX_MESSAGE || (vb_iw_is_atomic(work) && work->length != sizeof(uint64_t)))
		return VB_WORK_LOC_LEN_ERR;
	return vb_iw_is_answered(work) && !q->cfg.ord ? VB_WORK_LOC_QP_OP_ERR : VB_WORK_SUCCESS;
}

static bool take_send(struct vb_iw_qp *q)
{
	struct vb_work_sent *s = vb_iw_send_at(q, q->rq.tail);

	if (q->rq.tail - q->rq.head > q->mask || !q->ops->next_send(q->own, &s->work))
		return false;
	s->done = false;
	s->packets = 0;
	s->status = request_fault(q, &s->work);
	q->rq.tail++;
	return true;
}

/* Ends the stream with this error, when all requests before it have completed. */
static enum vb_iw_made stop_stream(struct vb_iw_qp *q, struct vb_work_sent *s, enum vb_work_status status)
{
	s->status = status;
	q->rq.fault = true;
	vb_iw_retire(q);
	return VB_IW_NOTHING;
}

/* --- completion --- */

void vb_iw_retire(struct vb_iw_qp *q)
{
	struct vb_iw_requester *rq = &q->rq;

	while (rq->head != rq->cur && vb_iw_send_at(q, rq->head)->done) {
		const struct vb_work_sent *s = vb_iw_send_at(q, rq->head);

		rq->head++;
		q->ops->complete_send(q->own, &s->work, VB_WORK_SUCCESS);
	}
	if (rq->fault && rq->head == rq->cur)
		vb_iw_fail(q, VB_TERM_LOCAL_CATASTROPHIC, rq->cur, vb_iw_send_at(q, rq->cur)->status,
		           VB_WORK_WR_FLUSH_ERR, VB_WORK_EVENT_SQ);
}

void vb_iw_request_out(struct vb_iw_qp *q, const struct vb_iw_fpdu *f)
{
	struct vb_work_sent *s = vb_iw_send_at(q, f->of);

	q->rq.unsent--;
	if (f->last && !vb_iw_is_answered(&s->work))
		s->done = true;
}

struct vb_work_sent *vb_iw_oldest_read(struct vb_iw_qp *q, uint32_t *index)
{
	struct vb_iw_requester *rq = &q->rq;

	if ((int32_t)(rq->rd_next - rq->head) < 0)
		rq->rd_next = rq->head;
	for (; rq->rd_next != rq->cur; rq->rd_next++) {
		struct vb_work_sent *s = vb_iw_send_at(q, rq->rd_next);

		if (vb_iw_is_answered(&s->work) && !s->done) {
			*index = rq->rd_next;
			return s;
		}
	}
	return NULL;
}

void vb_iw_read_done(struct vb_iw_qp *q)
{
	uint32_t index;
	struct vb_work_sent *s = vb_iw_oldest_read(q, &index);

	s->done = true;
	q->rq.rd--;
	q->rq.got = 0;
	vb_iw_retire(q);
}

/* --- messages --- */

static struct vb_ddp ddp_header(uint8_t opcode, bool last)
{
	return (struct vb_ddp){
	        .tagged = vb_rdmap_table[opcode].flags & VB_RDMAP_TAGGED,
	        .last = last,
	        .dv = VB_DDP_VERSION,
	        .rv = VB_RDMAP_VERSION,
	        .opcode = opcode,
	        .qn = vb_rdmap_table[opcode].queue,
	};
}

static uint8_t send_opcode(const struct vb_work *work)
{
	if (work->flags & VB_WORK_INV)
		return work->flags & VB_WORK_SOLICITED ? VB_RDMAP_SEND_SE_INVALIDATE : VB_RDMAP_SEND_INVALIDATE;
	return work->flags & VB_WORK_SOLICITED ? VB_RDMAP_SEND_SE : VB_RDMAP_SEND;
}

/* Sends the next FPDU of the current message. */
static enum vb_iw_made put_send(struct vb_iw_qp *q, struct vb_work_sent *s, struct vb_iw_part *p)
{
	enum vb_iw_made made;

	p->of = q->rq.cur;
	p->source = VB_IW_OF_REQUEST;
	made = vb_iw_put(q, p);
	if (made == VB_IW_NO_MEMORY)
		return stop_stream(q, s, VB_WORK_LOC_PROT_ERR);
	if (made != VB_IW_MADE)
		return made;
	q->rq.unsent++;
	q->rq.started = !p->last;
	q->rq.offset += p->payload;
	q->out.answered = false;
	if (p->last) {
		q->rq.cur++;
		q->rq.offset = 0;
		q->rq.immediate = false;
	}
	return VB_IW_MADE;
}

/* Checks the source before the first FPDU is built, so that after an error earlier requests still complete. */
static bool source_is_accessible(struct vb_iw_qp *q, const struct vb_work_sent *s)
{
	struct iovec iov[VB_IW_PIECES];

	return q->rq.started || s->work.length <= VB_IW_COPY_MAX ||
	       q->ops->source(q->own, &s->work, 0, s->work.length, iov) >= 0;
}

static enum vb_iw_made make_send(struct vb_iw_qp *q, struct vb_work_sent *s)
{
	uint32_t left = s->work.length - q->rq.offset, most = vb_iw_most_payload(q, false);
	struct vb_iw_part p = {
	        .ddp = ddp_header(send_opcode(&s->work), left <= most),
	        .payload = left < most ? left : most,
	        .offset = q->rq.offset,
	        .last = left <= most,
	};

	if (!source_is_accessible(q, s))
		return stop_stream(q, s, VB_WORK_LOC_PROT_ERR);
	p.ddp.msn = q->rq.msn[VB_QN_SEND];
	p.ddp.mo = q->rq.offset;
	p.ddp.stag = s->work.flags & VB_WORK_INV ? s->work.imm : 0;
	enum vb_iw_made made = put_send(q, s, &p);

	s->seq = p.ddp.msn;
	if (made == VB_IW_MADE && p.last)
		q->rq.msn[VB_QN_SEND]++;
	return made;
}

static enum vb_iw_made make_immediate(struct vb_iw_qp *q, struct vb_work_sent *s)
{
	uint8_t body[VB_IMMEDIATE_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));
	struct vb_iw_part p = {
	        .ddp = ddp_header(s->work.flags & VB_WORK_SOLICITED ? VB_RDMAP_IMMEDIATE_SE : VB_RDMAP_IMMEDIATE, true),
	        .body = body,
	        .body_len = sizeof(body),
	        .last = true,
	};

	vb_immediate_encode(&w, &(struct vb_immediate){.data = s->work.imm});
	p.ddp.msn = q->rq.msn[VB_QN_SEND];
	enum vb_iw_made made = put_send(q, s, &p);

	if (made == VB_IW_MADE)
		q->rq.msn[VB_QN_SEND]++;
	return made;
}

static enum vb_iw_made make_write(struct vb_iw_qp *q, struct vb_work_sent *s)
{
	uint32_t left = s->work.length - q->rq.offset, most = vb_iw_most_payload(q, true);
	bool ends = left <= most;
	struct vb_iw_part p = {
	        .ddp = ddp_header(VB_RDMAP_WRITE, ends),
	        .payload = ends ? left : most,
	        .offset = q->rq.offset,
	        .last = ends && !(s->work.flags & VB_WORK_IMM),
	};

	if (q->rq.immediate)
		return make_immediate(q, s);
	if (!source_is_accessible(q, s))
		return stop_stream(q, s, VB_WORK_LOC_PROT_ERR);
	p.ddp.stag = s->work.rkey;
	p.ddp.to = s->work.remote_addr + q->rq.offset;
	enum vb_iw_made made = put_send(q, s, &p);

	if (made == VB_IW_MADE)
		q->rq.immediate = ends && !p.last;
	return made;
}

/* Sends a read or atomic: one FPDU on queue 1. */
static enum vb_iw_made put_asked(struct vb_iw_qp *q, struct vb_work_sent *s, uint8_t opcode, const uint8_t *body)
{
	struct vb_iw_part p = {
	        .ddp = ddp_header(opcode, true),
	        .body = body,
	        .body_len = vb_rdmap_table[opcode].body,
	        .last = true,
	};

	p.ddp.msn = q->rq.msn[VB_QN_READ];
	s->seq = p.ddp.msn;
	enum vb_iw_made made = put_send(q, s, &p);

	if (made == VB_IW_MADE) {
		q->rq.msn[VB_QN_READ]++;
		q->rq.rd++;
		q->stats.reads_sent++;
	}
	return made;
}

static enum vb_iw_made make_read(struct vb_iw_qp *q, struct vb_work_sent *s)
{
	uint8_t body[VB_READ_REQUEST_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));
	struct vb_read_request r = {.length = s->work.length, .stag = s->work.rkey, .to = s->work.remote_addr};

	q->ops->sink_name(q->own, &s->work, &r.sink_stag, &r.sink_to);
	vb_read_request_encode(&w, &r);
	return put_asked(q, s, VB_RDMAP_READ_REQUEST, body);
}

/* RFC 7306, 5.1: masks of all ones compare and swap the whole word. A mask of 0 makes an addition carry through the
 * whole word. */
static enum vb_iw_made make_atomic(struct vb_iw_qp *q, struct vb_work_sent *s)
{
	bool add = s->work.verb == VB_VERB_FETCH_ADD;
	uint8_t body[VB_ATOMIC_REQUEST_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));
	struct vb_atomic_request a = {
	        .op = add ? VB_RDMAP_FETCH_ADD : VB_RDMAP_CMP_SWAP,
	        .id = q->rq.msn[VB_QN_READ],
	        .stag = s->work.rkey,
	        .to = s->work.remote_addr,
	        .swap_add = s->work.swap_add,
	        .swap_add_mask = add ? 0 : UINT64_MAX,
	        .compare = add ? 0 : s->work.compare,
	        .compare_mask = add ? 0 : UINT64_MAX,
	};

	vb_atomic_request_encode(&w, &a);
	return put_asked(q, s, VB_RDMAP_ATOMIC_REQUEST, body);
}

/* --- order --- */

/* Executes a local request when all requests before it are done, because unsent data may need a key that it
 * invalidates. */
static bool run_local(struct vb_iw_qp *q, struct vb_work_sent *s)
{
	if (q->rq.cur != q->rq.head)
		return false;
	enum vb_local r = q->ops->local(q->own, &s->work);

	if (r == VB_LOCAL_LATER)
		return false;
	if (r == VB_LOCAL_FAILED) {
		stop_stream(q, s, VB_WORK_MW_BIND_ERR);
		return false;
	}
	s->done = true;
	q->rq.cur++;
	vb_iw_retire(q);
	return true;
}

/* Counts at least 1 as the limit of reads: an accepted request is sent even if the limit became 0 meanwhile. */
static bool may_begin(struct vb_iw_qp *q, struct vb_work_sent *s)
{
	uint32_t ord = q->cfg.ord ? q->cfg.ord : 1;

	if (s->work.flags & VB_WORK_FENCE && q->rq.rd)
		return false;
	if (!vb_iw_is_answered(&s->work) || q->rq.rd < ord)
		return true;
	if (!s->packets++) /* counts each request once */
		q->stats.ord_waits++;
	return false;
}

enum vb_iw_made vb_iw_make_request(struct vb_iw_qp *q)
{
	struct vb_iw_requester *rq = &q->rq;
	struct vb_work_sent *s;

	while (!rq->started) {
		if (rq->fault || rq->paused || (rq->cur == rq->tail && !take_send(q)))
			return VB_IW_NOTHING;
		s = vb_iw_send_at(q, rq->cur);
		if (s->status)
			return stop_stream(q, s, s->status);
		if (s->work.verb != VB_VERB_LOCAL_INV) {
			if (!may_begin(q, s))
				return VB_IW_NOTHING;
			break;
		}
		if (!run_local(q, s))
			return VB_IW_NOTHING;
	}
	if (rq->fault)
		return VB_IW_NOTHING;
	s = vb_iw_send_at(q, rq->cur);
	switch (s->work.verb) {
	case VB_VERB_SEND:
		return make_send(q, s);
	case VB_VERB_WRITE:
		return make_write(q, s);
	case VB_VERB_READ:
		return make_read(q, s);
	default:
		return make_atomic(q, s);
	}
}

/* RFC 6581, 9.2: the RTR message is the first FPDU, and belongs to no request. */
enum vb_iw_made vb_iw_make_rtr(struct vb_iw_qp *q)
{
	uint8_t body[VB_READ_REQUEST_LEN] = {0};
	struct vb_iw_part p = {.source = VB_IW_OF_STREAM, .last = true};
	enum vb_iw_made made;

	if (q->rq.rtr == VB_IW_RTR_SEND) {
		p.ddp = ddp_header(VB_RDMAP_SEND, true);
		p.ddp.msn = q->rq.msn[VB_QN_SEND];
	} else if (q->rq.rtr == VB_IW_RTR_WRITE) {
		p.ddp = ddp_header(VB_RDMAP_WRITE, true);
		p.ddp.stag = q->cfg.large ? VB_IW_LARGE_STAG : 0;
		p.ddp.to = q->cfg.large ? VB_IW_LARGE_TO : 0;
	} else {
		p.ddp = ddp_header(VB_RDMAP_READ_REQUEST, true);
		p.ddp.msn = q->rq.msn[VB_QN_READ];
		p.body = body;
		p.body_len = sizeof(body);
	}
	made = vb_iw_put(q, &p);
	if (made != VB_IW_MADE)
		return made;
	if (q->rq.rtr == VB_IW_RTR_SEND)
		q->rq.msn[VB_QN_SEND]++;
	if (q->rq.rtr == VB_IW_RTR_READ) {
		q->rq.msn[VB_QN_READ]++;
		q->rq.rtr_read = true;
		q->rq.rd++;
	}
	q->rq.rtr = VB_IW_RTR_NONE;
	return VB_IW_MADE;
}
