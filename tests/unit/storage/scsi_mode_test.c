// scsi_mode_test.c - MODE SELECT: what can be changed, what it does, and which lists are refused
// follows: SPC-4, 6.11, 6.12; SBC-3, 6.5.5 (caching)
// SPDX-License-Identifier: MIT
#include "scsi_unit.h"

#define PAGE 4u /* the page's offset in a list without a block descriptor */

/* Reads a page of a unit into said.data, as a list for MODE SELECT (6). Returns its length. */
static uint8_t page_of(unsigned lun, uint8_t control, uint8_t page)
{
	begin(&said, &nexus, lun, CDB(SC_MODE_SENSE6, 8, (uint8_t)(control << 6 | page), 0, 255, 0), 0);
	SAME(said.task.status, SC_GOOD);
	memset(said.data, 0, PAGE);
	return (uint8_t)said.task.given;
}

static uint32_t outcome_of(void)
{
	if (said.task.status != SC_CHECK_CONDITION)
		return said.task.status;
	bool descriptors = said.task.sense[0] == 0x72;

	return descriptors ? SC_SENSE(said.task.sense[1], said.task.sense[2], said.task.sense[3])
	                   : SC_SENSE(said.task.sense[2], said.task.sense[12], said.task.sense[13]);
}

static uint32_t select6(unsigned lun, uint8_t len)
{
	begin(&said, &nexus, lun, CDB(SC_MODE_SELECT6, 0x10, 0, 0, len, 0), len);
	return outcome_of();
}

static uint32_t write_one(unsigned lun)
{
	begin(&said, &nexus, lun, CDB(SC_WRITE10, 0, 0, 0, 0, 0, 0, 0, 1, 0), BLOCK);
	return outcome_of();
}

static void without_write_cache_each_write_is_durable(void)
{
	target_open();
	uint8_t len = page_of(1, 1, 0x08);

	SAME(said.data[PAGE + 2], 0x04); /* changeable: WCE */
	len = page_of(1, 0, 0x08);
	SAME(said.data[PAGE + 2], 0x04);
	said.data[PAGE + 2] = 0;
	begin(&said, &nexus, 1, CDB(SC_MODE_SELECT6, 0x10, 0, 0, len, 0), len);
	SAME(slow.count, 1);
	SAME(slow.pending[0]->op, NB_FLUSH); /* of what the cache has */
	slow_finish(0, 0);
	SAME(outcome_of(), SC_GOOD);
	SAME(nexus.attention[1], 0);
	SAME(other.attention[1], 1u << SC_UA_MODE);
	write_one(1);
	CHECK(slow.pending[0]->fua);
	slow_finish(0, 0);
	page_of(1, 0, 0x08);
	SAME(said.data[PAGE + 2], 0);
	page_of(1, 2, 0x08);
	SAME(said.data[PAGE + 2], 0x04); /* the default stays */
	page_of(1, 0, 0x08);
	said.data[PAGE + 2] = 0x04;
	SAME(select6(1, len), SC_GOOD);
	write_one(1);
	CHECK(!slow.pending[0]->fua);
	slow_finish(0, 0);
	target_close();
}

static void a_write_protected_unit_refuses_writes_until_a_reset(void)
{
	target_open();
	uint8_t len = page_of(0, 0, 0x0a);

	said.data[PAGE + 4] |= 0x08; /* SWP */
	SAME(select6(0, len), SC_GOOD);
	SAME(write_one(0), SC_S_SOFTWARE_PROTECTED);
	SAME(COMMAND_OUT(24, SC_UNMAP, 0, 0, 0, 0, 0, 0, 0, 24, 0), SC_S_SOFTWARE_PROTECTED);
	SAME(COMMAND(SC_MODE_SENSE6, 8, 0x3f, 0, 255, 0), SC_GOOD);
	SAME(said.data[2] & 0x80, 0x80);
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 1, 0), SC_GOOD);
	target.lus[0]->mode = (struct sc_mode){0};
	SAME(write_one(0), SC_GOOD);
	target_close();
}

static void sense_data_may_have_descriptors(void)
{
	target_open();
	uint8_t len = page_of(0, 0, 0x0a);

	said.data[PAGE + 2] |= 0x04; /* D_SENSE */
	SAME(select6(0, len), SC_GOOD);
	begin(&said, &nexus, 0, CDB(0xc7, 0, 0, 0, 0, 0), 0);
	SAME(said.task.sense_len, 8);
	SAME(outcome_of(), SC_S_OPCODE);
	memset(said.data, 9, 2 * BLOCK);
	begin(&said, &nexus, 0, CDB(SC_COMPARE_WRITE, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0), 2 * BLOCK);
	SAME(outcome_of(), SC_S_MISCOMPARE);
	SAME(said.task.sense_len, 8 + said.task.sense[7]);
	SAME(said.task.sense[10], 0x80);
	SAME(sc_get64(said.task.sense + 12), 0);
	begin(&said, &nexus, 0, CDB(SC_REQUEST_SENSE, 1, 0, 0, 255, 0), 0);
	SAME(said.data[0], 0x72);
	SAME(said.task.given, 8);
	target_close();
}

static void a_list_that_changes_what_it_must_not_changes_nothing(void)
{
	target_open();
	uint8_t len = page_of(0, 0, 0x3f);

	said.data[PAGE + 2] = 0x01;      /* RCD of the caching page */
	said.data[PAGE + 20 + 4] = 0x08; /* … and SWP of the control page */
	SAME(select6(0, len), SC_S_FIELD_IN_LIST);
	page_of(0, 0, 0x0a);
	SAME(said.data[PAGE + 4], 0);
	page_of(0, 0, 0x08);
	said.data[PAGE + 2] = 0x04; /* memory has no cache */
	SAME(select6(0, PAGE + 20), SC_S_FIELD_IN_LIST);
	page_of(0, 0, 0x08);
	said.data[PAGE + 1]--;
	SAME(select6(0, PAGE + 20), SC_S_FIELD_IN_LIST);
	page_of(0, 0, 0x08);
	said.data[PAGE] = 0x1c; /* no such page */
	SAME(select6(0, PAGE + 20), SC_S_FIELD_IN_LIST);
	SAME(other.attention[0], 0);
	target_close();
}

static void lists_that_end_too_early_are_refused(void)
{
	target_open();
	SAME(select6(0, 0), SC_GOOD);
	for (uint8_t len = 1; len < PAGE + 20; len++) {
		page_of(0, 0, 0x08);
		if (len != PAGE)
			SAME(select6(0, len), SC_S_LIST_LENGTH);
	}
	page_of(0, 0, 0x08);
	said.data[3] = 255; /* a block descriptor longer than the list */
	SAME(select6(0, PAGE + 20), SC_S_LIST_LENGTH);
	SAME(COMMAND_OUT(4, SC_MODE_SELECT6, 0x11, 0, 0, 4, 0), SC_S_FIELD_IN_CDB); /* SP: nothing is saved */
	SAME(COMMAND_OUT(4, SC_MODE_SELECT6, 0, 0, 0, 4, 0), SC_S_FIELD_IN_CDB);    /* without PF */
	target_close();
}

static void mode_select_10_takes_block_descriptors_that_are_true(void)
{
	target_open();
	for (unsigned with_long = 0; with_long < 2; with_long++) {
		uint8_t flags = with_long ? 0x10 : 0;

		SAME(COMMAND(SC_MODE_SENSE10, flags, 0x0a, 0, 0, 0, 0, 0, 255, 0), SC_GOOD);
		uint8_t len = (uint8_t)said.task.given;

		said.data[0] = said.data[1] = said.data[3] = 0;
		SAME(COMMAND_OUT(len, SC_MODE_SELECT10, 0x10, 0, 0, 0, 0, 0, 0, len, 0), SC_GOOD);
		SAME(COMMAND(SC_MODE_SENSE10, flags, 0x0a, 0, 0, 0, 0, 0, 255, 0), SC_GOOD);
		said.data[8 + (with_long ? 14 : 6)] ^= 1; /* another block size */
		SAME(COMMAND_OUT(len, SC_MODE_SELECT10, 0x10, 0, 0, 0, 0, 0, 0, len, 0), SC_S_FIELD_IN_LIST);
	}
	target_close();
}

int main(void)
{
	RUN(without_write_cache_each_write_is_durable);
	RUN(a_write_protected_unit_refuses_writes_until_a_reset);
	RUN(sense_data_may_have_descriptors);
	RUN(a_list_that_changes_what_it_must_not_changes_nothing);
	RUN(lists_that_end_too_early_are_refused);
	RUN(mode_select_10_takes_block_descriptors_that_are_true);
	return 0;
}
