// srp_login.c - logs in at a SRP target
// follows: SRP (ANSI INCITS 365, T10/1415-D), 6.2 to 6.4; the login of Linux's ib_srp by rdma_cm
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "client/srp.h"

#define IU_SHORT 256u /* without immediate data */
#define IMMEDIATE_MAX 8192u
#define IU_LONG (VN_SRP_IMMEDIATE + IMMEDIATE_MAX)

/* The admin queue's login ends other channels of our port: those of a broken connection. */
uint32_t vn_srp_ask(const struct vn_link *l, struct vn_rdma_queue *r, uint8_t private[VN_RDMA_PRIVATE])
{
	const struct vn_srp_queue *s = vn_srp_of(&r->q);
	bool immediate = s->iu_len == IU_LONG;
	struct sp_login login = {
	        .opcode = SP_LOGIN_REQ,
	        .flags = (uint8_t)((r->q.qid ? SP_MULTI_CHANNEL : SP_TELL_EVENTS) | (immediate ? SP_IMMEDIATE : 0)),
	        .formats = SP_FORMAT_DIRECT | SP_FORMAT_INDIRECT,
	        .immediate = immediate ? VN_SRP_IMMEDIATE : 0,
	        .iu_len = s->iu_len};

	memcpy(login.initiator, s->initiator, sizeof(login.initiator));
	memcpy(login.target, s->target, sizeof(login.target));
	if (l->service_id) {
		sp_login_ib_encode(&login, private);
		return SP_LOGIN_IB_LEN;
	}
	sp_login_encode(&login, private);
	return SP_LOGIN_LEN;
}

int vn_srp_accepted(struct vn_link *l, struct vn_rdma_queue *r, const uint8_t *private, size_t length)
{
	struct vn_srp_queue *s = vn_srp_of(&r->q);

	if (!private || !sp_login_rsp_decode(private, length, &s->login)) {
		vn_say(l->why, "%s port %s: it is no SRP target", l->host, l->service);
		return -EPROTO;
	}
	if (s->login.to_target < SP_CMD_LEN + SP_INDIRECT_LEN + SP_DESC_LEN ||
	    !(s->login.formats & (SP_FORMAT_DIRECT | SP_FORMAT_INDIRECT))) {
		vn_say(l->why, "%s port %s: the login allows no commands", l->host, l->service);
		return -EPROTO;
	}
	s->credits = s->login.credits < VN_SRP_CREDITS_MAX ? s->login.credits : VN_SRP_CREDITS_MAX;
	s->immediate = s->iu_len == IU_LONG && s->login.flags & SP_IMMEDIATE && s->login.to_target > VN_SRP_IMMEDIATE;
	uint32_t room = s->immediate ? s->login.to_target - VN_SRP_IMMEDIATE : 0;

	r->q.inline_max = !r->q.qid ? 0 : room < IMMEDIATE_MAX ? room : IMMEDIATE_MAX;
	return 0;
}

int vn_srp_rejected(struct vn_link *l, struct vn_rdma_queue *r, const uint8_t *private, size_t length)
{
	static const struct {
		uint32_t reason;
		int error;
		const char *text;
	} reasons[] = {{SP_REJ_RESOURCES, -EBUSY, "the target has no room for a login"},
	               {SP_REJ_CHANNEL_LIMIT, -EBUSY, "the target has no room for another channel"},
	               {SP_REJ_NO_SUCH_PORT, -ENXIO, "the target has no such port"},
	               {SP_REJ_MULTI_CHANNEL, -EOPNOTSUPP, "the target does not support several channels"},
	               {SP_REJ_FORMAT, -EOPNOTSUPP, "the target does not support our descriptors"}};
	struct vn_srp_queue *s = vn_srp_of(&r->q);
	struct sp_login_rej rej;

	if (!private || !sp_login_rej_decode(private, length, &rej)) {
		vn_say(l->why, "%s port %s by RDMA: rejected", l->host, l->service);
		return -ECONNREFUSED;
	}
	s->too_long = rej.reason == SP_REJ_IU_LENGTH;
	if (rej.reason == SP_REJ_CHANNEL_LIMIT &&
	    !r->q.qid) { /* what ib_srpt says to initiators that it does not know */
		vn_say(l->why, "%s port %s: the target does not admit this initiator", l->host, l->service);
		return -EACCES;
	}
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (reasons[i].reason == rej.reason) {
			vn_say(l->why, "%s port %s: %s", l->host, l->service, reasons[i].text);
			return reasons[i].error;
		}
	vn_say(l->why, "%s port %s: the target rejects the login, reason %#x", l->host, l->service, rej.reason);
	return -ECONNREFUSED;
}

static int open_with(struct vn_link *l, uint16_t qid, uint16_t depth, uint32_t iu_len, bool *too_long,
                     struct vn_queue **q)
{
	struct vn_srp_queue *s = calloc(1, sizeof(*s));
	int e;

	if (!s)
		return -ENOMEM;
	s->r.domain = l->domain;
	s->r.binding = &vn_srp_binding;
	s->iu_len = iu_len;
	s->waiting_end = &s->waiting;
	memcpy(s->initiator, l->initiator, sizeof(s->initiator));
	memcpy(s->target, l->target, sizeof(s->target));
	vn_scsi_lun(l->lun, s->lun);
	s->r.q.inline_max = qid && iu_len == IU_LONG ? IMMEDIATE_MAX : 0; /* the room for it */
	e = vn_queue_init(&s->r.q, &vn_srp, qid, depth);
	if (!e)
		e = vn_rdma_connect(l, &s->r);
	*too_long = s->too_long;
	if (e)
		vn_rdma_close(&s->r.q);
	else
		*q = &s->r.q;
	return e;
}

int vn_srp_open(struct vn_link *l, uint16_t qid, uint16_t depth, struct vn_queue **q)
{
	bool too_long = false;
	int e = open_with(l, qid, depth, IU_LONG, &too_long, q);

	return e && too_long ? open_with(l, qid, depth, IU_SHORT, &too_long, q) : e;
}
