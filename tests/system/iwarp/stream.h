// stream.h - two programs whose queue pairs use a TCP connection made by the test
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
	const char *here, *there; /* [127.0.0.1]: in separate namespaces the two have other addresses */
	bool relay;               /* the passive side reads through a socket of the test, which can cut it off */
};
extern struct stream how; /* what the counterpart of link_join does */

/* Makes the next connection between the two processes. fd is the socket between them. Both call it. */
int connection(int fd, bool *initiator);
/* Brings a queue pair from INIT to RTS on the connection. */
void stream_join(struct link *l, int fd);
void stream_open(struct link *l, struct dev *d, const struct conf *c, int fd);
/* Called with `own` and a status: closed() of the streams that stream_join makes. */
extern _Atomic int closed_calls, closed_status;
void wait_closed(int calls);

void open_iwarp(struct dev *d);
/* … with memory of n bytes, and a queue pair in INIT. */
void open_side(struct dev *d, struct link *l, struct mem *m, size_t n);
/* A peer that offers 8 MiB and ends at a signal. Then the memory must contain fill() for 9. */
void idle_peer(int fd, void *arg);

#endif
