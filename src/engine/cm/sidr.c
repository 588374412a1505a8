// sidr.c - service id resolution: asks for the queue pair of a service, and answers
// follows: IBA volume 1, 12.11 (service id resolution)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"

#define LONGEST (UINT64_C(1) << 44) /* ns: twice the longest vb_cm_time, as for a REQ */

struct vb_cm_conn *vb_cm_sidr_request(struct vb_cm *cm, const struct vb_cm_addr *addr, const struct vb_cm_sidr_req *req,
                                      uint64_t timeout, uint8_t retries, void *own, uint64_t now)
{
	struct vb_cm_msg msg = {.attr = VB_CM_SIDR_REQ, .sidr_req = *req};
	struct vb_cm_conn *conn = vb_cm_take(cm, addr);

	if (!conn)
		return NULL;
	conn->own = own;
	conn->active = conn->sidr = true;
	conn->service_id = req->service_id;
	conn->max_retries = retries;
	conn->timeout = timeout < 1 ? 1 : timeout < LONGEST ? timeout : LONGEST;
	conn->tid = msg.tid = vb_cm_random(cm);
	msg.sidr_req.request_id = conn->local_comm_id;
	conn->state = VB_CM_SIDR_REQ_SENT;
	vb_cm_keep(conn, &msg);
	vb_cm_start_timer(cm, conn, now);
	vb_cm_repeat(cm, conn);
	return conn;
}

bool vb_cm_sidr_reply(struct vb_cm *cm, struct vb_cm_conn *conn, const struct vb_cm_sidr_rep *rep, uint64_t now)
{
	struct vb_cm_msg msg = {.attr = VB_CM_SIDR_REP, .tid = conn->tid, .sidr_rep = *rep};

	if (conn->state != VB_CM_SIDR_REQ_RCVD)
		return false;
	msg.sidr_rep.request_id = conn->remote_comm_id;
	msg.sidr_rep.service_id = conn->service_id;
	vb_cm_send_msg(cm, &conn->addr, &msg);
	vb_cm_to_idle(cm, conn);
	return true;
}

void vb_cm_sidr_refuse(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	vb_cm_sidr_reply(cm, conn, &(struct vb_cm_sidr_rep){.status = VB_CM_SIDR_REJECTED}, 0);
}

static void refuse_sidr(struct vb_cm *cm, const struct vb_cm_addr *from, const struct vb_cm_msg *msg, uint8_t status)
{
	struct vb_cm_msg rep;

	vb_cm_sidr_rep_msg(&rep, msg, status);
	vb_cm_send_msg(cm, from, &rep);
}

/* A request that is repeated after its answer counts as a new one, because answered requests are not stored. */
void vb_cm_input_sidr_req(struct vb_cm *cm, const struct vb_cm_addr *from, const struct vb_cm_msg *msg)
{
	if (vb_cm_by_id(cm, from, true, 0, msg->sidr_req.request_id, msg->tid))
		return;
	uint16_t status = cm->ops->admit(cm->own, from, msg);

	if (status == VB_CM_IGNORE)
		return;
	struct vb_cm_conn *conn = status ? NULL : vb_cm_take(cm, from);

	if (!conn) {
		refuse_sidr(cm, from, msg, status ? (uint8_t)status : VB_CM_SIDR_NO_QP);
		return;
	}
	conn->sidr = true;
	conn->tid = msg->tid;
	conn->remote_comm_id = msg->sidr_req.request_id;
	conn->service_id = msg->sidr_req.service_id;
	conn->state = VB_CM_SIDR_REQ_RCVD;
	vb_cm_index_id(cm, conn);
	vb_cm_emit(cm, conn, VB_CM_SIDR_REQ_RECEIVED, msg);
}

void vb_cm_input_sidr_rep(struct vb_cm *cm, const struct vb_cm_addr *from, const struct vb_cm_msg *msg)
{
	struct vb_cm_conn *conn = vb_cm_lookup(cm, msg->sidr_rep.request_id);

	if (!conn || conn->state != VB_CM_SIDR_REQ_SENT || conn->tid != msg->tid || !vb_cm_same_addr(conn, from))
		return;
	vb_cm_to_idle(cm, conn);
	vb_cm_emit(cm, conn, VB_CM_SIDR_REP_RECEIVED, msg);
}
