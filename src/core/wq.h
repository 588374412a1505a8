// wq.h - work queues, indirection tables, and the queue pairs that receive into them
// follows: ibv_create_wq(3), ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_WQ_H
#define VB_CORE_WQ_H

#include "core/arrival.h"
#include "core/core.h"
#include "core/rss.h"

struct vb_wq {
	struct ibv_wq wq;
	struct vb_made made;
	struct vb_node *node;
	struct vb_pd *pd;
	struct vb_cq *cq;
	struct vb_rq rq;
	_Atomic uint8_t state;        /* enum ibv_wq_state; written under progress */
	uint32_t wants;               /* VB_ARRIVAL_FLAGS; under progress */
	uint32_t number;              /* wq.wq_num, which the program may overwrite */
	atomic_int users;             /* entries of indirection tables */
	struct vb_wq *next, **prev;   /* node->wqs, under progress */
	_Atomic uint32_t async_taken; /* written under async_lock of the context */
	uint32_t async_acked;         /* under ack_lock */
	pthread_mutex_t ack_lock;
	pthread_cond_t ack_cond;
};

struct vb_rwq_table {
	struct ibv_rwq_ind_table table;
	struct vb_made made; /* made.handle is table.ind_tbl_handle */
	atomic_int users;    /* queue pairs */
	uint32_t mask;       /* entries - 1 */
	struct vb_wq *wqs[];
};

/* The receiving side of a queue pair that has a table in place of a receive queue. */
struct vb_rss {
	struct vb_rwq_table *table;
	struct vb_rss_hash hash;
};

/* --- wq.c --- */

bool vb_wq_is_sound(const struct ibv_wq *wq);
/* Stores a frame in the next receive, and completes that. False: there is none, or the queue is not
 * in RDY. Under progress. */
bool vb_wq_take(struct vb_wq *wq, struct vb_arrival *a);
/* Takes the work queues of overrun CQs to ERR, each with IBV_EVENT_WQ_FATAL. Under progress. */
void vb_wq_end_overrun(struct vb_node *node);
/* Takes the work queues of a removed adapter to ERR. Under progress. */
void vb_wq_end_device(struct vb_node *node, const struct vb_device *dev);
/* The rules of fault injection have changed: ibv_post_wq_recv asks them, or does not. No spin lock held. */
void vb_wq_arm_all(struct vb_node *node);

/* --- rwq_table.c --- */

/* Does the program ask for a queue pair with an indirection table? */
static inline bool vb_rss_is_wanted(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH);
}
/* May such a queue pair be made? 0 or an errno value. */
int vb_rss_check(const struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr);
/* Gives the new queue pair its table. 0 or an errno value. */
int vb_rss_open(struct vb_qp *qp, const struct ibv_qp_init_attr_ex *attr);
/* Takes it away, if there is one. No frame is received any more. */
void vb_rss_close(struct vb_qp *qp);
/* Stores a frame in the work queue that its hash selects; as vb_wq_take. Under progress. */
bool vb_rss_take(const struct vb_qp *qp, struct vb_arrival *a);

#endif
