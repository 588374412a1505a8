// cursor_test.c - reads and writes stay within the bytes, and the first error is final
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "frame/cursor.h"

static const uint8_t bytes[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba,
                                0x98, 0x76, 0x54, 0x32, 0x10, 0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5};

static void integers_are_read_with_the_highest_byte_first(void)
{
	struct vb_reader r = vb_reader(bytes, sizeof(bytes));

	CHECK(vb_get8(&r) == 0x01);
	CHECK(vb_get16(&r) == 0x2345);
	CHECK(vb_get24(&r) == 0x6789ab);
	CHECK(vb_get32(&r) == 0xcdeffedc);
	CHECK(vb_get64(&r) == 0xba9876543210f0f1);
	CHECK(vb_left(&r) == 4 && !r.failed);
	CHECK(vb_get32(&r) == 0xf2f3f4f5);
	CHECK(vb_left(&r) == 0 && !r.failed);
}

static void integers_are_written_as_they_are_read(void)
{
	uint8_t out[22];
	struct vb_writer w = vb_writer(out, sizeof(out));

	vb_put8(&w, 0x01);
	vb_put16(&w, 0x2345);
	vb_put24(&w, 0xff6789ab); /* the high byte is not part of the number */
	vb_put32(&w, 0xcdeffedc);
	vb_put64(&w, 0xba9876543210f0f1);
	vb_put_bytes(&w, bytes + 18, 4);
	CHECK(!w.failed && w.pos == sizeof(out));
	CHECK(!memcmp(out, bytes, sizeof(out)));
}

static void a_read_beyond_the_end_gives_zero_and_so_do_all_after_it(void)
{
	struct vb_reader r = vb_reader(bytes, 5);

	CHECK(vb_get32(&r) == 0x01234567);
	CHECK(vb_get16(&r) == 0 && r.failed);
	CHECK(vb_get8(&r) == 0 && r.failed); /* there is a byte, but the cursor has failed already */
	CHECK(r.pos == 4);
	CHECK(!vb_take(&r, 0));
}

static void a_length_that_wraps_around_is_beyond_the_end(void)
{
	struct vb_reader r = vb_reader(bytes, 5);

	vb_get32(&r);
	CHECK(!vb_take(&r, SIZE_MAX) && r.failed);
	r = vb_reader(bytes, 5);
	vb_get32(&r);
	CHECK(!vb_take(&r, SIZE_MAX - 3) && r.failed);
	r = vb_reader(NULL, 0);
	CHECK(vb_get64(&r) == 0 && r.failed);
}

static void a_write_beyond_the_end_writes_nothing_and_nor_does_any_after_it(void)
{
	uint8_t out[6] = {9, 9, 9, 9, 9, 9};
	struct vb_writer w = vb_writer(out, 5);

	vb_put32(&w, 0);
	vb_put16(&w, 0x0101);
	CHECK(w.failed && w.pos == 4);
	vb_put8(&w, 1);
	vb_put_bytes(&w, bytes, 1);
	vb_put_zeros(&w, 1);
	CHECK(w.failed && w.pos == 4);
	CHECK(out[4] == 9 && out[5] == 9);
}

static void zeros_are_written_where_asked(void)
{
	uint8_t out[4] = {9, 9, 9, 9};
	struct vb_writer w = vb_writer(out, 4);

	vb_put_zeros(&w, 3);
	vb_put_zeros(&w, 0);
	vb_put_bytes(&w, NULL, 0);
	CHECK(!w.failed && out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 9);
}

int main(void)
{
	RUN(integers_are_read_with_the_highest_byte_first);
	RUN(integers_are_written_as_they_are_read);
	RUN(a_read_beyond_the_end_gives_zero_and_so_do_all_after_it);
	RUN(a_length_that_wraps_around_is_beyond_the_end);
	RUN(a_write_beyond_the_end_writes_nothing_and_nor_does_any_after_it);
	RUN(zeros_are_written_where_asked);
	return 0;
}
