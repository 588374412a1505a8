// sleeps.c - whether a peer's threads run, as /proc says
// follows: proc(5)
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/local/peer.h"

static bool thread_sleeps(int tasks, const char *tid)
{
	char path[300], text[512];

	snprintf(path, sizeof(path), "%s/stat", tid);
	int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n < 0 ? 0 : n] = 0;
	const char *name_end = strrchr(text, ')'); /* TID (NAME) STATE */

	return name_end && name_end[1] && name_end[2] != 'R';
}

bool vb_peer_sleeps(const struct vb_peer *peer)
{
	char path[64];
	bool sleeps = true;
	unsigned threads = 0;
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/task", peer->pid);
	DIR *d = opendir(path);

	if (!d)
		return false;
	while (sleeps && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		threads++;
		sleeps = thread_sleeps(dirfd(d), e->d_name);
	}
	closedir(d);
	return sleeps && threads;
}
