// work.h - random work between two processes; every byte is checked
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WORK_H
#define VB_TEST_WORK_H

#include "pair.h"

/*
 * Both sides do the same at the same time: on each queue pair random sends, writes (each read back and compared),
 * writes with immediate, fetch-and-adds and compare-and-swaps, with random lengths, pieces and flags, several
 * outstanding at once. They check the order of completions, the bytes and order of received messages, the data read
 * back, the results of atomics, and the bytes beside the messages.
 */
struct work {
	unsigned qps, ms;  /* number of queue pairs, duration */
	unsigned long ops; /* … or number of requests on each; 0: no limit */
	uint32_t max;      /* longest message */
	uint64_t seed;
	enum ibv_qp_type types[4]; /* used in turn; all 0: RC */
	unsigned depth;            /* outstanding on each; [16] */
	bool shared;               /* the memory is a shared mapping */
	void (*tick)(uint64_t ms); /* called now and then, with the time since the start */
};
void work(struct dev *d, int fd, const struct work *w);

#endif
