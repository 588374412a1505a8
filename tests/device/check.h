// check.h - a failed expectation names itself and ends the test
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_DEVICE_CHECK_H
#define VB_TEST_DEVICE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

#define SKIP(why) \
	do { \
		printf("skipped: %s\n", why); \
		exit(77); \
	} while (0)

/* Runs a test function and says which. */
#define RUN(test) \
	do { \
		test(); \
		printf("ok %s\n", #test); \
	} while (0)

#endif
