// mpa_test.c - MPA frames, the agreement on them, CRCs and markers
// follows: RFC 5044, 4, 7.1; RFC 6581, 4 to 9; RFC 3720, B.4 (CRC vectors)
// SPDX-License-Identifier: MIT
#include <string.h>

#include "fixture.h"
#include "frame/crc32c.h"

static void the_crc_has_its_known_values(void)
{
	uint8_t bytes[48], ascending[32], descending[32];
	static const uint8_t read_pdu[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
	                                     0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
	                                     0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};

	for (int i = 0; i < 32; i++)
		ascending[i] = (uint8_t)i, descending[i] = (uint8_t)(31 - i);
	CHECK(vb_crc32c(0, "123456789", 9) == 0xe3069283);
	memset(bytes, 0, 32);
	CHECK(vb_crc32c(0, bytes, 32) == 0x8a9136aa);
	memset(bytes, 0xff, 32);
	CHECK(vb_crc32c(0, bytes, 32) == 0x62a8ab43);
	CHECK(vb_crc32c(0, ascending, 32) == 0x46dd794e && vb_crc32c(0, descending, 32) == 0x113fdb5c);
	CHECK(vb_crc32c(0, read_pdu, 48) == 0xd9963a56 && vb_crc32c_portable(0, read_pdu, 48) == 0xd9963a56);
	for (uint32_t cut = 0; cut <= 48; cut++)
		CHECK(vb_crc32c(vb_crc32c(0, read_pdu, cut), read_pdu + cut, 48 - cut) == 0xd9963a56);
	CHECK(vb_crc32c(0, NULL, 0) == 0);
}

static void the_lowest_byte_of_a_crc_goes_first(void)
{
	uint8_t fpdu[36] = {0};

	vb_mpa_seal(fpdu, 36);
	CHECK(!memcmp(fpdu + 32, (uint8_t[]){0xaa, 0x36, 0x91, 0x8a}, 4) && vb_mpa_sealed(fpdu, 36));
	fpdu[35] ^= 1;
	CHECK(!vb_mpa_sealed(fpdu, 36));
}

/* --- frames --- */

/* A request of revision 2 from Linux's siw: CRC, peer to peer with a read, IRD 16, ORD 8, "hi". */
static const uint8_t request_bytes[] = {'M', 'P', 'A', ' ',  'I', 'D', ' ', 'R',  'e',  'q',  ' ',  'F', 'r',
                                        'a', 'm', 'e', 0x50, 2,   0,   6,   0x80, 0x10, 0x40, 0x08, 'h', 'i'};

static void a_request_is_decoded_and_encoded(void)
{
	struct vb_mpa_frame f;
	uint8_t bytes[VB_MPA_FRAME_MAX];
	struct vb_writer w = vb_writer(bytes, sizeof(bytes));
	size_t used;

	CHECK(vb_mpa_decode(&f, &used, request_bytes, sizeof(request_bytes), false) == VB_MPA_OK);
	CHECK(used == 26 && f.crc && !f.markers && !f.reject && f.enhanced && f.revision == 2 && f.peer_to_peer);
	CHECK(f.rtr == VB_MPA_RTR_READ && f.ird == 16 && f.ord == 8 && f.private_len == 2);
	CHECK(!memcmp(f.private_data, "hi", 2));
	vb_mpa_encode(&w, &f);
	CHECK(!w.failed && w.pos == used && !memcmp(bytes, request_bytes, used));
}

static void every_flag_has_its_bit(void)
{
	for (int bits = 0; bits < 64; bits++) {
		struct vb_mpa_frame g, f = {.reply = true,
		                            .markers = bits & 1,
		                            .crc = bits & 2,
		                            .reject = bits & 4,
		                            .revision = 2,
		                            .enhanced = true,
		                            .peer_to_peer = bits & 8,
		                            .rtr = (uint8_t)(bits >> 3 & 7),
		                            .ird = (uint16_t)(0x3fff - bits),
		                            .ord = (uint16_t)bits};
		uint8_t bytes[VB_MPA_FRAME_MAX];
		struct vb_writer w = vb_writer(bytes, sizeof(bytes));
		size_t used;

		vb_mpa_encode(&w, &f);
		CHECK(vb_mpa_decode(&g, &used, bytes, w.pos, true) == VB_MPA_OK && used == 24);
		CHECK(g.markers == f.markers && g.crc == f.crc && g.reject == f.reject &&
		      g.peer_to_peer == f.peer_to_peer);
		CHECK(g.rtr == f.rtr && g.ird == f.ird && g.ord == f.ord && g.private_len == 0);
	}
}

static enum vb_mpa_verdict verdict_with(size_t at, uint8_t value, bool reply)
{
	uint8_t bytes[sizeof(request_bytes)];
	struct vb_mpa_frame f;
	size_t used;

	memcpy(bytes, request_bytes, sizeof(bytes));
	bytes[at] = value;
	return vb_mpa_decode(&f, &used, bytes, sizeof(bytes), reply);
}

static void what_is_wrong_has_its_name(void)
{
	struct vb_mpa_frame f;
	size_t used;

	for (size_t len = 0; len < sizeof(request_bytes); len++) {
		uint8_t *bytes = malloc(len + 1);

		memcpy(bytes, request_bytes, len);
		CHECK(vb_mpa_decode(&f, &used, bytes, len, false) == VB_MPA_SHORT);
		free(bytes);
	}
	CHECK(vb_mpa_decode(&f, &used, (const uint8_t *)"GET / HTTP/1.1", 3, false) == VB_MPA_KEY);
	CHECK(verdict_with(15, 'x', false) == VB_MPA_KEY && verdict_with(0, 'M', true) == VB_MPA_WRONG_WAY);
	CHECK(verdict_with(17, 0, false) == VB_MPA_REVISION && verdict_with(17, 3, false) == VB_MPA_REVISION);
	CHECK(verdict_with(18, 2, false) == VB_MPA_LENGTH && verdict_with(19, 3, false) == VB_MPA_ENHANCED);
	CHECK(verdict_with(16, 0x70, false) == VB_MPA_REJECT && verdict_with(16, 0x5f, false) == VB_MPA_OK);
	CHECK(verdict_with(17, 1, false) == VB_MPA_OK); /* S has no meaning in revision 1 */
	CHECK(!strcmp(vb_mpa_verdict_text(VB_MPA_KEY), "not an MPA frame"));
}

static void private_data_has_its_limit(void)
{
	uint8_t bytes[VB_MPA_FRAME_MAX + 8], data[VB_MPA_PRIVATE_MAX] = {0};
	struct vb_mpa_frame g, f = {.revision = 1, .private_data = data, .private_len = VB_MPA_PRIVATE_MAX};
	struct vb_writer w = vb_writer(bytes, sizeof(bytes)), v = w;
	size_t used;

	vb_mpa_encode(&w, &f);
	CHECK(!w.failed && w.pos == VB_MPA_FRAME_MAX);
	CHECK(vb_mpa_decode(&g, &used, bytes, w.pos, false) == VB_MPA_OK && g.private_len == VB_MPA_PRIVATE_MAX);
	f.revision = 2;
	f.enhanced = true;
	vb_mpa_encode(&v, &f);
	CHECK(v.failed);
}

/* --- agreement --- */

struct agreement {
	struct vb_mpa_terms active, passive;
	enum vb_mpa_refusal refused_by_passive, refused_by_active;
	struct vb_mpa_frame reply;
};

static struct agreement agree(const struct vb_mpa_wish *active, const struct vb_mpa_wish *passive)
{
	struct agreement a = {0};
	struct vb_mpa_frame request;

	vb_mpa_request(&request, active, NULL, 0);
	a.refused_by_passive = vb_mpa_answer(&a.reply, &a.passive, passive, &request);
	a.refused_by_active = vb_mpa_conclude(&a.active, active, &a.reply);
	return a;
}

static const struct vb_mpa_wish modest = {.revision = 2, .peer_to_peer = true, .rtr = 7, .ird = 8, .ord = 4};
static const struct vb_mpa_wish lavish = {.revision = 2, .peer_to_peer = true, .rtr = 7, .ird = 128, .ord = 128};

static void the_lower_depth_is_agreed(void)
{
	struct agreement a = agree(&modest, &lavish);

	CHECK(!a.refused_by_passive && !a.refused_by_active);
	CHECK(a.active.ird == 8 && a.active.ord == 4 && a.passive.ird == 4 && a.passive.ord == 8);
	a = agree(&lavish, &modest);
	CHECK(a.active.ird == 4 && a.active.ord == 8 && a.passive.ird == 8 && a.passive.ord == 4);
}

static void one_way_to_be_ready_is_agreed(void)
{
	struct vb_mpa_wish only = lavish;

	CHECK(agree(&modest, &lavish).active.rtr == VB_MPA_RTR_WRITE &&
	      agree(&modest, &lavish).passive.rtr == VB_MPA_RTR_WRITE);
	only.rtr = VB_MPA_RTR_SEND;
	struct agreement a = agree(&modest, &only);

	CHECK(a.active.rtr == VB_MPA_RTR_SEND && a.passive.rtr == VB_MPA_RTR_SEND && a.passive.hold && !a.active.hold);
	only.rtr = 0;
	a = agree(&modest, &only);
	CHECK(a.refused_by_passive == VB_MPA_NO_RTR && a.reply.reject && a.refused_by_active == VB_MPA_REJECTED);
}

static void a_crc_that_one_wants_is_there(void)
{
	for (int bits = 0; bits < 16; bits++) {
		struct vb_mpa_wish active = modest, passive = lavish;

		active.crc = bits & 1;
		passive.crc = bits & 2;
		active.markers = bits & 4;
		passive.markers = bits & 8;
		struct agreement a = agree(&active, &passive);

		CHECK(a.active.crc == !!(bits & 3) && a.passive.crc == !!(bits & 3));
		CHECK(a.active.markers_in == a.passive.markers_out && a.active.markers_in == !!(bits & 4));
		CHECK(a.active.markers_out == a.passive.markers_in && a.active.markers_out == !!(bits & 8));
	}
}

static void the_older_revision_is_spoken(void)
{
	struct vb_mpa_wish old = modest;

	old.revision = 1;
	struct agreement a = agree(&old, &lavish);

	CHECK(a.reply.revision == 1 && !a.reply.enhanced && a.passive.hold && !a.passive.rtr && a.active.ord == 4);
	a = agree(&lavish, &old);
	CHECK(a.reply.revision == 1 && !a.reply.enhanced && !a.refused_by_active && a.active.ird == 128);
}

static void a_reply_is_held_against_the_request(void)
{
	struct vb_mpa_terms terms;
	struct vb_mpa_wish strict = modest, old = modest;
	struct vb_mpa_frame reply = {.reply = true, .revision = 2, .enhanced = true, .ird = 4, .ord = 9};

	CHECK(vb_mpa_conclude(&terms, &modest, &reply) == VB_MPA_NO_IRD); /* it wants more reads than we serve */
	reply.ord = 8;
	CHECK(vb_mpa_conclude(&terms, &modest, &reply) == VB_MPA_AGREED && !terms.rtr);
	reply.ird = 3;
	CHECK(vb_mpa_conclude(&terms, &modest, &reply) == VB_MPA_AGREED && terms.ord == 3);
	strict.strict = true;
	CHECK(vb_mpa_conclude(&terms, &strict, &reply) == VB_MPA_NO_IRD);
	reply.peer_to_peer = true; /* without a common RTR message */
	CHECK(vb_mpa_conclude(&terms, &modest, &reply) == VB_MPA_NO_RTR);
	reply.ird = reply.ord = VB_MPA_ANY_DEPTH;
	reply.rtr = VB_MPA_RTR_READ;
	CHECK(vb_mpa_conclude(&terms, &strict, &reply) == VB_MPA_AGREED && terms.ird == 8 && terms.ord == 4);
	CHECK(terms.rtr == VB_MPA_RTR_READ);
	old.revision = 1;
	CHECK(vb_mpa_conclude(&terms, &old, &reply) == VB_MPA_NEWER);
}

/* --- FPDUs --- */

static void lengths_are_padded(void)
{
	static const uint32_t cases[][3] = {{0, 2, 8},   {1, 1, 8},   {2, 0, 8},        {3, 3, 12},
	                                    {14, 0, 20}, {18, 0, 24}, {65535, 3, 65544}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK(vb_mpa_pad(cases[i][0]) == cases[i][1] && vb_mpa_fpdu_len(cases[i][0]) == cases[i][2]);
}

/* RFC 5044, 4.5 */
static void the_largest_ulpdu_fits_wherever_it_stands(void)
{
	CHECK(vb_mpa_mulpdu(1460, false) == 1454 && vb_mpa_mulpdu(1461, false) == 1454);
	CHECK(vb_mpa_mulpdu(1460, true) == 1460 - 6 - 12 && vb_mpa_mulpdu(5, true) == 0);
	CHECK(vb_mpa_mulpdu(UINT32_MAX / 2, false) == 65535);
	for (uint32_t emss = 128; emss < 9000; emss += 37)
		for (uint64_t at = 0; at < 512; at += 4)
			CHECK(vb_mpa_marked_len(at, vb_mpa_fpdu_len(vb_mpa_mulpdu(emss, true))) <= emss);
}

static void markers_stand_where_they_have_to(void)
{
	static const struct {
		uint64_t at;
		uint32_t len, marked;
	} cases[] = {{0, 8, 12},
	             {0, 508, 512},
	             {0, 512, 520},
	             {4, 508, 508},
	             {4, 512, 516},
	             {508, 4, 4},
	             {508, 8, 12},
	             {512, 4, 8},
	             {UINT64_MAX - 3, 8, 12},
	             {256, 256 + 508, 256 + 512},
	             {256, 256 + 512, 256 + 520}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK(vb_mpa_marked_len(cases[i].at, cases[i].len) == cases[i].marked);
}

static void markers_point_back_and_can_be_taken_out(void)
{
	uint8_t bytes[3000], plain[2400];

	for (uint32_t i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(i * 7 + 1);
	for (uint64_t at = 0; at < 1024; at += 4) {
		for (uint32_t len = 8; len <= sizeof(plain); len += 92) {
			uint32_t marked = vb_mpa_marked_len(at, len), lead = at % 512 ? 0 : 4;

			memcpy(bytes + (marked - len), plain, len);
			vb_mpa_mark(bytes, len, at);
			for (uint32_t k = 0; k < marked; k += 4) {
				if ((at + k) % 512)
					continue;
				uint32_t back = k ? k - lead : 0;

				CHECK(!bytes[k] && !bytes[k + 1] &&
				      (uint32_t)(bytes[k + 2] << 8 | bytes[k + 3]) == back);
			}
			CHECK(vb_mpa_unmark(bytes, len, at) && !memcmp(bytes, plain, len));
		}
	}
}

int main(void)
{
	RUN(the_crc_has_its_known_values);
	RUN(the_lowest_byte_of_a_crc_goes_first);
	RUN(a_request_is_decoded_and_encoded);
	RUN(every_flag_has_its_bit);
	RUN(what_is_wrong_has_its_name);
	RUN(private_data_has_its_limit);
	RUN(the_lower_depth_is_agreed);
	RUN(one_way_to_be_ready_is_agreed);
	RUN(a_crc_that_one_wants_is_there);
	RUN(the_older_revision_is_spoken);
	RUN(a_reply_is_held_against_the_request);
	RUN(lengths_are_padded);
	RUN(the_largest_ulpdu_fits_wherever_it_stands);
	RUN(markers_stand_where_they_have_to);
	RUN(markers_point_back_and_can_be_taken_out);
	return 0;
}
