// packet_test.c - encoding and decoding packets: each header, each opcode, each possible length
// follows: IBA volume 1, 9.2, 9.3, 9.6; annex A17 (RoCEv2), A17.9.3
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/packet.h"
#include "reference.h"

/* Decodes bytes in an allocation of their length, so that a sanitizer notices reads beyond them. */
static enum vb_verdict decode(struct vb_packet *p, const uint8_t *bytes, size_t len)
{
	uint8_t *exact = malloc(len ? len : 1);

	memcpy(exact, bytes, len);
	enum vb_verdict verdict = vb_packet_decode(p, exact, len);

	free(exact);
	return verdict;
}

static enum vb_verdict decode_hex(struct vb_packet *p, const char *hex)
{
	uint8_t bytes[256];

	return decode(p, bytes, ref_hex(bytes, sizeof(bytes), hex));
}

/* Checks that p is encoded as these bytes. */
static void check_written(const struct vb_packet *p, const char *hex)
{
	uint8_t want[256], got[256];
	size_t len = ref_hex(want, sizeof(want), hex);
	struct vb_writer w = vb_writer(got, sizeof(got));

	vb_packet_encode(&w, p);
	CHECK(!w.failed && w.pos == len && !memcmp(want, got, len));
}

static void every_field_of_a_bth_has_its_place(void)
{
	struct vb_packet p = {
	        .bth = {.opcode = VB_RC_SEND_ONLY, .pkey = 0xffff, .dest_qpn = 0x123456, .psn = vb_psn(0xabcdef)}};

	check_written(&p, "04 00 ffff 00 123456 00 abcdef");
	p.bth.solicited = true;
	check_written(&p, "04 80 ffff 00 123456 00 abcdef");
	p.bth.migreq = true;
	check_written(&p, "04 c0 ffff 00 123456 00 abcdef");
	p.bth.pad = 3;
	check_written(&p, "04 f0 ffff 00 123456 00 abcdef");
	p.bth.fecn = true;
	check_written(&p, "04 f0 ffff 80 123456 00 abcdef");
	p.bth.becn = true;
	check_written(&p, "04 f0 ffff c0 123456 00 abcdef");
	p.bth.ack_req = true;
	check_written(&p, "04 f0 ffff c0 123456 80 abcdef");
	p.bth.pkey = 0x7001;
	check_written(&p, "04 f0 7001 c0 123456 80 abcdef");

	struct vb_packet q;

	CHECK(decode_hex(&q, "04 f0 7001 c0 123456 80 abcdef 58000000 00000000") == VB_PACKET_OK);
	check_written(&q, "04 f0 7001 c0 123456 80 abcdef");
	CHECK(q.payload_at == 12 && q.payload_len == 1);
	CHECK(decode_hex(&q, "04 40 8001 00 000001 00 000000 00000000") == VB_PACKET_OK);
	CHECK(!q.bth.solicited && q.bth.migreq && q.bth.pkey == 0x8001 && q.bth.dest_qpn == 1 && !q.bth.ack_req);
}

static void reserved_bits_are_not_looked_at(void)
{
	struct vb_packet p, q;

	CHECK(decode_hex(&p, "64 40 ffff 00 123456 00 abcdef 11111111 00 000011 00000000") == VB_PACKET_OK);
	CHECK(decode_hex(&q, "64 40 ffff 3f 123456 7f abcdef 11111111 ff 000011 00000000") == VB_PACKET_OK);
	check_written(&p, "64 40 ffff 00 123456 00 abcdef 11111111 00 000011");
	check_written(&q, "64 40 ffff 00 123456 00 abcdef 11111111 00 000011");
	CHECK(decode_hex(&q, "81 00 ffff 40 0000d2 00 000000 ffffffff ffffffff ffffffff ffffffff 00000000") ==
	      VB_PACKET_OK);
}

static void each_extension_header_has_its_place(void)
{
	struct vb_packet p;

	CHECK(decode_hex(&p, "0b 40 ffff 00 000011 80 000001 0123456789abcdef 11223344 55667788 99aabbcc 00000000") ==
	      VB_PACKET_OK);
	CHECK(p.info->ext == (VB_EXT_RETH | VB_EXT_IMMDT));
	CHECK(p.reth.va == 0x0123456789abcdef && p.reth.rkey == 0x11223344 && p.reth.length == 0x55667788);
	CHECK(p.immdt.data == 0x99aabbcc && p.payload_len == 0);
	check_written(&p, "0b 40 ffff 00 000011 80 000001 0123456789abcdef 11223344 55667788 99aabbcc");

	CHECK(decode_hex(&p, "13 40 ffff 00 000011 80 000001 0123456789abcdef 11223344 "
	                     "0102030405060708 1112131415161718 00000000") == VB_PACKET_OK);
	CHECK(p.atomic.va == 0x0123456789abcdef && p.atomic.rkey == 0x11223344);
	CHECK(p.atomic.swap_add == 0x0102030405060708 && p.atomic.compare == 0x1112131415161718);
	check_written(&p, "13 40 ffff 00 000011 80 000001 0123456789abcdef 11223344 0102030405060708 1112131415161718");

	/* IBA annex A19: FETH, 26 reserved bits, selectivity level, placement type; before the RETH */
	CHECK(decode_hex(&p, "1c 40 ffff 00 000011 80 000001 ffffffd1 0123456789abcdef 11223344 55667788 00000000") ==
	      VB_PACKET_OK);
	CHECK(p.info->ext == (VB_EXT_FETH | VB_EXT_RETH) && p.feth.type == 1 && p.feth.level == 1);
	CHECK(p.reth.va == 0x0123456789abcdef && p.reth.rkey == 0x11223344 && p.reth.length == 0x55667788);
	check_written(&p, "1c 40 ffff 00 000011 80 000001 00000011 0123456789abcdef 11223344 55667788");
	CHECK(decode_hex(&p, "1c 40 ffff 00 000011 80 000001 00000002 0123456789abcdef 11223344 00000000 61616161 "
	                     "00000000") == VB_PACKET_LENGTH); /* it has no payload */

	CHECK(decode_hex(&p, "1d 40 ffff 00 000011 80 000001 0123456789abcdef 11223344 00000008 0102030405060708 "
	                     "00000000") == VB_PACKET_OK);
	CHECK(p.reth.length == 8 && p.payload_at == 28 && p.payload_len == 8);

	CHECK(decode_hex(&p, "12 40 ffff 00 000011 00 000001 1f 000203 0102030405060708 00000000") == VB_PACKET_OK);
	CHECK(p.aeth.kind == VB_AETH_ACK && p.aeth.value == VB_CREDITS_UNLIMITED && p.aeth.msn == 0x000203);
	CHECK(p.atomic_ack.original == 0x0102030405060708);
	check_written(&p, "12 40 ffff 00 000011 00 000001 1f 000203 0102030405060708");

	CHECK(decode_hex(&p, "65 40 ffff 00 000011 00 000001 80010000 00 0000f1 01020304 00000000") == VB_PACKET_OK);
	CHECK(p.deth.qkey == 0x80010000 && p.deth.src_qpn == 0xf1 && p.immdt.data == 0x01020304);
	check_written(&p, "65 40 ffff 00 000011 00 000001 80010000 00 0000f1 01020304");

	CHECK(decode_hex(&p, "17 60 ffff 00 000011 80 000001 0badcafe 68690000 00000000") == VB_PACKET_OK);
	CHECK(p.ieth.rkey == 0x0badcafe && p.payload_at == 16 && p.payload_len == 2);
	check_written(&p, "17 60 ffff 00 000011 80 000001 0badcafe");
}

/* Annex A14: behind the BTH of each request, not of responses. */
static void an_xrceth_stands_first(void)
{
	struct vb_packet p;

	CHECK(decode_hex(
	              &p,
	              "ab 60 ffff 00 000011 80 000001 00 abcdef 0123456789abcdef 11223344 00000002 99aabbcc 68690000 "
	              "00000000") == VB_PACKET_OK);
	CHECK(p.info->ext == (VB_EXT_XRCETH | VB_EXT_RETH | VB_EXT_IMMDT) && p.xrceth.srqn == 0xabcdef);
	CHECK(p.reth.va == 0x0123456789abcdef && p.reth.rkey == 0x11223344 && p.immdt.data == 0x99aabbcc);
	CHECK(p.payload_at == 36 && p.payload_len == 2);
	check_written(&p, "ab 60 ffff 00 000011 80 000001 00 abcdef 0123456789abcdef 11223344 00000002 99aabbcc");
	CHECK(decode_hex(&p, "a1 40 ffff 00 000011 00 000001 ff 000001 11223344 00000000") == VB_PACKET_OK);
	CHECK(p.xrceth.srqn == 1 && p.payload_len == 4);
	check_written(&p, "a1 40 ffff 00 000011 00 000001 00 000001");
	CHECK(decode_hex(&p, "b1 40 ffff 00 000011 00 000001 1f 000001 00000000") == VB_PACKET_OK);
	CHECK(!p.xrceth.srqn && p.aeth.msn == 1);
	CHECK(decode_hex(&p, "a4 40 ffff 00 000011 00 000001 00000000") == VB_PACKET_TRUNCATED);
}

static void a_syndrome_says_ack_rnr_or_nak(void)
{
	struct vb_packet p;

	CHECK(decode_hex(&p, "11 40 ffff 00 000011 00 000001 0e ffffff 00000000") == VB_PACKET_OK);
	CHECK(p.aeth.kind == VB_AETH_ACK && vb_credits(p.aeth.value) == 128 && p.aeth.msn == 0xffffff);
	CHECK(decode_hex(&p, "11 40 ffff 00 000011 00 000001 2e 000001 00000000") == VB_PACKET_OK);
	CHECK(p.aeth.kind == VB_AETH_RNR_NAK && vb_rnr_timer_us(p.aeth.value) == 1280);
	CHECK(decode_hex(&p, "11 40 ffff 00 000011 00 000001 62 000001 00000000") == VB_PACKET_OK);
	CHECK(p.aeth.kind == VB_AETH_NAK && p.aeth.value == VB_NAK_REMOTE_ACCESS);
	CHECK(decode_hex(&p, "11 40 ffff 00 000011 00 000001 40 000001 00000000") == VB_PACKET_OK);
	CHECK(p.aeth.kind != VB_AETH_ACK && p.aeth.kind != VB_AETH_RNR_NAK && p.aeth.kind != VB_AETH_NAK);
	for (unsigned syndrome = 0; syndrome < 256; syndrome++) {
		uint8_t in[4] = {(uint8_t)syndrome, 1, 2, 3}, out[4];
		struct vb_reader r = vb_reader(in, 4);
		struct vb_writer w = vb_writer(out, 4);
		struct vb_aeth h;

		vb_aeth_decode(&r, &h);
		vb_aeth_encode(&w, &h);
		CHECK(!memcmp(in, out, 4));
	}
}

static void every_opcode_comes_back_as_it_went(void)
{
	static uint8_t bytes[REF_PACKET_MAX], again[64];
	struct vb_packet p;

	for (size_t i = 0; i < ref_opcodes_len; i++) {
		const struct ref_opcode *o = &ref_opcodes[i];
		static const size_t lens[] = {0, 1, 2, 3, 4, 255, 256, 1024, 4095, 4096};

		for (size_t k = 0; k < sizeof(lens) / sizeof(*lens); k++) {
			if ((lens[k] && !o->payload) || (lens[k] % 4 && !o->last))
				continue;
			size_t len = ref_packet(bytes, o, lens[k]);
			struct vb_writer w = vb_writer(again, sizeof(again));

			CHECK(decode(&p, bytes, len) == VB_PACKET_OK);
			CHECK(p.payload_at == o->header_len && p.payload_len == lens[k]);
			CHECK(p.bth.pad == (-lens[k] & 3));
			vb_packet_encode(&w, &p);
			CHECK(!w.failed && w.pos == o->header_len && !memcmp(again, bytes, w.pos));
		}
	}
}

static void headers_that_a_packet_has_not_are_zeros(void)
{
	struct vb_packet p;
	uint8_t bytes[64];

	memset(&p, 0xff, sizeof(p));
	CHECK(decode(&p, bytes, ref_packet(bytes, &ref_opcodes[4], 0)) == VB_PACKET_OK);
	CHECK(!p.deth.qkey && !p.deth.src_qpn && !p.reth.va && !p.reth.rkey && !p.reth.length);
	CHECK(!p.atomic.va && !p.atomic.rkey && !p.atomic.swap_add && !p.atomic.compare);
	CHECK(!p.aeth.kind && !p.aeth.value && !p.aeth.msn && !p.atomic_ack.original && !p.immdt.data && !p.ieth.rkey);
	CHECK(!p.cnp.reserved[0] && !p.cnp.reserved[1]);
}

static void a_packet_that_ends_too_early_is_refused_at_every_length(void)
{
	static uint8_t bytes[REF_PACKET_MAX], untouched[sizeof(struct vb_packet)];

	memset(untouched, 0x77, sizeof(untouched));

	for (size_t i = 0; i < ref_opcodes_len; i++) {
		const struct ref_opcode *o = &ref_opcodes[i];
		size_t len = ref_packet(bytes, o, o->payload ? 64 : 0);

		for (size_t cut = 0; cut < len; cut++) {
			struct vb_packet p;

			memcpy(&p, untouched, sizeof(p));
			enum vb_verdict verdict = decode(&p, bytes, cut);

			if (cut < o->header_len + 4) {
				CHECK(verdict == VB_PACKET_TRUNCATED);
				CHECK(!memcmp(&p, untouched, sizeof(p)));
			} else if (cut % 4) {
				CHECK(verdict == VB_PACKET_LENGTH);
				CHECK(!memcmp(&p, untouched, sizeof(p)));
			} else {
				CHECK(verdict == VB_PACKET_OK && p.payload_len == cut - o->header_len - 4);
			}
		}
	}
}

static void every_opcode_byte_is_decoded_or_refused(void)
{
	uint8_t bytes[64];
	struct vb_packet p;
	unsigned known = 0;

	for (unsigned code = 0; code < 256; code++) {
		memset(bytes, 0, sizeof(bytes));
		bytes[0] = (uint8_t)code;
		enum vb_verdict verdict = decode(&p, bytes, sizeof(bytes));
		struct vb_writer w = vb_writer(bytes, sizeof(bytes));

		if (verdict != VB_PACKET_OPCODE) {
			known++;
			continue;
		}
		vb_packet_encode(&w, &(struct vb_packet){.bth.opcode = (uint8_t)code});
		CHECK(w.failed && w.pos == 0);
	}
	CHECK(known == ref_opcodes_len);
}

static void another_transport_version_is_refused_before_anything_else(void)
{
	struct vb_packet p;

	CHECK(decode_hex(&p, "04 41 ffff 00 000011 80 000001 00000000") == VB_PACKET_TVER);
	CHECK(decode_hex(&p, "ff 4f ffff 00 000011 80 000001 00000000") == VB_PACKET_TVER);
	CHECK(decode_hex(&p, "ff 40 ffff 00 000011 80 000001 00000000") == VB_PACKET_OPCODE);
}

static void pad_stands_only_behind_a_payload_of_its_size_or_more(void)
{
	struct vb_packet p;

	CHECK(decode_hex(&p, "04 70 ffff 00 000011 80 000001 41000000 00000000") == VB_PACKET_OK);
	CHECK(p.payload_len == 1);
	CHECK(decode_hex(&p, "04 70 ffff 00 000011 80 000001 00000000") == VB_PACKET_PAD);          /* no payload */
	CHECK(decode_hex(&p, "01 50 ffff 00 000011 80 000001 41000000 00000000") == VB_PACKET_PAD); /* middle */
	CHECK(decode_hex(&p, "00 50 ffff 00 000011 80 000001 41000000 00000000") == VB_PACKET_PAD); /* first */
	/* acknowledgement */
	CHECK(decode_hex(&p, "11 50 ffff 00 000011 80 000001 1f000001 00000000") == VB_PACKET_PAD);
}

static void payload_stands_only_where_an_opcode_has_it(void)
{
	static uint8_t bytes[REF_PACKET_MAX + 4];
	struct vb_packet p;

	CHECK(decode_hex(&p, "11 40 ffff 00 000011 80 000001 1f000001 00000000 00000000") == VB_PACKET_LENGTH);
	CHECK(decode_hex(&p, "0c 40 ffff 00 000011 80 000001 0000000000000000 00000000 00000000 "
	                     "00000000 00000000") == VB_PACKET_LENGTH);
	bytes[0] = VB_RC_SEND_ONLY;
	CHECK(decode(&p, bytes, 12 + 4096 + 4) == VB_PACKET_OK && p.payload_len == 4096);
	CHECK(decode(&p, bytes, 12 + 4100 + 4) == VB_PACKET_LONG);
	bytes[1] = 3 << 4;
	CHECK(decode(&p, bytes, 12 + 4096 + 4) == VB_PACKET_OK && p.payload_len == 4093);
	CHECK(decode(&p, bytes, 12 + 4100 + 4) == VB_PACKET_LONG); /* 4097 and pad */
}

static void a_header_is_not_written_where_it_does_not_fit(void)
{
	uint8_t bytes[64];

	for (size_t i = 0; i < ref_opcodes_len; i++) {
		for (size_t room = 0; room <= ref_opcodes[i].header_len; room++) {
			struct vb_writer w = vb_writer(bytes, room);

			vb_packet_encode(&w, &(struct vb_packet){.bth.opcode = ref_opcodes[i].code});
			CHECK(w.failed == (room < ref_opcodes[i].header_len) && w.pos <= room);
		}
	}
}

static void every_verdict_has_its_words(void)
{
	for (int v = VB_PACKET_OK; v <= VB_PACKET_LONG; v++)
		CHECK(vb_verdict_text(v) && *vb_verdict_text(v));
}

int main(void)
{
	RUN(every_field_of_a_bth_has_its_place);
	RUN(reserved_bits_are_not_looked_at);
	RUN(each_extension_header_has_its_place);
	RUN(an_xrceth_stands_first);
	RUN(a_syndrome_says_ack_rnr_or_nak);
	RUN(every_opcode_comes_back_as_it_went);
	RUN(headers_that_a_packet_has_not_are_zeros);
	RUN(a_packet_that_ends_too_early_is_refused_at_every_length);
	RUN(every_opcode_byte_is_decoded_or_refused);
	RUN(another_transport_version_is_refused_before_anything_else);
	RUN(pad_stands_only_behind_a_payload_of_its_size_or_more);
	RUN(payload_stands_only_where_an_opcode_has_it);
	RUN(a_header_is_not_written_where_it_does_not_fit);
	RUN(every_verdict_has_its_words);
	return 0;
}
