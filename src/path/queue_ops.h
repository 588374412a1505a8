// queue_ops.h - a queue pair's queues and memory, as the engines of both wires call for them
// follows: IBA volume 1, 10.3 to 10.8
// see: engine/roce/roce.h
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_QUEUE_OPS_H
#define VB_PATH_QUEUE_OPS_H

#include <sys/uio.h>

#include "engine/local/local.h"
#include "engine/roce/roce.h"

/* What was looked up since sq_lock was taken: good until it is released, since a region that ends waits for it. */
struct vb_known {
	bool gathered, granted;
	uint32_t cookie, access, rkey;
	int n;
	uint64_t region; /* bytes of the region that the first piece lies in; 0: none */
	struct vb_mr_view view;
	struct iovec iov[VB_MAX_SGE + 1];
};

/* After sq_lock was taken, and when a key has ended while it is held. */
static inline void vb_known_forget(struct vb_known *k)
{
	k->gathered = k->granted = false;
}

/* As in struct vb_roce_ops; own is the queue pair. */
bool vb_queue_next_send(void *own, struct vb_work *rq);
void vb_queue_complete_send(void *own, const struct vb_work *rq, enum vb_work_status status);
bool vb_queue_take_receive(void *own, uint32_t *room);
void vb_queue_complete_receive(void *own, const struct vb_receipt *receipt);
enum vb_memory_result vb_queue_atomic(void *own, bool add, const struct vb_atomic *a, uint64_t *original);

/* The caller then forgets what it knows. */
bool vb_queue_local(struct vb_qp *qp, const struct vb_work *rq);
bool vb_queue_invalidate(struct vb_qp *qp, uint32_t rkey);

/* The pieces of a request's memory; NULL: no access. */
const struct vb_known *vb_queue_pieces(struct vb_qp *qp, struct vb_known *k, const struct vb_work *rq, uint32_t access);
/* The region of the key, in k->view; false: there is none. As vb_own_memory, but the key is read once. */
bool vb_queue_named(struct vb_qp *qp, struct vb_known *k, uint32_t rkey);

/* enum vb_right as IBV_ACCESS_*, and the other way round. */
uint32_t vb_queue_right(enum vb_right access);
uint8_t vb_queue_access(unsigned flags);

#endif
