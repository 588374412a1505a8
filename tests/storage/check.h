// check.h - a failed expectation names itself and ends the test
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_CHECK_H
#define VB_TEST_STORAGE_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x)                                                                \
	do {                                                                    \
		if (!(x)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			exit(1);                                                \
		}                                                               \
	} while (0)

/* Two numbers that are to be the same, shown when they are not. */
#define SAME(a, b)                                                                                                   \
	do {                                                                                                         \
		unsigned long long a_ = (a), b_ = (b);                                                               \
		if (a_ != b_) {                                                                                      \
			fprintf(stderr, "%s:%d: %s is %#llx, not %s (%#llx)\n", __FILE__, __LINE__, #a, a_, #b, b_); \
			exit(1);                                                                                     \
		}                                                                                                    \
	} while (0)

/* Runs a test function and says which. */
#define RUN(test)                         \
	do {                              \
		test();                   \
		printf("ok %s\n", #test); \
	} while (0)

#endif
