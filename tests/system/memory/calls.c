// calls.c - the calls that allocate whole pages, as a program under verbena run sees them
// usage: calls shared|private: whether the memory is to be one that peers can map
// see: src/tools/memory/calls.c
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static bool wanted;
static volatile size_t too_much = SIZE_MAX / 2; /* the compiler would warn */

static bool is_shared(const void *p)
{
	char line[512], path[64] = "/proc/self/maps";
	FILE *f = fopen(path, "r");
	bool shared = false;
	uintptr_t start, end;

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && (uintptr_t)p >= start && (uintptr_t)p < end)
			shared = strstr(line, "rw-s") && strstr(line, "verbena-memory");
	fclose(f);
	return shared;
}

static char *pages(size_t n)
{
	char *p = memalign(PAGE, n);

	CHECK(p && (uintptr_t)p % PAGE == 0 && malloc_usable_size(p) >= n);
	return p;
}

static void every_call_gives_such_pages(void)
{
	void *p[6] = {NULL};

	p[0] = memalign(PAGE, PAGE);
	CHECK(!posix_memalign(&p[1], 16 * PAGE, 5 * PAGE + 1));
	p[2] = aligned_alloc(PAGE, 2 * PAGE);
	p[3] = valloc(PAGE);
	p[4] = pvalloc(PAGE + 1);
	p[5] = memalign(1 << 21, 3 << 21);
	for (int i = 0; i < 6; i++) {
		CHECK(p[i] && (uintptr_t)p[i] % PAGE == 0);
		memset(p[i], i, malloc_usable_size(p[i]));
		SAME(is_shared(p[i]), wanted);
	}
	CHECK((uintptr_t)p[1] % (16 * PAGE) == 0 && (uintptr_t)p[5] % (1 << 21) == 0 &&
	      malloc_usable_size(p[4]) >= 2 * PAGE);
	for (int i = 0; i < 6; i++)
		free(p[i]);
}

static void other_requests_are_for_the_next_allocator(void)
{
	void *p;

	for (size_t n = 1; n < PAGE; n *= 3) {
		p = memalign(PAGE, n);
		CHECK(p && !is_shared(p));
		free(p);
		CHECK(!posix_memalign(&p, 64, 16 * n) && !is_shared(p));
		free(p);
	}
	p = malloc(10 * PAGE);
	CHECK(p && !is_shared(p));
	p = realloc(p, 20 * PAGE);
	p = reallocarray(p, 30, PAGE);
	CHECK(p && malloc_usable_size(p) >= 30 * PAGE);
	free(p);
	free(NULL);
	SAME(malloc_usable_size(NULL), 0);
	SAME(posix_memalign(&p, 3, PAGE), EINVAL);
	errno = 0;
	CHECK(!memalign(PAGE, too_much) && errno == ENOMEM);
}

static void realloc_keeps_what_is_there(void)
{
	char *p = pages(3 * PAGE);

	strcpy(p, "kept");
	strcpy(p + 2 * PAGE - 8, "end");
	p = realloc(p, 100 * PAGE);
	CHECK(p && !strcmp(p, "kept") && !strcmp(p + 2 * PAGE - 8, "end"));
	free(p);
	p = pages(3 * PAGE);
	strcpy(p, "kept");
	p = realloc(p, 5);
	CHECK(p && !strcmp(p, "kept"));
	free(p);
	p = pages(PAGE);
	errno = 0;
	CHECK(!reallocarray(p, too_much, 3) && errno == ENOMEM);
	p = reallocarray(p, 4, PAGE);
	CHECK(p);
	free(p);
	errno = 77;
	free(pages(64 * PAGE));
	SAME(errno, 77);
}

static bool is_zero(const char *p, size_t n)
{
	while (n)
		if (p[--n])
			return false;
	return true;
}

static void madvise_does_what_it_does_to_private_memory(void)
{
	char *p = pages(4 * PAGE);

	memset(p, 1, 4 * PAGE);
	CHECK(!madvise(p + PAGE, PAGE, MADV_DONTNEED));
	CHECK(is_zero(p + PAGE, PAGE) && p[PAGE - 1] == 1 && p[2 * PAGE] == 1);
	CHECK(!madvise(p, PAGE, MADV_FREE) && !madvise(p, 2 * PAGE, MADV_WILLNEED));
	CHECK(!mprotect(p, PAGE, PROT_NONE) && !madvise(p, PAGE, MADV_DONTNEED) &&
	      !mprotect(p, PAGE, PROT_READ | PROT_WRITE) && is_zero(p, PAGE));
	CHECK(madvise(p + 1, PAGE, MADV_DONTNEED) < 0 && errno == EINVAL);
	free(p);
}

static void protection_ends_with_the_block(void)
{
	if (!wanted) /* the C library writes into what is freed */
		return;
	char *p = pages(4 * PAGE);

	CHECK(!mprotect(p, 4 * PAGE, PROT_READ));
	free(p);
	p = pages(4 * PAGE);
	memset(p, 1, 4 * PAGE);
	free(p);
}

/* A hole in such pages is the program's, as is what it maps there, also when the rest has been freed. */
static void what_the_program_maps_in_their_place_is_its_own(void)
{
	char *p = pages(8 * PAGE), *mine = p + 2 * PAGE;

	if (!wanted) { /* the C library would write into the hole */
		free(p);
		return;
	}
	memset(p, 1, 8 * PAGE);
	CHECK(!munmap(mine, 3 * PAGE));
	errno = 0;
	CHECK(madvise(mine, PAGE, MADV_DONTNEED) < 0 && errno == ENOMEM); /* as anywhere where nothing is mapped */
	CHECK(mmap(mine, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mine);
	memset(mine, 2, 2 * PAGE);
	CHECK(!madvise(mine, PAGE, MADV_DONTNEED) && is_zero(mine, PAGE) && mine[PAGE] == 2);
	memset(mine, 2, PAGE);
	CHECK(!madvise(p, 4 * PAGE, MADV_DONTNEED) && is_zero(p, 4 * PAGE) && p[5 * PAGE] == 1);
	memset(mine, 3, 2 * PAGE);
	pid_t pid = fork();
	if (!pid) { /* it is private there, too */
		CHECK(mine[0] == 3 && p[0] == 0 && p[5 * PAGE] == 1);
		memset(mine, 4, 2 * PAGE);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && !status && mine[0] == 3);
	free(p);
	CHECK(mine[PAGE] == 3 && !madvise(mine, PAGE, MADV_DONTNEED) && is_zero(mine, PAGE));
	char *q = pages(8 * PAGE); /* not the place of the first */
	memset(q, 5, 8 * PAGE);
	CHECK((q + 8 * PAGE <= mine || q >= mine + 2 * PAGE) && mine[PAGE] == 3);
	free(q);
	CHECK(!munmap(mine, 2 * PAGE));
}

/* --- fork --- */

static void wait_for(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	SAME(status, 0);
}

static void a_child_has_a_copy(void)
{
	char *p = pages(1 << 20), *q = pages(PAGE);
	int go[2];

	CHECK(!pipe(go));
	memset(p, 1, 1 << 20);
	strcpy(q, "before");
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		char c;

		CHECK(read(go[0], &c, 1) == 1);
		CHECK(p[0] == 1 && p[(1 << 20) - 1] == 1 && !strcmp(q, "before"));
		strcpy(q, "child");
		free(p);
		p = pages(2 << 20); /* it allocates on, and forks */
		memset(p, 3, 2 << 20);
		pid = fork();
		if (pid)
			wait_for(pid);
		else
			CHECK(p[5] == 3 && !strcmp(q, "child"));
		free(p);
		free(q);
		_exit(0);
	}
	memset(p, 2, 1 << 20);
	strcpy(q, "parent");
	CHECK(write(go[1], "", 1) == 1);
	wait_for(pid);
	CHECK(p[9] == 2 && !strcmp(q, "parent"));
	free(p);
	free(q);
	close(go[0]);
	close(go[1]);
}

static void a_child_has_no_page_that_it_was_not_to_have(void)
{
	char *p = pages(2 * PAGE);

	memset(p, 1, 2 * PAGE);
	CHECK(!madvise(p, PAGE, MADV_DONTFORK));
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		CHECK(p[PAGE] == 1);
		_exit(*(volatile char *)p);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	CHECK(!madvise(p, PAGE, MADV_DOFORK));
	pid = fork();
	if (!pid)
		_exit(p[0] != 1);
	wait_for(pid);
	free(p);
}

static void *fork_often(void *arg)
{
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		wait_for(pid);
	}
	*(bool *)arg = true;
	return NULL;
}

static void threads_allocate_while_another_forks(void)
{
	pthread_t t;
	bool done = false;

	CHECK(!pthread_create(&t, NULL, fork_often, &done));
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		char *p = pages(5 * PAGE);

		p[0] = 1;
		free(p);
	}
	CHECK(!pthread_join(t, NULL));
}

static void programs_that_are_started_work(void)
{
	char *p = pages(PAGE);

	p[0] = 1;
	CHECK(!system("true"));
	FILE *f = popen("echo here", "r");
	char line[16];

	CHECK(f && fgets(line, sizeof(line), f) && !strcmp(line, "here\n"));
	pclose(f);
	free(p);
}

/* Whoever may not trace a program gets its memory neither by a name below /proc. */
static void nobody_opens_it_by_name(void)
{
	if (!wanted || geteuid())
		return;
	pid_t pid = fork();

	if (pid) {
		wait_for(pid);
		return;
	}
	CHECK(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
	execl("/proc/self/exe", "calls", "name", NULL);
	_exit(1);
}

static int opens_by_name(void)
{
	char name[64], target[128];
	char *p = pages(PAGE);
	int seen = 0;

	p[0] = 1;
	CHECK(is_shared(p));
	for (int fd = 0; fd < 1024; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(name, target, sizeof(target) - 1);

		if (n <= 0)
			continue;
		target[n] = '\0';
		if (!strstr(target, "verbena-memory"))
			continue;
		seen++;
		CHECK(open(name, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
		CHECK(open(name, O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
	}
	SAME(seen, 1);
	return 0;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	if (!strcmp(argv[1], "name"))
		return opens_by_name();
	wanted = !strcmp(argv[1], "shared");
	nobody_opens_it_by_name(); /* first: this program has no such memory yet */
	every_call_gives_such_pages();
	other_requests_are_for_the_next_allocator();
	realloc_keeps_what_is_there();
	madvise_does_what_it_does_to_private_memory();
	protection_ends_with_the_block();
	what_the_program_maps_in_their_place_is_its_own();
	a_child_has_a_copy();
	a_child_has_no_page_that_it_was_not_to_have();
	threads_allocate_while_another_forks();
	programs_that_are_started_work();
	printf("ok whole pages are %s, and behave as private memory does\n", argv[1]);
	return 0;
}
