// rdma.h - a queue over RDMA: shared by its files
// follows: NVMe over Fabrics 1.1, 7.3 (RDMA transport binding)
// SPDX-License-Identifier: MIT
#ifndef VN_RDMA_H
#define VN_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "client/client.h"

#define VN_RDMA_INLINE_MAX 8192u   /* bytes of data in a capsule that we use */
#define VN_RDMA_BOUNCE (32u << 10) /* unregistered memory up to this size is copied */
#define VN_RDMA_BOUNCES 16u
#define VN_RDMA_CHAIN 16u

struct vn_rdma_queue {
	struct vn_queue q; /* must be the first member */
	struct vn_domain *domain;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* registration of memory */
	uint8_t *memory;   /* capsules, bounces, answers */
	size_t memory_length;
	int memory_fd;
	size_t capsule_size;
	uint8_t *answers; /* depth + 1 of NV_CQE_LEN */
	uint8_t *bounces[VN_RDMA_BOUNCES];
	unsigned n_bounces;
	unsigned unacknowledged; /* unacknowledged events of the CQ */
	bool armed, cut;
	struct ibv_send_wr sends[VN_RDMA_CHAIN]; /* collected for one post */
	struct ibv_sge at[VN_RDMA_CHAIN][2];
	unsigned n_sends;
};

static inline struct vn_rdma_queue *vn_rdma_of(struct vn_queue *q)
{
	return (struct vn_rdma_queue *)q;
}

int vn_rdma_connect(struct vn_link *l, struct vn_rdma_queue *r); /* resolves, creates the queue pair, connects */
void vn_rdma_events(struct vn_rdma_queue *r);                    /* handles events of an established connection */
bool vn_rdma_receive(struct vn_rdma_queue *r, unsigned slot);    /* posts the receive for an answer again */

#endif
