// fabrics.c - Fabrics commands: connect, properties, disconnect, authentication
// follows: NVMe over Fabrics 1.1, chapter 3; its 4.2 for discovery
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/core.h"

/* IPO, the offset of the invalid field, and IATTR, whether it is in the data. Fabrics 1.1, figure 21 */
static uint16_t connect_wrong(struct nt_request *r, bool in_data, uint16_t at)
{
	r->cqe.result = at | (uint32_t)in_data << 16;
	return NV_CONNECT_PARAMETER | NV_DNR;
}

#define IN_COMMAND(r, at) connect_wrong(r, false, at)
#define IN_DATA(r, at) connect_wrong(r, true, at)

static uint16_t connect_check(struct nt_request *r)
{
	struct nt_queue *q = r->queue;
	struct nv_connect c = nv_connect_decode(&r->sqe);

	if (q->connected)
		return NV_SEQUENCE | NV_DNR;
	if (c.recfmt)
		return NV_CONNECT_FORMAT | NV_DNR;
	if (!c.sqsize || c.sqsize >= (c.qid ? NT_IO_ENTRIES_MAX : NT_ADMIN_ENTRIES))
		return IN_COMMAND(r, NV_CONNECT_AT_SQSIZE);
	if (c.qid > NT_QUEUES_MAX || (q->named && c.qid != q->name))
		return IN_COMMAND(r, NV_CONNECT_AT_QID);
	r->length = NV_CONNECT_DATA_LEN;
	return 0;
}

static uint32_t rounded_kato(uint32_t kato)
{
	return !kato ? 0 : kato > UINT32_MAX - 999 ? UINT32_MAX / 1000 * 1000 : (kato + 999) / 1000 * 1000;
}

static bool needs_proof(struct nt_subsystem *s, const char *hostnqn)
{
	return s->target->auth && s->target->auth->required(s, hostnqn);
}

static uint16_t connect_admin(struct nt_request *r, const struct nv_connect *c, struct nt_subsystem *s,
                              const char *hostnqn)
{
	struct nt_queue *q = r->queue;

	if (nv_get16(r->data + NV_CONNECT_AT_CNTLID) != NV_CNTLID_DYNAMIC)
		return IN_DATA(r, NV_CONNECT_AT_CNTLID);
	if (!nt_queue_ready(q, (uint16_t)(c->sqsize + 1)) || (s->discovery && !nt_peer_discovers(q)))
		return NV_CONNECT_BUSY;
	struct nt_controller *ctrl = nt_controller_open(s, q, hostnqn);

	if (!ctrl)
		return NV_CONNECT_BUSY;
	memcpy(ctrl->who.id, r->data + NV_CONNECT_AT_HOSTID, 16);
	nv_uuid_from(hostnqn, 0, ctrl->who.name);
	ctrl->kato = rounded_kato(c->kato);
	return 0;
}

static uint16_t connect_io(struct nt_request *r, const struct nv_connect *c, struct nt_subsystem *s,
                           const char *hostnqn)
{
	struct nt_queue *q = r->queue;
	struct nt_controller *ctrl = nt_controller_find(q->target, nv_get16(r->data + NV_CONNECT_AT_CNTLID));

	if (!ctrl || ctrl->dying || ctrl->subsystem != s)
		return IN_DATA(r, NV_CONNECT_AT_CNTLID);
	if (strcmp(ctrl->hostnqn, hostnqn))
		return IN_DATA(r, NV_CONNECT_AT_HOSTNQN);
	if (memcmp(ctrl->who.id, r->data + NV_CONNECT_AT_HOSTID, 16))
		return IN_DATA(r, NV_CONNECT_AT_HOSTID);
	if (!ctrl->admin || ctrl->admin->ops != q->ops) /* all queues of a controller use the same transport */
		return IN_DATA(r, NV_CONNECT_AT_CNTLID);
	if (c->qid > ctrl->granted)
		return IN_COMMAND(r, NV_CONNECT_AT_QID);
	if (!(ctrl->csts & NV_CSTS_RDY) || ctrl->queues[c->qid])
		return NV_SEQUENCE | NV_DNR;
	if (!nt_queue_ready(q, (uint16_t)(c->sqsize + 1)))
		return NV_CONNECT_BUSY;
	q->ctrl = ctrl;
	q->qid = c->qid;
	ctrl->attached++;
	if (needs_proof(s, hostnqn))
		nt_controller_unproven(q);
	else
		nt_controller_place(q);
	return 0;
}

/* True if the key is still configured: it may have been removed or replaced since the TLS handshake. */
static bool key_holds(const struct nt_queue *q, const char *hostnqn, const char *subnqn)
{
	struct nv_secret s = {.length = 0};
	bool same = !q->only_key || (nt_tls_secret(q->target, hostnqn, subnqn, &s) && nv_secret_same(&s, q->only_key));

	nv_secret_wipe(&s);
	return same;
}

#define WAITS 0xffffu /* not a status: the request waits */

/* A request that is at a medium may be executed after later ones to the same blocks. */
static bool may_pass_later_ones(const struct nt_queue *q)
{
	for (uint32_t i = 0; i < q->entries; i++) {
		const struct nt_request *r = &q->requests[i];

		if (r->state == NT_BACKEND && !(r->ns && r->ns->backend->ordered))
			return true;
	}
	return false;
}

/*
 * Returns an earlier controller of the host whose connection has ended while the backend still processes its commands.
 * A host that reconnects may repeat unanswered commands, and what follows the repetition must not be overwritten by the
 * first execution. A backend that keeps the order sees to that itself.
 */
static struct nt_controller *must_wait(const struct nt_subsystem *s, const char *hostnqn, const uint8_t *hostid,
                                       const struct nt_controller *but)
{
	for (struct nt_controller *c = s->controllers; c; c = c->next) {
		if (c == but || !nt_is_of_host(c, hostnqn, hostid))
			continue;
		for (uint32_t i = 1; i <= NT_QUEUES_MAX; i++)
			if (c->queues[i] && c->queues[i]->closing && c->queues[i]->busy &&
			    may_pass_later_ones(c->queues[i]))
				return c;
	}
	return NULL;
}

/* Lets the request wait for NT_CONNECT_MS; then the host has to connect again. Logs once that the medium may never
 * answer. */
static uint16_t wait_for(struct nt_request *r, struct nt_controller *c)
{
	struct nt_target *t = r->queue->target;

	if (!r->at)
		r->at = t->now + NT_CONNECT_MS;
	if (r->at > t->now)
		return WAITS;
	if (!c->stuck && t->say)
		t->say("%s: a medium does not finish requests of an earlier connection of this host; until then the host cannot connect to %s",
		       c->hostnqn, c->subsystem->nqn);
	c->stuck = true;
	return NV_CONNECT_BUSY;
}

/*
 * Handles Connect. Names must end within their fields; they are authenticated later. deviates: a host without a name
 * may connect where any host may, as with other targets, because SPDK's perf and identify have no name by default.
 */
static uint16_t connect_to(struct nt_request *r)
{
	struct nt_queue *q = r->queue;
	struct nv_connect c = nv_connect_decode(&r->sqe);
	const char *subnqn = (const char *)r->data + NV_CONNECT_AT_SUBNQN,
	           *hostnqn = (const char *)r->data + NV_CONNECT_AT_HOSTNQN;
	static const uint8_t none[16];

	if (!nv_nqn_valid(subnqn, NV_NQN_SIZE))
		return IN_DATA(r, NV_CONNECT_AT_SUBNQN);
	if (*hostnqn && !nv_nqn_valid(hostnqn, NV_NQN_SIZE))
		return IN_DATA(r, NV_CONNECT_AT_HOSTNQN);
	if (!memcmp(r->data + NV_CONNECT_AT_HOSTID, none, 16)) /* Base 1.4, 5.21.1.19: never zero over fabrics */
		return IN_DATA(r, NV_CONNECT_AT_HOSTID);
	struct nt_subsystem *s = nt_subsystem_find(q->target, subnqn);

	if (!s)
		return IN_DATA(r, NV_CONNECT_AT_SUBNQN);
	if (q->only_subsystem && strcmp(q->only_subsystem, subnqn))
		return IN_DATA(r, NV_CONNECT_AT_SUBNQN);
	if (!nt_allowed(s, hostnqn) || (q->only_host && strcmp(q->only_host, hostnqn)) ||
	    !key_holds(q, hostnqn, subnqn)) {
		r->cqe.result = NV_CONNECT_AT_HOSTNQN | 1u << 16;
		return NV_CONNECT_HOST | NV_DNR;
	}
	if (q->target->stopping)
		return NV_CONNECT_BUSY;
	/* a host that must authenticate waits later: see property_set */
	struct nt_controller *before =
	        c.qid || needs_proof(s, hostnqn) ? NULL : must_wait(s, hostnqn, r->data + NV_CONNECT_AT_HOSTID, NULL);
	uint16_t status = before ? wait_for(r, before) : 0;

	if (status)
		return status;
	q->no_sq_flow = c.cattr & NV_CONNECT_NO_SQ_FLOW;
	return c.qid ? connect_io(r, &c, s, hostnqn) : connect_admin(r, &c, s, hostnqn);
}

static void wait_on(struct nt_request *r)
{
	struct nt_target *t = r->queue->target;

	nt_hold(r);
	r->waits = true;
	r->next = t->connects;
	t->connects = r;
}

static void connect_run(struct nt_request *r)
{
	struct nt_queue *q = r->queue;
	uint16_t status = connect_to(r);

	if (status == WAITS) {
		wait_on(r);
		return;
	}
	if (status) {
		q->no_sq_flow = false;
		nt_complete(r, status);
		return;
	}
	if (q->ctrl) /* charge the memory of this request to the controller */
		q->ctrl->memory += nt_pool_room(r->room);
	bool auth = needs_proof(q->ctrl->subsystem, q->ctrl->hostnqn);

	q->connected = true;
	q->authenticated = !auth && nt_peer_in(q, q->ctrl->hostnqn);
	if (auth)
		nt_auth_begin(q);
	else if (!q->authenticated)
		q->ops->close(q);
	r->cqe.result = q->ctrl->id | (auth ? NV_AUTHREQ_ATR : 0);
	nt_complete(r, 0);
}

void nt_connects_again(struct nt_target *t)
{
	struct nt_request *all = t->connects;

	t->connects = NULL;
	while (all) {
		struct nt_request *r = all;

		all = r->next;
		r->next = NULL;
		r->waits = false;
		r->info->run(r);
	}
}

/* ---- properties, on the admin queue only ---- */

static uint16_t property_check(struct nt_request *r)
{
	if (r->queue->qid)
		return NV_INVALID_OPCODE | NV_DNR;
	return (r->sqe.cdw[0] & 7) > 1 ? NT_INVALID(r, NV_SQE_AT_CDW10) : 0;
}

static void property_get(struct nt_request *r)
{
	const struct nt_controller *c = r->queue->ctrl;
	bool wide = r->sqe.cdw[0] & 7;

	r->error_at = NV_SQE_AT_CDW11;
	uint64_t value = 0;
	bool ok = false;

	switch (r->sqe.cdw[1]) {
	case NV_PROP_CAP:
		value = nt_controller_cap();
		ok = wide;
		break;
	case NV_PROP_VS:
		value = NV_VERSION_1_4;
		ok = !wide;
		break;
	case NV_PROP_CC:
		value = c->cc;
		ok = !wide;
		break;
	case NV_PROP_CSTS:
		value = c->csts;
		ok = !wide;
		break;
	}
	if (ok)
		r->cqe.result = value;
	nt_complete(r, ok ? 0 : NV_INVALID_FIELD | NV_DNR);
}

/* The wait of Connect, for a host that must authenticate first. It comes after authentication, so that no other host
 * can delay or observe it under its name. */
static uint16_t enabling_waits(struct nt_request *r)
{
	struct nt_controller *c = r->queue->ctrl;
	bool first = (r->sqe.cdw[2] & NV_CC_EN) && !(c->cc & NV_CC_EN) && needs_proof(c->subsystem, c->hostnqn);
	struct nt_controller *before = first ? must_wait(c->subsystem, c->hostnqn, c->who.id, c) : NULL;

	return before ? wait_for(r, before) : 0;
}

static void property_set(struct nt_request *r)
{
	r->error_at = NV_SQE_AT_CDW11;
	if ((r->sqe.cdw[0] & 7) || r->sqe.cdw[1] != NV_PROP_CC) {
		nt_complete(r, NV_INVALID_FIELD | NV_DNR);
		return;
	}
	uint16_t status = enabling_waits(r);

	if (status == WAITS) {
		wait_on(r);
		return;
	}
	if (status) {
		nt_complete(r, status);
		return;
	}
	nt_controller_configure(r->queue->ctrl, r->sqe.cdw[2]);
	nt_complete(r, 0);
}

/* ---- the rest ---- */

static uint16_t disconnect_check(struct nt_request *r)
{
	if (!r->queue->qid)
		return NV_DISCONNECT_QUEUE | NV_DNR;
	return r->sqe.cdw[0] & 0xffff ? NV_CONNECT_FORMAT | NV_DNR : 0;
}

/* Deletes the queue. The transport decides whether the connection continues; here it does not. Fabrics 1.1, 3.2 */
static void disconnect_run(struct nt_request *r)
{
	struct nt_queue *q = r->queue;

	nt_complete(r, 0);
	q->ops->close(q);
}

static uint16_t auth_check(struct nt_request *r)
{
	uint32_t length = r->sqe.cdw[1];

	if (!r->queue->target->auth)
		return NV_INVALID_OPCODE | NV_DNR;
	if (r->sqe.cdw[0] >> 8 != NV_AUTH_CDW10 >> 8)
		return NT_INVALID(r, NV_SQE_AT_CDW10 + 1);
	if (!length || length > NV_PAGE)
		return NT_INVALID(r, NV_SQE_AT_CDW11);
	r->length = length;
	return 0;
}

static void auth_send(struct nt_request *r)
{
	r->queue->target->auth->send(r);
}

static void auth_receive(struct nt_request *r)
{
	r->queue->target->auth->receive(r);
}

static const struct nt_command_info commands[] = {
        {.opcode = NV_FCT_CONNECT, .way = NT_FROM_HOST, .check = connect_check, .run = connect_run},
        {.opcode = NV_FCT_PROPERTY_GET, .check = property_check, .run = property_get},
        {.opcode = NV_FCT_PROPERTY_SET, .check = property_check, .run = property_set},
        {.opcode = NV_FCT_DISCONNECT, .check = disconnect_check, .run = disconnect_run},
        {.opcode = NV_FCT_AUTH_SEND, .way = NT_FROM_HOST, .check = auth_check, .run = auth_send},
        {.opcode = NV_FCT_AUTH_RECEIVE, .way = NT_TO_HOST, .zeroed = true, .check = auth_check, .run = auth_receive},
};

const struct nt_command_info *nt_fabrics_info(struct nt_request *r, uint16_t *status)
{
	struct nt_queue *q = r->queue;
	uint8_t type = r->sqe.fctype;

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (commands[i].opcode != type)
			continue;
		*status = NV_SEQUENCE | NV_DNR;
		if (!q->connected && type != NV_FCT_CONNECT)
			return NULL;
		*status = NV_AUTH_REQUIRED | NV_DNR;
		if (q->connected && !q->authenticated && type != NV_FCT_AUTH_SEND && type != NV_FCT_AUTH_RECEIVE &&
		    type != NV_FCT_CONNECT)
			return NULL;
		return &commands[i];
	}
	r->error_at = NV_SQE_AT_FCTYPE;
	*status = NV_INVALID_OPCODE | NV_DNR;
	return NULL;
}
