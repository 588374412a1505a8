// cm_conns.c - the connections of a program, learned from its datagrams: when it ends, its peers get a DREQ
// follows: IBA volume 1, 12.6.10 (DREQ), 12.10.3 (disconnecting)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "engine/cm/cm.h"
#include "fabric/server/cm.h"

enum { BUCKETS = 1024, CONNS_MOST = 1u << 16 };

struct conn {
	struct conn *next;
	uint32_t local_id; /* 0: a request that is not answered yet */
	uint32_t remote_id, remote_qpn;
	struct vb_fabric_cm_mad to; /* the address; its datagram is not used */
};

struct cm_conns {
	uint32_t count;
	struct conn *bucket[BUCKETS];
};

static struct conn **conn_place(struct cm_conns *c, uint16_t lid, uint32_t remote_id)
{
	/* the ids of a peer are permuted at random, so their low bits are spread well */
	struct conn **at = &c->bucket[(remote_id ^ lid) % BUCKETS];

	while (*at && ((*at)->remote_id != remote_id || (*at)->to.lid != lid))
		at = &(*at)->next;
	return at;
}

static void conn_forget(struct cm *cm, uint16_t lid, uint32_t remote_id)
{
	struct conn **at = cm->conns ? conn_place(cm->conns, lid, remote_id) : NULL, *conn = at ? *at : NULL;

	if (!conn)
		return;
	*at = conn->next;
	cm->conns->count--;
	free(conn);
}

static void conn_remember(struct cm *cm, const struct vb_fabric_cm_mad *m, uint32_t local_id, uint32_t remote_id,
                          uint32_t remote_qpn)
{
	if (!cm->conns && !(cm->conns = calloc(1, sizeof(*cm->conns))))
		return;
	struct conn **at = conn_place(cm->conns, m->lid, remote_id);

	if (!*at && cm->conns->count < CONNS_MOST && (*at = calloc(1, sizeof(**at))))
		cm->conns->count++;
	if (!*at)
		return;
	(*at)->local_id = local_id;
	(*at)->remote_id = remote_id;
	(*at)->remote_qpn = remote_qpn;
	(*at)->to = *m;
}

bool cm_conns_has(const struct cm *cm, uint16_t lid, uint32_t remote_id)
{
	return cm->conns && *conn_place(cm->conns, lid, remote_id);
}

void cm_conns_received(struct cm *cm, const struct vb_fabric_cm_mad *m)
{
	struct vb_cm_msg msg;

	if (!vb_cm_decode(&msg, m->mad, VB_MAD_LEN))
		return;
	switch (msg.attr) {
	case VB_CM_REQ:
		if (!cm_conns_has(cm, m->lid, msg.req.local_comm_id))
			conn_remember(cm, m, 0, msg.req.local_comm_id, msg.req.local_qpn);
		break;
	case VB_CM_REP:
		conn_remember(cm, m, msg.rep.remote_comm_id, msg.rep.local_comm_id, msg.rep.local_qpn);
		break;
	case VB_CM_REJ:
		conn_forget(cm, m->lid, msg.rej.local_comm_id);
		break;
	case VB_CM_DREP:
		conn_forget(cm, m->lid, msg.drep.local_comm_id);
		break;
	default:
		break;
	}
}

/* The program's own DREQ ends the connection only when it is answered: if the program ends, nobody else repeats it. */
void cm_conns_sent(struct cm *cm, const struct vb_fabric_cm_mad *m)
{
	struct vb_cm_msg msg;
	struct conn *conn;

	if (!cm->conns || !vb_cm_decode(&msg, m->mad, VB_MAD_LEN))
		return;
	switch (msg.attr) {
	case VB_CM_REP:
		conn = *conn_place(cm->conns, m->lid, msg.rep.remote_comm_id);
		if (conn)
			conn->local_id = msg.rep.local_comm_id;
		break;
	case VB_CM_REJ:
		conn_forget(cm, m->lid, msg.rej.remote_comm_id);
		break;
	case VB_CM_DREP:
		conn_forget(cm, m->lid, msg.drep.remote_comm_id);
		break;
	default:
		break;
	}
}

static void send_dreq(struct cm *cm, const struct conn *conn)
{
	struct vb_cm_msg dreq = {.attr = VB_CM_DREQ,
	                         .tid = (uint64_t)conn->local_id << 32 | conn->remote_id,
	                         .dreq = {.local_comm_id = conn->local_id,
	                                  .remote_comm_id = conn->remote_id,
	                                  .remote_qpn = conn->remote_qpn}};
	struct vb_fabric_cm_mad m = conn->to;

	vb_cm_encode(m.mad, &dreq);
	cm_transmit(cm->port, &m);
}

void cm_conns_end(struct cm *cm)
{
	struct vb_fabric *f = cm->port->node->fabric;
	bool held = vb_fabric_hold(f); /* the answers come when all is freed */

	for (unsigned i = 0; cm->conns && i < BUCKETS; i++)
		for (struct conn *conn = cm->conns->bucket[i], *next; conn; conn = next) {
			next = conn->next;
			if (conn->local_id)
				send_dreq(cm, conn);
			free(conn);
		}
	free(cm->conns);
	cm->conns = NULL;
	vb_fabric_let_go(f, held);
}
