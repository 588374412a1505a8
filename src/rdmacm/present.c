// present.c - what an event changes in the thread that fetches it: devices, queue pairs, fields of the id
// follows: rdma_get_cm_event(3), rdma_create_qp(3) (queue pairs change their state by themselves)
// SPDX-License-Identifier: MIT
#include <stdatomic.h>
#include <stdlib.h>

#include "abi/port.h"
#include "rdmacm/fabric.h"
#include "frame/fields.h"
#include "util/calls.h"
#include "util/lock.h"
#include "util/log.h"

int rcm_show_device(struct rcm_id *id)
{
	int err = rcm_device_pd(id->source.dev);

	if (err)
		return err;
	id->id.verbs = id->source.dev->verbs;
	if (!id->id.pd)
		id->id.pd = id->source.dev->pd;
	id->id.port_num = id->source.port;
	return 0;
}

void rcm_show_addresses(struct rcm_id *id)
{
	struct rdma_addr *addr = &id->id.route.addr;

	addr->src_storage = id->src.ss;
	addr->dst_storage = id->dst.ss;
	addr->addr.ibaddr.sgid = id->source.gid;
	if (id->dst.sa.sa_family)
		rcm_addr_gid(&id->dst, addr->addr.ibaddr.dgid.raw);
	addr->addr.ibaddr.pkey = htobe16(VB_DEFAULT_PKEY);
	if (rcm_on_fabric(id)) {
		addr->addr.ibaddr.dgid = id->path.dgid;
		addr->addr.ibaddr.pkey = htobe16(id->path.pkey);
	}
}

static void fail_event(struct rcm_event *e, enum rdma_cm_event_type type, int err)
{
	e->event.event = type;
	e->event.status = -err;
}

static void addr_resolved(struct rcm_event *e)
{
	int err = rcm_show_device(e->owner);

	rcm_show_addresses(e->owner);
	if (err)
		fail_event(e, RDMA_CM_EVENT_ADDR_ERROR, err);
}

static void route_resolved(struct rcm_event *e)
{
	int err = rcm_path_record(e->owner);

	if (err)
		fail_event(e, RDMA_CM_EVENT_ROUTE_ERROR, err);
}

/* Handles a path MTU above our port's. Within one host no packets are sent, and the smaller MTU is used. A peer on
 * another host would send packets that are lost, so its request is rejected. */
static int fit_mtu(struct rcm_id *child)
{
	const uint8_t *remote = child->path.dgid.raw;
	static atomic_bool said;
	struct ibv_port_attr port;
	bool fits = true;

	if (vb_query_port_bare(child->source.dev->verbs, child->source.port, &port))
		return ENODEV;
	rcm_lock();
	if (child->path.mtu > port.active_mtu) {
		fits = !child->by_fabric && rcm_local_address(remote, child->source.ifindex);
		if (fits)
			child->path.mtu = port.active_mtu;
	}
	rcm_unlock();
	if (fits)
		return 0;
	if (!atomic_exchange(&said, true)) /* once, because any peer can cause this */
		vb_log(VB_LOG_ERROR,
		       "%s: refused a connection with a path MTU of %u: this interface can only receive packets of %u",
		       ibv_get_device_name(child->source.dev->verbs->device), 128u << child->path.mtu,
		       128u << port.active_mtu);
	rcm_reject(child, VB_CM_REJ_INVALID_MTU);
	return EMSGSIZE;
}

/* Sets the new id's device and event channel: a channel of its own if its listener is synchronous. */
static int adopt_child(struct rcm_id *child, const struct rcm_id *listener)
{
	struct rcm_source source = child->source;
	enum rcm_kind kind = child->tcp || child->iwarp_here ? RCM_IWARP : RCM_ROCE;
	int err = child->by_fabric ? rcm_find_fabric(NULL, &source)
	                           : rcm_find_source(kind, child->source.gid.raw, rcm_addr_scope(&child->src), &source);

	rcm_lock();
	child->source = source;
	child->id.channel = listener->id.channel;
	rcm_unlock();
	if (!err)
		err = rcm_show_device(child);
	if (!err && kind == RCM_ROCE && !rcm_is_ud(child))
		err = fit_mtu(child);
	if (!err && listener->sync && rdma_migrate_id(&child->id, NULL))
		err = errno;
	rcm_show_addresses(child);
	return err || rcm_is_ud(child) ? err : rcm_path_record(child);
}

static bool connect_request(struct rcm_event *e)
{
	struct rcm_id *child = rcm_id(e->event.id);

	if (!adopt_child(child, e->owner)) {
		rcm_iw_adopt(e);
		return true;
	}
	rdma_destroy_id(&child->id);
	return false;
}

static void connect_response(struct rcm_event *e)
{
	struct rcm_id *id = e->owner;

	if (!id->id.qp && !id->iwarp_here)
		return;
	int err = rcm_answer_response(id);

	if (!err) {
		e->event.event = RDMA_CM_EVENT_ESTABLISHED;
		return;
	}
	fail_event(e, RDMA_CM_EVENT_CONNECT_ERROR, err);
	id->failed = true;
}

static void present_joined(struct rcm_event *e)
{
	int err = rcm_joined(e);

	if (err)
		fail_event(e, RDMA_CM_EVENT_MULTICAST_ERROR, err);
}

static bool present(struct rcm_event *e)
{
	switch (e->event.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		addr_resolved(e);
		return true;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(e);
		return true;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		connect_response(e);
		return true;
	case RDMA_CM_EVENT_ESTABLISHED:
		rcm_iw_established(e);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		if (e->owner->failed)
			return false;
		rcm_qp_err(e->owner);
		return true;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (e->owner->iwarp_here)
			rcm_qp_err(e->owner);
		return !e->owner->failed;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		present_joined(e);
		return true;
	default:
		return true;
	}
}

void rcm_qp_lock(struct rcm_id *id, int *cancel)
{
	vb_cancel_defer(cancel);
	vb_mutex_lock(&id->qp_lock, VB_RANK_RCM_QP);
}

void rcm_qp_unlock(struct rcm_id *id, int cancel)
{
	vb_mutex_unlock(&id->qp_lock);
	vb_cancel_restore(cancel);
}

bool rcm_present(struct rcm_event *e)
{
	struct rcm_id *owner = e->owner;
	int cancel;
	bool shown;

	/* a listener has no queue pair, and nobody knows the new id */
	if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		vb_cancel_defer(&cancel);
		shown = connect_request(e);
		vb_cancel_restore(cancel);
		return shown;
	}
	rcm_qp_lock(owner, &cancel);
	shown = present(e);
	rcm_qp_unlock(owner, cancel);
	return shown;
}
