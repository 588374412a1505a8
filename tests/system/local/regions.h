// regions.h - how the tests of regions open an adapter and connect a queue pair: on one host, or over iWARP
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_REGIONS_H
#define VB_TEST_REGIONS_H

#include "pair.h"

/* iWARP: a write completes when it is sent, and the stream ends if the other side refuses it (RFC 5040). */
extern const bool over_iwarp;
void side_open(struct dev *d);
/* As link_join. */
void side_join(struct link *l, int fd);

#endif
