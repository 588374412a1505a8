// gsi.c - queue pair 1 of this host: its members, and which of them gets a MAD
// follows: IBA volume 1, chapter 12 (communication management), section 13.5 (general services interface), annex A11 (RDMA IP CM service)
// SPDX-License-Identifier: MIT
#include "broker/server/gsi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/server/session.h"
#include "engine/cm/cm.h"
#include "util/log.h"

#define MADS_EACH \
	16384 /* waiting for one program: a listener with as many connections as it may have can get this many at once */
#define MADS_ALL 65536  /* waiting for all programs. MADs beyond these limits are dropped, */
#define MADS_RESERVE 64 /* except the first few for any program */
#define RETURN_MS 4500  /* a program that reattaches repeats its bindings within this, even on a busy machine */

struct waiting_mad {
	struct waiting_mad *next;
	struct vb_msg_cm_mad msg;
};

struct vb_gsi_member {
	struct vb_gsi *all;
	struct waiting_mad *first, **last;
	struct vb_gsi_conns *conns;
	uint32_t nmads, nreplies;
	struct vb_msg_service_reply replies[VB_MAX_SERVICE_REPLIES];
};

static struct vb_msg_head head_of(uint8_t type, size_t len)
{
	return (struct vb_msg_head){.type = type, .version = VB_PROTO_VERSION, .len = (uint32_t)len};
}

/* ---- members ---- */

static bool ensure_gsi(struct vb_broker *b)
{
	if (b->gsi)
		return true;
	b->gsi = calloc(1, sizeof(*b->gsi));
	if (b->gsi) {
		b->gsi->ports_file = -1;
		b->gsi->roce = vb_gsi_roce_new(b);
	}
	return b->gsi;
}

/* The first message about queue pair 1 makes a program a member: after a restart the broker may get a binding before
 * OPEN. */
static bool member_join(struct vb_broker *b, struct vb_session *s)
{
	if (s->gsi)
		return true;
	if (!ensure_gsi(b))
		return false;
	s->gsi = calloc(1, sizeof(*s->gsi));
	if (!s->gsi)
		return false;
	s->gsi->all = b->gsi;
	s->gsi->last = &s->gsi->first;
	if (!b->gsi->members++ && b->gsi->roce)
		vb_gsi_roce_open(b, b->gsi->roce);
	vb_gsi_late_returned(b, s->lane);
	return true;
}

bool vb_gsi_is_busy(const struct vb_broker *b)
{
	return b->gsi && b->gsi->gone;
}

static void roce_rest(struct vb_broker *b)
{
	if (!b->gsi->members && !b->gsi->gone && b->gsi->roce)
		vb_gsi_roce_rest(b->gsi->roce);
}

void vb_gsi_on_port(struct vb_broker *b)
{
	if (ensure_gsi(b) && b->gsi->roce)
		vb_gsi_roce_open(b, b->gsi->roce);
}

void vb_gsi_leave(struct vb_broker *b, struct vb_session *s)
{
	struct vb_gsi_member *m = s->gsi;

	if (!m)
		return;
	b->gsi->nmads -= m->nmads;
	while (m->first) {
		struct waiting_mad *w = m->first;

		m->first = w->next;
		free(w);
	}
	s->gsi = NULL;
	vb_gsi_conns_end(b, m->conns, s->lane, !b->stop);
	free(m);
	vb_services_forget(&b->gsi->services, s->lane);
	b->gsi->members--;
	roce_rest(b);
}

static void log_counters(const struct vb_gsi_counters *c)
{
#define X(field, text) \
	if (c->field)  \
		vb_log(VB_LOG_DEBUG, "broker: queue pair 1: %s: %lu", text, (unsigned long)c->field);
	VB_GSI_COUNTERS(X)
#undef X
}

void vb_gsi_off_port(struct vb_broker *b)
{
	if (b->gsi && b->gsi->roce)
		vb_gsi_roce_shut(b, b->gsi->roce);
}

void vb_gsi_close(struct vb_broker *b)
{
	if (!b->gsi)
		return;
	log_counters(&b->gsi->counters);
	vb_gsi_gone_forget(b->gsi);
	vb_gsi_roce_free(b, b->gsi->roce);
	if (b->gsi->ports_file >= 0)
		close(b->gsi->ports_file);
	free(b->gsi);
	b->gsi = NULL;
}

/* ---- to a member ---- */

bool vb_gsi_waiting(const struct vb_session *s)
{
	return s->gsi && (s->gsi->nreplies || s->gsi->first);
}

bool vb_gsi_is_full(const struct vb_session *s)
{
	return s->gsi && s->gsi->nreplies >= VB_MAX_SERVICE_REPLIES;
}

static int send_reply(struct vb_session *s)
{
	struct vb_gsi_member *m = s->gsi;
	int err = vb_session_send(s, &m->replies[0], sizeof(m->replies[0]), NULL, 0);

	if (!err)
		memmove(&m->replies[0], &m->replies[1], --m->nreplies * sizeof(m->replies[0]));
	return err;
}

int vb_gsi_send_next(struct vb_session *s)
{
	struct vb_gsi_member *m = s->gsi;

	if (m->nreplies)
		return send_reply(s);
	struct waiting_mad *w = m->first;
	int err = vb_session_send(s, &w->msg, sizeof(w->msg), NULL, 0);

	if (err)
		return err;
	m->first = w->next;
	if (!m->first)
		m->last = &m->first;
	m->nmads--;
	m->all->nmads--;
	free(w);
	return 0;
}

/* MADs that wait for programs of this user. */
static uint32_t mads_of(const struct vb_broker *b, uid_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < VB_LANE_COUNT; i++)
		if (b->holder[i] && b->holder[i]->gsi && b->holder[i]->uid == uid)
			n += b->holder[i]->gsi->nmads;
	return n;
}

/* A user whose programs do not read may use at most as much room as is left for others. */
static bool has_room(const struct vb_broker *b, const struct vb_session *s)
{
	if (s->gsi->nmads < MADS_RESERVE)
		return true;
	if (s->gsi->nmads >= MADS_EACH || b->gsi->nmads >= MADS_ALL)
		return false;
	return b->gsi->nmads < MADS_ALL / 4 || mads_of(b, s->uid) < MADS_ALL - b->gsi->nmads;
}

static void deliver_mad(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m)
{
	struct vb_session *s = b->holder[lane];
	struct waiting_mad *w = has_room(b, s) ? malloc(sizeof(*w)) : NULL;

	if (!w) {
		b->gsi->counters.overflow++;
		return;
	}
	w->next = NULL;
	w->msg = *m;
	w->msg.head = head_of(VB_MSG_CM_RECV, sizeof(w->msg));
	vb_gsi_conns_received(b->gsi, s->uid, &s->gsi->conns, &w->msg);
	*s->gsi->last = w;
	s->gsi->last = &w->next;
	s->gsi->nmads++;
	b->gsi->nmads++;
	b->gsi->counters.delivered++;
	vb_session_flush(b, s);
}

/* ---- routing ---- */

bool vb_gsi_is_announced(const struct vb_broker *b, const struct vb_gsi_scope *scope, const uint8_t gid[16])
{
	for (uint32_t i = 1; i < VB_LANE_COUNT; i++)
		if (b->holder[i] && !b->holder[i]->elsewhere && (!scope->one_user || b->holder[i]->uid == scope->uid) &&
		    vb_lane_announces(&b->table.lanes[i], gid))
			return true;
	return false;
}

struct arrival {
	const struct vb_broker *b;
	const uint8_t *local;
	const struct vb_gsi_scope *scope;
};

/* A program that announces no GID is reached by the network alone, at any address. */
static bool may_receive(void *arg, uint32_t lane)
{
	const struct arrival *a = arg;
	const struct vb_lane *l = &a->b->table.lanes[lane];
	const struct vb_session *s = a->b->holder[lane];

	if (!s || !s->gsi || (a->scope->one_user && s->uid != a->scope->uid))
		return false;
	return !l->ngids || vb_lane_announces(l, a->local);
}

bool vb_gsi_some_are_missing(const struct vb_broker *b)
{
	bool awaited = b->table.reserved && vb_broker_now_ms() - b->began_at < VB_FOREIGN_MS;

	return awaited || (b->returned_at && vb_broker_now_ms() - b->returned_at < RETURN_MS);
}

bool vb_gsi_is_awaited(const struct vb_broker *b, uint32_t lane)
{
	return b->table.lanes[lane].state != VB_LANE_FREE && !(b->holder[lane] && b->holder[lane]->gsi) &&
	       vb_gsi_some_are_missing(b);
}

static bool is_unicast(const uint8_t gid[16])
{
	static const uint8_t zeros[16];

	if (vb_gid_is_ipv4(gid))
		return gid[12] && gid[12] < 224;
	return gid[0] != 0xff && memcmp(gid, zeros, sizeof(zeros));
}

/* Otherwise a user could announce another host's address and get what is sent there. */
bool vb_gsi_is_here(const struct vb_broker *b, uid_t uid, const uint8_t local[16], const uint8_t remote[16],
                    struct vb_gsi_scope *scope)
{
	bool confirmed = vb_addresses_has(b->addresses, remote) && vb_addresses_has(b->addresses, local);

	*scope = (struct vb_gsi_scope){.one_user = !confirmed, .uid = uid};
	return vb_gsi_is_announced(b, scope, remote) && vb_gsi_is_announced(b, scope, local);
}

static struct vb_msg_cm_mad swap_addresses(const struct vb_msg_cm_mad *m)
{
	struct vb_msg_cm_mad back = *m;

	memcpy(back.local, m->remote, sizeof(back.local));
	memcpy(back.remote, m->local, sizeof(back.remote));
	return back;
}

static void send_by_network(struct vb_broker *b, const struct vb_msg_cm_mad *m)
{
	if (b->gsi->roce && vb_gsi_roce_send(b->gsi->roce, m->local, m->remote, m->ifindex, m->mad))
		b->gsi->counters.sent++;
	else
		b->gsi->counters.refused++;
}

void vb_gsi_send_to(struct vb_broker *b, const struct vb_gsi_scope *scope, const struct vb_msg_cm_mad *m)
{
	if (!is_unicast(m->local) || !is_unicast(m->remote)) {
		b->gsi->counters.refused++;
	} else if (scope) {
		struct vb_msg_cm_mad there = swap_addresses(m);

		there.ifindex = 0;
		vb_gsi_input(b, &there, scope);
	} else {
		send_by_network(b, m);
	}
}

void vb_gsi_send_out(struct vb_broker *b, uid_t uid, const struct vb_msg_cm_mad *m)
{
	struct vb_gsi_scope scope;

	vb_gsi_send_to(b, vb_gsi_is_here(b, uid, m->local, m->remote, &scope) ? &scope : NULL, m);
}

/* Answers by the path on which m arrived. */
static void answer_mad(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope,
                       const uint8_t mad[VB_MAD_LEN])
{
	struct vb_msg_cm_mad out = *m;

	memcpy(out.mad, mad, sizeof(out.mad));
	b->gsi->counters.answered++;
	if (m->ifindex) {
		send_by_network(b, &out);
		return;
	}
	out = swap_addresses(&out);
	vb_gsi_input(b, &out, scope);
}

/* None of these answers causes another answer. */
void vb_gsi_refuse(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope)
{
	uint8_t out[VB_MAD_LEN];

	if (vb_gsi_some_are_missing(b)) {
		b->gsi->counters.absent++;
		return;
	}
	if (vb_cm_make_rej(out, m->mad, VB_CM_MAD, VB_CM_REJ_INVALID_SERVICE_ID) ||
	    vb_cm_make_sidr_rep(out, m->mad, VB_CM_MAD, VB_CM_SIDR_INVALID_SERVICE_ID))
		answer_mad(b, m, scope, out);
}

void vb_gsi_to_member(struct vb_broker *b, uint32_t lane, const struct vb_msg_cm_mad *m,
                      const struct vb_gsi_scope *scope)
{
	struct arrival a = {.b = b, .local = m->local, .scope = scope};
	uint8_t out[VB_MAD_LEN];

	if (lane && may_receive(&a, lane)) {
		deliver_mad(b, lane, m);
		return;
	}
	if (lane && vb_gsi_is_awaited(b, lane)) {
		vb_gsi_late_keep_for(b, lane, m, scope);
		return;
	}
	b->gsi->counters.absent++;
	if (b->table.lanes[lane].state != VB_LANE_FREE) /* it may join in a moment */
		return;
	if (vb_cm_make_unknown(out, m->mad, VB_CM_MAD))
		answer_mad(b, m, scope, out);
}

/* A REJ from a peer that does not know our id names only its own: it goes to every program that has a connection with
 * that id. */
static void deliver_to_all(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope)
{
	struct arrival a = {.b = b, .local = m->local, .scope = scope};
	uint32_t id = vb_cm_sender_id(m->mad, VB_CM_MAD);
	bool found = false;

	for (uint32_t i = 1; i < VB_LANE_COUNT; i++) {
		if (!may_receive(&a, i) || !vb_gsi_conns_has(b->holder[i]->gsi->conns, m->remote, id))
			continue;
		deliver_mad(b, i, m);
		found = true;
	}
	b->gsi->counters.absent += !found;
}

bool vb_gsi_to_service(struct vb_broker *b, uint16_t port_space, uint16_t port, const struct vb_msg_cm_mad *m,
                       const struct vb_gsi_scope *scope)
{
	struct arrival a = {.b = b, .local = m->local, .scope = scope};
	const struct vb_binding *s =
	        vb_service_find(&b->gsi->services, port_space, port, m->local, m->ifindex, may_receive, &a);

	if (s)
		deliver_mad(b, s->lane, m);
	return s;
}

static void route_request(struct vb_broker *b, const struct vb_cm_route_info *info, const struct vb_msg_cm_mad *m,
                          const struct vb_gsi_scope *scope)
{
	uint16_t ps = (uint16_t)info->ps;

	if (!info->port_space ||
	    (!vb_gsi_to_service(b, ps, info->port, m, scope) && !vb_gsi_late_keep(b, ps, info->port, m, scope)))
		vb_gsi_refuse(b, m, scope);
}

void vb_gsi_input(struct vb_broker *b, const struct vb_msg_cm_mad *m, const struct vb_gsi_scope *scope)
{
	struct vb_cm_route_info info;

	if (vb_gsi_gone_input(b->gsi, m->remote, m->mad))
		return;
	switch (vb_cm_route(m->mad, VB_CM_MAD, &info)) {
	case VB_CM_TO_SERVICE:
		route_request(b, &info, m, scope);
		break;
	case VB_CM_TO_LANE:
		vb_gsi_to_member(b, info.lane, m, scope);
		break;
	case VB_CM_TO_ALL:
		deliver_to_all(b, m, scope);
		break;
	case VB_CM_DROP:
		b->gsi->counters.nonsense++;
		break;
	}
}

/* ---- messages from programs ---- */

void vb_gsi_reply(struct vb_session *s, uint32_t id, int err, const struct vb_binding *service)
{
	s->gsi->replies[s->gsi->nreplies++] = (struct vb_msg_service_reply){
	        .head = head_of(VB_MSG_SERVICE_REPLY, sizeof(s->gsi->replies[0])),
	        .id = id,
	        .err = err,
	        .port = service ? service->port : 0,
	        .listening = service && service->listening,
	        .no_socket = s->gsi->all->roce && vb_gsi_roce_lacks_socket(s->gsi->all->roce),
	};
}

/* The earlier of two times; 0 is never. */
static int64_t earliest_of(int64_t a, int64_t b)
{
	return a && (!b || a < b) ? a : b;
}

int64_t vb_gsi_timer(struct vb_broker *b, int64_t now)
{
	if (!b->gsi)
		return 0;
	int64_t late = vb_gsi_late_due(b, now), gone = vb_gsi_gone_due(b, now);
	int64_t roce = b->gsi->roce ? vb_gsi_roce_timer(b, b->gsi->roce, now) : 0;

	roce_rest(b);
	return earliest_of(earliest_of(late, gone), roce);
}

/* A program may send from addresses of this host, and from those that it announces: the latter reach its own user's
 * programs only. */
static bool may_send_from(const struct vb_broker *b, const struct vb_session *s, const uint8_t local[16])
{
	return vb_lane_announces(&b->table.lanes[s->lane], local) || vb_addresses_has(b->addresses, local);
}

/* Only a REJ may lack an id of the sender: then it must reject a request that this program got. */
static bool may_be_nameless(const struct vb_session *s, const struct vb_msg_cm_mad *m)
{
	struct vb_cm_msg msg;

	if (!vb_cm_decode(&msg, m->mad, sizeof(m->mad)) || msg.attr != VB_CM_REJ)
		return true;
	return vb_gsi_conns_has(s->gsi->conns, m->remote, msg.rej.remote_comm_id);
}

static const char *on_send(struct vb_broker *b, struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_cm_mad m;

	if (len != sizeof(m))
		return "CM_SEND of a wrong length";
	memcpy(&m, msg, sizeof(m));
	uint32_t id = vb_cm_sender_id(m.mad, sizeof(m.mad));

	if ((id ? vb_cm_lane_of(id) != s->lane : !may_be_nameless(s, &m)) || !may_send_from(b, s, m.local)) {
		b->gsi->counters.forged++;
		return NULL;
	}
	vb_gsi_conns_sent(&s->gsi->conns, &m);
	vb_gsi_send_out(b, s->uid, &m);
	return NULL;
}

static const char *on_at_death(const struct vb_broker *b, const struct vb_session *s, const void *msg, size_t len)
{
	struct vb_msg_cm_at_death m;

	if (len != sizeof(m))
		return "CM_AT_DEATH of a wrong length";
	memcpy(&m, msg, sizeof(m));
	if (!m.local_id || vb_cm_lane_of(m.local_id) != s->lane)
		return "CM_AT_DEATH of another program's connection";
	if (may_send_from(b, s, m.local))
		vb_gsi_conns_told(b->gsi, s->uid, &s->gsi->conns, &m);
	else
		b->gsi->counters.forged++;
	return NULL;
}

const char *vb_gsi_message(struct vb_broker *b, struct vb_session *s, uint8_t type, const void *msg, size_t len)
{
	if (!s->lane)
		return "queue pair 1 before ATTACH";
	if ((type == VB_MSG_CM_OPEN || type == VB_MSG_CM_CLOSE) && len != sizeof(struct vb_msg_head))
		return "CM_OPEN or CM_CLOSE of a wrong length";
	if (type == VB_MSG_CM_CLOSE) {
		vb_gsi_leave(b, s);
		return NULL;
	}
	if (!member_join(b, s))
		return "no memory";
	if (vb_gsi_is_full(s)) /* only tests get here: the broker does not read such a session */
		return "too many unread answers";
	switch (type) {
	case VB_MSG_CM_OPEN:
		return NULL;
	case VB_MSG_CM_SEND:
		return on_send(b, s, msg, len);
	case VB_MSG_CM_AT_DEATH:
		return on_at_death(b, s, msg, len);
	case VB_MSG_CM_BIND:
		return vb_gsi_on_bind(b, s, msg, len);
	case VB_MSG_CM_LISTEN:
	case VB_MSG_CM_UNBIND:
		return vb_gsi_on_binding(b, s, type, msg, len);
	default:
		return "unknown message";
	}
}
