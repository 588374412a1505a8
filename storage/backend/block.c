// block.c - a namespace on a block device
// follows: open(2), fallocate(2) (block devices map it to discard and write zeroes)
// SPDX-License-Identifier: MIT
#include "backend/descriptor.h"

static int block_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out)
{
	struct nb_descriptor *d;
	int error = nb_descriptor_open(config, ring, NB_MEDIUM_BLOCK, &d);

	if (!error)
		*out = &d->b;
	return error;
}

const struct nb_kind nb_block = {"block", block_open, nb_descriptor_submit, nb_descriptor_resize, nb_descriptor_close};
