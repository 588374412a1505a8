// rdma.h - a queue over RDMA: shared by its files, and by those of SRP
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
#define VN_RDMA_PRIVATE 64u      /* bytes of private data that we send at most */
#define VN_RDMA_OWN (1ull << 33) /* in wr_id: a message of the binding, not of a command */

struct vn_rdma_queue;

/* What a protocol adds to a queue over RDMA. Each command has one message and one answer. */
struct vn_rdma_binding {
	uint32_t head, room;   /* bytes of a message: before its data; of its data, at least */
	uint32_t answer;       /* bytes of the longest answer */
	uint32_t extra, spare; /* messages, and answers, beside those of commands; bytes of other memory */
	uint32_t (*ask)(const struct vn_link *l, struct vn_rdma_queue *r, uint8_t private[VN_RDMA_PRIVATE]);
	int (*accepted)(struct vn_link *l, struct vn_rdma_queue *r, const uint8_t *private, size_t length);
	int (*rejected)(struct vn_link *l, struct vn_rdma_queue *r, const uint8_t *private, size_t length);
	void (*received)(struct vn_rdma_queue *r, unsigned slot, uint32_t length);
	void (*sent)(struct vn_rdma_queue *r, unsigned index);   /* a message with VN_RDMA_OWN; NULL: there are none */
	void (*over)(struct vn_rdma_queue *r, struct vn_cmd *c); /* its message has left, and its answer has come */
};

struct vn_rdma_queue {
	struct vn_queue q; /* must be the first member */
	const struct vn_rdma_binding *binding;
	struct vn_domain *domain;
	unsigned device; /* its number in domain */
	bool attached;   /* … which counts this queue */
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* registration of memory */
	uint8_t *memory;   /* capsules, bounces, answers */
	size_t memory_length;
	int memory_fd;
	size_t capsule_size;
	uint8_t *answers; /* depth + 1 + extra of the binding's length */
	uint8_t *spare;   /* memory of the binding */
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

static inline struct ibv_pd *vn_rdma_pd(const struct vn_rdma_queue *r)
{
	return r->domain->devices[r->device].pd;
}

int vn_rdma_connect(struct vn_link *l, struct vn_rdma_queue *r); /* resolves, creates the queue pair, connects */
void vn_rdma_events(struct vn_rdma_queue *r);                    /* handles events of an established connection */
bool vn_rdma_receive(struct vn_rdma_queue *r, unsigned slot);    /* posts the receive for an answer again */

/* The message of a slot; those beside the commands' follow the last of them. */
static inline uint8_t *vn_rdma_message(const struct vn_rdma_queue *r, unsigned slot)
{
	return r->memory + slot * r->capsule_size;
}

/* Begins a send of len bytes of our memory; vn_rdma_post ends it. */
struct ibv_send_wr *vn_rdma_prepare(struct vn_rdma_queue *r, uint64_t wr_id, const uint8_t *at, uint32_t len);
void vn_rdma_post(struct vn_rdma_queue *r);
/* Copies or registers memory that is not registered. Sets where it is. Returns false if that fails: then the command is
 * complete, or, if the adapter has failed, the queue is broken. */
bool vn_rdma_reach(struct vn_rdma_queue *r, struct vn_cmd *c, uint64_t *address, uint32_t *key);
/* Puts data behind the first `head` bytes of a prepared message: gathered from its place, or copied. */
void vn_rdma_inside(struct vn_rdma_queue *r, struct vn_cmd *c, struct ibv_send_wr *w, uint8_t *message, uint32_t head);
void vn_rdma_maybe_over(struct vn_rdma_queue *r, struct vn_cmd *c);

/* for tables of functions */
void vn_rdma_kick(struct vn_queue *q);
void vn_rdma_progress(struct vn_queue *q);
bool vn_rdma_arm(struct vn_queue *q);
int vn_rdma_descriptors(const struct vn_queue *q, struct pollfd p[2]);
void vn_rdma_release(struct vn_queue *q, struct vn_cmd *c);
void vn_rdma_cut(struct vn_queue *q);
void vn_rdma_close(struct vn_queue *q);

#endif
