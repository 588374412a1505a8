// progress.h - a line on the terminal while a command takes long
// see: man/verbena.1
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_PROGRESS_H
#define VB_TOOLS_PROGRESS_H

/* A process has one line. It is shown on standard error if that is a terminal, from two seconds after the begin on, and
 * replaced at most twice a second. It does not outlast its work. */
void cmd_progress_begin(void);
/* Shows this text, if it is time for it. Control characters are replaced. */
void cmd_progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Removes the line, for other output or because the work is done. */
void cmd_progress_clear(void);

/* Sleeps so long, and shows how much of the time is over. what: "rates". */
void cmd_progress_sleep(double seconds, const char *what);

#endif
