// scsi_test.c - the SCSI layer: what each command answers
// follows: SPC-4; SBC-3
// SPDX-License-Identifier: MIT
#include "scsi_unit.h"

static void a_new_nexus_is_told_of_the_power_on_once(void)
{
	target_open();
	nexus.attention[0] = 1;
	SAME(COMMAND(SC_INQUIRY, 0, 0, 0, 96, 0), SC_GOOD); /* INQUIRY leaves it pending */
	SAME(COMMAND(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), SC_SENSE(6, 0x29, 0x00));
	SAME(COMMAND(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), SC_GOOD);
	nexus.attention[0] = 1;
	SAME(COMMAND(SC_REQUEST_SENSE, 0, 0, 0, 18, 0), SC_GOOD);
	SAME(said.data[2], SC_UNIT_ATTENTION);
	SAME(COMMAND(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), SC_GOOD);
	target_close();
}

static void inquiry_gives_each_page_that_it_lists(void)
{
	uint8_t pages[16];

	target_open();
	SAME(COMMAND(SC_INQUIRY, 0, 0, 0, 255, 0), SC_GOOD);
	SAME(said.data[0], 0);
	SAME(said.data[4] + 5u, said.task.given);
	SAME(COMMAND(SC_INQUIRY, 1, 0, 0, 255, 0), SC_GOOD);
	SAME(said.data[3], 7);
	memcpy(pages, said.data + 4, 7);
	for (unsigned i = 0; i < 7; i++) {
		SAME(COMMAND(SC_INQUIRY, 1, pages[i], 0, 255, 0), SC_GOOD);
		SAME(said.data[1], pages[i]);
		SAME(sc_get16(said.data + 2) + 4u, said.task.given);
	}
	SAME(COMMAND(SC_INQUIRY, 1, 0x99, 0, 255, 0), SC_S_FIELD_IN_CDB);
	SAME(COMMAND(SC_INQUIRY, 0, 0x80, 0, 255, 0), SC_S_FIELD_IN_CDB);
	SAME(COMMAND(SC_INQUIRY, 1, 0x83, 0, 7, 0), SC_GOOD);
	SAME(said.task.given, 7);
	target_close();
}

static void absent_units_answer_inquiry_and_no_other_command(void)
{
	target_open();
	begin(&said, &nexus, 7, CDB(SC_INQUIRY, 0, 0, 0, 96, 0), 0);
	SAME(said.done, 1);
	SAME(said.data[0], 0x7f);
	begin(&said, &nexus, 7, CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), 0);
	SAME(said.task.status, SC_CHECK_CONDITION);
	SAME(said.task.sense[12], 0x25);
	SAME(COMMAND(SC_REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), SC_GOOD);
	SAME(sc_get32(said.data), 16);
	SAME(said.data[17], 1);
	target_close();
}

static void both_capacities_agree(void)
{
	target_open();
	SAME(COMMAND(SC_READ_CAPACITY10, 0, 0, 0, 0, 0, 0, 0, 0, 0), SC_GOOD);
	SAME(sc_get32(said.data), BLOCKS - 1);
	SAME(sc_get32(said.data + 4), BLOCK);
	SAME(COMMAND(SC_SERVICE_IN16, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0), SC_GOOD);
	SAME(sc_get64(said.data), BLOCKS - 1);
	SAME(said.data[14], 0xc0);
	target_close();
}

static void what_each_write_wrote_each_read_reads(void)
{
	static const uint8_t writes[] = {SC_WRITE10,        SC_WRITE12,        SC_WRITE16,
	                                 SC_WRITE_VERIFY10, SC_WRITE_VERIFY12, SC_WRITE_VERIFY16},
	                     reads[] = {SC_READ10, SC_READ12, SC_READ16};

	target_open();
	for (unsigned w = 0; w < sizeof(writes); w++)
		for (unsigned r = 0; r < sizeof(reads); r++) {
			uint8_t cdb[16] = {writes[w]};
			bool sixteen = cdb[0] >> 5 == 4, twelve = cdb[0] >> 5 == 5;

			cdb[sixteen ? 9 : 5] = 17;
			cdb[sixteen ? 13 : twelve ? 9 : 8] = 3;
			memset(said.data, (int)(16 * w + r + 1), 3 * BLOCK);
			SAME(command_of(&nexus, cdb, 16, 3 * BLOCK), SC_GOOD);
			memset(cdb, 0, sizeof(cdb));
			cdb[0] = reads[r];
			sixteen = cdb[0] >> 5 == 4, twelve = cdb[0] >> 5 == 5;
			cdb[sixteen ? 9 : 5] = 19;
			cdb[sixteen ? 13 : twelve ? 9 : 8] = 2;
			memset(said.data, 0xff, 3 * BLOCK);
			SAME(command_of(&nexus, cdb, 16, 0), SC_GOOD);
			SAME(said.task.given, 2 * BLOCK);
			SAME(said.task.reply[BLOCK - 1], 16 * w + r + 1);
			SAME(said.task.reply[BLOCK], 0);
		}
	memset(said.data, 0x66, 256 * BLOCK);
	SAME(COMMAND_OUT(256 * BLOCK, SC_WRITE6, 0, 0, 0, 0, 0), SC_GOOD); /* length 0: 256 blocks */
	SAME(COMMAND(SC_READ6, 0, 0, 255, 1, 0), SC_GOOD);
	SAME(said.data[0], 0x66);
	target_close();
}

static void ranges_behind_the_end_are_refused(void)
{
	target_open();
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0x10, 0, 0, 0, 0, 0), SC_GOOD); /* none at the end */
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0x10, 1, 0, 0, 0, 0), SC_S_LBA);
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0x0f, 0xff, 0, 0, 2, 0), SC_S_LBA);
	SAME(COMMAND(SC_READ16, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1, 0, 0), SC_S_LBA);
	SAME(COMMAND_OUT(BLOCK, SC_WRITE16, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1, 0, 0), SC_S_LBA);
	SAME(COMMAND(SC_VERIFY10, 0, 0, 0, 0x10, 0, 0, 0, 1, 0), SC_S_LBA);
	SAME(COMMAND(SC_PREFETCH16, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 1, 0, 0), SC_S_LBA);
	SAME(COMMAND(SC_SYNC_CACHE10, 0, 0, 0, 0x10, 0, 0, 0, 1, 0), SC_S_LBA);
	SAME(COMMAND(SC_SERVICE_IN16, 0x12, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 24, 0, 0), SC_S_LBA);
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0, 0, 0, 0x0f, 0xff, 0), SC_S_FIELD_IN_CDB); /* more than page B0h allows */
	target_close();
}

static void wrong_fields_are_refused(void)
{
	target_open();
	SAME(COMMAND(0xc7, 0, 0, 0, 0, 0), SC_S_OPCODE);
	SAME(COMMAND(SC_SERVICE_IN16, 0x1f), SC_S_FIELD_IN_CDB);
	SAME(COMMAND(SC_READ10, 0x20, 0, 0, 0, 0, 0, 0, 1, 0), SC_S_FIELD_IN_CDB); /* protection information */
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 1, 0x04), SC_S_FIELD_IN_CDB); /* NACA */
	SAME(COMMAND_OUT(BLOCK, SC_WRITE10, 0, 0, 0, 0, 0, 0, 0, 2, 0), SC_S_FIELD_IN_UNIT); /* too little data */
	SAME(COMMAND(SC_MODE_SENSE6, 0, 0xc8, 0, 255, 0), SC_S_SAVING);
	SAME(COMMAND(SC_MODE_SENSE6, 0, 0x01, 0, 255, 0), SC_S_FIELD_IN_CDB);
	target_close();
}

static void verify_compares_with_the_medium(void)
{
	target_open();
	memset(said.data, 5, 2 * BLOCK);
	SAME(COMMAND_OUT(2 * BLOCK, SC_WRITE10, 0, 0, 0, 0, 0, 0, 0, 2, 0), SC_GOOD);
	SAME(COMMAND(SC_VERIFY10, 0, 0, 0, 0, 0, 0, 0, 2, 0), SC_GOOD);
	memset(said.data, 5, 2 * BLOCK);
	SAME(COMMAND_OUT(2 * BLOCK, SC_VERIFY16, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0), SC_GOOD);
	memset(said.data, 5, 2 * BLOCK);
	said.data[2 * BLOCK - 1] = 6;
	SAME(COMMAND_OUT(2 * BLOCK, SC_VERIFY12, 0x02, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0), SC_S_MISCOMPARE);
	memset(said.data, 5, BLOCK);
	SAME(COMMAND_OUT(BLOCK, SC_VERIFY10, 0x06, 0, 0, 0, 0, 0, 0, 2, 0), SC_GOOD);
	SAME(COMMAND_OUT(BLOCK, SC_VERIFY10, 0x06, 0, 0, 0, 0, 0, 0, 3, 0), SC_S_MISCOMPARE);
	SAME(COMMAND_OUT(BLOCK, SC_VERIFY10, 0x04, 0, 0, 0, 0, 0, 0, 1, 0), SC_S_FIELD_IN_CDB);
	target_close();
}

static void compare_and_write_writes_if_all_is_equal(void)
{
	target_open();
	memset(said.data, 0, BLOCK);
	memset(said.data + BLOCK, 9, BLOCK);
	SAME(COMMAND_OUT(2 * BLOCK, SC_COMPARE_WRITE, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0), SC_GOOD);
	memset(said.data, 9, 2 * BLOCK);
	said.data[100] = 8;
	SAME(COMMAND_OUT(2 * BLOCK, SC_COMPARE_WRITE, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0), SC_S_MISCOMPARE);
	SAME(said.task.sense[0], 0xf0); /* the information field is valid */
	SAME(sc_get32(said.task.sense + 3), 100);
	SAME(COMMAND_OUT(66 * BLOCK, SC_COMPARE_WRITE, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 33, 0, 0),
	     SC_S_FIELD_IN_CDB);
	target_close();
}

static uint32_t unmap(uint64_t lba, uint32_t blocks, uint16_t list)
{
	memset(said.data, 0, list);
	sc_put16(said.data, (uint16_t)(list - 2));
	sc_put16(said.data + 2, (uint16_t)(list - 8));
	sc_put64(said.data + 8, lba);
	sc_put32(said.data + 16, blocks);
	return COMMAND_OUT(list, SC_UNMAP, 0, 0, 0, 0, 0, 0, (uint8_t)(list >> 8), (uint8_t)list, 0);
}

static void unmapped_blocks_read_as_zeros(void)
{
	target_open();
	memset(said.data, 5, 4 * BLOCK);
	SAME(COMMAND_OUT(4 * BLOCK, SC_WRITE10, 0, 0, 0, 0, 0, 0, 0, 4, 0), SC_GOOD);
	SAME(unmap(1, 2, 24), SC_GOOD);
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 4, 0), SC_GOOD);
	SAME(said.data[BLOCK - 1], 5);
	SAME(said.data[BLOCK], 0);
	SAME(said.data[3 * BLOCK - 1], 0);
	SAME(said.data[3 * BLOCK], 5);
	SAME(unmap(BLOCKS, 1, 24), SC_S_LBA);
	SAME(unmap(UINT64_MAX, 2, 24), SC_S_LBA);
	SAME(unmap(0, 1, 8 + 16 * (SC_UNMAP_RANGES + 1)), SC_S_FIELD_IN_LIST);
	SAME(COMMAND_OUT(4, SC_UNMAP, 0, 0, 0, 0, 0, 0, 0, 4, 0), SC_S_LIST_LENGTH);
	SAME(COMMAND(SC_UNMAP, 0, 0, 0, 0, 0, 0, 0, 0, 0), SC_GOOD);
	target_close();
}

static void write_same_repeats_its_block(void)
{
	target_open();
	memset(said.data, 7, BLOCK);
	said.data[1] = 8;
	SAME(COMMAND_OUT(BLOCK, SC_WRITE_SAME10, 0, 0, 0, 0, 2, 0, 0x07, 0xd0, 0),
	     SC_GOOD); /* 2000: more than one piece */
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0x07, 0xd1, 0, 0, 2, 0), SC_GOOD);
	SAME(said.data[0], 7);
	SAME(said.data[1], 8);
	SAME(said.data[BLOCK], 0);
	SAME(COMMAND(SC_WRITE_SAME16, 0x09, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0), SC_GOOD); /* UNMAP, NDOB */
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0, 2, 0, 0, 3, 0), SC_GOOD);
	SAME(said.data[0], 7);
	SAME(said.data[BLOCK], 0);
	SAME(said.data[2 * BLOCK], 7);
	SAME(COMMAND_OUT(BLOCK, SC_WRITE_SAME10, 0, 0, 0, 0, 2, 0, 0, 0, 0), SC_S_FIELD_IN_CDB); /* WSNZ */
	target_close();
}

static void mode_pages_are_as_long_as_they_say(void)
{
	target_open();
	SAME(COMMAND(SC_MODE_SENSE6, 0, 0x3f, 0, 255, 0), SC_GOOD);
	SAME(said.data[0] + 1u, said.task.given);
	SAME(said.task.given, 4 + 8 + 20 + 12);
	SAME(COMMAND(SC_MODE_SENSE10, 0x18, 0x0a, 0, 0, 0, 0, 0, 255, 0), SC_GOOD); /* DBD */
	SAME(said.task.given, 8 + 12);
	SAME(COMMAND(SC_MODE_SENSE10, 0x10, 0x08, 0, 0, 0, 0, 0, 255, 0), SC_GOOD); /* LLBAA */
	SAME(said.task.given, 8 + 16 + 20);
	begin(&said, &nexus, 1, CDB(SC_MODE_SENSE6, 8, 0x08, 0, 255, 0), 0);
	SAME(said.data[4 + 2], 0x04); /* its write cache */
	target_close();
}

static void a_stopped_unit_is_not_ready(void)
{
	target_open();
	SAME(COMMAND(SC_START_STOP, 0, 0, 0, 0, 0), SC_GOOD);
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 1, 0), SC_S_INITIALIZING_REQUIRED);
	SAME(COMMAND(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), SC_S_INITIALIZING_REQUIRED);
	SAME(COMMAND(SC_START_STOP, 0, 0, 0, 1, 0), SC_GOOD);
	SAME(COMMAND(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 1, 0), SC_GOOD);
	target_close();
}

/* Every command that is reported is known, and its usage data begins with its operation code. */
static void reported_commands_are_those_that_are_supported(void)
{
	static uint8_t all[SC_REPLY_MAX];
	uint32_t n;

	target_open();
	SAME(COMMAND(SC_MAINTENANCE_IN, 0x0c, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0), SC_GOOD);
	n = sc_get32(said.data);
	SAME(n + 4, said.task.given);
	CHECK(n / 8 >= 45);
	memcpy(all, said.data + 4, n);
	for (uint32_t at = 0; at < n; at += 8) {
		uint8_t action = all[at + 3], with = all[at + 5] & 1;

		SAME(COMMAND(SC_MAINTENANCE_IN, 0x0c, with ? 2 : 1, all[at], 0, action, 0, 0, 0x10, 0, 0, 0), SC_GOOD);
		SAME(said.data[1], 3);
		SAME(said.data[4], all[at]);
		SAME(sc_get16(said.data + 2), sc_get16(all + at + 6));
	}
	SAME(COMMAND(SC_MAINTENANCE_IN, 0x0c, 1, 0xc7, 0, 0, 0, 0, 0x10, 0, 0, 0), SC_GOOD);
	SAME(said.data[1], 1);
	SAME(COMMAND(SC_MAINTENANCE_IN, 0x0c, 1, SC_PR_IN, 0, 0, 0, 0, 0x10, 0, 0, 0), SC_S_FIELD_IN_CDB);
	SAME(COMMAND(SC_MAINTENANCE_IN, 0x0c, 0x80, 0, 0, 0, 0, 0, 0x10, 0, 0, 0), SC_GOOD); /* with timeouts */
	SAME(sc_get32(said.data) + 4, said.task.given);
	target_close();
}

static void errors_of_the_medium_become_sense_codes(void)
{
	static const struct {
		int error;
		bool write;
		uint32_t sense;
	} rows[] = {{EIO, false, SC_S_READ_ERROR},
	            {EIO, true, SC_S_WRITE_ERROR},
	            {ENOSPC, true, SC_S_SPACE},
	            {EROFS, true, SC_S_WRITE_PROTECTED},
	            {ENOMEM, false, SC_S_TARGET_FAILURE}};

	target_open();
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		begin(&said, &nexus, 1, CDB(rows[i].write ? SC_WRITE10 : SC_READ10, 0, 0, 0, 0, 0, 0, 0, 1, 0), BLOCK);
		slow_finish(0, rows[i].error);
		SAME(said.done, 1);
		SAME(SC_SENSE(said.task.sense[2], said.task.sense[12], said.task.sense[13]), rows[i].sense);
		SAME(said.task.given, 0);
	}
	target_close();
}

static void nothing_is_written_to_a_read_only_medium(void)
{
	target_open();
	target.lus[0]->backend->readonly = true;
	SAME(COMMAND_OUT(BLOCK, SC_WRITE10, 0, 0, 0, 0, 0, 0, 0, 1, 0), SC_S_WRITE_PROTECTED);
	SAME(unmap(0, 1, 24), SC_S_WRITE_PROTECTED);
	SAME(COMMAND_OUT(BLOCK, SC_WRITE_SAME10, 0, 0, 0, 0, 0, 0, 0, 1, 0), SC_S_WRITE_PROTECTED);
	SAME(COMMAND_OUT(2 * BLOCK, SC_COMPARE_WRITE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0),
	     SC_S_WRITE_PROTECTED);
	SAME(COMMAND(SC_MODE_SENSE6, 8, 0x3f, 0, 255, 0), SC_GOOD);
	SAME(said.data[2] & 0x80, 0x80);
	target_close();
}

int main(void)
{
	RUN(a_new_nexus_is_told_of_the_power_on_once);
	RUN(inquiry_gives_each_page_that_it_lists);
	RUN(absent_units_answer_inquiry_and_no_other_command);
	RUN(both_capacities_agree);
	RUN(what_each_write_wrote_each_read_reads);
	RUN(ranges_behind_the_end_are_refused);
	RUN(wrong_fields_are_refused);
	RUN(verify_compares_with_the_medium);
	RUN(compare_and_write_writes_if_all_is_equal);
	RUN(unmapped_blocks_read_as_zeros);
	RUN(write_same_repeats_its_block);
	RUN(mode_pages_are_as_long_as_they_say);
	RUN(a_stopped_unit_is_not_ready);
	RUN(reported_commands_are_those_that_are_supported);
	RUN(errors_of_the_medium_become_sense_codes);
	RUN(nothing_is_written_to_a_read_only_medium);
	return 0;
}
