// path.h - queue pairs that write without end over one bottleneck, alone or beside a TCP, in virtual time
// see: tests/unit/roce/tcp.c (the TCP)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIRE_PATH_H
#define VB_TEST_WIRE_PATH_H

#include "engine/roce/roce.h"
#include "tcp.h"

#define PATH_PAIRS 2

struct path {
	uint64_t bits_per_us, rtt, time; /* the link; ns without a queue; ns to run */
	uint64_t from;                   /* ns from which on shares count */
	uint32_t lose;                   /* of 100,000 packets, each way */
	uint32_t queue;                  /* bytes that wait at most; 0: no limit */
	uint32_t mtu, keep, pairs;       /* keep: slots of each receiver */
	uint64_t stall; /* ns: each end is busy with something else for so long, on average, every five times that */
	enum tcp_kind tcp;
	bool read;                 /* the responder sends the data */
	uint64_t tcp_at, pairs_at; /* when the TCP begins; the queue pairs */
};

struct path_result {
	double share[PATH_PAIRS], tcp; /* percent of the link */
	struct vb_roce_stats stats;    /* of the first pair's requester */
	struct vb_roce_requester requester;
};

struct path_result path_run(const struct path *path);

#endif
