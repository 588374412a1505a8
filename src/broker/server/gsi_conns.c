// gsi_conns.c - the connections that a program has, as its messages show them: their peers are told of its death
// follows: IBA volume 1, 12.10.3 (disconnecting), 12.6.10 (DREQ)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "broker/server/gsi.h"
#include "broker/server/session.h"
#include "engine/cm/cm.h"

#define BUCKETS 4096
#define CONNS 16384 /* of one program, and of all of a user's that have ended; beyond them the oldest is forgotten */
/* Of a user other than the broker's: connections of all his programs, those that have ended too, and programs that have
 * ended; and of all such users. */
#define CONNS_USER 65536
#define GONE_USER 64
#define GONE_CONNS 65536
#define GONE 512
/* The peers in the network of a program that has ended are told until they answer: so often, ever more seldom. The broker
 * does not stay longer for that than for the fewer. */
#define TOLD 8
#define TOLD_ALONE 5
#define FIRST_PAUSE_MS 100
/* Then others' messages have their turn. To look for an address among those of all programs counts for more. */
#define TOLD_A_TURN 64
#define LOOK 8

struct conn {
	struct conn *next, **at;      /* in its bucket; what points to it */
	struct conn *older, *newer;
	uint32_t local_id, remote_id; /* local_id 0: a request not answered yet */
	uint32_t remote_qpn, ifindex;
	uint8_t local[16], remote[16];
};

/* There as long as one of his programs has had connections, and is there or its peers are told. */
struct vb_gsi_conns_user {
	struct vb_gsi_conns_user *next;
	uid_t uid;
	bool foreign;
	uint32_t programs, n;  /* n: connections of all of them */
	uint32_t gone, ngone;  /* programs that have ended, and their connections, of n */
};

struct vb_gsi_conns {
	struct vb_gsi_conns *next; /* of a program that ended later */
	struct vb_gsi_conns_user *user;
	uint64_t key[6];           /* random: nobody chooses connections that are in one bucket */
	int64_t due;               /* ms; of one that has ended: its peers are told again */
	unsigned told;
	bool telling;              /* not all this time: next_told is the next one */
	uint32_t n, ngids;
	uint8_t (*gids)[16];       /* what the program announced that has ended */
	struct conn *oldest, *newest, *next_told, *buckets[BUCKETS];
};

/* ---- users ---- */

static struct vb_gsi_conns_user *user_of(struct vb_gsi *gsi, uid_t uid)
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

static void leave_user(struct vb_gsi *gsi, struct vb_gsi_conns_user *u)
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
	return (uint32_t)(sum >> 52);
}

static struct conn **place_of(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	struct conn **at = &c->buckets[bucket_of(c, remote, remote_id)];

	while (*at && ((*at)->remote_id != remote_id || memcmp((*at)->remote, remote, sizeof((*at)->remote)) != 0))
		at = &(*at)->next;
	return at;
}

static void forget(struct vb_gsi_conns *c, struct conn *conn)
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

static void forget_id(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	if (c)
		forget(c, *place_of(c, remote, remote_id));
}

static struct vb_gsi_conns *new_conns(struct vb_gsi *gsi, uid_t uid)
{
	struct vb_gsi_conns_user *u = user_of(gsi, uid);
	struct vb_gsi_conns *c = u ? calloc(1, sizeof(*c)) : NULL;

	if (!c) {
		if (u)
			leave_user(gsi, u);
		return NULL;
	}
	c->user = u;
	u->programs++;
	if (getrandom(c->key, sizeof(c->key), 0) != sizeof(c->key))
		c->key[4] = 0x9e3779b97f4a7c15u; /* slower for who chooses */
	return c;
}

static void put(struct vb_gsi_conns *c, struct conn *conn)
{
	conn->at = place_of(c, conn->remote, conn->remote_id);
	*conn->at = conn;
	conn->next = NULL;
	conn->newer = NULL;
	conn->older = c->newest;
	*(conn->older ? &conn->older->newer : &c->oldest) = conn;
	c->newest = conn;
	c->n++;
	c->user->n++;
}

static void remember(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const uint8_t local[16],
                     const uint8_t remote[16], const struct conn *what)
{
	struct vb_gsi_conns *c = *all ? *all : new_conns(gsi, uid);
	struct conn *conn;

	*all = c;
	if (!c)
		return;
	forget_id(c, remote, what->remote_id);
	bool full = c->user->foreign && c->user->n >= CONNS_USER;
	if (full || c->n == CONNS)
		forget(c, c->oldest);
	conn = full && c->user->n >= CONNS_USER ? NULL : malloc(sizeof(*conn));
	if (!conn)
		return;
	*conn = *what;
	memcpy(conn->local, local, sizeof(conn->local));
	memcpy(conn->remote, remote, sizeof(conn->remote));
	put(c, conn);
}

bool vb_gsi_conns_has(struct vb_gsi_conns *c, const uint8_t remote[16], uint32_t remote_id)
{
	return c && *place_of(c, remote, remote_id);
}

void vb_gsi_conns_received(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_mad *m)
{
	struct vb_cm_msg msg;

	if (!vb_cm_decode(&msg, m->mad, sizeof(m->mad)))
		return;
	switch (msg.attr) {
	case VB_CM_REQ:
		remember(gsi, uid, all, m->local, m->remote, &(struct conn){
			.remote_id = msg.req.local_comm_id, .remote_qpn = msg.req.local_qpn, .ifindex = m->ifindex});
		break;
	case VB_CM_REP:
		remember(gsi, uid, all, m->local, m->remote, &(struct conn){
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

void vb_gsi_conns_told(struct vb_gsi *gsi, uid_t uid, struct vb_gsi_conns **all, const struct vb_msg_cm_at_death *m)
{
	remember(gsi, uid, all, m->local, m->remote, &(struct conn){
		.local_id = m->local_id, .remote_id = m->remote_id, .remote_qpn = m->remote_qpn, .ifindex = m->ifindex});
}

/* ---- programs that have ended ---- */

static void free_conns(struct vb_gsi *gsi, struct vb_gsi_conns *c)
{
	while (c->oldest)
		forget(c, c->oldest);
	c->user->programs--;
	leave_user(gsi, c->user);
	free(c->gids);
	free(c);
}

static void take_out(struct vb_gsi *gsi, struct vb_gsi_conns **at)
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

static void add_last(struct vb_gsi *gsi, struct vb_gsi_conns *c)
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

static void forget_gone(struct vb_gsi *gsi, struct vb_gsi_conns **at)
{
	struct vb_gsi_conns *c = *at;

	take_out(gsi, at);
	free_conns(gsi, c);
}

/* He has one. */
static void forget_oldest_of(struct vb_gsi *gsi, const struct vb_gsi_conns_user *u)
{
	struct vb_gsi_conns **at = &gsi->gone;

	while ((*at)->user != u)
		at = &(*at)->next;
	forget_gone(gsi, at);
}

/* Of the users other than the broker's: who has the most programs that have ended, or of their connections. */
static const struct vb_gsi_conns_user *who_has_most(const struct vb_gsi *gsi, bool programs)
{
	const struct vb_gsi_conns_user *most = NULL;

	for (const struct vb_gsi_conns_user *u = gsi->users; u; u = u->next)
		if (u->foreign && u->gone && (!most || (programs ? u->gone > most->gone : u->ngone > most->ngone)))
			most = u;
	return most;
}

/* One user's program that ends with many connections is in the way of those of his that have ended, and all users together
 * are in the way of who has the most. */
static void make_room(struct vb_gsi *gsi, const struct vb_gsi_conns *c)
{
	const struct vb_gsi_conns_user *u = c->user;

	while (u->gone && (u->ngone + c->n > CONNS || (u->foreign && u->gone >= GONE_USER)))
		forget_oldest_of(gsi, u);
	while (u->foreign && gsi->gone_foreign && (gsi->gone_foreign >= GONE || gsi->ngone_foreign + c->n > GONE_CONNS))
		forget_oldest_of(gsi, who_has_most(gsi, gsi->gone_foreign >= GONE));
}

/* Those between programs of this host are still to be told so. */
static void keep_gids(struct vb_gsi_conns *c, const struct vb_lane *l)
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
			forget(c, conn);
	}
	if (!tell || !c->n) {
		free_conns(b->gsi, c);
		return;
	}
	keep_gids(c, &b->table.lanes[lane]);
	make_room(b->gsi, c);
	c->due = vb_broker_now_ms();
	add_last(b->gsi, c);
}

/* ---- telling ---- */

/* Whether the last one's two addresses are of this host: the next ones' are mostly the same. */
struct way {
	bool known, here;
	struct vb_gsi_scope scope;
	uint8_t local[16], remote[16];
};

static bool announced(const struct vb_gsi_conns *c, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < c->ngids; i++)
		if (!memcmp(c->gids[i], gid, sizeof(c->gids[i])))
			return true;
	return false;
}

/* What that counts for. */
static unsigned find_way(const struct vb_broker *b, const struct vb_gsi_conns *c, const struct conn *conn, struct way *way)
{
	if (way->known && !memcmp(way->local, conn->local, 16) && !memcmp(way->remote, conn->remote, 16))
		return 0;
	memcpy(way->local, conn->local, 16);
	memcpy(way->remote, conn->remote, 16);
	way->here = vb_gsi_is_here(b, c->user->uid, conn->local, conn->remote, &way->scope) ||
		(announced(c, conn->local) && vb_gsi_is_announced(b, &way->scope, conn->remote));
	way->known = true;
	return LOOK;
}

/* By value: an answer may be there before this returns, and then the connection is forgotten. */
static void disconnect(struct vb_broker *b, struct conn conn, const struct way *way)
{
	struct vb_cm_msg dreq = {.attr = VB_CM_DREQ, .tid = (uint64_t)conn.local_id << 32 | conn.remote_id,
				 .dreq = {.local_comm_id = conn.local_id, .remote_comm_id = conn.remote_id,
					  .remote_qpn = conn.remote_qpn}};
	struct vb_msg_cm_mad m = {.ifindex = conn.ifindex};

	memcpy(m.local, conn.local, sizeof(m.local));
	memcpy(m.remote, conn.remote, sizeof(m.remote));
	vb_cm_encode(m.mad, &dreq);
	vb_gsi_send_to(b, way->here ? &way->scope : NULL, &m);
}

static void forget_told(struct vb_gsi *gsi, struct vb_gsi_conns *c, struct conn *conn)
{
	forget(c, conn);
	c->user->ngone--;
	gsi->ngone_foreign -= c->user->foreign;
}

/* The next one; what that counts for. It has got there, and is forgotten, where both are on this host, and the peer is not one that comes back to
 * this broker only now. */
static unsigned tell_next(struct vb_broker *b, struct vb_gsi_conns *c, struct way *way)
{
	struct conn was = *c->next_told, *conn;

	c->next_told = was.newer;
	unsigned cost = 1 + find_way(b, c, &was, way);

	disconnect(b, was, way);
	if ((b->gsi->roce && !way->here) || vb_gsi_is_awaited(b, vb_cm_lane_of(was.remote_id)))
		return cost;
	conn = *place_of(c, was.remote, was.remote_id);
	if (conn)
		forget_told(b->gsi, c, conn);
	return cost;
}

/* As many as *budget allows. */
static void tell(struct vb_broker *b, struct vb_gsi_conns *c, int64_t now, int *budget)
{
	struct way way = {0};

	if (!c->telling)
		c->next_told = c->oldest;
	c->telling = true;
	while (c->next_told && *budget > 0)
		*budget -= (int)tell_next(b, c, &way);
	if (c->next_told)
		return;
	c->telling = false;
	c->due = now + ((int64_t)FIRST_PAUSE_MS << c->told++);
}

static struct vb_gsi_conns **first_due(struct vb_gsi *gsi, int64_t now)
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

	for (struct vb_gsi_conns **at; *(at = first_due(gsi, now)) && budget > 0;) {
		struct vb_gsi_conns *c = *at;

		if (!c->n || (!c->telling && c->told >= limit)) {
			forget_gone(gsi, at);
			budget--;
			continue;
		}
		tell(b, c, now, &budget);
		take_out(gsi, at); /* behind the others */
		add_last(gsi, c);
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
		struct conn *conn = *place_of(c, remote, msg.drep.local_comm_id);

		if (!conn || conn->local_id != msg.drep.remote_comm_id)
			continue;
		forget_told(gsi, c, conn);
		if (!c->n)
			c->due = vb_broker_now_ms();
		return true;
	}
	return false;
}

void vb_gsi_gone_forget(struct vb_gsi *gsi)
{
	while (gsi->gone)
		forget_gone(gsi, &gsi->gone);
}
