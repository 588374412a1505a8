// answer.c - answers that need no connection
// follows: IBA volume 1, 12.6.7 (REJ), 12.6.11 (DREP), 12.8.2 (APR), 12.11.1.2 (SIDR_REP)
// SPDX-License-Identifier: MIT
#include "engine/cm/machine.h"
#include "frame/hello.h"

/* Makes a REJ of a REQ or REP. Its local id is the message's remote id, and vice versa. */
void vb_cm_rej_msg(struct vb_cm_msg *rej, const struct vb_cm_msg *msg, uint16_t reason)
{
	bool rep = msg->attr == VB_CM_REP;

	*rej = (struct vb_cm_msg){.attr = VB_CM_REJ,
	                          .tid = msg->tid,
	                          .rej = {.local_comm_id = rep ? msg->rep.remote_comm_id : 0,
	                                  .remote_comm_id = rep ? msg->rep.local_comm_id : msg->req.local_comm_id,
	                                  .answers = rep ? VB_CM_ANSWERS_REP : VB_CM_ANSWERS_REQ,
	                                  .reason = reason}};
}

void vb_cm_sidr_rep_msg(struct vb_cm_msg *rep, const struct vb_cm_msg *msg, uint8_t status)
{
	*rep = (struct vb_cm_msg){.attr = VB_CM_SIDR_REP,
	                          .tid = msg->tid,
	                          .sidr_rep = {.request_id = msg->sidr_req.request_id,
	                                       .service_id = msg->sidr_req.service_id,
	                                       .status = status}};
}

bool vb_cm_unknown_msg(struct vb_cm_msg *out, const struct vb_cm_msg *msg)
{
	switch (msg->attr) {
	case VB_CM_REP:
		vb_cm_rej_msg(out, msg, VB_CM_REJ_INVALID_COMM_ID);
		return true;
	case VB_CM_DREQ:
		*out = (struct vb_cm_msg){
		        .attr = VB_CM_DREP,
		        .tid = msg->tid,
		        .drep = {.local_comm_id = msg->dreq.remote_comm_id, .remote_comm_id = msg->dreq.local_comm_id}};
		return true;
	case VB_CM_LAP:
		*out = (struct vb_cm_msg){.attr = VB_CM_APR,
		                          .tid = msg->tid,
		                          .apr = {.local_comm_id = msg->lap.remote_comm_id,
		                                  .remote_comm_id = msg->lap.local_comm_id,
		                                  .status = VB_CM_APR_INVALID_COMM_ID}};
		return true;
	default:
		return false;
	}
}

bool vb_cm_make_rej(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len, uint16_t reason)
{
	struct vb_cm_msg msg, rej;

	if (!vb_cm_decode(&msg, mad, len) || (msg.attr != VB_CM_REQ && msg.attr != VB_CM_REP))
		return false;
	vb_cm_rej_msg(&rej, &msg, reason);
	if (msg.attr == VB_CM_REQ && reason == VB_CM_REJ_INVALID_SERVICE_ID &&
	    vb_hello_is_asked(msg.req.private_data + VB_CMA_LEN))
		vb_hello_answer(rej.rej.private_data, VB_VERSION); /* `verbena doctor` asked */
	vb_cm_encode(out, &rej);
	return true;
}

bool vb_cm_make_sidr_rep(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len, uint8_t status)
{
	struct vb_cm_msg msg, rep;

	if (!vb_cm_decode(&msg, mad, len) || msg.attr != VB_CM_SIDR_REQ)
		return false;
	vb_cm_sidr_rep_msg(&rep, &msg, status);
	vb_cm_encode(out, &rep);
	return true;
}

bool vb_cm_make_unknown(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len)
{
	struct vb_cm_msg msg, answer;

	if (!vb_cm_decode(&msg, mad, len) || !vb_cm_unknown_msg(&answer, &msg))
		return false;
	vb_cm_encode(out, &answer);
	return true;
}
