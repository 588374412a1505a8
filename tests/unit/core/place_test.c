// place_test.c - copies that begin again when they were interrupted, so that their sender may hold them
// see: src/util/guard.h
// SPDX-License-Identifier: MIT
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "../../support/check.h"
#include "util/guard.h"

#define SIZE (1u << 20)
#define PAGE 4096u
#define GO 7u
#define HELD 9u

static uint8_t from[SIZE], *to;
static _Atomic uint32_t word = GO;
static _Atomic uint64_t done;
static volatile sig_atomic_t copying;

static void copies_every_byte_of_every_length(void)
{
	for (size_t n = 1; n < 5000; n++) {
		memset(to, 0, 5010);
		SAME(vb_guard_place(to + 3, from, n, &word, GO, &done, n), VB_PLACE_DONE);
		CHECK(!memcmp(to + 3, from, n) && !to[2] && !to[3 + n]);
		SAME(done, n);
	}
}

static void a_held_record_is_not_stored(void)
{
	memset(to, 0x55, PAGE);
	done = 1;
	SAME(vb_guard_place(to, from, PAGE, &word, HELD, &done, 2), VB_PLACE_HELD);
	SAME(done, 1);
	for (unsigned i = 0; i < PAGE; i++)
		CHECK(to[i] == 0x55);
}

static void a_page_that_is_not_mapped_is_a_fault(void)
{
	done = 1;
	SAME(vb_guard_place(to + SIZE - 100, from, 200, &word, GO, &done, 2), VB_PLACE_FAULT);
	SAME(done, 1);
}

/* Holds the record in the middle of its copy, and uses its memory for something else. */
__attribute__((unused)) static void hold(int sig)
{
	(void)sig;
	if (!copying)
		return;
	word = HELD;
	memset(to, 0xee, PAGE);
}

/* Fails if a copy goes on where a signal has interrupted it. */
__attribute__((unused)) static void a_copy_that_is_held_in_its_middle_stores_no_byte_more(void)
{
	const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	unsigned held = 0;

	signal(SIGALRM, hold);
	setitimer(ITIMER_REAL, &often, NULL);
	for (unsigned i = 0; i < 2000000 && held < 300; i++) {
		word = GO;
		done = 0;
		copying = 1;
		enum vb_placed placed = vb_guard_place(to, from, SIZE / 4, &word, GO, &done, 5);

		copying = 0;
		if (placed == VB_PLACE_DONE) {
			SAME(done, 5);
			continue;
		}
		SAME(placed, VB_PLACE_HELD);
		SAME(done, 0);
		for (unsigned k = 0; k < PAGE; k++)
			CHECK(to[k] == 0xee);
		held++;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK(held == 300);
}

int main(void)
{
	vb_guard_install();
	if (!vb_guard_can_place())
		SKIP("no restartable sequences here (rseq(2))");
	to = mmap(NULL, SIZE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED && !mprotect(to + SIZE, PAGE, PROT_NONE));
	for (unsigned i = 0; i < SIZE; i++)
		from[i] = (uint8_t)(i * 7 + i / 256);
	copies_every_byte_of_every_length();
	printf("ok every byte is copied\n");
	a_held_record_is_not_stored();
	printf("ok a held record is not stored\n");
	a_page_that_is_not_mapped_is_a_fault();
	printf("ok a page that is not mapped is a fault\n");
#if !defined(__SANITIZE_THREAD__) /* it delays signals until a copy is over */
	a_copy_that_is_held_in_its_middle_stores_no_byte_more();
	printf("ok a copy that is held in its middle stores no byte more\n");
#endif
	return 0;
}
