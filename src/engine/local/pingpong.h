// pingpong.h - small RDMA writes to and fro: each program writes, polls, and waits for the other's write
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_PINGPONG_H
#define VB_ENGINE_LOCAL_PINGPONG_H

#include "core/core.h"

#define VB_PINGPONG_MAX 256u /* the longest write, in bytes */

/* May this write go into the ring, because the peer holds a completion and polls? Under sq_lock. */
bool vb_local_pingpong_answers(struct vb_qp *qp, const struct vb_swqe *w);
/* The write will be copied, or put into the ring: holds its completion if the peer may answer. Under sq_lock. */
void vb_local_pingpong_hold(struct vb_qp *qp, const struct vb_swqe *w);
/* Is a completion held? Any thread. */
static inline bool vb_local_is_held(const struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->local.pingpong.until, memory_order_relaxed);
}

/* Is the oldest request still held? Under sq_lock. */
bool vb_local_pingpong_holds(struct vb_qp *qp);
/* Other requests follow, or the queue pair ends: nothing is held any more. Under sq_lock. */
void vb_local_pingpong_release(struct vb_qp *qp);
/* Completes a request that is held and executed: each entry between una and emit has a PSN again. Under sq_lock.
 * requester.c. */
void vb_local_end_hold(struct vb_qp *qp);
/* The peer did not execute a write in the ring. Under sq_lock. */
void vb_local_pingpong_failed(struct vb_qp *qp);
/* The queue pair begins anew. */
void vb_local_pingpong_reset(struct vb_qp *qp);

#endif
