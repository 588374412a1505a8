// qp1_conns.c - the connections that a program has, as its messages show them: their peers are told of its death
// follows: IBA volume 1, 12.10.3 (disconnecting), 12.6.10 (DREQ)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "broker/qp1.h"
#include "broker/session.h"
#include "engine/cm/cm.h"

#define BUCKETS 4096
#define CONNS 16384 /* of one program, and of all that have ended; beyond them the oldest is forgotten */
/* The peers in the network of a program that has ended are told until they answer: so often, ever more seldom. The broker
 * does not stay longer for that than for the fewer. */
#define TOLD 8
#define TOLD_ALONE 5
#define FIRST_PAUSE_MS 100

struct conn {
	struct conn *next;            /* in its bucket */
	struct conn *older, *newer;
	uint32_t local_id, remote_id; /* local_id 0: a request not answered yet */
	uint32_t remote_qpn, ifindex;
	uint8_t local[16], remote[16];
};

struct vb_gsi_conns {
	struct vb_gsi_conns *next; /* of a program that ended later */
	int64_t due;               /* ms; of one that has ended: its peers are told again */
	unsigned told;
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

static void remember(struct vb_gsi_conns **all, const uint8_t local[16], const uint8_t remote[16],
                     const struct conn *what)
{
	struct vb_gsi_conns *c = *all ? *all : calloc(1, sizeof(*c));
	struct conn *conn = c ? malloc(sizeof(*conn)) : NULL;

	*all = c;
	if (!conn)
		return;
	forget_id(c, remote, what->remote_id);
	if (c->n == CONNS)
		forget_id(c, c->oldest->remote, c->oldest->remote_id);
	*conn = *what;
	memcpy(conn->local, local, sizeof(conn->local));
	memcpy(conn->remote, remote, sizeof(conn->remote));
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
		remember(all, m->local, m->remote, &(struct conn){
			.remote_id = msg.req.local_comm_id, .remote_qpn = msg.req.local_qpn, .ifindex = m->ifindex});
		break;
	case VB_CM_REP:
		remember(all, m->local, m->remote, &(struct conn){
			.local_id = msg.rep.remote_comm_id, .remote_id = msg.rep.local_comm_id,
			.remote_qpn = msg.rep.local_qpn, .ifindex = m->ifindex});
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

void vb_gsi_conns_told(struct vb_gsi_conns **all, const struct vb_msg_cm_at_death *m)
{
	remember(all, m->local, m->remote, &(struct conn){
		.local_id = m->local_id, .remote_id = m->remote_id, .remote_qpn = m->remote_qpn, .ifindex = m->ifindex});
}

/* By value: an answer may be there before this returns, and then the connection is forgotten. */
static void disconnect(struct vb_broker *b, struct conn conn)
{
	struct vb_cm_msg dreq = {.attr = VB_CM_DREQ, .tid = (uint64_t)conn.local_id << 32 | conn.remote_id,
				 .dreq = {.local_comm_id = conn.local_id, .remote_comm_id = conn.remote_id,
					  .remote_qpn = conn.remote_qpn}};
	uint8_t mad[VB_CM_MAD];

	vb_cm_encode(mad, &dreq);
	vb_gsi_send_out(b, conn.local, conn.remote, conn.ifindex, mad);
}

static void free_conns(struct vb_gsi_conns *c)
{
	while (c->oldest)
		forget_id(c, c->oldest->remote, c->oldest->remote_id);
	free(c);
}

static void forget_oldest_gone(struct vb_gsi *gsi)
{
	struct vb_gsi_conns *c = gsi->gone;

	gsi->gone = c->next;
	gsi->ngone -= c->n;
	free_conns(c);
}

static void keep(struct vb_gsi *gsi, struct vb_gsi_conns *c)
{
	struct vb_gsi_conns **at = &gsi->gone;

	while (gsi->gone && gsi->ngone + c->n > CONNS)
		forget_oldest_gone(gsi);
	while (*at)
		at = &(*at)->next;
	*at = c;
	gsi->ngone += c->n;
	c->told = 1;
	c->due = vb_broker_now_ms() + FIRST_PAUSE_MS;
}

/* It has got there: both are on this host, and the peer is not one that comes back to this broker only now. */
static bool is_told(const struct vb_broker *b, const struct conn *conn)
{
	return (!b->gsi->wire || vb_gsi_is_here(b, conn->local, conn->remote)) &&
	       !vb_gsi_is_awaited(b, vb_cm_lane_of(conn->remote_id));
}

void vb_gsi_conns_end(struct vb_broker *b, struct vb_gsi_conns *c, bool tell)
{
	for (struct conn *conn = c ? c->oldest : NULL, *newer; conn; conn = newer) {
		bool connected = tell && conn->local_id;

		newer = conn->newer;
		if (connected)
			disconnect(b, *conn);
		if (!connected || is_told(b, conn))
			forget_id(c, conn->remote, conn->remote_id);
	}
	if (c && c->n)
		keep(b->gsi, c);
	else
		free(c);
}

static void tell_again(struct vb_broker *b, struct vb_gsi_conns *c, int64_t now)
{
	for (const struct conn *conn = c->oldest, *newer; conn; conn = newer) {
		newer = conn->newer;
		disconnect(b, *conn);
	}
	c->due = now + ((int64_t)FIRST_PAUSE_MS << c->told++);
}

int64_t vb_gsi_gone_due(struct vb_broker *b, int64_t now)
{
	struct vb_gsi *gsi = b->gsi;
	int64_t when = 0;

	for (struct vb_gsi_conns **at = &gsi->gone, *c; (c = *at);) {
		bool due = now >= c->due;

		if (!c->n || (due && c->told >= (gsi->members || b->table.reserved ? TOLD : TOLD_ALONE))) {
			*at = c->next;
			gsi->ngone -= c->n;
			free_conns(c);
			continue;
		}
		if (due)
			tell_again(b, c, now);
		if (!when || c->due < when)
			when = c->due;
		at = &c->next;
	}
	return when;
}

bool vb_gsi_gone_input(struct vb_gsi *gsi, const uint8_t remote[16], const uint8_t mad[VB_CM_MAD])
{
	struct vb_cm_msg msg;

	if (!gsi->gone || !vb_cm_decode(&msg, mad, VB_CM_MAD) || msg.attr != VB_CM_DREP)
		return false;
	for (struct vb_gsi_conns *c = gsi->gone; c; c = c->next) {
		struct conn **at = place_of(c, remote, msg.drep.local_comm_id);

		if (!*at || (*at)->local_id != msg.drep.remote_comm_id)
			continue;
		forget(c, at);
		gsi->ngone--;
		return true;
	}
	return false;
}

void vb_gsi_gone_forget(struct vb_gsi *gsi)
{
	while (gsi->gone)
		forget_oldest_gone(gsi);
}
