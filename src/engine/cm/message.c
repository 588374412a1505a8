// message.c - the messages of a connection, and the one that it repeats
// follows: IBA volume 1, 12.6 (contents), 12.6.2 (transaction ids: an answer has that of its question)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"

void vb_cm_keep(struct vb_cm_conn *conn, const struct vb_cm_msg *msg)
{
	vb_cm_encode(conn->mad, msg);
	conn->has_mad = true;
}

void vb_cm_repeat(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	if (conn->has_mad)
		cm->ops->send(cm->own, &conn->addr, conn->mad);
}

bool vb_cm_kept(const struct vb_cm_conn *conn, enum vb_cm_attr attr)
{
	struct vb_reader r = vb_reader(conn->mad, VB_MAD_LEN);
	struct vb_mad h;

	vb_mad_decode(&r, &h);
	return conn->has_mad && h.attr_id == attr;
}

/* The caller has checked the length. */
static void fill_private_data(uint8_t *to, const void *from, size_t len)
{
	if (len)
		memcpy(to, from, len);
}

#define IDS(conn) .local_comm_id = (conn)->local_comm_id, .remote_comm_id = (conn)->remote_comm_id

void vb_cm_keep_mra(struct vb_cm_conn *conn, uint8_t service_timeout, const void *private_data, size_t len)
{
	struct vb_cm_msg msg = {.attr = VB_CM_MRA,
	                        .tid = conn->tid,
	                        .mra = {IDS(conn), .answers = conn->active ? VB_CM_ANSWERS_REP : VB_CM_ANSWERS_REQ,
	                                .service_timeout = service_timeout}};

	fill_private_data(msg.mra.private_data, private_data, len);
	vb_cm_keep(conn, &msg);
}

void vb_cm_keep_rtu(struct vb_cm_conn *conn, const void *private_data, size_t len)
{
	struct vb_cm_msg msg = {.attr = VB_CM_RTU, .tid = conn->tid, .rtu = {IDS(conn)}};

	fill_private_data(msg.rtu.private_data, private_data, len);
	vb_cm_keep(conn, &msg);
}

void vb_cm_keep_dreq(struct vb_cm_conn *conn, const void *private_data, size_t len)
{
	struct vb_cm_msg msg = {
	        .attr = VB_CM_DREQ, .tid = conn->dreq_tid, .dreq = {IDS(conn), .remote_qpn = conn->remote_qpn}};

	fill_private_data(msg.dreq.private_data, private_data, len);
	vb_cm_keep(conn, &msg);
}

void vb_cm_keep_drep(struct vb_cm_conn *conn, const void *private_data, size_t len)
{
	struct vb_cm_msg msg = {.attr = VB_CM_DREP, .tid = conn->dreq_tid, .drep = {IDS(conn)}};

	fill_private_data(msg.drep.private_data, private_data, len);
	vb_cm_keep(conn, &msg);
}

static uint8_t rejected_message(const struct vb_cm_conn *conn)
{
	switch (conn->state) {
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
		return VB_CM_ANSWERS_REQ;
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
		return VB_CM_ANSWERS_REP;
	default:
		return VB_CM_ANSWERS_OTHER;
	}
}

void vb_cm_keep_rej(struct vb_cm_conn *conn, uint16_t reason, const void *ari, size_t ari_len, const void *private_data,
                    size_t len)
{
	struct vb_cm_msg msg = {
	        .attr = VB_CM_REJ,
	        .tid = conn->tid,
	        .rej = {IDS(conn), .answers = rejected_message(conn), .reason = reason, .ari_len = (uint8_t)ari_len}};

	fill_private_data(msg.rej.ari, ari, ari_len);
	fill_private_data(msg.rej.private_data, private_data, len);
	vb_cm_keep(conn, &msg);
}

/* A peer whose id we do not know finds the connection by our id and our CA GUID (12.6.7.2, code 4). */
void vb_cm_send_timeout(struct vb_cm *cm, struct vb_cm_conn *conn)
{
	uint8_t guid[8];
	struct vb_writer w = vb_writer(guid, sizeof(guid));

	vb_put64(&w, conn->local_guid);
	vb_cm_keep_rej(conn, VB_CM_REJ_TIMEOUT, guid, sizeof(guid), NULL, 0);
	vb_cm_repeat(cm, conn);
}
