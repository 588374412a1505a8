// thread_root.h - a thread that still runs at exit is no leak for valgrind's memcheck
// see: docs/compatibility.md, valgrind
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_THREAD_ROOT_H
#define VB_UTIL_THREAD_ROOT_H

#include <features.h>
#include <stdatomic.h>
#include <stdint.h>

/*
 * For each thread glibc allocates a vector, and keeps only a pointer behind its first entry, of 16 bytes. memcheck calls
 * that "possibly lost" while the thread runs, and programs that end with our threads running would fail their leak checks.
 * So the thread's own function keeps the address of the vector's beginning. Nothing reads it but memcheck.
 */
static inline uintptr_t vb_thread_vector(void)
{
	uintptr_t behind_first = 0;

#if defined(__GLIBC__) && defined(__x86_64__)
	__asm__("mov %%fs:8, %0" : "=r"(behind_first));
#elif defined(__GLIBC__) && defined(__aarch64__)
	behind_first = *(uintptr_t *)__builtin_thread_pointer();
#endif
	return behind_first ? behind_first - 16 : 0;
}

/* At the beginning of the function of a thread that no one ends at exit. */
#define VB_THREAD_ROOT()                                  \
	do {                                              \
		static volatile _Atomic uintptr_t root_;  \
		atomic_store(&root_, vb_thread_vector()); \
	} while (0)

#endif
