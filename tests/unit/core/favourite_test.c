// favourite_test.c - spin locks that one thread takes with plain stores, and how others take them from it
// see: src/util/lock.h
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "util/lock.h"

#if defined(VB_SANITIZED) || defined(VB_EMULATED)
#define ROUNDS 100
#else
#define ROUNDS 500
#endif
#define OFTEN 1000 /* more than a thread needs to become the favourite */
#define OTHERS 2

static struct guarded {
	struct vb_lock lock;
	unsigned long a, b;
} guarded[ROUNDS];
static atomic_int reached[ROUNDS]; /* how many of the other threads have finished with it */
static atomic_int favoured = -1;   /* round that the favourite has reached; the others wait for it */

static bool has_favourite(struct vb_lock *l)
{
	return atomic_load(&l->favourite) && !(atomic_load(&l->favourite) & 1);
}

/* Under the lock. Two plain counters that differ only while a thread is in here. */
static void use(struct guarded *g)
{
	CHECK(g->a == g->b);
	g->a++;
	atomic_signal_fence(memory_order_seq_cst);
	g->b++;
}

static void take_and_use(struct guarded *g, unsigned turn)
{
	if (turn % 3 == 0 && vb_trylock(&g->lock)) {
		use(g);
		vb_unlock(&g->lock);
		return;
	}
	vb_lock(&g->lock);
	use(g);
	vb_unlock(&g->lock);
}

static void *other(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		while (atomic_load(&favoured) < i)
			vb_cpu_relax();
		for (unsigned spins = (seed = seed * 1103515245 + 12345) % 3000; spins; spins--)
			atomic_signal_fence(memory_order_seq_cst);
		for (unsigned n = 0; n < 50; n++)
			take_and_use(&guarded[i], n);
		atomic_fetch_add(&reached[i], 1);
	}
	return NULL;
}

/* In each round this thread becomes the favourite of a new lock, and the others take it while this one goes on. */
static void others_take_it_from_the_favourite(bool has_them)
{
	pthread_t thread[OTHERS];
	unsigned favourites = 0;

	for (uintptr_t i = 0; i < OTHERS; i++)
		CHECK(!pthread_create(&thread[i], NULL, other, (void *)(i + 1)));
	for (int i = 0; i < ROUNDS; i++) {
		unsigned long n = 0;

		vb_lock_init(&guarded[i].lock, VB_RANK_SQ);
		for (; n < OFTEN; n++)
			take_and_use(&guarded[i], (unsigned)n);
		favourites += has_favourite(&guarded[i].lock);
		for (atomic_store(&favoured, i); atomic_load(&reached[i]) < OTHERS; n++)
			take_and_use(&guarded[i], (unsigned)n);
		SAME(guarded[i].a, n + OTHERS * 50);
	}
	for (int i = 0; i < OTHERS; i++)
		pthread_join(thread[i], NULL);
	SAME(favourites, has_them ? ROUNDS : 0);
}

/* The former favourite becomes it again, but only after many more turns; another thread never does. */
static void *take_often(void *arg)
{
	struct guarded *g = arg;

	for (unsigned n = 0; n < OFTEN; n++)
		take_and_use(g, n);
	return NULL;
}

static void once_withdrawn(bool has_them)
{
	static struct guarded g;
	pthread_t thread;

	vb_lock_init(&g.lock, VB_RANK_SQ);
	take_often(&g);
	CHECK(has_favourite(&g.lock) == has_them);
	CHECK(!pthread_create(&thread, NULL, take_often, &g));
	pthread_join(thread, NULL);
	CHECK(!has_favourite(&g.lock));
	take_often(&g);
	CHECK(!has_favourite(&g.lock));
	for (int i = 0; i < 16; i++)
		take_often(&g);
	CHECK(has_favourite(&g.lock) == has_them);
}

static void *take_often_as_progress_thread(void *arg)
{
	vb_lock_never_favourite();
	return take_often(arg);
}

static void never_favourite(void)
{
	static struct guarded g;
	pthread_t thread;

	vb_lock_init(&g.lock, VB_RANK_SQ);
	CHECK(!pthread_create(&thread, NULL, take_often_as_progress_thread, &g));
	pthread_join(thread, NULL);
	CHECK(!has_favourite(&g.lock));
}

static struct guarded held;
static volatile sig_atomic_t handler_got_it;

static void try_in_handler(int sig)
{
	(void)sig;
	handler_got_it = vb_trylock(&held.lock);
}

/* exit() in a signal handler runs destructors that try locks: src/node/node.c */
static void the_favourite_does_not_get_it_twice(void)
{
	vb_lock_init(&held.lock, VB_RANK_SQ);
	take_often(&held);
	signal(SIGUSR1, try_in_handler);
	vb_lock(&held.lock);
	handler_got_it = 1;
	raise(SIGUSR1);
	CHECK(!handler_got_it);
	vb_unlock(&held.lock);
	raise(SIGUSR1);
	CHECK(handler_got_it);
	vb_unlock(&held.lock);
}

/* A child has the parent's favourites, and threads of its own. */
static void child_of_fork(void)
{
	static struct guarded g;
	int status;

	vb_lock_init(&g.lock, VB_RANK_SQ);
	take_often(&g);
	fflush(NULL);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		pthread_t thread;

		CHECK(!pthread_create(&thread, NULL, take_often, &g));
		for (int i = 0; i < 20; i++)
			take_often(&g);
		pthread_join(thread, NULL);
		_exit(g.a == 22 * OFTEN ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	SAME(status, 0);
}

int main(void)
{
	alarm(240);
	take_often(&guarded[0]);
	CHECK(!has_favourite(&guarded[0].lock));
	guarded[0] = (struct guarded){0};
	printf("ok no lock has a favourite before the adapter has found out that membarrier(2) works\n");

	bool has_them = vb_lock_allow_favourites();

	others_take_it_from_the_favourite(has_them);
	printf("ok threads take locks from their favourites, %s here, and none has it together with another\n",
	       has_them ? "which they have" : "which they never have");
	once_withdrawn(has_them);
	printf("ok a lock that was withdrawn has a favourite again only if it is the same thread, and much later\n");
	never_favourite();
	printf("ok the progress thread is never a favourite\n");
	the_favourite_does_not_get_it_twice();
	printf("ok a signal handler does not get the lock that its thread has\n");
	child_of_fork();
	printf("ok a child takes locks from the favourites that it inherited\n");
	return 0;
}
