// incoming.c - turns events of a connection into events of its id
// follows: rdma_get_cm_event(3); IBA volume 1, 12.9 (states)
// SPDX-License-Identifier: MIT
#include "rdmacm/rdmacm.h"
#include "util/log.h"

static void post_data(struct rcm_id *id, enum rdma_cm_event_type type, int status, const void *data, size_t len)
{
	struct rcm_event *e = id->delivers_events ? rcm_event_new(id, type, status) : NULL;

	if (!e)
		return;
	rcm_event_data(e, data, len);
	rcm_queue(e);
}

static void post_event(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	post_data(id, type, status, NULL, 0);
}

/* IBA 12.7.34, including the peer's own delay: the least acknowledgement timeout. */
static uint8_t with_delay(uint8_t timeout, uint8_t delay)
{
	uint8_t t = timeout >= delay ? (uint8_t)(timeout + (delay >= timeout - 1))
	                             : (uint8_t)(delay + (timeout >= delay - 1));

	return rcm_at_most(t, 31);
}

static void take_rep(struct rcm_id *id, const struct vb_cm_rep *rep)
{
	struct rcm_path *path = &id->path;

	path->remote_qpn = rep->local_qpn;
	path->sq_psn = rep->starting_psn;
	/* No more than was offered, and no more than the adapter supports. */
	path->responder_resources = rcm_at_most(rep->initiator_depth, id->source.dev->max_responder_resources);
	path->initiator_depth = rcm_at_most(rep->responder_resources, path->initiator_depth);
	path->rnr_retry_count = rep->rnr_retry_count;
	path->timeout = with_delay(path->timeout, rep->target_ack_delay);
}

static void on_rep(struct rcm_id *id, const struct vb_cm_rep *rep)
{
	struct rcm_event *e = rcm_event_new(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);

	vb_cm_mra(&rcm.cm, id->conn, RCM_MRA_TIMEOUT, true, NULL, 0, vb_gsi_client_now());
	if (!e)
		return;
	take_rep(id, rep);
	id->remote_ece = rep->ece;
	e->event.param.conn = (struct rdma_conn_param){
	        .responder_resources = rep->initiator_depth,
	        .initiator_depth = rep->responder_resources,
	        .flow_control = rep->flow_control,
	        .rnr_retry_count = rep->rnr_retry_count,
	        .srq = rep->srq,
	        .qp_num = rep->local_qpn,
	};
	rcm_event_data(e, rep->private_data,
	               id->iwarp_here ? rcm_iw_unpack(rep->private_data, sizeof(rep->private_data))
	                              : sizeof(rep->private_data));
	rcm_queue(e);
}

/* An iWARP connection can be refused in two places. If no program of this host listens, TCP may still have a
 * listener. */
static void on_rej(struct rcm_id *id, const struct vb_cm_rej *rej)
{
	if (rej->reason == VB_CM_REJ_INVALID_MTU)
		vb_log(VB_LOG_ERROR, "a connection was refused: the peer's interface cannot receive packets of %u",
		       128u << id->path.mtu);
	if (!id->iwarp_here)
		post_data(id, RDMA_CM_EVENT_REJECTED, rej->reason, rej->private_data, sizeof(rej->private_data));
	else if (!id->conn->active || rej->reason != VB_CM_REJ_INVALID_SERVICE_ID || rcm_iw_connect_elsewhere(id))
		post_data(id, RDMA_CM_EVENT_REJECTED, -ECONNREFUSED, rej->private_data,
		          rcm_iw_unpack(rej->private_data, sizeof(rej->private_data)));
}

/* Reports the end once: the peer's DREQ, its answer to ours, or its silence. */
static void on_disconnected(struct rcm_id *id, int status)
{
	if (id->state != RCM_CONNECT)
		return;
	id->state = RCM_DISCONNECT;
	post_event(id, RDMA_CM_EVENT_DISCONNECTED, status);
}

static void on_sidr_rep(struct rcm_id *id, const struct vb_cm_sidr_rep *rep)
{
	struct rcm_event *e;

	if (rep->status != VB_CM_SIDR_OK) {
		post_data(id, RDMA_CM_EVENT_UNREACHABLE, rep->status, rep->private_data, sizeof(rep->private_data));
		return;
	}
	e = rcm_event_new(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (!e)
		return;
	id->remote_ece = rep->ece;
	e->event.param.ud = (struct rdma_ud_param){.qp_num = rep->qpn, .qkey = rep->qkey};
	rcm_ah_attr(id, &e->event.param.ud.ah_attr);
	rcm_event_data(e, rep->private_data, sizeof(rep->private_data));
	rcm_queue(e);
}

static void on_connection(struct rcm_id *id, const struct vb_cm_event *event)
{
	switch (event->kind) {
	case VB_CM_REP_RECEIVED:
		on_rep(id, &event->msg->rep);
		break;
	case VB_CM_RTU_RECEIVED:
	case VB_CM_USER_ESTABLISHED:
		post_event(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		break;
	case VB_CM_REQ_ERROR:
	case VB_CM_REP_ERROR:
	case VB_CM_SIDR_ERROR:
		if (event->kind != VB_CM_REP_ERROR)
			rcm_trace_silence(id);
		post_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	case VB_CM_REJ_RECEIVED:
		on_rej(id, &event->msg->rej);
		break;
	case VB_CM_SIDR_REP_RECEIVED:
		on_sidr_rep(id, &event->msg->sidr_rep);
		break;
	default:
		break;
	}
}

void rcm_on_event(void *own, struct vb_cm_conn *conn, const struct vb_cm_event *event)
{
	struct rcm_id *id = conn->own;

	switch (event->kind) {
	case VB_CM_REQ_RECEIVED:
	case VB_CM_SIDR_REQ_RECEIVED:
		rcm_on_request(conn, event->msg);
		return;
	case VB_CM_DREQ_RECEIVED:
		if (id->iwarp_here) /* a stream ends for both sides at once */
			vb_cm_dreply(&rcm.cm, conn, NULL, 0, vb_gsi_client_now());
		on_disconnected(id, 0);
		return;
	case VB_CM_DREP_RECEIVED:
		on_disconnected(id, 0);
		return;
	case VB_CM_DREQ_ERROR:
		on_disconnected(id, -ETIMEDOUT);
		return;
	case VB_CM_TIMEWAIT_EXIT:
		if (id->state == RCM_DISCONNECT)
			post_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		return;
	default:
		if (id->state == RCM_CONNECT)
			on_connection(id, event);
	}
}
