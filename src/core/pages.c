// pages.c - checks that memory is mapped, and writable
// SPDX-License-Identifier: MIT
#include "core/pages.h"

#include <errno.h>

#include "util/guard.h"

/* Tests whether a word can be written by atomically adding 0, which does not disturb other users of the word. */
static bool word_ok(uint64_t addr, bool writable)
{
	uint64_t *word = (uint64_t *)(uintptr_t)(addr & ~7ull), old;
	char c;

	return writable ? vb_guard_add(word, 0, &old) : vb_guard_copy(&c, word, 1);
}

int vb_pages_check(uint64_t start, uint64_t length, bool writable)
{
	return word_ok(start, writable) && word_ok(start + length - 1, writable) ? 0 : EFAULT;
}
