// slow_medium.h - a medium whose requests the test finishes, for tests of the SCSI layer and of SRP's channels
// SPDX-License-Identifier: MIT
#ifndef SLOW_MEDIUM_H
#define SLOW_MEDIUM_H

#include "../../support/check.h"
#include "backend/backend.h"

#define SLOW_PENDING 512u

static struct {
	struct nb_backend b;
	struct nb_request *pending[SLOW_PENDING]; /* the oldest first */
	unsigned count;
	uint8_t *bytes; /* NULL: nothing is stored */
} slow;

static void slow_submit(struct nb_backend *b, struct nb_request *r)
{
	CHECK(r->op == NB_FLUSH || (r->offset <= b->size && r->length <= b->size - r->offset));
	CHECK(slow.count < SLOW_PENDING);
	slow.pending[slow.count++] = r;
}

static void slow_close(struct nb_backend *b)
{
}

static const struct nb_kind slow_kind = {"slow", NULL, slow_submit, NULL, slow_close};

static struct nb_backend *slow_open(uint64_t size, uint8_t *bytes)
{
	slow.b = (struct nb_backend){.kind = &slow_kind, .size = size, .block = 512, .volatile_cache = true};
	slow.count = 0;
	slow.bytes = bytes;
	return &slow.b;
}

static void slow_finish(unsigned i, int error)
{
	struct nb_request *r = slow.pending[i];

	slow.count--;
	memmove(slow.pending + i, slow.pending + i + 1, (slow.count - i) * sizeof(r));
	if (!error && r->op == NB_READ && slow.bytes)
		memcpy(r->data, slow.bytes + r->offset, r->length);
	else if (!error && r->op == NB_READ)
		memset(r->data, 0x33, r->length); /* a sanitizer sees whether all of this memory is there */
	else if (!error && r->op == NB_WRITE && slow.bytes)
		memcpy(slow.bytes + r->offset, r->data, r->length);
	r->done(r, error);
}

#endif
