// clock.c - the time of the data path
// follows: vdso(7), clock_gettime(2)
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

#include "core/node.h"

/* The kernel's function itself, because the way to it through libc is four pages more (docs/performance.md). */
typedef int clock_function(clockid_t clock, struct timespec *ts);
static clock_function *_Atomic read_clock = clock_gettime;

/* When the library is loaded, because dlopen(3) may not be called under a lock. Under valgrind there is none to find. */
__attribute__((constructor)) static void find_clock(void)
{
	static const char *const names[] = {"__vdso_clock_gettime", "__kernel_clock_gettime"};
	void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

	for (int i = 0; vdso && i < 2; i++) {
		clock_function *found = (clock_function *)dlsym(vdso, names[i]);
		struct timespec ts;

		if (found && !found(CLOCK_MONOTONIC, &ts))
			atomic_store_explicit(&read_clock, found, memory_order_relaxed);
	}
	if (vdso)
		dlclose(vdso);
}

__attribute__((hot)) uint64_t vb_now(void)
{
	struct timespec ts;

	atomic_load_explicit(&read_clock, memory_order_relaxed)(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
