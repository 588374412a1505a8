// internal.h - shared by the files of storage/scsi
// follows: SPC-4, 6.35 (REPORT SUPPORTED OPERATION CODES) for the usage of a CDB's bits
// SPDX-License-Identifier: MIT
#ifndef SC_INTERNAL_H
#define SC_INTERNAL_H

#include "scsi/device.h"

/* How a reservation of another initiator port affects a command. SPC-4, table 66; SBC-3, table 13 */
enum sc_access {
	SC_ALWAYS,  /* also allowed under RESERVE */
	SC_ALLOWED, /* … by persistent reservations */
	SC_READS,
	SC_WRITES,
	SC_OWN, /* the command itself decides */
};

#define SC_NO_ACTION 0xffu

/*
 * A command. check reads the CDB, sets length, fetch and blocks, and returns a sense code. run carries it out: it
 * returns a sense code, or calls sc_io. Then step is called again when the backend is done.
 */
struct sc_row {
	uint8_t opcode, action; /* service action in byte 1, or SC_NO_ACTION */
	uint8_t cdb_len;
	enum sc_access access;
	bool any_unit, any_time;   /* for absent logical units, too; when a unit attention is pending, too */
	bool medium;               /* needs a started unit */
	uint8_t usage[SC_CDB_MAX]; /* bits of the CDB that may be set, without the operation code */
	uint32_t (*check)(struct sc_task *t);
	void (*run)(struct sc_task *t);
};

extern const struct sc_row sc_rows[];
extern const unsigned sc_row_count;

/* ---- results ---- */

void sc_finish(struct sc_task *t, uint8_t status);
void sc_good(struct sc_task *t);
void sc_give(struct sc_task *t, uint32_t length, uint32_t allocation); /* GOOD with the first bytes of data */
void sc_fail(struct sc_task *t, uint32_t sense);
void sc_fail_at(struct sc_task *t, uint32_t sense, uint32_t information); /* with the INFORMATION field */
void sc_error(struct sc_task *t, int error, bool writing);                /* of the backend */
/* In the fixed format or, with descriptors, the other one. Returns the length. */
uint8_t sc_sense_build(uint8_t out[SC_SENSE_MAX], uint32_t sense, bool descriptors);
uint32_t sc_attention_take(struct sc_nexus *n, unsigned lun); /* a sense code, or 0 */
void sc_attention_set(struct sc_lu *lu, const struct sc_nexus *but, enum sc_attention what);

/* Submits one request for the task; done is called by the backend. */
void sc_io(struct sc_task *t, enum nb_op op, uint64_t offset, uint64_t length, void *data,
           void (*done)(struct sc_task *t, int error));

/* ---- files by subject: the functions of their rows ---- */

uint32_t sc_check_none(struct sc_task *t);
uint32_t sc_check_reply(struct sc_task *t); /* any command whose data-in is at most SC_REPLY_MAX */

/* inquiry.c */
void sc_run_inquiry(struct sc_task *t);
/* primary.c */
void sc_run_range(struct sc_task *t); /* there is nothing to do */
void sc_run_request_sense(struct sc_task *t);
void sc_run_report_luns(struct sc_task *t);
void sc_run_opcodes(struct sc_task *t);
void sc_run_functions(struct sc_task *t);
void sc_run_start_stop(struct sc_task *t);
/* mode.c */
void sc_run_mode_sense(struct sc_task *t);
uint32_t sc_check_mode_select(struct sc_task *t);
void sc_run_mode_select(struct sc_task *t);
/* block.c */
uint64_t sc_lu_blocks(const struct sc_lu *lu);
uint32_t sc_write_protection(const struct sc_lu *lu); /* a sense code, if it cannot be written, or 0 */
uint32_t sc_lba_range(struct sc_task *t); /* reads LBA and length of the CDB, and checks them against the medium */
uint32_t sc_check_read(struct sc_task *t);
void sc_run_read(struct sc_task *t);
uint32_t sc_check_write(struct sc_task *t);
void sc_run_write(struct sc_task *t);
uint32_t sc_check_write_verify(struct sc_task *t);
uint32_t sc_check_verify(struct sc_task *t);
void sc_run_verify(struct sc_task *t);
uint32_t sc_check_compare_write(struct sc_task *t);
void sc_run_compare_write(struct sc_task *t);
uint32_t sc_check_range(struct sc_task *t); /* PREFETCH, SYNCHRONIZE CACHE */
void sc_run_sync(struct sc_task *t);
/* provision.c */
void sc_run_capacity10(struct sc_task *t);
void sc_run_capacity16(struct sc_task *t);
void sc_run_lba_status(struct sc_task *t);
uint32_t sc_check_unmap(struct sc_task *t);
void sc_run_unmap(struct sc_task *t);
uint32_t sc_check_write_same(struct sc_task *t);
void sc_run_write_same(struct sc_task *t);
/* reserve.c */
bool sc_conflicts(const struct sc_task *t); /* another port's reservation forbids the command */
void sc_run_reserve(struct sc_task *t);
void sc_run_release(struct sc_task *t);
/* persist.c */
struct sc_registration *sc_registration_of(struct sc_lu *lu, const uint8_t port[SC_PORT_ID]);
bool sc_all_registrants(const struct sc_lu *lu);
bool sc_registrants_only(const struct sc_lu *lu);
bool sc_holds(const struct sc_lu *lu, const struct sc_registration *r);
void sc_run_pr_in(struct sc_task *t);
uint32_t sc_check_pr_out(struct sc_task *t);
void sc_run_pr_out(struct sc_task *t);

/* task.c: no task begins between these two */
bool sc_hold(struct sc_lu *lu);
void sc_go_on(struct sc_lu *lu, bool held);
/* task.c: ends the tasks that do not run yet */
void sc_fail_waiting(struct sc_lu *lu, uint32_t sense);
/* task.c: one of those that m waits for has ended */
void sc_manage_ended(struct sc_manage *m);
/* task.c: aborts the tasks of a port but one, whose aborting waits for them. SPC-4, 5.13.11.2.6 (PREEMPT AND ABORT) */
void sc_abort_of_port(struct sc_lu *lu, const uint8_t port[SC_PORT_ID], struct sc_task *by);

/* kept.c: writes the unit's persistent reservations to its file, if it has one. False: that failed. */
bool sc_kept_write(struct sc_lu *lu);

#endif
