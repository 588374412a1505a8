// refuse.c - runs a program for which a seccomp filter refuses one system call, or one family of sockets
// follows: seccomp(2)
// SPDX-License-Identifier: MIT
// usage: refuse CALL PROGRAM [ARGUMENT…]
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	long number;
	unsigned family; /* AF_UNSPEC: whatever the first argument is */
} calls[] = {
        {"memfd_create", SYS_memfd_create, AF_UNSPEC}, {"process_vm_readv", SYS_process_vm_readv, AF_UNSPEC},
        {"membarrier", SYS_membarrier, AF_UNSPEC},     {"io_uring_setup", SYS_io_uring_setup, AF_UNSPEC},
        {"netlink", SYS_socket, AF_NETLINK},           {"inet6", SYS_socket, AF_INET6},
};

static int refuse(const char *name)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct sock_filter code[] = {
		        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].number, 0, 3),
		        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* little-endian */
		        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].family, 0, calls[i].family == AF_UNSPEC ? 0 : 1),
		        BPF_STMT(BPF_RET | BPF_K,
		                 SECCOMP_RET_ERRNO | (calls[i].family == AF_UNSPEC ? EPERM : EAFNOSUPPORT)),
		        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog prog = {.len = sizeof(code) / sizeof(*code), .filter = code};

		if (!strcmp(name, calls[i].name))
			return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
	}
	return -1;
}

int main(int argc, char **argv)
{
	if (argc < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || refuse(argv[1])) {
		perror("refuse");
		return 77;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
