// progress.c - a line on the terminal while a command takes long
// follows: isatty(3), ioctl_tty(2)
// SPDX-License-Identifier: MIT
#include "tools/progress.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 2.0 /* s: a shorter wait needs no words */
#define EVERY 0.5    /* s */
#define NAP 0.1      /* s */

static struct {
	bool terminal;
	double began, shown; /* s; shown: when the line was last written */
	int width;           /* of the line that is there; 0: none */
} progress;

static double clock_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void cmd_progress_begin(void)
{
	cmd_progress_clear();
	progress.terminal = isatty(STDERR_FILENO);
	progress.began = clock_seconds();
	progress.shown = 0;
}

/* A longer line would go on in the next one, where a carriage return does not reach it. */
static int room(void)
{
	struct winsize size;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2 ? 79 : size.ws_col - 1;
}

void cmd_progress_show(const char *fmt, ...)
{
	double now = progress.terminal ? clock_seconds() : 0;
	char text[160];
	va_list ap;

	if (!progress.terminal || now - progress.began < PATIENCE || now - progress.shown < EVERY)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	int most = room(), len = (int)strlen(text) < most ? (int)strlen(text) : most;

	fprintf(stderr, "\r%-*.*s\r", progress.width < most ? progress.width : most, len, text);
	fflush(stderr);
	progress.width = len;
	progress.shown = now;
}

void cmd_progress_clear(void)
{
	if (!progress.width)
		return;
	fprintf(stderr, "\r%*s\r", progress.width, "");
	fflush(stderr);
	progress.width = 0;
}

void cmd_progress_sleep(double seconds, const char *what)
{
	double until;

	cmd_progress_begin();
	until = progress.began + seconds;
	for (double left = seconds; left > 0; left = until - clock_seconds()) {
		double nap = left < NAP ? left : NAP;
		struct timespec ts = {.tv_nsec = (long)(nap * 1e9)};

		nanosleep(&ts, NULL);
		cmd_progress_show("... %s: %.0f of %.0f s", what, seconds - (until - clock_seconds()), seconds);
	}
	cmd_progress_clear();
}
