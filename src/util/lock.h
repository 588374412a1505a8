// lock.h - the spin lock of the data path, and the order of all locks
// see: docs/locking.md
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_LOCK_H
#define VB_UTIL_LOCK_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The order of locks: a thread takes only locks of a higher rank than those it holds, and no two of one rank.
 * docs/locking.md says what each guards. Mutexes come first, so that no thread sleeps for a mutex while others spin for
 * it.
 */
enum vb_lock_rank {
	VB_RANK_NONE,    /* not checked */
	VB_RANK_PROGRAM, /* held while the program's code runs: taken when no other lock is held, and not recorded */

	/* mutexes */
	VB_RANK_PRE_FORK,
	VB_RANK_PRE_EPOLL,
	VB_RANK_PRE_FILE,
	VB_RANK_RS_EPOLL,
	VB_RANK_RS_CM,
	VB_RANK_RS,
	VB_RANK_RS_LINGER,
	VB_RANK_RS_START,
	VB_RANK_RS_ASLEEP,
	VB_RANK_RCM_QP,
	VB_RANK_RCM_OPENING,
	VB_RANK_RCM_DEVICES,
	VB_RANK_RCM,
	VB_RANK_NODE,
	VB_RANK_GSI,
	VB_RANK_MODIFY,
	VB_RANK_TALLY,
	VB_RANK_CONTEXTS,
	VB_RANK_CONTEXT,
	VB_RANK_SCAN,
	VB_RANK_MEETING,
	VB_RANK_FAULTS,
	VB_RANK_GROUPS,
	VB_RANK_FLOWS,
	VB_RANK_BROKER,
	VB_RANK_MR,
	VB_RANK_WATCHES,
	VB_RANK_ACK,
	VB_RANK_TAKERS,
	VB_RANK_SYSFS,
	VB_RANK_ABI_CHANNEL,
	VB_RANK_GUARD,

	/* spin locks */
	VB_RANK_SPIN,
	VB_RANK_PRE_TABLE = VB_RANK_SPIN,
	VB_RANK_RS_TABLE,
	VB_RANK_PROGRESS,
	VB_RANK_SQ,
	VB_RANK_TAILS,
	VB_RANK_TX,
	VB_RANK_PEER_TX,
	VB_RANK_MAPS,
	VB_RANK_WINDOWS,
	VB_RANK_RQ,
	VB_RANK_CQ,
	VB_RANK_CHANNEL,
	VB_RANK_ASYNC,
	VB_RANK_QUESTIONS,
	VB_RANK_DEVICE,
	VB_RANK_CAPTURE,
	VB_RANK_FAULT,
};

/*
 * Held for well under a microsecond, except during copies of large messages. A waiter spins for a while and then
 * yields, because the machine may have a single core. All zeros means unlocked and without a rank. A thread that holds
 * one calls nothing that waits for another thread, another process or a file; copies of user memory may wait for a
 * page.
 *
 * An atomic exchange waits until all earlier stores are visible, which costs as much as the rest of a small send. So a
 * lock that one thread alone takes has that thread as its favourite, which takes it with plain stores (lock.c). A lock
 * has the same favourite for ever.
 */
struct vb_lock {
	_Atomic uint8_t held;          /* unless the favourite has it */
	_Atomic uint8_t favourite_has; /* written by the favourite alone */
	uint8_t withdrawals;           /* as far as they are counted; under held, as are the next two */
	uint32_t streak;               /* how often in a row `last` has taken held */
	uintptr_t last;                /* the thread that took held last */
	/* The thread (vb_self) that takes the lock with plain stores; | 1: withdrawn, it takes held like all others */
	_Atomic uintptr_t favourite;
#ifdef VB_LOCK_RANKS
	enum vb_lock_rank rank;
#endif
};

/* Initialises a static lock. */
#ifdef VB_LOCK_RANKS
#define VB_LOCK_INITIALIZER(r) \
	{                      \
		.rank = (r)    \
	}
#else
#define VB_LOCK_INITIALIZER(r) \
	{                      \
		0              \
	}
#endif

#ifdef VB_LOCK_RANKS
/* Sanitizer and debug builds: each thread records the locks it holds, and aborts the process at a wrong order.
 * lock.c */
void vb_rank_check(const void *lock, enum vb_lock_rank rank, const char *file, int line); /* before the thread waits */
void vb_rank_push(const void *lock, enum vb_lock_rank rank, const char *file, int line);
void vb_rank_pop(const void *lock, enum vb_lock_rank rank, const char *file, int line);
void vb_rank_pop_mutex(const void *lock, const char *file, int line); /* its rank is not known where it is released */
/* Forgets the thread's locks. For exit() from a signal handler: the interrupted code never continues to unlock. */
void vb_rank_forget(void);
/* The caller may wait for another thread, another process or a file: aborts if the thread holds a spin lock. */
void vb_rank_may_wait(const char *file, int line);
/* The same if it holds any lock: the caller calls code of the program, or of librdmacm. */
void vb_rank_holds_none(const char *file, int line);
#define VB_MAY_WAIT() vb_rank_may_wait(__FILE__, __LINE__)
#define VB_HOLDS_NO_LOCK() vb_rank_holds_none(__FILE__, __LINE__)
#else
static inline void vb_rank_forget(void)
{
}
#define VB_MAY_WAIT() ((void)0)
#define VB_HOLDS_NO_LOCK() ((void)0)
#endif

static inline void vb_lock_reset(struct vb_lock *l)
{
	atomic_store_explicit(&l->held, 0, memory_order_relaxed);
	atomic_store_explicit(&l->favourite_has, 0, memory_order_relaxed);
}

static inline void vb_lock_init(struct vb_lock *l, enum vb_lock_rank rank)
{
	vb_lock_reset(l);
	atomic_store_explicit(&l->favourite, 0, memory_order_relaxed);
	l->last = 0;
	l->streak = l->withdrawals = 0;
#ifdef VB_LOCK_RANKS
	l->rank = rank;
#endif
}

static inline void vb_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* The calling thread: an address that no other living thread has, never odd. */
static inline uintptr_t vb_self(void)
{
#if defined(__x86_64__)
	uintptr_t self;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	return self;
#else
	return (uintptr_t)__builtin_thread_pointer();
#endif
}

/* From now on locks may have favourites. Called when the process's node starts. Returns false if they never have: without
 * membarrier(2), and in debug and sanitizer builds. lock.c */
bool vb_lock_allow_favourites(void);
/* The calling thread never becomes a favourite: it shares all its locks with the program's threads. */
void vb_lock_never_favourite(void);
/* Take held, and withdraw the lock from a favourite that is another thread. lock.c */
void vb_lock_slow(struct vb_lock *l);
bool vb_trylock_slow(struct vb_lock *l);

/* Takes the lock if the calling thread, self, is its favourite and does not have it. Pairs with the membarrier of
 * withdraw (lock.c): either that thread sees favourite_has, or this one sees the withdrawal. */
static inline bool vb_lock_favoured(struct vb_lock *l, uintptr_t self)
{
	if (atomic_load_explicit(&l->favourite, memory_order_relaxed) != self ||
	    atomic_load_explicit(&l->favourite_has, memory_order_relaxed))
		return false;
	atomic_store_explicit(&l->favourite_has, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&l->favourite, memory_order_relaxed) == self, 1))
		return true;
	atomic_store_explicit(&l->favourite_has, 0, memory_order_release);
	return false;
}

static inline bool vb_trylock(struct vb_lock *l)
{
	return vb_lock_favoured(l, vb_self()) || vb_trylock_slow(l);
}

static inline void vb_lock(struct vb_lock *l)
{
	if (__builtin_expect(!vb_lock_favoured(l, vb_self()), 0))
		vb_lock_slow(l);
}

static inline void vb_unlock(struct vb_lock *l)
{
	bool favoured = (atomic_load_explicit(&l->favourite, memory_order_relaxed) & ~(uintptr_t)1) == vb_self() &&
	                atomic_load_explicit(&l->favourite_has, memory_order_relaxed);

	atomic_store_explicit(favoured ? &l->favourite_has : &l->held, 0, memory_order_release);
}

#ifdef VB_LOCK_RANKS
static inline void vb_lock_ranked(struct vb_lock *l, const char *file, int line)
{
	vb_rank_check(l, l->rank, file, line);
	vb_lock(l);
	vb_rank_push(l, l->rank, file, line);
}

/* Ranks are not checked, because it does not wait. */
static inline bool vb_trylock_ranked(struct vb_lock *l, const char *file, int line)
{
	bool taken = vb_trylock(l);

	if (taken)
		vb_rank_push(l, l->rank, file, line);
	return taken;
}

static inline void vb_unlock_ranked(struct vb_lock *l, const char *file, int line)
{
	vb_rank_pop(l, l->rank, file, line);
	vb_unlock(l);
}

static inline int vb_mutex_lock_ranked(pthread_mutex_t *m, enum vb_lock_rank rank, const char *file, int line)
{
	vb_rank_check(m, rank, file, line);
	int err = pthread_mutex_lock(m);

	if (!err)
		vb_rank_push(m, rank, file, line);
	return err;
}

static inline int vb_mutex_trylock_ranked(pthread_mutex_t *m, enum vb_lock_rank rank, const char *file, int line)
{
	int err = pthread_mutex_trylock(m);

	if (!err)
		vb_rank_push(m, rank, file, line);
	return err;
}

static inline void vb_mutex_unlock_ranked(pthread_mutex_t *m, const char *file, int line)
{
	vb_rank_pop_mutex(m, file, line);
	pthread_mutex_unlock(m);
}

#define vb_lock(l) vb_lock_ranked(l, __FILE__, __LINE__)
#define vb_trylock(l) vb_trylock_ranked(l, __FILE__, __LINE__)
#define vb_unlock(l) vb_unlock_ranked(l, __FILE__, __LINE__)
#define vb_mutex_lock(m, rank) vb_mutex_lock_ranked(m, rank, __FILE__, __LINE__)
#define vb_mutex_trylock(m, rank) vb_mutex_trylock_ranked(m, rank, __FILE__, __LINE__)
#define vb_mutex_unlock(m) vb_mutex_unlock_ranked(m, __FILE__, __LINE__)
#else
/* A mutex gets its rank where it is taken, so that it stays a plain mutex for condition variables and static
 * initialisers. */
#define vb_mutex_lock(m, rank) pthread_mutex_lock(m)
#define vb_mutex_trylock(m, rank) pthread_mutex_trylock(m)
#define vb_mutex_unlock(m) pthread_mutex_unlock(m)
#endif
/* Releases a mutex that was taken with VB_RANK_PROGRAM, which is not recorded. */
#define vb_mutex_unlock_program(m) pthread_mutex_unlock(m)

#endif
