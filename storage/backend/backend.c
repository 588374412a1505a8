// backend.c - the kinds of backends by name
// SPDX-License-Identifier: MIT
#include "backend/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct nb_kind *const kinds[] = {&nb_memory, &nb_null, &nb_file, &nb_block, &nb_mapped,
#ifdef NB_HAVE_RBD
                                              &nb_rbd
#endif
};

static const struct nb_kind *find_kind(const struct nb_config *config, int *error)
{
	uint32_t b = config->block;

	*error = b && (b < 512 || b > 4096 || (b & (b - 1))) ? EINVAL : config->size > NB_SIZE_MAX ? EFBIG : 0;
	if (*error)
		return NULL;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(kinds[i]->name, config->kind))
			return kinds[i];
	if (config->why)
		snprintf(config->why, NB_WHY, "this program was built without the backend %.80s", config->kind);
	*error = ENODEV;
	return NULL;
}

int nb_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out)
{
	int error;
	const struct nb_kind *kind = find_kind(config, &error);

	if (kind && !(error = kind->open(config, ring, out)))
		(*out)->kind = kind;
	return error;
}

bool nb_threads_left(void)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (kinds[i]->threads_left && kinds[i]->threads_left())
			return true;
	return false;
}

int nb_open_later(const struct nb_config *config, struct nb_ring *ring, struct nb_opening *o)
{
	int error;
	struct nb_config c = *config;
	struct nb_backend *b = NULL;

	*o->why = 0;
	c.why = o->why;
	const struct nb_kind *kind = find_kind(&c, &error);

	if (!kind)
		return error;
	if (kind->open_later)
		return kind->open_later(&c, ring, o);
	if (!(error = kind->open(&c, ring, &b)))
		b->kind = kind;
	o->done(o, error, b);
	return 0;
}

void nb_submit(struct nb_backend *b, struct nb_request *r)
{
	r->backend = b;
	b->kind->submit(b, r);
}

int nb_resize(struct nb_backend *b, uint64_t size)
{
	if (size > NB_SIZE_MAX)
		return EFBIG;
	return b->kind->resize ? b->kind->resize(b, size) : size && size != b->size ? ENOTSUP : 0;
}

void nb_close(struct nb_backend *b)
{
	if (b)
		b->kind->close(b);
}

void nb_reserved(struct nb_backend *b, uint64_t version)
{
	if (b->kind->reserved)
		b->kind->reserved(b, version);
}

void nb_announce(struct nb_backend *b, const struct nb_port *ports, uint32_t count)
{
	if (b->kind->announce)
		b->kind->announce(b, ports, count < NB_PORTS_OF_ONE ? count : NB_PORTS_OF_ONE);
}
