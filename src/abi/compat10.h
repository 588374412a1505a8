// compat10.h - the objects of the first ABI (libibverbs 1.0, 2006), each wrapped around a current one
// follows: libibverbs 1.0, infiniband/verbs.h (layouts: programs built then read these fields)
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_COMPAT10_H
#define VB_ABI_COMPAT10_H

#include "abi/abi.h"

#define VB_OLD(impl, name) VB_SYMVER(impl, "ibv_" name "@IBVERBS_1.0")

struct vb_context10;

/* Programs of 2006 never read the field that `real` replaces. struct vb_context10 keeps the fields that they do
 * read. */
struct vb_device10 {
	void *sysfs_dev, *sysfs_ibdev;
	struct ibv_device *real;
	void *ops[2];
};

struct vb_pd10 {
	struct vb_context10 *context;
	uint32_t handle;
	struct ibv_pd *real;
};

struct vb_mr10 {
	struct vb_context10 *context;
	struct vb_pd10 *pd;
	uint32_t handle, lkey, rkey;
	struct ibv_mr *real;
};

struct vb_ah10 {
	struct vb_context10 *context;
	struct vb_pd10 *pd;
	uint32_t handle;
	struct ibv_ah *real;
};

struct vb_cq10 {
	struct vb_context10 *context;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
	struct ibv_cq *real;
};

struct vb_srq10 {
	struct vb_context10 *context;
	void *srq_context;
	struct vb_pd10 *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
	struct ibv_srq *real;
};

struct vb_qp10 {
	struct vb_context10 *context;
	void *qp_context;
	struct vb_pd10 *pd;
	struct vb_cq10 *send_cq, *recv_cq;
	struct vb_srq10 *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
	struct ibv_qp *real;
};

struct vb_qp_init_attr10 {
	void *qp_context;
	struct vb_cq10 *send_cq, *recv_cq;
	struct vb_srq10 *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};

/* next and wr_id have been swapped since. From sg_list on the fields are the same; a send request has grown at its
 * end. */
struct vb_send_wr10 {
	struct vb_send_wr10 *next;
	uint64_t wr_id;
	unsigned char rest[offsetof(struct ibv_send_wr, wr) + sizeof(((struct ibv_send_wr *)0)->wr) - 16];
};

struct vb_recv_wr10 {
	struct vb_recv_wr10 *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
};

/* Only the entries that programs call are filled. The others were internal to the library. */
struct vb_ops10 {
	void *before[7];
	int (*poll_cq)(struct vb_cq10 *cq, int n, struct ibv_wc *wc);
	int (*req_notify_cq)(struct vb_cq10 *cq, int solicited_only);
	void *between[7];
	int (*post_srq_recv)(struct vb_srq10 *srq, struct vb_recv_wr10 *wr, struct vb_recv_wr10 **bad);
	void *qp_calls[4];
	int (*post_send)(struct vb_qp10 *qp, struct vb_send_wr10 *wr, struct vb_send_wr10 **bad);
	int (*post_recv)(struct vb_qp10 *qp, struct vb_recv_wr10 *wr, struct vb_recv_wr10 **bad);
	void *after[4];
};

struct vb_context10 {
	struct vb_device10 *device;
	struct vb_ops10 ops;
	int cmd_fd, async_fd, num_comp_vectors;
	struct ibv_context *real;
	/* Behind the old struct. ibv_create_comp_channel has no old version, so it receives one of these contexts. It
	 * recognises it by mark, which lies where a current context has abi_compat. */
	struct vb_device10 own_device; /* outlives the device list */
	char pad[offsetof(struct ibv_context, abi_compat) - 288];
	const void *mark;
};

_Static_assert(offsetof(struct vb_context10, ops.poll_cq) == 8 + 7 * 8, "ops of 1.0");
_Static_assert(offsetof(struct vb_context10, ops.post_srq_recv) == 8 + 16 * 8, "ops of 1.0");
_Static_assert(offsetof(struct vb_context10, ops.post_send) == 8 + 21 * 8, "ops of 1.0");
_Static_assert(offsetof(struct vb_context10, cmd_fd) == 8 + 27 * 8, "27 calls in the ops of 1.0");
_Static_assert(offsetof(struct vb_context10, mark) == offsetof(struct ibv_context, abi_compat), "told from a real one");

/* The five calls above, compat10_data.c. */
extern const struct vb_ops10 vb_ops10;

#endif
