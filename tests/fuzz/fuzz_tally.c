// fuzz_tally.c - arbitrary bytes as the file of ended programs, and as what a killed program has shown
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/tally.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NETNS 42
#define SOCKET "7-42-0000000000000001"

static int dir_fd = -1;
static char dir_path[] = "/tmp/fuzz-tally.XXXXXX";

static void remove_directory(void)
{
	unlinkat(dir_fd, "ended-42", 0);
	rmdir(dir_path);
}

static void open_directory(void)
{
	assert(mkdtemp(dir_path));
	dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert(dir_fd >= 0);
	atexit(remove_directory);
}

static void write_file(const char *name, const void *bytes, size_t size)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	close(fd);
}

/* Whatever the files contain, the result is a file that can be read and added to. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[VB_TALLY_MAX];
	size_t half = size / 2;

	if (dir_fd < 0)
		open_directory();
	write_file("ended-42", data, half);
	write_file(SOCKET ".shown", data + half, size - half);
	write_file(SOCKET, "", 0);
	bool in_sums = vb_tally_read(dir_fd, NETNS, text, sizeof(text)) && vb_tally_has(text, SOCKET);

	vb_tally_end(dir_fd, SOCKET);
	assert(faccessat(dir_fd, SOCKET, F_OK, 0) && faccessat(dir_fd, SOCKET ".shown", F_OK, 0));
	if (size > half && !in_sums) {
		assert(vb_tally_read(dir_fd, NETNS, text, sizeof(text)));
		assert(!strncmp(text, "{\"devices\": [", 13) && strlen(text) < VB_TALLY_MAX);
	}
	return 0;
}
