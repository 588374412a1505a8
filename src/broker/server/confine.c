// confine.c - broker and keeper drop the privileges that they do not need
// follows: capabilities(7), seccomp(2), prctl(2)
// SPDX-License-Identifier: MIT
#include "broker/server/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/log.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#define HIGHEST 0x40000000u /* above are system calls of the x32 ABI, with other meanings */
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#define HIGHEST UINT32_MAX
#endif

/* Sanitizers make system calls of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef ARCH
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#undef ARCH
#endif
#endif

/* ---- capabilities ---- */

static void keep_capabilities(uint32_t keep)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capget, &head, data))
		return;
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		uint32_t mask = i == 0 ? keep : 0;

		data[i].permitted &= mask;
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &head, data))
		vb_log(VB_LOG_INFO, "broker: capabilities could not be dropped");
}

/* ---- system calls ---- */

#ifdef ARCH
/* clang-format would indent each line of these lists more than the line before. */
/* clang-format off */
/* Calls that broker and keeper need. */
#define SHARED_CALLS(X)                                                                                                    \
	X(read) X(write) X(close) X(recvfrom) X(recvmsg) X(recvmmsg) X(sendto) X(sendmsg) X(sendmmsg) X(accept4) X(shutdown) \
	X(getsockopt) X(setsockopt) X(socketpair) X(pipe2) X(fcntl) X(epoll_ctl) X(epoll_pwait) X(ppoll) X(openat)           \
	X(newfstatat) X(fstat) X(unlinkat) X(clock_gettime) X(clock_nanosleep) X(sched_yield) X(getrandom) X(brk) X(mmap)    \
	X(munmap) X(mremap) X(madvise) X(mprotect) X(futex) X(rt_sigreturn) X(rt_sigprocmask) X(rt_sigaction) X(exit)        \
	X(exit_group) X(restart_syscall) X(gettid) X(getpid) X(tgkill) X(prctl) X(capget) X(capset) X(seccomp) X(geteuid)

/* Calls that only the broker needs: to inspect programs and interfaces, to save its state, to start a keeper and its
 * sockets, to run threads that close descriptors. */
#define BROKER_CALLS(X)                                                                                                    \
	X(socket) X(bind) X(listen) X(connect) X(getsockname) X(pread64) X(pwrite64) X(lseek) X(ftruncate) X(readlinkat)     \
	X(renameat) X(mkdirat) X(fchmod) X(fchmodat) X(faccessat) X(faccessat2) X(flock) X(getdents64) X(chdir) X(getcwd)    \
	X(pidfd_open) X(clone) X(clone3) X(unshare) X(set_robust_list) X(rseq) X(setsid) X(wait4) X(dup) X(dup3)             \
	X(close_range) X(prlimit64) X(getrlimit) X(ioctl) X(getuid) X(getgid) X(getegid) X(getppid) X(umask) X(sigaltstack)  \
	X(sched_getaffinity) X(statx) X(uname) X(nanosleep) X(epoll_create1) X(signalfd4) X(eventfd2) X(fsync)       \
	X(sched_setattr) X(getpriority) X(setpriority) X(fstatfs)

/* clang-format on */

/* Older calls that only x86-64 has. */
#if defined(__x86_64__)
#define SHARED_OLD(X) X(epoll_wait) X(poll) X(stat) X(lstat) X(open) X(unlink) X(arch_prctl) X(time) X(gettimeofday)
#define BROKER_OLD(X) X(readlink) X(rename) X(mkdir) X(chmod) X(access) X(fork) X(vfork) X(dup2) X(pipe)
#else
#define SHARED_OLD(X)
#define BROKER_OLD(X)
#endif

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
#define BEGIN                                                                                       \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),                    \
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0), BPF_STMT(BPF_RET | BPF_K, REFUSE), \
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),              \
	        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, HIGHEST, 0, 1), BPF_STMT(BPF_RET | BPF_K, REFUSE),
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)

static void install_filter(struct sock_filter *code, size_t n)
{
	struct sock_fprog prog = {.len = (unsigned short)n, .filter = code};

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		vb_log(VB_LOG_INFO, "broker: system calls are not filtered");
}

static void filter_broker(void)
{
	struct sock_filter code[] = {BEGIN SHARED_CALLS(ALLOW) SHARED_OLD(ALLOW) BROKER_CALLS(ALLOW) BROKER_OLD(ALLOW)
	                                     BPF_STMT(BPF_RET | BPF_K, REFUSE)};

	install_filter(code, sizeof(code) / sizeof(code[0]));
}

static void filter_keeper(void)
{
	struct sock_filter code[] = {BEGIN SHARED_CALLS(ALLOW) SHARED_OLD(ALLOW) BPF_STMT(BPF_RET | BPF_K, REFUSE)};

	install_filter(code, sizeof(code) / sizeof(code[0]));
}
#else
static void filter_broker(void)
{
}

static void filter_keeper(void)
{
}
#endif

static void drop_privileges(uint32_t capabilities)
{
	struct rlimit none = {0};

	keep_capabilities(capabilities);
	setrlimit(RLIMIT_CORE, &none); /* a core file would show one user's data to another */
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

void vb_confine_broker(bool foreign_dir)
{
	drop_privileges(1u << CAP_NET_ADMIN | 1u << CAP_SYS_NICE | (foreign_dir ? 1u << CAP_DAC_OVERRIDE : 0));
	filter_broker();
}

void vb_confine_keeper(void)
{
	drop_privileges(1u << CAP_NET_ADMIN);
	filter_keeper();
}
