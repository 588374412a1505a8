// segment.c - DDP segments: the checks of the standards in their order, placement of the payload, completions
// follows: RFC 5041, 5.4, 7; RFC 5040, 4.8 figure 9, 5, 7.2; RFC 7306, 5, 6, 8; RFC 5042, 6 (access checks)
// SPDX-License-Identifier: MIT
#include "engine/iwarp/machine.h"

static const struct vb_rdmap_info *info_of(const struct vb_iw_segment *s)
{
	return &vb_rdmap_table[s->ddp.opcode];
}

static bool refuse_segment(struct vb_iw_qp *q, uint64_t *counter, enum vb_term term, const struct vb_iw_segment *s)
{
	vb_iw_refuse(q, counter, term, s, NULL, VB_REFUSE_INVALID);
	return false;
}

/* --- denials --- */

enum vb_term vb_iw_denied(struct vb_iw_qp *q, enum vb_iw_denial why, bool tagged)
{
	switch (why) {
	case VB_IW_NOT_OURS:
		q->stats.refused_stranger++;
		return tagged ? VB_TERM_TAGGED_STREAM : VB_TERM_PROTECTION_STREAM;
	case VB_IW_BOUNDS:
		q->stats.refused_bounds++;
		return tagged ? VB_TERM_TAGGED_BOUNDS : VB_TERM_PROTECTION_BOUNDS;
	case VB_IW_ACCESS:
		q->stats.refused_access++;
		/* deviates: RFC 5040, 4.8, figure 10 defines this code for reads only, but DDP defines none for a write
		 * to memory without write access */
		return VB_TERM_PROTECTION_ACCESS;
	case VB_IW_WRAP:
		q->stats.refused_wrap++;
		return tagged ? VB_TERM_TAGGED_WRAP : VB_TERM_PROTECTION_WRAP;
	default:
		q->stats.refused_stag++;
		return tagged ? VB_TERM_TAGGED_STAG : VB_TERM_PROTECTION_STAG;
	}
}

static enum vb_iw_denial check_write(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	if (!(q->cfg.access & VB_RIGHT_WRITE))
		return VB_IW_ACCESS;
	if (s->length - 1 > UINT64_MAX - s->ddp.to)
		return VB_IW_WRAP;
	return q->ops->check(q->own, s->ddp.stag, s->ddp.to, s->length, VB_RIGHT_WRITE);
}

static bool deny_write(struct vb_iw_qp *q, const struct vb_iw_segment *s, enum vb_iw_denial why)
{
	enum vb_term term = vb_iw_denied(q, why, true);

	vb_iw_refuse(q, NULL, term, s, NULL, VB_REFUSE_DENIED);
	return false;
}

/* --- checks of the header --- */

/* RFC 5041, 7.1, and RFC 5040, 7.2: checks version and queue, then RDMAP's version and opcode. */
static bool check_kind(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	const struct vb_rdmap_info *info = info_of(s);
	bool tagged = s->ddp.tagged;

	if (s->ddp.dv != VB_DDP_VERSION)
		return refuse_segment(q, &q->stats.refused_version,
		                      tagged ? VB_TERM_TAGGED_VERSION : VB_TERM_UNTAGGED_VERSION, s);
	if (!tagged && s->ddp.qn >= VB_QN_COUNT)
		return refuse_segment(q, &q->stats.refused_queue, VB_TERM_UNTAGGED_QUEUE, s);
	if (s->ddp.rv != VB_RDMAP_VERSION)
		return refuse_segment(q, &q->stats.refused_version, VB_TERM_OPERATION_VERSION, s);
	if (!info->name || tagged != !!(info->flags & VB_RDMAP_TAGGED) || (!tagged && s->ddp.qn != info->queue))
		return refuse_segment(q, &q->stats.refused_opcode, VB_TERM_OPERATION_OPCODE, s);
	return true;
}

/* RFC 5041, 5.2 and 5.3: the messages of a queue arrive in order, and so do their segments. */
static bool check_place(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	const struct vb_iw_responder *rs = &q->rs;
	bool within = s->ddp.qn == VB_QN_SEND && rs->active;

	if (s->ddp.msn != rs->msn[s->ddp.qn])
		return refuse_segment(q, &q->stats.refused_msn, VB_TERM_UNTAGGED_MSN, s);
	if (s->ddp.mo != (within ? rs->offset : 0))
		return refuse_segment(q, &q->stats.refused_offset, VB_TERM_UNTAGGED_OFFSET, s);
	if (within &&
	    (s->ddp.opcode != rs->opcode || (info_of(s)->flags & VB_RDMAP_INVALIDATES && s->ddp.stag != rs->stag)))
		return refuse_segment(q, &q->stats.refused_opcode, VB_TERM_OPERATION_OPCODE, s);
	return true;
}

/* Messages without payload are one segment of a fixed length; Terminates have any length. */
static bool check_body(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	const struct vb_rdmap_info *info = info_of(s);

	if (info->flags & VB_RDMAP_PAYLOAD || s->ddp.opcode == VB_RDMAP_TERMINATE)
		return true;
	if (s->length > info->body || !s->ddp.last)
		return refuse_segment(q, &q->stats.refused_too_long, VB_TERM_UNTAGGED_TOO_LONG, s);
	if (s->length < info->body)
		return refuse_segment(q, &q->stats.refused_length, VB_TERM_OPERATION_OTHER, s);
	return true;
}

/* --- sends --- */

static bool is_rtr_send(const struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	return q->rs.rtr == VB_IW_RTR_SEND && s->ddp.opcode == VB_RDMAP_SEND && !s->length && s->ddp.last;
}

/* Marks the stream starved. Later the segment is checked again, and another receive is requested. */
static bool starve_stream(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	if (q->in.gave_up)
		return refuse_segment(q, &q->stats.refused_no_receive, VB_TERM_UNTAGGED_NO_BUFFER, s);
	if (!q->in.waited)
		q->stats.starved++;
	q->in.starved = q->in.waited = true;
	return false;
}

static bool begin_send(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	struct vb_iw_responder *rs = &q->rs;

	if (is_rtr_send(q, s))
		return true;
	q->rs.rtr = VB_IW_RTR_NONE;
	if (!rs->active) {
		if (!q->ops->take_receive(q->own, &rs->room))
			return starve_stream(q, s);
		q->in.waited = q->in.gave_up = false;
		rs->active = rs->receive = true;
		rs->opcode = s->ddp.opcode;
		rs->stag = s->ddp.stag;
		rs->offset = 0;
	}
	if (!(info_of(s)->flags & VB_RDMAP_PAYLOAD) || s->length <= rs->room - rs->offset)
		return true;
	vb_iw_refuse(q, &q->stats.refused_too_long, VB_TERM_UNTAGGED_TOO_LONG, s, NULL, VB_REFUSE_TOO_LONG);
	return false;
}

static void complete_taken_receive(struct vb_iw_qp *q, const struct vb_receipt *receipt)
{
	q->rs.active = q->rs.receive = false;
	q->rs.offset = 0;
	q->rs.msn[VB_QN_SEND]++;
	q->ops->complete_receive(q->own, receipt);
}

/* RFC 5040, 5.3: invalidates the STag before the message is delivered. */
static void end_send(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	bool invalidates = info_of(s)->flags & VB_RDMAP_INVALIDATES;

	if (is_rtr_send(q, s)) {
		q->rs.msn[VB_QN_SEND]++;
		return;
	}
	q->rs.offset += s->length;
	if (!s->ddp.last)
		return;
	if (invalidates && !q->ops->invalidate(q->own, s->ddp.stag)) {
		vb_iw_refuse(q, &q->stats.refused_invalidate, VB_TERM_PROTECTION_INVALIDATE, s, NULL, VB_REFUSE_ACCESS);
		return;
	}
	complete_taken_receive(q, &(struct vb_receipt){
	                                  .solicited = info_of(s)->flags & VB_RDMAP_SOLICITED,
	                                  .flags = invalidates ? VB_WORK_INV : 0,
	                                  .imm = s->ddp.stag,
	                                  .length = q->rs.offset,
	                          });
}

/* RFC 7306, 6: behind an RDMA write, Immediate Data is verbs' write with immediate. Its length is that of the write. */
static void end_immediate(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body)
{
	struct vb_reader r = vb_reader(body, VB_IMMEDIATE_LEN);
	struct vb_immediate imm;
	uint64_t written = q->rs.written;

	vb_immediate_decode(&r, &imm);
	q->rs.written = 0;
	complete_taken_receive(q, &(struct vb_receipt){
	                                  .write_imm = true,
	                                  .solicited = info_of(s)->flags & VB_RDMAP_SOLICITED,
	                                  .flags = VB_WORK_IMM,
	                                  .imm = imm.data,
	                                  .length = written < UINT32_MAX ? (uint32_t)written : UINT32_MAX,
	                          });
}

/* --- responses to our reads --- */

static bool refuse_response(struct vb_iw_qp *q, const struct vb_iw_segment *s, enum vb_term term)
{
	return refuse_segment(q, &q->stats.refused_response, term, s);
}

/* RFC 5040, 5.2.2: the response must belong to the oldest read, to its sink, in order, with its exact length. */
static bool begin_response(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	uint32_t index, stag;
	uint64_t to;
	const struct vb_work_sent *send = q->rq.rtr_read ? NULL : vb_iw_oldest_read(q, &index);

	if (q->rq.rtr_read)
		return s->length || !s->ddp.last ? refuse_response(q, s, VB_TERM_TAGGED_BOUNDS) : true;
	if (!send || send->work.verb != VB_VERB_READ)
		return refuse_response(q, s, VB_TERM_OPERATION_OPCODE);
	uint32_t left = send->work.length - q->rq.got;

	if (s->length > left || (s->ddp.last && s->length != left))
		return refuse_response(q, s, VB_TERM_TAGGED_BOUNDS);
	q->ops->sink_name(q->own, &send->work, &stag, &to);
	if (s->length && s->ddp.stag != stag)
		return refuse_response(q, s, VB_TERM_TAGGED_STAG);
	if (s->length && s->ddp.to != to + q->rq.got)
		return refuse_response(q, s, VB_TERM_TAGGED_BOUNDS);
	return true;
}

static void end_response(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	if (q->rq.rtr_read) {
		q->rq.rtr_read = false;
		q->rq.rd--;
		return;
	}
	q->rq.got += s->length;
	if (s->ddp.last)
		vb_iw_read_done(q);
}

static void sink_gone(struct vb_iw_qp *q)
{
	uint32_t index = VB_IW_NOBODY;

	vb_iw_oldest_read(q, &index);
	q->stats.local_faults++;
	vb_iw_fail(q, VB_TERM_LOCAL_CATASTROPHIC, index, VB_WORK_LOC_PROT_ERR, VB_WORK_WR_FLUSH_ERR, VB_WORK_EVENT_SQ);
}

/* RFC 7306, 5.2: atomic responses arrive in the order of the requests, among the responses to reads. */
static void atomic_response(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body)
{
	struct vb_reader r = vb_reader(body, VB_ATOMIC_RESPONSE_LEN);
	struct vb_atomic_response response;
	uint32_t index;
	const struct vb_work_sent *send = q->rq.rtr_read ? NULL : vb_iw_oldest_read(q, &index);
	struct iovec iov[VB_IW_PIECES];

	vb_atomic_response_decode(&r, &response);
	if (!send || !vb_iw_is_atomic(&send->work) || response.id != (uint32_t)send->seq) {
		refuse_response(q, s, VB_TERM_OPERATION_OPCODE);
		return;
	}
	q->rs.msn[VB_QN_ATOMIC_RESPONSE]++;
	int n = q->ops->sink(q->own, &send->work, 0, sizeof(response.original), iov);

	if (n < 0 || !q->ops->copy_in(q->own, iov, n, &response.original, sizeof(response.original), false)) {
		sink_gone(q);
		return;
	}
	vb_iw_read_done(q);
}

/* --- all segments --- */

bool vb_iw_segment_begin(struct vb_iw_qp *q, struct vb_iw_segment *s)
{
	if (!check_kind(q, s) || (!s->ddp.tagged && !check_place(q, s)) || !check_body(q, s))
		return false;
	q->waits_for_input = false;
	if (s->ddp.qn == VB_QN_SEND && !s->ddp.tagged)
		return begin_send(q, s);
	if (s->ddp.opcode == VB_RDMAP_READ_RESPONSE)
		return begin_response(q, s);
	if (s->ddp.opcode != VB_RDMAP_WRITE || !s->length) /* RFC 5041, 7.1: a write of length 0 is not checked */
		return true;
	enum vb_iw_denial why = check_write(q, s);

	return why == VB_IW_GRANTED || deny_write(q, s, why);
}

/* Handles a segment for which access was granted, but is denied now. */
static void pieces_gone(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	if (s->ddp.opcode == VB_RDMAP_READ_RESPONSE) {
		sink_gone(q);
		return;
	}
	q->stats.local_faults++;
	if (s->ddp.tagged)
		deny_write(q, s, VB_IW_INVALID_STAG);
	else
		vb_iw_fail(q, VB_TERM_LOCAL_CATASTROPHIC, VB_IW_NOBODY, VB_WORK_WR_FLUSH_ERR,
		           vb_refused_rows[VB_REFUSE_RECEIVE].receive, vb_refused_rows[VB_REFUSE_RECEIVE].event);
}

static int find_pieces(struct vb_iw_qp *q, const struct vb_iw_segment *s, uint32_t done, uint32_t len,
                       struct iovec *iov)
{
	uint32_t index;

	if (!s->ddp.tagged)
		return q->ops->sink_receive(q->own, q->rs.offset + done, len, iov);
	if (s->ddp.opcode == VB_RDMAP_WRITE && !(q->cfg.access & VB_RIGHT_WRITE))
		return -1;
	if (s->ddp.opcode == VB_RDMAP_WRITE)
		return q->ops->target(q->own, s->ddp.stag, s->ddp.to + done, len, VB_RIGHT_WRITE, iov);
	const struct vb_work_sent *send = vb_iw_oldest_read(q, &index);

	return send ? q->ops->sink(q->own, &send->work, q->rq.got + done, len, iov) : -1;
}

int vb_iw_segment_pieces(struct vb_iw_qp *q, const struct vb_iw_segment *s, uint32_t done, uint32_t len,
                         struct iovec *iov)
{
	int n = find_pieces(q, s, done, len, iov);

	if (n < 0)
		pieces_gone(q, s);
	return n;
}

bool vb_iw_segment_copy(struct vb_iw_qp *q, const struct vb_iw_segment *s, uint32_t done, const uint8_t *bytes,
                        uint32_t len)
{
	struct iovec iov[VB_IW_PIECES];
	bool ends = s->ddp.opcode == VB_RDMAP_WRITE && s->ddp.last && done + len == s->length;

	if (!len)
		return true;
	int n = find_pieces(q, s, done, len, iov);

	if (n < 0 || !q->ops->copy_in(q->own, iov, n, bytes, len, ends)) {
		pieces_gone(q, s);
		return false;
	}
	q->stats.bytes_copied_in += len;
	return true;
}

/* Called when the peer accepts large FPDUs: announces the same with our first FPDU. */
static void meet_large(struct vb_iw_qp *q)
{
	q->large = true;
	if (!q->cfg.initiator && !q->out.position)
		q->rq.rtr = VB_IW_RTR_WRITE;
}

static bool says_large(const struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	return q->cfg.large && q->stats.rcvd_fpdus == 1 && !s->length && s->ddp.last &&
	       s->ddp.stag == VB_IW_LARGE_STAG && s->ddp.to == VB_IW_LARGE_TO;
}

static void end_write(struct vb_iw_qp *q, const struct vb_iw_segment *s)
{
	if (says_large(q, s))
		meet_large(q);
	if (!q->rs.writing)
		q->rs.written = 0;
	q->rs.written += s->length;
	q->rs.writing = !s->ddp.last;
}

void vb_iw_segment_end(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body)
{
	q->stats.rcvd_fpdus++;
	if (info_of(s)->flags & VB_RDMAP_PAYLOAD)
		q->stats.rcvd_bytes += s->length;
	switch (s->ddp.opcode) {
	case VB_RDMAP_WRITE:
		end_write(q, s);
		break;
	case VB_RDMAP_READ_RESPONSE:
		end_response(q, s);
		break;
	case VB_RDMAP_READ_REQUEST:
		q->rs.msn[VB_QN_READ]++;
		vb_iw_ask_read(q, s, body);
		break;
	case VB_RDMAP_ATOMIC_REQUEST:
		q->rs.msn[VB_QN_READ]++;
		vb_iw_ask_atomic(q, s, body);
		break;
	case VB_RDMAP_ATOMIC_RESPONSE:
		atomic_response(q, s, body);
		break;
	case VB_RDMAP_TERMINATE:
		vb_iw_heard_terminate(q, body, s->length);
		break;
	case VB_RDMAP_IMMEDIATE:
	case VB_RDMAP_IMMEDIATE_SE:
		end_immediate(q, s, body);
		break;
	default:
		end_send(q, s);
	}
	q->rs.rtr = VB_IW_RTR_NONE; /* only the first FPDU may be the RTR message */
}
