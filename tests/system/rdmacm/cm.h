// cm.h - two ends of a connection within one process: the helpers of librdmacm's tests
// follows: rdma_cm(7)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CM_H
#define VB_TEST_CM_H

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "../local/pair.h"

#define MUST(call) CHECK((call) == 0)
#define FAILS(call, err)            \
	do {                        \
		errno = 0;          \
		SAME((call), -1);   \
		SAME(errno, (err)); \
	} while (0)

union address {
	struct sockaddr sa;
	struct sockaddr_in sin;
	struct sockaddr_in6 sin6;
};
/* "127.0.0.1", "::1" */
union address at(const char *host, unsigned port);

/* The next event must be this one, and is acknowledged. *out: a copy, without private data; may be NULL. */
void next_is(struct rdma_event_channel *ch, enum rdma_cm_event_type type, struct rdma_cm_event *out);
struct rdma_cm_event *fetch(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
bool event_waits(struct rdma_event_channel *ch);

struct end {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buf[4096];
};
/* A listener on a free port. Returns the port. */
unsigned start_listening(struct end *e, const char *host, enum rdma_port_space ps, int backlog);
/* Resolves address and route. */
void go_to(struct end *e, const char *host, unsigned port, enum rdma_port_space ps);
void make_qp(struct end *e);
struct ibv_qp_init_attr qp_attr(struct ibv_cq *cq, enum ibv_qp_type type);
/* Creates listener, client and the new id, connected, with QPs. */
void connect_pair(struct end *listener, struct end *client, struct end *server);
void finish_pair(struct end *listener, struct end *client, struct end *server);
void drop_end(struct end *e); /* frees QP, CQ, MR, id, and the channel if it is its own */
void poll_one(struct ibv_cq *cq, struct ibv_wc *wc);

#endif
