// requester_test.c - the packets of a request, and the effect of each answer
// follows: IBA volume 1, 9.7.3, 9.7.5, 9.7.6, 9.7.7, 9.9.2
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"

static struct fx fx;
static struct vb_packet p;
static uint8_t payload[4096];

/* Checks that the next packet is this one. */
static void expect_once(uint8_t opcode, uint32_t psn, uint32_t len, uint64_t now)
{
	CHECK(fx_out(&fx, &p, payload, now));
	CHECK(p.bth.opcode == opcode && p.bth.psn.v == psn && p.payload_len == len && p.bth.dest_qpn == 0x22);
}

static bool goes_twice(void)
{
	return fx.qp.rq.echo && fx.qp.rq.mend_next < fx.qp.rq.mend_end;
}

/* Checks that it is sent a second time if the requester vouches for kept packets; p is the first. */
static void expect(uint8_t opcode, uint32_t psn, uint32_t len, uint64_t now)
{
	expect_once(opcode, psn, len, now);
	if (!goes_twice())
		return;
	struct vb_packet first = p;

	expect_once(opcode, psn, len, now);
	CHECK(!p.bth.ack_req);
	p = first;
}

static void silence(uint64_t now)
{
	CHECK(!fx_out(&fx, &p, payload, now));
}

/* Checks that n requests have completed, the last of them like this. */
static void completed(uint32_t n, enum vb_work_status status)
{
	CHECK(fx.dones == n && (!n || fx.done[n - 1].status == status));
}

static void respond(uint8_t opcode, uint32_t psn, uint32_t len, uint64_t now)
{
	struct vb_packet r = fx_packet(&fx, opcode, psn, len);

	fx_in(&fx, &r, now);
}

static void a_message_is_cut_at_the_path_mtu(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 2 * FX_MTU + 3);
	expect(VB_RC_SEND_FIRST, 100, 256, 1);
	CHECK(!p.bth.ack_req);
	expect(VB_RC_SEND_MIDDLE, 101, 256, 1);
	expect(VB_RC_SEND_LAST, 102, 3, 1);
	CHECK(p.bth.pad == 1 && p.bth.ack_req);
	silence(1);
	completed(0, 0);
	fx_ack(&fx, 102, 31, 2);
	completed(1, VB_WORK_SUCCESS);
	CHECK(!vb_roce_deadline(&fx.qp));
}

/* ibv_modify_qp: RTR does not set the requester's attributes, RTS does, SQD changes them. */
static void attributes_are_set_after_the_beginning(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.max_rd_atomic = cfg.timeout = cfg.retry_cnt = 0;
	fx_init_rtr(&fx, &cfg);
	fx_post(&fx, VB_VERB_READ, 8);
	silence(1);
	cfg.sq_psn = vb_psn(500);
	cfg.max_rd_atomic = 1;
	cfg.timeout = 8;
	cfg.max_dest_rd_atomic = 255;
	vb_roce_reconfigure(&fx.qp, &cfg);
	CHECK(fx.qp.cfg.max_dest_rd_atomic == VB_ROCE_MAX_RESOURCES);
	vb_roce_start(&fx.qp);
	expect(VB_RC_READ_REQUEST, 500, 0, 1);
	CHECK(vb_roce_deadline(&fx.qp) == 1 + (4096 << 8));
	respond(VB_RC_READ_RESPONSE_ONLY, 500, 8, 2);
	vb_roce_pause(&fx.qp, true);
	CHECK(vb_roce_idle(&fx.qp));
	cfg.sq_psn = vb_psn(900);
	cfg.timeout = 9;
	vb_roce_reconfigure(&fx.qp, &cfg);
	vb_roce_pause(&fx.qp, false);
	fx_post(&fx, VB_VERB_WRITE, 8);
	expect(VB_RC_WRITE_ONLY, 501, 8, 3);
	CHECK(vb_roce_deadline(&fx.qp) == 3 + (4096 << 9));
}

static void a_read_that_was_taken_goes_when_reads_are_forbidden_then(void)
{
	fx_init(&fx);
	vb_roce_pause(&fx.qp, true);
	fx_post(&fx, VB_VERB_READ, 8);
	silence(1);
	struct vb_roce_config cfg = fx.qp.cfg;

	cfg.max_rd_atomic = 0;
	vb_roce_reconfigure(&fx.qp, &cfg);
	vb_roce_pause(&fx.qp, false);
	expect(VB_RC_READ_REQUEST, 100, 0, 1);
	fx_post(&fx, VB_VERB_READ, 8);
	silence(1);
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 8, 2);
	silence(2);
	completed(2, VB_WORK_LOC_QP_OP_ERR);
}

static void a_message_that_fills_its_packets_has_no_empty_one_behind(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_WRITE, 2 * FX_MTU);
	expect(VB_RC_WRITE_FIRST, 100, 256, 1);
	CHECK(p.reth.va == FX_VA && p.reth.rkey == FX_KEY && p.reth.length == 512);
	expect(VB_RC_WRITE_LAST, 101, 256, 1);
	silence(1);
}

static void no_bytes_are_one_packet(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 0);
	fx_post(&fx, VB_VERB_WRITE, 0);
	fx_post(&fx, VB_VERB_READ, 0);
	expect(VB_RC_SEND_ONLY, 100, 0, 1);
	expect(VB_RC_WRITE_ONLY, 101, 0, 1);
	expect(VB_RC_READ_REQUEST, 102, 0, 1);
	respond(VB_RC_READ_RESPONSE_ONLY, 102, 0, 2);
	completed(3, VB_WORK_SUCCESS);
}

static void immediate_key_and_solicited_go_with_the_last_packet(void)
{
	fx_init(&fx);
	struct vb_work *work = fx_post(&fx, VB_VERB_SEND, FX_MTU + 1);

	work->flags = VB_WORK_IMM | VB_WORK_SOLICITED;
	work->imm = 0xabcd;
	expect(VB_RC_SEND_FIRST, 100, 256, 1);
	CHECK(!p.bth.solicited);
	expect(VB_RC_SEND_LAST_IMM, 101, 1, 1);
	CHECK(p.bth.solicited && p.immdt.data == 0xabcd);
	work = fx_post(&fx, VB_VERB_SEND, 1);
	work->flags = VB_WORK_INV;
	work->imm = 0x77;
	expect(VB_RC_SEND_ONLY_INV, 102, 1, 1);
	CHECK(p.ieth.rkey == 0x77);
	fx_post(&fx, VB_VERB_WRITE, 1)->flags = VB_WORK_IMM;
	expect(VB_RC_WRITE_ONLY_IMM, 103, 1, 1);
}

static void what_no_opcode_says_is_not_sent(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_WRITE, 1)->flags = VB_WORK_INV;
	silence(1);
	completed(1, VB_WORK_LOC_QP_OP_ERR);
}

static void one_acknowledgement_completes_all_before_it_in_order(void)
{
	fx_init(&fx);
	for (int i = 0; i < 5; i++)
		fx_post(&fx, VB_VERB_SEND, 1);
	CHECK(fx_drain(&fx, 1) == 5);
	fx_ack(&fx, 102, 31, 2);
	completed(3, VB_WORK_SUCCESS);
	fx_ack(&fx, 104, 31, 3);
	completed(5, VB_WORK_SUCCESS);
}

static void acknowledgements_again_or_of_the_past_change_nothing(void)
{
	fx_init(&fx);
	for (int i = 0; i < 3; i++)
		fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	fx_ack(&fx, 101, 31, 2);
	uint64_t deadline = vb_roce_deadline(&fx.qp);

	fx_ack(&fx, 101, 31, 3);
	fx_ack(&fx, 100, 31, 3);
	fx_nak(&fx, 100, VB_AETH_NAK, VB_NAK_REMOTE_ACCESS, 3);
	completed(2, VB_WORK_SUCCESS);
	CHECK(fx.qp.stats.duplicate_response == 3 && vb_roce_deadline(&fx.qp) == deadline && !fx.events);
}

static void ghosts_of_what_was_never_sent_are_dropped(void)
{
	static const uint32_t psns[] = {101, 102, 0x500, 0x7fffff, 0x800063};

	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	for (int i = 0; i < 5; i++) {
		fx_ack(&fx, psns[i], 31, 2);
		fx_nak(&fx, psns[i], VB_AETH_NAK, VB_NAK_INVALID_REQUEST, 2);
		fx_nak(&fx, psns[i], VB_AETH_RNR_NAK, 1, 2);
		respond(VB_RC_READ_RESPONSE_ONLY, psns[i], 0, 2);
		respond(VB_RC_ATOMIC_ACK, psns[i], 0, 2);
	}
	completed(0, 0);
	CHECK(fx.qp.stats.drop_ghost == 25 && !fx.events);
	fx_ack(&fx, 100, 31, 3);
	completed(1, VB_WORK_SUCCESS);
}

static void each_nak_has_its_completion(void)
{
	static const struct {
		uint8_t nak;
		enum vb_work_status status;
	} rows[] = {{VB_NAK_INVALID_REQUEST, VB_WORK_REM_INV_REQ_ERR},
	            {VB_NAK_REMOTE_ACCESS, VB_WORK_REM_ACCESS_ERR},
	            {VB_NAK_REMOTE_OPERATIONAL, VB_WORK_REM_OP_ERR},
	            {VB_NAK_INVALID_RD_REQUEST, VB_WORK_REM_INV_REQ_ERR}};

	for (int i = 0; i < 4; i++) {
		fx_init(&fx);
		for (int k = 0; k < 4; k++)
			fx_post(&fx, VB_VERB_WRITE, 1);
		fx_drain(&fx, 1);
		fx_nak(&fx, 102, VB_AETH_NAK, rows[i].nak, 2);
		completed(4, VB_WORK_WR_FLUSH_ERR);
		CHECK(fx.done[1].status == VB_WORK_SUCCESS && fx.done[2].status == rows[i].status);
		CHECK(fx.events == 1 && fx.event[0] == VB_WORK_EVENT_SQ);
		fx_ack(&fx, 103, 31, 3);
		silence(3);
		CHECK(!vb_roce_deadline(&fx.qp));
	}
}

static void reserved_syndromes_are_dropped(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_WRITE, 1);
	fx_drain(&fx, 1);
	for (uint8_t value = 5; value < 32; value++)
		fx_nak(&fx, 100, VB_AETH_NAK, value, 2);
	for (uint8_t kind = 2; kind < 8; kind += kind == 2 ? 2 : 1)
		fx_nak(&fx, 100, kind, 0, 2);
	completed(0, 0);
	CHECK(fx.qp.stats.drop_response == 27 + 5 && !fx.events);
}

static void a_gap_is_sent_again_from_its_start(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 4 * FX_MTU);
	CHECK(fx_drain(&fx, 1) == 4);
	fx_nak(&fx, 102, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
	expect(VB_RC_SEND_MIDDLE, 102, 256, 2);
	CHECK(p.bth.ack_req);
	expect(VB_RC_SEND_LAST, 103, 256, 2);
	silence(2);
	CHECK(fx.qp.stats.resent_pkts == 3);
	fx_ack(&fx, 103, 31, 3);
	completed(1, VB_WORK_SUCCESS);
}

static void what_is_answered_meanwhile_is_not_sent_again(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 4 * FX_MTU);
	fx_drain(&fx, 1);
	fx_nak(&fx, 101, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
	expect(VB_RC_SEND_MIDDLE, 101, 256, 2);
	fx_ack(&fx, 102, 31, 3);
	expect(VB_RC_SEND_LAST, 103, 256, 3);
	silence(3);
}

static void retries_are_spent_when_nothing_comes(void)
{
	uint64_t t = 4096 << 8;

	fx_init(&fx); /* retry_cnt 1 */
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	CHECK(vb_roce_deadline(&fx.qp) == 1 + t);
	vb_roce_timeout(&fx.qp, t);
	silence(t);
	vb_roce_timeout(&fx.qp, 1 + t);
	CHECK(fx_drain(&fx, 1 + t) == 3 && fx.qp.stats.timeouts == 1);
	CHECK(vb_roce_deadline(&fx.qp) == 1 + 3 * t);
	vb_roce_timeout(&fx.qp, 1 + 3 * t);
	completed(2, VB_WORK_WR_FLUSH_ERR);
	CHECK(fx.done[0].status == VB_WORK_RETRY_EXC_ERR && fx.events == 1);
}

static void a_repetition_that_may_not_leave_yet_spends_no_retry(void)
{
	uint64_t t = 4096 << 8, now = 1 + t;

	fx_init(&fx); /* retry_cnt 1 */
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	vb_roce_repeat_waits(&fx.qp, 1 + 100 * t); /* nothing is to be repeated yet */
	CHECK(vb_roce_deadline(&fx.qp) == now);
	vb_roce_timeout(&fx.qp, now);
	CHECK(fx.qp.stats.timeouts == 1);
	vb_roce_repeat_waits(&fx.qp, now + 100 * t);
	now += 100 * t;
	vb_roce_timeout(&fx.qp, now);
	CHECK(fx.qp.stats.timeouts == 1 && !fx.events && fx_drain(&fx, now) == 1);
	vb_roce_repeat_waits(&fx.qp, now + 100 * t); /* it may be answered now */
	CHECK(vb_roce_deadline(&fx.qp) == now + 2 * t);
	vb_roce_timeout(&fx.qp, now + 2 * t);
	completed(1, VB_WORK_RETRY_EXC_ERR);
}

/* IBA 9.7.6.1: a timer may take up to four times its value. */
static void retries_come_after_once_twice_then_four_times_the_timer(void)
{
	static const uint64_t after[] = {1, 2, 4, 4, 4, 4, 4};
	uint64_t t = 4096 << 8, now = 1;
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.retry_cnt = 7;
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, now);
	for (uint32_t i = 0; i < 7; i++) {
		CHECK(vb_roce_deadline(&fx.qp) == now + after[i] * t);
		now += after[i] * t;
		vb_roce_timeout(&fx.qp, now);
		CHECK(fx_drain(&fx, now) == 1 && fx.qp.stats.timeouts == i + 1);
	}
	CHECK(!fx.events);
	fx_ack(&fx, 100, 31, now + 1);
	completed(1, VB_WORK_SUCCESS);
}

static void an_answer_gives_the_retries_back(void)
{
	uint64_t t = 4096 << 8;

	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	vb_roce_timeout(&fx.qp, 1 + t);
	fx_drain(&fx, 1 + t);
	fx_ack(&fx, 100, 31, 2 + t);
	vb_roce_timeout(&fx.qp, 2 + 2 * t);
	CHECK(!fx.events && fx_drain(&fx, 2 + 2 * t) == 1);
	vb_roce_timeout(&fx.qp, 2 + 4 * t);
	completed(2, VB_WORK_RETRY_EXC_ERR);
}

static void a_sequence_nak_does_not_put_off_the_end(void)
{
	uint64_t t = 4096 << 8;

	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	for (uint64_t now = 2; now < 3 * t; now += t / 16) {
		fx_nak(&fx, 100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, now);
		vb_roce_timeout(&fx.qp, now);
		fx_drain(&fx, now);
	}
	vb_roce_timeout(&fx.qp, vb_roce_deadline(&fx.qp));
	completed(2, VB_WORK_WR_FLUSH_ERR);
	CHECK(fx.done[0].status == VB_WORK_RETRY_EXC_ERR);
}

static void who_looks_late_at_a_timer_may_find_the_answer_first(void)
{
	uint64_t t = 4096 << 8, late = 10 * t;

	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	vb_roce_timeout(&fx.qp, late);
	silence(late);
	CHECK(vb_roce_deadline(&fx.qp) > late && !fx.qp.stats.timeouts && !fx.qp.stats.probes);
	vb_roce_timeout(&fx.qp, vb_roce_deadline(&fx.qp) + late); /* late again: it got its moment */
	CHECK(fx.qp.stats.timeouts == 1 && fx_drain(&fx, 3 * late) == 1);
	fx_ack(&fx, 100, 31, 3 * late);
	completed(1, VB_WORK_SUCCESS);
}

static void a_retry_counts_when_something_was_sent_in_its_time(void)
{
	uint64_t t = 4096 << 8, late = 10 * t;
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.probe_min = t / 8;
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	vb_roce_timeout(&fx.qp, late); /* both timers have run out: it waits a moment first */
	CHECK(!fx.qp.stats.timeouts && !fx.qp.stats.probes && fx_drain(&fx, late) == 0);
	late = vb_roce_deadline(&fx.qp);
	vb_roce_timeout(&fx.qp, late);
	CHECK(!fx.qp.stats.timeouts && fx.qp.stats.probes == 1 && fx_drain(&fx, late) == 1);
	while (!fx.events && late < 100 * t) {
		late = vb_roce_deadline(&fx.qp);
		vb_roce_timeout(&fx.qp, late);
		fx_drain(&fx, late);
	}
	CHECK(fx.qp.stats.timeouts == 1 && late < 14 * t);
	completed(1, VB_WORK_RETRY_EXC_ERR);
}

static void a_retry_stands_for_several_tries_however_long_nothing_came(void)
{
	const uint64_t rtt = 3000000; /* the timer: 4.096 us * 2^12, 17 ms */
	struct vb_roce_config cfg;
	uint64_t now = 1;

	fx_config(&cfg);
	cfg.probe_min = 0;
	cfg.timeout = 12;
	cfg.retry_cnt = 7;
	fx_init_with(&fx, &cfg);
	for (uint32_t i = 0; i < 8; i++, now += rtt) { /* it measures the round trip time */
		fx_post(&fx, VB_VERB_SEND, 1);
		fx_drain(&fx, now);
		fx_ack(&fx, 100 + i, 31, now + rtt);
	}
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, now);
	while (!fx.events) {
		now = vb_roce_deadline(&fx.qp);
		vb_roce_timeout(&fx.qp, now);
		fx_drain(&fx, now);
	}
	CHECK(fx.qp.stats.timeouts == 7 && fx.qp.stats.probes >= 3 * 8 - 3);
	completed(9, VB_WORK_RETRY_EXC_ERR);
}

/* 4.096 us * 2^8 is 1 ms, but the network takes 3 ms: it must still retry as often as the program says. */
static void a_round_trip_may_be_longer_than_the_timer(void)
{
	const uint64_t rtt = 3000000;
	struct vb_roce_config cfg;
	uint64_t now = 1;

	fx_config(&cfg);
	cfg.retry_cnt = 7;
	fx_init_with(&fx, &cfg);
	for (uint32_t i = 0; i < 20; i++) {
		uint64_t sent = now;

		fx_post(&fx, VB_VERB_SEND, 1);
		fx_drain(&fx, now);
		for (uint64_t at; (at = vb_roce_deadline(&fx.qp)) && at < sent + rtt;) {
			vb_roce_timeout(&fx.qp, at);
			fx_drain(&fx, at);
		}
		now = sent + rtt;
		fx_ack(&fx, 100 + i, 31, now);
	}
	CHECK(!fx.events && fx.qp.stats.resent_pkts < 10);
	completed(20, VB_WORK_SUCCESS);
}

static void without_a_timer_it_asks_for_ever(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.timeout = 0;
	cfg.probe_min = 1000;
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	for (int i = 0; i < 100; i++) {
		uint64_t at = vb_roce_deadline(&fx.qp);

		vb_roce_timeout(&fx.qp, at);
		CHECK(vb_roce_deadline(&fx.qp) > at && fx_drain(&fx, at) == 1);
	}
	completed(0, 0);
	CHECK(fx.qp.stats.probes == 100 && !fx.qp.stats.timeouts);
}

static void an_rnr_nak_waits_as_long_as_its_code_says(void)
{
	static const uint32_t ten_us[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
	                                    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
	                                    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	for (uint8_t code = 0; code < 32; code++) {
		uint64_t wait = ten_us[code] * 10000ull;

		fx_init(&fx);
		fx_post(&fx, VB_VERB_SEND, 1);
		fx_drain(&fx, 1);
		fx_nak(&fx, 100, VB_AETH_RNR_NAK, code, 2);
		silence(2);
		CHECK(vb_roce_deadline(&fx.qp) == 2 + wait);
		vb_roce_timeout(&fx.qp, 1 + wait);
		silence(1 + wait);
		vb_roce_timeout(&fx.qp, 2 + wait);
		expect(VB_RC_SEND_ONLY, 100, 1, 2 + wait);
	}
}

/* Retransmits everything, or from the PSN that the peer names: packets of the message before that are acknowledged. */
static void an_rnr_nak_within_a_long_message_goes_back_to_where_it_says(void)
{
	for (uint32_t at = 100; at < 104; at++) {
		fx_init(&fx);
		fx_post(&fx, VB_VERB_SEND, 4 * FX_MTU);
		fx_post(&fx, VB_VERB_WRITE, 1);
		CHECK(fx_drain(&fx, 1) == 5);
		fx_nak(&fx, at, VB_AETH_RNR_NAK, 1, 2);
		fx_nak(&fx, at, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 3); /* an old one: it still waits */
		silence(9999);
		CHECK(fx.qp.rq.una == at - 100);
		vb_roce_timeout(&fx.qp, 10002);
		for (uint32_t psn = at; psn < 104; psn++)
			expect(psn == 100   ? VB_RC_SEND_FIRST
			       : psn == 103 ? VB_RC_SEND_LAST
			                    : VB_RC_SEND_MIDDLE,
			       psn, 256, 10002);
		expect(VB_RC_WRITE_ONLY, 104, 1, 10002);
		fx_ack(&fx, 104, 31, 10003);
		completed(2, VB_WORK_SUCCESS);
	}
}

static void a_read_may_have_to_wait_too(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 8);
	fx_post(&fx, VB_VERB_FETCH_ADD, 8);
	CHECK(fx_drain(&fx, 1) == 2);
	fx_nak(&fx, 100, VB_AETH_RNR_NAK, 1, 2);
	silence(3);
	vb_roce_timeout(&fx.qp, 10002);
	expect(VB_RC_READ_REQUEST, 100, 0, 10002);
	expect(VB_RC_FETCH_ADD, 101, 0, 10002);
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 8, 10003);
	fx_nak(&fx, 101, VB_AETH_RNR_NAK, 1, 10004);
	vb_roce_timeout(&fx.qp, 20004);
	expect(VB_RC_FETCH_ADD, 101, 0, 20004);
	respond(VB_RC_ATOMIC_ACK, 101, 0, 20005);
	completed(2, VB_WORK_SUCCESS);
}

static void rnr_retries_are_counted_apart_and_seven_is_for_ever(void)
{
	for (uint8_t retries = 1; retries <= 7; retries += 6) {
		struct vb_roce_config cfg;
		uint64_t now = 1;

		fx_config(&cfg);
		cfg.rnr_retry = retries;
		fx_init_with(&fx, &cfg);
		fx_post(&fx, VB_VERB_SEND, 1);
		for (int i = 0; i < 20 && !fx.events; i++) {
			fx_drain(&fx, now);
			fx_nak(&fx, 100, VB_AETH_RNR_NAK, 1, now + 1);
			fx_nak(&fx, 100, VB_AETH_RNR_NAK, 1, now + 2); /* duplicated by the network, counts once */
			now += 10001;
			vb_roce_timeout(&fx.qp, now);
		}
		CHECK(fx.events == (retries == 1));
		CHECK(fx.qp.stats.rnr_waits == (retries == 1 ? 1 : 20));
		if (retries == 1)
			completed(1, VB_WORK_RNR_RETRY_EXC_ERR);
	}
}

static void until_a_peer_is_known_it_is_vouched_for_what_it_may_have_kept(void)
{
	static const uint8_t twice[] = {105, 109, 112};
	unsigned n = 0;

	fx_init(&fx);
	fx_post(&fx, VB_VERB_WRITE, 32 * FX_MTU);
	CHECK(fx_drain(&fx, 1) == 32);
	fx_nak(&fx, 105, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
	for (uint32_t psn = 105; psn < 113; psn++) {
		expect_once(VB_RC_WRITE_MIDDLE, psn, FX_MTU, 3);
		CHECK(goes_twice() == (psn == twice[n]));
		if (psn != twice[n])
			continue;
		expect_once(VB_RC_WRITE_MIDDLE, psn, FX_MTU, 3);
		n++;
	}
	silence(3);
	fx_ack(&fx, 131, 31, 4);
	fx_post(&fx, VB_VERB_WRITE, 32 * FX_MTU);
	fx_drain(&fx, 5);
	fx_nak(&fx, 132, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 6);
	expect_once(VB_RC_WRITE_FIRST, 132, FX_MTU, 6); /* it has kept the others, so no more is needed */
	silence(6);
}

static void going_back_vouches_too_if_there_is_something_behind(void)
{
	for (uint32_t packets = 1; packets < 3; packets++) {
		fx_init(&fx);
		fx_post(&fx, VB_VERB_WRITE, packets * FX_MTU);
		CHECK(fx_drain(&fx, 1) == packets);
		fx_nak(&fx, 100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
		CHECK(fx_drain(&fx, 2) == packets + (packets > 1));
		fx_ack(&fx, 99 + packets, 31, 3);
		completed(1, VB_WORK_SUCCESS);
	}
}

static void going_back_to_a_read_vouches_by_its_last_psn(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 3 * FX_MTU);
	fx_post(&fx, VB_VERB_WRITE, 1);
	CHECK(fx_drain(&fx, 1) == 2);
	fx_nak(&fx, 100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
	expect_once(VB_RC_READ_REQUEST, 100, 0, 2);
	CHECK(p.reth.length == 3 * FX_MTU && goes_twice());
	expect_once(VB_RC_READ_REQUEST, 102, 0, 2);
	CHECK(p.reth.length == FX_MTU && p.reth.va == fx.posted[0].remote_addr + 2 * FX_MTU && !p.bth.ack_req);
	expect_once(VB_RC_WRITE_ONLY, 103, 1, 2);
	silence(2);
}

/* PSNs 100 to 131 are in flight, and 105 is missing. */
static void lose_one_of_many(void)
{
	fx_init(&fx);
	for (int i = 0; i < 4; i++)
		fx_post(&fx, VB_VERB_WRITE, 16 * FX_MTU);
	CHECK(fx_drain(&fx, 1) == 32);
	fx_nak(&fx, 105, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
	for (uint32_t psn = 105; psn < 113; psn++)
		expect(VB_RC_WRITE_MIDDLE, psn, FX_MTU, 3);
	CHECK(p.bth.ack_req);
	silence(3); /* the rest waits for the peer's answer */
	fx_nak(&fx, 105, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 3);
}

static void a_peer_that_keeps_what_is_ahead_gets_only_what_is_missing(void)
{
	lose_one_of_many();
	fx_ack(&fx, 119, 31, 4);
	CHECK(fx.qp.rq.keeps == VB_ROCE_KEEPS);
	expect(VB_RC_WRITE_MIDDLE, 120, FX_MTU, 5); /* it had stopped after it */
	expect(VB_RC_WRITE_MIDDLE, 121, FX_MTU, 5);
	CHECK(p.bth.ack_req);
	expect(VB_RC_WRITE_FIRST, 132, FX_MTU, 5);
	fx_ack(&fx, 131, 31, 6);
	completed(2, VB_WORK_SUCCESS);
	CHECK(!fx.qp.rq.mending);
	fx_drain(&fx, 6);
	fx_nak(&fx, 140, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 7);
	expect(VB_RC_WRITE_MIDDLE, 140, FX_MTU, 8); /* no test is needed now */
	CHECK(fx.qp.rq.mend_next == fx.qp.rq.mend_end);
	fx_drain(&fx, 8);
	fx_ack(&fx, 163, 31, 9);
	completed(4, VB_WORK_SUCCESS);
}

static void a_peer_that_drops_what_is_ahead_is_found_out_once(void)
{
	lose_one_of_many();
	fx_ack(&fx, 112, 31, 4);
	CHECK(fx.qp.rq.keeps == VB_ROCE_KEEPS_NOT);
	for (uint32_t psn = 113; psn < 132; psn++)
		expect(psn == 116                 ? VB_RC_WRITE_FIRST
		       : psn == 115 || psn == 131 ? VB_RC_WRITE_LAST
		                                  : VB_RC_WRITE_MIDDLE,
		       psn, FX_MTU, 5);
	fx_nak(&fx, 120, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 6);
	for (uint32_t psn = 120; psn < 132; psn++)
		expect(psn == 131 ? VB_RC_WRITE_LAST : VB_RC_WRITE_MIDDLE, psn, FX_MTU, 7);
}

static void a_nak_for_the_next_packet_ends_the_trial_too(void)
{
	lose_one_of_many();
	fx_nak(&fx, 113, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 4);
	CHECK(fx.qp.rq.keeps == VB_ROCE_KEEPS_NOT);
	for (uint32_t psn = 113; psn < 132; psn++)
		expect(psn == 116                 ? VB_RC_WRITE_FIRST
		       : psn == 115 || psn == 131 ? VB_RC_WRITE_LAST
		                                  : VB_RC_WRITE_MIDDLE,
		       psn, FX_MTU, 5);
}

static void with_little_under_way_all_goes_again(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_WRITE, 15 * FX_MTU);
	CHECK(fx_drain(&fx, 1) == 15);
	fx_nak(&fx, 101, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
	CHECK(fx_drain(&fx, 2) == 15 && fx.qp.rq.keeps == VB_ROCE_KEEPS_UNKNOWN);
}

static void an_early_retry_asks_with_one_packet(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.timeout = 20;
	cfg.probe_min = 1000;
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_WRITE, 4 * FX_MTU);
	CHECK(fx_drain(&fx, 1) == 4);
	uint64_t at = vb_roce_deadline(&fx.qp);

	vb_roce_timeout(&fx.qp, at);
	expect(VB_RC_WRITE_FIRST, 100, FX_MTU, at);
	CHECK(p.bth.ack_req);
	silence(at);
	fx_ack(&fx, 100, 31, at + 1); /* there was no more than that */
	CHECK(fx_drain(&fx, at + 1) == 4);
	fx_ack(&fx, 103, 31, at + 2);
	completed(1, VB_WORK_SUCCESS);
}

static void a_read_brings_its_bytes(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 2 * FX_MTU + 8);
	expect(VB_RC_READ_REQUEST, 100, 0, 1);
	CHECK(p.reth.length == 520 && p.reth.va == FX_VA);
	respond(VB_RC_READ_RESPONSE_FIRST, 100, 256, 2);
	respond(VB_RC_READ_RESPONSE_MIDDLE, 101, 256, 2);
	completed(0, 0);
	respond(VB_RC_READ_RESPONSE_LAST, 102, 8, 2);
	completed(1, VB_WORK_SUCCESS);
	CHECK(fx.local[0][0] == 100 && fx.local[0][256] == 101 && fx.local[0][519] == 102);
}

static void a_read_is_resumed_in_the_middle(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 4 * FX_MTU);
	fx_post(&fx, VB_VERB_SEND, 1);
	CHECK(fx_drain(&fx, 1) == 2);
	respond(VB_RC_READ_RESPONSE_FIRST, 100, 256, 2);
	respond(VB_RC_READ_RESPONSE_MIDDLE, 101, 256, 2);
	respond(VB_RC_READ_RESPONSE_LAST, 103, 256, 2); /* 102 was lost */
	CHECK(fx.qp.stats.lost_responses == 1);
	expect(VB_RC_READ_REQUEST, 102, 0, 3);
	CHECK(p.reth.va == FX_VA + 512 && p.reth.length == 512);
	silence(3); /* the rest has arrived */
	respond(VB_RC_READ_RESPONSE_FIRST, 102, 256, 4);
	completed(1, VB_WORK_SUCCESS);
	respond(VB_RC_READ_RESPONSE_LAST, 103, 256, 4);
	CHECK(fx.qp.stats.duplicate_response == 1 && fx.local[0][512] == 102 && fx.local[0][768] == 103);
	fx_ack(&fx, 104, 31, 5);
	completed(2, VB_WORK_SUCCESS);
}

static void responses_ahead_of_two_missing_ones_are_stored(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 2 * FX_MTU);
	fx_post(&fx, VB_VERB_FETCH_ADD, 8);
	fx_post(&fx, VB_VERB_READ, 2 * FX_MTU);
	CHECK(fx_drain(&fx, 1) == 3);
	respond(VB_RC_READ_RESPONSE_LAST, 101, 256, 2);
	respond(VB_RC_READ_RESPONSE_LAST, 104, 256, 2);
	expect(VB_RC_READ_REQUEST, 100, 0, 3);
	silence(3);
	respond(VB_RC_READ_RESPONSE_FIRST, 100, 256, 4);
	completed(1, VB_WORK_SUCCESS);
	expect(VB_RC_FETCH_ADD, 102, 0, 5); /* it is older than what arrived */
	respond(VB_RC_ATOMIC_ACK, 102, 0, 6);
	completed(2, VB_WORK_SUCCESS);
	expect(VB_RC_READ_REQUEST, 103, 0, 7);
	CHECK(p.reth.va == FX_VA && p.reth.length == 2 * FX_MTU);
	respond(VB_RC_READ_RESPONSE_FIRST, 103, 256, 8);
	completed(3, VB_WORK_SUCCESS);
	CHECK(fx.local[2][0] == 103 && fx.local[2][256] == 104 && !fx.qp.rq.rd && vb_roce_idle(&fx.qp));
}

/* Each response twice, in an order that the network may cause. Each is stored once. */
static void responses_that_come_again_in_any_order_change_nothing(void)
{
	static const uint8_t opcodes[] = {VB_RC_READ_RESPONSE_FIRST, VB_RC_READ_RESPONSE_MIDDLE,
	                                  VB_RC_READ_RESPONSE_LAST};

	for (int order = 0; order < 27; order++) {
		int n[3] = {order % 3, order / 3 % 3, order / 9};

		fx_init(&fx);
		fx_post(&fx, VB_VERB_READ, 2 * FX_MTU + 7);
		fx_post(&fx, VB_VERB_FETCH_ADD, 8);
		CHECK(fx_drain(&fx, 1) == 2);
		for (int i = 0; i < 3; i++) /* some of them, possibly repeated */
			respond(opcodes[n[i]], 100 + (uint32_t)n[i], n[i] == 2 ? 7 : 256, 2);
		respond(VB_RC_ATOMIC_ACK, 103, 0, 2); /* ahead */
		for (int i = 2; i >= 0; i--)
			respond(opcodes[i], 100 + (uint32_t)i, i == 2 ? 7 : 256, 3);
		for (int i = 0; i < 3; i++) {
			respond(opcodes[i], 100 + (uint32_t)i, i == 2 ? 7 : 256, 4);
			respond(VB_RC_ATOMIC_ACK, 103, 0, 4);
		}
		completed(2, VB_WORK_SUCCESS);
		CHECK(fx.local[0][0] == 100 && fx.local[0][256] == 101 && fx.local[0][512 + 6] == 102);
		fx_drain(&fx, 5); /* a request that was repeated meanwhile */
		respond(VB_RC_ATOMIC_ACK, 103, 0, 6);
		completed(2, VB_WORK_SUCCESS);
		CHECK(!fx.events && vb_roce_idle(&fx.qp) && !fx.qp.rq.rd);
	}
}

static void a_long_read_is_asked_for_in_pieces(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.max_window = 8;
	cfg.max_rd_atomic = 1;
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_READ, 12 * FX_MTU);
	expect(VB_RC_READ_REQUEST, 100, 0, 1);
	CHECK(p.reth.length == 8 * FX_MTU);
	silence(1);
	respond(VB_RC_READ_RESPONSE_FIRST, 100, 256, 2);
	for (uint32_t psn = 101; psn < 107; psn++)
		respond(VB_RC_READ_RESPONSE_MIDDLE, psn, 256, 2);
	respond(VB_RC_READ_RESPONSE_LAST, 107, 256, 2);
	expect(VB_RC_READ_REQUEST, 108, 0, 3);
	CHECK(p.reth.va == FX_VA + 8 * FX_MTU && p.reth.length == 4 * FX_MTU);
}

static void an_acknowledgement_behind_a_read_means_its_response_was_lost(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_READ, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	fx_ack(&fx, 102, 31, 2);
	completed(1, VB_WORK_SUCCESS);
	expect(VB_RC_READ_REQUEST, 101, 0, 3);
	silence(3);
	respond(VB_RC_READ_RESPONSE_ONLY, 101, 1, 4);
	completed(3, VB_WORK_SUCCESS);
}

static void a_response_acknowledges_what_was_before_it(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_READ, 1);
	fx_drain(&fx, 1);
	respond(VB_RC_READ_RESPONSE_ONLY, 101, 1, 2);
	completed(2, VB_WORK_SUCCESS);
}

static void responses_that_do_not_fit_are_dropped(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 2 * FX_MTU);
	fx_post(&fx, VB_VERB_FETCH_ADD, 8);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	respond(VB_RC_READ_RESPONSE_FIRST, 100, 255, 2);
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 256, 2);
	respond(VB_RC_ATOMIC_ACK, 100, 0, 2);
	respond(VB_RC_READ_RESPONSE_ONLY, 102, 8, 2);
	respond(VB_RC_READ_RESPONSE_ONLY, 103, 1, 2);
	respond(VB_RC_ATOMIC_ACK, 103, 0, 2);
	completed(0, 0);
	CHECK(fx.qp.stats.drop_response == 6 && !fx.events);
}

static void an_atomic_brings_what_was_there(void)
{
	uint64_t was;

	fx_init(&fx);
	struct vb_work *work = fx_post(&fx, VB_VERB_CMP_SWAP, 8);

	work->compare = 5;
	work->swap_add = 6;
	expect(VB_RC_CMP_SWAP, 100, 0, 1);
	CHECK(p.atomic.compare == 5 && p.atomic.swap_add == 6 && p.atomic.va == FX_VA && p.atomic.rkey == FX_KEY);
	p = fx_packet(&fx, VB_RC_ATOMIC_ACK, 100, 0);
	p.atomic_ack.original = 0x1122334455667788;
	fx_in(&fx, &p, 2);
	completed(1, VB_WORK_SUCCESS);
	memcpy(&was, fx.local[0], 8);
	CHECK(was == 0x1122334455667788);
}

/* IBA annex A20: only its own response completes it, which is that of a read of 0 bytes. */
static void an_atomic_write_carries_its_bytes_and_waits_for_its_response(void)
{
	const uint64_t value = 0x1122334455667788;

	fx_init(&fx);
	fx_post(&fx, VB_VERB_ATOMIC_WRITE, 8)->swap_add = value;
	fx_post(&fx, VB_VERB_WRITE, 8);
	expect(VB_RC_ATOMIC_WRITE, 100, 8, 1);
	CHECK(!memcmp(payload, &value, 8) && p.reth.va == FX_VA && p.reth.rkey == FX_KEY && p.reth.length == 8);
	CHECK(!p.bth.ack_req);
	expect(VB_RC_WRITE_ONLY, 101, 8, 1);
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 8, 2);
	respond(VB_RC_READ_RESPONSE_LAST, 100, 0, 2);
	respond(VB_RC_ATOMIC_ACK, 100, 0, 2);
	CHECK(fx.qp.stats.drop_response == 3);
	completed(0, 0);
	fx_ack(&fx, 101, 31, 3); /* the response is lost: it is asked for again */
	completed(0, 0);
	expect(VB_RC_ATOMIC_WRITE, 100, 8, 4);
	CHECK(!memcmp(payload, &value, 8));
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 0, 5);
	completed(2, VB_WORK_SUCCESS);
}

static void a_flush_says_what_and_how_and_takes_one_psn(void)
{
	fx_init(&fx);
	struct vb_work *work = fx_post(&fx, VB_VERB_FLUSH, 1 << 30);

	work->imm = vb_feth_word((struct vb_feth){2, 1});
	fx_post(&fx, VB_VERB_WRITE, 8)->flags = VB_WORK_FENCE;
	expect(VB_RC_FLUSH, 100, 0, 1);
	CHECK(p.feth.type == 2 && p.feth.level == 1 && p.reth.va == FX_VA && p.reth.length == 1 << 30);
	silence(1); /* a flush is fenced like a read */
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 0, 2);
	completed(1, VB_WORK_SUCCESS);
	expect(VB_RC_WRITE_ONLY, 101, 8, 2);
	fx_nak(&fx, 101, VB_AETH_NAK, VB_NAK_REMOTE_ACCESS, 3);
	completed(2, VB_WORK_REM_ACCESS_ERR);
}

static void no_more_reads_than_allowed_are_under_way(void)
{
	fx_init(&fx); /* 4 */
	for (int i = 0; i < 6; i++)
		fx_post(&fx, i % 2 ? VB_VERB_READ : VB_VERB_FETCH_ADD, 8);
	CHECK(fx_drain(&fx, 1) == 4);
	respond(VB_RC_ATOMIC_ACK, 100, 0, 2);
	CHECK(fx_drain(&fx, 2) == 1);
	respond(VB_RC_READ_RESPONSE_ONLY, 101, 8, 3);
	CHECK(fx_drain(&fx, 3) == 1);

	fx_init(&fx);
	for (int i = 0; i < 6; i++)
		fx_post(&fx, i % 2 ? VB_VERB_FLUSH : VB_VERB_ATOMIC_WRITE, 8)->imm = 1;
	CHECK(fx_drain(&fx, 1) == 4);
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 0, 2);
	CHECK(fx_drain(&fx, 2) == 1);
}

static void a_fence_waits_for_reads_before_it(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 8);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_SEND, 1)->flags = VB_WORK_FENCE;
	CHECK(fx_drain(&fx, 1) == 2);
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 8, 2);
	expect(VB_RC_SEND_ONLY, 102, 1, 2);
}

static void credits_hold_sends_back_but_not_writes(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	fx_ack(&fx, 100, 1, 2); /* one receive is left */
	for (int i = 0; i < 3; i++)
		fx_post(&fx, VB_VERB_SEND, 1);
	expect(VB_RC_SEND_ONLY, 101, 1, 3);
	CHECK(p.bth.ack_req);
	silence(3);
	fx_ack(&fx, 101, 0, 4);
	expect(VB_RC_SEND_ONLY, 102, 1, 4); /* nothing is in flight: one may be sent, to probe */
	silence(4);
	fx_ack(&fx, 102, 31, 5);
	expect(VB_RC_SEND_ONLY, 103, 1, 5);
	fx_ack(&fx, 103, 0, 6);
	fx_post(&fx, VB_VERB_WRITE, 1);
	fx_post(&fx, VB_VERB_WRITE, 1);
	CHECK(fx_drain(&fx, 7) == 2);
}

static void credits_count_from_what_is_acknowledged(void)
{
	fx_init(&fx);
	for (int i = 0; i < 3; i++)
		fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	fx_ack(&fx, 100, 2, 2); /* two receives: for those already in flight */
	fx_post(&fx, VB_VERB_SEND, 1);
	silence(3);
	fx_ack(&fx, 102, 1, 4);
	expect(VB_RC_SEND_ONLY, 103, 1, 4);
}

static void new_credits_may_come_with_an_old_acknowledgement(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	fx_ack(&fx, 100, 0, 2);
	fx_post(&fx, VB_VERB_WRITE, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	CHECK(fx_drain(&fx, 3) == 1);
	fx_ack(&fx, 100, 4, 4);
	CHECK(fx_drain(&fx, 4) == 1);
}

static void the_window_is_full_and_asks(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.max_window = 2;
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_SEND, 5 * FX_MTU);
	expect(VB_RC_SEND_FIRST, 100, 256, 1);
	expect(VB_RC_SEND_MIDDLE, 101, 256, 1);
	CHECK(p.bth.ack_req);
	silence(1);
	fx_ack(&fx, 101, 31, 2);
	expect(VB_RC_SEND_MIDDLE, 102, 256, 2);
}

static void a_local_fault_is_told_in_its_turn(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx.no_access = 1 << 1;
	CHECK(fx_drain(&fx, 1) == 1);
	completed(0, 0);
	fx_ack(&fx, 100, 31, 2);
	completed(2, VB_WORK_LOC_PROT_ERR); /* the third was not taken, so the owner flushes it */
	CHECK(fx.done[0].status == VB_WORK_SUCCESS && fx.taken == 2 && fx.events == 1);
}

static void a_read_that_cannot_be_stored_fails(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_READ, 8);
	fx_drain(&fx, 1);
	fx.no_access = 1;
	respond(VB_RC_READ_RESPONSE_ONLY, 100, 8, 2);
	completed(1, VB_WORK_LOC_PROT_ERR);
}

static void a_local_request_waits_for_all_before_it(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_LOCAL_INV, 0);
	fx_post(&fx, VB_VERB_SEND, 1);
	CHECK(fx_drain(&fx, 1) == 1 && !fx.locals);
	fx_ack(&fx, 100, 31, 2);
	expect(VB_RC_SEND_ONLY, 101, 1, 2);
	CHECK(fx.locals == 1);
	completed(2, VB_WORK_SUCCESS);
}

static void a_local_request_that_was_refused_fails_in_its_turn_and_is_not_executed(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_LOCAL_INV, UINT32_MAX);
	fx_post(&fx, VB_VERB_SEND, 1);
	CHECK(fx_drain(&fx, 1) == 1);
	completed(0, 0);
	fx_ack(&fx, 100, 31, 2);
	CHECK(!fx_drain(&fx, 3) && !fx.locals);
	completed(2, VB_WORK_LOC_LEN_ERR);
	CHECK(fx.done[0].status == VB_WORK_SUCCESS && fx.events == 1);
}

static void a_local_request_that_must_wait_is_tried_again(void)
{
	fx_init(&fx);
	fx.later = 2;
	fx_post(&fx, VB_VERB_LOCAL_INV, 0);
	fx_post(&fx, VB_VERB_SEND, 1);
	CHECK(!fx_drain(&fx, 1) && fx.locals == 1 && !fx_drain(&fx, 2) && fx.locals == 2);
	completed(0, VB_WORK_SUCCESS);
	expect(VB_RC_SEND_ONLY, 100, 1, 3);
	CHECK(fx.locals == 3);
	completed(1, VB_WORK_SUCCESS);
}

static void psns_go_round(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.sq_psn = vb_psn(0xffffff);
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_SEND, 2 * FX_MTU);
	expect(VB_RC_SEND_FIRST, 0xffffff, 256, 1);
	expect(VB_RC_SEND_LAST, 0, 256, 1);
	fx_ack(&fx, 0, 31, 2);
	completed(1, VB_WORK_SUCCESS);
}

static void a_paused_queue_ends_what_it_began(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.max_window = 1;
	fx_init_with(&fx, &cfg);
	fx_post(&fx, VB_VERB_SEND, 2 * FX_MTU);
	fx_post(&fx, VB_VERB_SEND, 1);
	expect(VB_RC_SEND_FIRST, 100, 256, 1);
	vb_roce_pause(&fx.qp, true);
	fx_ack(&fx, 100, 31, 2);
	expect(VB_RC_SEND_LAST, 101, 256, 2);
	fx_ack(&fx, 101, 31, 3);
	silence(3);
	CHECK(vb_roce_idle(&fx.qp));
	vb_roce_pause(&fx.qp, false);
	expect(VB_RC_SEND_ONLY, 102, 1, 4);
}

static void abort_flushes_all_that_was_taken(void)
{
	fx_init(&fx);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	fx_drain(&fx, 1);
	vb_roce_abort(&fx.qp);
	completed(2, VB_WORK_WR_FLUSH_ERR);
	CHECK(!fx.events && !vb_roce_deadline(&fx.qp));
	fx_ack(&fx, 101, 31, 2);
	completed(2, VB_WORK_WR_FLUSH_ERR);
}

static void a_congestion_notification_narrows_the_window(void)
{
	fx_init(&fx);
	uint32_t before = fx.qp.rq.window.packets;

	respond(VB_CNP, 0, 0, 1);
	CHECK(fx.qp.rq.window.packets < before && fx.qp.stats.cnp_rcvd == 1);
}

static void a_congestion_notification_stops_an_unreliable_pair_for_a_moment(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.type = VB_ROCE_UC;
	fx_init_with(&fx, &cfg);
	respond(VB_CNP, 0, 0, 1);
	fx_post(&fx, VB_VERB_SEND, 1);
	silence(2);
	CHECK(vb_roce_deadline(&fx.qp) == 100001);
	respond(VB_CNP, 0, 0, 50000);
	CHECK(vb_roce_deadline(&fx.qp) == 100001); /* a flood of them does not prolong it */
	vb_roce_timeout(&fx.qp, 100001);
	respond(VB_CNP, 0, 0, 100001);
	expect(VB_UC_SEND_ONLY, 100, 1, 100001);
	silence(100001);
	respond(VB_CNP, 0, 0, 100002);
	CHECK(vb_roce_deadline(&fx.qp) == 200002);
}

int main(void)
{
	RUN(a_message_is_cut_at_the_path_mtu);
	RUN(attributes_are_set_after_the_beginning);
	RUN(a_read_that_was_taken_goes_when_reads_are_forbidden_then);
	RUN(a_message_that_fills_its_packets_has_no_empty_one_behind);
	RUN(no_bytes_are_one_packet);
	RUN(immediate_key_and_solicited_go_with_the_last_packet);
	RUN(what_no_opcode_says_is_not_sent);
	RUN(one_acknowledgement_completes_all_before_it_in_order);
	RUN(acknowledgements_again_or_of_the_past_change_nothing);
	RUN(ghosts_of_what_was_never_sent_are_dropped);
	RUN(each_nak_has_its_completion);
	RUN(reserved_syndromes_are_dropped);
	RUN(a_gap_is_sent_again_from_its_start);
	RUN(what_is_answered_meanwhile_is_not_sent_again);
	RUN(retries_are_spent_when_nothing_comes);
	RUN(a_repetition_that_may_not_leave_yet_spends_no_retry);
	RUN(retries_come_after_once_twice_then_four_times_the_timer);
	RUN(an_answer_gives_the_retries_back);
	RUN(a_sequence_nak_does_not_put_off_the_end);
	RUN(who_looks_late_at_a_timer_may_find_the_answer_first);
	RUN(a_retry_counts_when_something_was_sent_in_its_time);
	RUN(a_retry_stands_for_several_tries_however_long_nothing_came);
	RUN(a_round_trip_may_be_longer_than_the_timer);
	RUN(without_a_timer_it_asks_for_ever);
	RUN(an_rnr_nak_waits_as_long_as_its_code_says);
	RUN(an_rnr_nak_within_a_long_message_goes_back_to_where_it_says);
	RUN(a_read_may_have_to_wait_too);
	RUN(rnr_retries_are_counted_apart_and_seven_is_for_ever);
	RUN(until_a_peer_is_known_it_is_vouched_for_what_it_may_have_kept);
	RUN(going_back_vouches_too_if_there_is_something_behind);
	RUN(going_back_to_a_read_vouches_by_its_last_psn);
	RUN(a_peer_that_keeps_what_is_ahead_gets_only_what_is_missing);
	RUN(a_peer_that_drops_what_is_ahead_is_found_out_once);
	RUN(a_nak_for_the_next_packet_ends_the_trial_too);
	RUN(with_little_under_way_all_goes_again);
	RUN(an_early_retry_asks_with_one_packet);
	RUN(a_read_brings_its_bytes);
	RUN(a_read_is_resumed_in_the_middle);
	RUN(responses_ahead_of_two_missing_ones_are_stored);
	RUN(responses_that_come_again_in_any_order_change_nothing);
	RUN(a_long_read_is_asked_for_in_pieces);
	RUN(an_acknowledgement_behind_a_read_means_its_response_was_lost);
	RUN(a_response_acknowledges_what_was_before_it);
	RUN(responses_that_do_not_fit_are_dropped);
	RUN(an_atomic_brings_what_was_there);
	RUN(an_atomic_write_carries_its_bytes_and_waits_for_its_response);
	RUN(a_flush_says_what_and_how_and_takes_one_psn);
	RUN(no_more_reads_than_allowed_are_under_way);
	RUN(a_fence_waits_for_reads_before_it);
	RUN(credits_hold_sends_back_but_not_writes);
	RUN(credits_count_from_what_is_acknowledged);
	RUN(new_credits_may_come_with_an_old_acknowledgement);
	RUN(the_window_is_full_and_asks);
	RUN(a_local_fault_is_told_in_its_turn);
	RUN(a_read_that_cannot_be_stored_fails);
	RUN(a_local_request_waits_for_all_before_it);
	RUN(a_local_request_that_was_refused_fails_in_its_turn_and_is_not_executed);
	RUN(a_local_request_that_must_wait_is_tried_again);
	RUN(psns_go_round);
	RUN(a_paused_queue_ends_what_it_began);
	RUN(abort_flushes_all_that_was_taken);
	RUN(a_congestion_notification_narrows_the_window);
	RUN(a_congestion_notification_stops_an_unreliable_pair_for_a_moment);
	return 0;
}
