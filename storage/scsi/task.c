// task.c - tasks: the checks before a command, the order of the task set, task management
// follows: SAM-5, 5.3 (status), 5.14 (unit attentions), 7 (task management), 8 (task sets)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stddef.h>

#include "scsi/internal.h"

/* ---- results ---- */

uint8_t sc_sense_build(uint8_t out[SC_SENSE_MAX], uint32_t sense, bool descriptors)
{
	memset(out, 0, SC_SENSE_MAX);
	out[0] = descriptors ? 0x72 : 0x70; /* current. SPC-4, 4.5.2, 4.5.3 */
	out[descriptors ? 1 : 2] = (uint8_t)(sense >> 16);
	out[descriptors ? 2 : 12] = (uint8_t)(sense >> 8);
	out[descriptors ? 3 : 13] = (uint8_t)sense;
	if (!descriptors)
		out[7] = SC_SENSE_LEN - 8;
	return descriptors ? 8 : SC_SENSE_LEN;
}

static void unlink_task(struct sc_task *t)
{
	struct sc_lu *lu = t->lu;

	if (t->next)
		t->next->prev = t->prev;
	else
		lu->last = t->prev;
	if (t->prev)
		t->prev->next = t->next;
	else
		lu->first = t->next;
	lu->barriers -= t->barrier;
	t->next = t->prev = NULL;
	t->state = SC_IDLE;
}

static void run_ready(struct sc_lu *lu);

void sc_manage_ended(struct sc_manage *m)
{
	while (m && !--m->pending) {
		struct sc_manage *then = m->then;

		m->done(m, SC_COMPLETE); /* may free it */
		m = then;
	}
}

/* Removes the task from the task set, and tells the transport and the task management that waits for its end. */
static void end_task(struct sc_task *t)
{
	struct sc_lu *lu = t->lu;
	bool was_barrier = t->barrier;
	struct sc_manage *m = t->manage;

	if (lu && t->state != SC_IDLE)
		unlink_task(t);
	t->state = SC_IDLE;
	t->manage = NULL;
	t->done(t);
	sc_manage_ended(m);
	if (lu && (was_barrier || lu->barriers))
		run_ready(lu);
}

void sc_finish(struct sc_task *t, uint8_t status)
{
	if (t->aborted || t->status != SC_TASK_ABORTED) /* else it was aborted by another initiator */
		t->status = status;
	if (t->status != SC_GOOD)
		t->given = 0;
	if (t->status != SC_CHECK_CONDITION)
		t->sense_len = 0;
	end_task(t);
}

void sc_good(struct sc_task *t)
{
	sc_finish(t, SC_GOOD);
}

void sc_give(struct sc_task *t, uint32_t length, uint32_t allocation)
{
	t->reply = t->data;
	t->given = length < allocation ? length : allocation;
	sc_finish(t, SC_GOOD);
}

void sc_fail(struct sc_task *t, uint32_t sense)
{
	t->sense_len = sc_sense_build(t->sense, sense, t->lu && t->lu->mode.sense_descriptors);
	sc_finish(t, SC_CHECK_CONDITION);
}

void sc_fail_at(struct sc_task *t, uint32_t sense, uint32_t information)
{
	t->sense_len = sc_sense_build(t->sense, sense, t->lu->mode.sense_descriptors);
	if (t->lu->mode.sense_descriptors) {
		t->sense[7] = 12;
		t->sense[9] = 10;    /* the length of the information descriptor. SPC-4, 4.5.2.2 */
		t->sense[10] = 0x80; /* VALID */
		sc_put64(t->sense + 12, information);
		t->sense_len = SC_SENSE_MAX;
	} else {
		t->sense[0] |= 0x80; /* VALID */
		sc_put32(t->sense + 3, information);
	}
	sc_finish(t, SC_CHECK_CONDITION);
}

void sc_error(struct sc_task *t, int error, bool writing)
{
	switch (error) {
	case EROFS:
	case EPERM:
		sc_fail(t, SC_S_WRITE_PROTECTED);
		return;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		sc_fail(t, SC_S_SPACE);
		return;
	case ENOMEM:
		sc_fail(t, SC_S_TARGET_FAILURE);
		return;
	default:
		sc_fail(t, writing ? SC_S_WRITE_ERROR : SC_S_READ_ERROR);
	}
}

uint32_t sc_attention_take(struct sc_nexus *n, unsigned lun)
{
	static const uint16_t codes[] = {
#define X(name, asc, ascq) asc << 8 | ascq,
	        SC_ATTENTIONS(X)
#undef X
	};
	uint32_t *pending = &n->attention[lun];

	if (!*pending)
		return SC_S_NONE;
	unsigned first = (unsigned)__builtin_ctz(*pending);

	*pending &= *pending - 1;
	return SC_SENSE(SC_UNIT_ATTENTION, 0, 0) | codes[first];
}

void sc_attention_set(struct sc_lu *lu, const struct sc_nexus *but, enum sc_attention what)
{
	for (struct sc_nexus *n = lu->target->nexuses; n; n = n->next)
		if (n != but)
			n->attention[lu->number] |= 1u << what;
}

/* ---- the backend ---- */

static struct sc_task *task_of(struct nb_request *r)
{
	return (struct sc_task *)(void *)((uint8_t *)r - offsetof(struct sc_task, request));
}

static void request_done(struct nb_request *r, int error)
{
	struct sc_task *t = task_of(r);

	if (t->aborted || t->status == SC_TASK_ABORTED) {
		sc_finish(t, SC_TASK_ABORTED);
		return;
	}
	t->io_done(t, error);
}

void sc_io(struct sc_task *t, enum nb_op op, uint64_t offset, uint64_t length, void *data,
           void (*done)(struct sc_task *t, int error))
{
	struct sc_lu *lu = t->lu;

	t->io_done = done;
	t->request = (struct nb_request){.op = op,
	                                 .may_punch = t->punch,
	                                 .offset = offset,
	                                 .length = length,
	                                 .data = data,
	                                 .fua = t->fua || (lu->mode.write_through && op != NB_READ && op != NB_FLUSH),
	                                 .done = request_done};
	/* the medium may have become smaller since the command was checked */
	if (op != NB_FLUSH && (offset > lu->backend->size || length > lu->backend->size - offset)) {
		sc_fail(t, SC_S_LBA);
		return;
	}
	nb_submit(lu->backend, &t->request);
}

/* ---- the order of the task set. SAM-5, 8.6 ---- */

static bool may_run(const struct sc_task *t)
{
	const struct sc_lu *lu = t->lu;

	if (!lu->barriers)
		return true;
	bool head = t->attr == SC_HEAD && !t->exclusive, older = true;

	for (const struct sc_task *o = lu->first; o; o = o->next) {
		if (o == t)
			older = false;
		else if (o->state == SC_RUNNING && (o->exclusive || t->exclusive))
			return false;
		else if (older && !head && (t->barrier || o->barrier))
			return false;
	}
	return true;
}

static void run_ready(struct sc_lu *lu)
{
	bool again;

	if (lu->starting) /* by the loop below, which looks again */
		return;
	lu->starting = true;
	do { /* running a task may end it, and change the list */
		again = false;
		for (struct sc_task *t = lu->first; t && !again; t = t->next)
			if (t->state == SC_READY && may_run(t)) {
				t->state = SC_RUNNING;
				t->row->run(t);
				again = true;
			}
	} while (again);
	lu->starting = false;
}

bool sc_hold(struct sc_lu *lu)
{
	bool held = lu->starting;

	lu->starting = true;
	return held;
}

void sc_go_on(struct sc_lu *lu, bool held)
{
	lu->starting = held;
	run_ready(lu);
}

static void append_task(struct sc_task *t)
{
	struct sc_lu *lu = t->lu;

	t->prev = lu->last;
	t->next = NULL;
	if (lu->last)
		lu->last->next = t;
	else
		lu->first = t;
	lu->last = t;
	t->barrier = t->attr != SC_SIMPLE || t->exclusive;
	lu->barriers += t->barrier;
	t->state = SC_WAITING;
}

void sc_task_run(struct sc_task *t)
{
	if (t->state != SC_WAITING)
		return;
	if (t->lu && (t->lu->starting || !may_run(t))) {
		t->state = SC_READY;
		return;
	}
	t->state = SC_RUNNING;
	t->row->run(t);
}

/* ---- the checks before a command ---- */

/* Single level LUNs with the peripheral or the flat method. SAM-5, 4.7.7 */
static int lun_number(const uint8_t lun[8])
{
	unsigned n = sc_get16(lun);

	if (lun[2] | lun[3] | lun[4] | lun[5] | lun[6] | lun[7])
		return -1;
	if (n >> 14 == 1)
		n &= 0x3fff;
	return n < SC_LUNS ? (int)n : -1;
}

static struct sc_lu *find_lu(const struct sc_target *t, const uint8_t lun[8])
{
	int n = lun_number(lun);

	return n < 0 ? NULL : t->lus[n];
}

static const struct sc_row *find_row(const uint8_t *cdb, bool *known)
{
	*known = false;
	for (unsigned i = 0; i < sc_row_count; i++) {
		const struct sc_row *r = &sc_rows[i];

		if (r->opcode != cdb[0])
			continue;
		*known = true;
		if (r->action == SC_NO_ACTION || r->action == (cdb[1] & 0x1f))
			return r;
	}
	return NULL;
}

static uint32_t check_cdb(struct sc_task *t)
{
	for (unsigned i = 1; i < t->row->cdb_len; i++)
		if (t->cdb[i] & ~t->row->usage[i])
			return SC_S_FIELD_IN_CDB;
	if (t->lu && t->row->medium && t->lu->stopped)
		return SC_S_INITIALIZING_REQUIRED;
	uint32_t sense = t->row->check(t);

	return sense ? sense : t->fetch > t->offered ? SC_S_FIELD_IN_UNIT : SC_S_NONE;
}

void sc_task_start(struct sc_task *t)
{
	bool known;
	uint32_t sense;

	t->status = SC_GOOD;
	t->aborted = t->exclusive = t->barrier = t->fua = t->punch = false;
	t->sense_len = 0;
	t->given = t->length = t->fetch = 0;
	t->step = 0;
	t->data = t->reply = NULL;
	t->manage = NULL;
	t->state = SC_IDLE;
	t->lu = find_lu(t->nexus->target, t->lun);
	t->row = find_row(t->cdb, &known);
	if (!t->lu && !(t->row && t->row->any_unit)) {
		sc_fail(t, SC_S_LUN);
		return;
	}
	if (t->lu && !(t->row && t->row->any_time) && (sense = sc_attention_take(t->nexus, t->lu->number))) {
		sc_fail(t, sense);
		return;
	}
	if (!t->row) {
		sc_fail(t, known ? SC_S_FIELD_IN_CDB : SC_S_OPCODE);
		return;
	}
	if (t->lu && sc_conflicts(t)) {
		sc_finish(t, SC_RESERVATION_CONFLICT);
		return;
	}
	if ((sense = check_cdb(t))) {
		t->length = t->fetch = 0;
		sc_fail(t, sense);
		return;
	}
	if (t->lu)
		append_task(t);
	else
		t->state = SC_WAITING;
}

/* ---- aborting, task management ---- */

/* Several functions may wait for one task: it knows the first, and each of them the next. */
static void wait_for(struct sc_task *t, struct sc_manage *m)
{
	struct sc_manage **at = &t->manage;

	while (*at && *at != m)
		at = &(*at)->then;
	if (*at)
		return;
	*at = m;
	m->pending++;
}

/* aborted by its own initiator: there is no response */
static void abort_task(struct sc_task *t, bool own, struct sc_manage *m)
{
	if (own)
		t->aborted = true;
	else
		t->status = SC_TASK_ABORTED; /* the control mode page has TAS */
	if (m)
		wait_for(t, m);
	if (t->state == SC_RUNNING)
		return;
	/* done may come only when no call of its own is on the stack, which holds for waiting and ready tasks */
	sc_finish(t, SC_TASK_ABORTED);
}

void sc_task_abort(struct sc_task *t)
{
	if (t->state == SC_IDLE)
		return;
	if (!t->lu) {
		t->aborted = true;
		t->state = SC_IDLE;
		t->done(t);
		return;
	}
	if (t->state == SC_RUNNING && !t->barrier) { /* what the initiator sends after its next login must come later */
		t->barrier = true;
		t->lu->barriers++;
	}
	abort_task(t, true, NULL);
}

void sc_abort_of_port(struct sc_lu *lu, const uint8_t port[SC_PORT_ID], struct sc_task *by)
{
	bool again;

	do {
		again = false;
		for (struct sc_task *t = lu->first; t && !again; t = t->next) {
			if (t == by || memcmp(t->nexus->port, port, SC_PORT_ID) != 0)
				continue;
			again = t->state != SC_RUNNING;
			abort_task(t, t->aborted, &by->aborting);
		}
	} while (again);
}

void sc_fail_waiting(struct sc_lu *lu, uint32_t sense)
{
	bool held = sc_hold(lu), again;

	do {
		again = false;
		for (struct sc_task *t = lu->first; t && !again; t = t->next)
			if ((again = t->state != SC_RUNNING))
				sc_fail(t, sense);
	} while (again);
	sc_go_on(lu, held);
}

static bool is_meant(const struct sc_task *t, const struct sc_manage *m)
{
	switch (m->function) {
	case SC_ABORT_TASK:
		return t->nexus == m->nexus && t->tag == m->tag;
	case SC_ABORT_TASK_SET:
		return t->nexus == m->nexus;
	default:
		return true;
	}
}

static void abort_meant(struct sc_lu *lu, struct sc_manage *m)
{
	bool again;

	do {
		again = false;
		for (struct sc_task *t = lu->first; t && !again; t = t->next) {
			if (!is_meant(t, m))
				continue;
			again = t->state != SC_RUNNING;
			/* an aborted task that still runs is waited for, too */
			if (m->function == SC_CLEAR_TASK_SET && t->nexus != m->nexus)
				t->nexus->attention[lu->number] |= 1u << SC_UA_CLEARED;
			abort_task(t, t->nexus == m->nexus || t->aborted, m);
		}
	} while (again);
}

void sc_manage(struct sc_manage *m)
{
	struct sc_lu *lu = find_lu(m->nexus->target, m->lun);

	if (m->function > SC_LUN_RESET) { /* NormACA is 0 */
		m->done(m, SC_NOT_SUPPORTED);
		return;
	}
	if (!lu) {
		m->done(m, SC_INCORRECT_LUN);
		return;
	}
	m->pending = 1; /* this call */
	m->then = NULL;
	bool held = sc_hold(lu);

	abort_meant(lu, m);
	if (m->function == SC_LUN_RESET) {
		lu->reserved = NULL;
		lu->stopped = false;
		lu->mode = (struct sc_mode){0};
		sc_attention_set(lu, NULL, SC_UA_RESET);
	}
	sc_manage_ended(m);
	sc_go_on(lu, held);
}
