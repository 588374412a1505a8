// stream.h - two programs whose queue pairs are joined by a TCP connection of the test's own
// follows: RFC 5044
// see: path/iwarp/iwarp.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STREAM_H
#define VB_TEST_STREAM_H

#include "../local/pair.h"
#include "path/iwarp/iwarp.h"

struct stream {
	bool crc, markers; /* in both directions */
	bool hold;
	enum vb_iw_rtr rtr;       /* from the initiator */
	unsigned ird, ord;        /* 0: 16 */
	const char *here, *there; /* [127.0.0.1]: in namespaces of their own the two have other addresses */
	bool relay;               /* what the passive side reads goes through a socket of the test's, to cut it off */
};
extern struct stream how; /* what link_join's counterpart does */

/* The next connection between the two: `fd` is the socket between the two processes. Both call it. */
int connection(int fd, bool *initiator);
/* Brings a queue pair from INIT to RTS on it. */
void stream_join(struct link *l, int fd);
void stream_open(struct link *l, struct dev *d, const struct conf *c, int fd);
/* With whatever `own` and status were told: closed() of the streams that stream_join makes. */
extern _Atomic int closed_calls, closed_status;
void wait_closed(int calls);

void open_iwarp(struct dev *d);
/* … with memory of n bytes, and a queue pair in INIT. */
void open_side(struct dev *d, struct link *l, struct mem *m, size_t n);
/* A peer that lends 8 MiB, and ends when it hears something: then they hold what fill() gives for 9. */
void idle_peer(int fd, void *arg);

#endif
