// connect.c - the owner's calls to make a connection, or to refuse it
// follows: IBA volume 1, 12.9.5 to 12.9.7 (active and passive side), 12.6.6 (MRA)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"

struct vb_cm_conn *vb_cm_connect(struct vb_cm *cm, const struct vb_cm_addr *addr, const struct vb_cm_req *req,
                                 void *own, uint64_t now)
{
	struct vb_cm_msg msg = {.attr = VB_CM_REQ, .req = *req};
	struct vb_cm_conn *conn = vb_cm_take(cm, addr);

	if (!conn)
		return NULL;
	conn->own = own;
	conn->active = true;
	conn->transport = req->transport;
	conn->service_id = req->service_id;
	conn->local_qpn = req->local_qpn;
	conn->local_guid = req->local_ca_guid;
	conn->ack_timeout = req->primary.ack_timeout & 31;
	conn->max_retries = req->max_cm_retries & 15;
	conn->timeout = vb_cm_time(req->remote_response_timeout) + vb_cm_time(req->primary.ack_timeout);
	conn->tid = msg.tid = vb_cm_random(cm);
	msg.req.local_comm_id = conn->local_comm_id;
	conn->state = VB_CM_REQ_SENT;
	vb_cm_keep(conn, &msg);
	vb_cm_start_timer(cm, conn, now);
	vb_cm_repeat(cm, conn);
	return conn;
}

bool vb_cm_accept(struct vb_cm *cm, struct vb_cm_conn *conn, const struct vb_cm_rep *rep, uint64_t now)
{
	struct vb_cm_msg msg = {.attr = VB_CM_REP, .tid = conn->tid, .rep = *rep};

	if (conn->state != VB_CM_REQ_RCVD && conn->state != VB_CM_MRA_REQ_SENT)
		return false;
	msg.rep.local_comm_id = conn->local_comm_id;
	msg.rep.remote_comm_id = conn->remote_comm_id;
	conn->local_qpn = rep->local_qpn;
	conn->local_guid = rep->local_ca_guid;
	conn->state = VB_CM_REP_SENT;
	vb_cm_keep(conn, &msg);
	vb_cm_start_timer(cm, conn, now);
	vb_cm_repeat(cm, conn);
	return true;
}

bool vb_cm_rtu(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now)
{
	if ((conn->state != VB_CM_REP_RCVD && conn->state != VB_CM_MRA_REP_SENT) || len > VB_CM_RTU_PRIVATE)
		return false;
	conn->state = VB_CM_ESTABLISHED;
	vb_cm_keep_rtu(conn, private_data, len);
	vb_cm_repeat(cm, conn);
	return true;
}

bool vb_cm_establish(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now)
{
	if (conn->state != VB_CM_REP_SENT && conn->state != VB_CM_MRA_REP_RCVD)
		return false;
	conn->state = VB_CM_ESTABLISHED;
	conn->has_mad = false;
	vb_cm_set_deadline(cm, conn, 0);
	vb_cm_emit(cm, conn, VB_CM_USER_ESTABLISHED, NULL);
	return true;
}

bool vb_cm_mra(struct vb_cm *cm, struct vb_cm_conn *conn, uint8_t service_timeout, bool later, const void *private_data,
               size_t len, uint64_t now)
{
	if ((conn->state != VB_CM_REQ_RCVD && conn->state != VB_CM_REP_RCVD) || len > VB_CM_MRA_PRIVATE)
		return false;
	conn->state = conn->state == VB_CM_REQ_RCVD ? VB_CM_MRA_REQ_SENT : VB_CM_MRA_REP_SENT;
	vb_cm_keep_mra(conn, service_timeout, private_data, len);
	if (!later)
		vb_cm_repeat(cm, conn);
	return true;
}

static void enter_rejected(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now)
{
	vb_cm_repeat(cm, conn);
	if (conn->state == VB_CM_REP_SENT || conn->state == VB_CM_MRA_REP_RCVD)
		vb_cm_to_timewait(cm, conn, now);
	else
		vb_cm_to_idle(cm, conn);
}

static bool before_established(const struct vb_cm_conn *conn)
{
	return conn->state >= VB_CM_REQ_SENT && conn->state < VB_CM_ESTABLISHED;
}

bool vb_cm_reject(struct vb_cm *cm, struct vb_cm_conn *conn, uint16_t reason, const void *ari, size_t ari_len,
                  const void *private_data, size_t len, uint64_t now)
{
	if (!before_established(conn) || ari_len > VB_CM_ARI || len > VB_CM_REJ_PRIVATE)
		return false;
	vb_cm_keep_rej(conn, reason, ari, ari_len, private_data, len);
	enter_rejected(cm, conn, now);
	return true;
}
