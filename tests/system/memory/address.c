// address.c - a program at a fixed address, which knows free() by an address of its own
// usage: address: ends well if it gets whole pages that peers can map all the same
// see: src/tools/memory/fit.c
// SPDX-License-Identifier: MIT
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/check.h"

int main(void)
{
	void *p = pvalloc(1 << 16);
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	int seen = 0;
	void (*volatile give_back)(void *) = free;

	CHECK(p && f);
	while (fgets(line, sizeof(line), f))
		seen += strstr(line, "rw-s") && strstr(line, "verbena-memory");
	fclose(f);
	give_back(p);
	return seen != 1;
}
