// read_file.c - bandwidth of read(2) from the page cache, in pieces of 1 MiB into several buffers in turn, in 10^9
// bytes per second
// follows: read(2)
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <unistd.h>

#include "clock.h"

#define PIECE ((size_t)1 << 20)

int main(int argc, char **argv)
{
	int fd = argc == 4 ? open(argv[1], O_RDONLY) : -1;
	size_t buffers = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	uint8_t *memory;

	if (fd < 0 || !buffers || posix_memalign((void **)&memory, 4096, buffers * PIECE)) {
		fprintf(stderr, "usage: read_file FILE BUFFERS SECONDS\n");
		return 1;
	}
	memset(memory, 1, buffers * PIECE);
	uint64_t bytes = 0, begun = now_ns(), until = begun + (uint64_t)(atof(argv[3]) * 1e9);

	for (size_t i = 0; now_ns() < until; i++) {
		ssize_t n = read(fd, memory + i % buffers * PIECE, PIECE);

		if (n < 0)
			return 1;
		if (n < (ssize_t)PIECE)
			lseek(fd, 0, SEEK_SET);
		bytes += (uint64_t)n;
	}
	printf("%.4f\n", (double)bytes / (double)(now_ns() - begun));
	return 0;
}
