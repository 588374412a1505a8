// route.c - finds the destination of a datagram to queue pair 1, without a table
// follows: IBA volume 1, 12.6 (ids), 12.11 (SIDR); annex A11 (port spaces, private data)
// SPDX-License-Identifier: MIT
#include "engine/cm/cm.h"

static enum vb_cm_route to_service(struct vb_cm_route_info *out, uint64_t service_id, const uint8_t *private_data)
{
	out->service_id = service_id;
	out->port_space = vb_cm_service_port(service_id, &out->ps, &out->port);
	/* there is no such header if the addresses are native InfiniBand */
	out->cma = out->port_space && vb_cma_decode(&out->hdr, private_data);
	return VB_CM_TO_SERVICE;
}

static enum vb_cm_route to_lane(struct vb_cm_route_info *out, uint32_t comm_id)
{
	out->comm_id = comm_id;
	out->lane = vb_cm_lane_of(comm_id);
	return VB_CM_TO_LANE;
}

enum vb_cm_route vb_cm_route(const uint8_t *mad, size_t len, struct vb_cm_route_info *out)
{
	struct vb_cm_msg msg;

	*out = (struct vb_cm_route_info){0};
	if (!vb_cm_decode(&msg, mad, len))
		return VB_CM_DROP;
	out->attr = msg.attr;
	switch (msg.attr) {
	case VB_CM_REQ:
		return to_service(out, msg.req.service_id, msg.req.private_data);
	case VB_CM_SIDR_REQ:
		return to_service(out, msg.sidr_req.service_id, msg.sidr_req.private_data);
	case VB_CM_SIDR_REP:
		return to_lane(out, msg.sidr_rep.request_id);
	case VB_CM_REJ:
		return msg.rej.remote_comm_id ? to_lane(out, msg.rej.remote_comm_id) : VB_CM_TO_ALL;
	case VB_CM_MRA:
		return to_lane(out, msg.mra.remote_comm_id);
	case VB_CM_REP:
		return to_lane(out, msg.rep.remote_comm_id);
	case VB_CM_RTU:
		return to_lane(out, msg.rtu.remote_comm_id);
	case VB_CM_DREQ:
		return to_lane(out, msg.dreq.remote_comm_id);
	case VB_CM_DREP:
		return to_lane(out, msg.drep.remote_comm_id);
	case VB_CM_LAP:
		return to_lane(out, msg.lap.remote_comm_id);
	case VB_CM_APR:
		return to_lane(out, msg.apr.remote_comm_id);
	}
	return VB_CM_DROP;
}

uint32_t vb_cm_sender_id(const uint8_t *mad, size_t len)
{
	struct vb_cm_msg msg;

	if (!vb_cm_decode(&msg, mad, len))
		return 0;
	switch (msg.attr) {
	case VB_CM_REQ:
		return msg.req.local_comm_id;
	case VB_CM_SIDR_REQ:
		return msg.sidr_req.request_id;
	case VB_CM_SIDR_REP: /* contains only the requester's id */
		return 0;
	case VB_CM_REJ:
		return msg.rej.local_comm_id;
	case VB_CM_MRA:
		return msg.mra.local_comm_id;
	case VB_CM_REP:
		return msg.rep.local_comm_id;
	case VB_CM_RTU:
		return msg.rtu.local_comm_id;
	case VB_CM_DREQ:
		return msg.dreq.local_comm_id;
	case VB_CM_DREP:
		return msg.drep.local_comm_id;
	case VB_CM_LAP:
		return msg.lap.local_comm_id;
	case VB_CM_APR:
		return msg.apr.local_comm_id;
	}
	return 0;
}
