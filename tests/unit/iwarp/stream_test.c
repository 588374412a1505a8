// stream_test.c - the functions of a stream, FPDU by FPDU
// follows: RFC 5040, 5; RFC 6581, 9.2; RFC 7306, 5, 6
// SPDX-License-Identifier: MIT
#include <string.h>

#include "engine/iwarp/machine.h"
#include "fixture.h"

static struct fx fx;
static uint8_t bytes[66000];
static struct vb_ddp sent[64];
static uint32_t sent_len[64], sents; /* sent headers, with the length after them */
static const uint8_t *rest[64];

static void begin(void)
{
	struct vb_iw_config cfg;

	fx_config(&cfg);
	fx_init(&fx, &cfg);
	memset(bytes, 0x77, sizeof(bytes));
}

/* All output since the beginning. */
static void look(void)
{
	fx_output(&fx);
	sents = 0;
	for (uint32_t at = 0; at < fx.sent_len;) {
		uint32_t ulpdu = (uint32_t)fx.sent[at] << 8 | fx.sent[at + 1];
		struct vb_reader r = vb_reader(fx.sent + at + 2, ulpdu);

		vb_ddp_decode(&r, &sent[sents]);
		CHECK(!r.failed && sent[sents].dv == 1 && sent[sents].rv == 1 && sents < 63);
		rest[sents] = r.bytes + r.pos;
		sent_len[sents++] = (uint32_t)vb_left(&r);
		at += vb_mpa_fpdu_len(ulpdu);
		CHECK(at <= fx.sent_len && vb_mpa_fpdu_len(ulpdu) <= (fx.qp.large ? VB_IW_LARGE : fx.qp.cfg.emss));
	}
}

/* --- requests --- */

static void a_send_is_cut_to_the_segment_size_and_completes_when_handed_over(void)
{
	struct iovec iov[8];

	begin();
	fx_post(&fx, VB_VERB_SEND, 3000)->flags = VB_WORK_SOLICITED;
	CHECK(vb_iw_output(&fx.qp, iov, 8, 10) == 3 && !fx.dones); /* header, two pieces that touch, CRC */
	CHECK(iov[1].iov_base == fx.local[0] && iov[0].iov_len == 20);
	look();
	CHECK(sents == 3 && fx.dones == 1 && fx.done[0].status == VB_WORK_SUCCESS);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK(sent[i].opcode == VB_RDMAP_SEND_SE && !sent[i].tagged && sent[i].qn == 0 && sent[i].msn == 1);
		CHECK(sent[i].mo == i * 1436 && sent[i].last == (i == 2) && sent_len[i] == (i == 2 ? 128 : 1436));
		CHECK(!memcmp(rest[i], fx.local[0] + sent[i].mo, sent_len[i]));
	}
	CHECK(fx.qp.stats.bytes_direct_out == 2872 && fx.qp.stats.bytes_copied_out == 128);
}

static void each_send_has_its_opcode(void)
{
	begin();
	for (uint8_t i = 0; i < 4; i++) {
		struct vb_work *work = fx_post(&fx, VB_VERB_SEND, 8);

		work->flags = (uint8_t)((i & 1 ? VB_WORK_SOLICITED : 0) | (i & 2 ? VB_WORK_INV : 0));
		work->imm = 0x1234;
	}
	look();
	CHECK(sents == 4 && sent[0].opcode == VB_RDMAP_SEND && sent[1].opcode == VB_RDMAP_SEND_SE);
	CHECK(sent[2].opcode == VB_RDMAP_SEND_INVALIDATE && sent[3].opcode == VB_RDMAP_SEND_SE_INVALIDATE);
	CHECK(!sent[1].stag && sent[2].stag == 0x1234 && sent[3].msn == 4);
}

static void a_write_with_immediate_is_a_write_and_immediate_data(void)
{
	begin();
	struct vb_work *work = fx_post(&fx, VB_VERB_WRITE, 10);

	work->flags = VB_WORK_IMM | VB_WORK_SOLICITED;
	work->imm = 0xa1b2c3d4;
	look();
	CHECK(sents == 2 && sent[0].opcode == VB_RDMAP_WRITE && sent[0].last && sent[0].stag == FX_STAG &&
	      sent[0].to == FX_VA);
	CHECK(sent[1].opcode == VB_RDMAP_IMMEDIATE_SE && sent[1].qn == 0 && sent[1].msn == 1 && sent_len[1] == 8);
	CHECK(!memcmp(rest[1], (uint8_t[]){0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 0}, 8) && fx.dones == 1);
}

static void a_send_with_immediate_is_no_operation_of_rdmap(void)
{
	struct vb_terminate t;

	begin();
	fx_post(&fx, VB_VERB_WRITE, 8);
	fx_post(&fx, VB_VERB_SEND, 8)->flags = VB_WORK_IMM;
	fx_post(&fx, VB_VERB_SEND, 8);
	fx_output(&fx);
	fx_expect_terminate(&fx, VB_TERM_LOCAL_CATASTROPHIC, &t);
	CHECK(fx.done[0].status == VB_WORK_SUCCESS && fx.done[1].status == VB_WORK_LOC_QP_OP_ERR && fx.taken == 2);
	CHECK(fx.event[0] == VB_WORK_EVENT_SQ);
}

static void reads_keep_to_the_limit_and_complete_with_their_answer(void)
{
	struct vb_ddp h;

	begin();
	for (int i = 0; i < 6; i++)
		fx_post(&fx, VB_VERB_READ, 8);
	fx_post(&fx, VB_VERB_SEND, 8);
	look();
	CHECK(sents == 4 && sent[3].qn == 1 && sent[3].msn == 4 && sent_len[0] == VB_READ_REQUEST_LEN && !fx.dones);
	for (int i = 0; i < 6; i++) {
		h = fx_header(&fx, VB_RDMAP_READ_RESPONSE);
		h.stag = FX_SINK_STAG;
		h.to = FX_SINK_TO(i);
		memset(bytes, i + 1, 8);
		fx_in(&fx, &h, bytes, 8);
		fx_output(&fx);
		CHECK(fx.local[i % 4][0] == i + 1 && fx.done[i].status == VB_WORK_SUCCESS);
	}
	look();
	CHECK(sents == 7 && fx.dones == 7 && vb_iw_idle(&fx.qp) && fx.qp.stats.ord_waits == 2);
}

static void an_atomic_asks_and_stores_what_was_there(void)
{
	uint8_t body[VB_ATOMIC_RESPONSE_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));
	struct vb_atomic_request ar;
	uint64_t original = 0x1122334455667788, got;

	begin();
	struct vb_work *work = fx_post(&fx, VB_VERB_CMP_SWAP, 8);

	work->compare = 5;
	work->swap_add = 6;
	look();
	struct vb_reader r = vb_reader(rest[0], sent_len[0]);

	vb_atomic_request_decode(&r, &ar);
	CHECK(sents == 1 && sent[0].opcode == VB_RDMAP_ATOMIC_REQUEST && sent[0].qn == 1 && ar.op == VB_RDMAP_CMP_SWAP);
	CHECK(ar.compare == 5 && ar.swap_add == 6 && ar.compare_mask == UINT64_MAX && ar.stag == FX_STAG &&
	      ar.to == FX_VA);
	vb_atomic_response_encode(&w, &(struct vb_atomic_response){.id = ar.id, .original = original});
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_ATOMIC_RESPONSE);

	fx_in(&fx, &h, body, sizeof(body));
	memcpy(&got, fx.local[0], 8);
	CHECK(fx.dones == 1 && got == original);
}

static void a_fence_waits_for_reads_and_a_local_one_for_all(void)
{
	struct vb_ddp h;

	begin();
	fx_post(&fx, VB_VERB_READ, 8);
	fx_post(&fx, VB_VERB_SEND, 8);
	fx_post(&fx, VB_VERB_SEND, 8)->flags = VB_WORK_FENCE;
	fx_post(&fx, VB_VERB_LOCAL_INV, 0);
	look();
	CHECK(sents == 2 && !fx.locals && !fx.dones);
	h = fx_header(&fx, VB_RDMAP_READ_RESPONSE);
	h.stag = FX_SINK_STAG;
	h.to = FX_SINK_TO(0);
	fx_in(&fx, &h, bytes, 8);
	CHECK(fx.dones == 2);
	look();
	CHECK(sents == 3 && fx.locals == 1 && fx.dones == 4);
}

static void a_local_request_that_must_wait_is_tried_again(void)
{
	begin();
	fx.later = 2;
	fx_post(&fx, VB_VERB_LOCAL_INV, 0);
	fx_post(&fx, VB_VERB_SEND, 8);
	look();
	CHECK(!sents && fx.locals == 1 && !fx.dones);
	look();
	CHECK(!sents && fx.locals == 2 && !fx.dones);
	look();
	CHECK(sents == 1 && fx.locals == 3 && fx.dones);
}

static void a_pause_ends_with_the_message(void)
{
	struct iovec iov[4];

	begin();
	fx_post(&fx, VB_VERB_SEND, 3000);
	fx_post(&fx, VB_VERB_SEND, 8);
	CHECK(vb_iw_output(&fx.qp, iov, 4, 1) > 0);
	vb_iw_pause(&fx.qp, true);
	CHECK(!vb_iw_idle(&fx.qp));
	look();
	CHECK(sents == 3 && fx.dones == 1 && vb_iw_idle(&fx.qp));
	vb_iw_pause(&fx.qp, false);
	look();
	CHECK(sents == 4 && fx.dones == 2);
}

static void memory_that_is_gone_fails_its_request_behind_those_before_it(void)
{
	struct vb_terminate t;

	for (uint32_t length = 100; length <= 5000; length += 4900) {
		begin();
		fx_post(&fx, VB_VERB_SEND, 3000);
		fx_post(&fx, VB_VERB_SEND, length);
		fx.no_access = 2;
		fx_output(&fx);
		fx_expect_terminate(&fx, VB_TERM_LOCAL_CATASTROPHIC, &t);
		CHECK(fx.done[0].status == VB_WORK_SUCCESS && fx.done[1].status == VB_WORK_LOC_PROT_ERR);
	}
}

static void a_local_request_that_was_refused_ends_the_stream_and_is_not_executed(void)
{
	struct vb_terminate t;

	begin();
	fx_post(&fx, VB_VERB_SEND, 3000);
	fx_post(&fx, VB_VERB_LOCAL_INV, UINT32_MAX);
	fx_output(&fx);
	fx_expect_terminate(&fx, VB_TERM_LOCAL_CATASTROPHIC, &t);
	CHECK(fx.done[0].status == VB_WORK_SUCCESS && fx.done[1].status == VB_WORK_LOC_LEN_ERR && !fx.locals);
}

static void memory_that_goes_away_within_an_fpdu_ends_the_stream(void)
{
	struct iovec iov[8];

	begin();
	fx_post(&fx, VB_VERB_SEND, 3000);
	CHECK(vb_iw_output(&fx.qp, iov, 8, 3000) > 0);
	vb_iw_sent(&fx.qp, 100);
	fx.no_access = 1;
	CHECK(!vb_iw_output(&fx.qp, iov, 8, 3000) && vb_iw_over(&fx.qp));
	CHECK(fx.dones == 1 && fx.done[0].status == VB_WORK_LOC_PROT_ERR && !fx.qp.stats.terminates_sent);
}

static void a_fault_of_the_kernel_is_laid_to_its_request(void)
{
	struct iovec iov[8];

	begin();
	fx_post(&fx, VB_VERB_SEND, 3000);
	fx_post(&fx, VB_VERB_SEND, 3000);
	CHECK(vb_iw_output(&fx.qp, iov, 8, 3000) > 0);
	vb_iw_closed(&fx.qp, VB_IW_FAULT);
	CHECK(fx.dones == fx.taken && fx.done[0].status == VB_WORK_LOC_PROT_ERR && !fx.events);
	CHECK(vb_iw_over(&fx.qp) && !vb_iw_output(&fx.qp, iov, 8, 1));
}

/* --- the peer's requests --- */

static void a_large_write_goes_in_place_but_for_its_end(void)
{
	struct vb_ddp h;
	struct iovec iov[4];

	begin();
	h = fx_header(&fx, VB_RDMAP_WRITE);
	uint32_t len = fx_forge(&fx, bytes, &h, memset(bytes + 30000, 0xee, 10000), 10000);

	CHECK(vb_iw_room(&fx.qp, iov, 4) == 1 && iov[0].iov_len >= 116);
	memcpy(iov[0].iov_base, bytes, 116);
	vb_iw_received(&fx.qp, 116);
	CHECK(vb_iw_room(&fx.qp, iov, 4) == 2 && fx.stores == 1);
	CHECK(iov[0].iov_base == fx.region + 100 && iov[0].iov_len == 10000 - 100 - 64);
	memcpy(iov[0].iov_base, bytes + 116, iov[0].iov_len);
	memcpy(iov[1].iov_base, bytes + 116 + iov[0].iov_len, len - 116 - iov[0].iov_len);
	/* so that the next one is placed directly, too */
	CHECK(iov[1].iov_len < 1000 && iov[1].iov_len >= len - 116 - iov[0].iov_len);
	vb_iw_received(&fx.qp, len - 116);
	CHECK(fx.stores == 2 && fx.qp.stats.rcvd_fpdus == 1 && fx.qp.stats.bytes_direct_in == 9836);
	for (uint32_t i = 0; i < FX_REGION; i++)
		CHECK(fx.region[i] == (i < 10000 ? 0xee : (uint8_t)(i * 3)));
	/* many small ones end that */
	for (uint32_t i = 0; i < 16; i++) {
		CHECK(vb_iw_room(&fx.qp, iov, 4) == 1 && iov[0].iov_len < 1000);
		h = fx_header(&fx, VB_RDMAP_WRITE);
		fx_in(&fx, &h, bytes, 8);
	}
	CHECK(vb_iw_room(&fx.qp, iov, 4) == 1 && iov[0].iov_len == VB_IW_STAGE_MIN);
}

/* Like a socket that has all data: delivers what is requested, but at most `piece` at a time. */
static void come(const uint8_t *from, uint32_t len, uint32_t piece)
{
	while (len) {
		struct iovec iov[VB_IW_PIECES + 1];
		int n = vb_iw_room(&fx.qp, iov, VB_IW_PIECES + 1);
		uint32_t got = 0;

		CHECK(n > 0);
		for (int i = 0; i < n && got < len && got < piece; i++) {
			uint32_t left = len - got < piece - got ? len - got : piece - got,
			         here = iov[i].iov_len < left ? (uint32_t)iov[i].iov_len : left;

			memcpy(iov[i].iov_base, from + got, here);
			got += here;
		}
		CHECK(got);
		vb_iw_received(&fx.qp, got);
		from += got;
		len -= got;
	}
}

/* The beginning and the end of a message of several FPDUs go through the stage, and so do short messages between two of
 * these. */
static void of_long_messages_little_is_copied(void)
{
	enum { MESSAGES = 3, FPDUS = 7, LENGTH = 8928, SHORT = 16 };
	static uint8_t stream[MESSAGES * (FPDUS * (LENGTH + 20) + SHORT + 40)];

	for (uint32_t piece = 1; piece < 100000; piece = piece * 3 + 1) {
		uint32_t len = 0;

		begin();
		fx.receives = MESSAGES;
		for (uint32_t i = 0; i < MESSAGES; i++) {
			struct vb_ddp h = fx_header(&fx, VB_RDMAP_WRITE);

			for (uint32_t k = 0; k < FPDUS; k++) {
				h.last = k == FPDUS - 1;
				len += fx_forge(&fx, stream + len, &h, memset(bytes, (int)(i * FPDUS + k + 1), LENGTH),
				                LENGTH);
			}
			h = fx_header(&fx, VB_RDMAP_SEND);
			len += fx_forge(&fx, stream + len, &h, bytes, SHORT);
			fx.msn[h.qn]++;
		}
		come(stream, len, piece);
		CHECK(fx.receipts == MESSAGES && !vb_iw_over(&fx.qp) && vb_iw_empty(&fx.qp));
		CHECK(fx.region[0] == MESSAGES * FPDUS && fx.region[LENGTH - 1] == MESSAGES * FPDUS);
		CHECK(fx.qp.stats.bytes_direct_in + fx.qp.stats.bytes_copied_in == MESSAGES * (FPDUS * LENGTH + SHORT));
		CHECK(fx.qp.stats.bytes_copied_in <= MESSAGES * 256);
		fx_free(&fx);
	}
}

/* With a CRC and markers, the markers must not be removed twice. */
static void starved(bool crc, bool markers, uint32_t length)
{
	struct vb_iw_config cfg;
	struct iovec iov[4];
	struct vb_ddp h;

	fx_config(&cfg);
	cfg.crc = crc;
	cfg.markers_in = markers;
	cfg.direct_min = 1000;
	fx_init(&fx, &cfg);
	h = fx_header(&fx, VB_RDMAP_SEND);
	fx_in(&fx, &h, bytes, length);
	CHECK(vb_iw_starved(&fx.qp) && !vb_iw_room(&fx.qp, iov, 4) && !vb_iw_over(&fx.qp));
	h = fx_header(&fx, VB_RDMAP_SEND);
	fx_in(&fx, &h, bytes + 7, 100);
	h = fx_header(&fx, VB_RDMAP_WRITE);
	fx_in(&fx, &h, bytes, 8);
	vb_iw_retry(&fx.qp);
	CHECK(vb_iw_starved(&fx.qp) && !fx.stores);
	fx_post(&fx, VB_VERB_WRITE, 100); /* our own output is sent */
	fx_output(&fx);
	CHECK(fx.sent_len > 100 && fx.dones == 1);
	fx.receives = 1;
	vb_iw_give_up(&fx.qp); /* one was posted after all */
	CHECK(fx.receipts == 1 && fx.receipt[0].length == length && !memcmp(fx.inbox, bytes, length));
	CHECK(vb_iw_starved(&fx.qp) && !vb_iw_over(&fx.qp));
	fx.receives = 1;
	vb_iw_retry(&fx.qp);
	CHECK(fx.receipts == 2 && fx.receipt[1].length == 100 && !memcmp(fx.inbox, bytes + 7, 100));
	CHECK(!vb_iw_starved(&fx.qp) && !memcmp(fx.region, bytes, 8) && vb_iw_room(&fx.qp, iov, 4));
	CHECK(fx.qp.stats.starved == 2);
	fx_free(&fx);
}

static void a_message_waits_for_its_receive(void)
{
	starved(false, false, 10);
	starved(false, false, 1400);
	starved(true, false, 1400);
	starved(false, true, 1400);
	starved(true, true, 1400);
	starved(true, true, 3);
}

static void a_starved_stream_takes_what_the_stage_holds(void)
{
	static uint8_t many[VB_IW_STAGE_MIN];
	struct vb_ddp h;

	begin();
	h = fx_header(&fx, VB_RDMAP_SEND);
	fx_in(&fx, &h, bytes, 10);
	CHECK(vb_iw_starved(&fx.qp) && !vb_iw_empty(&fx.qp));
	size_t n = vb_iw_input(&fx.qp, many, sizeof(many));

	CHECK(n < sizeof(many) && n > sizeof(many) - 100 && !vb_iw_input(&fx.qp, many, 1));
}

static void a_write_with_immediate_comes_in(void)
{
	struct vb_ddp h;

	begin();
	fx.receives = 1;
	h = fx_header(&fx, VB_RDMAP_WRITE);
	h.last = false;
	fx_in(&fx, &h, bytes, 100);
	h.to += 100;
	h.last = true;
	fx_in(&fx, &h, bytes, 50);
	h = fx_header(&fx, VB_RDMAP_IMMEDIATE);
	fx_in(&fx, &h, (uint8_t[]){1, 2, 3, 4, 0, 0, 0, 0}, 8);
	CHECK(fx.receipts == 1 && fx.receipt[0].write_imm && fx.receipt[0].flags == VB_WORK_IMM);
	CHECK(fx.receipt[0].imm == 0x01020304 && fx.receipt[0].length == 150 && !fx.receipt[0].solicited);
}

static void a_send_that_invalidates_comes_in(void)
{
	struct vb_ddp h;

	begin();
	fx.receives = 1;
	h = fx_header(&fx, VB_RDMAP_SEND_SE_INVALIDATE);
	h.stag = FX_STAG;
	fx_in(&fx, &h, bytes, 100);
	CHECK(fx.invalid && fx.receipts == 1 && fx.receipt[0].flags == VB_WORK_INV && fx.receipt[0].imm == FX_STAG);
	CHECK(fx.receipt[0].solicited && fx.receipt[0].length == 100 && !memcmp(fx.inbox, bytes, 100));
}

static void ask_read(uint32_t length)
{
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_READ_REQUEST);
	struct vb_read_request rr = {
	        .sink_stag = 77, .sink_to = 0x9000, .length = length, .stag = FX_STAG, .to = FX_VA + 4};
	uint8_t body[VB_READ_REQUEST_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));

	vb_read_request_encode(&w, &rr);
	fx_in(&fx, &h, body, sizeof(body));
}

static void reads_are_answered_in_turn_with_our_own_messages(void)
{
	static const uint8_t order[] = {VB_RDMAP_READ_RESPONSE, VB_RDMAP_READ_RESPONSE, VB_RDMAP_SEND,
	                                VB_RDMAP_SEND,          VB_RDMAP_READ_RESPONSE, VB_RDMAP_SEND};

	begin();
	ask_read(2000);
	ask_read(0);
	fx_post(&fx, VB_VERB_SEND, 2000);
	fx_post(&fx, VB_VERB_SEND, 8);
	look();
	CHECK(sents == 6);
	for (uint32_t i = 0; i < 6; i++)
		CHECK(sent[i].opcode == order[i]);
	CHECK(sent[0].tagged && sent[0].stag == 77 && sent[0].to == 0x9000 && sent[1].to == 0x9000 + sent_len[0]);
	CHECK(!sent[0].last && sent[1].last && !memcmp(rest[1], fx.region + 4 + sent_len[0], sent_len[1]));
	CHECK(sent[4].last && !sent_len[4]);
}

static void an_atomic_of_the_peer_is_answered(void)
{
	struct vb_atomic_request ar = {
	        .op = VB_RDMAP_FETCH_ADD, .id = 0xabc, .stag = FX_STAG, .to = FX_VA, .swap_add = 1};
	struct vb_atomic_response response;
	uint8_t body[VB_ATOMIC_REQUEST_LEN];
	struct vb_writer w = vb_writer(body, sizeof(body));
	uint64_t was, is;

	begin();
	memcpy(&was, fx.region, 8);
	vb_atomic_request_encode(&w, &ar);
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_ATOMIC_REQUEST);

	fx_in(&fx, &h, body, sizeof(body));
	look();
	struct vb_reader r = vb_reader(rest[0], sent_len[0]);

	vb_atomic_response_decode(&r, &response);
	memcpy(&is, fx.region, 8);
	CHECK(sents == 1 && sent[0].qn == VB_QN_ATOMIC_RESPONSE && sent[0].msn == 1 && response.id == 0xabc);
	CHECK(response.original == was && is == was + 1);
}

/* --- start and end --- */

static void the_message_that_says_ready_completes_nothing(void)
{
	static const uint8_t opcodes[] = {0, VB_RDMAP_SEND, VB_RDMAP_WRITE, VB_RDMAP_READ_REQUEST};

	for (enum vb_iw_rtr kind = VB_IW_RTR_SEND; kind <= VB_IW_RTR_READ; kind++) {
		struct vb_ddp h;

		begin();
		vb_iw_send_rtr(&fx.qp, kind);
		fx_post(&fx, VB_VERB_SEND, 8);
		fx_post(&fx, VB_VERB_READ, 8);
		look();
		CHECK(sents == 3 && sent[0].opcode == opcodes[kind] && fx.dones == 1);
		CHECK(sent[1].msn == (kind == VB_IW_RTR_SEND ? 2 : 1) &&
		      sent[2].msn == (kind == VB_IW_RTR_READ ? 2 : 1));
		if (kind == VB_IW_RTR_READ) {
			h = fx_header(&fx, VB_RDMAP_READ_RESPONSE);
			fx_in(&fx, &h, bytes, 0);
			CHECK(fx.dones == 1 && !vb_iw_over(&fx.qp) && fx.qp.rq.rd == 1);
		}
	}
}

static void the_message_that_says_ready_takes_no_receive(void)
{
	struct vb_ddp h;

	begin();
	vb_iw_expect_rtr(&fx.qp, VB_IW_RTR_SEND);
	vb_iw_hold_until_input(&fx.qp);
	fx_post(&fx, VB_VERB_SEND, 8);
	look();
	CHECK(!sents);
	h = fx_header(&fx, VB_RDMAP_SEND);
	fx_in(&fx, &h, bytes, 0);
	look();
	CHECK(sents == 1 && !fx.taken_receives && !vb_iw_over(&fx.qp));
	fx.receives = 1; /* the second is a message like any other */
	h = fx_header(&fx, VB_RDMAP_SEND);
	fx_in(&fx, &h, bytes, 0);
	CHECK(fx.receipts == 1);
}

static void a_ready_message_that_reads_is_answered_whatever_the_depth(void)
{
	struct vb_iw_config cfg;

	begin();
	cfg = fx.cfg;
	cfg.ird = 0;
	vb_iw_reconfigure(&fx.qp, &cfg);
	vb_iw_expect_rtr(&fx.qp, VB_IW_RTR_READ);
	ask_read(0);
	look();
	CHECK(sents == 1 && sent[0].opcode == VB_RDMAP_READ_RESPONSE && !sent_len[0]);
	ask_read(0);
	CHECK(vb_iw_over(&fx.qp));
}

/* The announcement in the other side's first FPDU: a write of 0 bytes with a fixed STag and offset. */
static void says_that_it_is_large(void)
{
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_WRITE);

	h.stag = VB_IW_LARGE_STAG;
	h.to = VB_IW_LARGE_TO;
	fx_in(&fx, &h, bytes, 0);
}

static void begin_large(bool large, bool initiator)
{
	struct vb_iw_config cfg;

	fx_config(&cfg);
	cfg.large = large;
	cfg.initiator = initiator;
	fx_init(&fx, &cfg);
	if (initiator)
		vb_iw_send_rtr(&fx.qp, VB_IW_RTR_WRITE);
	else
		vb_iw_hold_until_input(&fx.qp);
}

/* Number of FPDUs for a write of 8000 bytes, without earlier ones. */
static uint32_t fpdus_of_a_write(void)
{
	uint32_t before = sents;

	fx_post(&fx, VB_VERB_WRITE, 8000);
	look();
	CHECK(sents > before && !vb_iw_over(&fx.qp));
	return sents - before;
}

static bool said_large(void)
{
	return sents && sent[0].opcode == VB_RDMAP_WRITE && !sent_len[0] && sent[0].stag == VB_IW_LARGE_STAG &&
	       sent[0].to == VB_IW_LARGE_TO;
}

static void who_takes_long_fpdus_says_so_and_gets_them(void)
{
	for (int initiator = 0; initiator < 2; initiator++) {
		begin_large(true, initiator);
		look();
		CHECK(sents == (uint32_t)initiator && (!initiator || (said_large() && fpdus_of_a_write() == 6)));
		says_that_it_is_large();
		look();
		CHECK(said_large() && !fx.receipts && !fx.stores && fpdus_of_a_write() == 1);
		fx_free(&fx);
	}
}

static void nobody_else_hears_or_says_that(void)
{
	begin_large(false, false);
	says_that_it_is_large(); /* to a peer that ignores it */
	sents = 0;
	CHECK(fpdus_of_a_write() == 6 && !said_large());
	fx_free(&fx);

	begin_large(true, false);
	struct vb_ddp h = fx_header(&fx, VB_RDMAP_WRITE);

	fx_in(&fx, &h, bytes, 0); /* the first FPDU has no announcement, and the second is too late */
	says_that_it_is_large();
	sents = 0;
	CHECK(fpdus_of_a_write() == 6 && !said_large());
	fx_free(&fx);

	begin_large(true, false); /* it did not wait, so there is none in the middle of its stream */
	vb_iw_hold_no_longer(&fx.qp);
	fx_post(&fx, VB_VERB_WRITE, 8);
	look();
	says_that_it_is_large();
	CHECK(fpdus_of_a_write() == 1 && sents == 2 && !said_large());
}

static void an_abort_flushes_and_may_say_so(void)
{
	struct vb_iw_terminate t;

	begin();
	fx_post(&fx, VB_VERB_READ, 8);
	fx_output(&fx);
	fx.sent_len = 0;
	vb_iw_abort(&fx.qp, true);
	CHECK(fx.dones == 1 && fx.done[0].status == VB_WORK_WR_FLUSH_ERR && !fx.events);
	look();
	CHECK(sents == 1 && sent[0].opcode == VB_RDMAP_TERMINATE && vb_iw_sent_terminate(&fx.qp, &t));
	begin();
	vb_iw_abort(&fx.qp, false);
	look();
	CHECK(!sents && vb_iw_over(&fx.qp) && !vb_iw_sent_terminate(&fx.qp, &t));
}

static void the_end_of_the_connection_flushes(void)
{
	struct vb_ddp h;

	begin();
	fx.receives = 1;
	fx_post(&fx, VB_VERB_READ, 8);
	fx_output(&fx);
	h = fx_header(&fx, VB_RDMAP_SEND);
	h.last = false;
	fx_in(&fx, &h, bytes, 8);
	vb_iw_closed(&fx.qp, VB_IW_FIN);
	CHECK(fx.dones == 1 && fx.done[0].status == VB_WORK_WR_FLUSH_ERR && vb_iw_over(&fx.qp) && !fx.events);
	CHECK(fx.receipts == 1 && fx.receipt[0].status == VB_WORK_WR_FLUSH_ERR);
}

int main(void)
{
	RUN(a_send_is_cut_to_the_segment_size_and_completes_when_handed_over);
	RUN(each_send_has_its_opcode);
	RUN(a_write_with_immediate_is_a_write_and_immediate_data);
	RUN(a_send_with_immediate_is_no_operation_of_rdmap);
	RUN(reads_keep_to_the_limit_and_complete_with_their_answer);
	RUN(an_atomic_asks_and_stores_what_was_there);
	RUN(a_fence_waits_for_reads_and_a_local_one_for_all);
	RUN(a_local_request_that_must_wait_is_tried_again);
	RUN(a_pause_ends_with_the_message);
	RUN(memory_that_is_gone_fails_its_request_behind_those_before_it);
	RUN(memory_that_goes_away_within_an_fpdu_ends_the_stream);
	RUN(a_local_request_that_was_refused_ends_the_stream_and_is_not_executed);
	RUN(a_fault_of_the_kernel_is_laid_to_its_request);
	RUN(a_large_write_goes_in_place_but_for_its_end);
	RUN(of_long_messages_little_is_copied);
	RUN(a_write_with_immediate_comes_in);
	RUN(a_send_that_invalidates_comes_in);
	RUN(reads_are_answered_in_turn_with_our_own_messages);
	RUN(an_atomic_of_the_peer_is_answered);
	RUN(the_message_that_says_ready_completes_nothing);
	RUN(the_message_that_says_ready_takes_no_receive);
	RUN(a_message_waits_for_its_receive);
	RUN(a_starved_stream_takes_what_the_stage_holds);
	RUN(a_ready_message_that_reads_is_answered_whatever_the_depth);
	RUN(who_takes_long_fpdus_says_so_and_gets_them);
	RUN(nobody_else_hears_or_says_that);
	RUN(an_abort_flushes_and_may_say_so);
	RUN(the_end_of_the_connection_flushes);
	fx_free(&fx);
	return 0;
}
