// check.h - a failed expectation names itself and ends the test
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_FRAME_CHECK_H
#define VB_TEST_FRAME_CHECK_H

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

/* Runs a test function and says which. */
#define RUN(test)                         \
	do {                              \
		test();                   \
		printf("ok %s\n", #test); \
	} while (0)

#endif
