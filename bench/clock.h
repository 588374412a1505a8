// clock.h - time, medians and cores for the measuring programs
// follows: clock_gettime(2), sched_setaffinity(2)
// SPDX-License-Identifier: MIT
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static inline uint64_t median_u64(uint64_t *v, size_t n)
{
	qsort(v, n, sizeof(*v), compare_u64);
	return v[n / 2];
}

/* The nth of the cores in BENCH_CORES ("0,1"); without that variable the scheduler chooses. */
static inline void take_core(int n)
{
	const char *s = getenv("BENCH_CORES");
	cpu_set_t set;
	int core = 0;

	if (!s || !*s)
		return;
	for (; n > 0 && s; n--)
		s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL;
	if (!s || sscanf(s, "%d", &core) != 1)
		return;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

_Noreturn static inline void fail(const char *what)
{
	perror(what);
	exit(1);
}

#endif
