// opcode_test.c - the table of opcodes, compared with one copied from the specification
// follows: IBA volume 1, 9.2 (OpCode field of the BTH), 9.7.5.2, 9.7.7.2; annex A17 (RoCEv2), A17.9.3
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/opcode.h"
#include "reference.h"

static unsigned ext_of(const char *headers)
{
	static const char letters[] = "dfxrtakivc";
	static const unsigned bits[] = {VB_EXT_DETH, VB_EXT_FETH,       VB_EXT_XRCETH, VB_EXT_RETH, VB_EXT_ATOMIC,
	                                VB_EXT_AETH, VB_EXT_ATOMIC_ACK, VB_EXT_IMMDT,  VB_EXT_IETH, VB_EXT_CNP};
	unsigned ext = 0;

	for (; *headers; headers++)
		ext |= bits[strchr(letters, *headers) - letters];
	return ext;
}

static void rows_are_those_of_the_specification(void)
{
	for (size_t i = 0; i < ref_opcodes_len; i++) {
		const struct ref_opcode *o = &ref_opcodes[i];
		const struct vb_opcode_info *info = vb_opcode_info(o->code);

		CHECK(info && !strcmp(info->name, o->name));
		CHECK(info->header_len == o->header_len);
		CHECK(info->ext == ext_of(o->headers));
		CHECK(!(info->flags & VB_PAYLOAD) == !o->payload);
		CHECK(!(info->flags & VB_FIRST) == !o->first);
		CHECK(!(info->flags & VB_LAST) == !o->last);
		CHECK((o->code & 0xe0) == info->service);
	}
}

static void every_other_opcode_is_a_hole(void)
{
	size_t rows = 0;

	for (unsigned code = 0; code < 256; code++)
		rows += vb_opcode_info((uint8_t)code) != NULL;
	CHECK(rows == ref_opcodes_len);
	CHECK(!vb_opcode_info(0x15) && !vb_opcode_info(0x18) && !vb_opcode_info(0x36) && !vb_opcode_info(0x60));
	CHECK(!vb_opcode_info(0x44) && !vb_opcode_info(0xb5) && !vb_opcode_info(0xb8) && !vb_opcode_info(0xbe) &&
	      !vb_opcode_info(0x80) && !vb_opcode_info(0xff));
}

static unsigned flags_of(enum vb_opcode code)
{
	return vb_opcode_info(code)->flags & ~VB_ONLY;
}

static void flags_say_what_a_packet_asks_for(void)
{
	CHECK(flags_of(VB_RC_SEND_FIRST) == (VB_REQUEST | VB_PAYLOAD | VB_TAKES_RECEIVE));
	CHECK(flags_of(VB_RC_SEND_MIDDLE) == (VB_REQUEST | VB_PAYLOAD));
	CHECK(flags_of(VB_RC_SEND_LAST_INV) == (VB_REQUEST | VB_PAYLOAD | VB_COMPLETES_RECEIVE));
	CHECK(flags_of(VB_UD_SEND_ONLY) == (VB_REQUEST | VB_PAYLOAD | VB_TAKES_RECEIVE | VB_COMPLETES_RECEIVE));
	CHECK(flags_of(VB_UC_WRITE_FIRST) == (VB_REQUEST | VB_PAYLOAD));
	CHECK(flags_of(VB_RC_WRITE_LAST) == (VB_REQUEST | VB_PAYLOAD));
	CHECK(flags_of(VB_RC_WRITE_LAST_IMM) == (VB_REQUEST | VB_PAYLOAD | VB_TAKES_RECEIVE | VB_COMPLETES_RECEIVE));
	CHECK(flags_of(VB_UC_WRITE_ONLY_IMM) == (VB_REQUEST | VB_PAYLOAD | VB_TAKES_RECEIVE | VB_COMPLETES_RECEIVE));
	CHECK(flags_of(VB_RC_READ_REQUEST) == (VB_REQUEST | VB_ANSWERED));
	CHECK(flags_of(VB_RC_FETCH_ADD) == (VB_REQUEST | VB_ANSWERED));
	CHECK(flags_of(VB_RC_CMP_SWAP) == (VB_REQUEST | VB_ANSWERED));
	CHECK(flags_of(VB_RC_FLUSH) == (VB_REQUEST | VB_ANSWERED));
	CHECK(flags_of(VB_RC_ATOMIC_WRITE) == (VB_REQUEST | VB_ANSWERED | VB_PAYLOAD));
	CHECK(flags_of(VB_XRC_FLUSH) == flags_of(VB_RC_FLUSH));
	CHECK(flags_of(VB_XRC_ATOMIC_WRITE) == flags_of(VB_RC_ATOMIC_WRITE));
	CHECK(flags_of(VB_RC_READ_RESPONSE_MIDDLE) == (VB_RESPONSE | VB_PAYLOAD));
	CHECK(flags_of(VB_RC_ACK) == VB_RESPONSE);
	CHECK(flags_of(VB_RC_ATOMIC_ACK) == VB_RESPONSE);
	CHECK(flags_of(VB_CNP) == 0);
}

static void an_opcode_is_found_by_what_it_is(void)
{
	for (unsigned code = 0; code < 256; code++) {
		const struct vb_opcode_info *info = vb_opcode_info((uint8_t)code);

		if (info)
			CHECK(vb_opcode_find(info->service, info->op, info->flags & VB_ONLY,
			                     info->ext & (VB_EXT_IMMDT | VB_EXT_IETH)) == (int)code);
	}
	CHECK(vb_opcode_find(VB_SVC_RC, VB_OP_WRITE, VB_ONLY, VB_EXT_IMMDT) == VB_RC_WRITE_ONLY_IMM);
	CHECK(vb_opcode_find(VB_SVC_UC, VB_OP_SEND, VB_MIDDLE, 0) == VB_UC_SEND_MIDDLE);
	CHECK(vb_opcode_find(VB_SVC_UC, VB_OP_SEND, VB_LAST, VB_EXT_IETH) == -1);
	CHECK(vb_opcode_find(VB_SVC_UD, VB_OP_SEND, VB_FIRST, 0) == -1);
	CHECK(vb_opcode_find(VB_SVC_RC, VB_OP_SEND, VB_FIRST, VB_EXT_IMMDT) == -1);
	CHECK(vb_opcode_find(VB_SVC_UC, VB_OP_READ, VB_ONLY, 0) == -1);
	CHECK(vb_opcode_find(VB_SVC_CNP, VB_OP_CNP, VB_ONLY, 0) == VB_CNP);
	CHECK(vb_opcode_find(VB_SVC_XRC, VB_OP_SEND, VB_LAST, VB_EXT_IETH) == VB_XRC_SEND_LAST_INV);
}

/* IBA volume 1, 9.7.7.2: the table of credit codes */
static void credit_codes_are_those_of_the_specification(void)
{
	static const uint32_t credits[31] = {0,    1,    2,    3,    4,    6,     8,     12,    16,   24,   32,
	                                     48,   64,   96,   128,  192,  256,   384,   512,   768,  1024, 1536,
	                                     2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

	for (uint8_t code = 0; code < 31; code++) {
		CHECK(vb_credits(code) == credits[code]);
		CHECK(vb_credit_code(credits[code]) == code);
		if (code > 2)
			CHECK(vb_credit_code(credits[code] - 1) == code - 1);
	}
	CHECK(vb_credit_code(5) == 4 && vb_credit_code(11) == 6);
	CHECK(vb_credit_code(UINT32_MAX) == 30); /* 31 would mean that credits are not counted */
}

/* IBA volume 1, 9.7.5.2.8, table 45, in units of 10 microseconds */
static void rnr_timers_are_those_of_the_specification(void)
{
	static const uint32_t timers[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
	                                    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
	                                    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

	for (uint8_t code = 0; code < 32; code++)
		CHECK(vb_rnr_timer_us(code) == timers[code] * 10);
	CHECK(vb_rnr_timer_us(31) == 491520);
}

int main(void)
{
	RUN(rows_are_those_of_the_specification);
	RUN(every_other_opcode_is_a_hole);
	RUN(flags_say_what_a_packet_asks_for);
	RUN(an_opcode_is_found_by_what_it_is);
	RUN(credit_codes_are_those_of_the_specification);
	RUN(rnr_timers_are_those_of_the_specification);
	return 0;
}
