// client_load.h - random requests to a disk of known content, with a copy of it in memory
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_CLIENT_LOAD_H
#define VB_TEST_STORAGE_CLIENT_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/verbena_nvme.h"

struct load {
	struct vn_disk *disk;
	unsigned depth;   /* outstanding requests */
	uint32_t largest; /* bytes of a request */
	uint64_t seed;
	bool registered;
	uint64_t ended; /* requests so far */
	/* own settings */
	uint64_t size, under_way;
	bool no_zeroes;
	uint8_t *shadow, *busy; /* content; blocks in use by a request */
	uint8_t *memory;
	struct load_slot *slots;
	struct vn_memory *handle;
};

void load_begin(struct load *l);                  /* the disk is filled with zeroes */
void load_run(struct load *l, uint64_t requests); /* until this many more have ended */
void load_end(struct load *l);                    /* waits, reads everything back */

uint64_t draw(uint64_t *seed);

#endif
