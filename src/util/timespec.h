// timespec.h - struct timespec from nanoseconds
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_TIMESPEC_H
#define VB_UTIL_TIMESPEC_H

#include <stdint.h>
#include <time.h>

static inline struct timespec vb_timespec_of(uint64_t ns)
{
	return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* The time of CLOCK_MONOTONIC in that many ns. */
static inline struct timespec vb_timespec_after(uint64_t ns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return vb_timespec_of((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ns);
}

#endif
