// summed.c - guarded copies of every length, and the ICRC computed during a copy
// follows: IBA volume 1, 7.8.1 (ICRC)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../support/check.h"
#include "frame/icrc.h"
#include "reference.h"
#include "util/guard.h"

#define ROOM 5000

static uint8_t from[ROOM], to[ROOM];

static void copied(size_t at, size_t n)
{
	CHECK(!memcmp(to + 64 + at, from + at, n));
	for (size_t i = 0; i < 64 + at; i++)
		CHECK(!to[i]);
	for (size_t i = 64 + at + n; i < 64 + at + n + 64; i++)
		CHECK(!to[i]);
	memset(to, 0, sizeof(to));
}

static void copies_copy_what_they_should_and_no_more(void)
{
	ref_random_bytes(from, sizeof(from));
	memset(to, 0, sizeof(to));
	for (size_t n = 0; n < 2200; n += n < 600 ? 1 : 13) {
		size_t at = n % 9;

		CHECK(vb_guard_copy(to + 64 + at, from + at, n));
		copied(at, n);
		CHECK(vb_guard_copy_tail(to + 64 + at, from + at, n));
		copied(at, n);
	}
	for (size_t n = 256; vb_guard_can_sum() && n <= 4096; n += 256) {
		uint64_t sum[2];

		CHECK(vb_guard_copy_sum(to + 64 + n / 256, from + n / 256, n, sum));
		copied(n / 256, n);
	}
}

/* Each byte is where it should be: whole lines past the caches, the others at the first place; and nothing beside them. */
static void copied_past(size_t shift, size_t at, size_t n)
{
	static _Alignas(VB_GUARD_EDGE) uint8_t past[ROOM];
	uint8_t *to_past = past + 256 + shift;
	size_t line = vb_guard_past(to_past), end = line + n - VB_GUARD_EDGE;
	uint64_t sum[2], same[2];

	CHECK((uintptr_t)(to_past + line) % VB_GUARD_EDGE == 0 && line >= 1 && line <= VB_GUARD_EDGE);
	memset(past, 0xee, sizeof(past));
	CHECK(vb_guard_copy_sum_past(to + 64, to_past, from + at, n, sum));
	CHECK(vb_guard_sum(from + at, n, same) && !memcmp(sum, same, sizeof(sum)));
	for (size_t i = 0; i < n; i++) {
		CHECK((i >= line && i < end ? to_past : to + 64)[i] == from[at + i]);
		CHECK(i < VB_GUARD_EDGE || i >= n - VB_GUARD_EDGE || !to[64 + i]);
	}
	for (size_t i = 0; i < sizeof(past); i++)
		CHECK((past + i >= to_past + line && past + i < to_past + end) || past[i] == 0xee);
	for (size_t i = 0; i < 64; i++)
		CHECK(!to[i] && !to[64 + n + i]);
	memset(to, 0, sizeof(to));
}

static void copies_past_the_caches_leave_only_the_edges_to_the_stage(void)
{
	ref_random_bytes(from, sizeof(from));
	memset(to, 0, sizeof(to));
	for (size_t n = 256; vb_guard_can_sum() && n <= 4096; n += 256) {
		for (size_t shift = 0; shift <= VB_GUARD_EDGE; shift += 4)
			copied_past(shift, (shift + n / 256) % 67, n);
	}
}

static void copies_survive_a_page_that_is_not_there(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t sum[2];

	CHECK(p != MAP_FAILED);
	munmap(p + page, page);
	vb_guard_install();
	for (size_t n = 1; n <= 4096; n += 15) {
		size_t inside = n / 2 < page ? n / 2 : page;

		CHECK(!vb_guard_copy(to, p + page - inside, n));
		CHECK(!vb_guard_copy(p + page - inside, from, n));
		CHECK(!vb_guard_copy_tail(p + page - inside, from, n));
	}
	for (size_t n = 256; vb_guard_can_sum() && n <= 4096; n += 256) {
		CHECK(!vb_guard_copy_sum(to, p + page - 1, n, sum));
		CHECK(!vb_guard_sum(p + page - 1, n, sum));
		CHECK(!vb_guard_copy_sum_past(to, to + 512, p + page - n + 1, n, sum));
		CHECK(!vb_guard_copy_sum(p + page - n + 1, from, n, sum));
	}
	munmap(p, page);
	memset(to, 0, sizeof(to));
}

static void what_a_copy_has_added_up_gives_the_icrc_of_the_packet(void)
{
	static struct vb_icrc_cache whole, summed;
	struct vb_flow f = {.sport = 0xc123, .dport = VB_ROCE_PORT};
	uint8_t *bth = to + 64;
	uint64_t sum[2];

	ref_random_bytes(f.src, VB_GID_LEN);
	ref_random_bytes(f.dst, VB_GID_LEN);
	for (int i = 0; vb_guard_can_sum() && i < 1000; i++) {
		size_t n = 256 * (1 + ref_random() % 16);
		uint16_t id = (uint16_t)(ref_random() % 70);

		size_t headers = VB_BTH_LEN + 4 * (ref_random() % 10);
		uint32_t icrc;

		ref_random_bytes(from, n);
		ref_random_bytes(bth, headers);
		CHECK(vb_guard_copy_sum(bth + headers, from, n, sum));
		icrc = vb_icrc_packet(&whole, &f, id, bth, headers + n);
		CHECK(vb_icrc_summed(vb_icrc_known(&summed, &f, headers + n + VB_ICRC_LEN), id, bth, headers, sum, n) ==
		      icrc);
		CHECK(vb_guard_sum(from, n, sum));
		CHECK(vb_icrc_summed(vb_icrc_known(&summed, &f, headers + n + VB_ICRC_LEN), id, bth, headers, sum, n) ==
		      icrc);
	}
}

int main(void)
{
	RUN(copies_copy_what_they_should_and_no_more);
	RUN(copies_past_the_caches_leave_only_the_edges_to_the_stage);
	RUN(copies_survive_a_page_that_is_not_there);
	RUN(what_a_copy_has_added_up_gives_the_icrc_of_the_packet);
	return 0;
}
