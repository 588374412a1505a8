// memory.c - simulated memory: pieces with guards between them, and known content
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define GUARD 0xa5
#define POOL (SIM_LENGTH_MAX + 65536u)

static uint8_t pool[POOL];

static const uint8_t *data_of(uint32_t seed)
{
	static bool ready;

	if (!ready) {
		uint64_t x = 88172645463325252u;

		for (uint32_t i = 0; i < POOL; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			pool[i] = (uint8_t)x;
		}
		ready = true;
	}
	return pool + seed % 65536;
}

void sim_buffer_init(struct sim *sim, struct sim_buffer *b, uint32_t length)
{
	uint32_t left = length, at = SIM_GUARD;

	*b = (struct sim_buffer){.length = length, .n = 1 + (length >= SIM_PIECES ? sim_below(sim, SIM_PIECES) : 0)};
	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t len = i + 1 == b->n ? left : sim_below(sim, left + 1);

		b->piece[i].at = at;
		b->piece[i].length = len;
		at += len + SIM_GUARD;
		left -= len;
	}
	b->total = at;
	b->bytes = malloc(b->total);
	memset(b->bytes, GUARD, b->total < 4096 ? b->total : 4096);
	for (uint32_t i = 0; i < b->n; i++)
		memset(b->bytes + b->piece[i].at + b->piece[i].length, GUARD, SIM_GUARD);
	memset(b->bytes, GUARD, SIM_GUARD);
}

void sim_buffer_free(struct sim_buffer *b)
{
	free(b->bytes);
	b->bytes = NULL;
}

void sim_fill(struct sim_buffer *b, uint32_t seed)
{
	const uint8_t *from = data_of(seed);

	for (uint32_t i = 0; i < b->n; from += b->piece[i++].length)
		memcpy(b->bytes + b->piece[i].at, from, b->piece[i].length);
}

bool sim_filled(const struct sim_buffer *b, uint32_t length, uint32_t seed)
{
	const uint8_t *from = data_of(seed);

	for (uint32_t i = 0; i < b->n && length; i++) {
		uint32_t len = b->piece[i].length < length ? b->piece[i].length : length;

		if (memcmp(b->bytes + b->piece[i].at, from, len))
			return false;
		from += len;
		length -= len;
	}
	return true;
}

bool sim_guarded(const struct sim_buffer *b)
{
	if (!b->bytes)
		return true;
	for (uint32_t i = 0; i < SIM_GUARD; i++)
		if (b->bytes[i] != GUARD)
			return false;
	for (uint32_t k = 0; k < b->n; k++)
		for (uint32_t i = 0; i < SIM_GUARD; i++)
			if (b->bytes[b->piece[k].at + b->piece[k].length + i] != GUARD)
				return false;
	return true;
}

int sim_pieces(const struct sim_buffer *b, uint32_t offset, uint32_t len, struct iovec *iov)
{
	int n = 0;

	if (b->gone || offset > b->length || len > b->length - offset)
		return -1;
	for (uint32_t i = 0; i < b->n && len; i++) {
		uint32_t here = b->piece[i].length;

		if (offset >= here) {
			offset -= here;
			continue;
		}
		here = here - offset < len ? here - offset : len;
		iov[n++] = (struct iovec){b->bytes + b->piece[i].at + offset, here};
		len -= here;
		offset = 0;
	}
	return n;
}
