// client_load.h - a load on a disk whose every byte is known: random requests, and a shadow in memory
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_CLIENT_LOAD_H
#define VB_TEST_STORAGE_CLIENT_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/verbena_nvme.h"

struct load {
	struct vn_disk *disk;
	unsigned depth;   /* requests under way */
	uint32_t largest; /* bytes of a request */
	uint64_t seed;
	bool registered;
	uint64_t ended; /* requests so far */
	/* its own */
	uint64_t size, under_way;
	bool no_zeroes;
	uint8_t *shadow, *busy; /* what stands there; which blocks a request is about */
	uint8_t *memory;
	struct load_slot *slots;
	struct vn_memory *handle;
};

void load_begin(struct load *l);                  /* the disk is filled with zeroes */
void load_run(struct load *l, uint64_t requests); /* until so many more have ended */
void load_end(struct load *l);                    /* waits, reads everything back */

uint64_t draw(uint64_t *seed);

#endif
