// xrc_test.c - XRC: the header of each request of an initiator, and the checks of a target
// follows: IBA volume 1, annex A14 (XRC)
// SPDX-License-Identifier: MIT
#include "fixture.h"

static struct fx fx;
static struct vb_packet p;
static uint8_t payload[4096];

static void begin(enum vb_roce_xrc end)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.xrc = (uint8_t)end;
	fx_init_with(&fx, &cfg);
	fx.receives = 8;
}

static void sends(uint8_t opcode, uint32_t psn, uint32_t len)
{
	CHECK(fx_out(&fx, &p, payload, 1));
	SAME(p.bth.opcode, opcode);
	SAME(p.bth.psn.v, psn);
	SAME(p.payload_len, len);
	SAME(p.xrceth.srqn, p.info->ext & VB_EXT_XRCETH ? FX_SRQ + 1 : 0);
}

static void each_request_packet_names_the_srq(void)
{
	begin(VB_ROCE_XRC_INITIATOR);
	fx_post(&fx, VB_VERB_SEND, 4 * FX_MTU)->srqn = FX_SRQ + 1;
	sends(VB_XRC_SEND_FIRST, 100, FX_MTU);
	sends(VB_XRC_SEND_MIDDLE, 101, FX_MTU);
	sends(VB_XRC_SEND_MIDDLE, 102, FX_MTU);
	sends(VB_XRC_SEND_LAST, 103, FX_MTU);
	struct vb_work *w = fx_post(&fx, VB_VERB_WRITE, 4 * FX_MTU + 1);
	w->srqn = FX_SRQ + 1;
	w->flags = VB_WORK_IMM;
	sends(VB_XRC_WRITE_FIRST, 104, FX_MTU);
	for (uint32_t i = 105; i < 108; i++)
		sends(VB_XRC_WRITE_MIDDLE, i, FX_MTU);
	sends(VB_XRC_WRITE_LAST_IMM, 108, 1);
	fx_post(&fx, VB_VERB_READ, 10)->srqn = FX_SRQ + 1;
	sends(VB_XRC_READ_REQUEST, 109, 0);
	fx_post(&fx, VB_VERB_FETCH_ADD, 8)->srqn = FX_SRQ + 1;
	sends(VB_XRC_FETCH_ADD, 110, 0);
	w = fx_post(&fx, VB_VERB_SEND, 5);
	w->srqn = FX_SRQ + 1;
	w->flags = VB_WORK_INV;
	sends(VB_XRC_SEND_ONLY_INV, 111, 5);
}

static void a_flush_and_an_atomic_write_name_the_srq(void)
{
	begin(VB_ROCE_XRC_INITIATOR);
	struct vb_work *w = fx_post(&fx, VB_VERB_FLUSH, 1000);
	w->srqn = FX_SRQ + 1;
	w->imm = 1;
	sends(VB_XRC_FLUSH, 100, 0);
	CHECK(p.feth.type == 1 && !p.feth.level && p.reth.length == 1000);
	w = fx_post(&fx, VB_VERB_ATOMIC_WRITE, 8);
	w->srqn = FX_SRQ + 1;
	w->swap_add = 0x0102030405060708;
	sends(VB_XRC_ATOMIC_WRITE, 101, 8);
	SAME(p.reth.length, 8);
	p = fx_packet(&fx, VB_XRC_READ_RESPONSE_ONLY, 100, 0);
	fx_in(&fx, &p, 2);
	p = fx_packet(&fx, VB_XRC_READ_RESPONSE_ONLY, 101, 0);
	fx_in(&fx, &p, 2);
	CHECK(fx.dones == 2 && fx.done[0].status == VB_WORK_SUCCESS && fx.done[1].status == VB_WORK_SUCCESS);
}

static void an_initiator_takes_the_answers_of_xrc_only(void)
{
	begin(VB_ROCE_XRC_INITIATOR);
	fx_post(&fx, VB_VERB_SEND, 5)->srqn = FX_SRQ + 1;
	fx_drain(&fx, 1);
	p = fx_packet(&fx, VB_RC_ACK, 100, 0);
	fx_in(&fx, &p, 2);
	SAME(fx.dones, 0);
	p = fx_packet(&fx, VB_XRC_ACK, 100, 0);
	fx_in(&fx, &p, 2);
	CHECK(fx.dones == 1 && fx.done[0].status == VB_WORK_SUCCESS);
	fx_post(&fx, VB_VERB_READ, 3 * FX_MTU)->srqn = FX_SRQ + 1;
	fx_drain(&fx, 3);
	static const uint8_t answer[] = {VB_XRC_READ_RESPONSE_FIRST, VB_XRC_READ_RESPONSE_MIDDLE,
	                                 VB_XRC_READ_RESPONSE_LAST};
	for (uint32_t i = 0; i < 3; i++) {
		p = fx_packet(&fx, answer[i], 101 + i, FX_MTU);
		fx_in(&fx, &p, 4);
	}
	CHECK(fx.dones == 2 && fx.done[1].status == VB_WORK_SUCCESS && fx.local[1][3 * FX_MTU - 1] == 103);
}

static void an_initiator_takes_no_requests(void)
{
	begin(VB_ROCE_XRC_INITIATOR);
	p = fx_packet(&fx, VB_XRC_SEND_ONLY, 100, 5);
	fx_in(&fx, &p, 1);
	CHECK(!fx.receipts && !fx.events && fx.receives == 8 && fx.qp.stats.drop_type == 1);
	vb_roce_input_unknown(&fx.qp,
	                      &(struct vb_bth){.opcode = 0xb5, .pkey = 0xffff, .dest_qpn = 0x11, .psn = vb_psn(100)});
	CHECK(!fx.events && !fx_out(&fx, &p, payload, 2));
}

static void request(uint8_t opcode, uint32_t psn, uint32_t len, uint32_t srqn)
{
	p = fx_packet(&fx, opcode, psn, len);
	p.xrceth.srqn = srqn;
	if (opcode == VB_XRC_READ_REQUEST)
		p.payload_len = 0;
	if (opcode == VB_XRC_WRITE_FIRST)
		p.reth.length = 3 * FX_MTU;
	if (opcode == VB_XRC_FLUSH) {
		p.feth.type = 1;
		p.payload_len = 0;
	}
	fx_in(&fx, &p, 1);
}

static void answers(uint8_t opcode, uint32_t psn, uint32_t len)
{
	CHECK(fx_out(&fx, &p, payload, 1));
	CHECK(p.bth.opcode == opcode && p.bth.psn.v == psn && p.payload_len == len);
}

static void a_target_serves_the_srqs_in_turns(void)
{
	begin(VB_ROCE_XRC_TARGET);
	request(VB_XRC_SEND_FIRST, 100, FX_MTU, FX_SRQ);
	request(VB_XRC_SEND_LAST, 101, 5, FX_SRQ);
	SAME(fx.selected, FX_SRQ);
	CHECK(fx.receipts == 1 && fx.receipt[0].length == FX_MTU + 5);
	answers(VB_XRC_ACK, 101, 0);
	request(VB_XRC_SEND_ONLY, 102, 7, FX_SRQ + 1);
	SAME(fx.selected, FX_SRQ + 1);
	SAME(fx.receipts, 2);
	answers(VB_XRC_ACK, 102, 0);
	request(VB_XRC_WRITE_FIRST, 103, FX_MTU, FX_SRQ);
	request(VB_XRC_WRITE_MIDDLE, 104, FX_MTU, FX_SRQ);
	request(VB_XRC_WRITE_LAST, 105, FX_MTU, FX_SRQ);
	CHECK(fx.region[3 * FX_MTU - 1] == 105 && fx.region[3 * FX_MTU] != 105);
	answers(VB_XRC_ACK, 105, 0);
	request(VB_XRC_FETCH_ADD, 106, 0, FX_SRQ);
	answers(VB_XRC_ATOMIC_ACK, 106, 0);
	request(VB_XRC_ATOMIC_WRITE, 107, 8, FX_SRQ + 1);
	CHECK(fx.selected == FX_SRQ + 1 && fx.words == 1);
	answers(VB_XRC_READ_RESPONSE_ONLY, 107, 0);
	request(VB_XRC_FLUSH, 108, 8, FX_SRQ);
	CHECK(fx.selected == FX_SRQ && fx.flushes == 1);
	answers(VB_XRC_READ_RESPONSE_ONLY, 108, 0);
	SAME(fx.events, 0);
}

/* Requests for other SRQs may arrive before a READ is answered. */
static void an_answer_is_for_the_srq_of_its_request(void)
{
	begin(VB_ROCE_XRC_TARGET);
	request(VB_XRC_READ_REQUEST, 100, 3 * FX_MTU, FX_SRQ + 1);
	request(VB_XRC_SEND_ONLY, 103, 1, FX_SRQ);
	SAME(fx.selected, FX_SRQ);
	answers(VB_XRC_READ_RESPONSE_FIRST, 100, FX_MTU);
	SAME(fx.selected_for_answer, FX_SRQ + 1);
	answers(VB_XRC_READ_RESPONSE_MIDDLE, 101, FX_MTU);
	answers(VB_XRC_READ_RESPONSE_LAST, 102, FX_MTU);
	answers(VB_XRC_ACK, 103, 0);
}

static void is_refused(uint32_t psn)
{
	answers(VB_XRC_ACK, psn, 0);
	CHECK(p.aeth.kind == VB_AETH_NAK && p.aeth.value == VB_NAK_INVALID_REQUEST);
	CHECK(fx.events == 1 && fx.event[0] == VB_WORK_EVENT_REQ && fx.qp.dead);
}

static void a_wrong_srq_is_an_invalid_request(void)
{
	static const uint8_t opcodes[] = {VB_XRC_SEND_ONLY, VB_XRC_WRITE_ONLY, VB_XRC_READ_REQUEST,
	                                  VB_XRC_CMP_SWAP,  VB_XRC_FLUSH,      VB_XRC_ATOMIC_WRITE};

	for (unsigned i = 0; i < sizeof(opcodes); i++) {
		begin(VB_ROCE_XRC_TARGET);
		request(opcodes[i], 100, opcodes[i] == VB_XRC_CMP_SWAP ? 0 : 8, FX_SRQ + 2);
		is_refused(100);
		CHECK(fx.receives == 8 && !fx.receipts && !fx.atomics && !fx.flushes && !fx.words && fx.region[7] == 1);
	}
}

static void a_message_keeps_its_srq(void)
{
	begin(VB_ROCE_XRC_TARGET);
	request(VB_XRC_SEND_FIRST, 100, FX_MTU, FX_SRQ);
	request(VB_XRC_SEND_LAST, 101, FX_MTU, FX_SRQ + 1);
	is_refused(101);
	CHECK(fx.receipts == 1 && fx.receipt[0].status == VB_WORK_WR_FLUSH_ERR);
	begin(VB_ROCE_XRC_TARGET);
	request(VB_XRC_WRITE_FIRST, 100, FX_MTU, FX_SRQ);
	request(VB_XRC_WRITE_MIDDLE, 101, FX_MTU, FX_SRQ + 1);
	is_refused(101);
}

/* The bytes after its BTH are an XRCETH, so the packet is not a full one. */
static void the_shortcut_for_middle_packets_takes_none_of_xrc(void)
{
	uint8_t bytes[VB_BTH_LEN + FX_MTU + VB_ICRC_LEN] = {
	        VB_XRC_SEND_MIDDLE, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 101};

	begin(VB_ROCE_XRC_TARGET);
	request(VB_XRC_SEND_FIRST, 100, FX_MTU, FX_SRQ);
	CHECK(!vb_roce_input_middle(&fx.qp, bytes, sizeof(bytes), 0, 2));
	bytes[0] = VB_RC_SEND_MIDDLE;
	CHECK(!vb_roce_input_middle(&fx.qp, bytes, sizeof(bytes), 0, 2));
}

int main(void)
{
	RUN(each_request_packet_names_the_srq);
	RUN(a_flush_and_an_atomic_write_name_the_srq);
	RUN(an_initiator_takes_the_answers_of_xrc_only);
	RUN(an_initiator_takes_no_requests);
	RUN(a_target_serves_the_srqs_in_turns);
	RUN(an_answer_is_for_the_srq_of_its_request);
	RUN(a_wrong_srq_is_an_invalid_request);
	RUN(a_message_keeps_its_srq);
	RUN(the_shortcut_for_middle_packets_takes_none_of_xrc);
	return 0;
}
