// programs.c - asks the running programs of this user through their control sockets, all at once
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include "tools/shim/programs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "util/control_dir.h"
#include "util/env.h"
#include "util/tally.h"

#define PATIENCE_MS 500
#define PATIENCE_MORE_MS 50 /* for those beyond the first AT_ONCE */
#define AT_ONCE 128u        /* programs, each with a descriptor of ours */
#define PROGRAMS_MOST 512u
#define ANSWER_MAX ((size_t)1 << 18)

struct asked {
	char name[VB_CONTROL_NAME];
	int pid, sock; /* sock is -1: it does not answer */
};

static int64_t ms_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool vb_shim_is_our_netns(uint64_t netns)
{
	const char *dir = vb_env("VERBENA_RUNTIME");

	return (dir && *dir) || netns == vb_control_netns();
}

/* Reads the answer to its end, or what has come when the time is over. */
static bool read_all(int sock, char *buf, size_t size, int64_t until)
{
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	size_t len = 0;

	while (len + 1 < size) {
		int64_t left = until - ms_now();
		int ready = poll(&pfd, 1, left > 0 ? (int)left : 0);

		if (ready < 0 && errno != EINTR)
			return false;
		if (ready <= 0) {
			if (left <= 0)
				return false;
			continue;
		}
		ssize_t n = recv(sock, buf + len, size - 1 - len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0) {
			buf[len] = '\0';
			return len > 0 && n == 0;
		}
		len += (size_t)n;
	}
	return false;
}

/* Connects and asks. Returns false if the program has ended; *sock is -1 if it cannot be asked. */
static bool begin_asking(int dir_fd, const char *name, const char *request, int *sock)
{
	int err = vb_control_dir_connect(dir_fd, name, geteuid(), sock);
	size_t len = strlen(request);

	if (err)
		*sock = -1;
	if (err == ECONNREFUSED)
		vb_tally_end(dir_fd, name);
	if (err == ECONNREFUSED || err == ENOENT)
		return false;
	if (!err && send(*sock, request, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len) {
		close(*sock);
		*sock = -1;
	}
	return true;
}

static bool is_answer(const char *text)
{
	return strncmp(text, "{\"error\"", 8) != 0;
}

static void take_answers(struct asked *asked, unsigned n, char *buf, int64_t until, vb_shim_take *take, void *arg)
{
	for (unsigned i = 0; i < n; i++) {
		bool good = asked[i].sock >= 0 && read_all(asked[i].sock, buf, ANSWER_MAX, until) && is_answer(buf);

		if (asked[i].sock >= 0)
			close(asked[i].sock);
		take(arg, asked[i].name, asked[i].pid, good ? buf : NULL);
	}
}

/* A program's name has the pid as the program sees it. The kernel knows better. */
static int pid_of(int sock, int named)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return sock >= 0 && !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.pid > 0 ? cred.pid : named;
}

/* Asks up to AT_ONCE programs that follow in the directory. Returns how many. */
static unsigned ask_some(DIR *dir, const char *request, struct asked *asked)
{
	struct vb_control_name name;
	unsigned n = 0;

	for (struct dirent *e; n < AT_ONCE && (e = readdir(dir));) {
		if (!vb_control_name_read(e->d_name, &name) || !vb_shim_is_our_netns(name.netns))
			continue;
		snprintf(asked[n].name, sizeof(asked[n].name), "%.63s", e->d_name);
		bool exists = begin_asking(dirfd(dir), asked[n].name, request, &asked[n].sock);

		asked[n].pid = pid_of(asked[n].sock, name.pid);
		n += exists;
	}
	return n;
}

void vb_shim_ask_programs(DIR *dir, const char *request, vb_shim_take *take, void *arg)
{
	struct asked *asked = calloc(AT_ONCE, sizeof(*asked));
	char *buf = malloc(ANSWER_MAX);
	int patience = PATIENCE_MS;
	unsigned n = asked && buf ? AT_ONCE : 0;

	rewinddir(dir);
	for (unsigned all = 0; n == AT_ONCE && all < PROGRAMS_MOST; all += n) {
		n = ask_some(dir, request, asked);
		take_answers(asked, n, buf, ms_now() + patience, take, arg);
		patience = PATIENCE_MORE_MS;
	}
	free(asked);
	free(buf);
}

char *vb_shim_ask_program(DIR *dir, const char *name, const char *request)
{
	char *buf = malloc(ANSWER_MAX);
	int sock = -1;

	if (buf)
		begin_asking(dirfd(dir), name, request, &sock);
	bool good = sock >= 0 && read_all(sock, buf, ANSWER_MAX, ms_now() + PATIENCE_MORE_MS) && is_answer(buf);
	if (sock >= 0)
		close(sock);
	if (good)
		return buf;
	free(buf);
	return NULL;
}
