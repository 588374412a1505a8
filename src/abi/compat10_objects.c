// compat10_objects.c - protection domains, regions, queues, queue pairs and address handles of the ABI of 2006
// follows: libibverbs 1.0, infiniband/verbs.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "abi/compat10.h"

/* Creates the real object with `call` and wraps an old object around it. On failure it creates neither. */
#define WRAP(type, old, real_type, call)       \
	type *old = calloc(1, sizeof(*old));   \
	real_type *real = old ? (call) : NULL; \
	if (!real) {                           \
		free(old);                     \
		return NULL;                   \
	}                                      \
	old->real = real

/* Destroys the real object and, if that succeeds, the old one. */
#define UNWRAP(name, type, call)              \
	VB_OLD(vb10_##name, #name);           \
	VB_EXPORT int vb10_##name(type *old); \
	int vb10_##name(type *old)            \
	{                                     \
		int err = call(old->real);    \
		if (!err)                     \
			free(old);            \
		return err;                   \
	}

UNWRAP(dealloc_pd, struct vb_pd10, vbx_dealloc_pd)
UNWRAP(dereg_mr, struct vb_mr10, vbx_dereg_mr)
UNWRAP(destroy_cq, struct vb_cq10, vbx_destroy_cq)
UNWRAP(destroy_srq, struct vb_srq10, vbx_destroy_srq)
UNWRAP(destroy_qp, struct vb_qp10, vbx_destroy_qp)
UNWRAP(destroy_ah, struct vb_ah10, vbx_destroy_ah)

VB_OLD(vb10_alloc_pd, "alloc_pd");
VB_EXPORT struct vb_pd10 *vb10_alloc_pd(struct vb_context10 *context);
struct vb_pd10 *vb10_alloc_pd(struct vb_context10 *context)
{
	WRAP(struct vb_pd10, old, struct ibv_pd, vbx_alloc_pd(context->real));
	old->context = context;
	old->handle = real->handle;
	return old;
}

VB_OLD(vb10_reg_mr, "reg_mr");
VB_EXPORT struct vb_mr10 *vb10_reg_mr(struct vb_pd10 *pd, void *addr, size_t length, int access);
struct vb_mr10 *vb10_reg_mr(struct vb_pd10 *pd, void *addr, size_t length, int access)
{
	WRAP(struct vb_mr10, old, struct ibv_mr, vbx_reg_mr(pd->real, addr, length, access));
	old->context = pd->context;
	old->pd = pd;
	old->handle = real->handle;
	old->lkey = real->lkey;
	old->rkey = real->rkey;
	return old;
}

VB_OLD(vb10_create_cq, "create_cq");
VB_EXPORT struct vb_cq10 *vb10_create_cq(struct vb_context10 *context, int cqe, void *cq_context,
                                         struct ibv_comp_channel *channel, int comp_vector);
struct vb_cq10 *vb10_create_cq(struct vb_context10 *context, int cqe, void *cq_context,
                               struct ibv_comp_channel *channel, int comp_vector)
{
	WRAP(struct vb_cq10, old, struct ibv_cq, vbx_create_cq(context->real, cqe, old, channel, comp_vector));
	old->context = context;
	old->cq_context = cq_context;
	old->handle = real->handle;
	old->cqe = real->cqe;
	return old;
}

VB_OLD(vb10_resize_cq, "resize_cq");
VB_EXPORT int vb10_resize_cq(struct vb_cq10 *cq, int cqe);
int vb10_resize_cq(struct vb_cq10 *cq, int cqe)
{
	int err = vbx_resize_cq(cq->real, cqe);

	if (!err)
		cq->cqe = cq->real->cqe;
	return err;
}

VB_OLD(vb10_get_cq_event, "get_cq_event");
VB_EXPORT int vb10_get_cq_event(struct ibv_comp_channel *channel, struct vb_cq10 **cq, void **cq_context);
int vb10_get_cq_event(struct ibv_comp_channel *channel, struct vb_cq10 **cq, void **cq_context)
{
	struct ibv_cq *real;
	void *old;
	int err = vbx_get_cq_event(channel, &real, &old);

	if (err)
		return err;
	*cq = old;
	*cq_context = (*cq)->cq_context;
	return 0;
}

VB_OLD(vb10_ack_cq_events, "ack_cq_events");
VB_EXPORT void vb10_ack_cq_events(struct vb_cq10 *cq, unsigned nevents);
void vb10_ack_cq_events(struct vb_cq10 *cq, unsigned nevents)
{
	vbx_ack_cq_events(cq->real, nevents);
}

VB_OLD(vb10_create_srq, "create_srq");
VB_EXPORT struct vb_srq10 *vb10_create_srq(struct vb_pd10 *pd, struct ibv_srq_init_attr *attr);
struct vb_srq10 *vb10_create_srq(struct vb_pd10 *pd, struct ibv_srq_init_attr *attr)
{
	WRAP(struct vb_srq10, old, struct ibv_srq, vbx_create_srq(pd->real, attr));
	old->context = pd->context;
	old->srq_context = attr->srq_context;
	old->pd = pd;
	old->handle = real->handle;
	real->srq_context = old;
	return old;
}

VB_OLD(vb10_modify_srq, "modify_srq");
VB_EXPORT int vb10_modify_srq(struct vb_srq10 *srq, struct ibv_srq_attr *attr, int mask);
int vb10_modify_srq(struct vb_srq10 *srq, struct ibv_srq_attr *attr, int mask)
{
	return vbx_modify_srq(srq->real, attr, mask);
}

VB_OLD(vb10_query_srq, "query_srq");
VB_EXPORT int vb10_query_srq(struct vb_srq10 *srq, struct ibv_srq_attr *attr);
int vb10_query_srq(struct vb_srq10 *srq, struct ibv_srq_attr *attr)
{
	return vbx_query_srq(srq->real, attr);
}

VB_OLD(vb10_create_qp, "create_qp");
VB_EXPORT struct vb_qp10 *vb10_create_qp(struct vb_pd10 *pd, struct vb_qp_init_attr10 *attr);
struct vb_qp10 *vb10_create_qp(struct vb_pd10 *pd, struct vb_qp_init_attr10 *attr)
{
	struct ibv_qp_init_attr init = {
	        .send_cq = attr->send_cq ? attr->send_cq->real : NULL,
	        .recv_cq = attr->recv_cq ? attr->recv_cq->real : NULL,
	        .srq = attr->srq ? attr->srq->real : NULL,
	        .cap = attr->cap,
	        .qp_type = attr->qp_type,
	        .sq_sig_all = attr->sq_sig_all,
	};

	WRAP(struct vb_qp10, old, struct ibv_qp, vbx_create_qp(pd->real, &init));
	real->qp_context = old;
	old->context = pd->context;
	old->qp_context = attr->qp_context;
	old->pd = pd;
	old->send_cq = attr->send_cq;
	old->recv_cq = attr->recv_cq;
	old->srq = attr->srq;
	old->handle = real->handle;
	old->qp_num = real->qp_num;
	old->state = real->state;
	old->qp_type = attr->qp_type;
	attr->cap = init.cap;
	return old;
}

VB_OLD(vb10_query_qp, "query_qp");
VB_EXPORT int vb10_query_qp(struct vb_qp10 *qp, struct ibv_qp_attr *attr, int mask, struct vb_qp_init_attr10 *init);
int vb10_query_qp(struct vb_qp10 *qp, struct ibv_qp_attr *attr, int mask, struct vb_qp_init_attr10 *init)
{
	struct ibv_qp_init_attr real;
	int err = vbx_query_qp(qp->real, attr, mask, &real);

	if (err)
		return err;
	*init = (struct vb_qp_init_attr10){
	        .qp_context = qp->qp_context,
	        .send_cq = qp->send_cq,
	        .recv_cq = qp->recv_cq,
	        .srq = qp->srq,
	        .cap = real.cap,
	        .qp_type = real.qp_type,
	        .sq_sig_all = real.sq_sig_all,
	};
	return 0;
}

VB_OLD(vb10_modify_qp, "modify_qp");
VB_EXPORT int vb10_modify_qp(struct vb_qp10 *qp, struct ibv_qp_attr *attr, int mask);
int vb10_modify_qp(struct vb_qp10 *qp, struct ibv_qp_attr *attr, int mask)
{
	int err = vbx_modify_qp(qp->real, attr, mask);

	qp->state = qp->real->state;
	return err;
}

VB_OLD(vb10_create_ah, "create_ah");
VB_EXPORT struct vb_ah10 *vb10_create_ah(struct vb_pd10 *pd, struct ibv_ah_attr *attr);
struct vb_ah10 *vb10_create_ah(struct vb_pd10 *pd, struct ibv_ah_attr *attr)
{
	WRAP(struct vb_ah10, old, struct ibv_ah, vbx_create_ah(pd->real, attr));
	old->context = pd->context;
	old->pd = pd;
	old->handle = real->handle;
	return old;
}

VB_OLD(vb10_attach_mcast, "attach_mcast");
VB_EXPORT int vb10_attach_mcast(struct vb_qp10 *qp, union ibv_gid *gid, uint16_t lid);
int vb10_attach_mcast(struct vb_qp10 *qp, union ibv_gid *gid, uint16_t lid)
{
	return vbx_attach_mcast(qp->real, gid, lid);
}

VB_OLD(vb10_detach_mcast, "detach_mcast");
VB_EXPORT int vb10_detach_mcast(struct vb_qp10 *qp, union ibv_gid *gid, uint16_t lid);
int vb10_detach_mcast(struct vb_qp10 *qp, union ibv_gid *gid, uint16_t lid)
{
	return vbx_detach_mcast(qp->real, gid, lid);
}
