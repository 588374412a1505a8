// log.h - one line to stderr for what a user must know, more with VERBENA_LOG
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_LOG_H
#define VB_UTIL_LOG_H

enum vb_log_level { VB_LOG_ERROR, VB_LOG_WARN, VB_LOG_INFO, VB_LOG_DEBUG };

/* The highest level that is printed: VERBENA_LOG=error|warn|info|debug, or "error" if it is not set. */
enum vb_log_level vb_log_threshold(void);

/* Prints "verbena: <text>\n" to stderr in one write, if level is within the threshold. Any lock may be held: a line
 * that would have to wait, because nobody reads the pipe, is lost, and the next line says how many were. Keeps errno. */
void vb_log(enum vb_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
