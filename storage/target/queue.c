// queue.c - the stages of a request: slot, checks, memory, the host's data, execution, completion
// follows: NVMe over Fabrics 1.1, 2.1 (capsules), 2.4 (queues); NVM Express Base 1.4, 4.2 and 4.4
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "target/core.h"

#define CID_WORDS (65536 / 64)

void nt_queue_open(struct nt_queue *q, struct nt_target *t, const struct nt_ops *ops, const struct nt_port *port,
                   uint32_t inline_max, const char *address)
{
	memset(q, 0, sizeof(*q));
	q->target = t;
	q->ops = ops;
	q->port = port;
	q->inline_max = inline_max;
	for (size_t i = 0; address && address[i] && i + 1 < sizeof(q->address); i++)
		q->address[i] = address[i];
	q->entries = 1;
	q->first.queue = q;
}

/* Sets the size of the queue from Connect. */
bool nt_queue_ready(struct nt_queue *q, uint16_t entries)
{
	free(q->requests); /* of a failed Connect */
	free(q->cids);
	q->unused = NULL;
	q->requests = calloc(entries, sizeof(*q->requests));
	q->cids = calloc(CID_WORDS, sizeof(*q->cids));
	if (!q->requests || !q->cids) {
		free(q->requests);
		free(q->cids);
		q->requests = NULL;
		q->cids = NULL;
		return false;
	}
	q->entries = entries;
	for (uint16_t i = entries; i--;) {
		struct nt_request *r = &q->requests[i];

		r->queue = q;
		r->slot = i + 1;
		r->next = q->unused;
		q->unused = r;
	}
	return true;
}

struct nt_request *nt_slot(struct nt_queue *q, uint32_t slot)
{
	struct nt_request *r = !slot ? &q->first : q->requests && slot <= q->entries ? &q->requests[slot - 1] : NULL;

	return r && r->state != NT_FREE ? r : NULL;
}

bool nt_capsule_waits(const struct nt_request *r)
{
	return r->in_capsule && !r->room && (r->state == NT_MEMORY || r->state == NT_QUEUED);
}

static struct nt_request *take_slot(struct nt_queue *q)
{
	struct nt_request *r = q->connected ? q->unused : q->first.state == NT_FREE ? &q->first : NULL;

	if (!r)
		return NULL;
	if (q->connected)
		q->unused = r->next;
	uint16_t slot = r->slot;

	memset(r, 0, sizeof(*r));
	r->queue = q;
	r->slot = slot;
	q->in_use++;
	return r;
}

static bool cid_take(struct nt_queue *q, uint16_t cid)
{
	uint64_t bit = (uint64_t)1 << (cid % 64);

	if (!q->cids)
		return true;
	if (q->cids[cid / 64] & bit)
		return false;
	q->cids[cid / 64] |= bit;
	return true;
}

/* ---- from the capsule to the execution ---- */

static uint16_t check_sgl(struct nt_request *r)
{
	const struct nv_sgl *s = &r->sqe.sgl;
	struct nt_queue *q = r->queue;
	bool capsule = s->type == NV_SGL_DATA && s->subtype == NV_SGL_OFFSET;
	uint16_t status = 0;

	r->error_at = NV_SQE_AT_SGL;
	if (capsule)
		status = r->info->way != NT_FROM_HOST ? NV_SGL_TYPE
		         : s->address                 ? NV_SGL_OFFSET_INVALID
		         : s->length > r->capsule     ? NV_SGL_LENGTH
		                                      : 0;
	else if (q->ops->sgl)
		status = q->ops->sgl(q, s);
	else if (s->type != NV_SGL_TRANSPORT || s->subtype != NV_SGL_TRANSPORT_SPECIFIC)
		status = NV_SGL_TYPE;
	if (!status && s->length != r->length)
		status = NV_SGL_LENGTH;
	r->in_capsule = capsule;
	return status ? status | NV_DNR : 0;
}

static const struct nt_command_info *find_info(struct nt_request *r, uint16_t *status)
{
	struct nt_queue *q = r->queue;

	if (r->sqe.opcode == NV_FABRICS)
		return nt_fabrics_info(r, status);
	*status = NV_AUTH_REQUIRED | NV_DNR;
	if (q->connected && !q->authenticated)
		return NULL;
	*status = NV_SEQUENCE | NV_DNR;
	if (!q->connected || !(q->ctrl->csts & NV_CSTS_RDY))
		return NULL;
	return q->qid ? nt_io_info(r, status) : nt_admin_info(r, status);
}

static uint16_t check_command(struct nt_request *r)
{
	uint16_t status = NV_INVALID_OPCODE | NV_DNR;

	if (r->sqe.psdt != NV_PSDT_SGL)
		return NT_INVALID(r, NV_SQE_AT_FLAGS);
	if (!(r->info = find_info(r, &status)))
		return status;
	if (r->sqe.fuse && (!r->queue->qid || r->sqe.opcode == NV_FABRICS || r->sqe.fuse == 3))
		return NT_INVALID(r, NV_SQE_AT_FLAGS);
	status = r->info->check ? r->info->check(r) : 0;
	if (!status && r->info->way != NT_NO_DATA)
		status = check_sgl(r);
	return status;
}

/* A first fused command waits for its second, which must be the next. NVM Express Base 1.4, 4.12 */
static uint16_t check_fused(struct nt_request *r, uint16_t status)
{
	struct nt_queue *q = r->queue;
	struct nt_request *first = q->fused;
	bool failed = q->fused_failed;

	q->fused = NULL;
	q->fused_failed = false;
	if (r->sqe.fuse == NV_FUSE_SECOND && q->qid) {
		if (!first)
			return status ? status : failed ? NV_FUSED_FAILED : NV_FUSED_MISSING;
		if (!status &&
		    (r->sqe.opcode != NV_IO_WRITE || r->ns != first->ns || r->sqe.cdw[0] != first->sqe.cdw[0] ||
		     r->sqe.cdw[1] != first->sqe.cdw[1] || (r->sqe.cdw[2] & 0xffff) != (first->sqe.cdw[2] & 0xffff)))
			status = NT_INVALID(r, NV_SQE_AT_CDW10);
		if (status)
			nt_fail(first, status == (NV_INVALID_FIELD | NV_DNR) ? status : NV_FUSED_FAILED);
		else
			nt_fuse(first, r);
		return status;
	}
	if (first)
		nt_fail(first, NV_FUSED_MISSING);
	if (r->sqe.fuse == NV_FUSE_FIRST && q->qid) {
		if (!status && r->sqe.opcode != NV_IO_COMPARE)
			status = NT_INVALID(r, NV_SQE_AT_FLAGS);
		q->fused_failed = status;
		q->fused = status ? NULL : r;
	}
	return status;
}

/* Begins a request that has its memory, or needs none. */
void nt_start(struct nt_request *r)
{
	if (r->info->way == NT_FROM_HOST) {
		r->state = NT_FETCH;
		r->queue->ops->fetch(r);
		return;
	}
	r->state = NT_HELD;
	if (r->room && r->info->zeroed)
		memset(r->data, 0, r->length);
	r->info->run(r);
}

/*
 * deviates: a command id that belongs to an outstanding event request is no conflict: the host has given up that
 * request. SPDK does so before it shuts a controller down.
 */
static bool cid_again(struct nt_queue *q, uint16_t cid)
{
	return !q->qid && q->ctrl && nt_event_drop(q->ctrl, cid) && cid_take(q, cid);
}

void nt_admit(struct nt_request *r)
{
	if (r->room && r->state == NT_HELD) /* its data has come already */
		r->info->run(r);
	else if (!r->length || r->borrowed)
		nt_start(r);
	else if (nt_memory_get(r))
		nt_start(r);
}

bool nt_command(struct nt_queue *q, const uint8_t sqe[NV_SQE_LEN], uint32_t capsule, struct nt_request **out)
{
	struct nt_request *r = q->closing ? NULL : take_slot(q);

	if (!r)
		return false;
	*out = r;
	r->state = NT_HELD;
	r->sqe = nv_sqe_decode(sqe);
	r->capsule = capsule;
	if (q->ctrl &&
	    (q->authenticated || !q->qid)) /* an unauthenticated connection does not keep a controller alive */
		q->ctrl->seen = q->target->now;
	if (!cid_take(q, r->sqe.cid) && !cid_again(q, r->sqe.cid)) {
		r->stranger = true;
		nt_complete(r, NV_CID_CONFLICT | NV_DNR);
		return true;
	}
	uint16_t status = check_command(r);

	if (q->qid)
		status = check_fused(r, status);
	if (status)
		nt_complete(r, status);
	else if (nt_qos_pass(r))
		nt_admit(r);
	return true;
}

void nt_fetched(struct nt_request *r, uint16_t status)
{
	r->state = NT_HELD;
	if (!status)
		status = r->fate;
	if (status) {
		nt_complete(r, status);
		return;
	}
	if (!r->parked || nt_qos_pass(r))
		r->info->run(r);
}

/* ---- completion ---- */

void nt_hold(struct nt_request *r)
{
	r->state = NT_HELD;
}

void nt_lend(struct nt_request *r)
{
	r->state = NT_BACKEND;
	r->queue->busy++;
}

void nt_fail(struct nt_request *r, uint16_t status)
{
	if (r->state == NT_MEMORY)
		nt_memory_unwait(r);
	if (r->state == NT_QUEUED)
		nt_qos_leave(r);
	if (r->state == NT_MEMORY || r->state == NT_HELD)
		nt_complete(r, status);
	else
		r->fate = status;
}

static void leave_list(struct nt_request **at, const struct nt_request *r)
{
	while (*at && *at != r)
		at = &(*at)->next;
	if (*at)
		*at = r->next;
}

static void forget_request(struct nt_request *r)
{
	struct nt_queue *q = r->queue;

	if (r->state == NT_FREE)
		return;
	r->state = NT_FREE;
	if (q->cids && !r->stranger)
		q->cids[r->sqe.cid / 64] &= ~((uint64_t)1 << (r->sqe.cid % 64));
	if (q->fused == r)
		q->fused = NULL;
	if (r->ns)
		nt_ns_put(r->ns);
	r->ns = NULL;
	if (r->waits)
		leave_list(&q->target->connects, r);
	r->waits = false;
	if (r->slot) {
		r->next = q->unused;
		q->unused = r;
	}
	q->in_use--;
	nt_memory_give(r);
}

static void finish_queue(struct nt_queue *q)
{
	struct nt_target *t = q->target;

	if (q->busy || q->gone_called)
		return;
	q->gone_called = true;
	if (q->target->auth && q->auth)
		q->target->auth->release(q);
	if (q->ctrl)
		nt_controller_detach(q);
	nt_peer_leave(q);
	free(q->requests);
	free(q->cids);
	q->requests = NULL;
	q->cids = NULL;
	q->ops->gone(q);
	nt_connects_again(t);
}

void nt_complete(struct nt_request *r, uint16_t status)
{
	struct nt_queue *q = r->queue;

	if (r->state == NT_BACKEND)
		q->busy--;
	r->state = NT_HELD;
	struct nt_request *other = r->fused;

	r->fused = NULL;
	if (other)
		other->fused = NULL;
	if (q->fused == r) {
		q->fused = NULL;
		q->fused_failed = true;
	}
	if (r->writing)
		nt_write_done(r);
	nt_turn_done(r);
	if (q->closing) {
		forget_request(r);
		finish_queue(q);
		return;
	}
	if (status & ~NV_DNR)
		nt_log_error(r, status);
	r->send = !status && r->info->way == NT_TO_HOST;
	if (q->connected && !q->no_sq_flow)
		q->sqhd = (uint16_t)((q->sqhd + 1u) % q->entries);
	r->cqe.cid = r->sqe.cid;
	r->cqe.sqid = q->qid;
	r->cqe.sqhd = q->no_sq_flow ? 0xffff : q->sqhd;
	r->cqe.status = status;
	r->state = NT_RESPOND;
	if (r->send)
		nt_memory_pace(r, NT_USUAL); /* the medium has completed it */
	else
		nt_memory_give(r);
	q->ops->respond(r);
	if (other)
		nt_fail(other, NV_FUSED_FAILED);
}

void nt_release(struct nt_request *r)
{
	forget_request(r);
}

static void each_request(struct nt_queue *q, void (*fn)(struct nt_request *r))
{
	for (uint32_t i = 0; i <= (q->requests ? q->entries : 0u); i++) {
		struct nt_request *r = i ? &q->requests[i - 1] : &q->first;

		if (r->state != NT_FREE && r->state != NT_BACKEND)
			fn(r);
	}
}

static void leave_lines(struct nt_request *r)
{
	if (r->state == NT_MEMORY) {
		nt_memory_unwait(r);
		forget_request(r);
	} else if (r->state == NT_QUEUED) {
		nt_qos_leave(r);
	} else if (r->state == NT_HELD && r->ns) {
		nt_waiting_remove(r);
	}
}

static void let_others_go(struct nt_request *r)
{
	if (r->writing) /* it waited for its turn at the medium */
		nt_write_done(r);
	if (r->state == NT_HELD && r->ns)
		nt_waiting_go(r->ns);
}

static void abandon_request(struct nt_request *r)
{
	if (r->queue->ctrl)
		nt_event_forget(r->queue->ctrl, r);
	forget_request(r);
}

/* First removes all requests from the queues for memory, for limits and for writing, so that memory freed here starts no other
 * request of this queue. */
void nt_queue_close(struct nt_queue *q)
{
	if (q->closing)
		return;
	q->closing = true;
	each_request(q, leave_lines);
	each_request(q, let_others_go);
	each_request(q, abandon_request);
	if (q->ctrl && !q->qid)
		nt_controller_end(q->ctrl);
	nt_memory_serve(q->target);
	finish_queue(q);
}
