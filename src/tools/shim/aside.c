// aside.c - threads that see the kernel's own files and sockets for a while, past the shim
// see: ARCHITECTURE.md, "Hardware"
// SPDX-License-Identifier: MIT
#include "tools/shim/aside.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "tools/shim/next.h"

enum { THREADS = 64 };

/* No thread-local storage: a thread has a slot while it is aside. */
static struct {
	int thread, depth;
} slots[THREADS];
static int aside_count;

static int own_slot(int thread)
{
	for (int i = 0; i < THREADS; i++)
		if (__atomic_load_n(&slots[i].thread, __ATOMIC_RELAXED) == thread)
			return i;
	return -1;
}

static int take_slot(int thread)
{
	for (int i = 0; i < THREADS; i++) {
		int none = 0;

		if (__atomic_compare_exchange_n(&slots[i].thread, &none, thread, false, __ATOMIC_RELAXED,
		                                __ATOMIC_RELAXED))
			return i;
	}
	return -1;
}

EXPORT void verbena_paths_aside(bool on)
{
	int thread = (int)syscall(SYS_gettid), i = own_slot(thread);

	if (on) {
		i = i < 0 ? take_slot(thread) : i;
		if (i >= 0 && !slots[i].depth++)
			__atomic_add_fetch(&aside_count, 1, __ATOMIC_RELAXED);
	} else if (i >= 0 && !--slots[i].depth) {
		__atomic_sub_fetch(&aside_count, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&slots[i].thread, 0, __ATOMIC_RELAXED);
	}
}

bool vb_shim_is_aside(void)
{
	return __builtin_expect(__atomic_load_n(&aside_count, __ATOMIC_RELAXED), 0) &&
	       own_slot((int)syscall(SYS_gettid)) >= 0;
}
