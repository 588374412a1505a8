// lines_reader.c - reads the file that names adapters again, in a thread that may wait for it
// follows: verbena-link(1)
// SPDX-License-Identifier: MIT
#include "node/lines_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "core/device.h"
#include "node/wake.h"

/* The process whose thread reads; a child of fork() has another pid, and no thread. Its low bit (of a pid shifted by one)
 * asks for one more reading. */
static _Atomic uint64_t reading;
static atomic_bool done;

#define AGAIN ((uint64_t)1)

static uint64_t our_mark(void)
{
	return (uint64_t)getpid() << 1;
}

/* arg: a descriptor of its own, so that the node's may be closed meanwhile. */
static void *lines_thread(void *arg)
{
	int wake_fd = (int)(intptr_t)arg;
	uint64_t was;

	do {
		was = our_mark();
		atomic_store(&reading, was);
		vb_device_choice_read();
	} while (!atomic_compare_exchange_strong(&reading, &was, 0));
	atomic_store(&done, true);
	vb_wake_ring(wake_fd);
	close(wake_fd);
	return NULL;
}

static int start_lines_thread(int fd)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* as in node/thread.c */
	sigdelset(&all, SIGBUS);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&thread, &attr, lines_thread, (void *)(intptr_t)fd);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

int vb_lines_reader_start(int wake_fd)
{
	uint64_t mark = our_mark(), was = mark;

	if (atomic_compare_exchange_strong(&reading, &was, mark | AGAIN) || was == (mark | AGAIN))
		return 0;
	int fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	atomic_store(&reading, mark);
	int err = start_lines_thread(fd);
	if (err) {
		atomic_store(&reading, 0);
		close(fd);
	}
	return err;
}

bool vb_lines_reader_done(void)
{
	return atomic_load_explicit(&done, memory_order_relaxed) && atomic_exchange(&done, false);
}
