// gsi_conns.c - the connections of each program, learned from its MADs: when it dies, its peers get a DREQ
// follows: IBA volume 1, sections 12.6.10 (DREQ), 12.10.3 (disconnecting)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "broker/server/gsi.h"
#include "broker/server/session.h"
#include "engine/cm/cm.h"

#define BUCKET_BITS 12
#define BUCKETS (1 << BUCKET_BITS)
#define GOLDEN_RATIO 0x9e3779b97f4a7c15u /* 2^64 divided by the golden ratio */
#define CONNS 16384 /* of one program, and of all ended programs of a user; beyond that the oldest is forgotten */
/* Limits of one user other than the broker's: connections of all his programs, running or ended, and ended programs.
 * Then the limits of all such users: connections of ended programs, and ended programs. */
#define CONNS_USER 65536
#define GONE_USER 64
#define GONE_CONNS 65536
#define GONE 512
/* A DREQ to another host is repeated, with growing pauses, until the peer answers: TOLD times, or TOLD_ALONE times if
 * nothing else keeps the broker running. */
#define TOLD 8
#define TOLD_ALONE 5
#define FIRST_PAUSE_MS 100
/* DREQs of one turn; then other messages are served. A search for an address among all programs' counts as LOOK of
 * them. */
#define TOLD_A_TURN 64
#define LOOK 8

struct conn {
	struct conn *next, **at; /* chain of its bucket; at: what points to this one */
	struct conn *older, *newer;
	uint32_t local_id, remote_id; /* local_id 0: a request that is not answered yet */
	uint32_t remote_qpn, ifindex;
	uint8_t local[16], remote[16];
};

/* Exists while one of his programs has connections, and runs or has peers that are being told. */
struct vb_gsi_conns_user {
	struct vb_gsi_conns_user *next;
	uid_t uid;
	bool foreign;
	uint32_t programs, n; /* n: connections of all his programs */
	uint32_t gone, ngone; /* ended programs, and their connections (part of n) */
};

struct vb_gsi_conns {
	struct vb_gsi_conns *next; /* the next one in gsi->gone: its program ended later */
	struct vb_gsi_conns_user *user;
	uint64_t key[6]; /* random: nobody can choose ids that share a bucket */
	int64_t due;     /* ms; of an ended program: when its peers are told next */
	unsigned told;
	bool telling; /* a round is in progress: next_told is the next peer */
	uint32_t n, ngids;
	uint8_t (*gids)[16]; /* the GIDs that the ended program had announced */
	struct conn *oldest, *newest, *next_told, *buckets[BUCKETS];
};

/* ---- users ---- */

static struct vb_gsi_conns_user *gsi_user_of(struct vb_gsi *gsi, uid_t uid)
{
	struct vb_gsi_conns_user *u = gsi->users;

	while (u && u->uid != uid)
		u = u->next;
	if (u)
		return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	*u = (struct vb_gsi_conns_user){.next = gsi->users, .uid = uid, .foreign = uid != geteuid()};
	gsi->users = u;
	return u;
}

static void gsi_user_release(struct vb_gsi *gsi, struct vb_gsi_conns_user *u)
{
	struct vb_gsi_conns_user **at = &gsi->users;

	if (u->programs)
		return;
	while (*at != u)
		at = &(*at)->next;
	*at = u->next;
	free(u);
}

/* ---- connections ---- */

/* Multiply-shift hashing of vectors. */
static uint32_t bucket_of(const struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	uint64_t sum = c->key[4] * remote_id + c->key[5];
	uint32_t part[4];

	memcpy(part, remote, sizeof(part));
	for (int i = 0; i < 4; i++)
		sum += c->key[i] * part[i];
	return (uint32_t)(sum >> (64 - BUCKET_BITS));
}

static struct conn **conn_place(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	struct conn **at = &c->buckets[bucket_of(c, remote, remote_id)];

	while (*at && ((*at)->remote_id != remote_id || memcmp((*at)->remote, remote, sizeof((*at)->remote)) != 0))
		at = &(*at)->next;
	return at;
}

static void conn_forget(struct vb_gsi_conns *c, struct conn *conn)
{
	if (!conn)
		return;
	*conn->at = conn->next;
	if (conn->next)
		conn->next->at = conn->at;
	*(conn->older ? &conn->older->newer : &c->oldest) = conn->newer;
	*(conn->newer ? &conn->newer->older : &c->newest) = conn->older;
	if (c->next_told == conn)
		c->next_told = conn->newer;
	c->n--;
	c->user->n--;
	free(conn);
}

static void conn_forget_id(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	if (c)
		conn_forget(c, *conn_place(c, remote, remote_id));
}

static struct vb_gsi_conns *conns_new(struct vb_gsi *gsi, uid_t uid)
{
	struct vb_gsi_conns_user *u = gsi_user_of(gsi, uid);
	struct vb_gsi_conns *c = u ? calloc(1, sizeof(*c)) : NULL;

	if (!c) {
		if (u)
			gsi_user_release(gsi, u);
		return NULL;
	}
	c->user = u;
	u->programs++;
	if (getrandom(c->key, sizeof(c->key), 0) != sizeof(c->key))
		/* without random numbers a user who chooses colliding ids slows down his own */
		c->key[4] = GOLDEN_RATIO;
	return c;
}

static void conn_insert(struct vb_gsi_conns *c, struct conn *conn)
{
	conn->at = conn_place(c, conn->remote, conn->remote_id);
	*conn->at = conn;
	conn->next = NULL;
	conn->newer = NULL;
	conn->older = c->newest;
	*(conn->older ? &conn->older->newer : &c->oldest) = conn;
	c->newest = conn;
	c->n++;
	c->user->n++;
}

static void conn_remember(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const uint8_t local[16],
                          const uint8_t remote[16], const struct conn *what)
{
	struct vb_gsi_conns *c = *all ? *all : conns_new(gsi, uid);
	struct conn *conn;

	*all = c;
	if (!c)
		return;
	conn_forget_id(c, remote, what->remote_id);
	bool full = c->user->foreign && c->user->n >= CONNS_USER;
	if (full || c->n == CONNS)
		conn_forget(c, c->oldest);
	conn = full && c->user->n >= CONNS_USER ? NULL : malloc(sizeof(*conn));
	if (!conn)
		return;
	*conn = *what;
	memcpy(conn->local, local, sizeof(conn->local));
	memcpy(conn->remote, remote, sizeof(conn->remote));
	conn_insert(c, conn);
}

bool vb_gsi_conns_has(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	return c && *conn_place(c, remote, remote_id);
}

void vb_gsi_conns_received(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m)
{
	struct vb_cm_msg msg;

	if (!vb_cm_decode(&msg, m->mad, sizeof(m->mad)))
		return;
	switch (msg.attr) {
	case VB_CM_REQ:
		conn_remember(gsi, uid, all, m->local, m->remote,
		              &(struct conn){.remote_id = msg.req.local_comm_id,
		                             .remote_qpn = msg.req.local_qpn,
		                             .ifindex = m->ifindex});
		break;
	case VB_CM_REP:
		conn_remember(gsi, uid, all, m->local, m->remote,
		              &(struct conn){.local_id = msg.rep.remote_comm_id,
		                             .remote_id = msg.rep.local_comm_id,
		                             .remote_qpn = msg.rep.local_qpn,
		                             .ifindex = m->ifindex});
		break;
	case VB_CM_REJ:
		conn_forget_id(*all, m->remote, msg.rej.local_comm_id);
		break;
	case VB_CM_DREP:
		conn_forget_id(*all, m->remote, msg.drep.local_comm_id);
		break;
	default:
		break;
	}
}

/* The program's own DREQ ends the connection only when it is answered: if the program dies, nobody else repeats it. */
void vb_gsi_conns_sent(struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m)
{
	struct vb_cm_msg msg;
	struct conn *conn;

	if (!*all || !vb_cm_decode(&msg, m->mad, sizeof(m->mad)))
		return;
	switch (msg.attr) {
	case VB_CM_REP:
		conn = *conn_place(*all, m->remote, msg.rep.remote_comm_id);
		if (conn)
			conn->local_id = msg.rep.local_comm_id;
		break;
	case VB_CM_REJ:
		conn_forget_id(*all, m->remote, msg.rej.remote_comm_id);
		break;
	case VB_CM_DREP:
		conn_forget_id(*all, m->remote, msg.drep.remote_comm_id);
		break;
	default:
		break;
	}
}

void vb_gsi_conns_told(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_at_death *m)
{
	conn_remember(gsi, uid, all, m->local, m->remote,
	              &(struct conn){.local_id = m->local_id,
	                             .remote_id = m->remote_id,
	                             .remote_qpn = m->remote_qpn,
	                             .ifindex = m->ifindex});
}

/* ---- programs that have ended ---- */

static void conns_free(struct vb_gsi *gsi, struct vb_gsi_conns *c)
{
	while (c->oldest)
		conn_forget(c, c->oldest);
	c->user->programs--;
	gsi_user_release(gsi, c->user);
	free(c->gids);
	free(c);
}

static void gone_remove(struct vb_gsi *gsi, struct vb_gsi_conns **at)
{
	struct vb_gsi_conns *c = *at;

	*at = c->next;
	c->user->gone--;
	c->user->ngone -= c->n;
	if (!c->user->foreign)
		return;
	gsi->gone_foreign--;
	gsi->ngone_foreign -= c->n;
}

static void gone_append(struct vb_gsi *gsi, struct vb_gsi_conns *c)
{
	struct vb_gsi_conns **at = &gsi->gone;

	while (*at)
		at = &(*at)->next;
	*at = c;
	c->next = NULL;
	c->user->gone++;
	c->user->ngone += c->n;
	if (!c->user->foreign)
		return;
	gsi->gone_foreign++;
	gsi->ngone_foreign += c->n;
}

static void gone_forget(struct vb_gsi *gsi, struct vb_gsi_conns **at)
{
	struct vb_gsi_conns *c = *at;

	gone_remove(gsi, at);
	conns_free(gsi, c);
}

/* The user has at least one. */
static void gone_forget_oldest(struct vb_gsi *gsi, const struct vb_gsi_conns_user *u)
{
	struct vb_gsi_conns **at = &gsi->gone;

	while ((*at)->user != u)
		at = &(*at)->next;
	gone_forget(gsi, at);
}

/* Of the users other than the broker's: the one with the most ended programs, or with the most connections of those. */
static const struct vb_gsi_conns_user *user_with_most(const struct vb_gsi *gsi, bool programs)
{
	const struct vb_gsi_conns_user *most = NULL;

	for (const struct vb_gsi_conns_user *u = gsi->users; u; u = u->next)
		if (u->foreign && u->gone && (!most || (programs ? u->gone > most->gone : u->ngone > most->ngone)))
			most = u;
	return most;
}

/* Makes room for an ended program: at the cost of the same user's older ones, and if all users together have too
 * many, at the cost of the user with the most. */
static void gone_make_room(struct vb_gsi *gsi, const struct vb_gsi_conns *c)
{
	const struct vb_gsi_conns_user *u = c->user;

	while (u->gone && (u->ngone + c->n > CONNS || (u->foreign && u->gone >= GONE_USER)))
		gone_forget_oldest(gsi, u);
	while (u->foreign && gsi->gone_foreign && (gsi->gone_foreign >= GONE || gsi->ngone_foreign + c->n > GONE_CONNS))
		gone_forget_oldest(gsi, user_with_most(gsi, gsi->gone_foreign >= GONE));
}

/* Needed to tell peers on this host after the lane is free. */
static void conns_keep_gids(struct vb_gsi_conns *c, const struct vb_lane *l)
{
	c->gids = l->ngids ? malloc(l->ngids * sizeof(c->gids[0])) : NULL;
	c->ngids = c->gids ? l->ngids : 0;
	if (c->gids)
		memcpy(c->gids, l->gids, l->ngids * sizeof(c->gids[0]));
}

void vb_gsi_conns_end(struct vb_broker *b, struct vb_gsi_conns *c, uint32_t lane, bool tell)
{
	if (!c)
		return;
	for (struct conn *conn = c->oldest, *newer; conn && tell; conn = newer) {
		newer = conn->newer;
		if (!conn->local_id)
			conn_forget(c, conn);
	}
	if (!tell || !c->n) {
		conns_free(b->gsi, c);
		return;
	}
	conns_keep_gids(c, &b->table.lanes[lane]);
	gone_make_room(b->gsi, c);
	c->due = vb_broker_now_ms();
	gone_append(b->gsi, c);
}

/* ---- disconnecting the peers of ended programs ---- */

/* Caches whether the previous connection's addresses are both on this host: the next connection mostly has the same. */
struct route {
	bool known, here;
	struct vb_gsi_scope scope;
	uint8_t local[16], remote[16];
};

static bool conns_announce(const struct vb_gsi_conns *c, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < c->ngids; i++)
		if (!memcmp(c->gids[i], gid, sizeof(c->gids[i])))
			return true;
	return false;
}

/* Returns what this counts towards the budget. */
static unsigned conn_find_route(const struct vb_broker *b, const struct vb_gsi_conns *c, const struct conn *conn,
                                struct route *route)
{
	if (route->known && !memcmp(route->local, conn->local, 16) && !memcmp(route->remote, conn->remote, 16))
		return 0;
	memcpy(route->local, conn->local, 16);
	memcpy(route->remote, conn->remote, 16);
	route->here = vb_gsi_is_here(b, c->user->uid, conn->local, conn->remote, &route->scope) ||
	              (conns_announce(c, conn->local) && vb_gsi_is_announced(b, &route->scope, conn->remote));
	route->known = true;
	return LOOK;
}

/* conn by value: the answer may arrive before this returns, and frees the connection. */
static void send_dreq(struct vb_broker *b, struct conn conn, const struct route *route)
{
	struct vb_cm_msg dreq = {.attr = VB_CM_DREQ,
	                         .tid = (uint64_t)conn.local_id << 32 | conn.remote_id,
	                         .dreq = {.local_comm_id = conn.local_id,
	                                  .remote_comm_id = conn.remote_id,
	                                  .remote_qpn = conn.remote_qpn}};
	struct vb_msg_cm_mad m = {.ifindex = conn.ifindex};

	memcpy(m.local, conn.local, sizeof(m.local));
	memcpy(m.remote, conn.remote, sizeof(m.remote));
	vb_cm_encode(m.mad, &dreq);
	vb_gsi_send_to(b, route->here ? &route->scope : NULL, &m);
}

static void conn_forget_told(struct vb_gsi *gsi, struct vb_gsi_conns *c, struct conn *conn)
{
	conn_forget(c, conn);
	c->user->ngone--;
	gsi->ngone_foreign -= c->user->foreign;
}

/* Sends a DREQ to the next peer and returns what that counts towards the budget. On this host the DREQ arrives for
 * certain, so the connection is forgotten, unless the peer has yet to come back to this broker. */
static unsigned tell_next_peer(struct vb_broker *b, struct vb_gsi_conns *c, struct route *route)
{
	struct conn was = *c->next_told, *conn;

	c->next_told = was.newer;
	unsigned cost = 1 + conn_find_route(b, c, &was, route);

	send_dreq(b, was, route);
	if ((b->gsi->roce && !route->here) || vb_gsi_is_awaited(b, vb_cm_lane_of(was.remote_id)))
		return cost;
	conn = *conn_place(c, was.remote, was.remote_id);
	if (conn)
		conn_forget_told(b->gsi, c, conn);
	return cost;
}

/* Tells as many peers as *budget allows. */
static void tell_peers(struct vb_broker *b, struct vb_gsi_conns *c, int64_t now, int *budget)
{
	struct route route = {0};

	if (!c->telling)
		c->next_told = c->oldest;
	c->telling = true;
	while (c->next_told && *budget > 0)
		*budget -= (int)tell_next_peer(b, c, &route);
	if (c->next_told)
		return;
	c->telling = false;
	c->due = now + ((int64_t)FIRST_PAUSE_MS << c->told++);
}

static struct vb_gsi_conns **gone_first_due(struct vb_gsi *gsi, int64_t now)
{
	struct vb_gsi_conns **at = &gsi->gone;

	while (*at && (*at)->n && (*at)->due > now)
		at = &(*at)->next;
	return at;
}

int64_t vb_gsi_gone_due(struct vb_broker *b, int64_t now)
{
	struct vb_gsi *gsi = b->gsi;
	int budget = TOLD_A_TURN;
	unsigned limit = gsi->members || b->table.reserved ? TOLD : TOLD_ALONE;
	int64_t when = 0;

	for (struct vb_gsi_conns **at; *(at = gone_first_due(gsi, now)) && budget > 0;) {
		struct vb_gsi_conns *c = *at;

		if (!c->n || (!c->telling && c->told >= limit)) {
			gone_forget(gsi, at);
			budget--;
			continue;
		}
		tell_peers(b, c, now, &budget);
		gone_remove(gsi, at); /* to the end of the list: the others are served first */
		gone_append(gsi, c);
	}
	for (const struct vb_gsi_conns *c = gsi->gone; c; c = c->next)
		if (!when || c->due < when)
			when = c->due;
	return when;
}

bool vb_gsi_gone_input(struct vb_gsi *gsi, const uint8_t remote[16], const uint8_t mad[VB_CM_MAD])
{
	struct vb_cm_msg msg;

	if (!gsi->gone || !vb_cm_decode(&msg, mad, VB_CM_MAD) || msg.attr != VB_CM_DREP)
		return false;
	for (struct vb_gsi_conns *c = gsi->gone; c; c = c->next) {
		struct conn *conn = *conn_place(c, remote, msg.drep.local_comm_id);

		if (!conn || conn->local_id != msg.drep.remote_comm_id)
			continue;
		conn_forget_told(gsi, c, conn);
		if (!c->n)
			c->due = vb_broker_now_ms();
		return true;
	}
	return false;
}

void vb_gsi_gone_forget(struct vb_gsi *gsi)
{
	while (gsi->gone)
		gone_forget(gsi, &gsi->gone);
}
