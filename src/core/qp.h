// qp.h - queue pairs, inside core/
// follows: IBA volume 1, 10.3 (queue pair states), 11.2.5 (queue pair)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_QP_H
#define VB_CORE_QP_H

#include "core/node.h"

/* Returns 0 if a QP of this type may go from cur to next with these attributes, else EINVAL. qp_state.c */
int vb_qp_check_mask(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask);

/* The same for a queue pair of an iWARP device, with any attributes. */
int vb_qp_check_iwarp(enum ibv_qp_state cur, enum ibv_qp_state next);

/* Returns 0 if the change of state, the attributes and their values are allowed, else EINVAL. Changes nothing. here:
 * for vb_modify_qp_here. qp_attr.c */
int vb_qp_check_attr(const struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next,
                     const struct ibv_qp_attr *attr, int mask, bool here);
/* The attributes that a queue pair of an iWARP device takes from the program. */
#define VB_QP_IWARP_ATTRS \
	(IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_RATE_LIMIT)
/* Is its device an iWARP one? */
bool vb_qp_is_iwarp(const struct vb_qp *qp);
/* Stores the attributes in the mask, and publishes those that peers need. Under progress + sq_lock. qp_attr.c */
void vb_qp_take_attr(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask);

/* Under progress + sq_lock. */
void vb_qp_set_state(struct vb_qp *qp, enum ibv_qp_state state);
/* Stops peers on this host from sending requests to the QP: makes gen even. Under progress. */
void vb_qp_close_shared(struct vb_qp *qp);

/* Receives what has arrived by now, before a queue pair of the node ends: an adapter would have acknowledged it. No lock
 * held. qp_modify.c */
void vb_qp_receive_arrived(struct vb_node *node);

/* Drops the receive of a message that arrived in part. Under progress. qp_flush.c */
void vb_receive_abandon(struct vb_qp *qp);

/* Removes the QP's completions that are not polled yet. The QP must be inactive, or progress held. qp.c */
void vb_qp_clean_cqs(struct vb_qp *qp);

/* Allocates a queue pair with queues of this size, and its locks. NULL: no memory. qp.c */
struct vb_qp *vb_qp_alloc(struct vb_pd *pd, const struct ibv_qp_cap *cap, enum ibv_qp_type type);
void vb_qp_free(struct vb_qp *qp);
/*
 * Threads other than the program's that destroys a queue pair may know its number, or its address, and change it: an event
 * of librdmacm does. While somebody holds a queue pair it is not freed: its destruction waits. So who holds one waits for
 * nothing that the program does. A queue pair that has left the node's table is not held any more. No spin lock held. qp.c
 */
bool vb_qp_hold(struct vb_qp *qp);                                   /* false: it is not in the table */
struct vb_qp *vb_qp_hold_number(struct vb_node *node, uint32_t qpn); /* NULL: there is none with this number */
void vb_qp_drop(struct vb_qp *qp);
/* Is it in the node's table? Under its modify_lock it stays as it is. */
bool vb_qp_is_listed(const struct vb_qp *qp);

/* Ends a queue pair that is in the node's table, and frees it. No lock held. */
void vb_qp_finish(struct vb_qp *qp);

/* Flushes requests that were posted to a QP in ERR or SQE. No lock held. */
void vb_qp_flush(struct vb_qp *qp);

/* Sets the ibv_wr_* functions of qp->qpx, but for wr_complete, which vb_qp_arm_wr sets. wr.c */
void vb_qp_fill_wr(struct vb_qp *qp);
/* Chooses the function of ibv_wr_complete: the one that asks the rules of fault injection first, if there are some
 * about calls. Under progress. wr.c */
void vb_qp_arm_wr(struct vb_qp *qp);

/* The adapter; NULL for a queue pair that no program has made (tests). The program may have overwritten qp.context. */
static inline struct vb_device *vb_qp_device(const struct vb_qp *qp)
{
	return qp->made.context ? VB_CONTEXT_OF(qp)->dev : NULL;
}

/* Whether the send queue drains. Written under the locks of the queue pair; ibv_modify_qp checks it without them. */
static inline void vb_qp_set_draining(struct vb_qp *qp, bool draining)
{
	__atomic_store_n(&qp->attr.sq_draining, draining, __ATOMIC_RELAXED);
}

#endif
