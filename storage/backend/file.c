// file.c - a namespace in a regular file, with O_DIRECT if the file system supports this block size
// follows: open(2), fallocate(2)
// SPDX-License-Identifier: MIT
#include "backend/descriptor.h"

static int file_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out)
{
	struct nb_descriptor *d;
	int error = nb_descriptor_open(config, ring, NB_MEDIUM_FILE, &d);

	if (!error)
		*out = &d->b;
	return error;
}

const struct nb_kind nb_file = {"file", file_open, nb_descriptor_submit, nb_descriptor_resize, nb_descriptor_close};
