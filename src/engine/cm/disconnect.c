// disconnect.c - the owner's calls to end a connection
// follows: IBA volume 1, 12.10.3 (DREQ and DREP), 12.9.8.4 (timewait)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"

bool vb_cm_disconnect(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now)
{
	if (conn->state != VB_CM_ESTABLISHED || len > VB_CM_DREQ_PRIVATE)
		return false;
	vb_cm_to_dreq_sent(cm, conn, private_data, len, now);
	return true;
}

bool vb_cm_dreply(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now)
{
	if (conn->state != VB_CM_DREQ_RCVD || len > VB_CM_DREP_PRIVATE)
		return false;
	vb_cm_keep_drep(conn, private_data, len);
	vb_cm_repeat(cm, conn);
	vb_cm_to_timewait(cm, conn, now);
	return true;
}

void vb_cm_destroy(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now)
{
	conn->orphan = true;
	vb_cm_unindex_qp(cm, conn);
	switch (conn->state) {
	case VB_CM_REQ_SENT:
		vb_cm_send_timeout(cm, conn);
		vb_cm_to_idle(cm, conn);
		break;
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_MRA_REQ_RCVD:
	case VB_CM_REP_SENT:
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
		vb_cm_reject(cm, conn, VB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0, now);
		break;
	case VB_CM_ESTABLISHED:
		vb_cm_disconnect(cm, conn, NULL, 0, now);
		break;
	case VB_CM_DREQ_RCVD:
		vb_cm_dreply(cm, conn, NULL, 0, now);
		break;
	case VB_CM_SIDR_REQ_RCVD:
		vb_cm_sidr_refuse(cm, conn);
		break;
	case VB_CM_IDLE:
	case VB_CM_SIDR_REQ_SENT:
		vb_cm_to_idle(cm, conn);
		break;
	}
}

/* Does the peer consider the connection alive? */
static bool is_connected(const struct vb_cm_conn *conn)
{
	switch (conn->state) {
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_REP_SENT:
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
	case VB_CM_ESTABLISHED:
	case VB_CM_DREQ_SENT:
	case VB_CM_DREQ_RCVD:
		return conn->used;
	default:
		return false;
	}
}

static bool waits_for_an_answer(const struct vb_cm_conn *conn)
{
	return conn->used && (conn->state == VB_CM_REQ_SENT || conn->state == VB_CM_REP_SENT ||
	                      conn->state == VB_CM_DREQ_SENT || conn->state == VB_CM_SIDR_REQ_SENT);
}

void vb_cm_again(struct vb_cm *cm, void (*say)(void *own, const struct vb_cm_conn *conn))
{
	for (uint32_t i = 0; i < cm->fresh; i++)
		if (is_connected(&cm->conns[i]))
			say(cm->own, &cm->conns[i]);
	for (uint32_t i = 0; i < cm->fresh; i++)
		if (waits_for_an_answer(&cm->conns[i]))
			vb_cm_repeat(cm, &cm->conns[i]);
}
