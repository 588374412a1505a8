// link.h - one queue pair between two programs that exchange addresses by TCP
// follows: ibv_rc_pingpong(1)
// SPDX-License-Identifier: MIT
#pragma once
#include "plan.h"

#include <infiniband/verbs.h>

struct options {
	const char *device, *server;
	int gid, port, seconds, patience;
	enum transport transport;
	uint32_t mtu, largest, kinds, receives;
	uint64_t seed, bytes;
	uint8_t timeout, retries, reads;
	bool events;
	uint32_t may_lose; /* percent */
};

/* The data that one side sends to the other. */
struct side {
	uint32_t qpn, psn, key, cells_key, readable_key;
	uint64_t written, cells, readable;
	union ibv_gid gid;
	unsigned lid; /* 0: its port has none */
};

struct link {
	const struct options *o;
	int tcp;
	uint32_t number; /* 0: the server, 1: the client */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	uint32_t mtu, max_inline;
	struct side here, there;
};

enum { UD_QKEY = 0x11111111, RIGHT = 0, WRONG = 1, USAGE = 2, FAILED = 3, GONE = 4 };

/* Prints and ends the program with `status`. */
_Noreturn void stop(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void link_open(struct link *, const struct options *);
void link_connect(struct link *);
void link_close(struct link *);
