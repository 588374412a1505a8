// iwarp.c - ids of iWARP devices: connections over TCP and MPA, or on the same-host path
// follows: rdma_cm(7); RFC 5044, 7; RFC 6581; the events of Linux's iw_cm
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rdmacm/rdmacm.h"

static uint16_t min16(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

/* --- private data for the same-host path --- */

/* Its length is in the last byte. */
void rcm_iw_pack(uint8_t *field, size_t room, const struct rcm_connect *c)
{
	rcm_private_data(field, c);
	field[room - 1] = (uint8_t)(c->len[0] + c->len[1]);
}

size_t rcm_iw_unpack(const uint8_t *field, size_t room)
{
	return field[room - 1] < room ? field[room - 1] : room - 1;
}

/* --- callbacks of connections; rcm.lock held, progress thread --- */

/* A depth that the peer did not announce counts as the maximum. rcm_iw_adopt lowers it once the device is known. */
static void take_depths(struct rcm_id *id, const struct vb_iwcm_said *said)
{
	id->responder_resources = id->path.responder_resources = (uint8_t)min16(said->ord, RDMA_MAX_RESP_RES);
	id->initiator_depth = id->path.initiator_depth = (uint8_t)min16(said->ird, RDMA_MAX_INIT_DEPTH);
}

static void show_said(struct rcm_event *e, const struct rcm_id *id, const struct vb_iwcm_said *said)
{
	e->event.param.conn = (struct rdma_conn_param){.responder_resources = id->path.responder_resources,
	                                               .initiator_depth = id->path.initiator_depth};
	rcm_event_data(e, said->data, min16((uint16_t)said->len, UINT8_MAX));
}

static void take_ends(struct rcm_id *id)
{
	struct vb_iwcm_addresses ends;

	vb_iwcm_addresses(id->tcp, &ends);
	rcm_addr_from_gid(&id->src, ends.local, ends.local_port, ends.ifindex);
	rcm_addr_from_gid(&id->dst, ends.remote, ends.remote_port, ends.ifindex);
	memcpy(id->source.gid.raw, ends.local, sizeof(ends.local));
	memcpy(id->path.dgid.raw, ends.remote, sizeof(ends.remote));
}

/* Stores the depths that both sides agreed on. */
static void set_depths(struct rcm_id *id)
{
	uint16_t ird, ord;

	vb_iwcm_depths(id->tcp, &ird, &ord);
	id->path.responder_resources = (uint8_t)min16(ird, RDMA_MAX_RESP_RES);
	id->path.initiator_depth = (uint8_t)min16(ord, RDMA_MAX_INIT_DEPTH);
}

static void *on_request(void *own, struct vb_iwcm_conn *c, const struct vb_iwcm_said *said)
{
	struct rcm_id *listener = own, *child = NULL;
	struct rcm_event *e = NULL;
	struct vb_iwcm_addresses ends;

	vb_iwcm_addresses(c, &ends);
	if (listener->backlog_free && !rcm_share_is_used_up(listener, ends.remote))
		child = rcm_id_new(listener->id.ps, listener->id.qp_type, listener->id.context);
	if (child)
		e = rcm_event_new(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	if (!e) {
		free(child);
		return NULL;
	}
	child->id.channel = listener->id.channel;
	child->state = RCM_CONNECT;
	child->tcp = c;
	take_ends(child);
	take_depths(child, said);
	show_said(e, child, said);
	e->event.id = &child->id;
	e->event.listen_id = &listener->id;
	listener->backlog_free--;
	rcm_link(child);
	rcm_queue(e);
	return child;
}

/* The same events as Linux's cma reports for iWARP. */
static enum rdma_cm_event_type event_of(int err)
{
	switch (err) {
	case 0:
		return RDMA_CM_EVENT_ESTABLISHED;
	case ECONNREFUSED:
	case ECONNRESET:
		return RDMA_CM_EVENT_REJECTED;
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return RDMA_CM_EVENT_UNREACHABLE;
	default:
		return RDMA_CM_EVENT_CONNECT_ERROR;
	}
}

/* RFC 6581, 9.1: a rejection also carries the peer's depths. */
static uint8_t as_said(uint16_t depth)
{
	return depth == VB_IWCM_DEPTH_UNKNOWN ? 0 : (uint8_t)min16(depth, UINT8_MAX);
}

static void on_replied(void *own, int err, const struct vb_iwcm_said *said)
{
	struct rcm_id *id = own;
	struct rcm_event *e;

	if (id->state != RCM_CONNECT)
		return;
	e = rcm_event_new(id, event_of(err), -err);
	if (!e)
		return;
	if (!err) {
		take_ends(id);
		set_depths(id);
		id->starts = true;
	}
	show_said(e, id, said);
	if (err) {
		e->event.param.conn.responder_resources = as_said(said->ord);
		e->event.param.conn.initiator_depth = as_said(said->ird);
	}
	rcm_queue(e);
}

static void on_closed(void *own, int err)
{
	struct rcm_id *id = own;

	if (id->state != RCM_CONNECT)
		return;
	id->state = RCM_DISCONNECT;
	if (id->delivers_events)
		rcm_post(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

/*
 * deviates: Linux has no TIMEWAIT_EXIT for iWARP. Programs written for InfiniBand free a connection at this event:
 * without it tgtd would never free a session.
 */
static void on_exited(void *own)
{
	struct rcm_id *id = own;

	if (id->state == RCM_DISCONNECT && id->delivers_events)
		rcm_post(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

static void unlock_and_rearm(void)
{
	rcm_rearm();
	rcm_unlock();
}

static const struct vb_iwcm_ops ops = {.lock = rcm_lock,
                                       .unlock = unlock_and_rearm,
                                       .request = on_request,
                                       .replied = on_replied,
                                       .closed = on_closed,
                                       .exited = on_exited};

/* --- calls of the program --- */

/* rcm.lock held. */
static int open_iwcm(void)
{
	return rcm.iwcm ? 0 : vb_iwcm_open(&ops, &rcm.iwcm);
}

static bool wants_tcp(const struct rcm_id *id, const struct rcm_source *source)
{
	if (id->id.ps != RDMA_PS_TCP || id->id.qp_type != IBV_QPT_RC)
		return false;
	if (source->dev)
		return source->dev->iwarp;
	if (id->kind == RCM_ROCE)
		return false;
	rcm_open_devices();
	return rcm_any_iwarp();
}

bool rcm_iw_port_is_taken(const struct rcm_id *id, const union rcm_addr *addr, const struct rcm_source *source,
                          bool afonly)
{
	int fd, one = 1, only = afonly;

	if (!wants_tcp(id, source))
		return false;
	fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (addr->sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	bool taken = bind(fd, &addr->sa, rcm_addr_len(&addr->sa)) && errno == EADDRINUSE;

	close(fd);
	return taken;
}

int rcm_iw_listen(struct rcm_id *id)
{
	bool v4 = id->src.sa.sa_family == AF_INET;
	struct vb_iwcm_addresses at = {.local_port = rcm_addr_port(&id->src), .ifindex = rcm_addr_scope(&id->src)};

	if (id->source.dev && id->source.dev->iwarp && id->id.ps != RDMA_PS_TCP)
		return EOPNOTSUPP;
	if (!wants_tcp(id, &id->source))
		return 0;
	if (!rcm_addr_any(&id->src))
		rcm_addr_gid(&id->src, at.local);
	rcm_lock();
	int err = open_iwcm();

	if (!err)
		err = vb_iwcm_listen(rcm.iwcm, &at, v4, id->afonly, id->tos, id, &id->tcp_listener);
	rcm_unlock();
	return err;
}

bool rcm_iw_is_here(const struct rcm_id *id, const struct rcm_connect *c)
{
	uint8_t gid[16];

	rcm_addr_gid(&id->dst, gid);
	return vb_iwcm_here() && c->len[0] + c->len[1] < VB_CMA_REQ_PRIVATE &&
	       rcm_local_address(gid, rcm_addr_scope(&id->dst));
}

static int connect_by_tcp(struct rcm_id *id)
{
	struct vb_iwcm_addresses ends = {.local_port = rcm_addr_port(&id->src),
	                                 .remote_port = rcm_addr_port(&id->dst),
	                                 .ifindex = rcm_addr_scope(&id->dst)};
	struct vb_iwcm_offer offer = {.data = {id->asked},
	                              .len = {id->asked_len},
	                              .ird = id->responder_resources,
	                              .ord = id->initiator_depth,
	                              .tos = id->tos};
	int err = open_iwcm();

	if (err)
		return err;
	rcm_addr_gid(&id->src, ends.local);
	rcm_addr_gid(&id->dst, ends.remote);
	return vb_iwcm_connect(rcm.iwcm, &ends, !id->port_given, &offer, id, &id->tcp);
}

static int keep_data(struct rcm_id *id, const struct rcm_connect *c)
{
	size_t len = c->len[0] + c->len[1];
	void *data = malloc(len + 1);

	if (!data || len > VB_IWCM_PRIVATE_MAX) {
		free(data);
		return data ? EINVAL : ENOMEM;
	}
	rcm_private_data(data, c);
	free(id->asked);
	id->asked = data;
	id->asked_len = len;
	return 0;
}

int rcm_iw_connect(struct rcm_id *id, const struct rcm_connect *c, bool here)
{
	int err = keep_data(id, c);

	if (err)
		return err;
	id->qpn = c->qp_num;
	id->iwarp_here = here;
	return here ? rcm_send_req(id, c) : connect_by_tcp(id);
}

int rcm_iw_connect_elsewhere(struct rcm_id *id)
{
	vb_cm_destroy(&rcm.cm, id->conn, vb_gsi_client_now());
	id->conn = NULL;
	id->iwarp_here = false;
	return connect_by_tcp(id);
}

/* Limits the peer's depths to the device's. A peer with MPA revision 1 announces none. */
void rcm_iw_adopt(struct rcm_event *e)
{
	struct rcm_id *id = rcm_id(e->event.id);
	struct rdma_conn_param *p = &e->event.param.conn;

	if (!id->tcp)
		return;
	p->responder_resources = (uint8_t)min16(p->responder_resources, id->source.dev->max_responder_resources);
	p->initiator_depth = (uint8_t)min16(p->initiator_depth, id->source.dev->max_initiator_depth);
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
}

/* The queue pair has the stream. Reports this to the program, and from then on the end of the stream. */
static void post_established(struct rcm_id *id)
{
	struct rcm_event *e = rcm_event_new(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	const struct vb_iwcm_said nothing = {0};

	id->delivers_events = true;
	set_depths(id);
	if (e) {
		show_said(e, id, &nothing);
		rcm_queue(e);
	}
	vb_iwcm_owner_knows(id->tcp);
}

int rcm_iw_accept(struct rcm_id *id, const struct rcm_connect *c)
{
	struct vb_iwcm_offer offer = {.data = {c->data[0], c->data[1]},
	                              .len = {c->len[0], c->len[1]},
	                              .ird = id->responder_resources,
	                              .ord = id->initiator_depth,
	                              .tos = id->tos};
	int err = vb_iwcm_accept(id->tcp, c->qp_num, &offer);

	if (err)
		return err;
	id->qpn = c->qp_num;
	rcm_lock();
	post_established(id);
	rcm_rearm();
	rcm_unlock();
	return 0;
}

void rcm_iw_established(struct rcm_event *e)
{
	struct rcm_id *id = e->owner;

	if (!id->tcp || !id->starts)
		return;
	int err = vb_iwcm_start(id->tcp, id->qpn);

	rcm_show_addresses(id);
	rcm_lock();
	id->starts = false;
	if (!err) {
		vb_iwcm_owner_knows(id->tcp);
		rcm_rearm();
	}
	rcm_unlock();
	if (!err)
		return;
	e->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
	e->event.status = -err;
}

int rcm_iw_disconnect(struct rcm_id *id)
{
	rcm_lock();
	struct vb_iwcm_conn *tcp = id->tcp;

	rcm_unlock();
	return tcp ? vb_iwcm_disconnect(tcp) : ENOENT;
}

void rcm_iw_end(struct rcm_id *id)
{
	if (!id->tcp && !id->tcp_listener)
		return;
	if (id->tcp)
		vb_iwcm_release(id->tcp);
	if (id->tcp_listener)
		vb_iwcm_unlisten(id->tcp_listener);
	id->tcp = NULL;
	id->tcp_listener = NULL;
	rcm_rearm();
}

/* The sockets are the parent's. */
void rcm_iw_in_child(void)
{
	if (rcm.iwcm)
		vb_iwcm_in_child(rcm.iwcm);
	rcm.iwcm = NULL;
}
