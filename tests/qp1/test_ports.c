// test_ports.c - which ports the broker gives to whom
// follows: src/broker/ports.h
// SPDX-License-Identifier: MIT
#include "broker/ports.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../broker/harness.h"

#define SOMEBODY 47111

/* A process of that user; with users of its own, where it has every capability. */
static pid_t process_of(uid_t uid, bool own_users, int *pid_fd)
{
	int ready[2];
	char byte;

	CHECK(pipe(ready) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid && setresuid(uid, uid, uid))
			_exit(1);
		if (own_users && unshare(CLONE_NEWUSER))
			_exit(1);
		if (write(ready[1], "R", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		skip("another user, or other users, cannot be had here");
	close(ready[0]);
	*pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	CHECK(*pid_fd >= 0);
	return pid;
}

static void the_ephemeral_range_is_the_kernels(void)
{
	own_network();
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "we");
	if (!f || fputs("40000 40003", f) < 0 || fclose(f))
		skip("no right to set the range of ports");
	struct vb_port_range range = vb_ephemeral_ports();
	CHECK_IS(range.low, 40000);
	CHECK_IS(range.high, 40003);
}

static void low_ports_are_roots(void)
{
	int pid_fd;

	own_network();
	pid_t pid = process_of(SOMEBODY, false, &pid_fd);
	CHECK(vb_port_allowed(80, 0, pid, pid_fd));
	CHECK(!vb_port_allowed(80, SOMEBODY, pid, pid_fd));
	CHECK(vb_port_allowed(1024, SOMEBODY, pid, pid_fd));
	CHECK(!vb_port_allowed(80, SOMEBODY, 0, pid_fd));
}

static void a_capability_counts_where_it_is_of_our_users(void)
{
	int pid_fd;

	own_network();
	pid_t pid = process_of(0, false, &pid_fd);
	CHECK(vb_port_allowed(80, SOMEBODY, pid, pid_fd));
	kill(pid, SIGKILL);
	CHECK(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT) == 0);
	CHECK(!vb_port_allowed(80, SOMEBODY, pid, pid_fd)); /* the number may be another's by now */
	pid = process_of(SOMEBODY, true, &pid_fd);
	CHECK(!vb_port_allowed(80, SOMEBODY, pid, pid_fd));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{"the ephemeral range is the kernel's", the_ephemeral_range_is_the_kernels},
		{"low ports are root's", low_ports_are_roots},
		{"a capability counts where it is of our users", a_capability_counts_where_it_is_of_our_users},
	};

	if (geteuid())
		return SKIPPED;
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
