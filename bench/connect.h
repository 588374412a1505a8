// connect.h - helpers of the measuring programs: open an adapter, create RC queue pairs, connect them
// follows: ibv_create_qp(3), ibv_modify_qp(3)
// SPDX-License-Identifier: MIT
#ifndef BENCH_CONNECT_H
#define BENCH_CONNECT_H

#include <infiniband/verbs.h>
#include <stdint.h>
#include <sys/types.h>

#include "clock.h"

struct adapter {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	int gid_index;
	union ibv_gid gid;
};

/* The data that two sides exchange to connect. */
struct endpoint {
	uint32_t qpn;
	union ibv_gid gid;
};

/* A barrier in shared memory, for processes forked later. Waiting processes sleep. */
struct meeting;
struct meeting *meeting_new(unsigned processes);
void meeting_wait(struct meeting *m);
/* Memory shared with processes forked later. */
void *shared_memory(size_t n);
/* Forks a child that dies with its parent. Returns 0 in the child. */
pid_t fork_child(void);
/* Waits for n children; exits if one failed. */
void reap(int n);

/* Opens the first adapter. All functions here exit with a message on failure. */
void adapter_open(struct adapter *a);
struct ibv_cq *cq_new(struct adapter *a, int depth, struct ibv_comp_channel *channel);
struct ibv_qp *qp_new(struct adapter *a, struct ibv_cq *cq, unsigned depth, struct endpoint *self);
void qp_connect(struct adapter *a, struct ibv_qp *qp, const struct endpoint *peer);
void post_recv(struct ibv_qp *qp, struct ibv_mr *mr, uint64_t wr_id);
void post_send_inline(struct ibv_qp *qp, const void *from, uint32_t n);
void poll_for(struct ibv_cq *cq, int completions);

#endif
