// packets.c - forged packets to a queue pair, and their effects: legal but unusual, and hostile
// follows: IBA volume 1, 9.2 to 9.9; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <stdatomic.h>
#include <stddef.h>

#include "engine/local/local.h"
#include "path/roce/roce.h"

static struct stranger s;
static struct came c;

static uint32_t first(void) /* PSN of our own first request */
{
	return s.l.me.psn;
}

static void acked(uint32_t n)
{
	stranger_expect(&s, &c, VB_RC_ACK, s.l.it.psn + n);
	SAME(c.p.aeth.kind, VB_AETH_ACK);
}

static void ack(uint32_t psn)
{
	struct vb_packet p = stranger_packet(&s, VB_RC_ACK, psn, 0);

	stranger_say(&s, &p, NULL);
}

static uint64_t counted(_Atomic uint64_t *counter)
{
	return atomic_load(counter);
}

#define COUNTED(name) counted(&vb_counters.name)

/* --- a conversation --- */

static void asks(bool v6, bool migreq)
{
	struct how how = {.no_migreq = !migreq};
	struct vb_packet p;

	stranger_meet(&s, &(struct conf){0}, v6);
	uint32_t psn = s.l.it.psn;

	post_recv(&s.l, 1, &s.m, 65536, 8192);
	p = stranger_packet(&s, VB_RC_SEND_FIRST, psn, 1024);
	stranger_say(&s, &p, &how);
	p = stranger_packet(&s, VB_RC_SEND_MIDDLE, psn + 1, 1024);
	stranger_say(&s, &p, &how);
	p = stranger_packet(&s, VB_RC_SEND_LAST_IMM, psn + 2, 5);
	stranger_say(&s, &p, &how);
	SAME(expect(s.l.rcq, 1, IBV_WC_SUCCESS).byte_len, 2053);
	SAME(s.m.p[65536 + 2052], (psn + 2) & 0xff);
	do { /* each requests one */
		CHECK(stranger_take(&s, &c, PATIENCE));
		SAME(c.p.bth.opcode, VB_RC_ACK);
	} while (c.p.bth.psn.v != psn + 2);
	SAME(c.p.aeth.msn, 1);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, psn + 3, 7);
	stranger_say(&s, &p, &how);
	acked(3);
	SAME(s.m.p[6], (psn + 3) & 0xff);
	SAME(s.m.p[7], 0);
	p = stranger_packet(&s, VB_RC_READ_REQUEST, psn + 4, 0);
	p.reth.length = 1500;
	stranger_say(&s, &p, &how);
	stranger_expect(&s, &c, VB_RC_READ_RESPONSE_FIRST, psn + 4);
	CHECK(c.p.payload_len == 1024 && !memcmp(c.payload, s.m.p, 1024) && c.p.aeth.msn == 3);
	stranger_expect(&s, &c, VB_RC_READ_RESPONSE_LAST, psn + 5);
	CHECK(c.p.payload_len == 476 && !memcmp(c.payload, s.m.p + 1024, 476));
	memset(s.m.p, 0, 8);
	p = stranger_packet(&s, VB_RC_FETCH_ADD, psn + 6, 0);
	stranger_say(&s, &p, &how);
	stranger_expect(&s, &c, VB_RC_ATOMIC_ACK, psn + 6);
	CHECK(c.p.atomic_ack.original == 0 && *(volatile uint64_t *)s.m.p == 1);
	stranger_silence(&s, 20);
}

static void a_stranger_is_served_whatever_its_migration_bit(void)
{
	asks(false, true);
}

static void a_stranger_without_the_migration_bit_is_served(void)
{
	asks(false, false);
}

static void a_stranger_is_served_over_ipv6(void)
{
	asks(true, true);
}

/* Its packets contain the fields of the address vector. The ICRC of each is checked. */
static void our(bool v6)
{
	stranger_meet(&s, &(struct conf){0}, v6);
	fill(s.m.p, 3000, 5);
	POST(&s.l, .op = IBV_WR_SEND, .id = 1, .m = &s.m, .len = 2999);
	stranger_expect(&s, &c, VB_RC_SEND_FIRST, first());
	SAME(c.hops, 64);
	stranger_expect(&s, &c, VB_RC_SEND_MIDDLE, first() + 1);
	stranger_expect(&s, &c, VB_RC_SEND_LAST, first() + 2);
	CHECK(c.p.payload_len == 951 && c.p.bth.pad == 1 && c.p.bth.ack_req && !memcmp(c.payload, s.m.p + 2048, 951));
	expect_none(s.l.scq, 5);
	ack(first() + 2);
	expect(s.l.scq, 1, IBV_WC_SUCCESS);
	POST(&s.l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &s.m, .off = 8192, .len = 1025, .far = {0x1234, 0x99, 0});
	stranger_expect(&s, &c, VB_RC_READ_REQUEST, first() + 3);
	CHECK(c.p.reth.va == 0x1234 && c.p.reth.rkey == 0x99 && c.p.reth.length == 1025);
	for (int i = 0; i < 2; i++) { /* each twice, and the last before the first */
		struct vb_packet p = stranger_packet(&s, VB_RC_READ_RESPONSE_LAST, first() + 4, 1);

		stranger_say(&s, &p, NULL);
		p = stranger_packet(&s, VB_RC_READ_RESPONSE_FIRST, first() + 3, 1024);
		stranger_say(&s, &p, NULL);
	}
	expect(s.l.scq, 2, IBV_WC_SUCCESS);
	SAME(s.m.p[8192], (first() + 3) & 0xff);
	SAME(s.m.p[8192 + 1024], (first() + 4) & 0xff);
	SAME(s.m.p[8192 + 1025], 0);
	SAME(state_of(s.l.qp), IBV_QPS_RTS);
}

static void our_requests_reach_a_stranger(void)
{
	our(false);
}

static void our_requests_reach_a_stranger_over_ipv6(void)
{
	our(true);
}

/*
 * The answer has two packets, of which the second is shorter, so that nothing can follow them in the same send. Every
 * second request asks for no acknowledgement, like those in the middle of a burst. Fails if the request has not
 * completed at the other end when the answer is received, because a program with only so many slots then has none for
 * the next request.
 */
static void a_question_is_acknowledged_before_it_is_answered(void)
{
	unsigned before = 0;

	stranger_meet(&s, &(struct conf){0}, false);
	for (uint32_t i = 0; i < 100; i++) {
		struct vb_packet p = stranger_packet(&s, VB_RC_SEND_ONLY, s.l.it.psn + i, 4);

		p.bth.ack_req = i % 2;
		post_recv(&s.l, i, &s.m, 65536, 64);
		stranger_say(&s, &p, NULL);
		expect(s.l.rcq, i, IBV_WC_SUCCESS);
		POST(&s.l, .op = IBV_WR_SEND, .id = i, .m = &s.m, .len = 1100);
		for (unsigned came = 0; came != 7;) {
			CHECK(stranger_take(&s, &c, PATIENCE));
			bool is_ack = c.p.bth.opcode == VB_RC_ACK;
			uint32_t n = (c.p.bth.psn.v - (is_ack ? s.l.it.psn + i : first() + 2 * i)) & 0xffffff;

			if (n > !is_ack) /* from an earlier round: we are late, and it was retransmitted */
				continue;
			before += is_ack && !came;
			came |= is_ack ? 1 : 2u << n;
		}
		ack(first() + 2 * i + 1);
		expect(s.l.scq, i, IBV_WC_SUCCESS);
	}
	/* the network may sometimes swap two sends */
	CHECK(before >= 90);
}

/* A window across 2^24, in both directions. */
static void sequence_numbers_go_round_both_ways(void)
{
	stranger_meet(&s, &(struct conf){.psn = 0xfffffc}, false);
	for (uint64_t i = 0; i < 8; i++)
		post_recv(&s.l, i, &s.m, 65536 + i * 64, 64);
	for (uint32_t i = 0; i < 8; i++)
		stranger_request(&s, VB_RC_SEND_ONLY, i, 4);
	for (uint64_t i = 0; i < 8; i++) {
		expect(s.l.rcq, i, IBV_WC_SUCCESS);
		SAME(s.m.p[65536 + i * 64], (0xfc + i) & 0xff);
	}
	while (stranger_take(&s, &c, PATIENCE) && c.p.bth.psn.v != 3)
		;
	for (uint64_t i = 0; i < 8; i++)
		POST(&s.l, .op = IBV_WR_RDMA_WRITE, .id = i, .m = &s.m, .len = 8);
	for (uint32_t i = 0; i < 8; i++)
		stranger_expect(&s, &c, VB_RC_WRITE_ONLY, 0xfffffc + i);
	ack(0xfffffe);
	for (uint64_t i = 0; i < 3; i++)
		expect(s.l.scq, i, IBV_WC_SUCCESS);
	struct vb_packet p = stranger_packet(&s, VB_RC_ACK, 1, 0); /* the sixth is missing */

	p.aeth.kind = VB_AETH_NAK;
	p.aeth.value = VB_NAK_PSN_SEQUENCE;
	stranger_say(&s, &p, NULL);
	for (uint64_t i = 3; i < 5; i++)
		expect(s.l.scq, i, IBV_WC_SUCCESS);
	stranger_expect(&s, &c, VB_RC_WRITE_ONLY, 1);
	while (c.p.bth.psn.v != 3)
		CHECK(stranger_take(&s, &c, PATIENCE));
	ack(3);
	for (uint64_t i = 5; i < 8; i++)
		expect(s.l.scq, i, IBV_WC_SUCCESS);
	stranger_request(&s, VB_RC_SEND_ONLY, 2, 4); /* from before the wrap: a duplicate */
	acked(7);
	SAME(STAT(&s, duplicate_request), 1);
}

/* --- dropped packets, and their counters --- */

static void nothing_happened(void)
{
	stranger_silence(&s, 50);
	SAME(state_of(s.l.qp), IBV_QPS_RTS);
	for (unsigned i = 0; i < 4096; i++)
		SAME(s.m.p[i], 0);
}

static void broken(uint8_t opcode, uint32_t len, const struct how *how)
{
	struct vb_packet p = stranger_packet(&s, opcode, s.l.it.psn, len);

	stranger_say(&s, &p, how);
}

static void what_is_no_packet_is_counted_and_dropped(void)
{
	static const uint8_t none[] = {39, 0x40 + 17, 0x60, 0x60 + 12, 0x80, 0x82, 0xb5, 0xff};
	uint8_t bytes[64] = {0};
	struct vb_packet p;
	unsigned malformed = 0, icrc = 0;

	stranger_meet(&s, &(struct conf){0}, false);
	for (size_t len = 0; len < VB_BTH_LEN; len++) /* these go to lane 0, or are too short for an ICRC */
		stranger_bytes(&s, bytes, len, NULL);
	uint32_t qpn = s.l.qp->qp_num;

	for (size_t i = 0; i < sizeof(none); i++, malformed++) {
		memcpy(bytes,
		       (uint8_t[]){none[i], 0x40, 0xff, 0xff, 0, (uint8_t)(qpn >> 16), (uint8_t)(qpn >> 8),
		                   (uint8_t)qpn, 0x80, 0, 3, 232},
		       12);
		stranger_bytes(&s, bytes, 40, NULL);
	}
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 8);
	p.bth.tver = 1;
	stranger_say(&s, &p, NULL);
	p.bth.tver = 0;
	p.bth.pad = 3; /* more than exists */
	p.payload_len = 0;
	stranger_say(&s, &p, &(struct how){.cut = 3});
	broken(VB_RC_WRITE_ONLY, 0, &(struct how){.cut = 4});
	broken(VB_RC_WRITE_ONLY, 0, &(struct how){.cut = 16});
	broken(VB_RC_WRITE_ONLY, 8, &(struct how){.cut = 1});
	broken(VB_RC_WRITE_ONLY, 8, &(struct how){.more = 3});
	broken(VB_RC_READ_REQUEST, 0, &(struct how){.more = 4});
	broken(VB_RC_FETCH_ADD, 0, &(struct how){.cut = 4});
	broken(VB_RC_ACK, 0, &(struct how){.cut = 4});
	broken(VB_RC_WRITE_ONLY, 4100, NULL);
	malformed += 9;
	for (int i = 0; i < 3; i++, icrc++)
		broken(VB_RC_WRITE_ONLY, i * 512, &(struct how){.bad_icrc = true});
	WAIT_FOR(COUNTED(drop_malformed) + COUNTED(drop_icrc) >= malformed + icrc);
	nothing_happened();
	SAME(COUNTED(drop_icrc), icrc);
	SAME(COUNTED(drop_malformed), malformed);
	stranger_request(&s, VB_RC_WRITE_ONLY, 0, 8);
	acked(0);
}

/* A request with the expected PSN for memory that does not exist, and one with another PSN. */
static void an_opcode_that_is_reserved_is_an_invalid_request(void)
{
	static const uint8_t reserved[] = {21, 24, 27, 30, 31};

	for (size_t i = 0; i < sizeof(reserved); i++) {
		uint8_t bytes[VB_BTH_LEN + 16];
		struct vb_writer w;
		struct vb_bth bth;

		stranger_meet(&s, &(struct conf){0}, false);
		bth = stranger_packet(&s, VB_RC_SEND_ONLY, s.l.it.psn + 1, 0).bth;
		bth.opcode = reserved[i];
		for (int turn = 0; turn < 3;
		     turn++) { /* ahead: dropped; expected: NAK; repeated: NAK again, in case it was lost */
			memset(bytes, 0, sizeof(bytes));
			w = vb_writer(bytes, sizeof(bytes));
			vb_bth_encode(&w, &bth);
			stranger_bytes(&s, bytes, sizeof(bytes), NULL);
			bth.psn.v = s.l.it.psn;
			if (!turn) {
				stranger_silence(&s, 10);
				continue;
			}
			stranger_expect(&s, &c, VB_RC_ACK, s.l.it.psn);
			CHECK(c.p.aeth.kind == VB_AETH_NAK && c.p.aeth.value == VB_NAK_INVALID_REQUEST);
		}
		SAME(next_event(&s.d, PATIENCE), IBV_EVENT_QP_REQ_ERR);
		SAME(state_of(s.l.qp), IBV_QPS_ERR);
	}
}

static void of_number(uint32_t qpn, const struct how *how)
{
	struct vb_packet p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 8);

	p.bth.dest_qpn = qpn;
	stranger_say(&s, &p, how);
}

/* Everything else in them is valid. */
static void what_is_for_others_is_counted_and_dropped(void)
{
	struct vb_packet p;
	uint32_t qpn;

	stranger_meet(&s, &(struct conf){0}, false);
	qpn = s.l.qp->qp_num;
	of_number(0, NULL);
	of_number(1, NULL);
	of_number(0xffffff, NULL);
	of_number(qpn ^ 1, NULL);
	of_number(qpn ^ 0x2000, NULL); /* the same place in the table */
	WAIT_FOR(COUNTED(drop_no_qp) >= 2);
	of_number(qpn, &(struct how){.spoofed = true});
	of_number(qpn, &(struct how){.astray = true});
	WAIT_FOR(COUNTED(drop_source) >= 2);
	p = stranger_packet(&s, VB_CNP, 0, 0); /* a forged one would slow us down */
	stranger_say(&s, &p, &(struct how){.spoofed = true});
	WAIT_FOR(COUNTED(drop_source) >= 3);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 8);
	p.bth.pkey = 0x8001;
	stranger_say(&s, &p, NULL);
	p.bth.pkey = 0;
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, drop_pkey) == 2);
	p = stranger_packet(&s, VB_UC_WRITE_ONLY, s.l.it.psn, 8);
	stranger_say(&s, &p, NULL);
	p = stranger_packet(&s, VB_UD_SEND_ONLY, s.l.it.psn, 8);
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, drop_type) == 2);
	ack(first());
	ack(first() + 0x7fffff);
	p = stranger_packet(&s, VB_RC_READ_RESPONSE_ONLY, first() + 1, 8);
	stranger_say(&s, &p, NULL);
	p = stranger_packet(&s, VB_RC_ATOMIC_ACK, first(), 0);
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, drop_ghost) == 4);
	nothing_happened();
	SAME(STAT(&s, cnp_rcvd), 0);
	SAME(COUNTED(drop_icrc) + COUNTED(drop_malformed), 0);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 8); /* a limited member of the partition */
	p.bth.pkey = 0x7fff;
	stranger_say(&s, &p, NULL);
	acked(0);
}

/* The first invalid request ends the connection, and has no effect. */
static void memory_that_is_not_its_is_refused(void)
{
	struct vb_packet p;

	stranger_meet(&s, &(struct conf){0}, false);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 0); /* 0 bytes need no key */
	p.reth = (struct vb_reth){0x10, 0xdead, 0};
	stranger_say(&s, &p, NULL);
	acked(0);
	p = stranger_packet(&s, VB_RC_READ_REQUEST, s.l.it.psn + 1, 0);
	p.reth = (struct vb_reth){0x10, 0xdead, 0};
	stranger_say(&s, &p, NULL);
	stranger_expect(&s, &c, VB_RC_READ_RESPONSE_ONLY, s.l.it.psn + 1);
	SAME(c.p.payload_len, 0);
	p = stranger_packet(&s, VB_RC_READ_REQUEST, s.l.it.psn + 2, 0);
	p.reth.length = (uint32_t)s.m.n + 1;
	stranger_say(&s, &p, NULL);
	stranger_expect(&s, &c, VB_RC_ACK, s.l.it.psn + 2);
	CHECK(c.p.aeth.kind == VB_AETH_NAK && c.p.aeth.value == VB_NAK_REMOTE_ACCESS);
	SAME(next_event(&s.d, PATIENCE), IBV_EVENT_QP_ACCESS_ERR);
	SAME(state_of(s.l.qp), IBV_QPS_ERR);
	for (unsigned i = 0; i < 4096; i++)
		SAME(s.m.p[i], 0);
}

/* --- fields of the IP header --- */

static void any_identification_will_do(void)
{
	static const uint16_t ids[] = {0, 1, 63, 64, 0x8000, 0xfffe, 0xffff, 0x1234};
	struct vb_packet p;

	stranger_meet(&s, &(struct conf){0}, false);
	for (uint32_t i = 0; i < 8; i++) {
		p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn + i, 100 * i);
		stranger_say(&s, &p,
		             &(struct how){.id = ids[i],
		                           .sport = (uint16_t)(0xc000 + i),
		                           .tos = (uint8_t)(i << 2),
		                           .hops = (uint8_t)(1 + i * 36)});
		acked(i);
	}
	SAME(COUNTED(drop_icrc), 0);
}

/* Senders must not send these, but they must not break anything. */
static void fragments_and_options_do_no_harm(void)
{
	struct vb_packet p;

	stranger_meet(&s, &(struct conf){0}, false);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 1000);
	stranger_say(&s, &p, &(struct how){.fragment = 256, .id = 7, .only_first = true});
	stranger_say(&s, &p, &(struct how){.fragment = 8, .id = 8, .only_first = true});
	stranger_silence(&s, 20);
	stranger_say(&s, &p, &(struct how){.fragment = 256, .id = 9});
	acked(0);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn + 1, 1000);
	stranger_say(&s, &p, &(struct how){.option = true});
	while (stranger_take(&s, &c, 20))
		CHECK(c.p.bth.opcode == VB_RC_ACK);
	SAME(state_of(s.l.qp), IBV_QPS_RTS);
	stranger_say(&s, &p, NULL);
	acked(1);
}

static void the_network_s_marks_are_told_to_the_sender(void)
{
	struct vb_packet p;

	stranger_meet(&s, &(struct conf){0}, false);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 8);
	stranger_say(&s, &p, &(struct how){.tos = 2}); /* it could be marked */
	acked(0);
	p.bth.psn = vb_psn(s.l.it.psn + 1);
	stranger_say(&s, &p, &(struct how){.tos = 3});
	for (unsigned seen = 0; seen != 3;) {
		CHECK(stranger_take(&s, &c, PATIENCE));
		CHECK(c.p.bth.opcode == VB_CNP || c.p.bth.opcode == VB_RC_ACK);
		if (c.p.bth.opcode == VB_CNP)
			CHECK(c.p.bth.becn && !c.p.bth.fecn);
		seen |= c.p.bth.opcode == VB_CNP ? 1 : 2;
	}
	p = stranger_packet(&s, VB_CNP, 0, 0);
	p.bth.becn = true;
	p.bth.pkey = 0; /* has no meaning there */
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, cnp_rcvd) == 1);
	SAME(STAT(&s, cnp_sent), 1);
}

/* An RC queue pair gets the last packet of each batch. */
static void a_crowded_socket_is_told_to_each_sender_without_a_window(void)
{
	struct stranger rc;
	struct vb_packet p;

	stranger_meet(&rc, &(struct conf){0}, false);
	stranger_meet(&s, &(struct conf){.type = IBV_QPT_UC}, false);
	struct vb_node *node = vb_qp(s.l.qp)->node;

	CHECK(node == vb_qp(rc.l.qp)->node);
	vb_lock(&node->progress); /* nothing is read meanwhile */
	for (uint32_t i = 0; i < 2500; i++) {
		p = stranger_packet(&rc, VB_RC_WRITE_ONLY, rc.l.it.psn + i, 1024);
		stranger_say(&rc, &p, NULL);
		p = stranger_packet(&s, VB_UC_WRITE_ONLY, s.l.it.psn + i, 1024);
		stranger_say(&s, &p, NULL);
	}
	vb_unlock(&node->progress);
	WAIT_FOR(STAT(&s, cnp_sent) > 0);
	SAME(STAT(&rc, cnp_sent), 0);
}

static void a_checksum_may_be_missing(void)
{
	struct vb_packet p;

	stranger_meet(&s, &(struct conf){0}, true);
	p = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 8);
	stranger_say(&s, &p, &(struct how){.no_checksum = true});
	acked(0);
}

/* --- several interfaces --- */

/* Each pair sends and receives with the address of its own device. */
static void each_interface_and_address_has_its_own_pairs(void)
{
	static const struct {
		const char *device, *address;
	} at[] = {{"roce_lo", "127.0.0.1"},
	          {"roce_cable", "192.0.2.1"},
	          {"roce_cable", "192.0.2.9"},
	          {"roce_lo", "fd00::1"}};
	struct stranger of[4];

	if (system("ip link add cable type veth peer name other && ip addr add 192.0.2.1/24 dev cable && "
	           "ip addr add 192.0.2.9/24 dev cable && ip link set cable up && ip link set other up"))
		skip("no second interface can be made here");
	for (int i = 0; i < 4; i++)
		stranger_meet_at(&of[i], &(struct conf){0}, at[i].device, at[i].address);
	for (uint32_t n = 0; n < 3; n++)
		for (int i = 0; i < 4; i++) {
			stranger_request(&of[i], VB_RC_WRITE_ONLY, n, 8);
			stranger_expect(&of[i], &c, VB_RC_ACK, of[i].l.it.psn + n);
		}
	for (int i = 0; i < 3; i++) { /* to the address of another device */
		struct stranger wrong = of[i];

		memcpy(wrong.here, of[(i + 1) % 3].here, 16);
		stranger_request(&wrong, VB_RC_WRITE_ONLY, 3, 8);
	}
	WAIT_FOR(COUNTED(drop_source) == 3);
	for (int i = 0; i < 4; i++) {
		POST(&of[i].l, .op = IBV_WR_SEND, .id = 1, .m = &of[i].m, .len = 100);
		stranger_expect(&of[i], &c, VB_RC_SEND_ONLY, of[i].l.me.psn);
		struct vb_packet p = stranger_packet(&of[i], VB_RC_ACK, of[i].l.me.psn, 0);

		stranger_say(&of[i], &p, NULL);
		expect(of[i].l.scq, 1, IBV_WC_SUCCESS);
	}
	CHECK(!system("ip link del cable"));
}

/* --- datagrams --- */

static void a_datagram_shows_the_header_that_it_came_with(void)
{
	struct vb_packet p;
	uint8_t *grh;

	stranger_meet(&s, &(struct conf){.type = IBV_QPT_UD}, false);
	grh = s.m.p + 65536;
	memset(grh, 0xee, 40);
	post_recv(&s.l, 1, &s.m, 65536, 200);
	p = stranger_packet(&s, VB_UD_SEND_ONLY_IMM, 0x777777, 50);
	p.immdt.data = 0x01020304;
	stranger_say(&s, &p, &(struct how){.tos = 0xb8, .hops = 9, .id = 0x4321});
	struct ibv_wc wc = expect(s.l.rcq, 1, IBV_WC_SUCCESS);

	CHECK(wc.byte_len == 90 && wc.src_qp == STRANGER_QPN && wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
	CHECK(!memcmp(&wc.imm_data, "\1\2\3\4", 4));
	for (int i = 0; i < 20; i++)
		SAME(grh[i], 0);
	grh += 20;
	SAME(grh[0], 0x45);
	SAME(grh[1], 0xb8);
	SAME(grh[2] << 8 | grh[3], 20 + 8 + 12 + 8 + 4 + 52 + 4);
	SAME(grh[4] << 8 | grh[5], 0x4321);
	SAME(grh[6] << 8 | grh[7], 0x4000);
	SAME(grh[8], 9);
	SAME(grh[9], 17);
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)grh[i] << 8 | grh[i + 1];
	SAME((sum & 0xffff) + (sum >> 16), 0xffff);
	CHECK(!memcmp(grh + 12, s.there + 12, 4) && !memcmp(grh + 16, s.here + 12, 4));
}

static void a_datagram_over_ipv6_shows_its_header_too(void)
{
	struct vb_packet p;
	uint8_t *grh;

	stranger_meet(&s, &(struct conf){.type = IBV_QPT_UD}, true);
	grh = s.m.p + 65536;
	post_recv(&s.l, 1, &s.m, 65536, 200);
	p = stranger_packet(&s, VB_UD_SEND_ONLY, 5, 50);
	stranger_say(&s, &p, &(struct how){.tos = 0xb8, .hops = 9, .flow_label = 0xabcde});
	SAME(expect(s.l.rcq, 1, IBV_WC_SUCCESS).byte_len, 90);
	SAME((uint32_t)grh[0] << 24 | grh[1] << 16 | grh[2] << 8 | grh[3], 0x6b8abcde);
	SAME(grh[4] << 8 | grh[5], 8 + 12 + 8 + 52 + 4);
	SAME(grh[6], 17);
	SAME(grh[7], 9);
	CHECK(!memcmp(grh + 8, s.there, 16) && !memcmp(grh + 24, s.here, 16));
}

static void datagrams_with_other_keys_are_counted_and_dropped(void)
{
	struct vb_packet p;

	stranger_meet(&s, &(struct conf){.type = IBV_QPT_UD}, false);
	post_recv(&s.l, 1, &s.m, 65536, 200);
	p = stranger_packet(&s, VB_UD_SEND_ONLY, 5, 50);
	p.deth.qkey = QKEY + 1;
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, drop_qkey) == 1);
	p = stranger_packet(&s, VB_UD_SEND_ONLY, 5, 50);
	p.bth.pkey = 0x8123;
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, drop_pkey) == 1);
	CHECK(!ibv_query_port(s.d.ctx, 1, &s.d.port));
	CHECK(s.d.port.bad_pkey_cntr == 1 && s.d.port.qkey_viol_cntr == 1);
	p.bth.pkey = 0xffff;
	p.bth.dest_qpn = 0xffffff; /* to no group */
	stranger_say(&s, &p, NULL);
	p = stranger_packet(&s, VB_RC_SEND_ONLY, 5, 50);
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, drop_type) == 1);
	expect_none(s.l.rcq, 20);
	p = stranger_packet(&s, VB_UD_SEND_ONLY, 6, 50);
	stranger_say(&s, &p, &(struct how){.spoofed = true}); /* any sender may */
	expect(s.l.rcq, 1, IBV_WC_SUCCESS);
	p = stranger_packet(&s, VB_UD_SEND_ONLY, 6, 50);
	stranger_say(&s, &p, NULL);
	WAIT_FOR(STAT(&s, drop_no_receive) == 1);
}

/* --- reports --- */

static void leaves(int fd, void *arg)
{
	dup2(fd, 2);
	setenv("VERBENA_LOG", "debug", 1);
	stranger_meet(&s, &(struct conf){0}, false);
	stranger_request(&s, VB_RC_WRITE_ONLY, 0, 8);
	acked(0);
	stranger_request(&s, VB_RC_WRITE_ONLY, 0, 8);
	acked(0);
	fflush(NULL);
	exit(0); /* it closes nothing */
}

static void a_program_that_just_ends_tells_what_its_queue_pairs_counted(void)
{
	struct peer p = start(leaves, NULL);
	char text[65536];
	size_t n = 0;

	for (ssize_t k = 1; k > 0 && n<sizeof(text) - 1; n += k> 0 ? (size_t)k : 0)
		k = read(p.fd, text + n, sizeof(text) - 1 - n);
	text[n] = 0;
	CHECK(strstr(text, "RoCE: acknowledgements sent: 2\n"));
	CHECK(strstr(text, "RoCE: duplicate requests: 1\n"));
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a stranger is served", a_stranger_is_served_whatever_its_migration_bit},
	        {"a stranger without the migration bit is served", a_stranger_without_the_migration_bit_is_served},
	        {"a stranger is served over IPv6", a_stranger_is_served_over_ipv6},
	        {"our requests reach a stranger", our_requests_reach_a_stranger},
	        {"our requests reach a stranger over IPv6", our_requests_reach_a_stranger_over_ipv6},
	        {"a question is acknowledged before it is answered", a_question_is_acknowledged_before_it_is_answered},
	        {"sequence numbers go round, both ways", sequence_numbers_go_round_both_ways},
	        {"what is no packet is counted and dropped", what_is_no_packet_is_counted_and_dropped},
	        {"an opcode that is reserved is an invalid request", an_opcode_that_is_reserved_is_an_invalid_request},
	        {"what is for others is counted and dropped", what_is_for_others_is_counted_and_dropped},
	        {"memory that is not its is refused", memory_that_is_not_its_is_refused},
	        {"any identification will do", any_identification_will_do},
	        {"fragments and options do no harm", fragments_and_options_do_no_harm},
	        {"the network's marks are told to the sender", the_network_s_marks_are_told_to_the_sender},
	        {"a crowded socket is told to each sender without a window",
	         a_crowded_socket_is_told_to_each_sender_without_a_window},
	        {"a checksum may be missing", a_checksum_may_be_missing},
	        {"each interface and address has its own pairs", each_interface_and_address_has_its_own_pairs},
	        {"a datagram shows the header that it came with", a_datagram_shows_the_header_that_it_came_with},
	        {"a datagram over IPv6 shows its header, too", a_datagram_over_ipv6_shows_its_header_too},
	        {"datagrams with other keys are counted and dropped",
	         datagrams_with_other_keys_are_counted_and_dropped},
	        {"a program that just ends tells what its queue pairs counted",
	         a_program_that_just_ends_tells_what_its_queue_pairs_counted},
	};

	setenv("VERBENA_WIRE", "always", 1);
	if (!stranger_network()) {
		printf("ok # skipped: no network namespaces here\n");
		return 77;
	}
	return RUN_TESTS(argc, argv, tests);
}
