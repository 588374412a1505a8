// syscall.h - system calls of the data path, made in place
// see: docs/performance.md
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_SYSCALL_H
#define VB_UTIL_SYSCALL_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The same as syscall(2) without libc, whose code and tables are two pages more. Some kernels empty the TLB at each call,
 * so a page costs a walk of the page tables after each. No cancellation point. Returns the result, or -errno; errno
 * stays.
 */
#if defined(__x86_64__) && defined(__LP64__)
static inline long vb_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
	                 : "+a"(number)
	                 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return number;
}
#elif defined(__aarch64__)
static inline long vb_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#else
static inline long vb_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	int before = errno;
	long result = syscall(number, a, b, c, d, e, f);

	if (result < 0)
		result = -errno;
	errno = before;
	return result;
}
#endif

#endif
