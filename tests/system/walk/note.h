// note.h - the random walk: what a message says about itself
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_NOTE_H
#define VB_TEST_NOTE_H

#include <stdint.h>

#define NOTE_MAGIC 0x7a1c0deu

/* Bytes by seed follow. */
struct note {
	uint32_t magic, from, from_round, slot, number, length;
	uint32_t key, group; /* invalidated; 1 + number of a group. 0: none */
	uint32_t grh, zero;  /* a datagram has a GRH */
	uint64_t seed;
};

#endif
