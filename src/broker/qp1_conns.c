// qp1_conns.c - the connections that a program has, as its messages show them: their peers are told of its death
// follows: IBA volume 1, 12.10.3 (disconnecting), 12.6.10 (DREQ)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "broker/qp1.h"
#include "broker/session.h"
#include "engine/cm/cm.h"

#define BUCKETS 4096
#define CONNS 16384 /* of one program; beyond them the oldest is forgotten */

struct conn {
	struct conn *next;            /* in its bucket */
	struct conn *older, *newer;
	uint32_t local_id, remote_id; /* local_id 0: a request not answered yet */
	uint32_t remote_qpn, ifindex;
	uint8_t local[16], remote[16];
};

struct vb_gsi_conns {
	uint32_t n;
	struct conn *oldest, *newest, *buckets[BUCKETS];
};

static struct conn **place_of(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	struct conn **at = &c->buckets[(remote_id * 0x9e3779b1u) >> 20];

	while (*at && ((*at)->remote_id != remote_id || memcmp((*at)->remote, remote, sizeof((*at)->remote)) != 0))
		at = &(*at)->next;
	return at;
}

static void forget(struct vb_gsi_conns *c, struct conn **at)
{
	struct conn *conn = *at;

	if (!conn)
		return;
	*at = conn->next;
	*(conn->older ? &conn->older->newer : &c->oldest) = conn->newer;
	*(conn->newer ? &conn->newer->older : &c->newest) = conn->older;
	c->n--;
	free(conn);
}

static void forget_id(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	if (c)
		forget(c, place_of(c, remote, remote_id));
}

static void remember(struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m, const struct conn *what)
{
	struct vb_gsi_conns *c = *all ? *all : calloc(1, sizeof(*c));
	struct conn *conn = c ? malloc(sizeof(*conn)) : NULL;

	*all = c;
	if (!conn)
		return;
	forget_id(c, m->remote, what->remote_id);
	if (c->n == CONNS)
		forget_id(c, c->oldest->remote, c->oldest->remote_id);
	*conn = *what;
	conn->ifindex = m->ifindex;
	memcpy(conn->local, m->local, sizeof(conn->local));
	memcpy(conn->remote, m->remote, sizeof(conn->remote));
	struct conn **at = place_of(c, conn->remote, conn->remote_id);

	*at = conn;
	conn->older = c->newest;
	*(conn->older ? &conn->older->newer : &c->oldest) = conn;
	c->newest = conn;
	c->n++;
}

void vb_gsi_conns_received(struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m)
{
	struct vb_cm_msg msg;

	if (!vb_cm_decode(&msg, m->mad, sizeof(m->mad)))
		return;
	switch (msg.attr) {
	case VB_CM_REQ:
		remember(all, m, &(struct conn){.remote_id = msg.req.local_comm_id, .remote_qpn = msg.req.local_qpn});
		break;
	case VB_CM_REP:
		remember(all, m, &(struct conn){.local_id = msg.rep.remote_comm_id, .remote_id = msg.rep.local_comm_id,
						.remote_qpn = msg.rep.local_qpn});
		break;
	case VB_CM_REJ:
		forget_id(*all, m->remote, msg.rej.local_comm_id);
		break;
	case VB_CM_DREP:
		forget_id(*all, m->remote, msg.drep.local_comm_id);
		break;
	default:
		break;
	}
}

/* A DREQ of the program's own counts when it is answered: its repetitions end with the program. */
void vb_gsi_conns_sent(struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m)
{
	struct vb_cm_msg msg;
	struct conn *conn;

	if (!*all || !vb_cm_decode(&msg, m->mad, sizeof(m->mad)))
		return;
	switch (msg.attr) {
	case VB_CM_REP:
		conn = *place_of(*all, m->remote, msg.rep.remote_comm_id);
		if (conn)
			conn->local_id = msg.rep.local_comm_id;
		break;
	case VB_CM_REJ:
		forget_id(*all, m->remote, msg.rej.remote_comm_id);
		break;
	case VB_CM_DREP:
		forget_id(*all, m->remote, msg.drep.remote_comm_id);
		break;
	default:
		break;
	}
}

static void disconnect(struct vb_broker *b, const struct conn *conn)
{
	struct vb_cm_msg dreq = {.attr = VB_CM_DREQ, .tid = (uint64_t)conn->local_id << 32 | conn->remote_id,
				 .dreq = {.local_comm_id = conn->local_id, .remote_comm_id = conn->remote_id,
					  .remote_qpn = conn->remote_qpn}};
	uint8_t mad[VB_CM_MAD];

	vb_cm_encode(mad, &dreq);
	vb_gsi_send_out(b, conn->local, conn->remote, conn->ifindex, mad);
}

void vb_gsi_conns_end(struct vb_broker *b, struct vb_gsi_conns *c, bool tell)
{
	while (c && c->oldest) {
		if (tell && c->oldest->local_id)
			disconnect(b, c->oldest);
		forget_id(c, c->oldest->remote, c->oldest->remote_id);
	}
	free(c);
}
