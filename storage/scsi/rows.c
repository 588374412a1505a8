// rows.c - the table of commands; REPORT SUPPORTED OPERATION CODES is made of it
// follows: SPC-4; SBC-3, 5
// SPDX-License-Identifier: MIT
#include "scsi/internal.h"

#define LBA32 0xff, 0xff, 0xff, 0xff
#define LEN16 0xff, 0xff
#define LEN32 0xff, 0xff, 0xff, 0xff
#define LBA64 LBA32, LBA32
#define NONE SC_NO_ACTION
#define DPO_FUA 0x18
#define GROUP 0x1f /* nothing is collected for groups; their number is taken all the same */

const struct sc_row sc_rows[] = {
        {SC_TEST_UNIT_READY, NONE, 6, SC_ALLOWED, .medium = true, .check = sc_check_none, .run = sc_run_range},
        {SC_REQUEST_SENSE,
         NONE,
         6,
         SC_ALWAYS,
         true,
         true,
         false,
         {0, 1, 0, 0, 0xff},
         sc_check_reply,
         sc_run_request_sense},
        {SC_INQUIRY, NONE, 6, SC_ALWAYS, true, true, false, {0, 1, 0xff, LEN16}, sc_check_reply, sc_run_inquiry},
        {SC_REPORT_LUNS,
         NONE,
         12,
         SC_ALWAYS,
         true,
         true,
         false,
         {0, 0, 0xff, 0, 0, 0, LEN32},
         sc_check_reply,
         sc_run_report_luns},
        {SC_MAINTENANCE_IN, 0x0c, 12, SC_ALLOWED, .usage = {0, 0x1f, 0x87, 0xff, LEN16, LEN32}, .check = sc_check_reply,
         .run = sc_run_opcodes},
        {SC_MAINTENANCE_IN, 0x0d, 12, SC_ALLOWED, .usage = {0, 0x1f, 0x80, 0, 0, 0, LEN32}, .check = sc_check_reply,
         .run = sc_run_functions},
        {SC_MODE_SENSE6, NONE, 6, SC_READS, .usage = {0, 0x08, 0xff, 0xff, 0xff}, .check = sc_check_reply,
         .run = sc_run_mode_sense},
        {SC_MODE_SENSE10, NONE, 10, SC_READS, .usage = {0, 0x18, 0xff, 0xff, 0, 0, 0, LEN16}, .check = sc_check_reply,
         .run = sc_run_mode_sense},
        {SC_MODE_SELECT6, NONE, 6, SC_WRITES, .usage = {0, 0x10, 0, 0, 0xff}, .check = sc_check_mode_select,
         .run = sc_run_mode_select},
        {SC_MODE_SELECT10, NONE, 10, SC_WRITES, .usage = {0, 0x10, 0, 0, 0, 0, 0, LEN16}, .check = sc_check_mode_select,
         .run = sc_run_mode_select},
        {SC_START_STOP, NONE, 6, SC_OWN, .usage = {0, 1, 0, 0, 0x05}, .check = sc_check_none, .run = sc_run_start_stop},
        {SC_READ_CAPACITY10, NONE, 10, SC_ALLOWED, .medium = true, .check = sc_check_reply, .run = sc_run_capacity10},
        {SC_SERVICE_IN16, 0x10, 16, SC_ALLOWED, .medium = true, .usage = {0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, LEN32},
         .check = sc_check_reply, .run = sc_run_capacity16},
        {SC_SERVICE_IN16, 0x12, 16, SC_READS, .medium = true, .usage = {0, 0x1f, LBA64, LEN32}, .check = sc_check_reply,
         .run = sc_run_lba_status},
        {SC_READ6, NONE, 6, SC_READS, .medium = true, .usage = {0, 0x1f, 0xff, 0xff, 0xff}, .check = sc_check_read,
         .run = sc_run_read},
        {SC_READ10, NONE, 10, SC_READS, .medium = true, .usage = {0, DPO_FUA, LBA32, GROUP, LEN16},
         .check = sc_check_read, .run = sc_run_read},
        {SC_READ12, NONE, 12, SC_READS, .medium = true, .usage = {0, DPO_FUA, LBA32, LEN32, GROUP},
         .check = sc_check_read, .run = sc_run_read},
        {SC_READ16, NONE, 16, SC_READS, .medium = true, .usage = {0, DPO_FUA, LBA64, LEN32, GROUP},
         .check = sc_check_read, .run = sc_run_read},
        {SC_WRITE6, NONE, 6, SC_WRITES, .medium = true, .usage = {0, 0x1f, 0xff, 0xff, 0xff}, .check = sc_check_write,
         .run = sc_run_write},
        {SC_WRITE10, NONE, 10, SC_WRITES, .medium = true, .usage = {0, DPO_FUA, LBA32, GROUP, LEN16},
         .check = sc_check_write, .run = sc_run_write},
        {SC_WRITE12, NONE, 12, SC_WRITES, .medium = true, .usage = {0, DPO_FUA, LBA32, LEN32, GROUP},
         .check = sc_check_write, .run = sc_run_write},
        {SC_WRITE16, NONE, 16, SC_WRITES, .medium = true, .usage = {0, DPO_FUA, LBA64, LEN32, GROUP},
         .check = sc_check_write, .run = sc_run_write},
        {SC_WRITE_VERIFY10, NONE, 10, SC_WRITES, .medium = true, .usage = {0, 0x12, LBA32, GROUP, LEN16},
         .check = sc_check_write_verify, .run = sc_run_write},
        {SC_WRITE_VERIFY12, NONE, 12, SC_WRITES, .medium = true, .usage = {0, 0x12, LBA32, LEN32, GROUP},
         .check = sc_check_write_verify, .run = sc_run_write},
        {SC_WRITE_VERIFY16, NONE, 16, SC_WRITES, .medium = true, .usage = {0, 0x12, LBA64, LEN32, GROUP},
         .check = sc_check_write_verify, .run = sc_run_write},
        {SC_VERIFY10, NONE, 10, SC_READS, .medium = true, .usage = {0, 0x16, LBA32, GROUP, LEN16},
         .check = sc_check_verify, .run = sc_run_verify},
        {SC_VERIFY12, NONE, 12, SC_READS, .medium = true, .usage = {0, 0x16, LBA32, LEN32, GROUP},
         .check = sc_check_verify, .run = sc_run_verify},
        {SC_VERIFY16, NONE, 16, SC_READS, .medium = true, .usage = {0, 0x16, LBA64, LEN32, GROUP},
         .check = sc_check_verify, .run = sc_run_verify},
        {SC_COMPARE_WRITE, NONE, 16, SC_WRITES, .medium = true, .usage = {0, DPO_FUA, LBA64, 0, 0, 0, 0xff, GROUP},
         .check = sc_check_compare_write, .run = sc_run_compare_write},
        {SC_PREFETCH10, NONE, 10, SC_READS, .medium = true, .usage = {0, 0x02, LBA32, GROUP, LEN16},
         .check = sc_check_range, .run = sc_run_range},
        {SC_PREFETCH16, NONE, 16, SC_READS, .medium = true, .usage = {0, 0x02, LBA64, LEN32, GROUP},
         .check = sc_check_range, .run = sc_run_range},
        {SC_SYNC_CACHE10, NONE, 10, SC_WRITES, .medium = true, .usage = {0, 0x06, LBA32, GROUP, LEN16},
         .check = sc_check_range, .run = sc_run_sync},
        {SC_SYNC_CACHE16, NONE, 16, SC_WRITES, .medium = true, .usage = {0, 0x06, LBA64, LEN32, GROUP},
         .check = sc_check_range, .run = sc_run_sync},
        {SC_UNMAP, NONE, 10, SC_WRITES, .medium = true, .usage = {0, 0, 0, 0, 0, 0, GROUP, LEN16},
         .check = sc_check_unmap, .run = sc_run_unmap},
        {SC_WRITE_SAME10, NONE, 10, SC_WRITES, .medium = true, .usage = {0, 0x08, LBA32, GROUP, LEN16},
         .check = sc_check_write_same, .run = sc_run_write_same},
        {SC_WRITE_SAME16, NONE, 16, SC_WRITES, .medium = true, .usage = {0, 0x09, LBA64, LEN32, GROUP},
         .check = sc_check_write_same, .run = sc_run_write_same},
        {SC_RESERVE6, NONE, 6, SC_OWN, .check = sc_check_none, .run = sc_run_reserve},
        {SC_RELEASE6, NONE, 6, SC_OWN, .check = sc_check_none, .run = sc_run_release},
        {SC_RESERVE10, NONE, 10, SC_OWN, .check = sc_check_none, .run = sc_run_reserve},
        {SC_RELEASE10, NONE, 10, SC_OWN, .check = sc_check_none, .run = sc_run_release},
#define PR_IN(action)                                                                                                \
	{                                                                                                            \
		SC_PR_IN, action, 10, SC_ALLOWED, .usage = {0, 0x1f, 0, 0, 0, 0, 0, LEN16}, .check = sc_check_reply, \
		                                  .run = sc_run_pr_in                                                \
	}
#define PR_OUT(action)                                                                                          \
	{                                                                                                       \
		SC_PR_OUT, action, 10, SC_OWN, .usage = {0, 0x1f, 0xff, 0, 0, LEN32}, .check = sc_check_pr_out, \
		                               .run = sc_run_pr_out                                             \
	}
        PR_IN(0),
        PR_IN(1),
        PR_IN(2),
        PR_IN(3),
        PR_OUT(0),
        PR_OUT(1),
        PR_OUT(2),
        PR_OUT(3),
        PR_OUT(4),
        PR_OUT(5),
        PR_OUT(6),
};

const unsigned sc_row_count = sizeof(sc_rows) / sizeof(*sc_rows);

uint32_t sc_check_none(struct sc_task *t)
{
	return SC_S_NONE;
}

uint32_t sc_check_reply(struct sc_task *t)
{
	t->length = SC_REPLY_MAX;
	return SC_S_NONE;
}
