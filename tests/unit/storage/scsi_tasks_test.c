// scsi_tasks_test.c - the SCSI layer: the order of tasks, task management, reservations
// follows: SAM-5, 7, 8; SPC-4, 5.13
// SPDX-License-Identifier: MIT
#include <sys/stat.h>
#include <unistd.h>

#include "scsi_unit.h"

static struct outcome tasks[8];
static unsigned managed;
static enum sc_manage_result result;

static void manage_done(struct sc_manage *m, enum sc_manage_result r)
{
	managed++;
	result = r;
}

static void begin_read(unsigned i, struct sc_nexus *n, enum sc_attr attr)
{
	static const uint8_t cdb[10] = {SC_READ10, 0, 0, 0, 0, 0, 0, 0, 1};
	struct outcome *o = &tasks[i];

	o->task = (struct sc_task){.nexus = n, .done = outcome_done, .attr = attr, .tag = i};
	o->done = 0;
	o->task.lun[1] = 1;
	memcpy(o->task.cdb, cdb, sizeof(cdb));
	sc_task_start(&o->task);
	o->task.data = o->data;
	sc_task_run(&o->task);
}

static struct sc_manage manage(enum sc_function f, struct sc_nexus *n, uint64_t tag)
{
	struct sc_manage m = {.nexus = n, .function = (uint8_t)f, .tag = tag, .done = manage_done, .lun = {0, 1}};

	managed = 0;
	return m;
}

static void an_ordered_task_waits_for_older_ones_and_younger_ones_wait_for_it(void)
{
	target_open();
	begin_read(0, &nexus, SC_SIMPLE);
	begin_read(1, &nexus, SC_ORDERED);
	begin_read(2, &other, SC_SIMPLE);
	SAME(slow.count, 1);
	slow_finish(0, 0);
	SAME(tasks[0].done, 1);
	SAME(slow.count, 1); /* the ordered task alone */
	begin_read(3, &other, SC_HEAD);
	SAME(slow.count, 2); /* it goes before all */
	slow_finish(0, 0);
	SAME(tasks[1].done, 1);
	slow_finish(0, 0);
	SAME(tasks[3].done, 1);
	SAME(slow.count, 1);
	slow_finish(0, 0);
	SAME(tasks[2].done, 1);
	target_close();
}

static void no_command_runs_within_a_compare_and_write(void)
{
	target_open();
	begin_read(0, &other, SC_SIMPLE);
	memset(said.data, 0, 2 * BLOCK);
	begin(&said, &nexus, 1, CDB(SC_COMPARE_WRITE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0), 2 * BLOCK);
	begin_read(1, &other, SC_SIMPLE);
	begin_read(2, &other, SC_HEAD); /* the comparison has not begun */
	SAME(slow.count, 2);
	slow_finish(0, 0);
	SAME(slow.count, 1);
	slow_finish(0, 0);
	SAME(slow.count, 1); /* the comparison */
	begin_read(3, &other, SC_HEAD);
	SAME(slow.count, 1);
	slow_finish(0, 0); /* it reads */
	SAME(slow.count, 1);
	slow_finish(0, 0); /* it writes */
	SAME(said.done, 1);
	SAME(slow.count, 2);
	slow_finish(0, 0);
	slow_finish(0, 0);
	target_close();
}

static void an_aborted_task_has_ended_when_the_abort_is_answered(void)
{
	target_open();
	begin_read(0, &nexus, SC_SIMPLE);
	begin_read(1, &nexus, SC_SIMPLE);
	struct sc_manage m = manage(SC_ABORT_TASK, &nexus, 0);

	sc_manage(&m);
	SAME(managed, 0); /* the medium writes to its memory still */
	SAME(tasks[0].done, 0);
	slow_finish(0, 0);
	SAME(managed, 1);
	SAME(result, SC_COMPLETE);
	SAME(tasks[0].done, 1);
	CHECK(tasks[0].task.aborted);
	CHECK(!tasks[1].task.aborted);
	m = manage(SC_ABORT_TASK, &other, 1); /* another nexus's task */
	sc_manage(&m);
	SAME(managed, 1);
	slow_finish(0, 0);
	CHECK(!tasks[1].task.aborted);
	SAME(tasks[1].task.status, SC_GOOD);
	target_close();
}

static void a_second_function_waits_for_the_same_task(void)
{
	target_open();
	begin_read(0, &nexus, SC_SIMPLE);
	struct sc_manage m = manage(SC_ABORT_TASK, &nexus, 0), reset = manage(SC_LUN_RESET, &nexus, 0);

	sc_manage(&m);
	sc_manage(&reset);
	SAME(managed, 0);
	slow_finish(0, 0);
	SAME(managed, 2);
	target_close();
}

static void a_task_that_waits_is_aborted_at_once(void)
{
	target_open();
	begin_read(0, &nexus, SC_SIMPLE);
	begin_read(1, &nexus, SC_ORDERED);
	begin_read(2, &nexus, SC_SIMPLE);
	struct sc_manage m = manage(SC_ABORT_TASK, &nexus, 1);

	sc_manage(&m);
	SAME(managed, 1);
	SAME(tasks[1].done, 1);
	SAME(slow.count, 2); /* the youngest does not wait any more */
	slow_finish(0, 0);
	slow_finish(0, 0);
	target_close();
}

static void a_reset_aborts_all_and_tells_all(void)
{
	target_open();
	begin_read(0, &nexus, SC_SIMPLE);
	begin_read(1, &other, SC_SIMPLE);
	begin_read(2, &other, SC_ORDERED);
	struct sc_manage m = manage(SC_LUN_RESET, &nexus, 0);

	sc_manage(&m);
	SAME(tasks[2].done, 1);
	SAME(tasks[2].task.status, SC_TASK_ABORTED); /* another initiator aborted it: TAS */
	CHECK(!tasks[2].task.aborted);
	slow_finish(0, 0);
	SAME(managed, 0);
	slow_finish(0, 0);
	SAME(managed, 1);
	CHECK(tasks[0].task.aborted);
	SAME(tasks[1].task.status, SC_TASK_ABORTED);
	SAME(nexus.attention[1], 1u << SC_UA_RESET);
	SAME(other.attention[1], 1u << SC_UA_RESET);
	SAME(other.attention[0], 0);
	m = manage(SC_CLEAR_ACA, &nexus, 0);
	sc_manage(&m);
	SAME(result, SC_NOT_SUPPORTED);
	m = manage(SC_LUN_RESET, &nexus, 0);
	m.lun[1] = 9;
	sc_manage(&m);
	SAME(result, SC_INCORRECT_LUN);
	target_close();
}

static void a_cleared_task_set_is_told_to_the_others(void)
{
	target_open();
	begin_read(0, &nexus, SC_SIMPLE);
	begin_read(1, &other, SC_SIMPLE);
	struct sc_manage m = manage(SC_ABORT_TASK_SET, &nexus, 0);

	sc_manage(&m);
	slow_finish(0, 0);
	SAME(managed, 1);
	SAME(tasks[1].done, 0);
	m = manage(SC_CLEAR_TASK_SET, &nexus, 0);
	sc_manage(&m);
	slow_finish(0, 0);
	SAME(managed, 1);
	SAME(tasks[1].task.status, SC_TASK_ABORTED);
	SAME(other.attention[1], 1u << SC_UA_CLEARED);
	SAME(nexus.attention[1], 0);
	target_close();
}

/* ---- reservations ---- */

static uint32_t pr_out(struct sc_nexus *n, uint8_t action, uint8_t type, uint64_t key, uint64_t new_key)
{
	memset(said.data, 0, 24);
	sc_put64(said.data, key);
	sc_put64(said.data + 8, new_key);
	return command_of(n, CDB(SC_PR_OUT, action, type, 0, 0, 0, 0, 0, 24, 0), 24);
}

static uint32_t pr_in(uint8_t action)
{
	return COMMAND(SC_PR_IN, action, 0, 0, 0, 0, 0, 1, 0, 0);
}

static uint32_t reads(struct sc_nexus *n)
{
	return command_of(n, CDB(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 1, 0), 0);
}

static uint32_t writes(struct sc_nexus *n)
{
	return command_of(n, CDB(SC_WRITE10, 0, 0, 0, 0, 0, 0, 0, 1, 0), BLOCK);
}

enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_ABORT, REGISTER_IGNORE };

static void each_type_excludes_what_it_says(void)
{
	static const struct {
		uint8_t type;
		bool read, write, read_registered, write_registered; /* conflicts */
	} rows[] = {{1, false, true, false, true}, {3, true, true, true, true},    {5, false, true, false, false},
	            {6, true, true, false, false}, {7, false, true, false, false}, {8, true, true, false, false}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		target_open();
		SAME(pr_out(&nexus, REGISTER, 0, 0, 11), SC_GOOD);
		SAME(pr_out(&nexus, RESERVE, rows[i].type, 11, 0), SC_GOOD);
		SAME(reads(&nexus), SC_GOOD);
		SAME(writes(&nexus), SC_GOOD);
		SAME(reads(&other), rows[i].read ? SC_RESERVATION_CONFLICT : SC_GOOD);
		SAME(writes(&other), rows[i].write ? SC_RESERVATION_CONFLICT : SC_GOOD);
		SAME(pr_out(&other, REGISTER, 0, 0, 22), SC_GOOD);
		SAME(reads(&other), rows[i].read_registered ? SC_RESERVATION_CONFLICT : SC_GOOD);
		SAME(writes(&other), rows[i].write_registered ? SC_RESERVATION_CONFLICT : SC_GOOD);
		SAME(pr_in(1), SC_GOOD);
		SAME(sc_get32(said.data + 4), 16);
		SAME(said.data[8 + 13], rows[i].type);
		SAME(sc_get64(said.data + 8), rows[i].type >= 7 ? 0 : 11);
		SAME(pr_out(&nexus, RELEASE, rows[i].type == 1 ? 3 : 1, 11, 0), SC_S_INVALID_RELEASE);
		SAME(pr_out(&nexus, RELEASE, rows[i].type, 11, 0), SC_GOOD);
		SAME(other.attention[0], rows[i].type >= 5 ? 1u << SC_UA_RELEASED : 0);
		other.attention[0] = 0;
		SAME(writes(&other), SC_GOOD);
		target_close();
	}
}

static void keys_are_checked_and_counted(void)
{
	target_open();
	SAME(pr_out(&nexus, REGISTER, 0, 5, 11), SC_RESERVATION_CONFLICT);
	SAME(pr_out(&nexus, REGISTER, 0, 0, 11), SC_GOOD);
	SAME(pr_out(&nexus, REGISTER, 0, 0, 12), SC_RESERVATION_CONFLICT);
	SAME(pr_out(&nexus, REGISTER_IGNORE, 0, 0, 12), SC_GOOD);
	SAME(pr_out(&other, RESERVE, 1, 12, 0), SC_RESERVATION_CONFLICT); /* not registered */
	SAME(pr_out(&other, REGISTER, 0, 0, 22), SC_GOOD);
	SAME(pr_in(0), SC_GOOD);
	SAME(sc_get32(said.data), 3);
	SAME(sc_get32(said.data + 4), 16);
	SAME(pr_out(&nexus, RESERVE, 1, 12, 0), SC_GOOD);
	SAME(pr_out(&other, RESERVE, 1, 22, 0), SC_RESERVATION_CONFLICT);
	SAME(pr_in(3), SC_GOOD);
	SAME(sc_get32(said.data + 4), 96);
	SAME(pr_in(2), SC_GOOD);
	SAME(said.task.given, 8);
	SAME(pr_out(&nexus, REGISTER, 0, 12, 0), SC_GOOD); /* its reservation ends with it */
	SAME(writes(&other), SC_GOOD);
	SAME(pr_out(&other, CLEAR, 0, 22, 0), SC_GOOD);
	SAME(pr_in(0), SC_GOOD);
	SAME(sc_get32(said.data + 4), 0);
	SAME(command_of(&nexus, CDB(SC_PR_OUT, RESERVE, 2, 0, 0, 0, 0, 0, 24, 0), 24), SC_S_FIELD_IN_CDB);
	SAME(command_of(&nexus, CDB(SC_PR_OUT, RESERVE, 1, 0, 0, 0, 0, 0, 23, 0), 24), SC_S_LIST_LENGTH);
	target_close();
}

static void a_preempted_holder_loses_all(void)
{
	target_open();
	SAME(pr_out(&nexus, REGISTER, 0, 0, 11), SC_GOOD);
	SAME(pr_out(&other, REGISTER, 0, 0, 22), SC_GOOD);
	SAME(pr_out(&nexus, RESERVE, 3, 11, 0), SC_GOOD);
	SAME(pr_out(&other, PREEMPT, 3, 22, 33), SC_RESERVATION_CONFLICT); /* no such key */
	SAME(pr_out(&other, PREEMPT, 1, 22, 11), SC_GOOD);
	SAME(nexus.attention[0], 1u << SC_UA_REGISTRATIONS);
	nexus.attention[0] = 0;
	SAME(reads(&nexus), SC_GOOD);
	SAME(writes(&nexus), SC_RESERVATION_CONFLICT);
	SAME(writes(&other), SC_GOOD);
	target_close();
}

static void the_last_of_all_registrants_takes_the_reservation_along(void)
{
	target_open();
	SAME(pr_out(&nexus, REGISTER, 0, 0, 11), SC_GOOD);
	SAME(pr_out(&other, REGISTER, 0, 0, 11), SC_GOOD);
	SAME(pr_out(&nexus, RESERVE, 7, 11, 0), SC_GOOD);
	SAME(pr_out(&other, PREEMPT, 7, 11, 11), SC_GOOD); /* all that have the key, itself too */
	SAME(pr_in(1), SC_SENSE(SC_UNIT_ATTENTION, 0x2a, 0x05));
	SAME(pr_in(1), SC_GOOD);
	SAME(sc_get32(said.data + 4), 0);
	SAME(writes(&nexus), SC_GOOD);
	target_close();
}

static void preempt_and_abort_ends_the_holders_tasks(void)
{
	target_open();
	for (int i = 0; i < 2; i++) {
		struct sc_nexus *n = i ? &other : &nexus;

		memset(said.data, 0, 24);
		sc_put64(said.data + 8, 11u + (unsigned)i);
		begin(&said, n, 1, CDB(SC_PR_OUT, REGISTER, 0, 0, 0, 0, 0, 0, 24, 0), 24);
		SAME(said.task.status, SC_GOOD);
	}
	begin_read(0, &nexus, SC_SIMPLE);
	memset(said.data, 0, 24);
	sc_put64(said.data, 12);
	sc_put64(said.data + 8, 11);
	begin(&said, &other, 1, CDB(SC_PR_OUT, PREEMPT_ABORT, 1, 0, 0, 0, 0, 0, 24, 0), 24);
	SAME(said.done, 0); /* the medium may still write */
	slow_finish(0, 0);
	SAME(said.done, 1);
	SAME(said.task.status, SC_GOOD);
	SAME(tasks[0].task.status, SC_TASK_ABORTED);
	SAME(pr_in(0), SC_GOOD);
	target_close();
}

static void a_reserved_unit_is_its_holders_until_the_nexus_ends(void)
{
	target_open();
	SAME(COMMAND(SC_RESERVE6, 0, 0, 0, 0, 0), SC_GOOD);
	SAME(COMMAND(SC_RESERVE10, 0, 0, 0, 0, 0, 0, 0, 0, 0), SC_GOOD);
	SAME(reads(&other), SC_RESERVATION_CONFLICT);
	SAME(command_of(&other, CDB(SC_RESERVE6, 0, 0, 0, 0, 0), 0), SC_RESERVATION_CONFLICT);
	SAME(pr_out(&nexus, REGISTER, 0, 0, 11), SC_RESERVATION_CONFLICT); /* even of the holder */
	SAME(command_of(&other, CDB(SC_INQUIRY, 0, 0, 0, 96, 0), 0), SC_GOOD);
	SAME(command_of(&other, CDB(SC_RELEASE6, 0, 0, 0, 0, 0), 0), SC_GOOD); /* without effect */
	SAME(reads(&other), SC_RESERVATION_CONFLICT);
	sc_nexus_close(&nexus);
	SAME(reads(&other), SC_GOOD);
	sc_nexus_open(&target, &nexus);
	memset(nexus.attention, 0, sizeof(nexus.attention));
	SAME(pr_out(&nexus, REGISTER, 0, 0, 11), SC_GOOD);
	SAME(COMMAND(SC_RESERVE6, 0, 0, 0, 0, 0), SC_RESERVATION_CONFLICT); /* persistent ones exclude it */
	target_close();
}

/* As target_open, but unit 0 keeps reservations in the directory. Returns what sc_keep says. */
static int target_open_kept(const char *directory)
{
	target_open();
	return sc_keep(target.lus[0], directory);
}

static uint32_t register_kept(struct sc_nexus *n, uint64_t key, uint64_t new_key, bool keep)
{
	memset(said.data, 0, 24);
	sc_put64(said.data, key);
	sc_put64(said.data + 8, new_key);
	said.data[20] = keep;
	return command_of(n, CDB(SC_PR_OUT, REGISTER, 0, 0, 0, 0, 0, 0, 24, 0), 24);
}

static void reservations_are_kept_if_they_ask_for_it(void)
{
	char directory[] = "/tmp/scsi-kept.XXXXXX", file[80];

	CHECK(mkdtemp(directory));
	target_open();
	SAME(register_kept(&nexus, 0, 11, true), SC_S_FIELD_IN_LIST); /* no directory */
	target_close();
	CHECK(!target_open_kept(directory));
	SAME(pr_in(2), SC_GOOD);
	SAME(said.data[2] << 8 | said.data[3], 0x0190);
	SAME(register_kept(&nexus, 0, 11, true), SC_GOOD);
	SAME(register_kept(&other, 0, 22, true), SC_GOOD);
	SAME(pr_out(&nexus, RESERVE, 3, 11, 0), SC_GOOD);
	snprintf(file, sizeof(file), "%s/%016llx.reservations", directory, (unsigned long long)target.lus[0]->id);
	target_close();
	CHECK(!target_open_kept(directory)); /* the target has been started again */
	SAME(pr_in(2), SC_GOOD);
	SAME(said.data[3], 0x91);
	SAME(writes(&other), SC_RESERVATION_CONFLICT);
	SAME(writes(&nexus), SC_GOOD);
	SAME(pr_out(&nexus, RELEASE, 3, 11, 0), SC_GOOD);
	target_close();
	CHECK(!target_open_kept(directory));
	SAME(writes(&other), SC_GOOD);
	SAME(pr_in(0), SC_GOOD);
	SAME(sc_get32(said.data + 4), 16);
	SAME(register_kept(&other, 22, 23, false), SC_GOOD); /* the latest registration says that it is not kept */
	target_close();
	CHECK(access(file, F_OK));
	CHECK(!target_open_kept(directory));
	SAME(pr_in(0), SC_GOOD);
	SAME(sc_get32(said.data + 4), 0);
	target_close();
	CHECK(!rmdir(directory));
}

static void registrations_are_kept_although_a_stranger_registers_nothing(void)
{
	char directory[] = "/tmp/scsi-kept.XXXXXX", file[80];

	CHECK(mkdtemp(directory));
	CHECK(!target_open_kept(directory));
	snprintf(file, sizeof(file), "%s/%016llx.reservations", directory, (unsigned long long)target.lus[0]->id);
	SAME(register_kept(&nexus, 0, 11, true), SC_GOOD);
	SAME(pr_out(&other, REGISTER, 0, 0, 0), SC_GOOD);
	SAME(pr_out(&other, REGISTER_IGNORE, 0, 0, 0), SC_GOOD);
	SAME(pr_in(2), SC_GOOD);
	SAME(said.data[3], 0x91);
	target_close();
	CHECK(!target_open_kept(directory));
	SAME(pr_in(0), SC_GOOD);
	SAME(sc_get32(said.data + 4), 8);
	target_close();
	CHECK(!unlink(file) && !rmdir(directory));
}

static void a_link_in_the_directory_leads_to_no_other_file(void)
{
	char directory[] = "/tmp/scsi-kept.XXXXXX", file[80], next[90], victim[90];
	struct stat st;

	CHECK(mkdtemp(directory));
	snprintf(victim, sizeof(victim), "%s/victim", directory);
	FILE *f = fopen(victim, "w");

	CHECK(f && fputs("precious", f) >= 0 && !fclose(f));
	CHECK(!target_open_kept(directory));
	snprintf(file, sizeof(file), "%s/%016llx.reservations", directory, (unsigned long long)target.lus[0]->id);
	snprintf(next, sizeof(next), "%s.new", file);
	CHECK(!symlink(victim, next));
	SAME(register_kept(&nexus, 0, 11, true), SC_GOOD);
	CHECK(!stat(victim, &st) && st.st_size == 8);
	CHECK(!lstat(file, &st) && S_ISREG(st.st_mode));
	SAME(st.st_mode & 0777, 0600);
	target_close();
	CHECK(!unlink(file) && !unlink(victim) && !rmdir(directory));
}

static void a_directory_that_others_write_to_keeps_nothing(void)
{
	char directory[] = "/tmp/scsi-kept.XXXXXX";

	CHECK(mkdtemp(directory));
	for (unsigned mode = 0702; mode <= 0722; mode += 020) {
		CHECK(!chmod(directory, mode));
		SAME(target_open_kept(directory), EPERM);
		target_close();
	}
	CHECK(!chmod(directory, 0755));
	SAME(target_open_kept(directory), 0);
	target_close();
	CHECK(!rmdir(directory));
}

static void two_units_of_one_medium_do_not_share_a_file(void)
{
	struct nb_config c = {.kind = "memory", .size = BLOCK * BLOCKS};
	char directory[] = "/tmp/scsi-kept.XXXXXX";
	struct nb_backend *b;

	CHECK(mkdtemp(directory));
	CHECK(!target_open_kept(directory));
	CHECK(!nb_open(&c, NULL, &b) && !sc_lu_add(&target, 2, b, "test"));
	SAME(target.lus[2]->id, target.lus[0]->id);
	SAME(sc_keep(target.lus[2], directory), EEXIST);
	SAME(sc_keep(target.lus[1], directory), 0);
	target_close();
	CHECK(!rmdir(directory));
}

static void a_file_of_reservations_that_is_wrong_is_refused(void)
{
	static const char *const wrong[] = {
	        "",
	        "SCSI reservations 2\ntype 0\n",
	        "SCSI reservations 1\n",
	        "SCSI reservations 1\ntype 2\n",
	        "SCSI reservations 1\ntype 3\n01000000000000000000000000000000 000000000000000b\n",
	        "SCSI reservations 1\ntype 0\n01000000000000000000000000000000 000000000000000b *\n",
	        "SCSI reservations 1\ntype 0\n01000000000000000000000000000000 0000000000000000\n",
	        "SCSI reservations 1\ntype 0\n010000000000000000000000000000 000000000000000b\n",
	};
	char directory[] = "/tmp/scsi-kept.XXXXXX", file[80];

	CHECK(mkdtemp(directory));
	target_open();
	snprintf(file, sizeof(file), "%s/%016llx.reservations", directory, (unsigned long long)target.lus[0]->id);
	target_close();
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		FILE *f = fopen(file, "w");

		CHECK(f && fputs(wrong[i], f) >= 0 && !fclose(f));
		SAME(target_open_kept(directory), EINVAL);
		target_close();
	}
	CHECK(!unlink(file) && !rmdir(directory));
	SAME(target_open_kept(directory), ENOENT);
	target_close();
}

int main(void)
{
	RUN(an_ordered_task_waits_for_older_ones_and_younger_ones_wait_for_it);
	RUN(no_command_runs_within_a_compare_and_write);
	RUN(an_aborted_task_has_ended_when_the_abort_is_answered);
	RUN(a_second_function_waits_for_the_same_task);
	RUN(a_task_that_waits_is_aborted_at_once);
	RUN(a_reset_aborts_all_and_tells_all);
	RUN(a_cleared_task_set_is_told_to_the_others);
	RUN(each_type_excludes_what_it_says);
	RUN(keys_are_checked_and_counted);
	RUN(a_preempted_holder_loses_all);
	RUN(the_last_of_all_registrants_takes_the_reservation_along);
	RUN(preempt_and_abort_ends_the_holders_tasks);
	RUN(a_reserved_unit_is_its_holders_until_the_nexus_ends);
	RUN(reservations_are_kept_if_they_ask_for_it);
	RUN(registrations_are_kept_although_a_stranger_registers_nothing);
	RUN(a_link_in_the_directory_leads_to_no_other_file);
	RUN(a_directory_that_others_write_to_keeps_nothing);
	RUN(two_units_of_one_medium_do_not_share_a_file);
	RUN(a_file_of_reservations_that_is_wrong_is_refused);
	return 0;
}
