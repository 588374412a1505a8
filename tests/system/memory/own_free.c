// own_free.c - a program that has a free() of its own, and not all of the other calls
// usage: own_free: ends well if whole pages are the C library's, because its free() knows no others
// see: src/tools/memory/fit.c
// SPDX-License-Identifier: MIT
#include <malloc.h>
#include <stdlib.h>

#include "../../support/check.h"

void __libc_free(void *p);
__attribute__((visibility("default"))) void free(void *p);

void free(void *p)
{
	__libc_free(p);
}

int main(void)
{
	void *p = pvalloc(1 << 16);

	CHECK(p);
	free(p);
	return 0;
}
