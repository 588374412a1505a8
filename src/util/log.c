// log.c - one line to stderr for what a user must know, more with VERBENA_LOG
// SPDX-License-Identifier: MIT
#include "util/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
	if (write(STDERR_FILENO, line, len) < 0)
		errno = saved;
	vb_cancel_restore(cancel);
	errno = saved;
}
