// message_test.c - a message as packets: opcodes, PSNs, headers, lengths; the headers in front of them
// follows: IBA volume 1, 9.2, 9.3, 9.7; RFC 791, RFC 768, RFC 9293, RFC 1071
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/ethernet.h"
#include "frame/icrc.h"
#include "frame/message.h"
#include "reference.h"

/* Checks packet i: its opcode, its PSN, its part of the payload. */
static void check_packet(const struct vb_message *m, uint32_t i, uint8_t opcode, uint32_t psn, uint32_t offset,
                         uint32_t len)
{
	uint8_t head[VB_MESSAGE_HEAD_MAX], pad;
	uint32_t at, n;
	size_t head_len = vb_message_head(m, i, head, &at, &n, &pad);

	SAME(head_len, vb_opcode_info(opcode)->header_len);
	SAME(head[0], opcode);
	SAME(vb_bth_psn(head).v, psn);
	SAME(vb_bth_dest_qpn(head), m->dest_qpn);
	SAME(head[1] >> 4 & 3, pad);
	SAME(pad, -len & 3);
	if (len) {
		SAME(at, offset);
	}
	SAME(n, len);
}

static void a_send_is_split_at_the_path_mtu(void)
{
	struct vb_message m = {.service = VB_SVC_RC,
	                       .op = VB_OP_SEND,
	                       .tail = VB_EXT_IMMDT,
	                       .length = 2050,
	                       .mtu = 1024,
	                       .dest_qpn = 0x123456,
	                       .psn = vb_psn(0xffffff),
	                       .pkey = 0xffff};

	SAME(vb_message_packets(&m), 3);
	SAME(vb_message_psns(&m), 3);
	check_packet(&m, 0, VB_RC_SEND_FIRST, 0xffffff, 0, 1024);
	check_packet(&m, 1, VB_RC_SEND_MIDDLE, 0, 1024, 1024);
	check_packet(&m, 2, VB_RC_SEND_LAST_IMM, 1, 2048, 2);
	m.length = 1024;
	SAME(vb_message_packets(&m), 1);
	check_packet(&m, 0, VB_RC_SEND_ONLY_IMM, 0xffffff, 0, 1024);
	m.length = 0;
	m.tail = VB_EXT_IETH;
	check_packet(&m, 0, VB_RC_SEND_ONLY_INV, 0xffffff, 0, 0);
	m.service = VB_SVC_UC; /* which has no invalidate */
	uint32_t at, n;
	uint8_t head[VB_MESSAGE_HEAD_MAX], pad;
	SAME(vb_message_head(&m, 0, head, &at, &n, &pad), 0);
}

static void a_read_takes_the_psns_of_its_response(void)
{
	struct vb_message m = {.service = VB_SVC_RC, .op = VB_OP_READ, .length = 3000, .mtu = 1024, .psn = vb_psn(5)};

	SAME(vb_message_packets(&m), 1);
	SAME(vb_message_psns(&m), 3);
	check_packet(&m, 0, VB_RC_READ_REQUEST, 5, 0, 0);
	m.op = VB_OP_READ_RESPONSE;
	SAME(vb_message_packets(&m), 3);
	check_packet(&m, 0, VB_RC_READ_RESPONSE_FIRST, 5, 0, 1024);
	check_packet(&m, 1, VB_RC_READ_RESPONSE_MIDDLE, 6, 1024, 1024);
	check_packet(&m, 2, VB_RC_READ_RESPONSE_LAST, 7, 2048, 952);
}

/* IBA annexes A19, A20. */
static void a_flush_has_no_payload_and_an_atomic_write_has_eight_bytes(void)
{
	struct vb_message m = {.service = VB_SVC_RC,
	                       .op = VB_OP_FLUSH,
	                       .mtu = 1024,
	                       .psn = vb_psn(5),
	                       .feth = {2, 1},
	                       .reth = {0x10, 0x20, 1 << 20}};
	uint8_t bytes[VB_MESSAGE_HEAD_MAX + VB_ICRC_LEN] = {0}, pad;
	struct vb_packet p;
	uint32_t at, n;

	SAME(vb_message_packets(&m), 1);
	SAME(vb_message_psns(&m), 1);
	check_packet(&m, 0, VB_RC_FLUSH, 5, 0, 0);
	size_t len = vb_message_head(&m, 0, bytes, &at, &n, &pad);

	SAME(vb_packet_decode(&p, bytes, len + VB_ICRC_LEN), VB_PACKET_OK);
	CHECK(p.feth.type == 2 && p.feth.level == 1 && p.reth.length == 1 << 20);
	m.op = VB_OP_ATOMIC_WRITE;
	m.length = m.reth.length = 8;
	SAME(vb_message_packets(&m), 1);
	check_packet(&m, 0, VB_RC_ATOMIC_WRITE, 5, 0, 8);
}

static void headers_are_decoded_as_they_were_given(void)
{
	struct vb_message m = {.service = VB_SVC_RC,
	                       .op = VB_OP_CMP_SWAP,
	                       .length = 8,
	                       .mtu = 1024,
	                       .atomic = {0x1122334455667788, 0xaabbccdd, 7, 9}};
	uint8_t bytes[VB_MESSAGE_HEAD_MAX + VB_ICRC_LEN] = {0}, pad;
	struct vb_packet p;
	uint32_t at, n;
	size_t len = vb_message_head(&m, 0, bytes, &at, &n, &pad);

	SAME(vb_packet_decode(&p, bytes, len + VB_ICRC_LEN), VB_PACKET_OK);
	CHECK(p.atomic.va == m.atomic.va && p.atomic.rkey == m.atomic.rkey && p.atomic.swap_add == 7 &&
	      p.atomic.compare == 9 && p.bth.ack_req);
	SAME(n, 0);
	m.op = VB_OP_ACK;
	m.aeth = (struct vb_aeth){VB_AETH_NAK, VB_NAK_REMOTE_ACCESS, 3};
	len = vb_message_head(&m, 0, bytes, &at, &n, &pad);
	SAME(vb_packet_decode(&p, bytes, len + VB_ICRC_LEN), VB_PACKET_OK);
	CHECK(p.aeth.kind == VB_AETH_NAK && p.aeth.value == VB_NAK_REMOTE_ACCESS && p.aeth.msn == 3 && !p.bth.ack_req);
}

static const struct vb_flow v4 = {.src = {[10] = 0xff, [11] = 0xff, 192, 0, 2, 1},
                                  .dst = {[10] = 0xff, [11] = 0xff, 192, 0, 2, 2},
                                  .sport = 0xc123,
                                  .dport = 4791};
static const struct vb_flow v6 = {
        .src = {0x20, 1, 0xd, 0xb8, [15] = 1}, .dst = {0x20, 1, 0xd, 0xb8, [15] = 2}, .sport = 0xc123, .dport = 4791};

/* The sum of all words of a header or a segment is all ones if its checksum is right. */
static uint32_t word_sum(uint32_t sum, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum += (uint32_t)bytes[i] << (i % 2 ? 0 : 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void a_packet_has_the_icrc_that_other_code_computes(void)
{
	const struct vb_flow *flows[2] = {&v4, &v6};

	for (int i = 0; i < 2; i++) {
		uint8_t frame[256];
		const struct vb_ip_fields ip = {.hop_limit = 64, .traffic_class = 2, .id = 3};
		size_t at = vb_frame_udp(frame, flows[i], &ip, 24), len = at + 24;

		memset(frame + at, 0, 24);
		frame[at] = VB_RC_SEND_ONLY;
		memset(frame + at + 12, 0x5a, 8);
		vb_icrc_encode(frame + len - 4,
		               vb_crc32(vb_icrc_start(flows[i], 3, frame + at, 12, 24), frame + at + 12, 8));
		vb_frame_finish(frame, len, frame);
		CHECK(ref_icrc_ok(frame + VB_ETHERNET_LEN, len - VB_ETHERNET_LEN));
		if (!i)
			SAME(word_sum(0, frame + VB_ETHERNET_LEN, VB_IPV4_LEN), 0xffff);
		else /* the pseudo header: addresses, length, protocol */
			SAME(word_sum(32 + 17 + word_sum(0, frame + 22, 32), frame + 54, 32), 0xffff);
	}
}

static void a_segment_has_its_numbers_and_a_right_checksum(void)
{
	uint8_t frame[128];
	size_t at = vb_frame_tcp(frame, &v4, &(struct vb_tcp_fields){0x01020304, 0x0a0b0c0d}, 5);

	SAME(at, 14 + 20 + 20);
	memcpy(frame + at, "hello", 5);
	vb_frame_finish(frame, at + 5, frame);
	SAME(frame[23], 6);
	SAME(frame[16] << 8 | frame[17], 45);
	SAME(word_sum(0, frame + 14, 20), 0xffff);
	CHECK(!memcmp(frame + 38, "\1\2\3\4\x0a\x0b\x0c\x0d", 8));
	SAME(word_sum(25 + 6 + word_sum(0, frame + 26, 8), frame + 34, 25), 0xffff);
}

/* The frame is in memory that another process may write. */
static void a_checksum_stays_inside_a_frame_whose_headers_change(void)
{
	uint8_t head[VB_FRAME_HEAD_MAX], frame[128], behind[sizeof(frame)];
	size_t len = vb_frame_tcp(head, &v4, &(struct vb_tcp_fields){1, 2}, 0);

	memset(behind, 0x5a, sizeof(behind));
	memset(frame, 0x5a, sizeof(frame));
	memcpy(frame, head, len);
	frame[12] = 0x86; /* as if an IPv6 header followed */
	vb_frame_finish(frame, len, head);
	CHECK(!memcmp(frame + len, behind, sizeof(frame) - len));
}

int main(void)
{
	a_send_is_split_at_the_path_mtu();
	a_read_takes_the_psns_of_its_response();
	a_flush_has_no_payload_and_an_atomic_write_has_eight_bytes();
	headers_are_decoded_as_they_were_given();
	a_packet_has_the_icrc_that_other_code_computes();
	a_segment_has_its_numbers_and_a_right_checksum();
	a_checksum_stays_inside_a_frame_whose_headers_change();
	return 0;
}
