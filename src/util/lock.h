// lock.h - the spin lock of the data path
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_LOCK_H
#define VB_UTIL_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * Held for well under a microsecond, but for copies of large messages. A waiter spins for a while and then yields:
 * these machines may have a single core. Zero-initialised means unlocked.
 */
struct vb_lock {
	atomic_int held;
};

static inline void vb_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline bool vb_trylock(struct vb_lock *l)
{
	return !atomic_load_explicit(&l->held, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

static inline void vb_lock(struct vb_lock *l)
{
	for (int spins = 0; !vb_trylock(l); spins++) {
		if (spins < 200)
			vb_cpu_relax();
		else
			sched_yield();
	}
}

static inline void vb_unlock(struct vb_lock *l)
{
	atomic_store_explicit(&l->held, 0, memory_order_release);
}

#endif
