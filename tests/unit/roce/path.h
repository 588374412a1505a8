// path.h - queue pairs that write endlessly over one bottleneck, alone or beside a TCP, in virtual time
// see: tests/unit/roce/tcp.c (the TCP)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIRE_PATH_H
#define VB_TEST_WIRE_PATH_H

#include "engine/roce/roce.h"
#include "tcp.h"

#define PATH_PAIRS 2

struct path {
	uint64_t bits_per_us, rtt, time; /* rate of the link; round trip without a queue, ns; duration, ns */
	uint64_t from;                   /* ns: when measuring the shares begins */
	uint32_t lose;                   /* lost packets of 100,000, in each direction */
	uint32_t queue;                  /* limit of queued bytes; 0: no limit */
	uint32_t mtu, keep, pairs;       /* keep: slots of each receiver */
	uint64_t stall; /* ns: average time in which an end is busy with other work, once in five times that */
	enum tcp_kind tcp;
	bool read;                 /* the responder sends the data */
	uint64_t tcp_at, pairs_at; /* start of the TCP; of the queue pairs */
};

struct path_result {
	double share[PATH_PAIRS], tcp; /* percent of the link */
	struct vb_roce_stats stats;    /* counters of the first pair's requester */
	struct vb_roce_requester requester;
};

struct path_result path_run(const struct path *path);

#endif
