// answer.c - the peer's reads and atomics: a bounded queue, answered in order
// follows: RFC 5040, 4.4, 4.5, 5.2 (reads), 4.8, 7.2 (errors); RFC 7306, 5, 8 (atomics); RFC 5042, 6 (access checks)
// SPDX-License-Identifier: MIT
#include "engine/iwarp/machine.h"

static struct vb_iw_answer *answer_at(struct vb_iw_qp *q, uint32_t i)
{
	return &q->rs.answers[i % VB_IW_ANSWERS];
}

/* --- the peer's requests --- */

/* RFC 5041, 7.1: if the peer sends more requests than agreed, queue 1 has no buffer for them. */
static struct vb_iw_answer *next_free(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body, bool rtr)
{
	uint32_t waiting = q->rs.tail - q->rs.head;

	if ((waiting >= q->cfg.ird && !(rtr && !waiting)) || waiting == VB_IW_ANSWERS) {
		vb_iw_refuse(q, &q->stats.refused_ird, VB_TERM_UNTAGGED_NO_BUFFER, s, body, VB_REFUSE_INVALID);
		return NULL;
	}
	q->stats.reads_rcvd++;
	return answer_at(q, q->rs.tail);
}

static bool access_is_granted(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body, uint32_t stag,
                              uint64_t to, uint64_t len, enum vb_right access)
{
	enum vb_iw_denial why = VB_IW_ACCESS;

	if (q->cfg.access & access)
		why = len && len - 1 > UINT64_MAX - to ? VB_IW_WRAP : q->ops->check(q->own, stag, to, len, access);
	if (why == VB_IW_GRANTED)
		return true;
	enum vb_term term = vb_iw_denied(q, why, false);

	vb_iw_refuse(q, NULL, term, s, body, VB_REFUSE_DENIED);
	return false;
}

/* RFC 5040, 5.2.1: the STags of a read of length 0 are not checked. */
void vb_iw_ask_read(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body)
{
	struct vb_reader r = vb_reader(body, VB_READ_REQUEST_LEN);
	struct vb_read_request rr;

	vb_read_request_decode(&r, &rr);
	struct vb_iw_answer *a = next_free(q, s, body, q->rs.rtr == VB_IW_RTR_READ && !rr.length);

	if (!a || (rr.length && !access_is_granted(q, s, body, rr.stag, rr.to, rr.length, VB_RIGHT_READ)))
		return;
	*a = (struct vb_iw_answer){
	        .msn = s->ddp.msn,
	        .sink_stag = rr.sink_stag,
	        .sink_to = rr.sink_to,
	        .stag = rr.stag,
	        .to = rr.to,
	        .length = rr.length,
	};
	q->rs.tail++;
}

/* Accepts operations on whole words only. Verbs have no others. */
static bool atomic_is_understood(const struct vb_atomic_request *ar)
{
	if (ar->op == VB_RDMAP_FETCH_ADD)
		return !(ar->swap_add_mask & (UINT64_MAX >> 1));
	return ar->op == VB_RDMAP_CMP_SWAP && ar->swap_add_mask == UINT64_MAX && ar->compare_mask == UINT64_MAX;
}

static void refuse_atomic(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body, enum vb_term term)
{
	vb_iw_refuse(q, &q->stats.refused_atomic, term, s, body, VB_REFUSE_INVALID);
}

/* Executes the atomic at once. Its response is sent in order. */
void vb_iw_ask_atomic(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body)
{
	struct vb_reader r = vb_reader(body, VB_ATOMIC_REQUEST_LEN);
	struct vb_atomic_request ar;
	uint64_t original = 0;

	vb_atomic_request_decode(&r, &ar);
	struct vb_iw_answer *a = next_free(q, s, body, false);

	if (!a)
		return;
	if (!atomic_is_understood(&ar)) {
		refuse_atomic(q, s, body, VB_TERM_OPERATION_OPCODE);
		return;
	}
	if (!access_is_granted(q, s, body, ar.stag, ar.to, sizeof(uint64_t), VB_RIGHT_ATOMIC))
		return;
	struct vb_atomic wish = {.va = ar.to, .rkey = ar.stag, .swap_add = ar.swap_add, .compare = ar.compare};
	enum vb_memory_result result = q->ops->atomic(q->own, ar.op == VB_RDMAP_FETCH_ADD, &wish, &original);

	if (result != VB_MEMORY_OK) {
		refuse_atomic(q, s, body,
		              result == VB_MEMORY_DENIED ? VB_TERM_PROTECTION_ACCESS : VB_TERM_OPERATION_STREAM);
		return;
	}
	*a = (struct vb_iw_answer){.atomic = true, .msn = s->ddp.msn, .id = ar.id, .original = original};
	q->rs.tail++;
}

/* --- responses --- */

int vb_iw_answer_source(struct vb_iw_qp *q, const struct vb_iw_answer *a, uint32_t offset, uint32_t len,
                        struct iovec *iov)
{
	if (!(q->cfg.access & VB_RIGHT_READ))
		return -1;
	return q->ops->target(q->own, a->stag, a->to + offset, len, VB_RIGHT_READ, iov);
}

/* The number of bytes of the answer that are sent before the Terminate. */
static uint32_t done_of(const struct vb_iw_qp *q, const struct vb_iw_answer *a)
{
	for (uint32_t i = q->out.head + (q->out.sent ? 1 : 0); i != q->out.tail; i++) {
		const struct vb_iw_fpdu *f = &q->out.fpdus[i % VB_IW_FPDUS];

		if (f->source == VB_IW_OF_ANSWER && &q->rs.answers[f->of % VB_IW_ANSWERS] == a)
			return f->offset;
	}
	return a->offset;
}

/* The request was allowed when it arrived, but is not any more. The Terminate (RFC 5040, 4.8) carries the request,
 * reduced to the bytes that were not sent. */
void vb_iw_refuse_answer(struct vb_iw_qp *q, const struct vb_iw_answer *a)
{
	uint8_t body[VB_READ_REQUEST_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));
	uint32_t done = done_of(q, a);
	struct vb_read_request rr = {.sink_stag = a->sink_stag,
	                             .sink_to = a->sink_to + done,
	                             .length = a->length - done,
	                             .stag = a->stag,
	                             .to = a->to + done};
	struct vb_iw_segment s = {
	        .ddp = {.last = true,
	                .dv = VB_DDP_VERSION,
	                .rv = VB_RDMAP_VERSION,
	                .opcode = VB_RDMAP_READ_REQUEST,
	                .qn = VB_QN_READ,
	                .msn = a->msn},
	        .length = VB_READ_REQUEST_LEN,
	};

	vb_read_request_encode(&w, &rr);
	if (!access_is_granted(q, &s, body, a->stag, a->to, a->length, VB_RIGHT_READ))
		return;
	/* access is granted, but the memory is not mapped */
	vb_iw_refuse(q, &q->stats.local_faults, VB_TERM_PROTECTION_STAG, &s, body, VB_REFUSE_DENIED);
}

static enum vb_iw_made made_answer(struct vb_iw_qp *q, struct vb_iw_answer *a, struct vb_iw_part *p)
{
	p->source = VB_IW_OF_ANSWER;
	p->of = q->rs.cur;
	enum vb_iw_made made = vb_iw_put(q, p);

	if (made == VB_IW_NO_MEMORY) {
		vb_iw_refuse_answer(q, a);
		return VB_IW_NOTHING;
	}
	if (made != VB_IW_MADE)
		return made;
	a->offset += p->payload;
	q->out.answered = true;
	if (p->last)
		q->rs.cur++;
	return VB_IW_MADE;
}

static enum vb_iw_made make_read_response(struct vb_iw_qp *q, struct vb_iw_answer *a)
{
	uint32_t left = a->length - a->offset, most = vb_iw_most_payload(q, true);
	struct vb_iw_part p = {
	        .ddp = {.tagged = true,
	                .last = left <= most,
	                .dv = VB_DDP_VERSION,
	                .rv = VB_RDMAP_VERSION,
	                .opcode = VB_RDMAP_READ_RESPONSE,
	                .stag = a->sink_stag,
	                .to = a->sink_to + a->offset},
	        .payload = left < most ? left : most,
	        .offset = a->offset,
	        .last = left <= most,
	};

	return made_answer(q, a, &p);
}

static enum vb_iw_made make_atomic_response(struct vb_iw_qp *q, struct vb_iw_answer *a)
{
	uint8_t body[VB_ATOMIC_RESPONSE_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));
	struct vb_iw_part p = {
	        .ddp = {.last = true,
	                .dv = VB_DDP_VERSION,
	                .rv = VB_RDMAP_VERSION,
	                .opcode = VB_RDMAP_ATOMIC_RESPONSE,
	                .qn = VB_QN_ATOMIC_RESPONSE,
	                .msn = q->rs.atomic_msn},
	        .body = body,
	        .body_len = sizeof(body),
	        .last = true,
	};

	vb_atomic_response_encode(&w, &(struct vb_atomic_response){.id = a->id, .original = a->original});
	enum vb_iw_made made = made_answer(q, a, &p);

	if (made == VB_IW_MADE)
		q->rs.atomic_msn++;
	return made;
}

enum vb_iw_made vb_iw_make_answer(struct vb_iw_qp *q)
{
	struct vb_iw_answer *a = answer_at(q, q->rs.cur);

	if (q->rs.cur == q->rs.tail)
		return VB_IW_NOTHING;
	return a->atomic ? make_atomic_response(q, a) : make_read_response(q, a);
}

void vb_iw_answer_out(struct vb_iw_qp *q, const struct vb_iw_fpdu *f)
{
	if (f->last)
		q->rs.head++;
}
