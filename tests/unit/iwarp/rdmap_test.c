// rdmap_test.c - DDP segments and RDMAP messages, byte by byte
// follows: RFC 5040, 4; RFC 5041, 4; RFC 7306, 5, 6
// SPDX-License-Identifier: MIT
#include <string.h>

#include "fixture.h"

static void same(const struct vb_writer *w, const void *bytes, size_t len)
{
	CHECK(!w->failed && w->pos == len && !memcmp(w->bytes, bytes, len));
}

static void a_tagged_header(void)
{
	static const uint8_t bytes[] = {0xc1, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18};
	struct vb_ddp h, g = {.tagged = true,
	                      .last = true,
	                      .dv = 1,
	                      .rv = 1,
	                      .opcode = VB_RDMAP_WRITE,
	                      .stag = 0x01020304,
	                      .to = 0x1112131415161718};
	struct vb_reader r = vb_reader(bytes, sizeof(bytes));
	uint8_t out[32];
	struct vb_writer w = vb_writer(out, sizeof(out));

	vb_ddp_decode(&r, &h);
	CHECK(!r.failed && !vb_left(&r) && h.tagged && h.last && h.dv == 1 && h.rv == 1 && h.opcode == VB_RDMAP_WRITE);
	CHECK(h.stag == g.stag && h.to == g.to);
	vb_ddp_encode(&w, &g);
	same(&w, bytes, sizeof(bytes));
}

static void an_untagged_header(void)
{
	static const uint8_t bytes[] = {0x41, 0x46, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 0, 0};
	struct vb_ddp h;
	struct vb_reader r = vb_reader(bytes, sizeof(bytes));
	uint8_t out[32];
	struct vb_writer w = vb_writer(out, sizeof(out));

	vb_ddp_decode(&r, &h);
	CHECK(!r.failed && !vb_left(&r) && !h.tagged && h.last && h.opcode == VB_RDMAP_SEND_SE_INVALIDATE);
	CHECK(h.stag == 9 && h.qn == 0 && h.msn == 5 && h.mo == 0x10000);
	vb_ddp_encode(&w, &h);
	same(&w, bytes, sizeof(bytes));
	r = vb_reader(bytes, sizeof(bytes) - 1);
	vb_ddp_decode(&r, &h);
	CHECK(r.failed);
}

static void a_read_request(void)
{
	static const uint8_t bytes[] = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0,
	                                0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5};
	struct vb_read_request h;
	struct vb_reader r = vb_reader(bytes, sizeof(bytes));
	uint8_t out[VB_READ_REQUEST_LEN];
	struct vb_writer w = vb_writer(out, sizeof(out));

	vb_read_request_decode(&r, &h);
	CHECK(h.sink_stag == 1 && h.sink_to == 2 && h.length == 3 && h.stag == 4 && h.to == 5 && !vb_left(&r));
	vb_read_request_encode(&w, &h);
	same(&w, bytes, sizeof(bytes));
}

static void an_atomic_and_its_response(void)
{
	uint8_t bytes[VB_ATOMIC_REQUEST_LEN] = {0}, out[VB_ATOMIC_REQUEST_LEN];
	struct vb_reader r = vb_reader(bytes, sizeof(bytes));
	struct vb_writer w = vb_writer(out, sizeof(out)), v = vb_writer(out, sizeof(out));
	struct vb_atomic_request h;

	bytes[3] = VB_RDMAP_CMP_SWAP;
	for (uint8_t i = 0; i < 7; i++)
		bytes[i < 2 ? 7 + 4 * i : 19 + 8 * (i - 2)] = (uint8_t)(i + 1);
	vb_atomic_request_decode(&r, &h);
	CHECK(h.op == VB_RDMAP_CMP_SWAP && h.id == 1 && h.stag == 2 && h.to == 3 && h.swap_add == 4 &&
	      h.swap_add_mask == 5);
	CHECK(h.compare == 6 && h.compare_mask == 7 && !vb_left(&r));
	vb_atomic_request_encode(&w, &h);
	same(&w, bytes, sizeof(bytes));
	vb_atomic_response_encode(&v, &(struct vb_atomic_response){.id = 1, .original = 0x0203040506070809});
	same(&v, (uint8_t[]){0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, VB_ATOMIC_RESPONSE_LEN);
}

static void facts_follow_from_the_opcode(void)
{
	CHECK(vb_rdmap_table[VB_RDMAP_SEND_SE_INVALIDATE].flags ==
	      (VB_RDMAP_PAYLOAD | VB_RDMAP_RECEIVES | VB_RDMAP_SOLICITED | VB_RDMAP_INVALIDATES));
	CHECK(vb_rdmap_table[VB_RDMAP_ATOMIC_RESPONSE].queue == 3 && vb_rdmap_table[VB_RDMAP_IMMEDIATE_SE].body == 8);
	CHECK(!vb_rdmap_table[12].name && !vb_rdmap_table[15].name && VB_RDMAP_TERMINATE == 7);
}

static void terminate_round_trip(bool ddp, bool tagged, bool rdma, uint8_t opcode, uint32_t expected)
{
	struct vb_terminate back,
	        t = {.term = VB_TERM_PROTECTION_BOUNDS,
	             .has_ddp = ddp,
	             .has_rdma = rdma,
	             .segment_len = 46,
	             .ddp = {.tagged = tagged, .last = true, .dv = 1, .rv = 1, .opcode = opcode, .msn = 3}};
	uint8_t bytes[VB_TERMINATE_MAX];
	struct vb_writer w = vb_writer(bytes, sizeof(bytes));

	memset(t.rdma, 0x3c, sizeof(t.rdma));
	vb_terminate_encode(&w, &t);
	CHECK(!w.failed && w.pos == expected && bytes[0] == 0x01 && bytes[1] == 0x01);
	CHECK(bytes[2] == (ddp ? 0xc0 : 0) + (rdma ? 0x20 : 0) && bytes[3] == 0);
	CHECK(vb_terminate_decode(&back, bytes, w.pos) && back.term == t.term && back.has_ddp == ddp &&
	      back.has_rdma == rdma);
	CHECK(!ddp || (back.segment_len == 46 && back.ddp.opcode == opcode && back.ddp.tagged == tagged));
	CHECK(!rdma || !memcmp(back.rdma, t.rdma, sizeof(t.rdma)));
	/* truncated fields are missing */
	for (size_t len = 0; len < w.pos; len++)
		CHECK(vb_terminate_decode(&back, bytes, len) == (len >= 4) && !back.has_rdma);
}

static void a_terminate_with_the_headers_it_is_about(void)
{
	terminate_round_trip(false, false, false, VB_RDMAP_SEND, 4);
	terminate_round_trip(true, false, false, VB_RDMAP_SEND, 4 + 2 + 18);
	terminate_round_trip(true, true, false, VB_RDMAP_WRITE, 4 + 2 + 14);
	terminate_round_trip(true, false, true, VB_RDMAP_READ_REQUEST, VB_TERMINATE_MAX);
	terminate_round_trip(true, false, false, VB_RDMAP_ATOMIC_REQUEST, 4 + 2 + 18);
}

/* As sent by Linux 6.1 about a Read Request: the same code, but with swapped layer and error type, and swapped M, D,
 * R. */
static void a_terminate_of_siw(void)
{
	uint8_t bytes[4 + 2 + 18 + 28] = {0x10, 0x01, 0x07, 0x00, 0x00, 0x00, 0x41, 0x41},
	                           refused[] = {0x20, 0x06, 0x00, 0x00};
	struct vb_terminate t;

	CHECK(vb_terminate_decode(&t, bytes, sizeof(bytes)) && t.term == VB_TERM_PROTECTION_BOUNDS);
	CHECK(t.has_ddp && t.has_rdma && t.ddp.opcode == VB_RDMAP_READ_REQUEST);
	bytes[2] = 0x03;
	CHECK(vb_terminate_decode(&t, bytes, sizeof(bytes)) && t.term == VB_TERM_PROTECTION_BOUNDS && t.has_ddp &&
	      !t.has_rdma);
	/* without headers it is taken literally */
	CHECK(vb_terminate_decode(&t, refused, sizeof(refused)) && t.term == VB_TERM_MPA_IRD);
}

static void codes_have_their_words(void)
{
	CHECK(VB_TERM_MPA_CRC == 0x2002 && VB_TERM_UNTAGGED_TOO_LONG == 0x1205 && VB_TERM_OPERATION_OPCODE == 0x0206);
	CHECK(!strcmp(vb_term_text(VB_TERM_MPA_CRC), "MPA: CRC error") && !strcmp(vb_term_text(0xffff), "unknown"));
}

int main(void)
{
	RUN(a_tagged_header);
	RUN(an_untagged_header);
	RUN(a_read_request);
	RUN(an_atomic_and_its_response);
	RUN(facts_follow_from_the_opcode);
	RUN(a_terminate_with_the_headers_it_is_about);
	RUN(a_terminate_of_siw);
	RUN(codes_have_their_words);
	return 0;
}
