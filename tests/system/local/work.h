// work.h - random work between two processes, every byte of which is looked at
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WORK_H
#define VB_TEST_WORK_H

#include "pair.h"

/*
 * Both sides do the same at the same time: on each queue pair random sends, writes (each read back and compared),
 * writes with immediate, fetch-and-adds and compare-and-swaps, with random lengths, pieces and flags, several under
 * way at once. Checked: the order of completions, the bytes and the order of what is received, what is read back,
 * what atomics return, and that bytes beside the messages stay as they were.
 */
struct work {
	unsigned qps, ms;  /* how many, how long */
	unsigned long ops; /* … or how many requests on each; 0: no limit */
	uint32_t max;      /* longest message */
	uint64_t seed;
	enum ibv_qp_type types[4]; /* taken in turn; all 0: RC */
	unsigned depth;            /* under way on each; [16] */
	bool shared;               /* the memory is a shared mapping */
	void (*tick)(uint64_t ms); /* called now and then, with the time since the start */
};
void work(struct dev *d, int fd, const struct work *w);

#endif
