// memory.c - a namespace in memory that ends with the process; pages are allocated when they are first written
// follows: mmap(2), mremap(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/backend.h"

struct memory {
	struct nb_backend b;
	uint8_t *bytes;
};

static int memory_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out)
{
	uint32_t block = config->block ? config->block : 512;
	uint64_t size = config->size / block * block;

	if (!size)
		return EINVAL;
	struct memory *m = calloc(1, sizeof(*m));

	if (!m)
		return ENOMEM;
	m->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m->bytes == MAP_FAILED) {
		free(m);
		return ENOMEM;
	}
	m->b = (struct nb_backend){.size = size,
	                           .block = block,
	                           .readonly = config->readonly,
	                           .zeros_after_discard = true,
	                           .map = m->bytes,
	                           .map_len = size};
	*out = &m->b;
	return 0;
}

static void zero_bytes(uint8_t *at, uint64_t len)
{
	uint8_t *page = (uint8_t *)(((uintptr_t)at + NB_ALIGN - 1) / NB_ALIGN * NB_ALIGN);
	uint8_t *end = (uint8_t *)((uintptr_t)(at + len) / NB_ALIGN * NB_ALIGN);

	/* give whole pages back to the kernel; a few pages are faster zeroed by writing */
	if (end > page && end - page >= 64 * (ptrdiff_t)NB_ALIGN &&
	    !madvise(page, (size_t)(end - page), MADV_DONTNEED)) {
		memset(at, 0, (size_t)(page - at));
		memset(end, 0, (size_t)(at + len - end));
	} else {
		memset(at, 0, len);
	}
}

static void memory_submit(struct nb_backend *b, struct nb_request *r)
{
	uint8_t *at = ((struct memory *)b)->bytes + r->offset;

	switch (r->op) {
	case NB_READ:
		memcpy(r->data, at, r->length);
		b->copied += r->length;
		break;
	case NB_WRITE:
		memcpy(at, r->data, r->length);
		b->copied += r->length;
		break;
	case NB_DISCARD:
	case NB_ZERO:
		zero_bytes(at, r->length);
		break;
	default:
		break;
	}
	r->done(r, 0);
}

static void memory_close(struct nb_backend *b)
{
	struct memory *m = (struct memory *)b;

	munmap(m->bytes, b->map_len);
	free(m);
}

/* no resize: memory that a transport has registered or sends from must not move */
const struct nb_kind nb_memory = {"memory", memory_open, memory_submit, NULL, memory_close};
