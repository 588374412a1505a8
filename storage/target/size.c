// size.c - reads numbers of bytes, as people write them
// SPDX-License-Identifier: MIT
#include "target/size.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool nt_size_parse(const char *text, uint64_t *size)
{
	static const char units[] = "KMGTP";
	char *end;

	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;
	unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;

	if (errno || *text < '0' || *text > '9' || (*end && (!unit || end[1])) || n > UINT64_MAX >> shift)
		return false;
	*size = n << shift;
	return true;
}
