// post_all.h - posts requests until a queue stays full; struct two is the test's own
// follows: ibv_post_send(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_POST_ALL_H
#define VB_TEST_POST_ALL_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"

#define PLENTY 511u /* more than a queue of these tests has */

void sleep_ms(unsigned ms);

struct two;
/* Posts one request. Returns 0 or an errno value. quiet: without a completion. */
typedef int post_fn(struct two *t, uint64_t id, bool quiet);

/* Posts until the queue is full, and checks that it stays full. Returns the number of requests. */
static inline unsigned post_all(struct two *t, post_fn *one, uint64_t id, bool quiet)
{
	unsigned n = 0;

	for (unsigned refused = 0; refused < 30 && n < PLENTY;) {
		int err = one(t, id + n, quiet);

		if (!err) {
			n++;
			refused = 0;
			continue;
		}
		SAME(err, ENOMEM);
		refused++;
		sleep_ms(1); /* the adapter works meanwhile */
	}
	return n;
}

#endif
