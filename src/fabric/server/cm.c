// cm.c - which program of a port gets a datagram of connection management; services and the ports they are bound to
// follows: IBA volume 1, 12 (communication management), 13.5.3 (general services); annex A11 (RDMA IP CM service)
// SPDX-License-Identifier: MIT
#include "fabric/server/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_EPHEMERAL = 32768, LAST_EPHEMERAL = 60999, BOUND_MOST = 65536 };

_Static_assert(sizeof(((struct vb_fabric_cm_mad *)0)->mad) == VB_MAD_LEN, "a datagram");

struct cm_bound {
	struct cm_bound *next;
	uint32_t id;
	uint16_t port_space, port;
	bool reuse, listens;
	uint8_t address[16]; /* zeros: all */
};

/* --- datagrams --- */

bool cm_transmit(struct vb_fabric_port *p, const struct vb_fabric_cm_mad *m)
{
	uint8_t bits = m->path_bits & ((1u << p->info.lmc) - 1);
	struct vb_fabric_packet k = {.slid = p->info.lid | bits,
	                             .dlid = m->lid,
	                             .sl = m->sl & 15,
	                             .path_bits = bits,
	                             .src_qpn = VB_GSI_QPN,
	                             .dst_qpn = VB_GSI_QPN,
	                             .qkey = VB_GSI_QKEY};

	for (unsigned i = 0; !k.pkey && i < vb_fabric_pkeys(p); i++)
		if ((vb_fabric_pkey(p, i) & 0x7fff) == (m->pkey & 0x7fff))
			k.pkey = vb_fabric_pkey(p, i);
	if (!(k.pkey & 0x7fff))
		return false;
	memcpy(k.mad, m->mad, VB_MAD_LEN);
	vb_fabric_send(p, &k);
	return true;
}

void cm_give(struct cm *cm, const struct vb_fabric_cm_mad *m)
{
	cm_conns_received(cm, m);
	client_post(cm->client, m, sizeof(*m));
}

static void answer_mad(struct vb_fabric_port *p, const struct vb_fabric_cm_mad *m, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_fabric_cm_mad out = *m;

	memcpy(out.mad, mad, VB_MAD_LEN);
	cm_transmit(p, &out);
}

/* How well a binding fits a request: 0, not at all; an address of its own fits better than all addresses. */
static int fits(const struct cm_bound *b, const struct vb_cm_route_info *info)
{
	static const uint8_t all[16];

	if (b->port_space != (uint16_t)info->ps || b->port != info->port)
		return 0;
	if (!memcmp(b->address, all, sizeof(all)))
		return 1;
	return info->cma && !memcmp(b->address, info->hdr.dst, sizeof(b->address)) ? 3 : info->cma ? 0 : 2;
}

struct cm *cm_listener(const struct server *s, const struct vb_fabric_port *p, const struct vb_cm_route_info *info)
{
	struct cm *best = NULL;
	int how = 0;

	for (struct cm *cm = s->cms; cm && info->port_space; cm = cm->next)
		for (const struct cm_bound *b = cm->port == p ? cm->bound : NULL; b; b = b->next)
			if (b->listens && fits(b, info) > how) {
				how = fits(b, info);
				best = cm;
			}
	return best;
}

bool cm_may_listen(const struct server *s, const struct vb_fabric_port *p, const struct vb_cm_route_info *info)
{
	for (const struct cm *cm = s->cms; cm; cm = cm->next)
		for (const struct cm_bound *b = cm->port == p ? cm->bound : NULL; b; b = b->next)
			if (!b->listens && fits(b, info))
				return true;
	return false;
}

void cm_refuse(struct vb_fabric_port *p, const struct vb_fabric_cm_mad *m)
{
	uint8_t out[VB_MAD_LEN];

	if (vb_cm_make_unknown(out, m->mad, VB_MAD_LEN) ||
	    vb_cm_make_rej(out, m->mad, VB_MAD_LEN, VB_CM_REJ_INVALID_SERVICE_ID) ||
	    vb_cm_make_sidr_rep(out, m->mad, VB_MAD_LEN, VB_CM_SIDR_INVALID_SERVICE_ID))
		answer_mad(p, m, out);
}

static struct cm *of_lane(const struct server *s, const struct vb_fabric_port *p, uint32_t lane)
{
	struct cm *cm = s->cms;

	while (cm && (cm->port != p || cm->lane != lane))
		cm = cm->next;
	return cm;
}

/* A REJ of a peer that does not know our id names only its own. */
static void give_all(const struct server *s, const struct vb_fabric_port *p, const struct vb_fabric_cm_mad *m)
{
	uint32_t id = vb_cm_sender_id(m->mad, VB_MAD_LEN);

	for (struct cm *cm = s->cms; cm; cm = cm->next)
		if (cm->port == p && cm_conns_has(cm, m->lid, id))
			cm_give(cm, m);
}

bool cm_deliver(struct server *s, struct vb_fabric_port *p, const struct vb_fabric_packet *k)
{
	struct vb_fabric_cm_mad m = {.verb = VB_FABRIC_CM_RECV,
	                             .lid = k->slid,
	                             .pkey = k->pkey,
	                             .sl = k->sl,
	                             .path_bits = (uint8_t)(k->dlid & ((1u << p->info.lmc) - 1))};
	struct vb_cm_route_info info;
	struct cm *cm = NULL;

	if (p->node->type != VB_NODE_CA || k->dst_qpn != VB_GSI_QPN || k->mad[1] != VB_MAD_CLASS_CM)
		return false;
	memcpy(m.mad, k->mad, VB_MAD_LEN);
	switch (vb_cm_route(k->mad, VB_MAD_LEN, &info)) {
	case VB_CM_TO_SERVICE:
		cm = cm_listener(s, p, &info);
		if (!cm && info.port_space && cm_late_keep(s, p, &info, &m))
			return true;
		break;
	case VB_CM_TO_LANE:
		cm = of_lane(s, p, info.lane);
		break;
	case VB_CM_TO_ALL:
		give_all(s, p, &m);
		return true;
	case VB_CM_DROP:
		return false;
	}
	if (cm)
		cm_give(cm, &m);
	else
		cm_refuse(p, &m);
	return true;
}

/* Only a REJ or an answer by SIDR may lack an id of the sender; a REJ then rejects a request that this program got. */
static bool is_its_own(const struct cm *cm, const struct vb_fabric_cm_mad *m)
{
	uint32_t id = vb_cm_sender_id(m->mad, VB_MAD_LEN);
	struct vb_cm_msg msg;

	if (id)
		return vb_cm_lane_of(id) == cm->lane;
	if (!vb_cm_decode(&msg, m->mad, VB_MAD_LEN))
		return false;
	return msg.attr != VB_CM_REJ || cm_conns_has(cm, m->lid, msg.rej.remote_comm_id);
}

static void cm_take_mad(struct cm *cm, const struct vb_fabric_cm_mad *m)
{
	if (!is_its_own(cm, m)) {
		cm->server->forged++;
		return;
	}
	cm_conns_sent(cm, m);
	cm_transmit(cm->port, m);
}

/* --- the subnet administrator --- */

int cm_ask(struct cm *cm, const uint8_t mad[VB_MAD_LEN], uint32_t timeout_ms)
{
	const struct vb_agent_addr sa = {
	        .qpn = VB_GSI_QPN, .qkey = VB_GSI_QKEY, .lid = cm->port->info.sm_lid, .sl = cm->port->info.sm_sl};

	return vb_agent_send(client_file(cm->client), cm->agent, &sa, mad, VB_MAD_LEN, timeout_ms, 0);
}

static void take_question(struct cm *cm, const struct vb_fabric_sa_ask *ask)
{
	struct vb_fabric_sa_is is = {.verb = VB_FABRIC_SA_IS, .error = EINVAL};

	if (ask->mad[1] == VB_MAD_CLASS_SA) {
		bool joins = ask->mad[3] == VB_MAD_SET;

		if (cm_members_ask(cm, ask->mad))
			is.error = cm_ask(cm, ask->mad, ask->timeout_ms);
		else
			is.error = joins ? ENOMEM : 0;
	}
	if (!is.error)
		return;
	memcpy(is.mad, ask->mad, VB_MAD_HEADER_LEN);
	client_post(cm->client, &is, sizeof(is));
}

void cm_answered(struct cm *cm, int error, const uint8_t *mad, size_t len)
{
	struct vb_fabric_sa_is is = {.verb = VB_FABRIC_SA_IS, .error = error};

	if (cm_members_answered(cm, error, mad, len))
		return;
	memcpy(is.mad, mad, len < sizeof(is.mad) ? len : sizeof(is.mad));
	client_post(cm->client, &is, sizeof(is));
}

/* --- bindings --- */

static struct cm_bound *bound_of(const struct cm *cm, uint32_t id)
{
	struct cm_bound *b = cm->bound;

	while (b && b->id != id)
		b = b->next;
	return b;
}

static bool overlap(const struct cm_bound *a, const struct cm_bound *b)
{
	static const uint8_t all[16];

	return a->port_space == b->port_space && a->port == b->port &&
	       (!memcmp(a->address, b->address, 16) || !memcmp(a->address, all, 16) || !memcmp(b->address, all, 16));
}

/* May b exist, or listen, beside the other bindings of its port? */
static bool is_free(const struct cm *own, const struct cm_bound *b, bool listens)
{
	for (const struct cm *cm = own->server->cms; cm; cm = cm->next)
		for (const struct cm_bound *o = cm->port == own->port ? cm->bound : NULL; o; o = o->next)
			if (o != b && overlap(o, b) && (listens ? o->listens : !o->reuse || !b->reuse || o->listens))
				return false;
	return true;
}

static int bound_choose_port(const struct cm *cm, struct cm_bound *b)
{
	enum { PORTS = LAST_EPHEMERAL - FIRST_EPHEMERAL + 1 };

	for (unsigned i = 0; i < PORTS; i++) {
		b->port = (uint16_t)(FIRST_EPHEMERAL + (cm->server->next_ephemeral++ % PORTS));
		if (is_free(cm, b, false))
			return 0;
	}
	return EADDRINUSE;
}

static int bound_add(struct cm *cm, const struct vb_fabric_cm_bind *m, uint16_t *port)
{
	struct cm_bound *b = bound_of(cm, m->id);
	int rc = 0;

	if (b) { /* its options change */
		b->reuse = m->flags & VB_FABRIC_CM_REUSE;
		*port = b->port;
		return 0;
	}
	b = cm->server->bound < BOUND_MOST ? calloc(1, sizeof(*b)) : NULL;
	if (!b)
		return ENOMEM;
	*b = (struct cm_bound){
	        .id = m->id, .port_space = m->port_space, .port = m->port, .reuse = m->flags & VB_FABRIC_CM_REUSE};
	memcpy(b->address, m->address, sizeof(b->address));
	if (!b->port)
		rc = bound_choose_port(cm, b);
	else if (!is_free(cm, b, false))
		rc = EADDRINUSE;
	if (rc) {
		free(b);
		return rc;
	}
	b->next = cm->bound;
	cm->bound = b;
	cm->server->bound++;
	*port = b->port;
	return 0;
}

static int bound_listen(struct cm *cm, uint32_t id)
{
	struct cm_bound *b = bound_of(cm, id);

	if (!b)
		return ENOENT;
	if (!is_free(cm, b, true))
		return EADDRINUSE;
	b->listens = true;
	cm_late_listening(cm->server, cm->port);
	return 0;
}

static int bound_remove(struct cm *cm, uint32_t id)
{
	for (struct cm_bound **at = &cm->bound, *b; (b = *at); at = &b->next)
		if (b->id == id) {
			*at = b->next;
			if (b->listens)
				cm_late_closed(cm->server, cm->port, b->port);
			free(b);
			cm->server->bound--;
			return 0;
		}
	return ENOENT;
}

static void take_binding(struct cm *cm, const struct vb_fabric_cm_bind *m, struct vb_fabric_reply *r)
{
	uint16_t port = 0;

	r->error = m->verb == VB_FABRIC_CM_BIND     ? bound_add(cm, m, &port)
	           : m->verb == VB_FABRIC_CM_LISTEN ? bound_listen(cm, m->id)
	                                            : bound_remove(cm, m->id);
	r->agent = port;
}

/* --- the connection --- */

int cm_open(struct server *s, struct vb_fabric_port *p, struct client *c, uint32_t lane, struct cm **out)
{
	const struct vb_agent_registration sa = {.qpn = VB_GSI_QPN, .mgmt_class = VB_MAD_CLASS_SA, .class_version = 2};

	if (!lane || lane >> VB_CM_LANE_BITS)
		return EINVAL;
	if (of_lane(s, p, lane))
		return EBUSY;
	struct cm *cm = calloc(1, sizeof(*cm));
	int rc = cm ? vb_agent_register(client_file(c), &sa, &cm->agent) : ENOMEM;

	if (rc) {
		free(cm);
		return rc;
	}
	cm->server = s;
	cm->client = c;
	cm->port = p;
	cm->lane = lane;
	cm->next = s->cms;
	cm->at = &s->cms;
	if (cm->next)
		cm->next->at = &cm->next;
	s->cms = cm;
	*out = cm;
	return 0;
}

void cm_close(struct cm *cm)
{
	*cm->at = cm->next;
	if (cm->next)
		cm->next->at = cm->at;
	while (cm->bound)
		bound_remove(cm, cm->bound->id);
	cm_conns_end(cm);
	cm_members_end(cm);
	free(cm);
}

bool cm_take(struct cm *cm, const void *bytes, size_t n, struct vb_fabric_reply *reply)
{
	const struct vb_fabric_cm_bind *m = bytes;

	if (n < sizeof(m->verb))
		return false;
	if (m->verb == VB_FABRIC_CM_SEND && n == sizeof(struct vb_fabric_cm_mad)) {
		cm_take_mad(cm, bytes);
		return true;
	}
	if (m->verb == VB_FABRIC_SA_ASK && n == sizeof(struct vb_fabric_sa_ask)) {
		take_question(cm, bytes);
		return true;
	}
	if ((m->verb == VB_FABRIC_CM_BIND || m->verb == VB_FABRIC_CM_LISTEN || m->verb == VB_FABRIC_CM_UNBIND) &&
	    n == sizeof(*m)) {
		take_binding(cm, m, reply);
		return true;
	}
	return false;
}
