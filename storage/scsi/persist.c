// persist.c - persistent reservations; they end with the program, unless a file keeps them (kept.c)
// follows: SPC-4, 5.13, 6.15, 6.16
// SPDX-License-Identifier: MIT
#include <stddef.h>

#include "scsi/internal.h"

enum { READ_KEYS, READ_RESERVATION, REPORT_CAPABILITIES, READ_FULL_STATUS };
enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_ABORT, REGISTER_IGNORE };
#define OUT_LEN 24u
#define PROTOCOL_SRP 4
#define APTPL 0x01u /* of a registration: it survives the target */

struct sc_registration *sc_registration_of(struct sc_lu *lu, const uint8_t port[SC_PORT_ID])
{
	for (unsigned i = 0; i < SC_REGISTRATIONS; i++)
		if (lu->registrations[i].key && !memcmp(lu->registrations[i].port, port, SC_PORT_ID))
			return &lu->registrations[i];
	return NULL;
}

bool sc_registrants_only(const struct sc_lu *lu)
{
	return lu->type == 5 || lu->type == 6;
}

bool sc_all_registrants(const struct sc_lu *lu)
{
	return lu->type == 7 || lu->type == 8;
}

bool sc_holds(const struct sc_lu *lu, const struct sc_registration *r)
{
	return lu->type && (sc_all_registrants(lu) || lu->held == r);
}

static void tell_port(struct sc_lu *lu, const uint8_t port[SC_PORT_ID], enum sc_attention what)
{
	for (struct sc_nexus *n = lu->target->nexuses; n; n = n->next)
		if (!memcmp(n->port, port, SC_PORT_ID))
			n->attention[lu->number] |= 1u << what;
}

static void tell_registrants(struct sc_lu *lu, const struct sc_registration *but, enum sc_attention what)
{
	for (unsigned i = 0; i < SC_REGISTRATIONS; i++)
		if (lu->registrations[i].key && &lu->registrations[i] != but)
			tell_port(lu, lu->registrations[i].port, what);
}

/* ---- PERSISTENT RESERVE IN ---- */

static uint32_t full_status(struct sc_lu *lu, uint8_t *at)
{
	uint8_t *begin = at;

	for (unsigned i = 0; i < SC_REGISTRATIONS; i++) {
		const struct sc_registration *r = &lu->registrations[i];

		if (!r->key)
			continue;
		memset(at, 0, 48);
		sc_put64(at, r->key);
		if (sc_holds(lu, r)) {
			at[12] = 1;
			at[13] = lu->type;
		}
		sc_put16(at + 18, 1); /* relative target port */
		sc_put32(at + 20, 24);
		at[24] = PROTOCOL_SRP; /* the transport ID. SPC-4, 7.6.4.5 */
		memcpy(at + 32, r->port, SC_PORT_ID);
		at += 48;
	}
	return (uint32_t)(at - begin);
}

static uint32_t keys(const struct sc_lu *lu, uint8_t *at)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < SC_REGISTRATIONS; i++)
		if (lu->registrations[i].key)
			sc_put64(at + 8 * n++, lu->registrations[i].key);
	return 8 * n;
}

static uint32_t reservation(const struct sc_lu *lu, uint8_t *at)
{
	if (!lu->type)
		return 0;
	memset(at, 0, 16);
	sc_put64(at, sc_all_registrants(lu) ? 0 : lu->held->key);
	at[13] = lu->type;
	return 16;
}

void sc_run_pr_in(struct sc_task *t)
{
	struct sc_lu *lu = t->lu;
	uint8_t *d = t->data;
	uint32_t allocation = sc_get16(t->cdb + 7), n = 0;
	/* LENGTH 8; TMV, ALLOW COMMANDS 1; all six types */
	const uint8_t capabilities[8] = {0, 8, lu->kept != NULL, 0x90 | lu->aptpl, 0xea, 0x01}; /* and PTPL_C, PTPL_A */

	switch (t->cdb[1] & 0x1f) {
	case READ_KEYS:
		n = keys(lu, d + 8);
		break;
	case READ_RESERVATION:
		n = reservation(lu, d + 8);
		break;
	case READ_FULL_STATUS:
		n = full_status(lu, d + 8);
		break;
	case REPORT_CAPABILITIES:
		memcpy(d, capabilities, sizeof(capabilities));
		sc_give(t, sizeof(capabilities), allocation);
		return;
	}
	sc_put32(d, lu->generation);
	sc_put32(d + 4, n);
	sc_give(t, 8 + n, allocation);
}

/* ---- PERSISTENT RESERVE OUT ---- */

uint32_t sc_check_pr_out(struct sc_task *t)
{
	uint8_t action = t->cdb[1] & 0x1f, type = t->cdb[2] & 0x0f, scope = t->cdb[2] >> 4;
	bool typed = action == RESERVE || action == RELEASE || action == PREEMPT || action == PREEMPT_ABORT;

	if (sc_get32(t->cdb + 5) != OUT_LEN)
		return SC_S_LIST_LENGTH;
	if (typed && (scope || (type != 1 && type != 3 && (type < 5 || type > 8))))
		return SC_S_FIELD_IN_CDB;
	t->length = t->fetch = OUT_LEN;
	return SC_S_NONE;
}

static void end_reservation(struct sc_lu *lu, const struct sc_registration *by)
{
	bool tell = lu->type >= 5;

	lu->type = 0;
	lu->held = NULL;
	if (tell)
		tell_registrants(lu, by, SC_UA_RELEASED);
}

/* Removes a registration; its reservation ends, or passes to another registrant if all of them hold it. */
static void unregister(struct sc_lu *lu, struct sc_registration *r)
{
	bool held = lu->held == r;

	r->key = 0;
	if (!held)
		return;
	for (unsigned i = 0; i < SC_REGISTRATIONS && sc_all_registrants(lu); i++)
		if (lu->registrations[i].key) {
			lu->held = &lu->registrations[i];
			return;
		}
	end_reservation(lu, r);
}

static uint8_t take_registration(struct sc_task *t, uint64_t key, uint64_t new_key, bool ignore)
{
	struct sc_lu *lu = t->lu;
	struct sc_registration *r = sc_registration_of(lu, t->nexus->port);

	if (!ignore && key != (r ? r->key : 0))
		return SC_RESERVATION_CONFLICT;
	if (!r && !new_key)
		return SC_GOOD;
	if (r && !new_key) {
		unregister(lu, r);
	} else if (r) {
		r->key = new_key;
	} else {
		for (unsigned i = 0; i < SC_REGISTRATIONS && !r; i++)
			if (!lu->registrations[i].key)
				r = &lu->registrations[i];
		if (!r)
			return SC_CHECK_CONDITION;
		memcpy(r->port, t->nexus->port, SC_PORT_ID);
		r->key = new_key;
	}
	lu->generation++;
	return SC_GOOD;
}

static uint8_t take_reservation(struct sc_lu *lu, const struct sc_registration *r, uint8_t type)
{
	if (lu->type)
		return sc_holds(lu, r) && lu->type == type ? SC_GOOD : SC_RESERVATION_CONFLICT;
	lu->type = type;
	lu->held = r;
	return SC_GOOD;
}

static void clear_all(struct sc_lu *lu, const struct sc_registration *by)
{
	tell_registrants(lu, by, SC_UA_PREEMPTED);
	lu->type = 0;
	lu->held = NULL;
	for (unsigned i = 0; i < SC_REGISTRATIONS; i++)
		lu->registrations[i].key = 0;
	lu->generation++;
}

/* Removes the other registrations with a key (0: all of them). Returns how many there were. */
static unsigned remove_others(struct sc_task *t, const struct sc_registration *by, uint64_t key, bool abort)
{
	struct sc_lu *lu = t->lu;
	unsigned n = 0;

	for (unsigned i = 0; i < SC_REGISTRATIONS; i++) {
		struct sc_registration *r = &lu->registrations[i];

		if (!r->key || r == by || (key && r->key != key))
			continue;
		r->key = 0;
		n++;
		tell_port(lu, r->port, SC_UA_REGISTRATIONS);
		if (abort)
			sc_abort_of_port(lu, r->port, t);
	}
	return n;
}

/* SPC-4, 5.13.11.2.4 */
static uint32_t preempt(struct sc_task *t, struct sc_registration *r, uint64_t key, uint8_t type, bool abort)
{
	struct sc_lu *lu = t->lu;
	bool takes = lu->type && (sc_all_registrants(lu) ? !key : lu->held->key == key);
	uint8_t before = lu->type;

	if (!takes && !key)
		return SC_S_FIELD_IN_LIST;
	if (takes) {
		lu->type = type;
		lu->held = r;
		if (before != type && before >= 5)
			tell_registrants(lu, r, SC_UA_RELEASED);
	}
	bool own = r->key == key;
	unsigned n = remove_others(t, r, key, abort);

	if (!takes && lu->type && !lu->held->key) /* all registrants held it; the one that did first is gone */
		lu->held = r;
	if (!takes && own) { /* it removes its own registration, too */
		unregister(lu, r);
		n++;
	}
	if (!takes && !n)
		return SC_RESERVATION_CONFLICT;
	lu->generation++;
	return SC_GOOD;
}

static void finish_pr(struct sc_task *t, uint32_t status)
{
	if (status == SC_CHECK_CONDITION)
		sc_fail(t, SC_S_NO_REGISTRATIONS);
	else if (status > 0xff)
		sc_fail(t, status);
	else if (status == SC_GOOD && !sc_kept_write(t->lu))
		sc_fail(t, SC_S_TARGET_FAILURE);
	else
		sc_finish(t, (uint8_t)status);
}

static void has_aborted(struct sc_manage *m, enum sc_manage_result result)
{
	finish_pr((struct sc_task *)(void *)((uint8_t *)m - offsetof(struct sc_task, aborting)), SC_GOOD);
}

/* It ends after the aborted tasks: then none of their writes reaches the medium any more. */
static void preempt_and_abort(struct sc_task *t, struct sc_registration *r, uint64_t key, uint8_t type)
{
	t->aborting = (struct sc_manage){.done = has_aborted, .pending = 1};
	bool held = sc_hold(t->lu);
	uint32_t status = preempt(t, r, key, type, true);

	sc_go_on(t->lu, held);
	if (status == SC_GOOD)
		sc_manage_ended(&t->aborting);
	else
		finish_pr(t, status);
}

void sc_run_pr_out(struct sc_task *t)
{
	struct sc_lu *lu = t->lu;
	uint8_t action = t->cdb[1] & 0x1f, type = t->cdb[2] & 0x0f;
	uint64_t key = sc_get64(t->data), new_key = sc_get64(t->data + 8);
	struct sc_registration *r = sc_registration_of(lu, t->nexus->port);

	bool registers = action == REGISTER || action == REGISTER_IGNORE, aptpl = t->data[20] & APTPL;

	if (t->data[20] & ~APTPL || (registers && aptpl && !lu->kept)) { /* SPEC_I_PT, ALL_TG_PT: not supported */
		sc_fail(t, SC_S_FIELD_IN_LIST);
		return;
	}
	if (registers) {
		uint8_t status = take_registration(t, key, new_key, action == REGISTER_IGNORE);

		if (status == SC_GOOD && (r || new_key)) /* otherwise it does nothing. SPC-4, 5.13.7 */
			lu->aptpl = aptpl;
		finish_pr(t, status);
		return;
	}
	if (!r || r->key != key) {
		sc_finish(t, SC_RESERVATION_CONFLICT);
		return;
	}
	switch (action) {
	case RESERVE:
		finish_pr(t, take_reservation(lu, r, type));
		return;
	case RELEASE:
		if (!sc_holds(lu, r)) {
			sc_good(t);
		} else if (lu->type != type) {
			sc_fail(t, SC_S_INVALID_RELEASE);
		} else {
			end_reservation(lu, r);
			finish_pr(t, SC_GOOD);
		}
		return;
	case CLEAR:
		clear_all(lu, r);
		finish_pr(t, SC_GOOD);
		return;
	case PREEMPT_ABORT:
		preempt_and_abort(t, r, new_key, type);
		return;
	default:
		finish_pr(t, preempt(t, r, new_key, type, false));
	}
}
