// input.c - receives the stream: FPDUs in the stage, and large ones whose payload is received in place
// follows: RFC 5044, 4 (FPDUs, markers, CRC), 6 (receiver); RFC 5041, 5.4 (placement)
// SPDX-License-Identifier: MIT
#include "engine/iwarp/machine.h"

#define FPDU_MAX (66u << 10) /* with markers */
#define BEHIND 128u /* bytes read behind the expected FPDU: enough for a short message, few of a long one's payload */
#define FEW 16u     /* after this many small FPDUs in a row no large one is expected */
#define KEEP 64u    /* bytes at the end of an in-place RDMA write that are copied: its last byte must be stored last */

/* --- one FPDU --- */

static uint32_t stage_waiting(const struct vb_iw_qp *q)
{
	return q->in.tail - q->in.head;
}

static uint8_t *stage_head(const struct vb_iw_qp *q)
{
	return q->stage + q->in.head;
}

static void consume_stage(struct vb_iw_qp *q, uint32_t n)
{
	q->in.head += n;
	q->in.position += n;
}

static bool refuse_framing(struct vb_iw_qp *q, uint64_t *counter, enum vb_term term)
{
	vb_iw_refuse(q, counter, term, NULL, NULL, VB_REFUSE_INVALID);
	return false;
}

/* RFC 5044, 4.4: the CRC of an FPDU is checked before anything else. */
static bool check_framing(struct vb_iw_qp *q, uint8_t *bytes, uint32_t len, uint32_t marked)
{
	if (q->cfg.crc && !vb_mpa_sealed(bytes, marked))
		return refuse_framing(q, &q->stats.crc_errors, VB_TERM_MPA_CRC);
	if (q->cfg.markers_in && !vb_mpa_unmark(bytes, len, q->in.position))
		return refuse_framing(q, &q->stats.marker_errors, VB_TERM_MPA_MARKER);
	return true;
}

static bool read_header(struct vb_iw_qp *q, struct vb_iw_segment *s, const uint8_t *bytes, uint32_t ulpdu)
{
	uint32_t len = ulpdu >= VB_DDP_TAGGED_LEN ? vb_ddp_len(bytes[VB_MPA_LENGTH_LEN] >> 7) : VB_DDP_TAGGED_LEN;
	struct vb_reader r = vb_reader(bytes + VB_MPA_LENGTH_LEN, ulpdu);

	if (ulpdu < len)
		return refuse_framing(q, &q->stats.refused_length,
		                      VB_TERM_OPERATION_OTHER); /* no layer defines a code for this error */
	vb_ddp_decode(&r, &s->ddp);
	s->length = ulpdu - len;
	return true;
}

/* Processes a complete FPDU. */
static void take_fpdu(struct vb_iw_qp *q, uint32_t ulpdu, uint32_t marked)
{
	uint8_t *bytes = stage_head(q);
	struct vb_iw_segment s;

	if (!q->in.framed && !check_framing(q, bytes, vb_mpa_fpdu_len(ulpdu), marked))
		return;
	q->in.framed = false;
	if (!read_header(q, &s, bytes, ulpdu))
		return;
	if (!vb_iw_segment_begin(q, &s)) {
		q->in.framed = q->in.starved;
		q->in.ulpdu = ulpdu;
		q->in.marked = marked;
		return;
	}
	const uint8_t *body = bytes + VB_MPA_LENGTH_LEN + vb_ddp_len(s.ddp.tagged);

	consume_stage(q, marked);
	if (vb_rdmap_table[s.ddp.opcode].flags & VB_RDMAP_PAYLOAD && !vb_iw_segment_copy(q, &s, 0, body, s.length))
		return;
	vb_iw_segment_end(q, &s, body);
}

/* --- FPDUs received in place --- */

static bool may_go_in_place(const struct vb_iw_qp *q)
{
	return !q->cfg.crc && !q->cfg.markers_in;
}

static bool is_large(const struct vb_iw_qp *q, uint32_t ulpdu)
{
	uint32_t least = q->cfg.direct_min ? q->cfg.direct_min : VB_IW_DIRECT_MIN;

	return may_go_in_place(q) && ulpdu >= VB_DDP_UNTAGGED_LEN && ulpdu - VB_DDP_UNTAGGED_LEN >= least;
}

static uint32_t header_len(bool tagged)
{
	return VB_MPA_LENGTH_LEN + vb_ddp_len(tagged);
}

/* Is the header of the FPDU at the head complete? */
static bool has_header(const struct vb_iw_qp *q, const uint8_t *bytes)
{
	return stage_waiting(q) > VB_MPA_LENGTH_LEN && stage_waiting(q) >= header_len(bytes[VB_MPA_LENGTH_LEN] >> 7);
}

static bool goes_in_place(const struct vb_iw_qp *q, const uint8_t *bytes, uint32_t ulpdu)
{
	return is_large(q, ulpdu) && has_header(q, bytes) && vb_rdmap_table[bytes[3] & 15].flags & VB_RDMAP_PAYLOAD;
}

static void begin_in_place(struct vb_iw_qp *q, uint32_t ulpdu)
{
	struct vb_iw_direct *d = &q->in.direct;
	struct vb_iw_segment s;

	if (!read_header(q, &s, stage_head(q), ulpdu) || !vb_iw_segment_begin(q, &s))
		return;
	consume_stage(q, header_len(s.ddp.tagged));
	*d = (struct vb_iw_direct){.active = true, .segment = s, .tail = vb_mpa_pad(ulpdu) + VB_MPA_CRC_LEN};
	if (s.ddp.opcode == VB_RDMAP_WRITE && s.ddp.last)
		d->keep = s.length < KEEP ? s.length : KEEP;
}

/* Copies payload of the in-place FPDU that arrived in the stage. Returns false unless the FPDU is complete. */
static bool go_on_in_place(struct vb_iw_qp *q)
{
	struct vb_iw_direct *d = &q->in.direct;
	uint32_t left = d->segment.length - d->done, n = stage_waiting(q) < left ? stage_waiting(q) : left;

	/* the last bytes of a write are copied in one step */
	if (n < left && left <= d->keep)
		return false;
	if (!vb_iw_segment_copy(q, &d->segment, d->done, stage_head(q), n))
		return false;
	d->done += n;
	consume_stage(q, n);
	if (n < left || stage_waiting(q) < d->tail)
		return false;
	consume_stage(q, d->tail);
	d->active = false;
	vb_iw_segment_end(q, &d->segment, NULL);
	return true;
}

/* --- the stage --- */

/* Processes the next FPDU of the stage. Returns false if more data must arrive. */
static bool process_fpdu(struct vb_iw_qp *q)
{
	bool led = q->cfg.markers_in && !(q->in.position % VB_MPA_INTERVAL);
	uint32_t before = led ? VB_MPA_MARKER_LEN : 0;

	if (q->in.direct.active)
		return go_on_in_place(q);
	if (q->in.framed) {
		take_fpdu(q, q->in.ulpdu, q->in.marked);
		return true;
	}
	if (stage_waiting(q) < before + VB_MPA_LENGTH_LEN)
		return false;
	const uint8_t *bytes = stage_head(q) + before;
	uint32_t ulpdu = (uint32_t)bytes[0] << 8 | bytes[1], len = vb_mpa_fpdu_len(ulpdu);
	uint32_t marked = q->cfg.markers_in ? vb_mpa_marked_len(q->in.position, len) : len;
	bool there = stage_waiting(q) >= marked;

	if (!there && !goes_in_place(q, bytes, ulpdu))
		return false;
	if (is_large(q, ulpdu))
		q->in.small = 0;
	else if (q->in.small < FEW)
		q->in.small++;
	if (there)
		take_fpdu(q, ulpdu, marked);
	else
		begin_in_place(q, ulpdu);
	return true;
}

static void process_stage(struct vb_iw_qp *q)
{
	while (q->life == VB_IW_LIVES && !q->in.starved && process_fpdu(q))
		;
}

bool vb_iw_starved(const struct vb_iw_qp *q)
{
	return q->in.starved;
}

void vb_iw_retry(struct vb_iw_qp *q)
{
	q->in.starved = false;
	process_stage(q);
}

void vb_iw_give_up(struct vb_iw_qp *q)
{
	q->in.gave_up = q->in.starved;
	vb_iw_retry(q);
	q->in.gave_up = false;
}

bool vb_iw_empty(const struct vb_iw_qp *q)
{
	return !stage_waiting(q) && q->out.head == q->out.tail;
}

/* Moves the waiting bytes to the start of the stage if the rest of an FPDU might not fit behind them. */
static void make_stage_room(struct vb_iw_qp *q)
{
	struct vb_iw_in *in = &q->in;

	if (in->head == in->tail) {
		in->head = in->tail = 0;
	} else if (q->stage_len - in->tail < FPDU_MAX) {
		memmove(q->stage, q->stage + in->head, stage_waiting(q));
		q->stats.bytes_moved += stage_waiting(q);
		in->tail -= in->head;
		in->head = 0;
	}
}

/* Lists the memory for payload in place. *whole: all pieces fit in iov. */
static int room_in_place(struct vb_iw_qp *q, struct iovec *iov, int max, bool *whole)
{
	struct vb_iw_direct *d = &q->in.direct;
	struct iovec pieces[VB_IW_PIECES];
	uint32_t left = d->segment.length - d->done;
	int n = left > d->keep ? vb_iw_segment_pieces(q, &d->segment, d->done, left - d->keep, pieces) : 0;

	*whole = n <= max;
	for (int i = 0; i < n && i < max; i++) {
		iov[i] = pieces[i];
		d->given += (uint32_t)pieces[i].iov_len;
	}
	return n <= max ? n : max;
}

/* The number of bytes to receive into the stage if no FPDU is being received in place. Of a large FPDU this is the
 * header only. */
static uint32_t stage_limit(const struct vb_iw_qp *q)
{
	const uint8_t *bytes = stage_head(q);

	if (!may_go_in_place(q) || q->in.small == FEW)
		return UINT32_MAX;
	if (stage_waiting(q) < VB_MPA_LENGTH_LEN)
		return BEHIND;
	uint32_t ulpdu = (uint32_t)bytes[0] << 8 | bytes[1], len = vb_mpa_fpdu_len(ulpdu);

	if (is_large(q, ulpdu) && !has_header(q, bytes))
		return header_len(stage_waiting(q) > VB_MPA_LENGTH_LEN && bytes[VB_MPA_LENGTH_LEN] >> 7) -
		       stage_waiting(q);
	return (len > stage_waiting(q) ? len - stage_waiting(q) : 0) + BEHIND;
}

/* The same during an in-place FPDU: up to the header of the message's next FPDU, whose payload goes in place too. */
static uint32_t limit_behind(const struct vb_iw_direct *d)
{
	uint32_t behind = d->segment.ddp.last ? BEHIND : header_len(d->segment.ddp.tagged);

	return d->segment.length - d->done - d->given + d->tail + behind;
}

int vb_iw_room(struct vb_iw_qp *q, struct iovec *iov, int max)
{
	struct vb_iw_direct *d = &q->in.direct;
	uint32_t limit = 0;
	bool whole = true;
	int n = 0;

	q->filled = true;
	d->given = 0;
	if (q->life != VB_IW_LIVES || q->in.starved)
		return 0;
	make_stage_room(q);
	if (d->active) {
		n = room_in_place(q, iov, max - 1, &whole);
		limit = limit_behind(d);
	} else {
		limit = stage_limit(q);
	}
	if (n < 0 || !whole)
		return n < 0 ? 0 : n;
	uint32_t len = q->stage_len - q->in.tail;

	iov[n] = (struct iovec){q->stage + q->in.tail, len < limit ? len : limit};
	return n + 1;
}

void vb_iw_received(struct vb_iw_qp *q, size_t n)
{
	struct vb_iw_direct *d = &q->in.direct;
	uint32_t placed = n < d->given ? (uint32_t)n : d->given, room = q->stage_len - q->in.tail;

	if (q->life != VB_IW_LIVES || q->in.starved)
		return;
	n -= placed;
	d->given = 0;
	d->done += placed;
	q->in.position += placed;
	q->stats.bytes_direct_in += placed;
	q->in.tail += n < room ? (uint32_t)n : room;
	process_stage(q);
}

size_t vb_iw_input(struct vb_iw_qp *q, const void *bytes, size_t len)
{
	const uint8_t *from = bytes;
	size_t all = len;

	q->in.direct.given = 0;
	while (len && q->life == VB_IW_LIVES) {
		make_stage_room(q);
		uint32_t room = q->stage_len - q->in.tail, n = len < room ? (uint32_t)len : room;

		if (!n) /* the stream is starved and the stage full */
			return all - len;
		memcpy(q->stage + q->in.tail, from, n);
		q->in.tail += n;
		from += n;
		len -= n;
		process_stage(q);
	}
	return all;
}
