// log.c - one line to stderr for what a user must know, more with VERBENA_LOG
// follows: preadv2(2) (RWF_NOWAIT)
// SPDX-License-Identifier: MIT
#include "util/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/calls.h"
#include "util/env.h"

enum vb_log_level vb_log_threshold(void)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	static int cached = -1;
	int level = __atomic_load_n(&cached, __ATOMIC_RELAXED);

	if (level >= 0)
		return level;
	level = VB_LOG_ERROR;
	const char *want = vb_env("VERBENA_LOG");
	for (int i = 0; want && i < 4; i++)
		if (!strcmp(want, names[i]))
			level = i;
	__atomic_store_n(&cached, level, __ATOMIC_RELAXED);
	return level;
}

/* Writes at once or not at all, because the caller may hold a spin lock, and a pipe may be full. */
static bool write_now(const char *text, size_t len)
{
	const struct iovec iov = {(void *)text, len};
	struct pollfd pfd = {.fd = STDERR_FILENO, .events = POLLOUT};
	struct stat st;

	if (!fstat(STDERR_FILENO, &st) && S_ISREG(st.st_mode))
		return write(STDERR_FILENO, text, len) >= 0;
	if (pwritev2(STDERR_FILENO, &iov, 1, -1, RWF_NOWAIT) >= 0)
		return true;
	if (errno == EAGAIN)
		return false;
	/* A terminal, or a pipe before Linux 6.4. Another writer between the two calls could make this one wait. */
	return poll(&pfd, 1, 0) > 0 && (pfd.revents & POLLOUT) && write(STDERR_FILENO, text, len) >= 0;
}

static void write_line(const char *line, size_t len)
{
	static atomic_uint lost;
	unsigned missing = atomic_exchange(&lost, 0);
	char text[640];
	int n = missing ? snprintf(text, sizeof(text), "verbena: %u lines are lost here\n%.*s", missing, (int)len, line)
	                : 0;

	if (!write_now(missing ? text : line, missing ? (size_t)n : len))
		atomic_fetch_add(&lost, missing + 1);
}

void vb_log(enum vb_log_level level, const char *fmt, ...)
{
	char line[512] = "verbena: ";
	int saved = errno, cancel;
	va_list ap;

	if (level > vb_log_threshold())
		return;
	va_start(ap, fmt);
	int n = vsnprintf(line + 9, sizeof(line) - 10, fmt, ap);
	va_end(ap);
	size_t len = 9 + (n < 0 ? 0 : (size_t)n < sizeof(line) - 11 ? (size_t)n : sizeof(line) - 11);
	line[len++] = '\n';
	vb_cancel_defer(&cancel); /* any lock may be held */
	write_line(line, len);
	vb_cancel_restore(cancel);
	errno = saved;
}
