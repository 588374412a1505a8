// next.h - access to the functions that the shim replaces
// follows: dlsym(3)
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_NEXT_H
#define VB_SHIM_NEXT_H

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))
/* For functions that have a struct vb_shim_map_buf on their stack. */
#define APART __attribute__((noinline, cold))

/*
 * Write NEXT_OF(open) once per file for each function; NEXT(open) is then the function that ours replaces. It is
 * looked up when the shim is loaded, so that a signal handler never has to; an earlier constructor looks it up
 * itself.
 */
#define NEXT_OF(name)                                                                  \
	static __typeof__(name) *next_##name;                                          \
	static __typeof__(name) *find_##name(void)                                     \
	{                                                                              \
		__typeof__(name) *f = __atomic_load_n(&next_##name, __ATOMIC_RELAXED); \
		if (__builtin_expect(!f, 0)) {                                         \
			f = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);               \
			__atomic_store_n(&next_##name, f, __ATOMIC_RELAXED);           \
		}                                                                      \
		return f;                                                              \
	}                                                                              \
	__attribute__((constructor)) static void load_##name(void)                     \
	{                                                                              \
		find_##name();                                                         \
	}
#define NEXT(name) find_##name()

#endif
