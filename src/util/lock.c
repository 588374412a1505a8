// lock.c - favourites of spin locks; checks of the order in which a thread takes locks, in sanitizer and debug builds
// see: docs/locking.md
// SPDX-License-Identifier: MIT
#include "util/lock.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* --- favourites --- */

/* A thread becomes the favourite of a lock when it has taken it FAVOURITE_AFTER times in a row. Each withdrawal
 * multiplies that number by 16, because it costs as much as thousands of uncontended locks. */
#define FAVOURITE_AFTER 256u
#define WITHDRAWALS_MAX 5u

/* Not in sanitizer builds: TSan does not know that membarrier(2) orders the threads, and the checks of ranks look for
 * the order alone. */
#if defined(VB_SANITIZED) || defined(VB_LOCK_RANKS)
#define FAVOURITES 0
#else
#define FAVOURITES 1
#endif

static atomic_bool allowed;
static _Atomic uintptr_t never; /* the progress thread. No thread-local storage: dlopen(3) may find no room for it */

static int membarrier_now(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

bool vb_lock_allow_favourites(void)
{
	if (!FAVOURITES || membarrier_now(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) ||
	    membarrier_now(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		return false;
	atomic_store(&allowed, true);
	return true;
}

void vb_lock_never_favourite(void)
{
	atomic_store(&never, vb_self());
}

/* All threads of the process have a full barrier before this returns. */
static void barrier_everywhere(void)
{
	if (!membarrier_now(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		return;
	/* a child of fork() may have to register again */
	if (!membarrier_now(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
	    !membarrier_now(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		return;
	/* The program has forbidden the call since. No store stays in a store buffer for a millisecond. */
	atomic_store(&allowed, false);
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Takes the right to plain stores from the favourite. It may still have the lock. Under held. */
static void withdraw(struct vb_lock *l, uintptr_t favourite)
{
	atomic_store_explicit(&l->favourite, favourite | 1, memory_order_relaxed);
	barrier_everywhere();
	l->streak = 0;
	l->withdrawals = l->withdrawals < WITHDRAWALS_MAX ? l->withdrawals + 1 : WITHDRAWALS_MAX;
}

/* Counts how often the thread has taken the lock, and makes it the favourite. A lock has one favourite for ever: a
 * former one may have read that it still is, been preempted, and store favourite_has at any time. Under held. */
static void consider(struct vb_lock *l, uintptr_t self, uintptr_t favourite)
{
	if (l->last != self) {
		l->last = self;
		l->streak = 0;
		return;
	}
	if (++l->streak < FAVOURITE_AFTER << 4 * l->withdrawals ||
	    self == atomic_load_explicit(&never, memory_order_relaxed) ||
	    !atomic_load_explicit(&allowed, memory_order_relaxed))
		return;
	l->streak = 0;
	if (!favourite || favourite == (self | 1))
		atomic_store_explicit(&l->favourite, self, memory_order_relaxed);
}

static bool take_held(struct vb_lock *l)
{
	return !atomic_load_explicit(&l->held, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&l->held, 1, memory_order_acquire);
}

/* Does another thread, or the function that a signal has interrupted, have the lock as the favourite? Under held. */
static bool favourite_has(struct vb_lock *l, uintptr_t self)
{
	uintptr_t favourite = atomic_load_explicit(&l->favourite, memory_order_relaxed);

	if (favourite && !(favourite & 1) && favourite != self)
		withdraw(l, favourite);
	return atomic_load_explicit(&l->favourite_has, memory_order_acquire);
}

static void wait_a_moment(unsigned spins)
{
	if (spins < 200)
		vb_cpu_relax();
	else
		sched_yield();
}

void vb_lock_slow(struct vb_lock *l)
{
	uintptr_t self = vb_self();

	for (unsigned spins = 0; !take_held(l); spins++)
		wait_a_moment(spins);
	if (!FAVOURITES)
		return;
	for (unsigned spins = 0; favourite_has(l, self); spins++)
		wait_a_moment(spins);
	consider(l, self, atomic_load_explicit(&l->favourite, memory_order_relaxed));
}

bool vb_trylock_slow(struct vb_lock *l)
{
	uintptr_t self = vb_self();

	if (!take_held(l))
		return false;
	if (!FAVOURITES)
		return true;
	if (favourite_has(l, self)) {
		atomic_store_explicit(&l->held, 0, memory_order_release);
		return false;
	}
	consider(l, self, atomic_load_explicit(&l->favourite, memory_order_relaxed));
	return true;
}

/* --- ranks --- */

#ifdef VB_LOCK_RANKS

#include <stdio.h>
#include <stdlib.h>

#define HELD_MAX 32

struct held {
	const void *lock;
	enum vb_lock_rank rank;
	const char *file;
	int line;
};

/* The locks that this thread holds, in the order in which it took them. */
static _Thread_local struct {
	unsigned n;
	struct held lock[HELD_MAX];
} held;

static const char *const names[] = {
        [VB_RANK_NONE] = "unranked",
        [VB_RANK_PROGRAM] = "program",
        [VB_RANK_PRE_FORK] = "preload fork",
        [VB_RANK_PRE_EPOLL] = "preload epoll",
        [VB_RANK_PRE_FILE] = "preload file",
        [VB_RANK_RS_EPOLL] = "rsocket epoll",
        [VB_RANK_RS_CM] = "rsocket cm",
        [VB_RANK_RS] = "rsocket",
        [VB_RANK_RS_LINGER] = "rsocket linger",
        [VB_RANK_RS_START] = "rsocket start",
        [VB_RANK_RS_ASLEEP] = "rsocket asleep",
        [VB_RANK_RCM_QP] = "rcm queue pair",
        [VB_RANK_RCM_OPENING] = "rcm opening",
        [VB_RANK_RCM] = "rcm",
        [VB_RANK_RCM_DEVICES] = "rcm devices",
        [VB_RANK_NODE] = "node",
        [VB_RANK_GSI] = "gsi",
        [VB_RANK_MODIFY] = "modify",
        [VB_RANK_TALLY] = "tally",
        [VB_RANK_CONTEXTS] = "contexts",
        [VB_RANK_CONTEXT] = "context",
        [VB_RANK_SCAN] = "scan",
        [VB_RANK_MEETING] = "meeting",
        [VB_RANK_GROUPS] = "multicast groups",
        [VB_RANK_BROKER] = "broker",
        [VB_RANK_MR] = "mr",
        [VB_RANK_WATCHES] = "watches",
        [VB_RANK_ACK] = "ack",
        [VB_RANK_TAKERS] = "takers",
        [VB_RANK_SYSFS] = "sysfs",
        [VB_RANK_ABI_CHANNEL] = "abi channel",
        [VB_RANK_GUARD] = "guard",
        [VB_RANK_PRE_TABLE] = "preload table",
        [VB_RANK_RS_TABLE] = "rsocket table",
        [VB_RANK_PROGRESS] = "progress",
        [VB_RANK_SQ] = "sq",
        [VB_RANK_TAILS] = "tails",
        [VB_RANK_TX] = "tx",
        [VB_RANK_PEER_TX] = "peer tx",
        [VB_RANK_MAPS] = "maps",
        [VB_RANK_WINDOWS] = "windows",
        [VB_RANK_RQ] = "rq",
        [VB_RANK_CQ] = "cq",
        [VB_RANK_CHANNEL] = "channel",
        [VB_RANK_ASYNC] = "async",
        [VB_RANK_QUESTIONS] = "questions",
        [VB_RANK_DEVICE] = "device",
};

static _Noreturn void rank_error(const char *what, enum vb_lock_rank rank, const char *file, int line,
                                 const struct held *h)
{
	if (h)
		fprintf(stderr, "verbena: %s:%d: %s \"%s\" lock while this thread holds \"%s\", taken at %s:%d\n", file,
		        line, what, names[rank], names[h->rank], h->file, h->line);
	else
		fprintf(stderr, "verbena: %s:%d: %s \"%s\" lock\n", file, line, what, names[rank]);
	abort();
}

void vb_rank_check(const void *lock, enum vb_lock_rank rank, const char *file, int line)
{
	for (unsigned i = 0; i < held.n; i++) {
		const struct held *h = &held.lock[i];

		if (h->lock == lock)
			rank_error("takes twice the", rank, file, line, h);
		if (rank != VB_RANK_NONE && h->rank >= rank)
			rank_error("takes the", rank, file, line, h);
	}
}

void vb_rank_push(const void *lock, enum vb_lock_rank rank, const char *file, int line)
{
	if (rank == VB_RANK_NONE || rank == VB_RANK_PROGRAM)
		return;
	if (held.n == HELD_MAX)
		rank_error("cannot record the", rank, file, line, &held.lock[HELD_MAX - 1]);
	held.lock[held.n++] = (struct held){lock, rank, file, line};
}

static bool held_remove(const void *lock)
{
	for (unsigned i = held.n; i-- > 0;) {
		if (held.lock[i].lock != lock)
			continue;
		for (held.n--; i < held.n; i++)
			held.lock[i] = held.lock[i + 1];
		return true;
	}
	return false;
}

void vb_rank_pop(const void *lock, enum vb_lock_rank rank, const char *file, int line)
{
	if (!held_remove(lock) && rank > VB_RANK_PROGRAM)
		rank_error("releases, without holding it, the", rank, file, line, NULL);
}

void vb_rank_pop_mutex(const void *lock, const char *file, int line)
{
	if (held_remove(lock))
		return;
	fprintf(stderr, "verbena: %s:%d: releases a mutex that this thread does not hold\n", file, line);
	abort();
}

void vb_rank_forget(void)
{
	held.n = 0;
}

void vb_rank_may_wait(const char *file, int line)
{
	for (unsigned i = 0; i < held.n; i++)
		if (held.lock[i].rank >= VB_RANK_SPIN)
			rank_error("may wait, under no", VB_RANK_NONE, file, line, &held.lock[i]);
}

void vb_rank_holds_none(const char *file, int line)
{
	if (held.n)
		rank_error("calls out, under no", VB_RANK_NONE, file, line, &held.lock[0]);
}

#endif
