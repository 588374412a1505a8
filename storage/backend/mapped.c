// mapped.c - a file with a mapped page cache, from which reads are sent without a copy; for data that fits into memory
// follows: mmap(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sys/mman.h>

#include "backend/descriptor.h"

static int mapped_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out)
{
	struct nb_descriptor *d;
	int error = nb_descriptor_open(config, ring, NB_MEDIUM_MAPPED, &d);

	if (error)
		return error;
	void *map = mmap(NULL, d->b.size, PROT_READ, MAP_SHARED, d->fd, 0);

	if (map == MAP_FAILED) {
		error = errno;
		nb_descriptor_close(&d->b);
		return error;
	}
	d->b.map = map;
	d->b.map_len = d->mapped = d->b.size;
	*out = &d->b;
	return 0;
}

/*
 * Reads are sent from the map only up to its length; the ring reads what the file has gained since. The map stays where
 * it is, because its addresses have been given to transports.
 */
static int mapped_resize(struct nb_backend *b, uint64_t size)
{
	int error = nb_descriptor_resize(b, size);

	if (!error && b->size < b->map_len)
		b->map_len = b->size;
	if (!error)
		b->map_lost = false;
	return error;
}

static void mapped_close(struct nb_backend *b)
{
	munmap((void *)(uintptr_t)b->map, ((struct nb_descriptor *)b)->mapped);
	nb_descriptor_close(b);
}

const struct nb_kind nb_mapped = {"mapped", mapped_open, nb_descriptor_submit, mapped_resize, mapped_close};
