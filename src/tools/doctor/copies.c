// copies.c - may two processes of this user copy each other's memory (process_vm_readv), related or not
// follows: process_vm_readv(2), ptrace(2) "Ptrace access mode checking", Yama
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

#define COPY_MS 3000

static volatile char secret = 42;

/* A child that can be read until its parent kills it. */
static int sleep_long(int out, void *arg)
{
	struct timespec long_time = {5, 0};

	if (write(out, "r", 1) == 1)
		nanosleep(&long_time, NULL);
	return 0;
}

/* After fork() the variable has the same address in each process. 0 or an errno value. */
static int read_secret(pid_t pid)
{
	char got = 0;
	struct iovec here = {&got, 1}, there = {(void *)&secret, 1};

	if (process_vm_readv(pid, &here, 1, &there, 1, 0) != 1)
		return errno;
	return got == 42 ? 0 : EFAULT;
}

static int read_sibling(int out, void *arg)
{
	return read_secret(*(pid_t *)arg);
}

static void find_refusal(const char *whose, int err)
{
	long long scope = -1;

	doc_read_number("/proc/sys/kernel/yama/ptrace_scope", &scope);
	if (scope > 0)
		doc_find(
		        DOC_WARN, "ptrace", "sysctl -w kernel.yama.ptrace_scope=0",
		        "kernel.yama.ptrace_scope is %lld, so a process may not copy the memory of %s (%s): large messages "
		        "on one host go through shared memory, in two copies",
		        scope, whose, strerror(err));
	else
		doc_find(
		        DOC_WARN, "ptrace",
		        "let the container's profile allow process_vm_readv and process_vm_writev (docker: "
		        "--cap-add=SYS_PTRACE)",
		        "a process may not copy the memory of %s (%s): large messages on one host go through shared memory, "
		        "in two copies",
		        whose, strerror(err));
}

void doc_check_copies(void)
{
	struct doc_child target, reader;

	if (!doc_child_start(&target, sleep_long, NULL)) {
		doc_find(DOC_FAIL, "ptrace", "ulimit -u, pids.max", "no process can be started: %s", strerror(errno));
		return;
	}
	int child = read_secret(target.pid);
	int other = doc_child_run(&reader, read_sibling, &target.pid, COPY_MS, NULL);

	doc_children_end(&target, 1, 0, NULL);
	if (child > 0)
		find_refusal("its own child", child);
	else if (other)
		find_refusal("a process that is not its child", other > 0 && other < 128 ? other : EPERM);
	else
		doc_find(DOC_OK, "ptrace", NULL, "processes of this user may copy each other's memory");
}
