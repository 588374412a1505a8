// regions_stream.c - regions.h for iWARP adapters
// SPDX-License-Identifier: MIT
#include "../local/regions.h"

#include "stream.h"

const bool over_iwarp = true;

void side_open(struct dev *d)
{
	open_iwarp(d);
}

void side_join(struct link *l, int fd)
{
	stream_join(l, fd);
}
