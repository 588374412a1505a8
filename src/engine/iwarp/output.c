// output.c - FPDUs: builds them, lists their pieces for sendmsg(2), and handles what was sent
// follows: RFC 5044, 4 (FPDUs); RFC 5041, 5.2 (segmentation)
// SPDX-License-Identifier: MIT
#include "engine/iwarp/machine.h"

static struct vb_iw_fpdu *fpdu_at(struct vb_iw_qp *q, uint32_t i)
{
	return &q->out.fpdus[i % VB_IW_FPDUS];
}

static uint32_t length_of(const struct vb_iw_fpdu *f)
{
	return f->head + f->ref + f->tail;
}

/* Leaves every FPDU but a message's last one without pad. */
uint32_t vb_iw_most_payload(const struct vb_iw_qp *q, bool tagged)
{
	uint32_t least = q->large ? VB_IW_LARGE : VB_IW_EMSS_MIN, emss = q->cfg.emss < least ? least : q->cfg.emss;
	uint32_t mulpdu = vb_mpa_mulpdu(emss, q->cfg.markers_out);

	return ((VB_MPA_LENGTH_LEN + mulpdu) & ~3u) - VB_MPA_LENGTH_LEN - vb_ddp_len(tagged);
}

/* --- building --- */

/* Reserves contiguous space in the ring of output bytes. begin == end: the ring is empty. */
static bool reserve_output(struct vb_iw_qp *q, uint32_t len, uint32_t *at)
{
	struct vb_iw_out *o = &q->out;

	if (o->head == o->tail)
		o->begin = o->end = 0;
	if (o->end >= o->begin && q->out_len - o->end >= len)
		*at = o->end;
	else if (o->end >= o->begin && o->begin > len)
		*at = 0;
	else if (o->end < o->begin && o->begin - o->end > len)
		*at = o->end;
	else
		return false;
	return true;
}

static int pieces_of(struct vb_iw_qp *q, uint8_t source, uint32_t of, uint32_t offset, uint32_t len, struct iovec *iov)
{
	if (source == VB_IW_OF_ANSWER)
		return vb_iw_answer_source(q, &q->rs.answers[of % VB_IW_ANSWERS], offset, len, iov);
	return q->ops->source(q->own, &vb_iw_send_at(q, of)->work, offset, len, iov);
}

static bool copy_payload(struct vb_iw_qp *q, const struct vb_iw_part *p, uint8_t *to)
{
	struct iovec iov[VB_IW_PIECES];
	int n = p->payload ? pieces_of(q, p->source, p->of, p->offset, p->payload, iov) : 0;

	return n >= 0 && (!p->payload || q->ops->copy_out(q->own, iov, n, to, p->payload));
}

static void write_head(struct vb_writer *w, const struct vb_iw_part *p)
{
	vb_put16(w, (uint16_t)(vb_ddp_len(p->ddp.tagged) + p->body_len + p->payload));
	vb_ddp_encode(w, &p->ddp);
	vb_put_bytes(w, p->body, p->body_len);
}

/* Builds an FPDU that is contiguous in our own memory, with a copy of the payload. */
static bool build_whole(struct vb_iw_qp *q, const struct vb_iw_part *p, uint8_t *to, uint32_t len, uint32_t marked)
{
	struct vb_writer w = vb_writer(to + (marked - len), len);

	write_head(&w, p);
	if (!copy_payload(q, p, w.bytes + w.pos))
		return false;
	w.pos += p->payload;
	vb_put_zeros(&w, len - w.pos);
	if (q->cfg.markers_out)
		vb_mpa_mark(to, len, q->out.position);
	if (q->cfg.crc)
		vb_mpa_seal(to, marked);
	return true;
}

static void build_around(const struct vb_iw_part *p, uint8_t *to, uint32_t head, uint32_t tail)
{
	struct vb_writer w = vb_writer(to, head + tail);

	write_head(&w, p);
	vb_put_zeros(&w, tail);
}

enum vb_iw_made vb_iw_put(struct vb_iw_qp *q, const struct vb_iw_part *p)
{
	struct vb_iw_out *o = &q->out;
	uint32_t head = VB_MPA_LENGTH_LEN + vb_ddp_len(p->ddp.tagged) + p->body_len;
	uint32_t ulpdu = head - VB_MPA_LENGTH_LEN + p->payload, len = vb_mpa_fpdu_len(ulpdu), at;
	bool copy = q->cfg.crc || q->cfg.markers_out || p->payload <= VB_IW_COPY_MAX;
	uint32_t marked = q->cfg.markers_out ? vb_mpa_marked_len(o->position, len) : len;
	uint32_t own = copy ? marked : len - p->payload;

	if (o->tail - o->head == VB_IW_FPDUS || !reserve_output(q, own, &at))
		return VB_IW_FULL;
	if (copy && !build_whole(q, p, q->out_bytes + at, len, marked))
		return VB_IW_NO_MEMORY;
	if (!copy)
		build_around(p, q->out_bytes + at, head, own - head);
	if (o->head == o->tail)
		o->begin = at;
	o->end = at + own;
	o->position += marked;
	*fpdu_at(q, o->tail++) = (struct vb_iw_fpdu){
	        .at = at,
	        .head = copy ? own : head,
	        .ref = copy ? 0 : p->payload,
	        .tail = copy ? 0 : own - head,
	        .of = p->of,
	        .offset = p->offset,
	        .payload = p->payload,
	        .source = p->source,
	        .last = p->last,
	};
	return VB_IW_MADE;
}

void vb_iw_drop_output(struct vb_iw_qp *q)
{
	struct vb_iw_out *o = &q->out;

	o->given = 0;
	o->tail = o->head + (o->sent ? 1 : 0);
	o->position = o->base;
	if (!o->sent)
		return;
	const struct vb_iw_fpdu *f = fpdu_at(q, o->head);

	o->position += length_of(f);
	o->end = f->at + f->head + f->tail;
}

/* Finishes a message before the next one begins, whether request or answer, because receivers may treat interleaving
 * as a protocol error. */
static enum vb_iw_made make_next(struct vb_iw_qp *q)
{
	const struct vb_iw_responder *rs = &q->rs;
	bool answering = rs->cur != rs->tail && rs->answers[rs->cur % VB_IW_ANSWERS].offset;
	enum vb_iw_made made;

	if (q->life == VB_IW_TERMINATING)
		return q->terminate_sent ? VB_IW_NOTHING : vb_iw_make_terminate(q);
	if (q->rq.rtr)
		return vb_iw_make_rtr(q);
	if (answering || (!q->out.answered && !q->rq.started)) {
		made = vb_iw_make_answer(q);
		if (made != VB_IW_NOTHING || q->life != VB_IW_LIVES)
			return made;
	}
	made = vb_iw_make_request(q);
	if (made != VB_IW_NOTHING || q->life != VB_IW_LIVES)
		return made;
	return vb_iw_make_answer(q);
}

/* --- listing the pieces --- */

struct room {
	struct iovec *iov;
	int n, max;
	bool full; /* a piece did not fit, so the pieces after it must wait too */
	size_t bytes;
};

static bool touches_piece(const struct iovec *piece, const void *base)
{
	return (const uint8_t *)piece->iov_base + piece->iov_len == (const uint8_t *)base;
}

/* Adds a piece. Merges adjacent pieces. */
static void add_piece(struct room *r, void *base, size_t len)
{
	if (!len || r->full)
		return;
	if (r->n && touches_piece(&r->iov[r->n - 1], base)) {
		r->iov[r->n - 1].iov_len += len;
	} else if (r->n < r->max) {
		r->iov[r->n++] = (struct iovec){base, len};
	} else {
		r->full = true;
		return;
	}
	r->bytes += len;
}

static bool name_ref(struct vb_iw_qp *q, const struct vb_iw_fpdu *f, uint32_t from, struct room *r)
{
	struct iovec iov[VB_IW_PIECES];
	int n = pieces_of(q, f->source, f->of, f->offset + from, f->ref - from, iov);

	for (int i = 0; i < n; i++)
		add_piece(r, iov[i].iov_base, iov[i].iov_len);
	return n >= 0;
}

/* Lists the pieces of an FPDU from its byte `skip` on. Returns false if access to its memory is denied. */
static bool name_fpdu(struct vb_iw_qp *q, const struct vb_iw_fpdu *f, uint32_t skip, struct room *r)
{
	uint8_t *own = q->out_bytes + f->at;
	uint32_t before = f->head + f->ref, done = skip > before ? skip - before : 0;

	if (skip < f->head)
		add_piece(r, own + skip, f->head - skip);
	if (skip < before && f->ref && !name_ref(q, f, skip > f->head ? skip - f->head : 0, r))
		return false;
	add_piece(r, own + f->head + done, f->tail - done);
	return true;
}

/* Handles an FPDU whose memory is not accessible any more. If the FPDU was sent in part, the stream cannot continue. */
static void drop_inaccessible(struct vb_iw_qp *q, uint32_t i)
{
	struct vb_iw_fpdu f = *fpdu_at(q, i);
	bool torn = i == q->out.head && q->out.sent;

	q->stats.local_faults++;
	if (q->life != VB_IW_LIVES)
		q->life = VB_IW_OVER;
	else if (f.source == VB_IW_OF_ANSWER)
		vb_iw_refuse_answer(q, &q->rs.answers[f.of % VB_IW_ANSWERS]);
	else
		vb_iw_fail(q, VB_TERM_LOCAL_CATASTROPHIC, f.of, VB_WORK_LOC_PROT_ERR, VB_WORK_WR_FLUSH_ERR,
		           VB_WORK_EVENT_SQ);
	if (torn)
		q->life = VB_IW_OVER;
}

static bool name_waiting(struct vb_iw_qp *q, uint32_t *i, struct room *r, size_t most)
{
	for (; *i != q->out.tail && !r->full && r->bytes < most; ++*i) {
		if (!name_fpdu(q, fpdu_at(q, *i), *i == q->out.head ? q->out.sent : 0, r)) {
			drop_inaccessible(q, *i);
			return false;
		}
	}
	return true;
}

static int output_piece(struct vb_iw_qp *q, struct room *r, size_t most)
{
	uint32_t i = q->out.head;

	if (!name_waiting(q, &i, r, most))
		return -1;
	while (!r->full && r->n < r->max && r->bytes < most && make_next(q) == VB_IW_MADE) {
		if (!name_waiting(q, &i, r, most))
			return -1;
	}
	return r->n;
}

int vb_iw_output(struct vb_iw_qp *q, struct iovec *iov, int max, size_t most)
{
	q->filled = false;
	q->out.given = 0;
	/* after a failure at most a Terminate is left to send: tries again */
	for (int tries = 0; tries < 3; tries++) {
		struct room r = {.iov = iov, .max = max};
		uint8_t life = q->life;

		if (q->waits_for_input || life == VB_IW_OVER)
			return 0;
		if (life == VB_IW_TERMINATING && q->out.head == q->out.tail && q->terminate_sent) {
			q->life = VB_IW_OVER;
			return 0;
		}
		if (output_piece(q, &r, most ? most : 1) >= 0 && q->life == life) {
			q->out.given = (uint32_t)r.bytes;
			return r.n;
		}
	}
	return 0;
}

/* --- accepted by TCP --- */

static void handed_over(struct vb_iw_qp *q, const struct vb_iw_fpdu *f)
{
	q->stats.sent_fpdus++;
	q->stats.sent_bytes += f->payload;
	*(f->ref ? &q->stats.bytes_direct_out : &q->stats.bytes_copied_out) += f->payload;
	if (q->life != VB_IW_LIVES)
		return;
	if (f->source == VB_IW_OF_REQUEST)
		vb_iw_request_out(q, f);
	else if (f->source == VB_IW_OF_ANSWER)
		vb_iw_answer_out(q, f);
}

void vb_iw_sent(struct vb_iw_qp *q, size_t n)
{
	struct vb_iw_out *o = &q->out;

	if (n > o->given)
		n = o->given;
	o->given = 0;
	while (n && o->head != o->tail) {
		struct vb_iw_fpdu f = *fpdu_at(q, o->head);
		uint32_t left = length_of(&f) - o->sent, k = n < left ? (uint32_t)n : left;

		n -= k;
		o->sent += k;
		if (k < left)
			break;
		o->sent = 0;
		o->base += length_of(&f);
		o->head++;
		o->begin = o->head == o->tail ? o->end : fpdu_at(q, o->head)->at;
		handed_over(q, &f);
	}
	if (q->life == VB_IW_TERMINATING && q->terminate_sent && o->head == o->tail)
		q->life = VB_IW_OVER;
	else if (q->life == VB_IW_LIVES)
		vb_iw_retire(q);
}
