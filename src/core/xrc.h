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
	struct vb_xrcd *next; /* of the domain; under ctx_lock */
	atomic_int users;     /* SRQs, and handles of queue pairs: ibv_close_xrcd answers EBUSY while there are any */
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
 * A request to the target queue pair names this SRQ. VB_XRC_HERE: its receives, its completion queue and its protection
 * domain are the request's. VB_XRC_NONE: the queue pair's XRC domain has no such SRQ, or the message has begun with
 * another one. Under progress.
 */
enum vb_xrc_place vb_xrc_select(struct vb_qp *qp, uint32_t srqn);
/* The same for the READ request which is answered next. HERE: its protection domain is that of the SRQ. THERE: its data
 * comes from another process. Under progress. */
enum vb_xrc_place vb_xrc_select_answer(struct vb_qp *qp, uint32_t srqn);

/* What identifies the domain of a file among the processes of a user. */
struct vb_xrc_id {
	uint64_t st_dev, st_ino, device;
};
/* False: the domain has no file, so that no other process has it. */
bool vb_xrc_id_of(const struct vb_xrc_domain *d, struct vb_xrc_id *id);

/* Ends these guests (xrc.next_guest), which are in no domain's list any more. No lock held. xrc_qp.c */
void vb_xrc_guests_end(struct vb_qp *guests);
/* The domain with this id, and one of its xrcds; or NULL. Under ctx_lock. */
struct vb_xrc_domain *vb_xrc_domain_of(struct vb_node *node, const struct vb_xrc_id *id, struct vb_xrcd **by);
/* The list of its guests. Under ctx_lock. */
struct vb_qp **vb_xrc_guests_of(struct vb_xrc_domain *d);
struct vb_xrc_domain *vb_xrc_domains(struct vb_node *node);
struct vb_xrc_domain *vb_xrc_domain_next(struct vb_xrc_domain *d);
/* Makes a target without a handle. qp.c */
struct vb_qp *vb_qp_make_target(struct ibv_context *context, struct vb_xrcd *xrcd);
/* Takes a guest to RTR. qp_modify.c */
void vb_qp_start_guest(struct vb_qp *qp, const struct ibv_qp_attr *attr, struct vb_peer *peer);

/* The PD of a target between requests: no memory region is in it. */
extern struct vb_pd vb_xrc_no_pd;

/* Adds a program's handle to a new target queue pair. On failure the queue pair is as before, errno is set, and the
 * result is NULL. xrc_qp.c */
struct ibv_qp *vb_xrc_handle(struct vb_qp *qp, struct ibv_context *context, struct vb_xrcd *xrcd, void *qp_context);
/* Removes and frees a handle; with the last one the queue pair ends. */
void vb_xrc_handle_close(struct vb_qp *handle);

/*
 * Adds a handle that another process has, which knows the domain as id. tell is called for each event, and opener is the
 * handle's qp_context. 0 or errno: EINVAL if there is no such target. No lock held. vb_xrc_handle_close removes it.
 */
int vb_xrc_handle_for(struct vb_node *node, const struct vb_xrc_id *id, uint32_t qpn,
                      void (*tell)(struct vb_qp *handle, enum ibv_event_type type), void *opener, struct vb_qp **out);
/* The same for a handle of another process's target. */
void vb_xrc_far_close(struct vb_qp *handle);
/* Keeps a domain, which exists. Under ctx_lock. */
void vb_xrc_domain_hold(struct vb_xrc_domain *d);
/* Its counterpart. No lock held. */
void vb_xrc_domain_drop(struct vb_node *node, struct vb_xrc_domain *d);

/* The queue pair of a handle: the same object unless it is an XRC target. */
static inline struct vb_qp *vb_qp_real(struct vb_qp *qp)
{
	return qp->xrc.real ? qp->xrc.real : qp;
}

#endif
