// check.h - a failed check prints its place and ends the test
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CHECK_H
#define VB_TEST_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x)                                                                                                    \
	do {                                                                                                        \
		if (!(x)) {                                                                                         \
			fprintf(stderr, "%s:%d: %s: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, __func__, #x, \
			        errno, strerror(errno));                                                            \
			exit(1);                                                                                    \
		}                                                                                                   \
	} while (0)

/* Checks that two integers are equal, and prints both if they are not. */
#define SAME(a, b)                                                                                                   \
	do {                                                                                                         \
		long long a_ = (long long)(a), b_ = (long long)(b);                                                  \
		if (a_ != b_) {                                                                                      \
			fprintf(stderr, "%s:%d: %s is %lld (%#llx), not %s: %lld (%#llx)\n", __FILE__, __LINE__, #a, \
			        a_, (unsigned long long)a_, #b, b_, (unsigned long long)b_);                         \
			exit(1);                                                                                     \
		}                                                                                                    \
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
