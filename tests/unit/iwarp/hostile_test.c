// hostile_test.c - each violation of the standards gets its Terminate, and nothing is placed
// follows: RFC 5040, 7; RFC 5041, 7; RFC 5044, 8; RFC 7306, 8; RFC 5042
// SPDX-License-Identifier: MIT
#include "fixture.h"

#include <string.h>

static struct fx fx;
static struct vb_terminate t;
static uint8_t bytes[66000], before[FX_REGION];

static void begin_with(bool crc, bool markers)
{
	struct vb_iw_config cfg;

	fx_config(&cfg);
	cfg.crc = crc;
	cfg.markers_in = markers;
	fx_init(&fx, &cfg);
	fx.receives = 4;
	memset(bytes, 0x77, sizeof(bytes));
	memcpy(before, fx.region, sizeof(before));
}

static void begin(void)
{
	begin_with(false, false);
}

/* Checks that the stream was terminated with this, and no byte was stored. */
static void refused(enum vb_term term)
{
	fx_expect_terminate(&fx, term, &t);
	CHECK(!fx.stores && !fx.atomics && !memcmp(before, fx.region, sizeof(before)));
}

static void tells_of(const struct vb_ddp *h, uint32_t segment)
{
	CHECK(t.has_ddp && t.segment_len == segment && t.ddp.tagged == h->tagged && t.ddp.opcode == h->opcode);
	CHECK(h->tagged ? t.ddp.stag == h->stag && t.ddp.to == h->to : t.ddp.qn == h->qn && t.ddp.msn == h->msn);
}

/* --- MPA --- */

static void a_wrong_crc(void)
{
	struct vb_ddp h;

	begin_with(true, false);
	h = fx_header(&fx, VB_RDMAP_WRITE);
	uint32_t len = fx_forge(&fx, bytes, &h, before, 100);

	bytes[50] ^= 1;
	fx_feed(&fx, bytes, len);
	refused(VB_TERM_MPA_CRC);
	CHECK(!t.has_ddp && fx.qp.stats.crc_errors == 1 && fx.event[0] == VB_WORK_EVENT_REQ);
}

static void a_wrong_crc_of_a_large_one_places_nothing(void)
{
	struct vb_ddp h;

	begin_with(true, false);
	h = fx_header(&fx, VB_RDMAP_WRITE);
	uint32_t len = fx_forge(&fx, bytes, &h, before, 16000);

	bytes[len - 1] ^= 0x80;
	memset(bytes + 16, 1, 1);
	fx_feed(&fx, bytes, len);
	refused(VB_TERM_MPA_CRC);
}

static void a_marker_that_points_elsewhere(void)
{
	struct vb_ddp h;

	begin_with(false, true);
	h = fx_header(&fx, VB_RDMAP_WRITE);
	uint32_t len = fx_forge(&fx, bytes, &h, before, 1000);

	CHECK(!bytes[2] && !bytes[3] && bytes[514] == 1 && bytes[515] == 0xfc);
	bytes[515] = 0xf8;
	fx_feed(&fx, bytes, len);
	refused(VB_TERM_MPA_MARKER);
	CHECK(fx.qp.stats.marker_errors == 1);
}

static void an_fpdu_shorter_than_its_header(void)
{
	for (uint32_t len = 0; len < VB_DDP_UNTAGGED_LEN; len++) {
		begin();
		memset(bytes, 0, 64);
		bytes[1] = (uint8_t)len;
		bytes[2] = len < VB_DDP_TAGGED_LEN ? 0xc1 : 0x41;
		bytes[3] = 0x43;
		fx_feed(&fx, bytes, vb_mpa_fpdu_len(len));
		refused(VB_TERM_OPERATION_OTHER);
		CHECK(fx.qp.stats.refused_length == 1 && !t.has_ddp);
	}
}

static void the_longest_fpdu_is_taken_to_be_too_long_for_its_receive(void)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_SEND);
	fx_in(&fx, &h, bytes, 65535 - VB_DDP_UNTAGGED_LEN);
	refused(VB_TERM_UNTAGGED_TOO_LONG);
}

/* --- DDP --- */

static void a_ddp_version(void)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_WRITE);
	h.dv = 2;
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_TAGGED_VERSION);
	tells_of(&h, 22);
	begin();
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.dv = 0;
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_UNTAGGED_VERSION);
	tells_of(&h, 26);
	CHECK(fx.taken_receives == 0);
}

static void a_queue_number(void)
{
	static const uint32_t queues[] = {4, 5, 0x80000000u, UINT32_MAX};

	for (int i = 0; i < 4; i++) {
		struct vb_ddp h;

		begin();
		h = fx_header(&fx, VB_RDMAP_SEND);
		h.qn = queues[i];
		fx_in(&fx, &h, bytes, 8);
		refused(VB_TERM_UNTAGGED_QUEUE);
		tells_of(&h, 26);
	}
}

static void a_gap_in_the_sequence_of_each_queue(void)
{
	static const uint8_t opcodes[] = {VB_RDMAP_SEND, VB_RDMAP_READ_REQUEST, VB_RDMAP_TERMINATE,
	                                  VB_RDMAP_ATOMIC_RESPONSE};

	for (int i = 0; i < 4; i++) {
		for (uint32_t by = 1; by; by = by == 1 ? UINT32_MAX : 0) {
			struct vb_ddp h;

			begin();
			h = fx_header(&fx, opcodes[i]);
			h.msn += by;
			fx_in(&fx, &h, bytes, vb_rdmap_table[opcodes[i]].body);
			refused(VB_TERM_UNTAGGED_MSN);
			CHECK(fx.qp.stats.refused_msn == 1);
		}
	}
}

static void an_offset_that_does_not_follow(void)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.mo = 4;
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_UNTAGGED_OFFSET);
	begin();
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.last = false;
	fx_in(&fx, &h, bytes, 8);
	CHECK(fx.stores == 1 && !vb_iw_over(&fx.qp));
	h.mo = 4; /* existing data would be stored again */
	fx_in(&fx, &h, bytes, 8);
	fx_expect_terminate(&fx, VB_TERM_UNTAGGED_OFFSET, &t);
	CHECK(fx.stores == 1 && fx.receipts == 1 && fx.receipt[0].status == VB_WORK_WR_FLUSH_ERR);
}

static void no_receive(void)
{
	struct vb_ddp h;

	begin();
	fx.receives = 0;
	h = fx_header(&fx, VB_RDMAP_SEND_SE);
	fx_in(&fx, &h, bytes, 8);
	CHECK(vb_iw_starved(&fx.qp) && !fx.events);
	vb_iw_give_up(&fx.qp);
	refused(VB_TERM_UNTAGGED_NO_BUFFER);
	tells_of(&h, 26);
	CHECK(!vb_iw_starved(&fx.qp) && fx.qp.stats.refused_no_receive == 1);
	begin();
	fx.receives = 0;
	h = fx_header(&fx, VB_RDMAP_IMMEDIATE);
	fx_in(&fx, &h, bytes, 8);
	vb_iw_retry(&fx.qp);
	CHECK(vb_iw_starved(&fx.qp) && fx.qp.stats.starved == 1);
	vb_iw_give_up(&fx.qp);
	refused(VB_TERM_UNTAGGED_NO_BUFFER);
	begin();
	fx.receives = 0;
	h = fx_header(&fx, VB_RDMAP_SEND);
	fx_in(&fx, &h, bytes, 8);
	vb_iw_closed(&fx.qp, VB_IW_FIN);
	CHECK(vb_iw_over(&fx.qp) && !vb_iw_starved(&fx.qp) && !fx.receipts);
	vb_iw_retry(&fx.qp);
	CHECK(!fx.taken_receives);
}

static void a_message_longer_than_its_receive(void)
{
	struct vb_ddp h;

	begin();
	fx.room = 100;
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.last = false;
	fx_in(&fx, &h, bytes, 60);
	h.mo = 60;
	fx_in(&fx, &h, bytes, 41);
	fx_expect_terminate(&fx, VB_TERM_UNTAGGED_TOO_LONG, &t);
	CHECK(fx.stores == 1 && fx.receipt[0].status == VB_WORK_LOC_LEN_ERR && !fx.inbox[60]);
}

static void requests_longer_than_they_can_be(void)
{
	static const uint8_t opcodes[] = {VB_RDMAP_READ_REQUEST, VB_RDMAP_ATOMIC_REQUEST, VB_RDMAP_IMMEDIATE,
	                                  VB_RDMAP_ATOMIC_RESPONSE};

	for (int i = 0; i < 4; i++) {
		struct vb_ddp h;

		begin();
		h = fx_header(&fx, opcodes[i]);
		fx_in(&fx, &h, bytes, vb_rdmap_table[opcodes[i]].body + 1u);
		refused(VB_TERM_UNTAGGED_TOO_LONG);
		begin();
		h = fx_header(&fx, opcodes[i]);
		h.last = false;
		fx_in(&fx, &h, bytes, vb_rdmap_table[opcodes[i]].body);
		refused(VB_TERM_UNTAGGED_TOO_LONG);
		begin();
		h = fx_header(&fx, opcodes[i]);
		fx_in(&fx, &h, bytes, vb_rdmap_table[opcodes[i]].body - 1u);
		refused(VB_TERM_OPERATION_OTHER);
	}
}

/* --- tagged --- */

static void write_refused(uint32_t stag, uint64_t to, uint32_t len, enum vb_term term)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_WRITE);
	h.stag = stag;
	h.to = to;
	fx.receives = 1; /* its immediate would come later: RFC 7306, 6 */
	fx_in(&fx, &h, bytes, len);
	refused(term);
	CHECK(!fx.receipts && fx.receives == 1);
	tells_of(&h, VB_DDP_TAGGED_LEN + len);
	CHECK(!t.has_rdma && fx.event[0] == VB_WORK_EVENT_ACCESS);
}

/* Small ones are copied, large ones are placed directly, with the same checks. */
static void a_write_to_what_may_not_be_written(void)
{
	for (uint32_t len = 8; len <= 8000; len += 7992) {
		write_refused(99, FX_VA, len, VB_TERM_TAGGED_STAG);
		write_refused(FX_STRANGER, FX_VA, len, VB_TERM_TAGGED_STREAM);
		write_refused(FX_STAG, FX_VA - 1, len, VB_TERM_TAGGED_BOUNDS);
		write_refused(FX_STAG, FX_VA + FX_REGION - len + 1, len, VB_TERM_TAGGED_BOUNDS);
		write_refused(FX_STAG, UINT64_MAX - len + 2, len, VB_TERM_TAGGED_WRAP);
		write_refused(FX_STAG, UINT64_MAX, len, VB_TERM_TAGGED_WRAP);
		write_refused(FX_READ_ONLY, FX_VA, len, VB_TERM_PROTECTION_ACCESS);
	}
}

static void a_write_where_the_queue_pair_allows_none(void)
{
	struct vb_iw_config cfg;
	struct vb_ddp h;

	begin();
	cfg = fx.cfg;
	cfg.access = VB_RIGHT_READ;
	vb_iw_reconfigure(&fx.qp, &cfg);
	h = fx_header(&fx, VB_RDMAP_WRITE);
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_PROTECTION_ACCESS);
}

static void a_write_of_nothing_is_not_checked(void)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_WRITE);
	h.stag = 99;
	h.to = UINT64_MAX;
	fx_in(&fx, &h, bytes, 0);
	CHECK(!vb_iw_over(&fx.qp) && fx.qp.stats.rcvd_fpdus == 1);
}

static void a_region_that_goes_away_within_an_fpdu(void)
{
	struct vb_ddp h;
	struct iovec iov[4];

	begin();
	h = fx_header(&fx, VB_RDMAP_WRITE);
	uint32_t len = fx_forge(&fx, bytes, &h, before, 12000);

	vb_iw_input(&fx.qp, bytes, 1000);
	CHECK(vb_iw_room(&fx.qp, iov, 4) == 2 && iov[0].iov_base == fx.region + 984);
	fx.invalid = true;
	CHECK(!vb_iw_room(&fx.qp, iov, 4));
	fx_expect_terminate(&fx, VB_TERM_TAGGED_STAG, &t);
	(void)len;
}

/* --- RDMAP --- */

static void an_rdmap_version(void)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.rv = 0;
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_OPERATION_VERSION);
	tells_of(&h, 26);
}

static void an_opcode_that_is_none_or_of_another_queue(void)
{
	for (uint8_t opcode = 0; opcode < 16; opcode++) {
		for (uint8_t shape = 0; shape < 5; shape++) {
			const struct vb_rdmap_info *info = &vb_rdmap_table[opcode];
			bool tagged = shape == 4;
			struct vb_ddp h;

			if (info->name && tagged == !!(info->flags & VB_RDMAP_TAGGED) &&
			    (tagged || shape == info->queue))
				continue;
			begin();
			h = (struct vb_ddp){.tagged = tagged, .last = true, .dv = 1, .rv = 1, .opcode = opcode};
			if (tagged) {
				h.stag = FX_STAG;
				h.to = FX_VA;
			} else {
				h.qn = shape;
				h.msn = 1;
			}
			fx_in(&fx, &h, bytes, 8);
			refused(VB_TERM_OPERATION_OPCODE);
			tells_of(&h, vb_ddp_len(tagged) + 8);
		}
	}
}

static void another_opcode_within_a_message(void)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.last = false;
	fx_in(&fx, &h, bytes, 8);
	h.opcode = VB_RDMAP_SEND_SE;
	h.mo = 8;
	fx_in(&fx, &h, bytes, 8);
	fx_expect_terminate(&fx, VB_TERM_OPERATION_OPCODE, &t);
	CHECK(fx.stores == 1);
}

static void read_in(uint32_t stag, uint64_t to, uint32_t len)
{
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_READ_REQUEST);
	struct vb_read_request rr = {.sink_stag = 1, .sink_to = 2, .length = len, .stag = stag, .to = to};
	uint8_t body[VB_READ_REQUEST_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));

	vb_read_request_encode(&w, &rr);
	fx_in(&fx, &h, body, sizeof(body));
}

static void read_refused(uint32_t stag, uint64_t to, uint32_t len, enum vb_term term)
{
	begin();
	read_in(stag, to, len);
	refused(term);
	CHECK(t.has_ddp && t.has_rdma && t.segment_len == VB_DDP_UNTAGGED_LEN + VB_READ_REQUEST_LEN);
	struct vb_reader r = vb_reader(t.rdma, sizeof(t.rdma));
	struct vb_read_request rr;

	vb_read_request_decode(&r, &rr);
	CHECK(rr.stag == stag && rr.to == to && rr.length == len && rr.sink_stag == 1 && rr.sink_to == 2);
}

static void a_read_of_what_may_not_be_read(void)
{
	read_refused(99, FX_VA, 8, VB_TERM_PROTECTION_STAG);
	read_refused(FX_STRANGER, FX_VA, 8, VB_TERM_PROTECTION_STREAM);
	read_refused(FX_STAG, FX_VA, FX_REGION + 1, VB_TERM_PROTECTION_BOUNDS);
	read_refused(FX_STAG, FX_VA - 8, 8, VB_TERM_PROTECTION_BOUNDS);
	read_refused(FX_STAG, FX_VA, UINT32_MAX, VB_TERM_PROTECTION_BOUNDS);
	read_refused(FX_STAG, UINT64_MAX - 6, 8, VB_TERM_PROTECTION_WRAP);
}

static void a_region_that_goes_away_before_its_answer(void)
{
	begin();
	read_in(FX_STAG, FX_VA, 5000);
	fx.invalid = true;
	refused(VB_TERM_PROTECTION_STAG);
	CHECK(t.has_rdma);
	begin();
	read_in(FX_STAG, FX_VA, 5000);
	fx.target_fault = true;
	refused(VB_TERM_PROTECTION_STAG);
}

/* RFC 5040, 4.8: the Terminate contains the failed segment. */
static void a_region_that_goes_away_in_the_middle_of_its_answer(void)
{
	struct vb_read_request rr;
	struct iovec iov[8];

	begin();
	read_in(FX_STAG, FX_VA, 5000);
	CHECK(vb_iw_output(&fx.qp, iov, 8, 3000) > 0);
	const uint8_t *first = iov[0].iov_base;
	uint32_t ulpdu = (uint32_t)first[0] << 8 | first[1], done = ulpdu - VB_DDP_TAGGED_LEN;

	for (uint32_t i = 0; fx.sent_len < vb_mpa_fpdu_len(ulpdu); fx.sent_len += (uint32_t)iov[i++].iov_len)
		memcpy(fx.sent + fx.sent_len, iov[i].iov_base, iov[i].iov_len);
	fx.sent_len = vb_mpa_fpdu_len(ulpdu);
	vb_iw_sent(&fx.qp, fx.sent_len);
	fx.invalid = true;
	refused(VB_TERM_PROTECTION_STAG);
	struct vb_reader r = vb_reader(t.rdma, sizeof(t.rdma));

	vb_read_request_decode(&r, &rr);
	CHECK(t.has_rdma && done && rr.to == FX_VA + done && rr.sink_to == 2 + done && rr.length == 5000 - done);
}

static void more_reads_than_agreed(void)
{
	begin();
	for (int i = 0; i < 4; i++)
		read_in(FX_STAG, FX_VA, 8);
	CHECK(!vb_iw_over(&fx.qp));
	read_in(FX_STAG, FX_VA, 8);
	refused(VB_TERM_UNTAGGED_NO_BUFFER);
	CHECK(fx.qp.stats.refused_ird == 1 && t.has_ddp && !t.has_rdma);
}

static void atomic_in(uint8_t op, uint32_t stag, uint64_t to, uint64_t mask)
{
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_ATOMIC_REQUEST);
	struct vb_atomic_request ar = {
	        .op = op, .id = 77, .stag = stag, .to = to, .swap_add = 1, .swap_add_mask = mask, .compare_mask = mask};
	uint8_t body[VB_ATOMIC_REQUEST_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));

	vb_atomic_request_encode(&w, &ar);
	fx_in(&fx, &h, body, sizeof(body));
}

static void atomic_refused(uint8_t op, uint32_t stag, uint64_t to, uint64_t mask, enum vb_term term)
{
	begin();
	atomic_in(op, stag, to, mask);
	refused(term);
	CHECK(t.has_ddp && !t.has_rdma && t.segment_len == VB_DDP_UNTAGGED_LEN + VB_ATOMIC_REQUEST_LEN);
}

static void an_atomic_that_cannot_be(void)
{
	atomic_refused(VB_RDMAP_FETCH_ADD, 99, FX_VA, 0, VB_TERM_PROTECTION_STAG);
	atomic_refused(VB_RDMAP_FETCH_ADD, FX_READ_ONLY, FX_VA, 0, VB_TERM_PROTECTION_ACCESS);
	atomic_refused(VB_RDMAP_FETCH_ADD, FX_STAG, FX_VA + FX_REGION - 4, 0, VB_TERM_PROTECTION_BOUNDS);
	atomic_refused(VB_RDMAP_FETCH_ADD, FX_STAG, UINT64_MAX - 3, 0, VB_TERM_PROTECTION_WRAP);
	atomic_refused(VB_RDMAP_FETCH_ADD, FX_STAG, FX_VA + 4, 0, VB_TERM_OPERATION_STREAM);
	atomic_refused(VB_RDMAP_FETCH_ADD, FX_STAG, FX_VA, 0x80000000, VB_TERM_OPERATION_OPCODE);
	atomic_refused(VB_RDMAP_CMP_SWAP, FX_STAG, FX_VA, 0xff, VB_TERM_OPERATION_OPCODE);
	atomic_refused(1, FX_STAG, FX_VA, UINT64_MAX, VB_TERM_OPERATION_OPCODE);
}

static void an_stag_that_cannot_be_invalidated(void)
{
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_SEND_INVALIDATE);
	h.stag = 99;
	fx_in(&fx, &h, bytes, 8);
	fx_expect_terminate(&fx, VB_TERM_PROTECTION_INVALIDATE, &t);
	CHECK(fx.receipt[0].status == VB_WORK_LOC_ACCESS_ERR);
}

/* --- responses --- */

static void response_refused(uint32_t posted, uint32_t stag, uint64_t to, uint32_t len, bool last, enum vb_term term)
{
	struct vb_ddp h;

	begin();
	if (posted)
		fx_post(&fx, VB_VERB_READ, posted);
	fx_output(&fx);
	h = fx_header(&fx, VB_RDMAP_READ_RESPONSE);
	h.stag = stag;
	h.to = to;
	h.last = last;
	fx_in(&fx, &h, bytes, len);
	refused(term);
	CHECK(fx.qp.stats.refused_response == 1 && fx.local[0][1] == 5);
	CHECK(!posted || (fx.dones == 1 && fx.done[0].status == VB_WORK_WR_FLUSH_ERR));
}

static void a_response_that_is_not_the_answer(void)
{
	response_refused(0, FX_SINK_STAG, FX_SINK_TO(0), 8, true, VB_TERM_OPERATION_OPCODE);
	for (uint32_t len = 8; len <= 8000; len += 7992) {
		response_refused(len, FX_STAG, FX_SINK_TO(0), len, true, VB_TERM_TAGGED_STAG);
		response_refused(len, FX_SINK_STAG, FX_SINK_TO(0) + 1, len, true, VB_TERM_TAGGED_BOUNDS);
		response_refused(len, FX_SINK_STAG, FX_SINK_TO(0), len + 1, true, VB_TERM_TAGGED_BOUNDS);
		response_refused(len, FX_SINK_STAG, FX_SINK_TO(0), len + 1, false, VB_TERM_TAGGED_BOUNDS);
		response_refused(len, FX_SINK_STAG, FX_SINK_TO(0), len - 1, true, VB_TERM_TAGGED_BOUNDS);
	}
}

static void a_response_of_the_other_kind(void)
{
	struct vb_ddp h;

	begin();
	fx_post(&fx, VB_VERB_FETCH_ADD, 8);
	fx_output(&fx);
	h = fx_header(&fx, VB_RDMAP_READ_RESPONSE);
	h.stag = FX_SINK_STAG;
	h.to = FX_SINK_TO(0);
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_OPERATION_OPCODE);
	begin();
	fx_post(&fx, VB_VERB_READ, 8);
	fx_output(&fx);
	h = fx_header(&fx, VB_RDMAP_ATOMIC_RESPONSE);
	fx_in(&fx, &h, bytes, VB_ATOMIC_RESPONSE_LEN);
	refused(VB_TERM_OPERATION_OPCODE);
}

/* --- the peer's Terminate --- */

static void terminate_in(uint16_t term, const struct vb_ddp *about)
{
	struct vb_terminate message = {.term = term, .has_ddp = about};
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_TERMINATE);
	uint8_t body[VB_TERMINATE_MAX];
	struct vb_writer w = vb_writer(body, sizeof(body));

	if (about)
		message.ddp = *about;
	vb_terminate_encode(&w, &message);
	fx_in(&fx, &h, body, (uint32_t)w.pos);
}

static void a_terminate_ends_the_read_it_is_about(void)
{
	struct vb_iw_terminate got;
	struct iovec iov[2];

	begin();
	for (int i = 0; i < 3; i++)
		fx_post(&fx, VB_VERB_READ, 8);
	fx_output(&fx);
	terminate_in(VB_TERM_PROTECTION_ACCESS,
	             &(struct vb_ddp){.dv = 1, .rv = 1, .opcode = VB_RDMAP_READ_REQUEST, .qn = 1, .msn = 2});
	CHECK(vb_iw_over(&fx.qp) && vb_iw_got_terminate(&fx.qp, &got));
	CHECK(got.layer == 0 && got.etype == 1 && got.code == 2);
	CHECK(fx.dones == 3 && fx.done[0].status == VB_WORK_WR_FLUSH_ERR &&
	      fx.done[1].status == VB_WORK_REM_ACCESS_ERR);
	CHECK(fx.done[2].status == VB_WORK_WR_FLUSH_ERR && fx.events == 1 && fx.event[0] == VB_WORK_EVENT_SQ);
	CHECK(!vb_iw_output(&fx.qp, iov, 2, 1) && !vb_iw_room(&fx.qp, iov, 2));
	CHECK(!vb_iw_sent_terminate(&fx.qp, &got));
}

static void a_terminate_about_nothing_ends_the_oldest(void)
{
	static const struct {
		uint16_t term;
		enum vb_work_status status;
	} cases[] = {
	        {VB_TERM_LOCAL_CATASTROPHIC, VB_WORK_REM_OP_ERR},
	        {VB_TERM_MPA_CRC, VB_WORK_REM_OP_ERR},
	        {VB_TERM_UNTAGGED_NO_BUFFER, VB_WORK_REM_OP_ERR},
	        {VB_TERM_TAGGED_BOUNDS, VB_WORK_REM_ACCESS_ERR},
	        {VB_TERM_UNTAGGED_MSN, VB_WORK_REM_INV_REQ_ERR},
	        {VB_TERM_OPERATION_OPCODE, VB_WORK_REM_INV_REQ_ERR},
	        {0xffff, VB_WORK_REM_OP_ERR},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin();
		fx_post(&fx, VB_VERB_READ, 8);
		fx_output(&fx);
		terminate_in(cases[i].term, NULL);
		CHECK(vb_iw_over(&fx.qp) && fx.dones == 1 && fx.done[0].status == cases[i].status);
	}
}

static void a_terminate_in_every_state(void)
{
	struct vb_iw_terminate got;
	struct vb_ddp h;
	struct iovec iov[8];

	begin(); /* before any data */
	terminate_in(VB_TERM_MPA_CRC, NULL);
	CHECK(vb_iw_over(&fx.qp) && !fx.dones && fx.events == 1);
	begin(); /* in the middle of a message of the peer */
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.last = false;
	fx_in(&fx, &h, bytes, 8);
	terminate_in(VB_TERM_MPA_CRC, NULL);
	CHECK(vb_iw_over(&fx.qp) && fx.receipts == 1 && fx.receipt[0].status == VB_WORK_WR_FLUSH_ERR);
	begin(); /* in the middle of our FPDU */
	fx_post(&fx, VB_VERB_SEND, 5000);
	CHECK(vb_iw_output(&fx.qp, iov, 8, 5000) > 0);
	vb_iw_sent(&fx.qp, 100);
	terminate_in(VB_TERM_UNTAGGED_NO_BUFFER, NULL);
	CHECK(vb_iw_over(&fx.qp) && fx.dones == 1 && !vb_iw_output(&fx.qp, iov, 8, 1));
	begin(); /* while held */
	vb_iw_hold_until_input(&fx.qp);
	fx_post(&fx, VB_VERB_SEND, 8);
	fx_output(&fx);
	CHECK(!fx.sent_len);
	terminate_in(VB_TERM_MPA_CRC, NULL);
	CHECK(vb_iw_over(&fx.qp) && vb_iw_got_terminate(&fx.qp, &got));
	begin(); /* twice, and after the end */
	terminate_in(VB_TERM_MPA_CRC, NULL);
	terminate_in(VB_TERM_MPA_MARKER, NULL);
	CHECK(vb_iw_got_terminate(&fx.qp, &got) && got.code == 2 && fx.events == 1);
	vb_iw_closed(&fx.qp, VB_IW_FIN);
	vb_iw_abort(&fx.qp, true);
	CHECK(!vb_iw_output(&fx.qp, iov, 8, 1) && fx.events == 1);
}

/* siw's Terminate for an unknown opcode has layer and error type swapped. */
static void a_terminate_that_means_something_else_of_siw(void)
{
	struct vb_iw_terminate got;

	for (int spoken = 0; spoken < 2; spoken++) {
		struct vb_ddp h;

		begin();
		h = fx_header(&fx, VB_RDMAP_SEND);
		if (spoken)
			fx_in(&fx, &h, bytes, 8);
		fx_post(&fx, VB_VERB_READ, 100);
		fx_output(&fx);
		terminate_in(VB_TERM_MPA_IRD, NULL);
		CHECK(vb_iw_got_terminate(&fx.qp, &got) && got.layer == (spoken ? 0 : 2) && got.code == 6);
		CHECK(fx.done[0].status == (spoken ? VB_WORK_REM_INV_REQ_ERR : VB_WORK_REM_OP_ERR));
	}
}

static void a_terminate_that_is_cut_off(void)
{
	for (uint32_t len = 0; len < VB_TERMINATE_MAX; len++) {
		struct vb_ddp h;

		begin();
		h = fx_header(&fx, VB_RDMAP_TERMINATE);
		memset(bytes, 0xff, VB_TERMINATE_MAX);
		fx_in(&fx, &h, bytes, len);
		CHECK(vb_iw_over(&fx.qp) && fx.events == 1);
	}
}

/* --- our own Terminate is sent --- */

static void a_terminate_goes_behind_the_fpdu_that_is_half_out(void)
{
	struct iovec iov[8];
	struct vb_ddp h;

	begin();
	fx_post(&fx, VB_VERB_SEND, 5000);
	CHECK(vb_iw_output(&fx.qp, iov, 8, 5000) > 0);
	memcpy(fx.sent, iov[0].iov_base, 10);
	fx.sent_len = 10;
	vb_iw_sent(&fx.qp, 10);
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.qn = 9;
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_UNTAGGED_QUEUE);
	CHECK(fx.sent[3] == 0x43 && fx.dones == 1 && fx.done[0].status == VB_WORK_WR_FLUSH_ERR);
}

static void a_terminate_has_its_crc_and_markers(void)
{
	struct vb_ddp h;

	begin_with(true, true);
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.qn = 9;
	fx_in(&fx, &h, bytes, 8);
	refused(VB_TERM_UNTAGGED_QUEUE);
}

int main(void)
{
	RUN(a_wrong_crc);
	RUN(a_wrong_crc_of_a_large_one_places_nothing);
	RUN(a_marker_that_points_elsewhere);
	RUN(an_fpdu_shorter_than_its_header);
	RUN(the_longest_fpdu_is_taken_to_be_too_long_for_its_receive);
	RUN(a_ddp_version);
	RUN(a_queue_number);
	RUN(a_gap_in_the_sequence_of_each_queue);
	RUN(an_offset_that_does_not_follow);
	RUN(no_receive);
	RUN(a_message_longer_than_its_receive);
	RUN(requests_longer_than_they_can_be);
	RUN(a_write_to_what_may_not_be_written);
	RUN(a_write_where_the_queue_pair_allows_none);
	RUN(a_write_of_nothing_is_not_checked);
	RUN(a_region_that_goes_away_within_an_fpdu);
	RUN(an_rdmap_version);
	RUN(an_opcode_that_is_none_or_of_another_queue);
	RUN(another_opcode_within_a_message);
	RUN(a_read_of_what_may_not_be_read);
	RUN(a_region_that_goes_away_before_its_answer);
	RUN(a_region_that_goes_away_in_the_middle_of_its_answer);
	RUN(more_reads_than_agreed);
	RUN(an_atomic_that_cannot_be);
	RUN(an_stag_that_cannot_be_invalidated);
	RUN(a_response_that_is_not_the_answer);
	RUN(a_response_of_the_other_kind);
	RUN(a_terminate_ends_the_read_it_is_about);
	RUN(a_terminate_about_nothing_ends_the_oldest);
	RUN(a_terminate_in_every_state);
	RUN(a_terminate_that_means_something_else_of_siw);
	RUN(a_terminate_that_is_cut_off);
	RUN(a_terminate_goes_behind_the_fpdu_that_is_half_out);
	RUN(a_terminate_has_its_crc_and_markers);
	fx_free(&fx);
	return 0;
}
