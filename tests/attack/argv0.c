// argv0.c - a program with the library linked in looks for the broker beside itself, not beside the name in argv[0]
// follows: dladdr(3), execve(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/client/spawn.h"
#include "../support/check.h"

static void in(const char *dir, const char *name, char path[300])
{
	snprintf(path, 300, "%s/%s", dir, name);
}

/* Runs under the false name: starts a broker, and waits until it has ended or listens. */
static int start(const char *dir)
{
	struct vb_runtime rt = {.name = "broker.sock", .explicit_dir = true};
	char path[300];
	int ready = -1;

	snprintf(rt.dir, sizeof(rt.dir), "%s", dir);
	in(dir, "lock", path);
	int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(lock >= 0);
	if (!vb_spawn_process(&rt, lock, &ready)) {
		struct pollfd p = {.fd = ready, .events = POLLIN};
		CHECK(poll(&p, 1, 20000) == 1);
	}
	in(dir, "was-started", path);
	bool started = !access(path, F_OK);
	static const char *const made[] = {"was-started", "lock", "verbena-broker", "program"};
	for (int i = 0; i < 4; i++) {
		in(dir, made[i], path);
		unlink(path);
	}
	rmdir(dir);
	if (started)
		fprintf(stderr, "a program beside the false name was started\n");
	return started;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/argv0.XXXXXX", path[300], name[300];

	if (argc == 2)
		return start(argv[1]);
	unsetenv("VERBENA_BROKER");
	CHECK(mkdtemp(dir));
	in(dir, "verbena-broker", path);
	FILE *f = fopen(path, "w");
	CHECK(f);
	fprintf(f, "#!/bin/sh\ntouch %s/was-started\n", dir);
	CHECK(!fclose(f) && !chmod(path, 0755));
	in(dir, "program", name);
	/* the dynamic linker takes argv[0] for the program's path, so it must lead to a file */
	f = fopen(name, "w");
	CHECK(f && !fclose(f));
	execl("/proc/self/exe", name, dir, NULL);
	return 1;
}
