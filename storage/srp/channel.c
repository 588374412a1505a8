// channel.c - channels of a SRP target: the way of a request
// follows: SRP (ANSI INCITS 365, T10/1415-D), 5, 6
// SPDX-License-Identifier: MIT
#include "srp/channel.h"

#include <string.h>

static struct sp_request *request_of(struct sc_task *t)
{
	return (struct sp_request *)(void *)((uint8_t *)t - offsetof(struct sp_request, task));
}

/* ---- the end of a request ---- */

static void serve_waiting(struct sp_channel *c);

static void free_memory(struct sp_request *r)
{
	struct sp_channel *c = r->channel;

	if (r->memory)
		nt_pool_put(c->pool, r->memory, r->task.length);
	if (r->table)
		nt_pool_put(c->pool, r->table, r->table_len);
	r->memory = r->table = NULL;
}

static void end_request(struct sp_request *r)
{
	struct sp_channel *c = r->channel;
	uint8_t message[SP_SHORT_LEN];

	free_memory(r);
	r->state = SP_FREE;
	c->active--;
	if (c->closed) {
		if (!c->active)
			c->ops->gone(c);
		return;
	}
	if (c->owed && !c->active) { /* no response is due that could return them */
		sp_short_encode(SP_CRED_REQ, c->owed, 0, message);
		c->owed = 0;
		c->asking++;
		c->ops->tell(c, message, sizeof(message));
	}
	serve_waiting(c);
}

void sp_answered(struct sp_request *r)
{
	struct sp_channel *c = r->channel;

	c->ops->release(r);
	end_request(r);
}

/* Ends a request without a response. Its credit returns with the next response, or by itself if none is due. */
static void end_silently(struct sp_request *r)
{
	if (!r->channel->closed) {
		r->channel->ops->release(r);
		r->channel->owed++;
	}
	end_request(r);
}

/* ---- moving data ---- */

/* The descriptor at r->desc, from the fetched table or from the message. False: there is none. */
static bool next_desc(struct sp_request *r, struct sp_desc *d)
{
	const struct sp_buffer *b = r->buffer;
	uint32_t i = r->desc++;

	if (i >= b->whole)
		return false;
	sp_desc_decode(b->whole > b->count ? r->table + (size_t)i * SP_DESC_LEN : b->list + (size_t)i * SP_DESC_LEN, d);
	return true;
}

/* Fills moves with the next part. False: the descriptors are for less data than they said. */
static bool fill_moves(struct sp_request *r)
{
	struct sp_desc d;

	r->move_count = 0;
	while (r->left && r->move_count < SP_CHUNK) {
		if (!next_desc(r, &d))
			return false;
		uint32_t n = d.len < r->left ? d.len : r->left;

		if (!n)
			continue;
		r->moves[r->move_count++] = (struct sp_move){r->at, d.va, d.key, n};
		r->at += n;
		r->left -= n;
	}
	return true;
}

static void begin_moves(struct sp_request *r, struct sp_buffer *b, uint8_t *at, uint32_t n)
{
	r->buffer = b;
	r->at = at;
	r->left = n;
	r->desc = 0;
	r->move_count = 0;
}

/* ---- responses ---- */

static void respond(struct sp_request *r, struct sp_rsp *rsp)
{
	struct sp_channel *c = r->channel;

	rsp->tag = r->tag;
	rsp->credits = 1 + c->owed;
	c->owed = 0;
	r->response_len =
	        sp_rsp_encode(rsp, r->response, c->to_initiator < SP_RESPONSE_MAX ? c->to_initiator : SP_RESPONSE_MAX);
	r->state = SP_ANSWER;
	c->ops->answer(r);
}

static void respond_code(struct sp_request *r, uint8_t code)
{
	struct sp_rsp rsp = {.flags = SP_RSP_VALID, .code = code};

	r->move_count = 0;
	respond(r, &rsp);
}

static void respond_task(struct sp_request *r)
{
	const struct sc_task *t = &r->task;
	bool moved_out = t->fetch && r->state != SP_MEMORY && t->status == SC_GOOD;
	uint32_t out = moved_out ? t->fetch : 0;
	struct sp_rsp rsp = {.status = t->status};

	if (r->out.len > out) {
		rsp.flags |= SP_OUT_UNDER;
		rsp.out_residual = r->out.len - out;
	}
	if (r->in.len > t->given) {
		rsp.flags |= SP_IN_UNDER;
		rsp.in_residual = r->in.len - t->given;
	} else if (r->in.len < t->given) {
		rsp.flags |= SP_IN_OVER;
		rsp.in_residual = t->given - r->in.len;
	}
	if (t->sense_len) {
		rsp.flags |= SP_SENSE_VALID;
		rsp.sense_len = t->sense_len;
		memcpy(rsp.sense, t->sense, t->sense_len);
	}
	respond(r, &rsp);
}

static void give_next(struct sp_request *r)
{
	if (!fill_moves(r)) {
		respond_code(r, SP_FIELDS_INVALID);
		return;
	}
	if (!r->left) { /* the response follows the last data */
		respond_task(r);
		return;
	}
	r->state = SP_GIVE;
	r->channel->ops->move(r, true);
}

/* The command is done, and nothing is moved for it. */
static void task_over(struct sp_request *r)
{
	const struct sc_task *t = &r->task;

	if (r->invalid && !r->channel->closed) {
		respond_code(r, SP_FIELDS_INVALID);
		return;
	}
	if (t->aborted || r->channel->closed) {
		end_silently(r);
		return;
	}
	begin_moves(r, &r->in, t->reply, t->given < r->in.len ? t->given : r->in.len);
	give_next(r);
}

static void leave_line(struct sp_request *r)
{
	struct sp_channel *c = r->channel;
	struct sp_request **at = &c->waiting;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (!r->next)
		c->waiting_end = at;
	r->in_line = false;
}

static void task_done(struct sc_task *t)
{
	struct sp_request *r = request_of(t);

	if ((r->state == SP_FETCH || r->state == SP_TABLE) && !r->channel->closed) {
		r->done = true; /* the adapter still writes to its memory */
		return;
	}
	if (r->in_line)
		leave_line(r);
	task_over(r);
}

/* ---- before a command: memory, its descriptor table, its data ---- */

static void run_task(struct sp_request *r)
{
	r->state = SP_TASK;
	sc_task_run(&r->task);
}

static void fetch_next(struct sp_request *r)
{
	if (!r->left) {
		run_task(r);
		return;
	}
	if (!fill_moves(r)) { /* nothing of the task is left after this, and its response is another one */
		r->invalid = true;
		r->state = SP_TASK;
		sc_task_abort(&r->task);
		return;
	}
	r->state = SP_FETCH;
	r->channel->ops->move(r, false);
}

static void fetch_data(struct sp_request *r)
{
	struct sc_task *t = &r->task;

	if (t->fetch && r->immediate && t->data != r->immediate)
		memcpy(t->data, r->immediate, t->fetch);
	begin_moves(r, &r->out, t->data, r->immediate ? 0 : t->fetch);
	fetch_next(r);
}

static struct sp_buffer *needs_table(struct sp_request *r)
{
	struct sp_buffer *b = r->task.fetch ? &r->out : &r->in;

	return b->format == SP_DESC_INDIRECT && b->whole > b->count ? b : NULL;
}

static void has_memory(struct sp_request *r)
{
	const struct sp_buffer *b = needs_table(r);

	if (!b) {
		fetch_data(r);
		return;
	}
	r->moves[0] = (struct sp_move){r->table, b->table.va, b->table.key, b->table.len};
	r->move_count = 1;
	r->state = SP_TABLE;
	r->channel->ops->move(r, false);
}

static bool take_memory(struct sp_request *r)
{
	struct sc_task *t = &r->task;
	struct nt_pool *pool = r->channel->pool;
	const struct sp_buffer *b = needs_table(r);

	if (r->immediate && t->length == t->fetch && !((uintptr_t)r->immediate % NB_ALIGN)) {
		t->data = (uint8_t *)(uintptr_t)r->immediate; /* the receive buffer is ours until the response */
		return true;
	}
	if (!(r->memory = nt_pool_get(pool, t->length)))
		return false;
	if (b && !(r->table = nt_pool_get(pool, b->table.len))) {
		nt_pool_put(pool, r->memory, t->length);
		r->memory = NULL;
		return false;
	}
	r->table_len = b ? b->table.len : 0;
	t->data = r->memory;
	return true;
}

static void serve_waiting(struct sp_channel *c)
{
	if (c->serving)
		return;
	c->serving = true;
	while (c->waiting && take_memory(c->waiting)) {
		struct sp_request *r = c->waiting;

		leave_line(r);
		has_memory(r);
	}
	c->serving = false;
}

void sp_moved(struct sp_request *r)
{
	if (r->done) {
		r->state = SP_TASK;
		task_over(r);
		return;
	}
	switch (r->state) {
	case SP_TABLE:
		fetch_data(r);
		return;
	case SP_FETCH:
		fetch_next(r);
		return;
	case SP_GIVE:
		give_next(r);
		return;
	default:
		return;
	}
}

/* ---- messages ---- */

static void take_command(struct sp_request *r, const struct sp_cmd *c, bool valid)
{
	static const enum sc_attr attrs[8] = {SC_SIMPLE, SC_HEAD, SC_ORDERED, SC_SIMPLE, SC_SIMPLE};
	struct sp_channel *ch = r->channel;
	struct sc_task *t = &r->task;

	if (!valid) {
		respond_code(r, SP_FIELDS_INVALID);
		return;
	}
	r->out = c->out;
	r->in = c->in;
	r->immediate = c->immediate;
	t->nexus = &ch->nexus->scsi;
	memcpy(t->lun, c->lun, sizeof(t->lun));
	memcpy(t->cdb, c->cdb, sizeof(t->cdb));
	if (c->long_cdb)
		t->cdb[0] = 0x7f; /* no command with a longer CDB is supported */
	t->attr = attrs[c->attr];
	t->tag = c->tag;
	t->offered = c->out.len;
	t->done = task_done;
	r->state = SP_MEMORY;
	sc_task_start(t);
	if (r->state != SP_MEMORY || t->state != SC_WAITING)
		return;
	if (!t->length) {
		run_task(r);
		return;
	}
	r->next = NULL;
	r->in_line = true;
	*ch->waiting_end = r;
	ch->waiting_end = &r->next;
	serve_waiting(ch);
}

static void managed(struct sc_manage *m, enum sc_manage_result result)
{
	struct sp_request *r = (struct sp_request *)(void *)((uint8_t *)m - offsetof(struct sp_request, manage));

	if (r->channel->closed)
		end_request(r);
	else
		respond_code(r, result == SC_COMPLETE        ? SP_DONE
		                : result == SC_NOT_SUPPORTED ? SP_FUNCTION_UNSUPPORTED
		                                             : SP_FUNCTION_FAILED);
}

/* For SCSI a command is over while its data-in is moved. No more of it may be moved after the answer to by. */
static void cut_data(const struct sp_request *by, const struct sp_tsk_mgmt *m)
{
	for (struct sp_channel *c = by->channel->target->channels; c; c = c->next)
		for (unsigned i = 0; i < SP_SLOTS && c->nexus == by->channel->nexus; i++) {
			struct sp_request *r = &c->requests[i];

			if (r->state == SP_GIVE && !memcmp(r->task.lun, m->lun, sizeof(m->lun)) &&
			    (m->function == SP_ABORT_TASK ? r->tag == m->task_tag : m->function != SP_CLEAR_ACA))
				r->done = r->task.aborted = true;
		}
}

static void take_management(struct sp_request *r, const struct sp_tsk_mgmt *m)
{
	static const struct {
		uint8_t srp, scsi;
	} functions[] = {{SP_ABORT_TASK, SC_ABORT_TASK},
	                 {SP_ABORT_TASK_SET, SC_ABORT_TASK_SET},
	                 {SP_CLEAR_TASK_SET, SC_CLEAR_TASK_SET},
	                 {SP_LUN_RESET, SC_LUN_RESET},
	                 {SP_CLEAR_ACA, SC_CLEAR_ACA}};

	r->state = SP_TASK;
	r->managing = true;
	for (unsigned i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (functions[i].srp == m->function) {
			r->manage = (struct sc_manage){.nexus = &r->channel->nexus->scsi,
			                               .function = functions[i].scsi,
			                               .tag = m->task_tag,
			                               .done = managed};
			memcpy(r->manage.lun, m->lun, sizeof(m->lun));
			cut_data(r, m);
			sc_manage(&r->manage);
			return;
		}
	respond_code(r, SP_FUNCTION_UNSUPPORTED);
}

void sp_received(struct sp_channel *c, unsigned slot, const uint8_t *message, size_t len)
{
	struct sp_request *r = &c->requests[slot];
	struct sp_cmd command;
	struct sp_tsk_mgmt m;
	bool valid;

	if (c->closed)
		return;
	r->channel = c;
	r->done = r->in_line = r->invalid = r->managing = false;
	r->memory = r->table = NULL;
	r->immediate = NULL;
	r->out = r->in = (struct sp_buffer){0};
	r->task.length = 0;
	r->move_count = 0;
	switch (len ? message[0] : SP_I_LOGOUT) {
	case SP_CMD:
		if (!sp_cmd_decode(message, len, c->immediate, &command, &valid))
			break;
		c->active++;
		r->tag = command.tag;
		take_command(r, &command, valid);
		return;
	case SP_TSK_MGMT:
		if (!sp_tsk_mgmt_decode(message, len, &m))
			break;
		c->active++;
		r->tag = m.tag;
		take_management(r, &m);
		return;
	case SP_CRED_RSP:
	case SP_AER_RSP: /* these took no credit */
		if (len < SP_SHORT_LEN)
			break;
		c->ops->release(r);
		c->asking -= c->asking > 0;
		sp_report_next(c);
		return;
	default:
		break;
	}
	c->ops->fail(c); /* a logout, or not SRP */
}

/* ---- the end ---- */

void sp_channel_close(struct sp_channel *c)
{
	if (c->closed)
		return;
	c->closed = true;
	c->active++; /* this call */
	for (unsigned i = 0; i < SP_SLOTS; i++) {
		struct sp_request *r = &c->requests[i];

		if (r->state == SP_FREE)
			continue;
		if (r->done || r->state == SP_GIVE || r->state == SP_ANSWER)
			end_request(r);
		else if (!r->managing) /* a management function ends with its tasks */
			sc_task_abort(&r->task);
	}
	if (!--c->active)
		c->ops->gone(c);
}
