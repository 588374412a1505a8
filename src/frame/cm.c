// cm.c - encodes and decodes the messages of connection management
// follows: IBA volume 1, 12.6.5 to 12.6.11 (REQ to DREP), 12.8 (LAP, APR), 12.11.1 (SIDR_REQ, SIDR_REP)
// SPDX-License-Identifier: MIT
#include "frame/cm.h"

#include "frame/fields.h"

static void get_bytes(struct vb_reader *r, uint8_t *to, size_t n)
{
	const uint8_t *at = vb_take(r, n);

	if (at)
		memcpy(to, at, n);
	else
		memset(to, 0, n);
}

static uint8_t at_most_ari(uint8_t len)
{
	return len < VB_CM_ARI ? len : VB_CM_ARI;
}

/* Both ids, as most messages begin. */
#define GET_IDS(r, m) ((m)->local_comm_id = vb_get32(r), (m)->remote_comm_id = vb_get32(r))
#define PUT_IDS(w, m) (vb_put32(w, (m)->local_comm_id), vb_put32(w, (m)->remote_comm_id))

static void get_ports(struct vb_reader *r, struct vb_cm_path *p)
{
	p->local_lid = vb_get16(r);
	p->remote_lid = vb_get16(r);
	get_bytes(r, p->local_gid, VB_GID_LEN);
	get_bytes(r, p->remote_gid, VB_GID_LEN);
}

static void put_ports(struct vb_writer *w, const struct vb_cm_path *p)
{
	vb_put16(w, p->local_lid);
	vb_put16(w, p->remote_lid);
	vb_put_bytes(w, p->local_gid, VB_GID_LEN);
	vb_put_bytes(w, p->remote_gid, VB_GID_LEN);
}

/* SL, subnet local, resv3. */
static void get_sl(struct vb_reader *r, struct vb_cm_path *p)
{
	uint8_t v = vb_get8(r);

	p->sl = v >> 4;
	p->subnet_local = v >> 3 & 1;
}

static void put_sl(struct vb_writer *w, const struct vb_cm_path *p)
{
	vb_put8(w, (uint8_t)(p->sl << 4 | p->subnet_local << 3));
}

/* A path of a REQ: ports; flow label, resv6, packet rate; traffic class; hop limit; SL; ack timeout, and three bits
 * that the function returns. */
static uint8_t get_req_path(struct vb_reader *r, struct vb_cm_path *p)
{
	get_ports(r, p);
	uint32_t v = vb_get32(r);

	p->flow_label = v >> 12;
	p->packet_rate = v & 63;
	p->traffic_class = vb_get8(r);
	p->hop_limit = vb_get8(r);
	get_sl(r, p);
	uint8_t last = vb_get8(r);

	p->ack_timeout = last >> 3;
	return last & 7;
}

static void put_req_path(struct vb_writer *w, const struct vb_cm_path *p, uint8_t last)
{
	put_ports(w, p);
	vb_put32(w, p->flow_label << 12 | (p->packet_rate & 63));
	vb_put8(w, p->traffic_class);
	vb_put8(w, p->hop_limit);
	put_sl(w, p);
	vb_put8(w, (uint8_t)(p->ack_timeout << 3 | last));
}

static void get_req(struct vb_reader *r, struct vb_cm_req *m)
{
	m->local_comm_id = vb_get32(r);
	m->ece.vendor_id = vb_get32(r) & VB_VENDOR_ID_MASK;
	m->service_id = vb_get64(r);
	m->local_ca_guid = vb_get64(r);
	vb_get32(r);
	m->local_qkey = vb_get32(r);
	m->local_qpn = vb_get24(r);
	m->responder_resources = vb_get8(r);
	m->local_eecn = vb_get24(r);
	m->initiator_depth = vb_get8(r);
	m->remote_eecn = vb_get24(r);
	uint8_t v = vb_get8(r);

	m->remote_response_timeout = v >> 3;
	m->transport = v >> 1 & 3;
	m->flow_control = v & 1;
	m->starting_psn = vb_get24(r);
	v = vb_get8(r);
	m->local_response_timeout = v >> 3;
	m->retry_count = v & 7;
	m->pkey = vb_get16(r);
	v = vb_get8(r);
	m->mtu = v >> 4;
	m->rdc_exists = v >> 3 & 1;
	m->rnr_retry_count = v & 7;
	v = vb_get8(r);
	m->max_cm_retries = v >> 4;
	m->srq = v >> 3 & 1;
	m->extended_transport = v & 7;
	get_req_path(r, &m->primary);
	m->sap_supported = get_req_path(r, &m->alternate) >> 2;
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_req(struct vb_writer *w, const struct vb_cm_req *m)
{
	vb_put32(w, m->local_comm_id);
	vb_put32(w, m->ece.vendor_id & VB_VENDOR_ID_MASK);
	vb_put64(w, m->service_id);
	vb_put64(w, m->local_ca_guid);
	vb_put32(w, 0);
	vb_put32(w, m->local_qkey);
	vb_put24(w, m->local_qpn);
	vb_put8(w, m->responder_resources);
	vb_put24(w, m->local_eecn);
	vb_put8(w, m->initiator_depth);
	vb_put24(w, m->remote_eecn);
	vb_put8(w, (uint8_t)(m->remote_response_timeout << 3 | (m->transport & 3) << 1 | m->flow_control));
	vb_put24(w, m->starting_psn);
	vb_put8(w, (uint8_t)(m->local_response_timeout << 3 | (m->retry_count & 7)));
	vb_put16(w, m->pkey);
	vb_put8(w, (uint8_t)(m->mtu << 4 | m->rdc_exists << 3 | (m->rnr_retry_count & 7)));
	vb_put8(w, (uint8_t)(m->max_cm_retries << 4 | m->srq << 3 | (m->extended_transport & 7)));
	put_req_path(w, &m->primary, 0);
	put_req_path(w, &m->alternate, (uint8_t)(m->sap_supported << 2));
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_mra(struct vb_reader *r, struct vb_cm_mra *m)
{
	GET_IDS(r, m);
	m->answers = vb_get8(r) >> 6;
	m->service_timeout = vb_get8(r) >> 3;
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_mra(struct vb_writer *w, const struct vb_cm_mra *m)
{
	PUT_IDS(w, m);
	vb_put8(w, (uint8_t)(m->answers << 6));
	vb_put8(w, (uint8_t)(m->service_timeout << 3));
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_rej(struct vb_reader *r, struct vb_cm_rej *m)
{
	GET_IDS(r, m);
	m->answers = vb_get8(r) >> 6;
	m->ari_len = at_most_ari(vb_get8(r) >> 1);
	m->reason = vb_get16(r);
	get_bytes(r, m->ari, sizeof(m->ari));
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_rej(struct vb_writer *w, const struct vb_cm_rej *m)
{
	PUT_IDS(w, m);
	vb_put8(w, (uint8_t)(m->answers << 6));
	vb_put8(w, (uint8_t)(at_most_ari(m->ari_len) << 1));
	vb_put16(w, m->reason);
	vb_put_bytes(w, m->ari, sizeof(m->ari));
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_rep(struct vb_reader *r, struct vb_cm_rep *m)
{
	GET_IDS(r, m);
	m->local_qkey = vb_get32(r);
	m->local_qpn = vb_get24(r);
	m->ece.vendor_id = (uint32_t)vb_get8(r) << 16;
	m->local_eecn = vb_get24(r);
	m->ece.vendor_id |= (uint32_t)vb_get8(r) << 8;
	m->starting_psn = vb_get24(r);
	m->ece.vendor_id |= vb_get8(r);
	m->responder_resources = vb_get8(r);
	m->initiator_depth = vb_get8(r);
	uint8_t v = vb_get8(r);

	m->target_ack_delay = v >> 3;
	m->failover_accepted = v >> 1 & 3;
	m->flow_control = v & 1;
	v = vb_get8(r);
	m->rnr_retry_count = v >> 5;
	m->srq = v >> 4 & 1;
	m->local_ca_guid = vb_get64(r);
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_rep(struct vb_writer *w, const struct vb_cm_rep *m)
{
	PUT_IDS(w, m);
	vb_put32(w, m->local_qkey);
	vb_put24(w, m->local_qpn);
	vb_put8(w, (uint8_t)(m->ece.vendor_id >> 16));
	vb_put24(w, m->local_eecn);
	vb_put8(w, (uint8_t)(m->ece.vendor_id >> 8));
	vb_put24(w, m->starting_psn);
	vb_put8(w, (uint8_t)m->ece.vendor_id);
	vb_put8(w, m->responder_resources);
	vb_put8(w, m->initiator_depth);
	vb_put8(w, (uint8_t)(m->target_ack_delay << 3 | (m->failover_accepted & 3) << 1 | m->flow_control));
	vb_put8(w, (uint8_t)(m->rnr_retry_count << 5 | m->srq << 4));
	vb_put64(w, m->local_ca_guid);
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_rtu(struct vb_reader *r, struct vb_cm_rtu *m)
{
	GET_IDS(r, m);
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_rtu(struct vb_writer *w, const struct vb_cm_rtu *m)
{
	PUT_IDS(w, m);
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_dreq(struct vb_reader *r, struct vb_cm_dreq *m)
{
	GET_IDS(r, m);
	m->remote_qpn = vb_get24(r);
	vb_get8(r);
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_dreq(struct vb_writer *w, const struct vb_cm_dreq *m)
{
	PUT_IDS(w, m);
	vb_put24(w, m->remote_qpn);
	vb_put8(w, 0);
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_drep(struct vb_reader *r, struct vb_cm_drep *m)
{
	GET_IDS(r, m);
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_drep(struct vb_writer *w, const struct vb_cm_drep *m)
{
	PUT_IDS(w, m);
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

/* The layout of the path differs from a REQ's: ports; flow label, resv4, traffic class; hop limit; resv2, packet rate;
 * SL; ack timeout, resv3. */
static void get_lap(struct vb_reader *r, struct vb_cm_lap *m)
{
	struct vb_cm_path *p = &m->alternate;

	GET_IDS(r, m);
	vb_get32(r);
	m->remote_qpn = vb_get24(r);
	m->remote_response_timeout = vb_get8(r) >> 3;
	vb_get32(r);
	get_ports(r, p);
	p->flow_label = vb_get24(r) >> 4;
	p->traffic_class = vb_get8(r);
	p->hop_limit = vb_get8(r);
	p->packet_rate = vb_get8(r) & 63;
	get_sl(r, p);
	p->ack_timeout = vb_get8(r) >> 3;
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_lap(struct vb_writer *w, const struct vb_cm_lap *m)
{
	const struct vb_cm_path *p = &m->alternate;

	PUT_IDS(w, m);
	vb_put32(w, 0);
	vb_put24(w, m->remote_qpn);
	vb_put8(w, (uint8_t)(m->remote_response_timeout << 3));
	vb_put32(w, 0);
	put_ports(w, p);
	vb_put24(w, p->flow_label << 4);
	vb_put8(w, p->traffic_class);
	vb_put8(w, p->hop_limit);
	vb_put8(w, p->packet_rate & 63);
	put_sl(w, p);
	vb_put8(w, (uint8_t)(p->ack_timeout << 3));
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_apr(struct vb_reader *r, struct vb_cm_apr *m)
{
	GET_IDS(r, m);
	m->ari_len = at_most_ari(vb_get8(r));
	m->status = vb_get8(r);
	vb_get16(r);
	get_bytes(r, m->ari, sizeof(m->ari));
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_apr(struct vb_writer *w, const struct vb_cm_apr *m)
{
	PUT_IDS(w, m);
	vb_put8(w, at_most_ari(m->ari_len));
	vb_put8(w, m->status);
	vb_put16(w, 0);
	vb_put_bytes(w, m->ari, sizeof(m->ari));
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_sidr_req(struct vb_reader *r, struct vb_cm_sidr_req *m)
{
	m->request_id = vb_get32(r);
	m->pkey = vb_get16(r);
	vb_get16(r);
	m->service_id = vb_get64(r);
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_sidr_req(struct vb_writer *w, const struct vb_cm_sidr_req *m)
{
	vb_put32(w, m->request_id);
	vb_put16(w, m->pkey);
	vb_put16(w, 0);
	vb_put64(w, m->service_id);
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

static void get_sidr_rep(struct vb_reader *r, struct vb_cm_sidr_rep *m)
{
	m->request_id = vb_get32(r);
	m->status = vb_get8(r);
	m->ari_len = at_most_ari(vb_get8(r));
	m->ece.vendor_id = (uint32_t)vb_get16(r) << 8;
	m->qpn = vb_get24(r);
	m->ece.vendor_id |= vb_get8(r);
	m->service_id = vb_get64(r);
	m->qkey = vb_get32(r);
	get_bytes(r, m->ari, sizeof(m->ari));
	get_bytes(r, m->private_data, sizeof(m->private_data));
}

static void put_sidr_rep(struct vb_writer *w, const struct vb_cm_sidr_rep *m)
{
	vb_put32(w, m->request_id);
	vb_put8(w, m->status);
	vb_put8(w, at_most_ari(m->ari_len));
	vb_put16(w, (uint16_t)(m->ece.vendor_id >> 8));
	vb_put24(w, m->qpn);
	vb_put8(w, (uint8_t)m->ece.vendor_id);
	vb_put64(w, m->service_id);
	vb_put32(w, m->qkey);
	vb_put_bytes(w, m->ari, sizeof(m->ari));
	vb_put_bytes(w, m->private_data, sizeof(m->private_data));
}

/* The ECE options of a message, or NULL if it has none. */
static uint32_t *ece_options(struct vb_cm_msg *msg)
{
	return msg->attr == VB_CM_REQ        ? &msg->req.ece.options
	       : msg->attr == VB_CM_REP      ? &msg->rep.ece.options
	       : msg->attr == VB_CM_SIDR_REP ? &msg->sidr_rep.ece.options
	                                     : NULL;
}

static bool is_cm_message(const struct vb_mad *h)
{
	return h->base_version == VB_MAD_BASE_VERSION && h->mgmt_class == VB_MAD_CLASS_CM &&
	       h->class_version == VB_MAD_CLASS_CM_VERSION && h->method == VB_MAD_METHOD_SEND;
}

bool vb_cm_decode(struct vb_cm_msg *msg, const uint8_t *mad, size_t len)
{
	struct vb_reader r = vb_reader(mad, len);
	struct vb_mad h;

	if (len != VB_MAD_LEN)
		return false;
	vb_mad_decode(&r, &h);
	if (!is_cm_message(&h))
		return false;
	switch (h.attr_id) {
#define X(code, name, field, n)               \
	case code:                            \
		get_##field(&r, &msg->field); \
		break;
		VB_CM_MESSAGES(X)
#undef X
	default:
		return false;
	}
	msg->attr = h.attr_id;
	msg->tid = h.tid;
	uint32_t *options = ece_options(msg);

	if (options)
		*options = h.attr_mod;
	return true;
}

void vb_cm_encode(uint8_t mad[VB_MAD_LEN], const struct vb_cm_msg *msg)
{
	struct vb_writer w = vb_writer(mad, VB_MAD_LEN);
	const uint32_t *options = ece_options((struct vb_cm_msg *)msg);

	vb_mad_encode(&w, &(struct vb_mad){.base_version = VB_MAD_BASE_VERSION,
	                                   .mgmt_class = VB_MAD_CLASS_CM,
	                                   .class_version = VB_MAD_CLASS_CM_VERSION,
	                                   .method = VB_MAD_METHOD_SEND,
	                                   .tid = msg->tid,
	                                   .attr_id = (uint16_t)msg->attr,
	                                   .attr_mod = options ? *options : 0});
	switch (msg->attr) {
#define X(code, name, field, n)               \
	case code:                            \
		put_##field(&w, &msg->field); \
		break;
		VB_CM_MESSAGES(X)
#undef X
	}
	vb_put_zeros(&w, VB_MAD_LEN - w.pos);
}

uint8_t vb_cm_time_code(uint64_t ns)
{
	uint8_t code = 0;

	while (code < 31 && vb_cm_time(code + 1) <= ns)
		code++;
	return code;
}

const char *vb_cm_reason_text(uint16_t reason)
{
	switch (reason) {
#define X(code, name, text) \
	case code:          \
		return text;
		VB_CM_REASONS(X)
#undef X
	default:
		return "?";
	}
}
