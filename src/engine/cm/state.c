// state.c - the last steps of transitions: idle, timewait, disconnecting
// follows: IBA volume 1, 12.9.8.4 (timewait), 12.10.3 (disconnecting)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"

void vb_cm_emit(struct vb_cm *cm, struct vb_cm_conn *conn, enum vb_cm_event_kind kind, const struct vb_cm_msg *msg)
{
	if (!conn->orphan)
		cm->ops->event(cm->own, conn, &(struct vb_cm_event){.kind = kind, .msg = msg});
}

void vb_cm_to_idle(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	vb_cm_unindex(cm, conn);
	vb_cm_set_deadline(cm, conn, 0);
	conn->state = VB_CM_IDLE;
	conn->has_mad = false;
	if (conn->orphan)
		vb_cm_release(cm, conn);
}

/* Packets may be in flight for the local ACK timeout; the peer's value is limited. The peer may connect its queue pair
 * again during our timewait: protecting it from old packets is the peer's task. */
void vb_cm_to_timewait(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now)
{
	vb_cm_unindex_qp(cm, conn);
	conn->state = VB_CM_TIMEWAIT;
	vb_cm_set_deadline(cm, conn, now + vb_cm_time_at_most(conn->ack_timeout, cm->cfg.max_timewait));
}

void vb_cm_start_timer(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now)
{
	conn->retries = conn->max_retries;
	vb_cm_set_deadline(cm, conn, now + conn->timeout);
}

void vb_cm_to_dreq_sent(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now)
{
	conn->dreq_tid = vb_cm_random(cm);
	conn->state = VB_CM_DREQ_SENT;
	vb_cm_keep_dreq(conn, private_data, len);
	vb_cm_start_timer(cm, conn, now);
	vb_cm_repeat(cm, conn);
}
