// sidr.c - service id resolution: requests and answers for the queue pair of an address and port
// follows: rdma_cm(7) (RDMA_PS_UDP); IBA volume 1, 12.11 (service id resolution)
// SPDX-License-Identifier: MIT
#include "rdmacm/rdmacm.h"
#include "frame/fields.h"

int rcm_sidr_connect(struct rcm_id *id, const struct rcm_connect *c)
{
	struct vb_cm_addr addr = rcm_cm_addr(id);
	struct vb_cm_sidr_req req = {.pkey = rcm_on_fabric(id) ? id->path.pkey : VB_DEFAULT_PKEY,
	                             .service_id = rcm_service_id(id, &id->dst)};

	if (c->len[0] + c->len[1] > VB_CM_SIDR_REQ_PRIVATE - rcm_cma_len(id))
		return EINVAL;
	rcm_private_data(req.private_data + rcm_cma_header(id, req.private_data), c);
	id->conn = vb_cm_sidr_request(&rcm.cm, &addr, &req, vb_cm_time(RCM_RESPONSE_TIMEOUT), RCM_CM_RETRIES, id,
	                              vb_gsi_client_now());
	return id->conn ? 0 : ENOMEM;
}

int rcm_sidr_accept(struct rcm_id *id, const struct rcm_connect *c)
{
	struct vb_cm_sidr_rep rep = {.status = VB_CM_SIDR_OK,
	                             .qpn = c->qp_num,
	                             .qkey = RDMA_UDP_QKEY,
	                             .ece = {id->local_ece.vendor_id, id->local_ece.options}};

	if (!id->conn || c->len[0] + c->len[1] > VB_CM_SIDR_REP_PRIVATE)
		return EINVAL;
	rcm_private_data(rep.private_data, c);
	return vb_cm_sidr_reply(&rcm.cm, id->conn, &rep, vb_gsi_client_now()) ? 0 : EINVAL;
}

int rcm_sidr_reject(struct rcm_id *id, const void *data, size_t len)
{
	struct vb_cm_sidr_rep rep = {.status = VB_CM_SIDR_REJECTED};

	if (len > VB_CM_SIDR_REP_PRIVATE)
		return EINVAL;
	if (len)
		memcpy(rep.private_data, data, len);
	return vb_cm_sidr_reply(&rcm.cm, id->conn, &rep, vb_gsi_client_now()) ? 0 : EINVAL;
}
