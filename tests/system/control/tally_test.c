// tally_test.c - the files of counters: nothing is lost or counted twice, whatever fails in between
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "util/tally.h"

#define NETNS 42

static char path[] = "/tmp/verbena-tally.XXXXXX";
static int dir_fd;

static const char *program(unsigned i)
{
	static char name[VB_CONTROL_NAME];
	const struct vb_control_name parts = {.pid = 7, .netns = NETNS, .number = i};

	vb_control_name_write(name, &parts);
	return name;
}

static bool exists(const char *name, const char *end)
{
	char file[VB_CONTROL_NAME + 16];

	snprintf(file, sizeof(file), "%s%s", name, end);
	return !faccessat(dir_fd, file, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void touch(const char *name)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	close(fd);
}

static int keep(const char *name, uint64_t packets)
{
	char text[256];
	int n = snprintf(
	        text, sizeof(text),
	        "{\"devices\": [\n {\"device\": \"roce_lo\", \"contexts\": 1, \"counters\": {\"port_xmit_packets\": %" PRIu64
	        "}}]}\n",
	        packets);

	return vb_tally_keep(dir_fd, name, text, (size_t)n);
}

/* What the sums have; 0 if there are none. */
static uint64_t sum(void)
{
	static const char key[] = "\"port_xmit_packets\": ";
	static char text[VB_TALLY_MAX];
	const char *at = vb_tally_read(dir_fd, NETNS, text, sizeof(text)) ? strstr(text, key) : NULL;

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static uint64_t adds(void)
{
	static char text[VB_TALLY_MAX];

	return vb_tally_read(dir_fd, NETNS, text, sizeof(text)) ? vb_tally_adds(text) : 0;
}

static void begin_test(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s/*", path);
	CHECK(!system(command));
}

static void what_a_program_has_kept_is_added_once(void)
{
	begin_test();
	touch(program(1));
	CHECK(!keep(program(1), 5) && !keep(program(1), 8));
	vb_tally_end(dir_fd, program(1));
	vb_tally_end(dir_fd, program(1));
	SAME(sum(), 8);
	SAME(adds(), 1);
	CHECK(!exists(program(1), "") && !exists(program(1), ".shown"));
}

static void who_is_killed_between_the_sums_and_the_files_adds_nothing_twice(void)
{
	begin_test();
	for (unsigned i = 1; i <= 3; i++) {
		CHECK(!keep(program(1), 8));
		touch(program(1));
		vb_tally_end(dir_fd, program(1)); /* the second and third time its files are there again */
	}
	SAME(sum(), 8);
	CHECK(!exists(program(1), "") && !exists(program(1), ".shown"));
	CHECK(!keep(program(1), 8)); /* left once more: the next one removes it before the name leaves the list */
	for (unsigned i = 2; i < 2 * VB_TALLY_RECENT; i++) {
		CHECK(!keep(program(i), 1));
		vb_tally_end(dir_fd, program(i));
		CHECK(!exists(program(1), ".shown"));
	}
	SAME(sum(), 8 + 2 * VB_TALLY_RECENT - 2);
}

/* A child in which no file can be written. */
static void in_a_full_file_system(void (*fn)(void))
{
	const struct rlimit none = {0, 0};
	int status;
	pid_t child = fork();

	if (!child) {
		signal(SIGXFSZ, SIG_IGN);
		CHECK(!setrlimit(RLIMIT_FSIZE, &none));
		fn();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
}

static void end_first(void)
{
	vb_tally_end(dir_fd, program(1));
}

static void keep_more(void)
{
	CHECK(keep(program(1), 100));
}

static void sums_that_cannot_be_written_lose_nothing(void)
{
	begin_test();
	touch(program(1));
	CHECK(!keep(program(1), 8));
	in_a_full_file_system(keep_more);
	in_a_full_file_system(end_first);
	SAME(sum(), 0);
	CHECK(exists(program(1), "") && exists(program(1), ".shown"));
	vb_tally_end(dir_fd, program(1));
	SAME(sum(), 8);
}

static void without_descriptors(void)
{
	const struct rlimit none = {0, 0};

	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	vb_tally_end(dir_fd, program(1));
}

static void a_program_without_descriptors_loses_nothing(void)
{
	int status;

	begin_test();
	touch(program(1));
	CHECK(!keep(program(1), 8));
	pid_t child = fork();

	if (!child) {
		without_descriptors();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	CHECK(exists(program(1), "") && exists(program(1), ".shown"));
	vb_tally_end(dir_fd, program(1));
	SAME(sum(), 8);
}

static void who_does_not_get_the_lock_leaves_the_files(void)
{
	begin_test();
	int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(lock >= 0 && !flock(lock, LOCK_EX));
	touch(program(1));
	CHECK(!keep(program(1), 8));
	vb_tally_end(dir_fd, program(1));
	SAME(sum(), 0);
	CHECK(exists(program(1), ".shown"));
	close(lock);
	vb_tally_end(dir_fd, program(1));
	SAME(sum(), 8);
}

static void the_sums_name_the_last_programs(void)
{
	static char text[VB_TALLY_MAX];

	begin_test();
	for (unsigned i = 1; i <= VB_TALLY_RECENT + 1; i++) {
		CHECK(!keep(program(i), 1));
		vb_tally_end(dir_fd, program(i));
	}
	CHECK(vb_tally_read(dir_fd, NETNS, text, sizeof(text)));
	SAME(vb_tally_adds(text), VB_TALLY_RECENT + 1);
	CHECK(!vb_tally_has(text, program(1)));
	for (unsigned i = 2; i <= VB_TALLY_RECENT + 1; i++)
		CHECK(vb_tally_has(text, program(i)));
}

static void what_is_kept_without_a_socket_is_swept(void)
{
	begin_test();
	CHECK(!keep(program(1), 8));
	vb_control_dir_sweep(dir_fd, geteuid(), 16);
	SAME(sum(), 8);
	CHECK(!exists(program(1), ".shown"));
}

int main(void)
{
	CHECK(mkdtemp(path));
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(dir_fd >= 0);
	RUN(what_a_program_has_kept_is_added_once);
	RUN(who_is_killed_between_the_sums_and_the_files_adds_nothing_twice);
	RUN(sums_that_cannot_be_written_lose_nothing);
	RUN(a_program_without_descriptors_loses_nothing);
	RUN(who_does_not_get_the_lock_leaves_the_files);
	RUN(the_sums_name_the_last_programs);
	RUN(what_is_kept_without_a_socket_is_swept);
	begin_test();
	CHECK(!rmdir(path));
	return 0;
}
