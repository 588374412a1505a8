// connect.c - the program's calls that request, accept, reject and end connections
// follows: rdma_connect(3), rdma_accept(3), rdma_reject(3), rdma_disconnect(3), rdma_establish(3), rdma_notify(3);
// IBA volume 1, 12.7.27 (fields of REQ and REP)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "rdmacm/fabric.h"
#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"
#include "frame/fields.h"

/* IBA 12.7.34: the round trip of a packet with the adapter's own delay, as codes, rounded up. */
static uint8_t ack_timeout(uint8_t delay, uint8_t lifetime)
{
	uint8_t t = (uint8_t)(lifetime + 1);

	if (t >= delay)
		t = (uint8_t)(t + (delay >= t - 1));
	else
		t = (uint8_t)(delay + (t >= delay - 1));
	return t < 31 ? t : 31;
}

struct vb_cm_addr rcm_cm_addr(const struct rcm_id *id)
{
	struct vb_cm_addr addr = {.ifindex = id->source.ifindex};

	if (rcm_on_fabric(id))
		return rcm_fabric_addr(id->path.dlid, id->path.pkey, id->path.sl, id->path.slid & 0x7f);

	rcm_addr_gid(&id->src, addr.local);
	rcm_addr_gid(&id->dst, addr.remote);
	return addr;
}

uint64_t rcm_service_id(const struct rcm_id *id, const union rcm_addr *addr)
{
	if (addr->sa.sa_family == AF_IB)
		return be64toh(addr->sib.sib_sid);
	return vb_cm_service_id((enum vb_port_space)id->id.ps, rcm_addr_port(addr));
}

size_t rcm_cma_len(const struct rcm_id *id)
{
	return id->dst.sa.sa_family == AF_IB ? 0 : VB_CMA_LEN;
}

size_t rcm_cma_header(const struct rcm_id *id, uint8_t *to)
{
	struct vb_cma hdr = {.src_port = rcm_addr_port(&id->src)};

	if (!rcm_cma_len(id))
		return 0;

	rcm_addr_gid(&id->src, hdr.src);
	rcm_addr_gid(&id->dst, hdr.dst);
	vb_cma_encode(to, &hdr);
	return VB_CMA_LEN;
}

void rcm_private_data(uint8_t *to, const struct rcm_connect *c)
{
	if (c->len[0])
		memcpy(to, c->data[0], c->len[0]);
	if (c->len[1])
		memcpy(to + c->len[0], c->data[1], c->len[1]);
}

static void fill_fabric_path(const struct rcm_id *id, struct vb_cm_req *req)
{
	req->pkey = id->path.pkey;
	req->primary.local_lid = id->path.slid;
	req->primary.remote_lid = id->path.dlid;
	req->primary.subnet_local = id->path.hop_limit <= 1;
	memcpy(req->primary.local_gid, id->source.gid.raw, VB_GID_LEN);
	memcpy(req->primary.remote_gid, id->path.dgid.raw, VB_GID_LEN);
}

static void fill_req(const struct rcm_id *id, const struct rcm_connect *c, struct vb_cm_req *req)
{
	const struct rcm_path *path = &id->path;

	*req = (struct vb_cm_req){
	        .service_id = rcm_service_id(id, &id->dst),
	        .local_ca_guid = id->source.dev->guid,
	        .local_qpn = c->qp_num,
	        .responder_resources = id->responder_resources,
	        .initiator_depth = id->initiator_depth,
	        .remote_response_timeout = RCM_RESPONSE_TIMEOUT,
	        .local_response_timeout = RCM_RESPONSE_TIMEOUT,
	        .transport = id->id.qp_type == IBV_QPT_UC         ? VB_CM_UC
	                     : id->id.qp_type == IBV_QPT_XRC_SEND ? VB_CM_EXTENDED
	                                                          : VB_CM_RC,
	        .extended_transport = id->id.qp_type == IBV_QPT_XRC_SEND,
	        .flow_control = c->flow_control,
	        .srq = c->srq,
	        .starting_psn = path->rq_psn,
	        .retry_count = path->retry_count,
	        .rnr_retry_count = rcm_at_most(c->rnr_retry_count, 7),
	        .pkey = id->iwarp_here ? RCM_IWARP_PKEY : VB_DEFAULT_PKEY,
	        .mtu = path->mtu,
	        .max_cm_retries = RCM_CM_RETRIES,
	        .primary = {.local_lid = VB_LID_PERMISSIVE,
	                    .remote_lid = VB_LID_PERMISSIVE,
	                    .flow_label = path->flow_label,
	                    .packet_rate = path->rate,
	                    .traffic_class = path->traffic_class,
	                    .hop_limit = id->iwarp_here ? RCM_IWARP_HOPS : path->hop_limit,
	                    .sl = path->sl,
	                    .ack_timeout = path->timeout},
	        .ece = {id->local_ece.vendor_id, id->local_ece.options},
	};
	rcm_addr_gid(&id->src, req->primary.local_gid);
	rcm_addr_gid(&id->dst, req->primary.remote_gid);
	if (rcm_on_fabric(id))
		fill_fabric_path(id, req);
	size_t header = rcm_cma_header(id, req->private_data);

	if (id->iwarp_here)
		rcm_iw_pack(req->private_data + VB_CMA_LEN, VB_CMA_REQ_PRIVATE, c);
	else
		rcm_private_data(req->private_data + header, c);
}

int rcm_send_req(struct rcm_id *id, const struct rcm_connect *c)
{
	struct vb_cm_addr addr = rcm_cm_addr(id);
	struct vb_cm_req req;

	if (c->len[0] + c->len[1] > VB_CM_REQ_PRIVATE - rcm_cma_len(id))
		return EINVAL;
	rcm_random(&id->path.rq_psn, sizeof(id->path.rq_psn));
	id->path.rq_psn &= VB_PSN_MASK;
	id->path.retry_count = rcm_at_most(c->retry_count, 7);
	id->path.timeout = ack_timeout(id->source.dev->ack_delay, rcm_packet_lifetime(id));
	id->path.responder_resources = id->responder_resources;
	id->path.initiator_depth = id->initiator_depth;
	fill_req(id, c, &req);
	id->conn = vb_cm_connect(&rcm.cm, &addr, &req, id, vb_gsi_client_now());
	return id->conn ? 0 : ENOMEM;
}

/* If the id has a queue pair, its number and SRQ are used, not the program's. */
static struct rcm_connect connect_parameters(const struct rcm_id *id, const struct rdma_conn_param *param)
{
	struct rcm_connect c = {.data = {id->connect, param ? param->private_data : NULL},
	                        .len = {id->connect_len, param && param->private_data ? param->private_data_len : 0},
	                        .qp_num = param ? param->qp_num & VB_QPN_MASK : 0, /* the messages have 24 bits */
	                        .srq = param && param->srq,
	                        .retry_count = param ? param->retry_count : 7,
	                        .rnr_retry_count = param ? param->rnr_retry_count : 7,
	                        .flow_control = param ? param->flow_control : 0};

	if (id->id.qp) {
		c.qp_num = id->id.qp->qp_num;
		c.srq = id->id.qp->srq;
	}
	return c;
}

static bool valid_depths(const struct rcm_id *id, const struct rdma_conn_param *param)
{
	if (id->id.ps != RDMA_PS_TCP)
		return true;
	if (!param)
		return id->id.qp;
	return (param->responder_resources == RDMA_MAX_RESP_RES ||
	        param->responder_resources <= id->source.dev->max_responder_resources) &&
	       (param->initiator_depth == RDMA_MAX_INIT_DEPTH ||
	        param->initiator_depth <= id->source.dev->max_initiator_depth);
}

/* A peer of another host answers to UDP port 4791. If this host has it not, the requests would be repeated for more than a
 * minute. */
static int check_port(const struct rcm_id *id)
{
	uint8_t gid[16];

	rcm_addr_gid(&id->dst, gid);
	return rcm_addr_loopback(&id->dst) || rcm_local_address(gid, rcm_addr_scope(&id->dst))
	               ? 0
	               : vb_gsi_client_port(rcm.gsi);
}

static int connect_id(struct rcm_id *id, const struct rdma_conn_param *param)
{
	struct rcm_connect c = connect_parameters(id, param);
	const struct rcm_device *dev = id->source.dev;
	int err = EINVAL;

	if (!dev || !valid_depths(id, param))
		return EINVAL;
	if (dev->iwarp && (id->id.ps != RDMA_PS_TCP || id->id.qp_type != IBV_QPT_RC))
		return EOPNOTSUPP;
	id->initiator_depth = param && param->initiator_depth != RDMA_MAX_INIT_DEPTH ? param->initiator_depth
	                                                                             : dev->max_initiator_depth;
	id->responder_resources = param && param->responder_resources != RDMA_MAX_RESP_RES
	                                  ? param->responder_resources
	                                  : dev->max_responder_resources;
	bool here = dev->iwarp && rcm_iw_is_here(id, &c);
	int cut_off = dev->iwarp || dev->fabric ? 0 : check_port(id);

	rcm_lock();
	if (id->state == RCM_ROUTE_RESOLVED)
		err = cut_off         ? rcm_post(id, RDMA_CM_EVENT_UNREACHABLE, -cut_off)
		      : dev->iwarp    ? rcm_iw_connect(id, &c, here)
		      : rcm_is_ud(id) ? rcm_sidr_connect(id, &c)
		                      : rcm_send_req(id, &c);
	if (!err) {
		id->state = RCM_CONNECT;
		rcm_rearm();
	}
	rcm_unlock();
	return err;
}

RCM_EXPORT int rdma_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	RCM_HARDWARE_WAITS(connect, cm_id, param);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id))
		return -1;
	int err = connect_id(id, param);

	if (err)
		return rcm_fail(err);
	free(id->connect);
	id->connect = NULL;
	id->connect_len = 0;
	return rcm_result(rcm_complete(id));
}

/* rcm.lock held. */
static int send_rep(struct rcm_id *id, const struct rcm_connect *c)
{
	struct vb_cm_rep rep = {
	        .local_qpn = c->qp_num,
	        .starting_psn = id->path.rq_psn,
	        .responder_resources = id->responder_resources,
	        .initiator_depth = id->initiator_depth,
	        .target_ack_delay = id->source.dev->ack_delay,
	        .flow_control = c->flow_control,
	        .srq = c->srq,
	        .rnr_retry_count = rcm_at_most(c->rnr_retry_count, 7),
	        .local_ca_guid = id->source.dev->guid,
	        .ece = {id->local_ece.vendor_id, id->local_ece.options},
	};

	if (!id->conn || c->len[0] + c->len[1] > VB_CM_REP_PRIVATE - id->iwarp_here)
		return EINVAL;
	if (id->iwarp_here)
		rcm_iw_pack(rep.private_data, VB_CM_REP_PRIVATE, c);
	else
		rcm_private_data(rep.private_data, c);
	id->path.responder_resources = id->responder_resources;
	id->path.initiator_depth = id->initiator_depth;
	if (!vb_cm_accept(&rcm.cm, id->conn, &rep, vb_gsi_client_now()))
		return EINVAL;
	id->delivers_events = true;
	return 0;
}

/* If the answer cannot be sent, rejects the peer. */
static int accept_peer(struct rcm_id *id, const struct rcm_connect *c)
{
	rcm_lock();
	bool before = id->delivers_events;

	id->delivers_events = true;
	int err = rcm_is_ud(id) ? rcm_sidr_accept(id, c) : send_rep(id, c);

	if (err) {
		id->delivers_events = before;
		if (id->conn && !rcm_is_ud(id))
			vb_cm_reject(&rcm.cm, id->conn, VB_CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0,
			             vb_gsi_client_now());
	}
	rcm_rearm();
	rcm_unlock();
	return err;
}

static int accept_id(struct rcm_id *id, const struct rdma_conn_param *param)
{
	struct rcm_connect c = connect_parameters(id, param);
	const struct rcm_device *dev = id->source.dev;

	if (id->state != RCM_CONNECT || !dev || (!param && !id->id.qp) || !valid_depths(id, param))
		return EINVAL;
	id->initiator_depth = param && param->initiator_depth != RDMA_MAX_INIT_DEPTH
	                              ? param->initiator_depth
	                              : rcm_at_most(id->initiator_depth, dev->max_initiator_depth);
	id->responder_resources = param && param->responder_resources != RDMA_MAX_RESP_RES
	                                  ? param->responder_resources
	                                  : rcm_at_most(id->responder_resources, dev->max_responder_resources);
	if (id->tcp)
		return rcm_iw_accept(id, &c);
	id->qpn = c.qp_num;
	int err = rcm_is_ud(id) ? 0 : rcm_qp_rtr(id, id->responder_resources);

	if (!err && !rcm_is_ud(id))
		err = rcm_qp_rts(id, id->initiator_depth);
	if (err)
		return err;
	err = accept_peer(id, &c);
	if (err && !rcm_is_ud(id))
		rcm_qp_err(id);
	return err;
}

RCM_EXPORT int rdma_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	/* No event follows the acceptance of a datagram id. */
	if (cm_id && cm_id->qp_type == IBV_QPT_UD)
		RCM_HARDWARE(accept, cm_id, param);
	RCM_HARDWARE_WAITS(accept, cm_id, param);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id))
		return -1;
	int err = accept_id(id, param);

	if (err)
		return rcm_fail(err);
	if (!rcm_is_ud(id))
		return rcm_result(rcm_complete(id));
	if (id->sync)
		rcm_drop_event(id);
	return 0;
}

static bool reject_conn(struct rcm_id *id, uint16_t reason, const void *data, size_t len)
{
	const struct rcm_connect c = {.data = {data}, .len = {len}};
	uint8_t field[VB_CM_REJ_PRIVATE] = {0};

	if (id->iwarp_here && len < sizeof(field)) {
		rcm_iw_pack(field, sizeof(field), &c);
		data = field;
		len = sizeof(field);
	}
	return vb_cm_reject(&rcm.cm, id->conn, reason, NULL, 0, data, len, vb_gsi_client_now());
}

static int reject_request(struct rdma_cm_id *cm_id, uint16_t reason, const void *data, uint8_t len)
{
	struct rcm_id *id = rcm_id(cm_id);
	int err = EINVAL;

	if (!rcm_ours(id))
		return EINVAL;
	len = data ? len : 0;
	rcm_lock();
	if (id->tcp)
		err = vb_iwcm_reject(id->tcp, data, len);
	else if (id->conn && rcm_is_ud(id))
		err = rcm_sidr_reject(id, data, len);
	else if (id->conn && reject_conn(id, reason, data, len))
		err = 0;
	rcm_rearm();
	rcm_unlock();
	return err;
}

void rcm_reject(struct rcm_id *id, uint16_t reason)
{
	rcm_lock();
	if (id->conn)
		reject_conn(id, reason, NULL, 0);
	rcm_rearm();
	rcm_unlock();
}

RCM_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	RCM_HARDWARE(reject, id, private_data, private_data_len);
	return rcm_result(reject_request(id, VB_CM_REJ_CONSUMER_DEFINED, private_data, private_data_len));
}

RCM_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	RCM_HARDWARE(reject_ece, id, private_data, private_data_len);
	return rcm_result(reject_request(id, VB_CM_REJ_VENDOR_OPTION, private_data, private_data_len));
}

static int send_rtu(struct rcm_id *id)
{
	rcm_lock();
	bool sent = id->conn && vb_cm_rtu(&rcm.cm, id->conn, NULL, 0, vb_gsi_client_now());

	rcm_rearm();
	rcm_unlock();
	return sent ? 0 : EINVAL;
}

int rcm_answer_response(struct rcm_id *id)
{
	int err = rcm_qp_rtr(id, RDMA_MAX_RESP_RES);

	if (!err)
		err = rcm_qp_rts(id, RDMA_MAX_INIT_DEPTH);
	if (!err)
		err = send_rtu(id);
	if (err)
		rcm_qp_err(id);
	return err;
}

RCM_EXPORT int rdma_establish(struct rdma_cm_id *cm_id)
{
	RCM_HARDWARE(establish, cm_id);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id))
		return -1;
	return rcm_result(cm_id->qp ? EINVAL : send_rtu(id));
}

RCM_EXPORT int rdma_notify(struct rdma_cm_id *cm_id, enum ibv_event_type event)
{
	RCM_HARDWARE(notify, cm_id, event);
	struct rcm_id *id = rcm_id(cm_id);
	int err = EINVAL;

	if (!rcm_ours(id))
		return -1;
	rcm_lock();
	if (id->tcp) {
		err = 0; /* a stream needs no notification */
	} else if (id->conn && event == IBV_EVENT_COMM_EST) {
		if (id->conn->state == VB_CM_ESTABLISHED)
			err = EISCONN;
		else if (vb_cm_establish(&rcm.cm, id->conn, vb_gsi_client_now()))
			err = 0;
		rcm_rearm();
	}
	rcm_unlock();
	return rcm_result(err);
}

/* If the connection has ended and that was reported already, no further event will arrive. */
static int await_end(struct rcm_id *id)
{
	rcm_lock();
	bool lives = id->state == RCM_CONNECT;
	rcm_unlock();
	return lives || rcm_pending(id) ? rcm_complete(id) : 0;
}

RCM_EXPORT int rdma_disconnect(struct rdma_cm_id *cm_id)
{
	RCM_HARDWARE_WAITS(disconnect, cm_id);
	struct rcm_id *id = rcm_id(cm_id);
	bool sent = false;
	int cancel;

	if (!rcm_ours(id))
		return -1;
	if (!cm_id->verbs)
		return rcm_fail(EINVAL);
	rcm_qp_lock(id, &cancel);
	int err = rcm_iw_disconnect(id);
	bool by_tcp = err != ENOENT;

	if (!by_tcp) {
		rcm_qp_hear(id);
		err = rcm_qp_err(id);
	}
	rcm_qp_unlock(id, cancel);
	if (err)
		return rcm_fail(err);
	if (by_tcp)
		return rcm_result(await_end(id));
	rcm_lock();
	struct vb_cm_conn *conn = id->conn;

	if (conn) {
		rcm_establish_heard(id);
		sent = vb_cm_disconnect(&rcm.cm, conn, NULL, 0, vb_gsi_client_now()) ||
		       vb_cm_dreply(&rcm.cm, conn, NULL, 0, vb_gsi_client_now());
		rcm_rearm();
	}
	rcm_unlock();
	if (!conn)
		return rcm_fail(EINVAL);
	/* If nothing is in progress, there is no event to wait for. */
	return sent || rcm_pending(id) ? rcm_result(rcm_complete(id)) : 0;
}
