// fuzz_mpa.c - hostile MPA frames, markers and Terminates: decoded frames encode to the same bytes, and no more is
// agreed on than was offered
// follows: RFC 5044, 4, 7.1; RFC 6581; RFC 5040, 4.8
// build: tests/fuzz/run 60 mpa
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#define CHECK_FAILED(...) abort() /* the fuzzer says which input it was */
#include "../support/check.h"
#include "frame/mpa.h"
#include "frame/rdmap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_terms(const struct vb_mpa_terms *terms, const struct vb_mpa_wish *wish)
{
	CHECK(terms->ird <= wish->ird && terms->ord <= wish->ord);
	CHECK(!(terms->rtr & (terms->rtr - 1)) && !(terms->rtr & ~wish->rtr));
	CHECK(terms->crc || !wish->crc);
}

static void agree(const struct vb_mpa_frame *frame, uint8_t how)
{
	struct vb_mpa_wish wish = {.revision = how & 1 ? 2 : 1,
	                           .crc = how & 2,
	                           .peer_to_peer = how & 4,
	                           .rtr = how >> 3 & 7,
	                           .ird = how & 64 ? 0xffff : 16,
	                           .ord = how & 128 ? 0 : 16,
	                           .strict = how & 64};
	struct vb_mpa_terms terms;
	struct vb_mpa_frame reply;

	if (frame->reply) {
		if (vb_mpa_conclude(&terms, &wish, frame) == VB_MPA_AGREED)
			check_terms(&terms, &wish);
		return;
	}
	if (vb_mpa_answer(&reply, &terms, &wish, frame) == VB_MPA_AGREED) {
		check_terms(&terms, &wish);
		CHECK(!reply.reject && reply.revision <= frame->revision);
	}
}

static void frames(const uint8_t *bytes, size_t len, bool reply, uint8_t how)
{
	uint8_t again[VB_MPA_FRAME_MAX];
	struct vb_writer w = vb_writer(again, sizeof(again));
	struct vb_mpa_frame f, g;
	size_t used, used_again;

	if (vb_mpa_decode(&f, &used, bytes, len, reply) != VB_MPA_OK)
		return;
	CHECK(used <= len && used >= VB_MPA_FRAME_LEN);
	vb_mpa_encode(&w, &f);
	CHECK(!w.failed && w.pos == used);
	CHECK(vb_mpa_decode(&g, &used_again, again, w.pos, reply) == VB_MPA_OK && used_again == used);
	CHECK(g.private_len == f.private_len && g.ird == f.ird && g.ord == f.ord && g.rtr == f.rtr);
	agree(&f, how);
}

static void markers(const uint8_t *bytes, size_t len, uint8_t how)
{
	uint32_t plain = (uint32_t)len & ~3u, marked = vb_mpa_marked_len(how * 4u, plain);
	uint8_t *room = calloc(1, marked + 1);

	memcpy(room + (marked - plain), bytes, plain);
	vb_mpa_mark(room, plain, how * 4u);
	CHECK(vb_mpa_unmark(room, plain, how * 4u) && !memcmp(room, bytes, plain));
	free(room);
	/* arbitrary bytes with arbitrary markers */
	while (plain && vb_mpa_marked_len(how * 4u, plain) > len)
		plain -= 4;
	room = malloc(len + 1);
	memcpy(room, bytes, len);
	vb_mpa_unmark(room, plain, how * 4u);
	free(room);
}

static void terminates(const uint8_t *bytes, size_t len)
{
	uint8_t again[VB_TERMINATE_MAX];
	struct vb_writer w = vb_writer(again, sizeof(again));
	struct vb_terminate t, u;

	if (!vb_terminate_decode(&t, bytes, len))
		return;
	CHECK(vb_term_text(t.term) && (!t.has_rdma || t.has_ddp));
	vb_terminate_encode(&w, &t);
	CHECK(!w.failed && vb_terminate_decode(&u, again, w.pos));
	CHECK(u.term == t.term && u.has_ddp == t.has_ddp && u.has_rdma == t.has_rdma &&
	      !memcmp(u.rdma, t.rdma, sizeof(t.rdma)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes;

	if (size < 2)
		return 0;
	bytes = malloc(size - 2 + 1); /* ends close to the end of its allocation */
	memcpy(bytes, data + 2, size - 2);
	frames(bytes, size - 2, data[0] & 1, data[1]);
	if (size - 2 >= 16) { /* beyond the key */
		memcpy(bytes, data[0] & 1 ? "MPA ID Rep Frame" : "MPA ID Req Frame", 16);
		frames(bytes, size - 2, data[0] & 1, data[1]);
	}
	markers(bytes, size - 2, data[1]);
	terminates(bytes, size - 2);
	free(bytes);
	return 0;
}
