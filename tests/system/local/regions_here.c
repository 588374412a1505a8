// regions_here.c - regions.h for RoCE adapters: shared memory, or packets with VERBENA_WIRE=always
// SPDX-License-Identifier: MIT
#include "regions.h"

const bool over_iwarp = false;

void side_open(struct dev *d)
{
	dev_open(d);
}

void side_join(struct link *l, int fd)
{
	link_join(l, fd);
}
