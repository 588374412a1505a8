// qp_state.c - the attributes that a connection sets on its queue pair, for each state
// follows: rdma_init_qp_attr(3), rdma_create_qp(3); IBA volume 1, 10.3.1 (states), 12.7 (which field of REQ and REP)
// SPDX-License-Identifier: MIT
#include "abi/port.h"
#include "rdmacm/fabric.h"
#include "rdmacm/hardware.h"

void rcm_ah_attr(const struct rcm_id *id, struct ibv_ah_attr *attr)
{
	if (rcm_on_fabric(id)) {
		rcm_fabric_ah_attr(id, attr);
		return;
	}
	*attr = (struct ibv_ah_attr){
	        .grh = {.dgid = id->path.dgid,
	                .flow_label = id->path.flow_label,
	                .sgid_index = (uint8_t)id->source.gid_index,
	                .hop_limit = id->path.hop_limit,
	                .traffic_class = id->path.traffic_class},
	        .sl = id->path.sl,
	        .static_rate = 0,
	        .is_global = 1,
	        .port_num = id->source.port,
	};
}

static bool connected_type(const struct rcm_id *id)
{
	return id->id.qp_type == IBV_QPT_RC || id->id.qp_type == IBV_QPT_XRC_SEND || id->id.qp_type == IBV_QPT_XRC_RECV;
}

static int init_attr(const struct rcm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	if (id->source.dev->iwarp) { /* the same before and after the connection is made */
		attr->port_num = id->source.port;
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		*mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
		return 0;
	}
	attr->pkey_index = rcm_on_fabric(id) ? rcm_fabric_pkey_index(id) : 0;
	attr->port_num = id->source.port;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (rcm_is_ud(id)) {
		attr->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_QKEY;
		return 0;
	}
	*mask |= IBV_QP_ACCESS_FLAGS;
	if (!id->conn)
		return 0;
	attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->path.responder_resources)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return 0;
}

static int rtr_attr(const struct rcm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	rcm_ah_attr(id, &attr->ah_attr);
	attr->path_mtu = (enum ibv_mtu)id->path.mtu;
	attr->dest_qp_num = id->path.remote_qpn;
	attr->rq_psn = id->path.rq_psn;
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (id->id.qp_type == IBV_QPT_RC || id->id.qp_type == IBV_QPT_XRC_RECV) {
		attr->max_dest_rd_atomic = id->path.responder_resources;
		attr->min_rnr_timer = 0;
		*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	return 0;
}

static int rts_attr(const struct rcm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	attr->sq_psn = id->path.sq_psn;
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (!connected_type(id))
		return 0;
	attr->timeout = id->ack_timeout_set ? id->ack_timeout : id->path.timeout;
	*mask |= IBV_QP_TIMEOUT;
	if (id->id.qp_type == IBV_QPT_XRC_RECV)
		return 0;
	attr->retry_cnt = id->path.retry_count;
	attr->rnr_retry = id->path.rnr_retry_count;
	attr->max_rd_atomic = id->path.initiator_depth;
	*mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return 0;
}

/* True if the connection already knows the attributes for this QP state. */
static bool attr_is_known(const struct rcm_id *id, enum ibv_qp_state state)
{
	switch (id->conn->state) {
	case VB_CM_REQ_SENT:
	case VB_CM_MRA_REQ_RCVD:
		return state == IBV_QPS_INIT;
	case VB_CM_REQ_RCVD:
	case VB_CM_MRA_REQ_SENT:
	case VB_CM_REP_RCVD:
	case VB_CM_MRA_REP_SENT:
	case VB_CM_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
	case VB_CM_ESTABLISHED:
		return true;
	default:
		return false;
	}
}

static int fill_attr(const struct rcm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	if (!id->source.dev)
		return EINVAL;
	if (id->source.dev->iwarp && (attr->qp_state == IBV_QPS_RTR || attr->qp_state == IBV_QPS_RTS)) {
		attr->port_num = id->source.port;
		*mask = IBV_QP_PORT; /* the connection changes the state */
		return id->tcp || id->conn ? 0 : EINVAL;
	}
	if (!id->conn || rcm_is_ud(id))
		return init_attr(id, attr, mask);
	if (!attr_is_known(id, attr->qp_state))
		return EINVAL;
	switch (attr->qp_state) {
	case IBV_QPS_INIT:
		return init_attr(id, attr, mask);
	case IBV_QPS_RTR:
		return rtr_attr(id, attr, mask);
	case IBV_QPS_RTS:
		return rts_attr(id, attr, mask);
	default:
		return EINVAL;
	}
}

/* The attributes for the state that *attr names. */
static int get_attr(struct rcm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	struct ibv_qp_attr got = {.qp_state = attr->qp_state};
	int got_mask = 0;

	if (!rcm_ours(id))
		return EINVAL;
	rcm_lock();
	int err = fill_attr(id, &got, &got_mask);

	rcm_unlock();
	if (err)
		return err;
	*attr = got;
	*mask = got_mask;
	return 0;
}

RCM_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *cm_id, struct ibv_qp_attr *attr, int *mask)
{
	RCM_HARDWARE(init_qp_attr, cm_id, attr, mask);
	return rcm_result(get_attr(rcm_id(cm_id), attr, mask));
}

/* Brings a datagram queue pair to RTS and a connected one to INIT. */
int rcm_qp_init(struct rcm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask, err = get_attr(id, &attr, &mask);

	if (!err)
		err = ibv_modify_qp(qp, &attr, mask);
	if (err || !rcm_is_ud(id))
		return err;
	attr.qp_state = IBV_QPS_RTR;
	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (err)
		return err;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/* Modifies the queue pair of an iWARP device whose peer is on this host. */
static int modify_here(struct rcm_id *id, struct ibv_qp_attr *attr, int mask)
{
	return vb_iwcm_modify_here(id->source.dev->verbs, id->qpn, attr, mask);
}

static int rtr_here(struct rcm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;

	rcm_lock();
	rtr_attr(id, &attr, &mask);
	rcm_unlock();
	return modify_here(id, &attr, mask);
}

static int rts_here(struct rcm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	int mask;

	rcm_lock();
	rts_attr(id, &attr, &mask);
	rcm_unlock();
	return modify_here(id, &attr, mask);
}

/* Brings the queue pair to RTR with the negotiated access flags. */
int rcm_qp_rtr(struct rcm_id *id, uint8_t responder_resources)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask, err;

	if (id->iwarp_here)
		return rtr_here(id);
	if (!id->id.qp)
		return 0;
	err = get_attr(id, &attr, &mask);
	if (!err)
		err = ibv_modify_qp(id->id.qp, &attr, mask);
	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = get_attr(id, &attr, &mask);
	if (err)
		return err;
	if (responder_resources != RDMA_MAX_RESP_RES)
		attr.max_dest_rd_atomic = responder_resources;
	return ibv_modify_qp(id->id.qp, &attr, mask);
}

int rcm_qp_rts(struct rcm_id *id, uint8_t initiator_depth)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	int mask, err;

	if (id->iwarp_here)
		return rts_here(id);
	if (!id->id.qp)
		return 0;
	err = get_attr(id, &attr, &mask);
	if (err)
		return err;
	if (initiator_depth != RDMA_MAX_INIT_DEPTH)
		attr.max_rd_atomic = initiator_depth;
	return ibv_modify_qp(id->id.qp, &attr, mask);
}

/* By its number, because the program may have destroyed it by ibv_destroy_qp. */
void rcm_qp_hear(struct rcm_id *id)
{
	rcm_lock();
	const struct vb_cm_conn *conn = id->conn;
	bool waits = conn && id->source.dev && (conn->state == VB_CM_REP_SENT || conn->state == VB_CM_MRA_REP_RCVD);
	uint32_t qpn = waits ? conn->local_qpn : 0;

	rcm_unlock();
	if (!waits || !vb_queue_pair_has_heard(id->source.dev->verbs, qpn))
		return;
	rcm_lock();
	id->heard = true;
	rcm_unlock();
}

/* IBA 12.9.7: data before the RTU establishes the connection, as rdma_notify(3) does. */
void rcm_establish_heard(struct rcm_id *id)
{
	if (id->heard && id->conn)
		vb_cm_establish(&rcm.cm, id->conn, vb_gsi_client_now());
}

int rcm_qp_err(struct rcm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!id->id.qp && id->iwarp_here && id->qpn)
		vb_iwcm_modify_here(id->source.dev->verbs, id->qpn, &attr, IBV_QP_STATE);
	return id->id.qp ? ibv_modify_qp(id->id.qp, &attr, IBV_QP_STATE) : 0;
}
