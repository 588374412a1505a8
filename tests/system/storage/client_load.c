// client_load.c - random requests to a disk of known content
// SPDX-License-Identifier: MIT
#include "client_load.h"

#include <stdlib.h>
#include <string.h>

#include "../../support/check.h"

enum kind { READ, WRITE, COMPARE, ZEROES, FLUSH, KINDS };

struct load_slot {
	struct load *load;
	uint8_t *data;
	enum kind kind;
	uint64_t at;
	uint32_t length;
	bool busy;
};

uint64_t draw(uint64_t *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return *seed * 0x2545f4914f6cdd1du;
}

static uint32_t block_of(const struct load *l)
{
	return vn_info(l->disk)->block_size;
}

static void mark(struct load *l, uint64_t at, uint32_t length, bool busy)
{
	memset(l->busy + at / block_of(l), busy, length / block_of(l));
}

static bool idle(const struct load *l, uint64_t at, uint32_t length)
{
	return !memchr(l->busy + at / block_of(l), 1, length / block_of(l));
}

static void over(void *arg, int error)
{
	struct load_slot *s = arg;
	struct load *l = s->load;

	SAME(error, 0);
	CHECK(s->busy);
	if (s->kind == READ)
		CHECK(!memcmp(s->data, l->shadow + s->at, s->length));
	if (s->length)
		mark(l, s->at, s->length, false);
	s->busy = false;
	l->under_way--;
	l->ended++;
}

static void fill(struct load *l, uint8_t *at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 8) {
		uint64_t x = draw(&l->seed);

		memcpy(at + i, &x, 8);
	}
}

static int begin(struct load_slot *s)
{
	struct load *l = s->load;

	switch (s->kind) {
	case READ:
		memset(s->data, 0xee, s->length);
		return vn_read(l->disk, s->data, s->length, s->at, draw(&l->seed) % 2 ? VN_MORE : 0, over, s);
	case WRITE:
		fill(l, s->data, s->length);
		memcpy(l->shadow + s->at, s->data, s->length);
		return vn_write(l->disk, s->data, s->length, s->at, draw(&l->seed) % 8 ? 0 : VN_FUA, over, s);
	case COMPARE:
		memcpy(s->data, l->shadow + s->at, s->length);
		return vn_compare(l->disk, s->data, s->length, s->at, 0, over, s);
	case ZEROES:
		memset(l->shadow + s->at, 0, s->length);
		return vn_write_zeroes(l->disk, s->length, s->at, VN_DISCARD, over, s);
	default:
		return vn_flush(l->disk, 0, over, s);
	}
}

static void one(struct load_slot *s)
{
	struct load *l = s->load;
	uint32_t block = block_of(l), most = draw(&l->seed) % 4 ? 8 * block : l->largest;
	unsigned d = (unsigned)(draw(&l->seed) % 100);

	s->length = (uint32_t)(1 + draw(&l->seed) % (most / block)) * block;
	s->at = draw(&l->seed) % ((l->size - s->length) / block + 1) * block;
	s->kind = d < 45 ? READ : d < 85 ? WRITE : d < 92 ? COMPARE : d < 97 ? ZEROES : FLUSH;
	if ((s->kind == COMPARE && !vn_info(l->disk)->compare) || (s->kind == ZEROES && l->no_zeroes))
		s->kind = READ;
	if (s->kind == FLUSH)
		s->length = 0;
	else if (!idle(l, s->at, s->length))
		return; /* another time */
	else
		mark(l, s->at, s->length, true);
	s->busy = true;
	l->under_way++;
	SAME(begin(s), 0);
}

void load_begin(struct load *l)
{
	size_t bytes = (size_t)l->depth * l->largest;

	l->size = vn_info(l->disk)->size;
	l->shadow = calloc(1, l->size);
	l->busy = calloc(1, l->size / block_of(l));
	CHECK(l->shadow && l->busy && !posix_memalign((void **)&l->memory, 4096, bytes));
	l->slots = calloc(l->depth, sizeof(*l->slots));
	CHECK(l->slots);
	if (l->registered)
		SAME(vn_register(l->disk, l->memory, bytes, &l->handle), 0);
	for (unsigned i = 0; i < l->depth; i++) {
		l->slots[i].load = l;
		l->slots[i].data = l->memory + (size_t)i * l->largest;
	}
	l->no_zeroes = vn_write_zeroes_wait(l->disk, l->size, 0, 0);
	if (l->no_zeroes) /* some targets do not support it, with some disks */
		SAME(vn_write_wait(l->disk, l->shadow, l->size, 0, 0), 0);
}

void load_run(struct load *l, uint64_t requests)
{
	uint64_t until = l->ended + requests;

	while (l->ended < until) {
		for (unsigned i = 0; i < l->depth; i++)
			if (!l->slots[i].busy)
				one(&l->slots[i]);
		CHECK(vn_poll(l->disk, l->under_way ? -1 : 0) >= 0);
	}
}

void load_end(struct load *l)
{
	uint8_t *all = malloc(l->size);

	while (l->under_way)
		CHECK(vn_poll(l->disk, -1) > 0);
	SAME(vn_flush_wait(l->disk), 0);
	CHECK(all);
	SAME(vn_read_wait(l->disk, all, l->size, 0), 0);
	CHECK(!memcmp(all, l->shadow, l->size));
	if (l->registered)
		SAME(vn_unregister(l->disk, l->handle), 0);
	free(all);
	free(l->shadow);
	free(l->busy);
	free(l->memory);
	free(l->slots);
}
