// ep.c - endpoints: an id, its addresses and its queue pair in one call
// follows: rdma_create_ep(3), rdma_destroy_ep(3), rdma_get_request(3)
// SPDX-License-Identifier: MIT
#include <rdma/rdma_verbs.h>
#include <stdlib.h>

#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"

#define RESOLVE_MS 2000

static void *copy_bytes(const void *from, size_t len)
{
	void *to = malloc(len);

	if (to)
		memcpy(to, from, len);
	return to;
}

/* The QP type that the addresses name, or that of the port space. */
static enum ibv_qp_type type_of(const struct rdma_addrinfo *res)
{
	if (res->ai_qp_type)
		return (enum ibv_qp_type)res->ai_qp_type;
	return res->ai_port_space == RDMA_PS_UDP || res->ai_port_space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

static int open_passive(struct rcm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
                        const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->id, res->ai_src_addr))
		return errno;
	if (pd)
		id->id.pd = pd;
	if (!attr)
		return 0;
	id->qp_init_attr = copy_bytes(attr, sizeof(*attr));
	if (!id->qp_init_attr)
		return ENOMEM;
	id->qp_init_attr->qp_type = type_of(res);
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, const struct rdma_addrinfo *res)
{
	if (!res->ai_route_len)
		return rdma_resolve_route(id, RESOLVE_MS) ? errno : 0;
	if (rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, res->ai_route, res->ai_route_len))
		return errno;
	return rcm_complete(rcm_id(id));
}

static int open_active(struct rcm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
                       struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&id->id, res->ai_src_len ? res->ai_src_addr : NULL, res->ai_dst_addr, RESOLVE_MS))
		return errno;
	int err = resolve_route(&id->id, res);

	if (err)
		return err;
	if (attr) {
		attr->qp_type = type_of(res);
		if (rdma_create_qp(&id->id, pd, attr))
			return errno;
	}
	if (!res->ai_connect_len)
		return 0;
	id->connect = copy_bytes(res->ai_connect, res->ai_connect_len);
	if (!id->connect)
		return ENOMEM;
	id->connect_len = res->ai_connect_len;
	return 0;
}

RCM_EXPORT int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
                              struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;

	if (!res || !out)
		return rcm_fail(EINVAL);
	int err = rcm_create_id(NULL, &id, NULL, (enum rdma_port_space)res->ai_port_space, type_of(res));

	if (err)
		return rcm_fail(err);
	err = res->ai_flags & RAI_PASSIVE ? open_passive(rcm_id(id), res, pd, attr)
	                                  : open_active(rcm_id(id), res, pd, attr);
	if (err) {
		rdma_destroy_ep(id);
		return rcm_fail(err);
	}
	*out = id;
	return 0;
}

RCM_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

static int check_request(const struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	if (event->status)
		return event->status < 0 ? -event->status : event->status;
	return event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? 0 : EINVAL;
}

RCM_EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **out)
{
	struct rcm_id *id = rcm_id(listen);
	struct rdma_cm_event *event;

	if (!rcm_ours(id))
		return -1;
	bool real = id->real && !id->by_both;

	if (!id->sync || (id->state != RCM_LISTEN && !real)) /* otherwise no request can arrive */
		return rcm_fail(EINVAL);
	rcm_drop_event(id);
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	int err = check_request(event);

	if (!err && id->qp_init_attr) {
		struct ibv_qp_init_attr attr = *id->qp_init_attr;

		if (rdma_create_qp(event->id, listen->pd, &attr))
			err = errno;
	}
	if (err) {
		listen->event = event;
		return rcm_fail(err);
	}
	event->id->event = event;
	*out = event->id;
	return 0;
}
