// input.c - effects of the peer's messages on a connection
// follows: IBA volume 1, 12.9.5 to 12.9.8 (states, stale connections), 12.10 (disconnecting)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"

/* A message, its source, and its time of arrival. */
struct input {
	struct vb_cm *cm;
	const struct vb_cm_addr *from;
	const struct vb_cm_msg *msg;
	uint64_t now;
};

static void answer_unknown(const struct input *in)
{
	struct vb_cm_msg answer;

	if (vb_cm_unknown_msg(&answer, in->msg))
		vb_cm_send_msg(in->cm, in->from, &answer);
}

static void refuse_req(const struct input *in, uint16_t reason)
{
	struct vb_cm_msg rej;

	vb_cm_rej_msg(&rej, in->msg, reason);
	vb_cm_send_msg(in->cm, in->from, &rej);
}

/* The connection with our id, if the message is from its peer. */
static struct vb_cm_conn *find_named(const struct input *in, uint32_t local_comm_id)
{
	struct vb_cm_conn *conn = vb_cm_lookup(in->cm, local_comm_id);

	return conn && !conn->sidr && conn->state != VB_CM_IDLE && vb_cm_same_addr(conn, in->from) ? conn : NULL;
}

/* The same for an answer, which must carry the transaction id of its request: only the peer knows it (12.6.2). */
static struct vb_cm_conn *find_answered(const struct input *in, uint32_t local_comm_id, bool active)
{
	struct vb_cm_conn *conn = find_named(in, local_comm_id);

	return conn && conn->active == active && conn->tid == in->msg->tid ? conn : NULL;
}

/*
 * Sends a DREQ with a wrong queue pair number, to find out whether the peer still knows this connection. A peer that
 * knows the connection ignores the DREQ, as Linux does. Otherwise it answers with a DREP, which ends the connection.
 */
static void ask_whether_known(const struct input *in, struct vb_cm_conn *conn)
{
	if (!conn->dreq_tid)
		conn->dreq_tid = vb_cm_random(in->cm);
	const struct vb_cm_msg msg = {.attr = VB_CM_DREQ,
	                              .tid = conn->dreq_tid,
	                              .dreq = {.local_comm_id = conn->local_comm_id,
	                                       .remote_comm_id = conn->remote_comm_id,
	                                       .remote_qpn = conn->remote_qpn ^ 1}};

	vb_cm_send_msg(in->cm, &conn->addr, &msg);
}

/*
 * The peer reuses the queue pair or communication id of an old connection, so it may have forgotten the connection
 * (12.9.8.3). deviates: the specification ends the old connection. Then an attacker who forges the peer's address could
 * end any connection by trying all queue pair numbers. So the peer is asked first.
 */
static void refuse_stale(const struct input *in, struct vb_cm_conn *old)
{
	refuse_req(in, VB_CM_REJ_STALE_CONN);
	if (old->state == VB_CM_ESTABLISHED)
		ask_whether_known(in, old);
}

static void repeated_req(const struct input *in, struct vb_cm_conn *conn)
{
	switch (conn->state) {
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_REP_SENT:
		vb_cm_repeat(in->cm, conn);
		break;
	case VB_CM_TIMEWAIT:
		refuse_req(in, VB_CM_REJ_STALE_CONN);
		break;
	}
}

static bool transport_known(const struct vb_cm_req *req)
{
	return req->transport == VB_CM_RC || req->transport == VB_CM_UC ||
	       (req->transport == VB_CM_EXTENDED && req->extended_transport == 1);
}

/* An XRC queue pair has many peers. */
static bool one_peer(uint8_t transport)
{
	return transport == VB_CM_RC || transport == VB_CM_UC;
}

static void new_conn(const struct input *in)
{
	const struct vb_cm_req *req = &in->msg->req;
	struct vb_cm_conn *conn = vb_cm_take(in->cm, in->from);

	if (!conn) {
		refuse_req(in, VB_CM_REJ_NO_RESOURCES);
		return;
	}
	conn->transport = req->transport;
	conn->tid = in->msg->tid;
	conn->remote_comm_id = req->local_comm_id;
	conn->remote_qpn = req->local_qpn;
	conn->remote_guid = req->local_ca_guid;
	conn->service_id = req->service_id;
	conn->ack_timeout = req->primary.ack_timeout;
	conn->max_retries = req->max_cm_retries;
	conn->timeout = vb_cm_time_at_most(req->local_response_timeout, in->cm->cfg.max_response) +
	                vb_cm_time_at_most(req->primary.ack_timeout, in->cm->cfg.max_response);
	conn->state = VB_CM_REQ_RCVD;
	vb_cm_index_id(in->cm, conn);
	if (one_peer(conn->transport))
		vb_cm_index_qp(in->cm, conn);
	vb_cm_emit(in->cm, conn, VB_CM_REQ_RECEIVED, in->msg);
}

static void input_req(const struct input *in)
{
	const struct vb_cm_req *req = &in->msg->req;
	struct vb_cm_conn *old =
	        vb_cm_by_id(in->cm, in->from, false, req->local_ca_guid, req->local_comm_id, in->msg->tid);

	if (old && old->tid == in->msg->tid) {
		repeated_req(in, old);
		return;
	}
	if (!old && one_peer(req->transport))
		old = vb_cm_by_qp(in->cm, in->from, req->local_ca_guid, req->local_qpn);
	if (old) {
		refuse_stale(in, old);
		return;
	}
	uint16_t reason =
	        transport_known(req) ? in->cm->ops->admit(in->cm->own, in->from, in->msg) : VB_CM_REJ_INVALID_TRANSPORT;

	if (!reason)
		new_conn(in);
	else if (reason != VB_CM_IGNORE)
		refuse_req(in, reason);
}

/* The peer may ask for more time once per message. */
static void input_mra(const struct input *in)
{
	const struct vb_cm_mra *mra = &in->msg->mra;
	bool req = mra->answers == VB_CM_ANSWERS_REQ;
	struct vb_cm_conn *conn = find_answered(in, mra->remote_comm_id, req);

	if (!conn || conn->state != (req ? VB_CM_REQ_SENT : VB_CM_REP_SENT) || mra->answers > VB_CM_ANSWERS_REP ||
	    (!req && conn->remote_comm_id != mra->local_comm_id))
		return;
	conn->remote_comm_id = mra->local_comm_id;
	conn->state = req ? VB_CM_MRA_REQ_RCVD : VB_CM_MRA_REP_RCVD;
	vb_cm_set_deadline(in->cm, conn,
	                   in->now + conn->timeout + vb_cm_time_at_most(mra->service_timeout, in->cm->cfg.max_service));
	vb_cm_emit(in->cm, conn, VB_CM_MRA_RECEIVED, in->msg);
}

static void first_rep(const struct input *in, struct vb_cm_conn *conn)
{
	const struct vb_cm_rep *rep = &in->msg->rep;
	struct vb_cm_conn *old =
	        one_peer(conn->transport) ? vb_cm_by_qp(in->cm, in->from, rep->local_ca_guid, rep->local_qpn) : NULL;

	if (old) {
		refuse_stale(in, old);
		return;
	}
	conn->remote_comm_id = rep->local_comm_id;
	conn->remote_qpn = rep->local_qpn;
	conn->remote_guid = rep->local_ca_guid;
	conn->state = VB_CM_REP_RCVD;
	conn->has_mad = false;
	vb_cm_set_deadline(in->cm, conn, 0);
	if (one_peer(conn->transport))
		vb_cm_index_qp(in->cm, conn);
	vb_cm_emit(in->cm, conn, VB_CM_REP_RECEIVED, in->msg);
}

static void input_rep(const struct input *in)
{
	struct vb_cm_conn *conn = find_answered(in, in->msg->rep.remote_comm_id, true);

	if (!conn) {
		answer_unknown(in);
		return;
	}
	switch (conn->state) {
	case VB_CM_REQ_SENT:
	case VB_CM_MRA_REQ_RCVD:
		first_rep(in, conn);
		break;
	case VB_CM_MRA_REP_SENT:
	case VB_CM_ESTABLISHED:
		if (conn->remote_comm_id == in->msg->rep.local_comm_id)
			vb_cm_repeat(in->cm, conn);
		break;
	}
}

static void input_rtu(const struct input *in)
{
	struct vb_cm_conn *conn = find_answered(in, in->msg->rtu.remote_comm_id, false);

	if (!conn || conn->remote_comm_id != in->msg->rtu.local_comm_id)
		return;
	if (conn->state == VB_CM_TIMEWAIT && vb_cm_kept(conn, VB_CM_REJ))
		vb_cm_repeat(in->cm, conn); /* the peer has not received our REJ */
	if (conn->state != VB_CM_REP_SENT && conn->state != VB_CM_MRA_REP_RCVD)
		return;
	conn->state = VB_CM_ESTABLISHED;
	conn->has_mad = false;
	vb_cm_set_deadline(in->cm, conn, 0);
	vb_cm_emit(in->cm, conn, VB_CM_RTU_RECEIVED, in->msg);
}

/* The connection of a REJ without our id, from a peer that timed out before it learnt our id. */
static struct vb_cm_conn *given_up(const struct input *in)
{
	const struct vb_cm_rej *rej = &in->msg->rej;
	struct vb_reader r = vb_reader(rej->ari, rej->ari_len);
	uint64_t guid = vb_get64(&r);

	if (rej->reason != VB_CM_REJ_TIMEOUT || r.failed)
		return NULL;
	struct vb_cm_conn *conn = vb_cm_by_id(in->cm, in->from, false, guid, rej->local_comm_id, in->msg->tid);

	return conn && conn->tid == in->msg->tid && vb_cm_same_addr(conn, in->from) ? conn : NULL;
}

/* The connection of a REJ. Before a REP the peer's id may be unknown; afterwards the REJ must carry it. */
static struct vb_cm_conn *find_rejected(const struct input *in)
{
	const struct vb_cm_rej *rej = &in->msg->rej;

	if (!rej->remote_comm_id)
		return given_up(in);
	struct vb_cm_conn *conn = find_named(in, rej->remote_comm_id);

	if (!conn || (conn->tid != in->msg->tid && (conn->state != VB_CM_DREQ_SENT || conn->dreq_tid != in->msg->tid)))
		return NULL;
	if (conn->state == VB_CM_REQ_SENT || conn->state == VB_CM_MRA_REQ_RCVD ||
	    conn->remote_comm_id == rej->local_comm_id)
		return conn;
	return NULL;
}

static void input_rej(const struct input *in)
{
	struct vb_cm_conn *conn = find_rejected(in);

	if (!conn)
		return;
	switch (conn->state) {
	case VB_CM_REQ_SENT:
	case VB_CM_MRA_REQ_RCVD:
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
		if (in->msg->rej.reason == VB_CM_REJ_STALE_CONN)
			vb_cm_to_timewait(in->cm, conn, in->now);
		else
			vb_cm_to_idle(in->cm, conn);
		break;
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
	case VB_CM_ESTABLISHED:
	case VB_CM_DREQ_SENT:
		vb_cm_to_timewait(in->cm, conn, in->now);
		break;
	default:
		return;
	}
	vb_cm_emit(in->cm, conn, VB_CM_REJ_RECEIVED, in->msg);
}

/* If no DREP of this DREQ is stored, a DREP without private data answers. */
static void repeated_dreq(const struct input *in, struct vb_cm_conn *conn)
{
	if (conn->dreq_tid == in->msg->tid && vb_cm_kept(conn, VB_CM_DREP))
		vb_cm_repeat(in->cm, conn);
	else
		answer_unknown(in);
}

static void input_dreq(const struct input *in)
{
	const struct vb_cm_dreq *dreq = &in->msg->dreq;
	struct vb_cm_conn *conn = find_named(in, dreq->remote_comm_id);

	if (!conn || conn->remote_comm_id != dreq->local_comm_id) {
		answer_unknown(in);
		return;
	}
	if (conn->local_qpn != dreq->remote_qpn)
		return;
	switch (conn->state) {
	case VB_CM_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
	case VB_CM_ESTABLISHED:
		conn->state = VB_CM_DREQ_RCVD;
		vb_cm_set_deadline(in->cm, conn, 0);
		break;
	case VB_CM_DREQ_SENT: /* both ends disconnect at once, so neither DREQ needs an answer */
		conn->state = VB_CM_DREQ_RCVD;
		conn->dreq_tid = in->msg->tid;
		vb_cm_dreply(in->cm, conn, NULL, 0, in->now);
		break;
	case VB_CM_TIMEWAIT:
		repeated_dreq(in, conn);
		return;
	default:
		return;
	}
	conn->dreq_tid = in->msg->tid;
	vb_cm_emit(in->cm, conn, VB_CM_DREQ_RECEIVED, in->msg);
}

static void input_drep(const struct input *in)
{
	struct vb_cm_conn *conn = find_named(in, in->msg->drep.remote_comm_id);

	if (!conn || !conn->dreq_tid || (conn->state != VB_CM_DREQ_SENT && conn->state != VB_CM_ESTABLISHED) ||
	    conn->dreq_tid != in->msg->tid || conn->remote_comm_id != in->msg->drep.local_comm_id)
		return;
	vb_cm_to_timewait(in->cm, conn, in->now);
	vb_cm_emit(in->cm, conn, VB_CM_DREP_RECEIVED, in->msg);
}

/* Refuses alternate paths, which are not supported. */
static void input_lap(const struct input *in)
{
	const struct vb_cm_lap *lap = &in->msg->lap;
	struct vb_cm_conn *conn = find_named(in, lap->remote_comm_id);
	struct vb_cm_msg apr;

	vb_cm_unknown_msg(&apr, in->msg);
	if (conn && conn->remote_comm_id == lap->local_comm_id)
		apr.apr.status = VB_CM_APR_UNSUPPORTED;
	vb_cm_send_msg(in->cm, in->from, &apr);
}

void vb_cm_input(struct vb_cm *cm, const struct vb_cm_addr *from, const uint8_t *mad, size_t len, uint64_t now)
{
	struct vb_cm_msg msg;
	const struct input in = {.cm = cm, .from = from, .msg = &msg, .now = now};

	if (!vb_cm_decode(&msg, mad, len))
		return;
	switch (msg.attr) {
	case VB_CM_REQ:
		input_req(&in);
		break;
	case VB_CM_MRA:
		input_mra(&in);
		break;
	case VB_CM_REJ:
		input_rej(&in);
		break;
	case VB_CM_REP:
		input_rep(&in);
		break;
	case VB_CM_RTU:
		input_rtu(&in);
		break;
	case VB_CM_DREQ:
		input_dreq(&in);
		break;
	case VB_CM_DREP:
		input_drep(&in);
		break;
	case VB_CM_SIDR_REQ:
		vb_cm_input_sidr_req(cm, from, &msg);
		break;
	case VB_CM_SIDR_REP:
		vb_cm_input_sidr_rep(cm, from, &msg);
		break;
	case VB_CM_LAP:
		input_lap(&in);
		break;
	case VB_CM_APR:
		return;
	}
}
