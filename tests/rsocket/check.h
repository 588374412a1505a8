// check.h - what the tests of rsockets share
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_RSOCKET_CHECK_H
#define VB_TEST_RSOCKET_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x)                                                                                  \
	do {                                                                                      \
		if (!(x)) {                                                                       \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #x, errno); \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

#define LONG 20000 /* milliseconds: what should come has come by then, however loaded the machine */

#define RUN(test)                         \
	do {                              \
		test();                   \
		printf("ok %s\n", #test); \
		fflush(stdout);           \
	} while (0)

#endif
