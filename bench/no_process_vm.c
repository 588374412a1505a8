// no_process_vm.c - starts a program in which process_vm_readv and process_vm_writev fail with EPERM, as in strict
// containers
// follows: seccomp(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define SKIP_UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, (value))

int main(int argc, char **argv)
{
	struct sock_filter code[] = {
	        LOAD(nr),
	        SKIP_UNLESS(SYS_process_vm_readv, 1),
	        ANSWER(SECCOMP_RET_ERRNO | EPERM),
	        SKIP_UNLESS(SYS_process_vm_writev, 1),
	        ANSWER(SECCOMP_RET_ERRNO | EPERM),
	        ANSWER(SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (argc < 2)
		return fprintf(stderr, "usage: no_process_vm PROGRAM [ARGUMENT...]\n"), 2;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
		fprintf(stderr, "no_process_vm: the filter was not accepted: %s\n", strerror(errno));
		return 1;
	}
	execvp(argv[1], argv + 1);
	fprintf(stderr, "no_process_vm: %s: %s\n", argv[1], strerror(errno));
	return 127;
}
