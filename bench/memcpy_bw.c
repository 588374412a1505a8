// memcpy_bw.c - memcpy's bandwidth in MB/s: within private memory, or into a shared mapping
// follows: memcpy(3)
// SPDX-License-Identifier: MIT
#include <string.h>
#include <sys/mman.h>

#include "clock.h"

static char *memory(size_t n, int flags)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap");
	memset(p, 1, n);
	return p;
}

int main(int argc, char **argv)
{
	bool shared = argc > 1 && !strcmp(argv[1], "shared");
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 0) : 1048576;
	double seconds = argc > 3 ? atof(argv[3]) : 1;
	char *from = memory(size, MAP_PRIVATE), *to = memory(size, shared ? MAP_SHARED : MAP_PRIVATE);
	uint64_t bytes = 0, start, end;

	if (argc < 2 || (!shared && strcmp(argv[1], "private")))
		return fprintf(stderr, "usage: memcpy_bw private|shared [SIZE [SECONDS]]\n"), 2;
	take_core(0);
	start = now_ns();
	do {
		for (int i = 0; i < 16; i++) {
			memcpy(to, from, size);
			__asm__ volatile("" : : "r"(to) : "memory");
			bytes += size;
		}
		end = now_ns();
	} while (end - start < (uint64_t)(seconds * 1e9));
	printf("%.1f\n", (double)bytes * 1000 / (double)(end - start));
	return 0;
}
