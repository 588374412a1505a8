// xrc.h - extended reliable connections: XRC domains, the numbers of XRC SRQs, handles of XRC target queue pairs
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_XRC_H
#define VB_CORE_XRC_H

#include "core/qp.h"

struct vb_xrc_domain;

/* What a program holds of an XRC domain. */
struct vb_xrcd {
	struct ibv_xrcd xrcd;
	struct vb_made made; /* no handle */
	struct vb_xrc_domain *domain;
	atomic_int users; /* SRQs, and handles of queue pairs: ibv_close_xrcd answers EBUSY while there are any */
};

static inline struct vb_xrcd *vb_xrcd(struct ibv_xrcd *x)
{
	return (struct vb_xrcd *)x;
}

/* Is it a valid XRC domain of this context? */
static inline bool vb_xrcd_is_of(const struct ibv_xrcd *x, const struct ibv_context *context)
{
	return x && x->context == context && ((const struct vb_xrcd *)x)->made.context == context;
}

/* Frees the XRC domains and the table of SRQs of a node that ends. */
void vb_xrc_free(struct vb_node *node);

/* Gives a new XRC SRQ its number, with xrcd, cq and pd set. ENOMEM: all numbers are in use. No lock held. */
int vb_xrc_srq_enter(struct vb_srq *srq);
/* Takes the number back. Queue pairs use the SRQ no more; one that was receiving a message into it goes to ERR. No lock
 * held. */
void vb_xrc_srq_leave(struct vb_srq *srq);

/*
 * A request to the target queue pair names this SRQ: its receives, its completion queue and its protection domain are
 * the request's. Returns false if the queue pair's XRC domain has no such SRQ in this process, or if the message has
 * begun with another one. Under progress.
 */
bool vb_xrc_select(struct vb_qp *qp, uint32_t srqn);
/* The protection domain of this SRQ is that of the READ request which is answered next. Returns false if the SRQ is
 * gone. Under progress. */
bool vb_xrc_select_answer(struct vb_qp *qp, uint32_t srqn);

/* The PD of a target between requests: no memory region is in it. */
extern struct vb_pd vb_xrc_no_pd;

/* Adds a program's handle to a new target queue pair. On failure the queue pair is as before, errno is set, and the
 * result is NULL. xrc_qp.c */
struct ibv_qp *vb_xrc_handle(struct vb_qp *qp, struct ibv_context *context, struct vb_xrcd *xrcd, void *qp_context);
/* Removes and frees a handle; with the last one the queue pair ends. */
void vb_xrc_handle_close(struct vb_qp *handle);

/* The queue pair of a handle: the same object unless it is an XRC target. */
static inline struct vb_qp *vb_qp_real(struct vb_qp *qp)
{
	return qp->xrc.real ? qp->xrc.real : qp;
}

#endif
