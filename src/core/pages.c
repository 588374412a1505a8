// pages.c - can the adapter reach this memory?
// follows: madvise(2), mincore(2)
// SPDX-License-Identifier: MIT
#include "core/pages.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static long page_size;
static bool can_populate; /* Linux 5.14; EINVAL also says "no permission", so it is tried once on a good page */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look(void)
{
	char here = 0;

	page_size = sysconf(_SC_PAGESIZE);
	can_populate =
	        !madvise((void *)((uintptr_t)&here & ~(uintptr_t)(page_size - 1)), page_size, MADV_POPULATE_READ);
}

static bool page_ok(uint64_t page, bool writable)
{
	void *p = (void *)(uintptr_t)page;
	unsigned char in_core;

	if (can_populate)
		return !madvise(p, page_size, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) || errno == EAGAIN;
	return !mincore(p, page_size, &in_core);
}

int vb_pages_check(uint64_t start, uint64_t length, bool writable)
{
	int saved = errno;

	pthread_once(&once, look);
	uint64_t mask = ~(uint64_t)(page_size - 1), first = start & mask, last = (start + length - 1) & mask;
	bool ok = page_ok(first, writable) && (first == last || page_ok(last, writable));

	errno = saved;
	return ok ? 0 : EFAULT;
}
