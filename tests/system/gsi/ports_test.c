// ports_test.c - which programs may bind which ports
// see: src/broker/server/ports.h
// SPDX-License-Identifier: MIT
#include "broker/server/ports.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../broker/harness.h"

#define SOMEBODY 47111

/* Root may give a process an ambient capability, which it keeps after it has become another user. */
static bool make_ambient(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, data))
		return false;
	data[0].inheritable |= 1u << CAP_NET_BIND_SERVICE;
	return !syscall(SYS_capset, &head, data) &&
	       !prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_BIND_SERVICE, 0, 0);
}

enum kind { PLAIN, AMBIENT, EFFECTIVE, OWN_USERS };

/* A process of that user. EFFECTIVE: with the capabilities of another program that it has executed. OWN_USERS: in its
 * own user namespace, where it has every capability. */
static pid_t process_of(uid_t uid, enum kind kind, int *pid_fd)
{
	int ready[2];
	char byte;

	CHECK(pipe(ready) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (kind == AMBIENT && !make_ambient())
			_exit(1);
		prctl(PR_SET_SECUREBITS, kind == AMBIENT ? SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP : 0);
		if (uid && kind != EFFECTIVE && setresuid(uid, uid, uid))
			_exit(1);
		if (kind == OWN_USERS && unshare(CLONE_NEWUSER))
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
	int file = -1;
	struct vb_port_range range = vb_ephemeral_ports(&file);
	SAME(range.low, 40000);
	SAME(range.high, 40003);
	f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "we");
	CHECK(f && fputs("41000 41003", f) >= 0 && !fclose(f));
	range = vb_ephemeral_ports(&file);
	SAME(range.low, 41000);
	SAME(range.high, 41003);
	close(file);
}

static void low_ports_are_roots(void)
{
	int pid_fd;

	own_network();
	pid_t pid = process_of(SOMEBODY, PLAIN, &pid_fd);
	CHECK(vb_port_allowed(80, 0, pid, pid_fd));
	CHECK(!vb_port_allowed(80, SOMEBODY, pid, pid_fd));
	CHECK(vb_port_allowed(1024, SOMEBODY, pid, pid_fd));
	CHECK(!vb_port_allowed(80, SOMEBODY, 0, pid_fd));
}

static void a_capability_counts_where_it_is_of_our_users(void)
{
	int pid_fd;

	own_network();
	pid_t pid = process_of(SOMEBODY, AMBIENT, &pid_fd);
	CHECK(vb_port_allowed(80, SOMEBODY, pid, pid_fd));
	kill(pid, SIGKILL);
	CHECK(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT) == 0);
	CHECK(!vb_port_allowed(80, SOMEBODY, pid, pid_fd)); /* the pid may belong to another process by now */
	pid = process_of(SOMEBODY, OWN_USERS, &pid_fd);
	CHECK(!vb_port_allowed(80, SOMEBODY, pid, pid_fd));
}

/* A child keeps the connection, while its parent, whose pid it shows, becomes a set-user-ID program. */
static void what_a_process_has_become_gives_its_child_nothing(void)
{
	int pid_fd;

	own_network();
	pid_t pid = process_of(0, EFFECTIVE, &pid_fd);
	CHECK(!vb_port_allowed(80, SOMEBODY, pid, pid_fd));
}

static void the_holder_of_a_port_is_named(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(4791)};
	uid_t uid = 4711;

	own_network();
	CHECK(!vb_port_holder(4791, &uid));
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
	CHECK(vb_port_holder(4791, &uid) && uid == geteuid());
	close(fd);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"the ephemeral range is the kernel's", the_ephemeral_range_is_the_kernels},
	        {"low ports are root's", low_ports_are_roots},
	        {"a capability counts where it is of our users", a_capability_counts_where_it_is_of_our_users},
	        {"what a process has become gives its child nothing",
	         what_a_process_has_become_gives_its_child_nothing},
	        {"the holder of a port is named", the_holder_of_a_port_is_named},
	};

	if (geteuid())
		return SKIPPED;
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
