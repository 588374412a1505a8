// queue_ops.h - callbacks of the RoCE and iWARP engines for a queue pair's queues and memory
// follows: IBA volume 1, 10.3 to 10.8; engine/roce/roce.h
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_QUEUE_OPS_H
#define VB_PATH_QUEUE_OPS_H

#include <sys/uio.h>

#include "engine/local/local.h"
#include "engine/roce/roce.h"

/* Cache of memory look-ups, valid while sq_lock is held: deregistration waits for that lock. */
struct vb_known {
	bool gathered, found;
	uint32_t cookie, access, rkey;
	int n;
	uint64_t region; /* bytes; length of the memory region if the request has one piece, otherwise 0 */
	struct vb_mr_view view;
	struct iovec iov[VB_MAX_SGE + 1];
};

/* Empties the cache: after sq_lock is taken, and after a key is invalidated under it. */
static inline void vb_known_forget(struct vb_known *k)
{
	k->gathered = k->found = false;
}

/* See struct vb_roce_ops. `own` is the queue pair. */
bool vb_queue_next_send(void *own, struct vb_work *work);
void vb_queue_complete_send(void *own, const struct vb_work *work, enum vb_work_status status);
bool vb_queue_take_receive(void *own, uint32_t *room);
bool vb_queue_take_tagged(void *own, const uint8_t *payload, uint32_t len, bool single, uint32_t *room);
void vb_queue_complete_receive(void *own, const struct vb_receipt *receipt);
enum vb_memory_result vb_queue_atomic(void *own, bool add, const struct vb_atomic *a, uint64_t *original);
enum vb_memory_result vb_queue_atomic_write(void *own, uint32_t rkey, uint64_t va, uint64_t value);
bool vb_queue_flush(void *own, const struct vb_reth *range, struct vb_feth flush);

/* Execute a Local Invalidate or a bind, and a Send with Invalidate from the peer, which returns false if the key is not
 * valid here. The caller then calls vb_known_forget. */
enum vb_local vb_queue_local(struct vb_qp *qp, const struct vb_work *work);
bool vb_queue_invalidate(struct vb_qp *qp, uint32_t rkey);

/* Returns the pieces of a request's local memory, or NULL if its L_Keys do not allow the access. */
const struct vb_known *vb_queue_pieces(struct vb_qp *qp, struct vb_known *k, const struct vb_work *work,
                                       uint32_t access);
/* Looks up the memory region of an R_Key and stores it in k->view. Returns false if there is none. Unlike
 * vb_own_memory, it reads the key's entry once until vb_known_forget. */
bool vb_queue_find_region(struct vb_qp *qp, struct vb_known *k, uint32_t rkey);

/* Convert enum vb_right to IBV_ACCESS_*, and IBV_ACCESS_* to a mask of enum vb_right. */
uint32_t vb_ibv_access_of(enum vb_right right);
uint8_t vb_rights_of(unsigned ibv_access);

#endif
