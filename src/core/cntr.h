// cntr.h - completion counters: how many requests of queue pairs have completed, or how many bytes
// follows: rdma-core 65, ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), ibv_query_comp_cntr_caps(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CNTR_H
#define VB_CORE_CNTR_H

#include "core/core.h"

/* We build against the headers of 44.0. Later headers call these ibv_comp_cntr, ibv_comp_cntr_init_attr, ... */
struct vb_comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};

enum { VB_COMP_CNTR_WRS, VB_COMP_CNTR_BYTES };

struct vb_comp_cntr_init_attr {
	uint32_t comp_mask;
	uint32_t type; /* enum ibv_comp_cntr_type */
	uint32_t flags;
};

struct vb_comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters;
	uint32_t supported_qp_attach_ops;
};

struct vb_comp_cntr_attach_attr {
	uint32_t comp_mask;
	uint32_t op_mask; /* 1 << enum vb_comp_cntr_op */
};

/* Bits of op_mask. What a peer reads and writes is not counted: on one host it copies without this process. */
enum vb_comp_cntr_op {
	VB_CNTR_SEND,
	VB_CNTR_RECV,
	VB_CNTR_RDMA_READ,
	VB_CNTR_REMOTE_RDMA_READ,
	VB_CNTR_RDMA_WRITE,
	VB_CNTR_REMOTE_RDMA_WRITE,
};
_Static_assert(VB_CNTR_RDMA_WRITE < VB_CNTR_OPS, "a queue pair has a place for each");
#define VB_CNTR_SUPPORTED (1u << VB_CNTR_SEND | 1u << VB_CNTR_RECV | 1u << VB_CNTR_RDMA_READ | 1u << VB_CNTR_RDMA_WRITE)

/* Counts a request that has completed. Under sq_lock. */
void vb_cntr_sent(struct vb_qp *qp, const struct vb_swqe *w, enum ibv_wc_status status);
/* Counts n receives of these bytes that have completed. Under progress, or the QP is flushed. */
void vb_cntr_received(struct vb_qp *qp, enum ibv_wc_status status, unsigned n, uint64_t bytes);
/* The queue pair ends. */
void vb_cntr_detach(struct vb_qp *qp);

void vb_query_comp_cntr_caps(struct vb_comp_cntr_caps *caps);

#endif
