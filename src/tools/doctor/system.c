// system.c - the kernel, the C library, and the system calls that a filter refuses
// follows: seccomp(2), proc(5), syscalls(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

#define CALL_MS 2000

static void find_versions(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	bool known = sscanf(u.release, "%d.%d", &major, &minor) == 2;

	if (known && (major < 5 || (major == 5 && minor < 1)))
		doc_find(DOC_WARN, "kernel", "use Linux 5.10 or later",
		         "Linux %s is older than 5.1, which has no F_SEAL_FUTURE_WRITE: programs cannot share memory",
		         u.release);
	else
		doc_find(DOC_OK, "kernel", NULL, "%s %s, glibc %s, Verbena " VB_VERSION, u.sysname, u.release,
		         gnu_get_libc_version());
}

static void find_proc(void)
{
	if (access("/proc/self/status", R_OK))
		doc_find(DOC_FAIL, "proc", "mount -t proc proc /proc",
		         "/proc is not mounted: programs of this host do not find each other's memory, and this report "
		         "cannot say who holds what");
}

/* --- system calls, each in a process of its own, because a filter may kill it --- */

static long call_membarrier(void)
{
	return syscall(SYS_membarrier, 0, 0, 0); /* MEMBARRIER_CMD_QUERY */
}

static long call_memfd(void)
{
	return syscall(SYS_memfd_create, "verbena-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static long call_copy(bool write)
{
	char from = 1, to = 0;
	struct iovec a = {&from, 1}, b = {&to, 1};

	return syscall(write ? SYS_process_vm_writev : SYS_process_vm_readv, getpid(), &a, 1, &b, 1, 0);
}

static long call_vm_read(void)
{
	return call_copy(false);
}

static long call_vm_write(void)
{
	return call_copy(true);
}

static long call_pidfd(void)
{
	return syscall(SYS_pidfd_open, getpid(), 0);
}

/* Wrong arguments: EINVAL or EFAULT say that the call is there. */
static long call_rseq(void)
{
	return syscall(SYS_rseq, NULL, 0, 1, 0);
}

static long call_io_uring(void)
{
	return syscall(SYS_io_uring_setup, 0, NULL);
}

/* Services may be confined to some families of sockets. */
static long call_socket(int family)
{
	int fd = socket(family, (family == AF_NETLINK ? SOCK_RAW : SOCK_DGRAM) | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	return fd;
}

static long call_netlink(void)
{
	return call_socket(AF_NETLINK);
}

static long call_unix(void)
{
	return call_socket(AF_UNIX);
}

static long call_inet(void)
{
	return call_socket(AF_INET);
}

static long call_inet6(void)
{
	return call_socket(AF_INET6);
}

static const struct {
	const char *name, *loss;
	enum doc_mark mark;
	long (*call)(void);
} calls[] = {
        {"memfd_create", "no program can open a device, because its shared memory is a memfd", DOC_FAIL, call_memfd},
        {"pidfd_open", "a broker cannot watch its programs", DOC_FAIL, call_pidfd},
        {"process_vm_readv", "large messages on one host are copied twice", DOC_WARN, call_vm_read},
        {"process_vm_writev", "large messages on one host are copied twice", DOC_WARN, call_vm_write},
        {"membarrier", "small messages on one host take a little longer", DOC_WARN, call_membarrier},
        {"socket(AF_NETLINK)", "the network interfaces cannot be listed, so there is no adapter", DOC_FAIL,
         call_netlink},
        {"socket(AF_UNIX)", "no program reaches the broker, or another program of this host", DOC_FAIL, call_unix},
        {"socket(AF_INET)", "programs reach no other host by IPv4", DOC_WARN, call_inet},
        {"socket(AF_INET6)", "programs reach no other host by IPv6; IPv4 suffices", DOC_OK, call_inet6},
        {"rseq", "the C library works without it", DOC_OK, call_rseq},
        {"io_uring_setup", "only verbena-target uses it, and does without", DOC_OK, call_io_uring},
};

static int try_call(int out, void *arg)
{
	const int *i = arg;

	errno = 0;
	if (calls[*i].call() >= 0)
		return 0;
	return errno == ENOSYS || errno == EPERM || errno == EACCES || errno == EAFNOSUPPORT ? errno : 0;
}

static void find_calls(void)
{
	char mode[16] = "";
	int refused = 0;

	doc_read_field("/proc/self/status", "Seccomp", mode, sizeof(mode));
	bool filtered = mode[0] == '2' || mode[0] == '1';

	for (int i = 0; i < (int)(sizeof(calls) / sizeof(*calls)); i++) {
		struct doc_child c;
		int status = doc_child_run(&c, try_call, &i, CALL_MS, NULL);

		if (!status)
			continue;
		refused += calls[i].mark != DOC_OK;
		doc_find(calls[i].mark, "calls",
		         calls[i].mark == DOC_OK ? NULL
		         : filtered ? "let the seccomp profile of this container or service allow the call (docker: "
		                      "--security-opt seccomp=FILE; systemd: SystemCallFilter=, "
		                      "RestrictAddressFamilies=)"
		                    : "use a kernel that has the call",
		         "%s is refused (%s)%s: %s", calls[i].name,
		         status > 128 || status < 0 ? "the process was killed" : strerror(status),
		         filtered ? " by a seccomp filter" : "", calls[i].loss);
	}
	if (!refused)
		doc_find(DOC_OK, "calls", NULL, "the system calls that Verbena needs are allowed%s",
		         filtered ? ", by a seccomp filter" : "");
}

void doc_check_system(void)
{
	find_versions();
	find_proc();
	find_calls();
}
