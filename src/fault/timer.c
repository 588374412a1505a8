// timer.c - the thread that acts at the times of rules
// follows: futex(2)
// SPDX-License-Identifier: MIT
#include "fault/timer.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fault/set.h"
#include "util/thread_root.h"

static struct {
	pthread_t thread;
	bool runs;
	atomic_bool stop;
	_Atomic uint32_t turn;  /* futex: changes with each request to wake */
	_Atomic uint64_t until; /* ns: when the thread wakes by itself */
	uint64_t (*serve)(uint64_t now);
} timer;

static void wake_thread(void)
{
	int saved = errno;

	atomic_fetch_add(&timer.turn, 1);
	syscall(SYS_futex, &timer.turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

void vb_fault_wake(uint64_t at)
{
	if (at < atomic_load(&timer.until))
		wake_thread();
}

static void sleep_until(uint32_t turn, uint64_t at)
{
	const struct timespec ts = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};

	syscall(SYS_futex, &timer.turn, FUTEX_WAIT_BITSET_PRIVATE, turn, at == UINT64_MAX ? NULL : &ts, NULL,
	        FUTEX_BITSET_MATCH_ANY);
}

/* A wake between the call of serve and the sleep changes turn, so the sleep ends at once. */
static void *timer_thread(void *arg)
{
	VB_THREAD_ROOT();
	(void)arg;
	while (!atomic_load(&timer.stop)) {
		atomic_store(&timer.until, UINT64_MAX);
		uint32_t turn = atomic_load(&timer.turn);
		uint64_t at = timer.serve(vb_fault_now());

		atomic_store(&timer.until, at);
		sleep_until(turn, at);
	}
	return NULL;
}

int vb_fault_timer_start(uint64_t (*serve)(uint64_t now))
{
	sigset_t all, old;
	pthread_attr_t attr;

	if (timer.runs)
		return 0;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 512 << 10);
	timer.serve = serve;
	atomic_store(&timer.stop, false);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* guarded copies: node/thread.c */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&timer.thread, &attr, timer_thread, NULL);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	timer.runs = !err;
	if (!err)
		pthread_setname_np(timer.thread, "verbena-fault");
	return err;
}

void vb_fault_timer_stop(void)
{
	if (!timer.runs)
		return;
	atomic_store(&timer.stop, true);
	wake_thread();
	pthread_join(timer.thread, NULL);
	timer.runs = false;
}

void vb_fault_timer_in_child(void)
{
	timer.runs = false;
}
