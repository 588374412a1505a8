// admin.c - admin commands: the table of them, keep alive, abort
// follows: NVM Express Base 1.4, chapter 5; 5.1 (abort), 5.11 (keep alive)
// SPDX-License-Identifier: MIT
#include "target/core.h"

static void keep_alive_run(struct nt_request *r)
{
	nt_complete(r, 0); /* its arrival has restarted the timer */
}

static void abort_command(struct nt_request *r)
{
	struct nt_controller *c = r->queue->ctrl;
	uint16_t sqid = (uint16_t)r->sqe.cdw[0], cid = (uint16_t)(r->sqe.cdw[0] >> 16);
	struct nt_queue *q = sqid <= NT_QUEUES_MAX ? c->queues[sqid] : NULL;

	r->cqe.result = 1; /* not aborted */
	if (!q) {
		r->error_at = NV_SQE_AT_CDW10;
		nt_complete(r, NV_INVALID_FIELD | NV_DNR);
		return;
	}
	for (uint32_t slot = 1; slot <= q->entries; slot++) {
		struct nt_request *other = nt_slot(q, slot);

		if (!other || other == r || other->sqe.cid != cid || other->stranger)
			continue;
		if (other->state == NT_MEMORY || other->state == NT_QUEUED || nt_event_forget(c, other)) {
			nt_fail(other, NV_ABORT_REQUESTED);
			r->cqe.result = 0;
		}
		break;
	}
	nt_complete(r, 0);
}

static const struct nt_command_info commands[] = {
        {.opcode = NV_ADMIN_GET_LOG, .way = NT_TO_HOST, .zeroed = true, .check = nt_get_log_check, .run = nt_get_log},
        {.opcode = NV_ADMIN_IDENTIFY,
         .way = NT_TO_HOST,
         .zeroed = true,
         .check = nt_identify_check,
         .run = nt_identify},
        {.opcode = NV_ADMIN_ABORT, .run = abort_command},
        {.opcode = NV_ADMIN_SET_FEATURES, .check = nt_set_features_check, .run = nt_set_features},
        {.opcode = NV_ADMIN_GET_FEATURES, .check = nt_get_features_check, .run = nt_get_features},
        {.opcode = NV_ADMIN_ASYNC_EVENT, .check = nt_async_event_check, .run = nt_async_event},
        {.opcode = NV_ADMIN_KEEP_ALIVE, .run = keep_alive_run},
};

/* Two features have data: the host identifier, and the timestamp. */
static const struct nt_command_info get_data = {.opcode = NV_ADMIN_GET_FEATURES,
                                                .way = NT_TO_HOST,
                                                .zeroed = true,
                                                .check = nt_get_features_check,
                                                .run = nt_get_features};
static const struct nt_command_info set_data = {
        .opcode = NV_ADMIN_SET_FEATURES, .way = NT_FROM_HOST, .check = nt_set_features_check, .run = nt_set_features};

const struct nt_command_info *nt_admin_info(struct nt_request *r, uint16_t *status)
{
	uint8_t op = r->sqe.opcode, feature = (uint8_t)r->sqe.cdw[0];
	bool discovery = r->queue->ctrl->subsystem->discovery, stamp = feature == NV_FEAT_TIMESTAMP && !discovery;

	*status = NV_INVALID_OPCODE | NV_DNR;
	/* the only commands of a discovery controller. Fabrics 1.1, figure 33 */
	if (discovery && op == NV_ADMIN_ABORT)
		return NULL;
	if (op == NV_ADMIN_GET_FEATURES && (feature == NV_FEAT_HOST_ID || stamp) && (r->sqe.cdw[0] >> 8 & 7) != 3)
		return &get_data;
	if (op == NV_ADMIN_SET_FEATURES && stamp)
		return &set_data;
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (commands[i].opcode == op)
			return &commands[i];
	return NULL;
}
