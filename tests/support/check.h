// check.h - a failed check prints its place and ends the test
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CHECK_H
#define VB_TEST_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A failed check ends the test here, with a printf format and its arguments. A test with an end of its own (several
 * processes, MPI, a fuzz target) defines it before it includes this file. */
#ifndef CHECK_FAILED
#define CHECK_FAILED(fmt, ...)                                                                        \
	do {                                                                                          \
		fprintf(stderr, "%s:%d: %s: " fmt "\n", __FILE__, __LINE__, __func__, ##__VA_ARGS__); \
		exit(1);                                                                              \
	} while (0)
#endif

#define CHECK(x)                                                                               \
	do {                                                                                   \
		if (!(x))                                                                      \
			CHECK_FAILED("not so: %s (errno %d, %s)", #x, errno, strerror(errno)); \
	} while (0)

/* Checks that two integers are equal, and prints both if they are not. */
#define SAME(a, b)                                                                                                   \
	do {                                                                                                         \
		long long a_ = (long long)(a), b_ = (long long)(b);                                                  \
		if (a_ != b_)                                                                                        \
			CHECK_FAILED("%s is %lld (%#llx), not %s: %lld (%#llx)", #a, a_, (unsigned long long)a_, #b, \
			             b_, (unsigned long long)b_);                                                    \
	} while (0)

/* Meson counts the exit status 77 as skipped. */
#define SKIP(reason)                             \
	do {                                     \
		printf("skipped: %s\n", reason); \
		exit(77);                        \
	} while (0)

/* Runs a test function and prints its name. */
#define RUN(test)                         \
	do {                              \
		test();                   \
		printf("ok %s\n", #test); \
		fflush(stdout);           \
	} while (0)

/* Milliseconds within which an expected event arrives even on a very busy machine. Only a failing test waits so
 * long. */
#define LONG_MS 20000

#endif
