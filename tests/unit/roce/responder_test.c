// responder_test.c - each rule of the responder, tested with a forged packet
// follows: IBA volume 1, 9.7.4, 9.7.5, 9.7.7, 9.8.2, 9.8.3, 9.9.3
// SPDX-License-Identifier: MIT
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"

#define NONE 0xff /* no packet before it */

static struct fx fx;
static struct vb_packet p;
static uint8_t payload[4096];

static void request(uint8_t opcode, uint32_t psn, uint32_t len, uint64_t now)
{
	p = fx_packet(&fx, opcode, psn, len);
	fx_in(&fx, &p, now);
}

/* A packet whose RETH has another length than its payload. */
static void request_of(uint8_t opcode, uint32_t psn, uint32_t len, uint32_t announced, uint64_t now)
{
	p = fx_packet(&fx, opcode, psn, len);
	p.reth.length = announced;
	p.bth.ack_req = p.info->op != VB_OP_READ;
	fx_in(&fx, &p, now);
}

static void expect(uint8_t opcode, uint32_t psn, uint32_t len, uint64_t now)
{
	CHECK(fx_out(&fx, &p, payload, now));
	CHECK(p.bth.opcode == opcode && p.bth.psn.v == psn && p.payload_len == len);
}

static void silence(uint64_t now)
{
	CHECK(!fx_out(&fx, &p, payload, now));
}

static void acked(uint32_t psn, uint32_t msn, uint64_t now)
{
	expect(VB_RC_ACK, psn, 0, now);
	CHECK(p.aeth.kind == VB_AETH_ACK && p.aeth.msn == msn);
	silence(now);
}

static void nak(uint32_t psn, uint8_t kind, uint8_t value, uint64_t now)
{
	expect(VB_RC_ACK, psn, 0, now);
	CHECK(p.aeth.kind == kind && p.aeth.value == value);
	silence(now);
}

static bool region_untouched(void)
{
	for (uint32_t i = 0; i < FX_REGION; i++) {
		if (fx.region[i] != (uint8_t)(i / 7))
			return false;
	}
	return true;
}

/* Checks that the QP has ended because of the peer. */
static void ended(uint8_t code, uint32_t psn, enum vb_work_event event, uint64_t now)
{
	nak(psn, VB_AETH_NAK, code, now);
	CHECK(fx.events == 1 && fx.event[0] == event && fx.qp.dead);
	request(VB_RC_SEND_ONLY, psn + 1, 1, now + 1);
	silence(now + 1);
	request(VB_RC_SEND_ONLY, psn, 1, now + 2); /* the NAK was lost: it is repeated */
	nak(psn, VB_AETH_NAK, code, now + 2);
}

static void a_send_goes_into_the_oldest_receive(void)
{
	fx_init(&fx);
	fx.receives = 1;
	request(VB_RC_SEND_FIRST, 100, 256, 1);
	request(VB_RC_SEND_MIDDLE, 101, 256, 1);
	request(VB_RC_SEND_LAST_IMM, 102, 3, 1);
	CHECK(fx.receipts == 1 && fx.receipt[0].length == 515 && fx.receipt[0].flags == VB_WORK_IMM);
	CHECK(fx.inbox[0] == 100 && fx.inbox[256] == 101 && fx.inbox[514] == 102);
	acked(102, 1, 2);
}

static void a_write_goes_where_it_says(void)
{
	fx_init(&fx);
	request_of(VB_RC_WRITE_FIRST, 100, 256, 300, 1);
	request(VB_RC_WRITE_LAST, 101, 44, 1);
	CHECK(fx.region[0] == 100 && fx.region[299] == 101 && fx.region[300] == (uint8_t)(300 / 7));
	acked(101, 1, 1);
	CHECK(!fx.receipts);
}

static void an_immediate_takes_a_receive_before_the_last_bytes_are_stored(void)
{
	fx_init(&fx);
	request(VB_RC_WRITE_ONLY_IMM, 100, 8, 1);
	CHECK(region_untouched());
	nak(100, VB_AETH_RNR_NAK, 12, 1);
	fx.receives = 1;
	request(VB_RC_WRITE_ONLY_IMM, 100, 8, 2);
	CHECK(fx.receipts == 1 && fx.receipt[0].write_imm && fx.receipt[0].length == 8 && fx.region[0] == 100);
	acked(100, 1, 2);
}

static void a_gap_is_named_once_until_it_is_filled(void)
{
	fx_init(&fx);
	fx.receives = 9;
	request(VB_RC_SEND_ONLY, 102, 1, 1);
	request(VB_RC_SEND_ONLY, 103, 1, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_SEND_ONLY, 104, 1, 2);
	request(VB_RC_SEND_ONLY, 0x800063, 1, 2);
	silence(2);
	CHECK(!fx.receipts);
	request(VB_RC_SEND_ONLY, 100, 1, 3);
	acked(100, 1, 3);
	request(VB_RC_SEND_ONLY, 102, 1, 4);
	nak(101, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 4);
	CHECK(!fx.events);
}

/* It arrives a second time, without requesting an acknowledgement. */
static void echo(uint8_t opcode, uint32_t psn, uint32_t len, uint64_t now)
{
	p = fx_packet(&fx, opcode, psn, len);
	p.bth.ack_req = false;
	fx_in(&fx, &p, now);
}

static uint8_t slots[8 * VB_ROCE_SLOT(FX_MTU)];

static void keep(void)
{
	fx_init(&fx);
	memset(slots, 0, sizeof(slots));
	vb_roce_keep_ahead(&fx.qp, &(struct vb_roce_ahead){slots, 8});
}

static void what_comes_ahead_is_executed_when_the_peer_vouches_for_it(void)
{
	keep();
	fx.receives = 4;
	request(VB_RC_SEND_ONLY, 101, 1, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_SEND_ONLY, 102, 1, 2);
	request(VB_RC_SEND_ONLY, 102, 1, 2);
	request(VB_RC_SEND_ONLY, 104, 1, 2);
	silence(2);
	CHECK(!fx.receipts && fx.qp.rs.kept == 3);
	request(VB_RC_SEND_ONLY, 100, 1, 3);
	silence(3);
	CHECK(fx.receipts == 1);
	request(VB_RC_SEND_ONLY, 99, 1, 3);  /* not any duplicate vouches */
	request(VB_RC_SEND_ONLY, 100, 1, 3); /* nor one that does not directly follow the first */
	silence(3);
	CHECK(fx.receipts == 1);
	request(VB_RC_SEND_ONLY, 101, 1, 3);
	request(VB_RC_SEND_ONLY, 101, 1, 3); /* nor one that was just retransmitted */
	CHECK(fx.receipts == 2);
	silence(3);
	echo(VB_RC_SEND_ONLY, 101, 1, 3);
	CHECK(fx.receipts == 3 && fx.receipt[2].length == 1 && fx.inbox[0] == 102);
	acked(102, 3, 3);
	request(VB_RC_SEND_ONLY, 101, 1, 4);
	acked(102, 3, 4);
	request(VB_RC_WRITE_ONLY, 105, 1, 5); /* the next gap is reported when there is a packet after it */
	nak(103, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 5);
	request(VB_RC_WRITE_ONLY, 103, 1, 6); /* a peer that has vouched once is trusted from then on */
	CHECK(!fx.qp.rs.kept && fx.receipts == 4);
	acked(105, 6, 6);
	CHECK(!fx.qp.stats.disputed_pkts);
}

/* Its last PSN again, which requests only the end of the response. */
static void a_read_vouches_by_its_last_psn(void)
{
	keep();
	request(VB_RC_WRITE_ONLY, 103, 1, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request_of(VB_RC_READ_REQUEST, 100, 0, 515, 2);
	echo(VB_RC_READ_REQUEST, 100, 0, 2); /* not the first one */
	echo(VB_RC_READ_REQUEST, 101, 0, 2);
	echo(VB_RC_READ_REQUEST, 102, 0, 2); /* nor if it does not directly follow the request */
	CHECK(region_untouched() && fx.qp.rs.kept == 1);
	keep();
	request(VB_RC_WRITE_ONLY, 103, 1, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request_of(VB_RC_READ_REQUEST, 100, 0, 515, 2);
	p = fx_packet(&fx, VB_RC_READ_REQUEST, 102, 0);
	p.reth.va += 512;
	p.reth.length = 3;
	p.bth.ack_req = false;
	fx_in(&fx, &p, 2);
	CHECK(fx.region[0] == 103 && !fx.qp.rs.kept && fx.qp.rs.vouches);
	for (uint32_t psn = 100; psn < 103; psn++) { /* answered once */
		CHECK(fx_out(&fx, &p, payload, 2));
		CHECK(p.bth.psn.v == psn && p.info->op == VB_OP_READ_RESPONSE);
	}
	acked(103, 2, 2);
}

/* The source port is like a secret: all of the peer's packets come from it. */
static void who_has_vouched_is_known_by_its_port(void)
{
	keep();
	fx.port = 50000;
	request(VB_RC_WRITE_ONLY, 100, 1, 1);
	acked(100, 1, 1);
	fx.port = 50001; /* nobody has vouched yet: a gap is reported, but later packets are not executed */
	request(VB_RC_WRITE_ONLY, 102, 1, 2);
	nak(101, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
	CHECK(!fx.qp.rs.kept);
	fx.port = 50000;
	request(VB_RC_WRITE_ONLY, 102, 1, 2);
	request(VB_RC_WRITE_ONLY, 101, 1, 3);
	echo(VB_RC_WRITE_ONLY, 101, 1, 3);
	acked(102, 3, 3);
	fx.port = 50001;
	request(VB_RC_WRITE_ONLY, 104, 1, 4);
	silence(4);
	CHECK(!fx.qp.rs.kept && !fx.qp.rs.refused && fx.qp.stats.drop_port == 1);
	request(VB_RC_WRITE_ONLY, 103, 1, 5); /* the peer may have another port */
	acked(103, 4, 5);
	request(VB_RC_WRITE_ONLY, 105, 1, 6);
	nak(104, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 6);
	CHECK(fx.qp.rs.kept == 1);
}

static void who_does_not_vouch_is_told_how_far_all_is_executed(void)
{
	keep();
	request(VB_RC_WRITE_ONLY, 101, 1, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_WRITE_ONLY, 100, 1, 2);
	silence(2);
	CHECK(vb_roce_deadline(&fx.qp) == 200002);
	vb_roce_timeout(&fx.qp, 200002);
	acked(100, 1, 200002);
	request(VB_RC_WRITE_ONLY, 101, 1, 200003);
	acked(101, 2, 200003);
	CHECK(!fx.qp.rs.kept);
}

/* A forger who knows the queue pair and hits one of the many PSNs ahead. */
static void forged(uint8_t opcode, uint32_t psn, uint64_t now)
{
	p = fx_packet(&fx, opcode, psn, 8);
	p.reth.va += 1024;
	fx_in(&fx, &p, now);
}

static bool was_forged(void)
{
	return fx.region[1024] != (uint8_t)(1024 / 7);
}

static void what_was_forged_ahead_gives_way_to_what_the_peer_sends(void)
{
	for (uint32_t ahead = 1; ahead < 8; ahead++) {
		keep();
		forged(VB_RC_WRITE_ONLY, 100 + ahead, 1);
		nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
		for (uint32_t psn = 100; psn < 110; psn++) {
			request(VB_RC_WRITE_ONLY, psn, 8, psn);
			CHECK(fx.region[0] == psn && !was_forged());
			fx_drain(&fx, psn);
		}
		CHECK(!fx.qp.rs.kept && fx.qp.rs.msn == 10 && !fx.events);
	}
}

static void what_was_forged_behind_the_last_request_is_never_executed(void)
{
	keep();
	forged(VB_RC_WRITE_ONLY, 103, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	for (uint32_t psn = 100; psn < 103; psn++) {
		request(VB_RC_WRITE_ONLY, psn, 8, 2);
		CHECK(fx.region[0] == psn);
	}
	for (uint32_t psn = 100; psn < 102; psn++) /* the NAK crossed them */
		request(VB_RC_WRITE_ONLY, psn, 8, 3);
	CHECK(!was_forged());
	vb_roce_timeout(&fx.qp, 300000);
	acked(102, 3, 300000);
	request(VB_RC_WRITE_ONLY, 102, 8, 1000000); /* the acknowledgement was lost */
	acked(102, 3, 1000000);
	CHECK(!was_forged());
	vb_roce_timeout(&fx.qp, 2000000001); /* it is not kept forever */
	CHECK(!fx.qp.rs.kept && !was_forged() && !vb_roce_deadline(&fx.qp));
	request(VB_RC_WRITE_ONLY, 103, 8, 2000000002);
	acked(103, 4, 2000000002);
}

static void of_two_that_differ_neither_is_executed_and_the_peer_is_asked(void)
{
	for (int forged_first = 0; forged_first < 2; forged_first++) {
		keep();
		if (forged_first)
			forged(VB_RC_WRITE_ONLY, 102, 1);
		for (uint32_t psn = 101; psn < 104; psn++)
			request(VB_RC_WRITE_ONLY, psn, 8, 1);
		if (!forged_first)
			forged(VB_RC_WRITE_ONLY, 102, 1);
		nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
		request(VB_RC_WRITE_ONLY, 100, 8, 2);
		echo(VB_RC_WRITE_ONLY, 100, 8, 2);
		CHECK(fx.region[0] == 101 && !was_forged() && fx.qp.stats.disputed_pkts == 1);
		nak(102, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 2);
		request(VB_RC_WRITE_ONLY, 102, 8, 3);
		CHECK(fx.region[0] == 103 && !was_forged());
		acked(103, 4, 3);
	}
}

/* Every kind of difference is noticed. */
static void what_asks_for_something_else_is_another_packet(void)
{
	static const struct {
		uint8_t opcode;
		size_t at; /* offset in struct vb_packet of a byte that differs */
	} t[] = {
	        {VB_RC_WRITE_ONLY, offsetof(struct vb_packet, reth.va)},
	        {VB_RC_WRITE_ONLY, offsetof(struct vb_packet, reth.rkey)},
	        {VB_RC_READ_REQUEST, offsetof(struct vb_packet, reth.length)},
	        {VB_RC_FETCH_ADD, offsetof(struct vb_packet, atomic.va)},
	        {VB_RC_FETCH_ADD, offsetof(struct vb_packet, atomic.rkey)},
	        {VB_RC_FETCH_ADD, offsetof(struct vb_packet, atomic.swap_add)},
	        {VB_RC_CMP_SWAP, offsetof(struct vb_packet, atomic.compare)},
	        {VB_RC_FLUSH, offsetof(struct vb_packet, feth.type)},
	        {VB_RC_FLUSH, offsetof(struct vb_packet, feth.level)},
	        {VB_RC_ATOMIC_WRITE, offsetof(struct vb_packet, reth.va)},
	        {VB_RC_SEND_ONLY_IMM, offsetof(struct vb_packet, immdt.data)},
	        {VB_RC_SEND_ONLY_INV, offsetof(struct vb_packet, ieth.rkey)},
	        {VB_RC_SEND_ONLY, offsetof(struct vb_packet, bth.solicited)},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		keep();
		for (int n = 0; n < 3; n++) {
			p = fx_packet(&fx, t[i].opcode, 101, vb_opcode_info(t[i].opcode)->ext & VB_EXT_ATOMIC ? 0 : 8);
			if (t[i].opcode == VB_RC_READ_REQUEST || t[i].opcode == VB_RC_FLUSH)
				p.payload_len = 0;
			p.bth.ack_req = n;
			((uint8_t *)&p)[t[i].at] ^= n == 2;
			fx_in(&fx, &p, 1);
			CHECK(fx.qp.stats.disputed_pkts == (n == 2));
		}
	}
}

static bool unused;

static void ahead_unused(void *own)
{
	unused = true;
	memset(slots, 0, sizeof(slots));
}

static void slots_are_given_back_when_nothing_was_kept_for_a_while(void)
{
	keep();
	struct vb_roce_ops with = *fx.qp.ops;

	with.ahead_unused = ahead_unused;
	fx.qp.ops = &with;
	request(VB_RC_WRITE_ONLY, 101, 8, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_WRITE_ONLY, 100, 8, 2);
	echo(VB_RC_WRITE_ONLY, 100, 8, 2);
	acked(101, 2, 2);
	CHECK(vb_roce_deadline(&fx.qp) == 2000000001);
	vb_roce_timeout(&fx.qp, 2000000000);
	CHECK(!unused);
	vb_roce_timeout(&fx.qp, 2000000001);
	CHECK(unused && !vb_roce_deadline(&fx.qp));
}

static void what_is_kept_is_checked_in_its_turn(void)
{
	keep();
	request(VB_RC_WRITE_ONLY, 102, 8, 1);
	p = fx_packet(&fx, VB_RC_WRITE_ONLY, 101, 8);
	p.reth.rkey = FX_KEY + 1;
	fx_in(&fx, &p, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_WRITE_ONLY, 100, 0, 2);
	echo(VB_RC_WRITE_ONLY, 100, 0, 2);
	CHECK(region_untouched() && fx.event[0] == VB_WORK_EVENT_ACCESS && !fx.qp.rs.kept);
	nak(101, VB_AETH_NAK, VB_NAK_REMOTE_ACCESS, 2);
	for (uint32_t i = 0; i < 8; i++)
		CHECK(!((struct vb_roce_kept *)(void *)(slots + i * VB_ROCE_SLOT(FX_MTU)))->used);
}

static void what_is_too_far_ahead_is_dropped(void)
{
	keep();
	request(VB_RC_WRITE_ONLY, 100 + (1 << 18) + 1, 8, 1);
	request(VB_RC_WRITE_ONLY, 100 + 0x7fffff, 8, 1);
	silence(1); /* no sender does that */
	CHECK(fx.qp.stats.drop_far == 2 && !fx.qp.rs.refused);
	request(VB_RC_WRITE_ONLY, 108, 8, 1);
	request(VB_RC_WRITE_ONLY, 107, 8, 1);
	request(VB_RC_WRITE_ONLY, 100 + (1 << 18), 8, 1);
	CHECK(fx.qp.rs.kept == 1 && fx.qp.stats.out_of_seq_request == 5);
}

static void what_is_kept_within_the_responses_of_a_read_goes(void)
{
	keep();
	request(VB_RC_SEND_ONLY, 102, 8, 1);
	request_of(VB_RC_READ_REQUEST, 101, 0, 3 * FX_MTU, 1);
	request(VB_RC_WRITE_ONLY, 104, 8, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_WRITE_ONLY, 100, 0, 2);
	echo(VB_RC_WRITE_ONLY, 100, 0, 2);
	CHECK(!fx.qp.rs.kept && fx.qp.rs.epsn.v == 105 && fx.region[0] == 104);
	expect(VB_RC_READ_RESPONSE_FIRST, 101, FX_MTU, 2);
}

static void without_a_receive_for_what_was_kept_the_peer_waits(void)
{
	keep();
	request(VB_RC_SEND_ONLY, 101, 1, 1);
	request(VB_RC_WRITE_ONLY, 102, 1, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_WRITE_ONLY, 100, 0, 2);
	echo(VB_RC_WRITE_ONLY, 100, 0, 2);
	nak(101, VB_AETH_RNR_NAK, 12, 2);
	request(VB_RC_WRITE_ONLY, 103, 1, 3); /* all packets after it are repeated */
	silence(3);
	CHECK(!fx.qp.rs.kept);
	fx.receives = 1;
	request(VB_RC_SEND_ONLY, 101, 1, 4);
	request(VB_RC_WRITE_ONLY, 102, 1, 4);
	acked(102, 3, 4);
	CHECK(!fx.qp.rs.kept);
}

static void a_nak_that_has_not_left_is_not_needed_any_more(void)
{
	fx_init(&fx);
	fx.receives = 9;
	request(VB_RC_SEND_ONLY, 101, 1, 1);
	request(VB_RC_SEND_ONLY, 100, 1, 1);
	acked(100, 1, 1);
}

static void sends_and_writes_that_come_again_are_acknowledged_again(void)
{
	fx_init(&fx);
	fx.receives = 9;
	request(VB_RC_SEND_ONLY, 100, 1, 1);
	request(VB_RC_WRITE_ONLY, 101, 8, 1);
	acked(101, 2, 1);
	memset(fx.region, 0xee, 8);
	request(VB_RC_SEND_ONLY, 100, 1, 2);
	request(VB_RC_WRITE_ONLY, 101, 8, 2);
	acked(101, 2, 2);
	CHECK(fx.receipts == 1 && fx.region[0] == 0xee && fx.qp.stats.duplicate_request == 2);
	request(VB_RC_SEND_ONLY, 0x800066, 1, 3); /* the oldest duplicate PSN */
	acked(101, 2, 3);
}

/* The acknowledgement was lost, and then the program has ended the key: the PSN decides before the key is looked at. */
static void what_comes_again_when_its_key_is_gone_is_acknowledged_again(void)
{
	fx_init(&fx);
	fx.receives = 9;
	request_of(VB_RC_WRITE_FIRST, 100, 256, 264, 1);
	request(VB_RC_WRITE_LAST, 101, 8, 1);
	request(VB_RC_WRITE_ONLY_IMM, 102, 8, 1);
	request(VB_RC_FETCH_ADD, 103, 0, 1);
	request(VB_RC_ATOMIC_WRITE, 104, 8, 1);
	p = fx_packet(&fx, VB_RC_SEND_ONLY_INV, 105, 1);
	p.ieth.rkey = FX_KEY;
	fx_in(&fx, &p, 1);
	CHECK(fx_drain(&fx, 1) == 3 && !fx.key && fx.receipts == 2);
	request_of(VB_RC_WRITE_FIRST, 100, 256, 264, 2);
	request(VB_RC_WRITE_LAST, 101, 8, 2);
	request(VB_RC_WRITE_ONLY_IMM, 102, 8, 2);
	acked(105, 5, 2);
	request(VB_RC_FETCH_ADD, 103, 0, 3);
	expect(VB_RC_ATOMIC_ACK, 103, 0, 3);
	request(VB_RC_ATOMIC_WRITE, 104, 8, 4);
	expect(VB_RC_READ_RESPONSE_ONLY, 104, 0, 4);
	p = fx_packet(&fx, VB_RC_SEND_ONLY_INV, 105, 1);
	p.ieth.rkey = FX_KEY;
	fx_in(&fx, &p, 5);
	acked(105, 5, 5);
	CHECK(fx.receipts == 2 && fx.atomics == 1 && fx.words == 1 && !fx.events);
}

/* It was kept ahead of a gap, and came in its turn, too. */
static void what_was_kept_and_came_again_is_executed_once(void)
{
	keep();
	request(VB_RC_WRITE_ONLY, 101, 8, 1);
	request_of(VB_RC_READ_REQUEST, 102, 0, 515, 1); /* 102 to 104 */
	p = fx_packet(&fx, VB_RC_READ_REQUEST, 104, 0); /* the requester vouches, before the READ is here */
	p.reth.va += 512;
	p.reth.length = 3;
	p.bth.ack_req = false;
	fx_in(&fx, &p, 1);
	nak(100, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	CHECK(fx.qp.rs.kept == 3);
	request(VB_RC_WRITE_ONLY, 100, 8, 2);
	request(VB_RC_WRITE_ONLY, 101, 8, 2);
	request_of(VB_RC_READ_REQUEST, 102, 0, 515, 2);
	CHECK(!fx.qp.rs.kept && fx.qp.rs.epsn.v == 105);
	CHECK(fx_drain(&fx, 2) == 3);
	fx.key = 0;
	echo(VB_RC_WRITE_ONLY, 101, 8, 3);
	acked(101, 3, 3); /* the last PSN that is no READ's */
	CHECK(!fx.events && !fx.qp.dead);
}

static void messages_out_of_their_order_are_invalid(void)
{
	static const uint8_t rows[][2] = {
	        {NONE, VB_RC_SEND_MIDDLE},
	        {NONE, VB_RC_SEND_LAST},
	        {NONE, VB_RC_SEND_LAST_INV},
	        {NONE, VB_RC_WRITE_MIDDLE},
	        {NONE, VB_RC_WRITE_LAST},
	        {VB_RC_SEND_FIRST, VB_RC_SEND_FIRST},
	        {VB_RC_SEND_FIRST, VB_RC_SEND_ONLY},
	        {VB_RC_SEND_FIRST, VB_RC_WRITE_MIDDLE},
	        {VB_RC_SEND_FIRST, VB_RC_WRITE_LAST},
	        {VB_RC_SEND_FIRST, VB_RC_READ_REQUEST},
	        {VB_RC_SEND_FIRST, VB_RC_FETCH_ADD},
	        {VB_RC_WRITE_FIRST, VB_RC_SEND_MIDDLE},
	        {VB_RC_WRITE_FIRST, VB_RC_SEND_LAST},
	        {VB_RC_WRITE_FIRST, VB_RC_WRITE_ONLY},
	        {VB_RC_WRITE_FIRST, VB_RC_CMP_SWAP},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t psn = 100;

		fx_init(&fx);
		fx.receives = 9;
		if (rows[i][0] != NONE)
			request_of(rows[i][0], psn++, 256, 1000, 1);
		if (rows[i][0] != NONE)
			acked(100, 0, 1);
		request(rows[i][1], psn, vb_opcode_info(rows[i][1])->flags & VB_LAST ? 0 : 256, 2);
		ended(VB_NAK_INVALID_REQUEST, psn, VB_WORK_EVENT_REQ, 2);
		CHECK(fx.receipts == (rows[i][0] == VB_RC_SEND_FIRST));
		CHECK(!fx.receipts || fx.receipt[0].status == VB_WORK_WR_FLUSH_ERR);
	}
}

static void lengths_that_cannot_be_are_invalid(void)
{
	static const struct {
		uint8_t first, opcode;
		uint32_t len, announced;
	} rows[] = {
	        {NONE, VB_RC_SEND_FIRST, 255, 0},
	        {NONE, VB_RC_SEND_FIRST, 0, 0},
	        {NONE, VB_RC_SEND_FIRST, 257, 0},
	        {NONE, VB_RC_SEND_ONLY, 257, 0},
	        {VB_RC_SEND_FIRST, VB_RC_SEND_MIDDLE, 255, 0},
	        {VB_RC_SEND_FIRST, VB_RC_SEND_LAST, 0, 0},
	        {VB_RC_SEND_FIRST, VB_RC_SEND_LAST, 257, 0},
	        {NONE, VB_RC_WRITE_FIRST, 256, 256},
	        {NONE, VB_RC_WRITE_FIRST, 256, 8},
	        {NONE, VB_RC_WRITE_FIRST, 256, 0},
	        {NONE, VB_RC_WRITE_ONLY, 8, 9},
	        {NONE, VB_RC_WRITE_ONLY, 8, 7},
	        {NONE, VB_RC_WRITE_ONLY, 8, 0},
	        {VB_RC_WRITE_FIRST, VB_RC_WRITE_LAST, 255, 512},
	        {VB_RC_WRITE_FIRST, VB_RC_WRITE_MIDDLE, 256, 512},
	        {VB_RC_WRITE_FIRST, VB_RC_WRITE_MIDDLE, 256, 300},
	        {NONE, VB_RC_READ_REQUEST, 0, 0x80000001},
	        {NONE, VB_RC_WRITE_FIRST, 256, 0xffffffff},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t psn = 100;

		fx_init(&fx);
		fx.receives = 9;
		if (rows[i].first != NONE) {
			request_of(rows[i].first, psn++, 256, rows[i].announced, 1);
			acked(100, 0, 1);
		}
		request_of(rows[i].opcode, psn, rows[i].len, rows[i].announced, 2);
		ended(VB_NAK_INVALID_REQUEST, psn, VB_WORK_EVENT_REQ, 2);
		CHECK(rows[i].first == VB_RC_WRITE_FIRST || region_untouched());
	}
}

static void what_is_too_long_for_the_receive_is_told_at_both_ends(void)
{
	fx_init(&fx);
	fx.receives = 1;
	fx.room = 300;
	request(VB_RC_SEND_FIRST, 100, 256, 1);
	acked(100, 0, 1);
	request(VB_RC_SEND_LAST, 101, 45, 2);
	CHECK(fx.receipts == 1 && fx.receipt[0].status == VB_WORK_LOC_LEN_ERR);
	ended(VB_NAK_INVALID_REQUEST, 101, VB_WORK_EVENT_REQ, 2);
}

static void a_receive_whose_memory_is_gone_is_an_operational_error(void)
{
	fx_init(&fx);
	fx.receives = 1;
	fx.receive_fault = true;
	request(VB_RC_SEND_ONLY, 100, 1, 1);
	CHECK(fx.receipts == 1 && fx.receipt[0].status == VB_WORK_LOC_PROT_ERR);
	ended(VB_NAK_REMOTE_OPERATIONAL, 100, VB_WORK_EVENT_RQ, 1);
}

static void without_a_receive_the_peer_waits(void)
{
	fx_init(&fx);
	request(VB_RC_SEND_ONLY, 100, 1, 1);
	request(VB_RC_SEND_ONLY, 101, 1, 1);
	nak(100, VB_AETH_RNR_NAK, 12, 1);
	request(VB_RC_SEND_ONLY, 100, 1, 2);
	nak(100, VB_AETH_RNR_NAK, 12, 2);
	fx.receives = 1;
	request(VB_RC_SEND_ONLY, 100, 1, 3);
	acked(100, 1, 3);
	CHECK(!fx.events);
}

static void memory_that_may_not_be_touched_is_not(void)
{
	static const struct {
		uint64_t va;
		uint32_t rkey, length;
	} rows[] = {
	        {FX_VA, 8, 8}, /* another key */
	        {FX_VA, 0, 8},
	        {FX_VA - 1, FX_KEY, 8},             /* before */
	        {FX_VA + FX_REGION - 7, FX_KEY, 8}, /* beyond */
	        {FX_VA + FX_REGION, FX_KEY, 8},
	        {UINT64_MAX - 3, FX_KEY, 8}, /* wraps around */
	        {0, FX_KEY, 8},
	};
	static const uint8_t opcodes[] = {VB_RC_WRITE_ONLY, VB_RC_READ_REQUEST};

	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		fx_init(&fx);
		p = fx_packet(&fx, opcodes[i % 2], 100, i % 2 ? 0 : 8);
		p.reth = (struct vb_reth){rows[i / 2].va, rows[i / 2].rkey, rows[i / 2].length};
		fx_in(&fx, &p, 1);
		CHECK(region_untouched());
		ended(VB_NAK_REMOTE_ACCESS, 100, VB_WORK_EVENT_ACCESS, 1);
	}
	fx_init(&fx);
	p = fx_packet(&fx, VB_RC_FETCH_ADD, 100, 0);
	p.atomic.rkey = 8;
	fx_in(&fx, &p, 1);
	ended(VB_NAK_REMOTE_ACCESS, 100, VB_WORK_EVENT_ACCESS, 1);
}

/* The receive that a write with immediate takes reports its error. A longer write fails before it takes one. */
static void a_write_with_immediate_that_is_refused_ends_its_receive(void)
{
	fx_init(&fx);
	fx.receives = 2;
	p = fx_packet(&fx, VB_RC_WRITE_ONLY_IMM, 100, 8);
	p.reth = (struct vb_reth){FX_VA, FX_KEY + 1, 8};
	fx_in(&fx, &p, 1);
	CHECK(region_untouched());
	CHECK(fx.receipts == 1 && fx.receives == 1 && fx.receipt[0].status == VB_WORK_LOC_ACCESS_ERR);
	ended(VB_NAK_REMOTE_ACCESS, 100, VB_WORK_EVENT_ACCESS, 1);

	fx_init(&fx);
	fx.receives = 2;
	p = fx_packet(&fx, VB_RC_WRITE_FIRST, 100, 256);
	p.reth = (struct vb_reth){FX_VA, FX_KEY + 1, 264};
	fx_in(&fx, &p, 1);
	CHECK(!fx.receipts && fx.receives == 2);
	ended(VB_NAK_REMOTE_ACCESS, 100, VB_WORK_EVENT_ACCESS, 1);
}

static void all_of_a_write_is_checked_at_its_first_packet(void)
{
	fx_init(&fx);
	request_of(VB_RC_WRITE_FIRST, 100, 256, FX_REGION + 1, 1);
	CHECK(region_untouched());
	ended(VB_NAK_REMOTE_ACCESS, 100, VB_WORK_EVENT_ACCESS, 1);
}

static void a_key_that_goes_in_the_middle_stops_writes_and_reads(void)
{
	fx_init(&fx);
	request_of(VB_RC_WRITE_FIRST, 100, 256, 512, 1);
	acked(100, 0, 1);
	fx.key = 0;
	request(VB_RC_WRITE_LAST, 101, 256, 2);
	CHECK(fx.region[256] == (uint8_t)(256 / 7));
	ended(VB_NAK_REMOTE_ACCESS, 101, VB_WORK_EVENT_ACCESS, 2);

	fx_init(&fx);
	request_of(VB_RC_READ_REQUEST, 100, 0, 512, 1);
	expect(VB_RC_READ_RESPONSE_FIRST, 100, 256, 1);
	fx.key = 0;
	ended(VB_NAK_REMOTE_ACCESS, 101, VB_WORK_EVENT_ACCESS, 2);
}

static void no_bytes_need_no_key(void)
{
	fx_init(&fx);
	fx.key = 0;
	request(VB_RC_WRITE_ONLY, 100, 0, 1);
	request(VB_RC_READ_REQUEST, 101, 0, 1);
	expect(VB_RC_READ_RESPONSE_ONLY, 101, 0, 1);
	silence(1);
	CHECK(!fx.events);
}

static void what_the_pair_does_not_allow_is_invalid(void)
{
	static const uint8_t opcodes[] = {VB_RC_WRITE_ONLY, VB_RC_READ_REQUEST, VB_RC_CMP_SWAP,
	                                  VB_RC_FETCH_ADD,  VB_RC_ATOMIC_WRITE, VB_RC_FLUSH};
	static const uint8_t needs[] = {VB_RIGHT_WRITE,  VB_RIGHT_READ,  VB_RIGHT_ATOMIC,
	                                VB_RIGHT_ATOMIC, VB_RIGHT_WRITE, VB_RIGHT_FLUSH_GLOBAL};

	for (int i = 0; i < 6; i++) {
		struct vb_roce_config cfg;

		fx_config(&cfg);
		cfg.access &= (uint8_t)~needs[i];
		fx_init_with(&fx, &cfg);
		request(opcodes[i], 100, 0, 1);
		ended(VB_NAK_INVALID_REQUEST, 100, VB_WORK_EVENT_REQ, 1);
	}
}

static void reads_need_resources(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.max_dest_rd_atomic = 0;
	fx_init_with(&fx, &cfg);
	request_of(VB_RC_READ_REQUEST, 100, 0, 8, 1);
	ended(VB_NAK_INVALID_REQUEST, 100, VB_WORK_EVENT_REQ, 1);

	fx_init(&fx); /* 4 */
	for (uint32_t i = 0; i < 5; i++)
		request_of(VB_RC_READ_REQUEST, 100 + i, 0, 8, 1);
	for (uint32_t i = 0; i < 4; i++)
		expect(VB_RC_READ_RESPONSE_ONLY, 100 + i, 8, 1);
	ended(VB_NAK_INVALID_REQUEST, 104, VB_WORK_EVENT_REQ, 1);
}

static void a_read_is_answered_in_packets(void)
{
	fx_init(&fx);
	request_of(VB_RC_READ_REQUEST, 100, 0, 515, 1);
	expect(VB_RC_READ_RESPONSE_FIRST, 100, 256, 1);
	CHECK(p.aeth.kind == VB_AETH_ACK && p.aeth.msn == 1 && !memcmp(payload, fx.region, 256));
	expect(VB_RC_READ_RESPONSE_MIDDLE, 101, 256, 1);
	CHECK(!memcmp(payload, fx.region + 256, 256));
	expect(VB_RC_READ_RESPONSE_LAST, 102, 3, 1);
	CHECK(p.bth.pad == 1 && p.aeth.msn == 1);
	silence(1);
	CHECK(fx.qp.rs.epsn.v == 103);
}

static void an_acknowledgement_waits_for_reads_before_it(void)
{
	fx_init(&fx);
	fx.receives = 1;
	request_of(VB_RC_READ_REQUEST, 100, 0, 512, 1);
	request(VB_RC_SEND_ONLY, 102, 1, 1);
	expect(VB_RC_READ_RESPONSE_FIRST, 100, 256, 1);
	expect(VB_RC_READ_RESPONSE_LAST, 101, 256, 1);
	acked(102, 2, 1);
}

static void a_read_that_comes_again_is_answered_again_from_where_it_says(void)
{
	fx_init(&fx);
	request_of(VB_RC_READ_REQUEST, 100, 0, 700, 1);
	CHECK(fx_drain(&fx, 1) == 3);
	p = fx_packet(&fx, VB_RC_READ_REQUEST, 101, 0);
	p.reth = (struct vb_reth){FX_VA + 256, FX_KEY, 700 - 256};
	fx_in(&fx, &p, 2);
	expect(VB_RC_READ_RESPONSE_FIRST, 101, 256, 2);
	CHECK(!memcmp(payload, fx.region + 256, 256) && p.aeth.msn == 1);
	expect(VB_RC_READ_RESPONSE_LAST, 102, 188, 2);
	silence(2);
}

static void read_again(uint32_t psn, uint32_t len, uint64_t now)
{
	p = fx_packet(&fx, VB_RC_READ_REQUEST, psn, 0);
	p.reth = (struct vb_reth){FX_VA + (psn - 100) * FX_MTU, FX_KEY, len};
	fx_in(&fx, &p, now);
}

static void a_read_that_comes_again_may_ask_for_a_part(void)
{
	fx_init(&fx);
	request_of(VB_RC_READ_REQUEST, 100, 0, 700, 1);
	CHECK(fx_drain(&fx, 1) == 3);
	read_again(100, 300, 2);
	expect(VB_RC_READ_RESPONSE_FIRST, 100, 256, 2);
	expect(VB_RC_READ_RESPONSE_LAST, 101, 44, 2);
	CHECK(!memcmp(payload, fx.region + 256, 44));
	silence(2);
	read_again(101, 256, 3);
	expect(VB_RC_READ_RESPONSE_ONLY, 101, 256, 3);
	CHECK(!memcmp(payload, fx.region + 256, 256));
	silence(3);
	read_again(100, 500, 4);
	expect(VB_RC_READ_RESPONSE_FIRST, 100, 256, 4);
	read_again(101, 10, 4); /* within the packets in flight, which is enough */
	expect(VB_RC_READ_RESPONSE_ONLY, 101, 244, 4);
	read_again(100, 10, 5);
	read_again(100, 700, 5); /* more than that */
	expect(VB_RC_READ_RESPONSE_FIRST, 100, 256, 5);
	expect(VB_RC_READ_RESPONSE_MIDDLE, 101, 256, 5);
	expect(VB_RC_READ_RESPONSE_LAST, 102, 188, 5);
	silence(5);
	CHECK(fx.qp.rs.unanswered == 0 && !fx.qp.stats.drop_replay && !fx.events);
}

static void a_repeated_read_of_something_else_is_dropped(void)
{
	static const struct vb_reth rows[] = {
	        {FX_VA, FX_KEY, 701}, {FX_VA, FX_KEY, 0}, {FX_VA + 1, FX_KEY, 700}, {FX_VA, 8, 700}};

	fx_init(&fx);
	request_of(VB_RC_READ_REQUEST, 100, 0, 700, 1);
	fx_drain(&fx, 1);
	for (int i = 0; i < 4; i++) {
		p = fx_packet(&fx, VB_RC_READ_REQUEST, 100, 0);
		p.reth = rows[i];
		fx_in(&fx, &p, 2);
	}
	request(VB_RC_FETCH_ADD, 100, 0, 2);
	request_of(VB_RC_READ_REQUEST, 99, 0, 700, 2);
	silence(2);
	CHECK(fx.qp.stats.drop_replay == 6 && !fx.events && !fx.atomics);
}

/* A requester with its answer may reuse its memory. Late or repeated requests then do no harm. */
static void a_read_that_comes_again_when_its_memory_is_gone_is_dropped(void)
{
	fx_init(&fx);
	request_of(VB_RC_READ_REQUEST, 100, 0, 700, 1);
	CHECK(fx_drain(&fx, 1) == 3);
	fx.key = 0;
	read_again(100, 700, 2);
	read_again(102, 188, 2);
	silence(2);
	CHECK(fx.qp.stats.drop_replay == 1 && !fx.events && !fx.qp.dead && !fx.qp.rs.unanswered);
	fx.key = FX_KEY;
	request_of(VB_RC_READ_REQUEST, 103, 0, 10, 3);
	expect(VB_RC_READ_RESPONSE_ONLY, 103, 10, 3);
	CHECK(!fx.events);
}

static void an_atomic_is_executed_once_and_answered_as_often_as_asked(void)
{
	uint64_t value = 41, was = 41;

	fx_init(&fx);
	memcpy(fx.region, &value, 8);
	for (int i = 0; i < 3; i++) {
		request(VB_RC_FETCH_ADD, 100, 0, 1);
		expect(VB_RC_ATOMIC_ACK, 100, 0, 1);
		CHECK(p.atomic_ack.original == was && p.aeth.msn == 1);
		silence(1);
	}
	memcpy(&value, fx.region, 8);
	CHECK(value == 42 && fx.atomics == 1);
}

static void the_oldest_result_makes_room(void)
{
	fx_init(&fx); /* 4 */
	for (uint32_t i = 0; i < 6; i++) {
		request(VB_RC_FETCH_ADD, 100 + i, 0, 1);
		CHECK(fx_drain(&fx, 1) == 1);
	}
	for (uint32_t i = 0; i < 6; i++)
		request(VB_RC_FETCH_ADD, 100 + i, 0, 2);
	CHECK(fx_drain(&fx, 2) == 4 && fx.qp.stats.drop_replay == 2 && fx.atomics == 6);
}

static void a_crooked_atomic_is_invalid(void)
{
	fx_init(&fx);
	p = fx_packet(&fx, VB_RC_CMP_SWAP, 100, 0);
	p.atomic.va = FX_VA + 4;
	fx_in(&fx, &p, 1);
	ended(VB_NAK_INVALID_REQUEST, 100, VB_WORK_EVENT_REQ, 1);
	CHECK(!fx.atomics);
}

/* --- IBA annexes A19 (FLUSH), A20 (ATOMIC WRITE) --- */

static void an_atomic_write_is_executed_once_and_answered_as_often_as_asked(void)
{
	fx_init(&fx);
	for (uint64_t i = 1; i < 4; i++) {
		request(VB_RC_ATOMIC_WRITE, 100, 8, i);
		expect(VB_RC_READ_RESPONSE_ONLY, 100, 0, i);
		CHECK(p.aeth.kind == VB_AETH_ACK && p.aeth.msn == 1);
		silence(i);
	}
	CHECK(fx.words == 1 && fx.region[0] == 100 && fx.region[7] == 100 && fx.region[8] == (uint8_t)(8 / 7));
}

static void flush_of(uint32_t psn, uint8_t type, uint8_t level, uint32_t length, uint64_t now)
{
	p = fx_packet(&fx, VB_RC_FLUSH, psn, 0);
	p.feth = (struct vb_feth){type, level};
	p.reth.length = length;
	fx_in(&fx, &p, now);
}

static void a_flush_is_executed_once_and_answered_as_often_as_asked(void)
{
	fx_init(&fx);
	for (uint64_t i = 1; i < 4; i++) {
		flush_of(100, 1, 0, 3000, i); /* one packet and one PSN, however long the range is */
		expect(VB_RC_READ_RESPONSE_ONLY, 100, 0, i);
		CHECK(p.aeth.kind == VB_AETH_ACK && p.aeth.msn == 1);
		silence(i);
	}
	CHECK(fx.flushes == 1 && fx.flushed.va == FX_VA && fx.flushed.length == 3000 && region_untouched());
	flush_of(101, 1, 1, UINT32_MAX, 4); /* the whole region: there is no range */
	expect(VB_RC_READ_RESPONSE_ONLY, 101, 0, 4);
	CHECK(fx.flushes == 2 && p.aeth.msn == 2);
}

static void a_flush_is_answered_after_what_was_asked_before(void)
{
	fx_init(&fx);
	fx.receives = 1;
	request_of(VB_RC_READ_REQUEST, 100, 0, 300, 1);
	request(VB_RC_WRITE_ONLY, 102, 8, 1);
	flush_of(103, 1, 0, 8, 1);
	request(VB_RC_ATOMIC_WRITE, 104, 8, 1);
	request(VB_RC_SEND_ONLY, 105, 8, 1);
	expect(VB_RC_READ_RESPONSE_FIRST, 100, 256, 1);
	expect(VB_RC_READ_RESPONSE_LAST, 101, 44, 1);
	expect(VB_RC_READ_RESPONSE_ONLY, 103, 0, 1);
	expect(VB_RC_READ_RESPONSE_ONLY, 104, 0, 1);
	acked(105, 5, 1);
	CHECK(fx.region[0] == 104);
}

static void a_repeated_flush_of_something_else_is_dropped(void)
{
	fx_init(&fx);
	flush_of(100, 1, 0, 8, 1);
	request(VB_RC_ATOMIC_WRITE, 101, 8, 1);
	CHECK(fx_drain(&fx, 1) == 2);
	request(VB_RC_ATOMIC_WRITE, 100, 8, 2);
	flush_of(101, 1, 0, 8, 2);
	request_of(VB_RC_READ_REQUEST, 100, 0, 0, 2);
	p = fx_packet(&fx, VB_RC_ATOMIC_WRITE, 101, 8);
	p.reth.va += 8;
	fx_in(&fx, &p, 2);
	silence(2);
	CHECK(fx.qp.stats.drop_replay == 4 && fx.words == 1 && fx.flushes == 1 && !fx.events);
}

static void an_atomic_write_of_another_place_or_length_is_refused(void)
{
	static const struct {
		uint64_t va;
		uint32_t rkey, announced, len;
		uint8_t code, event;
	} rows[] = {
	        {FX_VA + 4, FX_KEY, 8, 8, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {FX_VA, FX_KEY, 8, 4, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {FX_VA, FX_KEY, 8, 0, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {FX_VA, FX_KEY, 16, 16, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {FX_VA, FX_KEY, 0, 8, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {FX_VA, FX_KEY + 1, 8, 8, VB_NAK_REMOTE_ACCESS, VB_WORK_EVENT_ACCESS},
	        {FX_VA + FX_REGION, FX_KEY, 8, 8, VB_NAK_REMOTE_ACCESS, VB_WORK_EVENT_ACCESS},
	        {UINT64_MAX - 7, FX_KEY, 8, 8, VB_NAK_REMOTE_ACCESS, VB_WORK_EVENT_ACCESS},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fx_init(&fx);
		p = fx_packet(&fx, VB_RC_ATOMIC_WRITE, 100, rows[i].len);
		p.reth = (struct vb_reth){rows[i].va, rows[i].rkey, rows[i].announced};
		fx_in(&fx, &p, 1);
		CHECK(region_untouched() && !fx.words);
		ended(rows[i].code, 100, (enum vb_work_event)rows[i].event, 1);
	}
}

static void a_flush_of_another_kind_or_place_is_refused(void)
{
	static const struct {
		uint8_t type, level;
		uint32_t length;
		uint8_t code, event;
	} rows[] = {
	        {0, 0, 8, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {2, 0, 8, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ}, /* the queue pair does not allow persistence */
	        {4, 0, 8, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {1, 2, 8, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {1, 0, 0x80000001, VB_NAK_INVALID_REQUEST, VB_WORK_EVENT_REQ},
	        {1, 0, FX_REGION + 1, VB_NAK_REMOTE_ACCESS, VB_WORK_EVENT_ACCESS},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fx_init(&fx);
		flush_of(100, rows[i].type, rows[i].level, rows[i].length, 1);
		CHECK(!fx.flushes);
		ended(rows[i].code, 100, (enum vb_work_event)rows[i].event, 1);
	}
}

static void flushes_and_atomic_writes_need_resources(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.max_dest_rd_atomic = 0;
	for (int i = 0; i < 2; i++) {
		fx_init_with(&fx, &cfg);
		request(i ? VB_RC_FLUSH : VB_RC_ATOMIC_WRITE, 100, i ? 0 : 8, 1);
		ended(VB_NAK_INVALID_REQUEST, 100, VB_WORK_EVENT_REQ, 1);
	}
	fx_init(&fx); /* 4 */
	for (uint32_t i = 0; i < 5; i++)
		request(i % 2 ? VB_RC_FLUSH : VB_RC_ATOMIC_WRITE, 100 + i, i % 2 ? 0 : 8, 1);
	for (uint32_t i = 0; i < 4; i++)
		expect(VB_RC_READ_RESPONSE_ONLY, 100 + i, 0, 1);
	ended(VB_NAK_INVALID_REQUEST, 104, VB_WORK_EVENT_REQ, 1);
}

static void a_key_is_invalidated_with_the_message(void)
{
	fx_init(&fx);
	fx.receives = 2;
	p = fx_packet(&fx, VB_RC_SEND_ONLY_INV, 100, 1);
	p.ieth.rkey = FX_KEY;
	fx_in(&fx, &p, 1);
	CHECK(!fx.key && fx.receipt[0].flags == VB_WORK_INV && fx.receipt[0].imm == FX_KEY);
	acked(100, 1, 1);
	p = fx_packet(&fx, VB_RC_SEND_ONLY_INV, 101, 1);
	p.ieth.rkey = FX_KEY; /* no longer */
	fx_in(&fx, &p, 2);
	ended(VB_NAK_REMOTE_ACCESS, 101, VB_WORK_EVENT_ACCESS, 2);
}

static void an_acknowledgement_waits_for_company_but_not_long(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.ack_delay = 20;
	cfg.ack_every = 3;
	fx_init_with(&fx, &cfg);
	request(VB_RC_WRITE_ONLY, 100, 0, 1);
	silence(1);
	CHECK(vb_roce_deadline(&fx.qp) == 21);
	request(VB_RC_WRITE_ONLY, 101, 0, 2);
	silence(20);
	vb_roce_timeout(&fx.qp, 21);
	acked(101, 2, 21);
	CHECK(!vb_roce_deadline(&fx.qp));
	for (uint32_t psn = 102; psn < 105; psn++)
		request(VB_RC_WRITE_ONLY, psn, 0, 30);
	acked(104, 5, 30);
	request(VB_RC_WRITE_ONLY, 105, 0, 40);
	vb_roce_ack_now(&fx.qp);
	acked(105, 6, 40);
}

static void nothing_is_acknowledged_that_was_not_asked_for(void)
{
	fx_init(&fx);
	p = fx_packet(&fx, VB_RC_WRITE_ONLY, 100, 0);
	p.bth.ack_req = false;
	fx_in(&fx, &p, 1);
	silence(1);
	CHECK(fx.qp.rs.epsn.v == 101);
}

static void credits_are_the_receives_that_are_left(void)
{
	fx_init(&fx);
	fx.count_receives = true;
	fx.receives = 6;
	request(VB_RC_SEND_ONLY, 100, 1, 1);
	acked(100, 1, 1);
	CHECK(p.aeth.value == 4 || vb_credits(p.aeth.value) <= 5);
	fx.count_receives = false;
	request(VB_RC_SEND_ONLY, 101, 1, 2);
	expect(VB_RC_ACK, 101, 0, 2);
	CHECK(p.aeth.value == VB_CREDITS_UNLIMITED);
}

static void packets_that_are_not_for_it_are_counted_and_dropped(void)
{
	fx_init(&fx);
	fx.receives = 9;
	p = fx_packet(&fx, VB_RC_SEND_ONLY, 100, 1);
	p.bth.dest_qpn = 0x12;
	fx_in(&fx, &p, 1);
	p = fx_packet(&fx, VB_RC_SEND_ONLY, 100, 1);
	p.bth.pkey = 0x8001;
	fx_in(&fx, &p, 1);
	request(VB_UC_SEND_ONLY, 100, 1, 1);
	request(VB_UD_SEND_ONLY, 100, 1, 1);
	silence(1);
	CHECK(!fx.receipts && fx.qp.stats.drop_qpn == 1 && fx.qp.stats.drop_pkey == 1 && fx.qp.stats.drop_type == 2);
}

static void marks_of_congestion_are_told_but_not_each(void)
{
	struct vb_roce_from marked = {.congested = true};

	fx_init(&fx);
	p = fx_packet(&fx, VB_RC_WRITE_ONLY, 100, 0);
	p.bth.ack_req = false;
	vb_roce_input(&fx.qp, &p, payload, &marked, 1);
	expect(VB_CNP, 0, 0, 1);
	p = fx_packet(&fx, VB_RC_WRITE_ONLY, 101, 0);
	p.bth.ack_req = false;
	vb_roce_input(&fx.qp, &p, payload, &marked, 2);
	silence(2);
}

/* A packet must have the expected PSN, the RC type and the partition; otherwise it is dropped. */
static void an_opcode_that_is_none_is_invalid(void)
{
	struct vb_bth bth = {.opcode = 27, .dest_qpn = 0x11, .pkey = 0xffff, .psn = vb_psn(101)};

	fx_init(&fx);
	vb_roce_input_unknown(&fx.qp, &bth);
	bth.psn = vb_psn(99);
	vb_roce_input_unknown(&fx.qp, &bth);
	bth.psn = vb_psn(100);
	bth.pkey = 0x8001;
	vb_roce_input_unknown(&fx.qp, &bth);
	bth.pkey = 0xffff;
	bth.opcode = 0x20 + 27;
	vb_roce_input_unknown(&fx.qp, &bth);
	silence(1);
	CHECK(!fx.events);
	bth.opcode = 27;
	fx.receives = 1;
	request(VB_RC_SEND_FIRST, 100, 256, 1);
	acked(100, 0, 1);
	bth.psn = vb_psn(101);
	vb_roce_input_unknown(&fx.qp, &bth);
	CHECK(fx.receipts == 1 && fx.receipt[0].status == VB_WORK_WR_FLUSH_ERR);
	ended(VB_NAK_INVALID_REQUEST, 101, VB_WORK_EVENT_REQ, 2);
	vb_roce_input_unknown(&fx.qp, &bth);
	nak(101, VB_AETH_NAK, VB_NAK_INVALID_REQUEST, 3);
}

/* rxe sends 0, and hardware sends 1: the engine accepts both. */
static void the_migration_bit_is_not_looked_at(void)
{
	struct vb_writer w;
	uint8_t bytes[VB_BTH_LEN + FX_MTU + VB_ICRC_LEN];

	fx_init(&fx);
	request_of(VB_RC_WRITE_FIRST, 100, 256, 4 * FX_MTU, 1);
	for (uint32_t i = 1; i < 3; i++) {
		p = fx_packet(&fx, VB_RC_WRITE_MIDDLE, 100 + i, 256);
		p.bth.migreq = i & 1;
		w = vb_writer(bytes, sizeof(bytes));
		vb_packet_encode(&w, &p);
		memset(bytes + w.pos, (int)i, FX_MTU);
		CHECK(vb_roce_input_middle(&fx.qp, bytes, sizeof(bytes), 0, 2));
		CHECK(fx.region[i * FX_MTU] == i && fx.region[(i + 1) * FX_MTU - 1] == i);
	}
	p = fx_packet(&fx, VB_RC_WRITE_LAST, 103, 256);
	p.bth.migreq = false;
	fx_in(&fx, &p, 3);
	expect(VB_RC_ACK, 103, 0, 3);
	CHECK(p.bth.migreq && p.aeth.msn == 1);
}

/* PSNs ahead, behind and expected, across 2^24. */
static void psns_go_round(void)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.rq_psn = vb_psn(0xfffffe);
	fx_init_with(&fx, &cfg);
	fx.receives = 9;
	request(VB_RC_SEND_ONLY, 1, 1, 1);
	nak(0xfffffe, VB_AETH_NAK, VB_NAK_PSN_SEQUENCE, 1);
	request(VB_RC_SEND_FIRST, 0xfffffe, 256, 2);
	request(VB_RC_SEND_MIDDLE, 0xffffff, 256, 2);
	request(VB_RC_SEND_LAST, 0, 8, 2);
	acked(0, 1, 2);
	CHECK(fx.receipts == 1 && fx.receipt[0].length == 520);
	request(VB_RC_SEND_ONLY, 0xffffff, 1, 3);
	acked(0, 1, 3);
	CHECK(fx.qp.stats.duplicate_request == 1);

	cfg.rq_psn = vb_psn(0xffffff);
	fx_init_with(&fx, &cfg);
	for (int i = 0; i < 2; i++) { /* and again, from where it is a duplicate */
		request_of(VB_RC_READ_REQUEST, 0xffffff, 0, 700, 1);
		expect(VB_RC_READ_RESPONSE_FIRST, 0xffffff, 256, 1);
		expect(VB_RC_READ_RESPONSE_MIDDLE, 0, 256, 1);
		expect(VB_RC_READ_RESPONSE_LAST, 1, 188, 1);
		silence(1);
	}
	p = fx_packet(&fx, VB_RC_READ_REQUEST, 0, 0);
	p.reth = (struct vb_reth){FX_VA + 256, FX_KEY, 444};
	fx_in(&fx, &p, 2);
	expect(VB_RC_READ_RESPONSE_FIRST, 0, 256, 2);
	expect(VB_RC_READ_RESPONSE_LAST, 1, 188, 2);
	silence(2);
}

/* --- unreliable --- */

static void init_as(enum vb_roce_type type)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.type = (uint8_t)type;
	cfg.qkey = 0x1234;
	fx_init_with(&fx, &cfg);
	fx.receives = 9;
}

static void uc_drops_a_message_with_a_gap_and_takes_the_next(void)
{
	init_as(VB_ROCE_UC);
	request(VB_UC_SEND_FIRST, 100, 256, 1);
	request(VB_UC_SEND_LAST, 102, 1, 1);
	request(VB_UC_SEND_MIDDLE, 103, 256, 1);
	request(VB_UC_SEND_LAST, 104, 1, 1);
	CHECK(!fx.receipts && fx.receives == 8);
	request(VB_UC_SEND_ONLY, 105, 7, 1);
	CHECK(fx.receipts == 1 && fx.receipt[0].length == 7 && fx.receives == 8); /* the receive was used again */
	request(VB_UC_SEND_ONLY, 200, 7, 1);
	CHECK(fx.receipts == 2);
	silence(1);
}

static void uc_takes_nothing_whose_psn_or_port_is_not_the_peers(void)
{
	static const uint32_t far[] = {100 + 4096, 100 - 65 + 0x1000000, 100 + 0x800000, 100 + 0x7fffff};

	init_as(VB_ROCE_UC);
	fx.receives = FX_LIST;
	for (unsigned i = 0; i < 4; i++)
		request(VB_UC_SEND_ONLY, far[i], 7, 1);
	CHECK(!fx.receipts && fx.qp.stats.drop_stranger == 4);
	fx.port = 50000;
	request(VB_UC_SEND_ONLY, 100 + 4095, 7, 1); /* the first accepted packet sets the port */
	request(VB_UC_SEND_ONLY, 100 + 4096 + 4095, 7, 1);
	request(VB_UC_SEND_ONLY, 100 + 4096 + 4096 - 64, 7, 1);
	CHECK(fx.receipts == 3);
	fx.port = 50001;
	request(VB_UC_SEND_ONLY, 100 + 4096 + 4096 - 63, 7, 1);
	request_of(VB_UC_WRITE_ONLY, 100 + 4096 + 4096 - 63, 8, 8, 1);
	CHECK(fx.receipts == 3 && fx.qp.stats.drop_stranger == 6 && region_untouched());
	uint8_t bytes[VB_BTH_LEN + FX_MTU + VB_ICRC_LEN] = {
	        VB_UC_SEND_MIDDLE, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0x20, 0x26};

	fx.port = 50000;
	request(VB_UC_SEND_FIRST, 0x2025, 256, 1);
	CHECK(fx.qp.rs.epsn.v == 0x2026 && !vb_roce_input_middle(&fx.qp, bytes, sizeof(bytes), 50001, 2));
	CHECK(vb_roce_input_middle(&fx.qp, bytes, sizeof(bytes), 50000, 2));
}

/* A peer that returns after an outage, or with another port, and loses some packets. */
static void uc_believes_who_goes_on_for_long(void)
{
	for (uint16_t port = 0; port < 2; port++) {
		uint32_t psn = 100;

		init_as(VB_ROCE_UC);
		fx.receives = FX_LIST;
		request(VB_UC_SEND_ONLY, psn, 7, 1);
		fx.port = port;
		psn += port ? 1 : 100000;
		for (uint32_t i = 0; i < 4095; i++, psn += i % 10 ? 1 : 30)
			request(VB_UC_SEND_ONLY, psn, 7, 1);
		CHECK(fx.receipts == 1);
		request(VB_UC_SEND_ONLY, psn, 7, 1);
		request(VB_UC_SEND_ONLY, psn + 1, 7, 1);
		CHECK(fx.receipts == 3);
	}
}

static void uc_does_not_believe_a_stranger_while_the_peer_is_there(void)
{
	init_as(VB_ROCE_UC);
	fx.receives = FX_LIST;
	for (uint32_t i = 0; i < 10000; i++) {
		fx.port = 0;
		if (i % 1000 == 0)
			request(VB_UC_SEND_ONLY, 100 + i / 1000, 7, 1);
		fx.port = 50001;
		request(VB_UC_SEND_ONLY, 500000 + i, 8, 1);
	}
	CHECK(fx.receipts == 10 && fx.qp.stats.drop_stranger == 10000);
	for (uint32_t i = 0; i < 10; i++)
		CHECK(fx.receipt[i].length == 7);
}

static void uc_begins_anew_where_a_message_is_cut_off(void)
{
	init_as(VB_ROCE_UC);
	request(VB_UC_SEND_FIRST, 100, 256, 1);
	request_of(VB_UC_WRITE_FIRST, 101, 256, 300, 1);
	request(VB_UC_WRITE_LAST, 102, 44, 1);
	CHECK(!fx.receipts && fx.region[0] == 101 && fx.region[299] == 102);
	request(VB_UC_SEND_LAST, 103, 1, 1);
	CHECK(!fx.receipts && !fx.events);
}

static void uc_errors_are_silent(void)
{
	init_as(VB_ROCE_UC);
	fx.receives = 0;
	request(VB_UC_SEND_ONLY, 100, 1, 1);
	p = fx_packet(&fx, VB_UC_WRITE_ONLY, 101, 8);
	p.reth.rkey = 9;
	fx_in(&fx, &p, 1);
	request(VB_UC_SEND_FIRST, 102, 100, 1);
	silence(1);
	CHECK(!fx.events && region_untouched());
	CHECK(fx.qp.stats.drop_no_receive == 2 && fx.qp.stats.drop_access == 1);
	fx.receives = 1;
	request(VB_UC_SEND_ONLY, 103, 1, 1);
	CHECK(fx.receipts == 1);
}

static void uc_and_ud_sends_complete_when_they_are_sent(void)
{
	for (int type = VB_ROCE_UC; type <= VB_ROCE_UD; type++) {
		init_as(type);
		struct vb_work *work = fx_post(&fx, VB_VERB_SEND, 5);

		work->ud_qpn = 0x99;
		work->ud_qkey = 0x5678;
		expect(type == VB_ROCE_UC ? VB_UC_SEND_ONLY : VB_UD_SEND_ONLY, 100, 5, 1);
		if (type == VB_ROCE_UD)
			CHECK(p.bth.dest_qpn == 0x99 && p.deth.qkey == 0x5678 && p.deth.src_qpn == 0x11);
		CHECK(!fx.dones);
		vb_roce_sent(&fx.qp);
		CHECK(fx.dones == 1 && fx.done[0].status == VB_WORK_SUCCESS && !vb_roce_deadline(&fx.qp));
	}
}

static void a_datagram_comes_behind_40_bytes(void)
{
	init_as(VB_ROCE_UD);
	p = fx_packet(&fx, VB_UD_SEND_ONLY_IMM, 5, 10);
	p.deth = (struct vb_deth){0x1234, 0x77};
	p.immdt.data = 3;
	fx_in(&fx, &p, 1);
	CHECK(fx.receipts == 1 && fx.receipt[0].length == 50 && fx.receipt[0].src_qpn == 0x77);
	CHECK(fx.receipt[0].flags == VB_WORK_IMM && fx.receipt[0].imm == 3);
	CHECK(fx.inbox[0] == 0x45 && fx.inbox[40] == 5 && fx.inbox[49] == 5);
}

static void datagrams_with_another_key_or_length_or_no_receive_are_dropped(void)
{
	init_as(VB_ROCE_UD);
	p = fx_packet(&fx, VB_UD_SEND_ONLY, 5, 10);
	p.deth.qkey = 0x1235;
	fx_in(&fx, &p, 1);
	p = fx_packet(&fx, VB_UD_SEND_ONLY, 5, FX_MTU + 1);
	p.deth.qkey = 0x1234;
	fx_in(&fx, &p, 1);
	CHECK(fx.qp.stats.drop_qkey == 1 && fx.qp.stats.drop_length == 1 && fx.receives == 9);
	fx.room = 49;
	p.payload_len = 10;
	fx_in(&fx, &p, 1);
	CHECK(fx.receipts == 1 && fx.receipt[0].status == VB_WORK_LOC_LEN_ERR && !fx.events);
	fx.receives = 0;
	fx_in(&fx, &p, 1);
	CHECK(fx.receipts == 1 && fx.qp.stats.drop_no_receive == 1);
}

static void a_datagram_longer_than_the_mtu_is_not_sent(void)
{
	init_as(VB_ROCE_UD);
	fx_post(&fx, VB_VERB_SEND, FX_MTU + 1);
	silence(1);
	CHECK(fx.dones == 1 && fx.done[0].status == VB_WORK_LOC_LEN_ERR);
	p = fx_packet(&fx, VB_UD_SEND_ONLY, 5, 10);
	p.deth.qkey = 0x1234;
	fx_in(&fx, &p, 1);
	CHECK(fx.receipts == 1); /* it still receives */
}

int main(void)
{
	RUN(a_send_goes_into_the_oldest_receive);
	RUN(a_write_goes_where_it_says);
	RUN(an_immediate_takes_a_receive_before_the_last_bytes_are_stored);
	RUN(a_gap_is_named_once_until_it_is_filled);
	RUN(what_comes_ahead_is_executed_when_the_peer_vouches_for_it);
	RUN(a_read_vouches_by_its_last_psn);
	RUN(who_has_vouched_is_known_by_its_port);
	RUN(who_does_not_vouch_is_told_how_far_all_is_executed);
	RUN(what_was_forged_ahead_gives_way_to_what_the_peer_sends);
	RUN(what_was_forged_behind_the_last_request_is_never_executed);
	RUN(of_two_that_differ_neither_is_executed_and_the_peer_is_asked);
	RUN(what_asks_for_something_else_is_another_packet);
	RUN(slots_are_given_back_when_nothing_was_kept_for_a_while);
	RUN(what_is_kept_is_checked_in_its_turn);
	RUN(what_is_too_far_ahead_is_dropped);
	RUN(what_is_kept_within_the_responses_of_a_read_goes);
	RUN(without_a_receive_for_what_was_kept_the_peer_waits);
	RUN(a_nak_that_has_not_left_is_not_needed_any_more);
	RUN(sends_and_writes_that_come_again_are_acknowledged_again);
	RUN(what_comes_again_when_its_key_is_gone_is_acknowledged_again);
	RUN(what_was_kept_and_came_again_is_executed_once);
	RUN(messages_out_of_their_order_are_invalid);
	RUN(lengths_that_cannot_be_are_invalid);
	RUN(what_is_too_long_for_the_receive_is_told_at_both_ends);
	RUN(a_receive_whose_memory_is_gone_is_an_operational_error);
	RUN(without_a_receive_the_peer_waits);
	RUN(memory_that_may_not_be_touched_is_not);
	RUN(a_write_with_immediate_that_is_refused_ends_its_receive);
	RUN(all_of_a_write_is_checked_at_its_first_packet);
	RUN(a_key_that_goes_in_the_middle_stops_writes_and_reads);
	RUN(no_bytes_need_no_key);
	RUN(what_the_pair_does_not_allow_is_invalid);
	RUN(reads_need_resources);
	RUN(a_read_is_answered_in_packets);
	RUN(an_acknowledgement_waits_for_reads_before_it);
	RUN(a_read_that_comes_again_is_answered_again_from_where_it_says);
	RUN(a_read_that_comes_again_may_ask_for_a_part);
	RUN(a_repeated_read_of_something_else_is_dropped);
	RUN(a_read_that_comes_again_when_its_memory_is_gone_is_dropped);
	RUN(an_atomic_is_executed_once_and_answered_as_often_as_asked);
	RUN(the_oldest_result_makes_room);
	RUN(a_crooked_atomic_is_invalid);
	RUN(an_atomic_write_is_executed_once_and_answered_as_often_as_asked);
	RUN(a_flush_is_executed_once_and_answered_as_often_as_asked);
	RUN(a_flush_is_answered_after_what_was_asked_before);
	RUN(a_repeated_flush_of_something_else_is_dropped);
	RUN(an_atomic_write_of_another_place_or_length_is_refused);
	RUN(a_flush_of_another_kind_or_place_is_refused);
	RUN(flushes_and_atomic_writes_need_resources);
	RUN(a_key_is_invalidated_with_the_message);
	RUN(an_acknowledgement_waits_for_company_but_not_long);
	RUN(nothing_is_acknowledged_that_was_not_asked_for);
	RUN(credits_are_the_receives_that_are_left);
	RUN(packets_that_are_not_for_it_are_counted_and_dropped);
	RUN(marks_of_congestion_are_told_but_not_each);
	RUN(an_opcode_that_is_none_is_invalid);
	RUN(the_migration_bit_is_not_looked_at);
	RUN(psns_go_round);
	RUN(uc_drops_a_message_with_a_gap_and_takes_the_next);
	RUN(uc_takes_nothing_whose_psn_or_port_is_not_the_peers);
	RUN(uc_believes_who_goes_on_for_long);
	RUN(uc_does_not_believe_a_stranger_while_the_peer_is_there);
	RUN(uc_begins_anew_where_a_message_is_cut_off);
	RUN(uc_errors_are_silent);
	RUN(uc_and_ud_sends_complete_when_they_are_sent);
	RUN(a_datagram_comes_behind_40_bytes);
	RUN(datagrams_with_another_key_or_length_or_no_receive_are_dropped);
	RUN(a_datagram_longer_than_the_mtu_is_not_sent);
	return 0;
}
