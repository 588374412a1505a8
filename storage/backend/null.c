// null.c - a namespace of zeros that discards written data, for measurements without a medium
// follows: null(4)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

static int null_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out)
{
	if (!config->size)
		return EINVAL;
	struct nb_backend *b = calloc(1, sizeof(*b));

	if (!b)
		return ENOMEM;
	b->block = config->block ? config->block : 512;
	b->size = config->size / b->block * b->block;
	b->readonly = config->readonly;
	b->zeros_after_discard = true;
	*out = b;
	return 0;
}

static void null_submit(struct nb_backend *b, struct nb_request *r)
{
	if (r->op == NB_READ)
		memset(r->data, 0, r->length);
	r->done(r, 0);
}

static int null_resize(struct nb_backend *b, uint64_t size)
{
	if (size)
		b->size = size / b->block * b->block;
	return 0;
}

static void null_close(struct nb_backend *b)
{
	free(b);
}

const struct nb_kind nb_null = {"null", null_open, null_submit, null_resize, null_close};
