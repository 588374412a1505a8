// config_test.c - a configuration file is ignored if it is another user's, writable by others, or not a regular file
// follows: rsocket(7) ("configuration files")
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rsocket/rs.h"

static void put(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !fchmod(fd, mode));
	close(fd);
}

static void only_files_that_nobody_else_can_write_are_read(void)
{
	const uint32_t sq = rs_defaults.sq, inl = rs_defaults.inline_size;

	put("rqsize_default", "100\n", 0644);
	put("sqsize_default", "100\n", 0666);
	CHECK(!mkfifo("inline_default", 0600)); /* has no writer */
	put("mem_default", "99999999999999\n", 0600);
	put("wmem_default", "-1\n", 0600);
	put("iomap_size", "100\n", 0600);
	if (!geteuid())
		CHECK(!chown("iomap_size", 65534, 65534));
	alarm(LONG_MS / 1000);
	rs_configure();
	CHECK(rs_defaults.rq == 100);
	CHECK(rs_defaults.sq == sq && rs_defaults.inline_size == inl);
	CHECK(rs_defaults.recv_size == 1 << 28 && rs_defaults.send_size == 1 << 28);
	CHECK(rs_defaults.iomap_size == (geteuid() ? 100 : 0));
}

int main(void)
{
	char dir[] = "/tmp/verbena-conf.XXXXXX";

	CHECK(mkdtemp(dir) && !chdir(dir));
	RUN(only_files_that_nobody_else_can_write_are_read);
	for (const char *const *f = (const char *const[]){"rqsize_default", "sqsize_default", "inline_default",
	                                                  "mem_default", "wmem_default", "iomap_size", NULL};
	     *f; f++)
		unlink(*f);
	CHECK(!rmdir(dir));
	return 0;
}
