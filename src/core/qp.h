// qp.h - queue pairs, inside core/
// follows: IBA volume 1, 10.3 (queue pair states), 11.2.5 (queue pair)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_QP_H
#define VB_CORE_QP_H

#include "core/node.h"

/* 0, or EINVAL: may a QP of this type go from cur to next with just these attributes? qp_state.c */
int vb_qp_check_mask(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask);

/* The same for a queue pair of an iWARP device, whatever attributes. */
int vb_qp_check_iwarp(enum ibv_qp_state cur, enum ibv_qp_state next);

/* 0, or EINVAL: are change of state, attributes and their values allowed? Changes nothing. here: as vb_modify_qp_here.
 * qp_attr.c */
int vb_qp_check_attr(const struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next,
                     const struct ibv_qp_attr *attr, int mask, bool here);
/* What of the mask a queue pair of an iWARP device takes from the program. */
#define VB_QP_IWARP_ATTRS (IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_EN_SQD_ASYNC_NOTIFY)
/* Is its device an iWARP one? */
bool vb_qp_is_iwarp(const struct vb_qp *qp);
/* Takes over what the mask names, and shows peers what they need of it. Under progress + sq_lock. qp_attr.c */
void vb_qp_take_attr(struct vb_qp *qp, const struct ibv_qp_attr *attr, int mask);

/* Under progress + sq_lock. */
void vb_qp_set_state(struct vb_qp *qp, enum ibv_qp_state state);
/* The queue pair's face to its peers: no more requests from now on. gen becomes even. Under progress. */
void vb_qp_close_shared(struct vb_qp *qp);

/* The receive that a message was half in will not complete. Under progress. qp_flush.c */
void vb_receive_abandon(struct vb_qp *qp);

/* Its completions that nobody has polled vanish. It takes part in nothing any more, or progress is held. qp.c */
void vb_qp_clean_cqs(struct vb_qp *qp);

/* What was posted to a QP in ERR or SQE completes at once. No lock held. */
void vb_qp_flush(struct vb_qp *qp);

/* ibv_wr_*: fills the functions of qp->qpx. wr.c */
void vb_qp_fill_wr(struct vb_qp *qp);

#endif
