// clock.h - a clock that the test sets, and a count of lines that were logged
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_LOCAL_CLOCK_H
#define VB_TEST_LOCAL_CLOCK_H

#include "core/node.h"
#include "util/log.h"

static uint64_t now = 1000000;
static unsigned lines;

uint64_t vb_now(void)
{
	return now;
}

void vb_log(enum vb_log_level level, const char *fmt, ...)
{
	(void)level;
	(void)fmt;
	lines++;
}

#endif
