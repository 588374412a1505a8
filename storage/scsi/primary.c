// primary.c - REQUEST SENSE, REPORT LUNS, START STOP UNIT, and the reports of what is supported
// follows: SPC-4, 6.33, 6.35, 6.36, 6.39; SBC-3, 5.25
// SPDX-License-Identifier: MIT
#include "scsi/internal.h"

#define TIMEOUTS 12u /* bytes of a command timeouts descriptor */

void sc_run_range(struct sc_task *t)
{
	sc_good(t);
}

void sc_run_request_sense(struct sc_task *t)
{
	uint32_t sense = t->lu ? sc_attention_take(t->nexus, t->lu->number) : SC_S_LUN;

	if (!sense && t->lu->stopped)
		sense = SC_S_INITIALIZING_REQUIRED;
	sc_give(t, sc_sense_build(t->data, sense, t->cdb[1] & 1), t->cdb[4]); /* DESC */
}

void sc_run_report_luns(struct sc_task *t)
{
	const struct sc_target *target = t->nexus->target;
	uint32_t allocation = sc_get32(t->cdb + 6), n = 0;

	if (t->cdb[2] > 2 || allocation < 16) {
		sc_fail(t, SC_S_FIELD_IN_CDB);
		return;
	}
	memset(t->data, 0, 8 + 8 * SC_LUNS);
	for (unsigned i = 0; i < SC_LUNS && t->cdb[2] != 1; i++) /* 1: well known logical units alone */
		if (target->lus[i])
			t->data[8 + 8 * n++ + 1] = (uint8_t)i;
	for (unsigned i = 0; i < SC_LUNS; i++) /* SAM-5, 5.14: the change of the list is known with it */
		t->nexus->attention[i] &= ~(1u << SC_UA_LUNS);
	sc_put32(t->data, 8 * n);
	sc_give(t, 8 + 8 * n, allocation);
}

/* ---- START STOP UNIT ---- */

static void stopped(struct sc_task *t, int error)
{
	if (error) {
		sc_error(t, error, true);
		return;
	}
	t->lu->stopped = true;
	sc_good(t);
}

void sc_run_start_stop(struct sc_task *t)
{
	if (t->cdb[4] & 1) {
		t->lu->stopped = false;
		sc_good(t);
	} else if (t->cdb[4] & 4) { /* NO_FLUSH */
		stopped(t, 0);
	} else {
		sc_io(t, NB_FLUSH, 0, 0, NULL, stopped);
	}
}

/* ---- REPORT SUPPORTED OPERATION CODES ---- */

static uint32_t timeouts(uint8_t *at, bool wanted)
{
	if (!wanted)
		return 0;
	memset(at, 0, TIMEOUTS); /* no timeout is indicated */
	sc_put16(at, TIMEOUTS - 2);
	return TIMEOUTS;
}

static uint32_t all_opcodes(uint8_t *d, bool rctd)
{
	uint8_t *at = d + 4;

	for (unsigned i = 0; i < sc_row_count; i++) {
		const struct sc_row *r = &sc_rows[i];
		bool action = r->action != SC_NO_ACTION;

		memset(at, 0, 8);
		at[0] = r->opcode;
		sc_put16(at + 2, action ? r->action : 0);
		at[5] = (uint8_t)(rctd << 1 | action); /* CTDP, SERVACTV */
		sc_put16(at + 6, r->cdb_len);
		at += 8;
		at += timeouts(at, rctd);
	}
	sc_put32(d, (uint32_t)(at - d) - 4);
	return (uint32_t)(at - d);
}

static uint32_t one_opcode(uint8_t *d, bool rctd, const struct sc_row *r)
{
	memset(d, 0, 4 + SC_CDB_MAX);
	d[1] = r ? 3 : 1; /* supported as the standard has it, or not */
	if (!r)
		return 4;
	d[1] |= (uint8_t)(rctd << 7);
	sc_put16(d + 2, r->cdb_len);
	memcpy(d + 4, r->usage, r->cdb_len);
	d[4] = r->opcode;
	if (r->action != SC_NO_ACTION)
		d[5] = (uint8_t)((d[5] & ~0x1f) | r->action);
	return 4 + r->cdb_len + timeouts(d + 4 + r->cdb_len, rctd);
}

void sc_run_opcodes(struct sc_task *t)
{
	uint8_t options = t->cdb[2] & 7;
	uint16_t action = sc_get16(t->cdb + 4);
	bool rctd = t->cdb[2] >> 7, known = false, actions = false;
	uint32_t allocation = sc_get32(t->cdb + 6);
	const struct sc_row *found = NULL;

	if (!options) {
		sc_give(t, all_opcodes(t->data, rctd), allocation);
		return;
	}
	for (unsigned i = 0; i < sc_row_count; i++) {
		if (sc_rows[i].opcode != t->cdb[3])
			continue;
		known = true;
		actions = sc_rows[i].action != SC_NO_ACTION;
		if (actions ? sc_rows[i].action == action && options > 1 : options == 1 || (options == 3 && !action))
			found = &sc_rows[i];
	}
	if (options > 3 || (known && ((options == 1 && actions) || (options == 2 && !actions)))) {
		sc_fail(t, SC_S_FIELD_IN_CDB);
		return;
	}
	sc_give(t, one_opcode(t->data, rctd, found), allocation);
}

void sc_run_functions(struct sc_task *t)
{
	memset(t->data, 0, 16);
	t->data[0] = 0x80 | 0x40 | 0x10 | 0x08; /* ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET */
	t->data[3] = t->cdb[2] & 0x80 ? 12 : 0; /* REPD */
	sc_give(t, t->cdb[2] & 0x80 ? 16 : 4, sc_get32(t->cdb + 6));
}
