// pages.c - checks that memory is mapped, and writable
// SPDX-License-Identifier: MIT
#include "core/pages.h"

#include <errno.h>

#include "util/guard.h"

/* Pages are no smaller. */
enum { PAGE_LEAST = 4096 };

/* The aligned word with the byte at addr. If a part of it is not in [start, end), the next one in the same page that is:
 * memcheck reports accesses beyond a block. */
static uint64_t word_at(uint64_t addr, uint64_t start, uint64_t end)
{
	uint64_t word = addr & ~7ull, moved = word;

	if (word < start)
		moved = word + 8;
	else if (word + 8 > end)
		moved = word - 8;
	return moved >= start && moved + 8 <= end && moved / PAGE_LEAST == addr / PAGE_LEAST ? moved : word;
}

/* Tests whether a word can be written by atomically adding 0, which does not disturb other users of the word. */
static bool word_ok(uint64_t addr, bool writable)
{
	uint64_t *word = (uint64_t *)(uintptr_t)addr, old;
	char c;

	return writable ? vb_guard_add(word, 0, &old) : vb_guard_copy(&c, word, 1);
}

int vb_pages_check(uint64_t start, uint64_t length, bool writable)
{
	uint64_t end = start + length;

	return word_ok(word_at(start, start, end), writable) && word_ok(word_at(end - 1, start, end), writable)
	               ? 0
	               : EFAULT;
}
