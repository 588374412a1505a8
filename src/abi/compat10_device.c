// compat10_device.c - devices, contexts and asynchronous events of the ABI of 2006
// follows: libibverbs 1.0, infiniband/verbs.h
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "abi/compat10.h"

static const char mark10;

struct ibv_context *vb_context_of_any_age(struct ibv_context *context)
{
	if (context && context->abi_compat == &mark10)
		return ((struct vb_context10 *)context)->real;
	return context;
}

/* The program's list starts after a hidden entry, which holds the real list. */
VB_OLD(vb10_get_device_list, "get_device_list");
VB_EXPORT struct vb_device10 **vb10_get_device_list(int *num);
struct vb_device10 **vb10_get_device_list(int *num)
{
	int n;
	struct ibv_device **real = vbx_get_device_list(&n);
	struct vb_device10 **list = real ? calloc((size_t)n + 2, sizeof(*list)) : NULL;
	struct vb_device10 *devices = list ? calloc((size_t)n + 1, sizeof(*devices)) : NULL;

	if (!devices) {
		vbx_free_device_list(real);
		free(list);
		return NULL;
	}
	/* One extra device: it holds the real list, and it makes the whole block reachable from list[0]. */
	devices[0].sysfs_dev = real;
	list[0] = devices;
	for (int i = 0; i < n; i++) {
		devices[i + 1].real = real[i];
		list[i + 1] = &devices[i + 1];
	}
	if (num)
		*num = n;
	return list + 1;
}

VB_OLD(vb10_free_device_list, "free_device_list");
VB_EXPORT void vb10_free_device_list(struct vb_device10 **list);
void vb10_free_device_list(struct vb_device10 **list)
{
	if (!list)
		return;
	vbx_free_device_list(list[-1]->sysfs_dev);
	free(list[-1]);
	free(list - 1);
}

VB_OLD(vb10_get_device_name, "get_device_name");
VB_EXPORT const char *vb10_get_device_name(struct vb_device10 *device);
const char *vb10_get_device_name(struct vb_device10 *device)
{
	return vbx_get_device_name(device->real);
}

VB_OLD(vb10_get_device_guid, "get_device_guid");
VB_EXPORT __be64 vb10_get_device_guid(struct vb_device10 *device);
__be64 vb10_get_device_guid(struct vb_device10 *device)
{
	return vbx_get_device_guid(device->real);
}

VB_OLD(vb10_open_device, "open_device");
VB_EXPORT struct vb_context10 *vb10_open_device(struct vb_device10 *device);
struct vb_context10 *vb10_open_device(struct vb_device10 *device)
{
	struct vb_context10 *old = calloc(1, sizeof(*old));
	struct ibv_context *real = old ? vbx_open_device(device->real) : NULL;

	if (!real) {
		free(old);
		return NULL;
	}
	old->own_device = *device;
	old->device = &old->own_device;
	old->ops = vb_ops10;
	old->cmd_fd = real->cmd_fd;
	old->async_fd = real->async_fd;
	old->num_comp_vectors = real->num_comp_vectors;
	old->real = real;
	old->mark = &mark10;
	return old;
}

VB_OLD(vb10_close_device, "close_device");
VB_EXPORT int vb10_close_device(struct vb_context10 *context);
int vb10_close_device(struct vb_context10 *context)
{
	int err = vbx_close_device(context->real);

	if (!err)
		free(context);
	return err;
}

/* The kind of object that an event concerns. The context of the real object is the old object. */
enum subject { SUBJECT_NONE, SUBJECT_CQ, SUBJECT_QP, SUBJECT_SRQ };

static enum subject subject_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return SUBJECT_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return SUBJECT_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return SUBJECT_SRQ;
	default:
		return SUBJECT_NONE;
	}
}

VB_OLD(vb10_get_async_event, "get_async_event");
VB_EXPORT int vb10_get_async_event(struct vb_context10 *context, struct ibv_async_event *event);
int vb10_get_async_event(struct vb_context10 *context, struct ibv_async_event *event)
{
	int err = vbx_get_async_event(context->real, event);

	if (err)
		return err;
	switch (subject_of(event)) {
	case SUBJECT_CQ:
		event->element.cq = event->element.cq->cq_context;
		break;
	case SUBJECT_QP:
		event->element.qp = event->element.qp->qp_context;
		break;
	case SUBJECT_SRQ:
		event->element.srq = event->element.srq->srq_context;
		break;
	case SUBJECT_NONE:
		break;
	}
	return 0;
}

VB_OLD(vb10_ack_async_event, "ack_async_event");
VB_EXPORT void vb10_ack_async_event(struct ibv_async_event *event);
void vb10_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_async_event real = *event;

	switch (subject_of(event)) {
	case SUBJECT_CQ:
		real.element.cq = ((struct vb_cq10 *)event->element.cq)->real;
		break;
	case SUBJECT_QP:
		real.element.qp = ((struct vb_qp10 *)event->element.qp)->real;
		break;
	case SUBJECT_SRQ:
		real.element.srq = ((struct vb_srq10 *)event->element.srq)->real;
		break;
	case SUBJECT_NONE:
		break;
	}
	vbx_ack_async_event(&real);
}

VB_OLD(vb10_query_device, "query_device");
VB_EXPORT int vb10_query_device(struct vb_context10 *context, struct ibv_device_attr *attr);
int vb10_query_device(struct vb_context10 *context, struct ibv_device_attr *attr)
{
	return vbx_query_device(context->real, attr);
}

VB_OLD(vb10_query_port, "query_port");
VB_EXPORT int vb10_query_port(struct vb_context10 *context, uint8_t port, struct _compat_ibv_port_attr *attr);
int vb10_query_port(struct vb_context10 *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return vbx_query_port(context->real, port, attr);
}

VB_OLD(vb10_query_gid, "query_gid");
VB_EXPORT int vb10_query_gid(struct vb_context10 *context, uint8_t port, int index, union ibv_gid *gid);
int vb10_query_gid(struct vb_context10 *context, uint8_t port, int index, union ibv_gid *gid)
{
	return vbx_query_gid(context->real, port, index, gid);
}

VB_OLD(vb10_query_pkey, "query_pkey");
VB_EXPORT int vb10_query_pkey(struct vb_context10 *context, uint8_t port, int index, __be16 *pkey);
int vb10_query_pkey(struct vb_context10 *context, uint8_t port, int index, __be16 *pkey)
{
	return vbx_query_pkey(context->real, port, index, pkey);
}
