// multicast.c - multicast groups of datagram ids
// follows: rdma_join_multicast(3), rdma_join_multicast_ex(3), rdma_leave_multicast(3); annex A17, A17.4.3 (groups are
// IP groups)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "frame/fields.h"
#include "rdmacm/fabric.h"
#include "rdmacm/hardware.h"

int rcm_post_joined(struct rcm_id *id, struct rcm_mcast *mc, int err, const struct ibv_ah_attr *ah, uint32_t qkey)
{
	struct rcm_event *e =
	        rcm_event_new(id, err ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN, -err);

	if (!e)
		return ENOMEM;
	e->mcast = mc;
	e->event.param.ud = (struct rdma_ud_param){
	        .private_data = mc->context, .ah_attr = *ah, .qp_num = VB_QPN_MULTICAST, .qkey = qkey};
	rcm_queue(e);
	return 0;
}

/* A group of IP is joined at once. rcm.lock held. */
static int queue_join(struct rcm_id *id, struct rcm_mcast *mc)
{
	struct ibv_ah_attr ah;

	rcm_ah_attr(id, &ah);
	ah.grh.dgid = mc->mgid;
	ah.grh.hop_limit = RCM_HOP_LIMIT;
	ah.grh.traffic_class = id->tos;
	return rcm_post_joined(id, mc, 0, &ah, RDMA_UDP_QKEY);
}

static int join_group(struct rcm_id *id, const struct sockaddr *addr, bool send_only, void *context)
{
	struct rcm_mcast *mc;
	int err = EINVAL;

	if (!rcm_is_ud(id) || !id->source.dev)
		return EINVAL;
	mc = calloc(1, sizeof(*mc));
	if (!mc)
		return ENOMEM;
	mc->context = context;
	mc->send_only = send_only;
	rcm_addr_copy(&mc->addr, addr);
	rcm_addr_gid(&mc->addr, mc->mgid.raw);
	rcm_lock();
	if (rcm_addr_multicast(&mc->addr) && id->state != RCM_IDLE && id->state != RCM_REMOVED)
		err = rcm_on_fabric(id) ? rcm_fabric_join(id, mc) : queue_join(id, mc);
	if (!err) {
		mc->next = id->mcasts;
		id->mcasts = mc;
	}
	rcm_unlock();
	if (err)
		free(mc);
	return err;
}

static int join_and_wait(struct rdma_cm_id *cm_id, const struct sockaddr *addr, bool send_only, void *context)
{
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id) || !rcm_addr_len(addr))
		return errno;
	int err = join_group(id, addr, send_only, context);

	return err ? err : rcm_complete(id);
}

RCM_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	RCM_HARDWARE_WAITS(join_multicast, id, addr, context);
	return rcm_result(join_and_wait(id, addr, false, context));
}

RCM_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	RCM_HARDWARE_WAITS(join_multicast_ex, id, attr, context);
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return rcm_fail(ENOTSUP);
	if ((attr->comp_mask & needed) != needed || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return rcm_fail(EINVAL);
	return rcm_result(
	        join_and_wait(id, attr->addr, attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context));
}

/* Attaches the queue pair, in the program's thread when it fetches the event. A member that only sends is not
 * attached. */
int rcm_joined(struct rcm_event *e)
{
	struct rcm_mcast *mc = e->mcast;
	struct ibv_qp *qp = e->owner->id.qp;

	if (!qp || mc->send_only || mc->gone)
		return 0;
	int err = ibv_attach_mcast(qp, &mc->mgid, mc->mlid);

	mc->attached = !err;
	return err;
}

static void leave_group(struct rcm_id *id, struct rcm_mcast *mc)
{
	int cancel;

	rcm_qp_lock(id, &cancel);
	if (id->id.qp && mc->attached)
		ibv_detach_mcast(id->id.qp, &mc->mgid, mc->mlid);
	mc->gone = true; /* an event that was fetched before, and is presented from now on, does not attach it */
	rcm_qp_unlock(id, cancel);
	rcm_lock();
	if (mc->asked)
		rcm_fabric_leave(id, mc);
	rcm_discard(rcm_unqueue(id, mc));
	rcm_unlock();
}

RCM_EXPORT int rdma_leave_multicast(struct rdma_cm_id *cm_id, struct sockaddr *addr)
{
	RCM_HARDWARE(leave_multicast, cm_id, addr);
	struct rcm_id *id = rcm_id(cm_id);
	union rcm_addr group;

	if (!rcm_ours(id) || !rcm_addr_len(addr))
		return -1;
	rcm_addr_copy(&group, addr);
	rcm_lock();
	struct rcm_mcast **at = &id->mcasts, *mc;

	while (*at && memcmp(&(*at)->addr, &group, rcm_addr_len(addr)) != 0)
		at = &(*at)->next;
	mc = *at;
	if (mc)
		*at = mc->next;
	rcm_unlock();
	if (!mc)
		return rcm_fail(EADDRNOTAVAIL);
	leave_group(id, mc);
	rcm_lock();
	while (mc->acked < mc->reported)
		rcm_wait();
	rcm_unlock();
	free(mc);
	return 0;
}

/* Called when the id is destroyed, which waits for the acknowledgement of these events too. */
void rcm_leave_all(struct rcm_id *id)
{
	struct rcm_mcast *mc;

	rcm_lock();
	while ((mc = id->mcasts)) {
		id->mcasts = mc->next;
		rcm_unlock();
		leave_group(id, mc);
		rcm_lock();
		mc->next = id->left;
		id->left = mc;
	}
	rcm_unlock();
}
