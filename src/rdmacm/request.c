// request.c - requests of peers: the listener for each, and the new id
// follows: rdma_listen(3), rdma_get_cm_event(3); annex A11 (RDMA IP CM service); IBA volume 1, 12.6.5 (REQ)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fault/set.h"
#include "rdmacm/fabric.h"

static bool same_type(const struct rcm_id *id, const struct vb_cm_msg *msg)
{
	if (msg->attr == VB_CM_SIDR_REQ)
		return rcm_is_ud(id);
	switch (msg->req.transport) {
	case VB_CM_RC:
		return id->id.qp_type == IBV_QPT_RC;
	case VB_CM_UC:
		return id->id.qp_type == IBV_QPT_UC;
	case VB_CM_EXTENDED:
		return msg->req.extended_transport == 1 && id->id.qp_type == IBV_QPT_XRC_RECV;
	default:
		return false;
	}
}

static bool is_for_iwarp(const struct vb_cm_msg *msg)
{
	return msg->attr == VB_CM_REQ && msg->req.primary.hop_limit == RCM_IWARP_HOPS &&
	       msg->req.pkey == RCM_IWARP_PKEY;
}

/* True if the request uses the transport of the listener's adapter. A listener without an adapter accepts the transport
 * that the program chose, or any (rdma_bind_addr(3)). */
static bool same_kind(const struct rcm_id *id, const struct vb_cm_msg *msg)
{
	if (id->source.dev)
		return id->source.dev->iwarp == is_for_iwarp(msg);
	return id->kind == RCM_EITHER || (id->kind == RCM_IWARP) == is_for_iwarp(msg);
}

/* deviates: a listener on a loopback address that no adapter has serves this host only. The kernel's also accepts other
 * hosts. */
static bool may_come(const struct rcm_id *id, const struct vb_cm_addr *from)
{
	return rcm_addr_any(&id->src) || rcm_local_address(from->remote, from->ifindex);
}

/* How the id listens on this address: 0, not at all; 1, on all addresses; 2, on exactly this one. */
static int listens_at(const struct rcm_id *id, const struct vb_cma *hdr, const struct vb_cm_addr *from)
{
	uint32_t ifindex = from->ifindex;
	union rcm_addr to;

	rcm_addr_from_gid(&to, hdr->dst, 0, ifindex);
	if (!id->bound)
		return 0; /* it listens on a fabric alone */
	if (!id->source.dev)
		return (id->src.sa.sa_family == to.sa.sa_family || (id->src.sa.sa_family == AF_INET6 && !id->afonly)) &&
		       may_come(id, from);
	uint8_t own[16];

	rcm_addr_gid(&id->src, own);
	if (memcmp(own, hdr->dst, sizeof(own)) != 0)
		return 0;
	return !rcm_addr_link_local(&id->src) || !ifindex || id->src.sin6.sin6_scope_id == ifindex ? 2 : 0;
}

struct rcm_id *rcm_listener(const struct vb_cm_addr *from, const struct vb_cm_msg *msg, struct vb_cma *hdr)
{
	bool sidr = msg->attr == VB_CM_SIDR_REQ, fabric = rcm_fabric_is_from(from);
	struct rcm_id *best = NULL;
	enum vb_port_space ps;
	int how = 0;
	uint16_t port;

	if (!vb_cm_service_port(sidr ? msg->sidr_req.service_id : msg->req.service_id, &ps, &port))
		return NULL;
	bool header = vb_cma_decode(hdr, sidr ? msg->sidr_req.private_data : msg->req.private_data);

	if (!header && !fabric)
		return NULL;
	for (struct rcm_id *id = rcm.listeners; id; id = id->next) {
		if (id->state != RCM_LISTEN || id->space != ps || rcm_addr_port(&id->src) != port ||
		    !same_type(id, msg))
			continue;
		int at = fabric               ? rcm_fabric_fits(id, header ? hdr : NULL)
		         : same_kind(id, msg) ? listens_at(id, hdr, from)
		                              : 0;

		if (at > how) {
			how = at;
			best = id;
		}
	}
	return best;
}

/* The path in the request must be the one on which it arrived, so that no peer can direct our packets to a third
 * host. */
static bool path_is_honest(const struct vb_cm_addr *from, const struct vb_cm_req *req)
{
	return !memcmp(req->primary.local_gid, from->remote, VB_GID_LEN) &&
	       !memcmp(req->primary.remote_gid, from->local, VB_GID_LEN);
}

/* The address by which connection management knows the peer. */
static const uint8_t *peer_of(const struct rcm_id *child)
{
	return child->conn ? child->conn->addr.remote : child->path.dgid.raw;
}

bool rcm_share_is_used_up(const struct rcm_id *listener, const uint8_t remote[16])
{
	const int share = listener->backlog_size / 2;
	int n = 0;

	if (listener->backlog_size < RCM_SHARED || listener->backlog_free > share)
		return false;
	for (const struct rcm_event *e = rcm_channel(listener->id.channel)->first; e; e = e->next)
		n += e->owner == listener && e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST &&
		     !memcmp(peer_of(rcm_id(e->event.id)), remote, VB_GID_LEN);
	return n >= share;
}

uint16_t rcm_admit(void *own, const struct vb_cm_addr *from, const struct vb_cm_msg *msg)
{
	bool sidr = msg->attr == VB_CM_SIDR_REQ;
	struct vb_cma hdr;
	const struct rcm_id *listener = rcm_listener(from, msg, &hdr);

	if (!listener && rcm_late_may_wait(sidr ? msg->sidr_req.service_id : msg->req.service_id))
		return VB_CM_IGNORE;
	if (!listener)
		return sidr ? VB_CM_SIDR_INVALID_SERVICE_ID : VB_CM_REJ_INVALID_SERVICE_ID;
	if (!sidr && rcm_fabric_is_from(from) && !rcm_fabric_path_is_honest(from, &msg->req))
		return VB_CM_REJ_INVALID_LID;
	if (!sidr && !rcm_fabric_is_from(from) && !path_is_honest(from, &msg->req))
		return VB_CM_REJ_INVALID_GID;
	if (!listener->backlog_free ||
	    rcm_share_is_used_up(listener, from->remote)) /* as the kernel does: the peer repeats the request later */
		return sidr ? VB_CM_SIDR_REJECTED : VB_CM_IGNORE;
	uint64_t fault = vb_fault_ask_cm(from->remote);

	if (fault)
		return fault == VB_FAULT_CM_IGNORE ? VB_CM_IGNORE : sidr ? VB_CM_SIDR_REJECTED : (uint16_t)fault;
	return 0;
}

static void take_req(struct rcm_id *id, const struct vb_cm_req *req)
{
	id->path = (struct rcm_path){
	        .rq_psn = req->starting_psn, /* as in the kernel's cma, one number for both directions */
	        .sq_psn = req->starting_psn,
	        .remote_qpn = req->local_qpn,
	        .mtu = req->mtu,
	        .responder_resources = req->initiator_depth,
	        .initiator_depth = req->responder_resources,
	        .retry_count = req->retry_count,
	        .rnr_retry_count = req->rnr_retry_count,
	        .timeout = req->primary.ack_timeout ? req->primary.ack_timeout : 1,
	        .traffic_class = req->primary.traffic_class,
	        .hop_limit = RCM_HOP_LIMIT,
	        .sl = req->primary.sl,
	        .rate = req->primary.packet_rate,
	        .flow_label = req->primary.flow_label,
	};
	id->remote_ece = req->ece;
	id->responder_resources = id->path.responder_resources;
	id->initiator_depth = id->path.initiator_depth;
}

static void show_req(struct rcm_event *e, const struct vb_cm_req *req, bool iwarp, size_t header)
{
	e->event.param.conn = (struct rdma_conn_param){
	        .responder_resources = req->initiator_depth,
	        .initiator_depth = req->responder_resources,
	        .flow_control = req->flow_control,
	        .retry_count = req->retry_count,
	        .rnr_retry_count = req->rnr_retry_count,
	        .srq = req->srq,
	        .qp_num = req->local_qpn,
	};
	const uint8_t *data = req->private_data + header;

	rcm_event_data(e, data, iwarp ? rcm_iw_unpack(data, VB_CMA_REQ_PRIVATE) : VB_CM_REQ_PRIVATE - header);
}

/* Path and addresses of a request that came by a fabric. */
static void take_fabric(struct rcm_id *id, const struct rcm_id *listener, const struct vb_cma *hdr,
                        const struct vb_cm_msg *msg)
{
	const struct vb_cm_req *req = msg->attr == VB_CM_REQ ? &msg->req : NULL;

	rcm_fabric_take_path(id, &id->conn->addr, req);
	if (listener->src.sa.sa_family == AF_IB) {
		rcm_fabric_show(id, listener, req);
		return;
	}
	rcm_addr_from_gid(&id->src, hdr->dst, rcm_addr_port(&listener->src), 0);
	rcm_addr_from_gid(&id->dst, hdr->src, hdr->src_port, 0);
}

static struct rcm_id *new_child(const struct rcm_id *listener, struct vb_cm_conn *conn, const struct vb_cma *hdr,
                                const struct vb_cm_msg *msg)
{
	struct rcm_id *id = rcm_id_new(listener->id.ps, listener->id.qp_type, listener->id.context);

	if (!id)
		return NULL;
	id->id.channel = listener->id.channel;
	id->state = RCM_CONNECT;
	id->conn = conn;
	id->path.hop_limit = RCM_HOP_LIMIT;
	if (msg->attr == VB_CM_REQ)
		take_req(id, &msg->req);
	if (rcm_fabric_is_from(&conn->addr)) {
		take_fabric(id, listener, hdr, msg);
		return id;
	}
	rcm_addr_from_gid(&id->src, hdr->dst, rcm_addr_port(&listener->src), conn->addr.ifindex);
	rcm_addr_from_gid(&id->dst, hdr->src, hdr->src_port, conn->addr.ifindex);
	memcpy(id->path.dgid.raw, conn->addr.remote, VB_GID_LEN);
	memcpy(id->source.gid.raw, conn->addr.local, VB_GID_LEN);
	id->source.ifindex = conn->addr.ifindex;
	return id;
}

/* Creates the id, which waits in the event. Its device is looked up when the program fetches the event. */
void rcm_on_request(struct vb_cm_conn *conn, const struct vb_cm_msg *msg)
{
	struct vb_cma hdr;
	struct rcm_id *listener = rcm_listener(&conn->addr, msg, &hdr), *child = NULL;
	struct rcm_event *e = NULL;

	if (listener)
		child = new_child(listener, conn, &hdr, msg);
	if (child)
		e = rcm_event_new(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	if (!e) {
		free(child);
		vb_cm_destroy(&rcm.cm, conn, vb_gsi_client_now());
		return;
	}
	if (msg->attr == VB_CM_REQ) {
		child->iwarp_here = !child->by_fabric && is_for_iwarp(msg);
		show_req(e, &msg->req, child->iwarp_here, rcm_cma_len(child));
		vb_cm_mra(&rcm.cm, conn, RCM_MRA_TIMEOUT, true, NULL, 0, vb_gsi_client_now());
	} else {
		size_t header = rcm_cma_len(child);

		rcm_event_data(e, msg->sidr_req.private_data + header, VB_CM_SIDR_REQ_PRIVATE - header);
	}
	conn->own = child;
	e->event.id = &child->id;
	e->event.listen_id = &listener->id;
	listener->backlog_free--;
	rcm_link(child);
	rcm_queue(e);
}
