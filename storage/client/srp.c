// srp.c - a channel of a SRP initiator: sends commands as the target's credits allow, takes responses and requests
// follows: SRP (ANSI INCITS 365, T10/1415-D), 5, 6
// SPDX-License-Identifier: MIT
#include "client/srp.h"

#include <errno.h>

#define TAG_MANAGEMENT (1ull << 32) /* tags of commands are their ids of 16 bits */

/* ---- output ---- */

/* One credit is kept for task management, unless nothing else would be sent. SRP, 4.6.1 */
static bool has_credit(const struct vn_srp_queue *s)
{
	return s->credits > 1 || (s->credits && !s->on_way);
}

/* Describes data in memory that the target reaches. */
static void describe_data(const struct vn_srp_queue *s, struct sp_buffer *b, const uint8_t *message)
{
	b->format = s->login.formats & SP_FORMAT_DIRECT ? SP_DESC_DIRECT : SP_DESC_INDIRECT;
	b->table = (struct sp_desc){(uintptr_t)message + SP_CMD_LEN + SP_INDIRECT_LEN, s->r.mr->rkey, SP_DESC_LEN};
}

static bool place_data(struct vn_srp_queue *s, struct vn_cmd *c, enum vn_scsi_data what, struct sp_cmd *m,
                       struct sp_desc *d, uint8_t *message)
{
	*d = (struct sp_desc){0};
	switch (what) {
	case VN_SCSI_NONE:
		return true;
	case VN_SCSI_UNMAP:
		*d = (struct sp_desc){(uintptr_t)message + VN_SRP_LIST, s->r.mr->rkey, VN_SCSI_LIST};
		break;
	case VN_SCSI_ZEROES:
		*d = (struct sp_desc){(uintptr_t)s->r.spare, s->r.mr->rkey, s->block};
		break;
	case VN_SCSI_CALLERS:
		d->len = c->length;
		if (c->way == VN_TO_TARGET && s->immediate && c->length <= s->r.q.inline_max) {
			m->out.format = SP_DESC_IMMEDIATE;
			return true;
		}
		if (!vn_rdma_reach(&s->r, c, &d->va, &d->key))
			return false;
		break;
	}
	describe_data(s, what == VN_SCSI_CALLERS && c->way == VN_FROM_TARGET ? &m->in : &m->out, message);
	return true;
}

static void send_command(struct vn_srp_queue *s, struct vn_cmd *c)
{
	struct vn_queue *q = &s->r.q;
	uint8_t *message = vn_rdma_message(&s->r, c->cid & q->mask);
	struct sp_cmd m = {.tag = c->cid};
	struct sp_desc d;

	memset(&c->rdma, 0, sizeof(c->rdma));
	if (!place_data(s, c, vn_scsi_cdb(c, s->fua, message + VN_SRP_LIST), &m, &d, message))
		return;
	memcpy(m.lun, s->lun, sizeof(m.lun));
	memcpy(m.cdb, c->scsi.cdb, sizeof(m.cdb));
	size_t len = sp_cmd_encode(&m, &d, message);
	struct ibv_send_wr *w = vn_rdma_prepare(&s->r, c->cid, message, (uint32_t)len);

	if (m.out.format == SP_DESC_IMMEDIATE) {
		memset(message + len, 0, VN_SRP_IMMEDIATE - len);
		vn_rdma_inside(&s->r, c, w, message, VN_SRP_IMMEDIATE);
	}
	c->scsi.sent = true;
	s->credits--;
	s->on_way++;
	vn_rdma_post(&s->r);
}

static void spend_credits(struct vn_srp_queue *s)
{
	while (s->waiting && has_credit(s) && !s->r.q.error) {
		struct vn_cmd *c = s->waiting;

		if (!(s->waiting = c->next))
			s->waiting_end = &s->waiting;
		send_command(s, c);
	}
}

static void queue_command(struct vn_srp_queue *s, struct vn_cmd *c)
{
	c->scsi.sent = false;
	c->next = NULL;
	*s->waiting_end = c;
	s->waiting_end = &c->next;
	spend_credits(s);
}

static void srp_submit(struct vn_queue *q, struct vn_cmd *c)
{
	memset(&c->rdma, 0, sizeof(c->rdma));
	c->scsi.synced = c->scsi.aborting = false;
	queue_command(vn_srp_of(q), c);
}

/* Its memory, or NULL: the queue is broken, because the target acknowledges nothing. */
static uint8_t *own_message(struct vn_srp_queue *s, unsigned *index)
{
	for (unsigned i = 0; i < VN_SRP_OWN; i++)
		if (!(s->telling >> i & 1)) {
			*index = i;
			return vn_rdma_message(&s->r, s->r.q.depth + i);
		}
	vn_queue_break(&s->r.q, EPROTO, "the target sent too many requests");
	return NULL;
}

static void send_own(struct vn_srp_queue *s, unsigned index, uint32_t len)
{
	s->telling |= 1u << index;
	vn_rdma_prepare(&s->r, VN_RDMA_OWN | index, vn_rdma_message(&s->r, s->r.q.depth + index), len);
	vn_rdma_post(&s->r);
}

static void own_sent(struct vn_rdma_queue *r, unsigned index)
{
	vn_srp_of(&r->q)->telling &= ~(1u << index);
}

/* ---- input ---- */

static void report_news(struct vn_srp_queue *s)
{
	s->r.q.news = true;
	if (s->r.q.path)
		vn_care(s->r.q.path);
}

static void add_credits(struct vn_srp_queue *s, uint32_t n)
{
	uint32_t fewer = 0u - n;

	if (n > INT32_MAX) /* a negative number: a target may take credits back */
		s->credits -= s->credits < fewer ? s->credits : fewer;
	else
		s->credits = n < VN_SRP_CREDITS_MAX - s->credits ? s->credits + n : VN_SRP_CREDITS_MAX;
}

static void take_srp_response(struct vn_srp_queue *s, const struct sp_rsp *rsp)
{
	struct vn_cmd *c = rsp->tag <= UINT16_MAX ? vn_queue_find(&s->r.q, (uint16_t)rsp->tag) : NULL;

	if (!c || c->answered || !c->scsi.sent) {
		vn_queue_break(&s->r.q, EPROTO, "the target sent an answer to no command");
		return;
	}
	if (vn_scsi_answer(c, rsp, c->length))
		report_news(s);
	c->scsi.aborting = false;
	s->on_way--;
	c->answered = true;
	vn_rdma_maybe_over(&s->r, c);
}

/* The answer to ABORT TASK: no response to the task follows it. A response may have come before it; then the command
 * is over, or has a second part with the same tag. */
static void take_management(struct vn_srp_queue *s, const struct sp_rsp *rsp)
{
	struct vn_cmd *c = vn_queue_find(&s->r.q, s->managed);

	if (!s->managing || rsp->tag != (TAG_MANAGEMENT | s->managements)) {
		vn_queue_break(&s->r.q, EPROTO, "the target sent an answer to no command");
		return;
	}
	s->managing = false;
	if (rsp->flags & SP_RSP_VALID && rsp->code != SP_DONE) {
		vn_queue_break(&s->r.q, ETIMEDOUT, "a command is not answered, and cannot be aborted");
		return;
	}
	if (!c || !c->scsi.aborting)
		return;
	c->cqe = (struct nv_cqe){.status = NV_ABORT_REQUESTED};
	s->on_way--;
	c->answered = true;
	vn_rdma_maybe_over(&s->r, c);
}

static void take_request(struct vn_srp_queue *s, const struct sp_target_req *q)
{
	unsigned index;
	uint8_t *at;

	if (q->opcode == SP_T_LOGOUT) {
		vn_queue_break(&s->r.q, ECONNRESET, "the target has ended the login");
		return;
	}
	add_credits(s, q->value);
	if (q->opcode == SP_AER_REQ)
		report_news(s);
	if (!(at = own_message(s, &index)))
		return;
	sp_short_encode(q->opcode == SP_AER_REQ ? SP_AER_RSP : SP_CRED_RSP, 0, q->tag, at);
	send_own(s, index, SP_SHORT_LEN);
}

static void take_srp_message(struct vn_srp_queue *s, const uint8_t *at, uint32_t len)
{
	struct sp_target_req request;
	struct sp_rsp rsp;

	if (sp_rsp_decode(at, len, &rsp)) {
		add_credits(s, rsp.credits);
		if (rsp.tag & TAG_MANAGEMENT)
			take_management(s, &rsp);
		else
			take_srp_response(s, &rsp);
	} else if (sp_target_req_decode(at, len, &request)) {
		take_request(s, &request);
	} else {
		vn_queue_break(&s->r.q, EPROTO, "the target sent a message that SRP does not have");
	}
}

/* The target may write to the memory of messages, so each is copied before it is looked at. */
static void srp_received(struct vn_rdma_queue *r, unsigned slot, uint32_t length)
{
	uint8_t copy[VN_SRP_ANSWER];

	if (length > sizeof(copy))
		length = sizeof(copy);
	memcpy(copy, r->answers + (size_t)slot * VN_SRP_ANSWER, length);
	if (!vn_rdma_receive(r, slot)) {
		vn_queue_break(&r->q, EIO, "posting a receive");
		return;
	}
	take_srp_message(vn_srp_of(&r->q), copy, length);
	spend_credits(vn_srp_of(&r->q));
}

/* A write that has to be durable is followed by SYNCHRONIZE CACHE, if it could not have FUA. */
static void srp_over(struct vn_rdma_queue *r, struct vn_cmd *c)
{
	struct vn_srp_queue *s = vn_srp_of(&r->q);

	if (!s->cached || !vn_scsi_must_sync(c, s->fua)) {
		vn_cmd_complete(&r->q, c);
		return;
	}
	vn_rdma_release(&r->q, c); /* its data has been moved */
	c->scsi.synced = true;
	c->answered = false;
	queue_command(s, c);
}

static void srp_progress(struct vn_queue *q)
{
	vn_rdma_progress(q);
	vn_rdma_kick(q); /* answers to the target's requests, and commands that have got a credit */
}

/* ---- task management ---- */

static bool srp_abort(struct vn_queue *q, struct vn_cmd *c, uint64_t now, uint64_t ms)
{
	struct vn_srp_queue *s = vn_srp_of(q);
	unsigned index;

	if (s->managing)
		return now <= s->managed_at || now - s->managed_at <= ms;
	if (!c->scsi.sent || c->answered || !s->credits || q->error)
		return false;
	uint8_t *at = own_message(s, &index);

	if (!at)
		return false;
	struct sp_tsk_mgmt m = {
	        .tag = TAG_MANAGEMENT | ++s->managements, .task_tag = c->cid, .function = SP_ABORT_TASK};

	memcpy(m.lun, s->lun, sizeof(m.lun));
	sp_tsk_mgmt_encode(&m, at);
	s->managing = c->scsi.aborting = true;
	s->managed = c->cid;
	s->managed_at = now;
	s->credits--;
	send_own(s, index, SP_TSK_MGMT_LEN);
	vn_rdma_kick(q);
	return !q->error;
}

const struct vn_rdma_binding vn_srp_binding = {.head = VN_SRP_LIST,
                                               .room = 64,
                                               .answer = VN_SRP_ANSWER,
                                               .extra = VN_SRP_OWN,
                                               .spare = VN_SCSI_SAME_MAX,
                                               .ask = vn_srp_ask,
                                               .accepted = vn_srp_accepted,
                                               .rejected = vn_srp_rejected,
                                               .received = srp_received,
                                               .sent = own_sent,
                                               .over = srp_over};

const struct vn_transport vn_srp = {
        .name = "srp",
        .open = vn_srp_open,
        .submit = srp_submit,
        .kick = vn_rdma_kick,
        .progress = srp_progress,
        .descriptors = vn_rdma_descriptors,
        .spins = true,
        .arm = vn_rdma_arm,
        .release = vn_rdma_release,
        .abort = srp_abort,
        .cut = vn_rdma_cut,
        .close = vn_rdma_close,
        .list = vn_scsi_list,
        .associate = vn_scsi_associate,
        .keep_alive = vn_scsi_alive,
        .look = vn_scsi_look,
};
