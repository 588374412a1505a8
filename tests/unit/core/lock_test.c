// lock_test.c - the check of the lock order in sanitizer and debug builds
// see: docs/locking.md
// SPDX-License-Identifier: MIT
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "util/lock.h"

static struct vb_lock progress, sq, other_sq, wr;
static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER, broker = PTHREAD_MUTEX_INITIALIZER;

/* Runs f in a child. True if it was aborted; text gets its last message. */
static bool aborts(void (*f)(void), char *text, size_t size)
{
	int to[2], status;
	size_t len = 0;
	ssize_t n;

	CHECK(!pipe(to));
	fflush(NULL);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL);
		dup2(to[1], STDERR_FILENO);
		close(to[0]);
		f();
		_exit(0);
	}
	close(to[1]);
	while (len < size - 1 && (n = read(to[0], text + len, size - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = 0;
	close(to[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void in_order(void)
{
	vb_mutex_lock(&meeting, VB_RANK_MEETING);
	vb_mutex_lock(&broker, VB_RANK_BROKER);
	vb_lock(&progress);
	vb_lock(&sq);
	vb_unlock(&progress); /* not the last one taken */
	vb_unlock(&sq);
	vb_mutex_unlock(&broker);
	vb_mutex_unlock(&meeting);
	VB_MAY_WAIT();
	VB_HOLDS_NO_LOCK();
}

static void spin_locks_the_wrong_way_round(void)
{
	vb_lock(&sq); /* the message names this line and the next */
	vb_lock(&progress);
}

static void mutex_under_spin_lock(void)
{
	vb_lock(&sq);
	vb_mutex_lock(&meeting, VB_RANK_MEETING);
}

static void two_of_one_rank(void)
{
	vb_lock(&sq);
	vb_lock(&other_sq);
}

static void one_lock_twice(void)
{
	vb_lock(&sq);
	vb_lock(&sq);
}

static void wait_under_spin_lock(void)
{
	vb_lock(&sq);
	VB_MAY_WAIT();
}

static void release_of_what_is_not_held(void)
{
	vb_unlock(&sq);
}

static void release_of_a_mutex_that_is_not_held(void)
{
	vb_mutex_unlock(&meeting);
}

static void try_the_wrong_way_round(void)
{
	vb_lock(&sq);
	if (!vb_trylock(&progress))
		abort();
	vb_unlock(&progress);
	vb_unlock(&sq);
}

static void program_holds_a_lock_of_its_own(void)
{
	vb_lock(&wr);
	in_order();
	vb_unlock(&wr);
}

static void take_a_program_lock_under_another(void)
{
	vb_lock(&sq);
	vb_lock(&wr);
}

int main(void)
{
	char text[1024], first[64], second[64];

	vb_lock_init(&progress, VB_RANK_PROGRESS);
	vb_lock_init(&sq, VB_RANK_SQ);
	vb_lock_init(&other_sq, VB_RANK_SQ);
	vb_lock_init(&wr, VB_RANK_PROGRAM);

	CHECK(!aborts(in_order, text, sizeof(text)));
	CHECK(!aborts(try_the_wrong_way_round, text, sizeof(text)));
	CHECK(!aborts(program_holds_a_lock_of_its_own, text, sizeof(text)));
	printf("ok locks can be taken in order, and tried in any order\n");

	CHECK(aborts(spin_locks_the_wrong_way_round, text, sizeof(text)));
	CHECK(strstr(text, "lock_test.c"));
	const char *at = strstr(text, "lock_test.c:");

	CHECK(sscanf(at, "lock_test.c:%63[0-9]", second) == 1);
	at = strstr(at + 1, "lock_test.c:");
	CHECK(at && sscanf(at, "lock_test.c:%63[0-9]", first) == 1);
	CHECK(atoi(second) == atoi(first) + 1);
	CHECK(strstr(text, "\"progress\"") && strstr(text, "\"sq\""));
	printf("ok a wrong order aborts with file and line of both acquisitions\n");

	CHECK(aborts(mutex_under_spin_lock, text, sizeof(text)));
	CHECK(aborts(two_of_one_rank, text, sizeof(text)));
	CHECK(aborts(one_lock_twice, text, sizeof(text)));
	CHECK(aborts(wait_under_spin_lock, text, sizeof(text)));
	CHECK(aborts(release_of_what_is_not_held, text, sizeof(text)));
	CHECK(aborts(release_of_a_mutex_that_is_not_held, text, sizeof(text)));
	CHECK(aborts(take_a_program_lock_under_another, text, sizeof(text)));
	printf("ok a mutex or a wait under a spin lock, and two locks of one rank, abort\n");
	return 0;
}
