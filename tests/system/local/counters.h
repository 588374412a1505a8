// counters.h - completion counters, which the headers of rdma-core 44 do not have
// follows: rdma-core 65, ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), ibv_query_comp_cntr_caps(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_LOCAL_COUNTERS_H
#define VB_TEST_LOCAL_COUNTERS_H

#include <infiniband/verbs.h>

struct cntr {
	struct ibv_context *context;
	uint32_t handle;
};
struct cntr_attr {
	uint32_t comp_mask;
	int type;
	uint32_t flags;
};
struct attach_attr {
	uint32_t comp_mask, op_mask;
};
struct cntr_caps {
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};
enum { WRS, BYTES };
enum { SEND = 1, RECV = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32 };
int _ibv_query_comp_cntr_caps(struct ibv_context *context, struct cntr_caps *caps, size_t size);
struct cntr *ibv_create_comp_cntr(struct ibv_context *context, struct cntr_attr *attr);
int ibv_destroy_comp_cntr(struct cntr *cntr);
int ibv_qp_attach_comp_cntr(struct ibv_qp *qp, struct cntr *cntr, struct attach_attr *attr);
int ibv_set_comp_cntr(struct cntr *cntr, uint64_t value);
int ibv_set_err_comp_cntr(struct cntr *cntr, uint64_t value);
int ibv_inc_comp_cntr(struct cntr *cntr, uint64_t amount);
int ibv_inc_err_comp_cntr(struct cntr *cntr, uint64_t amount);
int ibv_read_comp_cntr(struct cntr *cntr, uint64_t *value);
int ibv_read_err_comp_cntr(struct cntr *cntr, uint64_t *value);

#endif
