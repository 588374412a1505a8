// need.h - what a test program cannot go on without
// see: tests/system/fabric/wire.sh, multicast.sh
// SPDX-License-Identifier: MIT
#ifndef TESTS_FABRIC_NEED_H
#define TESTS_FABRIC_NEED_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline void need(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

#endif
