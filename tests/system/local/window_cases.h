// window_cases.h - the tests of memory windows, for each path
// follows: IBA volume 1, 10.6 (memory windows); RFC 5040, 8.1
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WINDOW_CASES_H
#define VB_TEST_WINDOW_CASES_H

#include "pair.h"

struct way {
	void (*open)(struct dev *d);
	void (*join)(struct link *l, struct dev *d, const struct conf *c, int fd); /* makes and joins */
	bool iwarp; /* a write or a send that the peer refuses completes before: RFC 5040, 7 */
};
extern struct way way;

extern const struct test window_cases[];
extern const size_t window_cases_n;

#endif
