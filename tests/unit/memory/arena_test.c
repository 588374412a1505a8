// arena_test.c - memory that peers can map: blocks, what is given back, and the child's copy after a fork
// see: src/tools/memory/arena.h
// SPDX-License-Identifier: MIT
#include "tools/memory/arena.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define LIMIT (16u << 20)

static struct vb_arena arena;

static void begin(void)
{
	CHECK(vb_arena_make(&arena, 14, LIMIT));
}

static uint8_t *take(size_t align, size_t size, int fill)
{
	uint8_t *p = vb_arena_alloc(&arena, align, size);

	CHECK(p && (uintptr_t)p % align == 0 && vb_arena_has(&arena, p) && vb_arena_usable(&arena, p) >= size);
	memset(p, fill, vb_arena_usable(&arena, p));
	return p;
}

static bool all_are(const uint8_t *p, size_t n, int value)
{
	while (n)
		if (p[--n] != value)
			return false;
	return true;
}

static size_t memory_in_use(void)
{
	struct stat st;

	CHECK(!fstat(arena.fd, &st));
	return (size_t)st.st_blocks * 512;
}

static void blocks_do_not_overlap(void)
{
	uint8_t *p[200];
	size_t size[200];

	begin();
	srand(1);
	memset(p, 0, sizeof(p));
	for (int round = 0; round < 20000; round++) {
		int i = rand() % 200;

		if (p[i]) {
			CHECK(all_are(p[i], size[i], i));
			CHECK(vb_arena_free(&arena, p[i]));
			p[i] = NULL;
		} else {
			size[i] = 1 + (size_t)rand() % (rand() % 8 ? 3 * PAGE : 20 * PAGE);
			p[i] = take(PAGE << rand() % 4, size[i], i);
		}
	}
	for (int i = 0; i < 200; i++)
		CHECK(!p[i] || (all_are(p[i], size[i], i) && vb_arena_free(&arena, p[i])));
	SAME(arena.in_use, 0);
	vb_arena_end(&arena);
}

static void no_more_than_the_limit_is_given(void)
{
	uint8_t *p, *q;

	begin();
	p = take(PAGE, LIMIT / 2, 1);
	q = take(PAGE, LIMIT / 2, 2);
	CHECK(!vb_arena_alloc(&arena, PAGE, PAGE));
	CHECK(!vb_arena_alloc(&arena, PAGE, SIZE_MAX - 1));
	CHECK(vb_arena_free(&arena, p));
	CHECK(!vb_arena_alloc(&arena, PAGE, LIMIT));
	p = take(PAGE, PAGE, 3);
	CHECK(vb_arena_free(&arena, p) && vb_arena_free(&arena, q));
	vb_arena_end(&arena);
}

static void what_is_free_joins_its_neighbours(void)
{
	uint8_t *p[512];

	begin();
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 512; i++)
			p[i] = take(PAGE, LIMIT / 512, i);
		for (int i = 0; i < 512; i++)
			CHECK(vb_arena_free(&arena, p[i * 7 % 512]));
		p[0] = take(PAGE, LIMIT, 9);
		CHECK(vb_arena_free(&arena, p[0]));
	}
	vb_arena_end(&arena);
}

static void large_blocks_give_their_memory_back(void)
{
	uint8_t *p[12], *small;

	begin();
	small = take(PAGE, PAGE, 1);
	for (int i = 0; i < 12; i++)
		p[i] = take(PAGE, 1 << 20, 1);
	CHECK(memory_in_use() >= 12u << 20);
	for (int i = 0; i < 12; i++)
		CHECK(vb_arena_free(&arena, p[i]));
	CHECK(memory_in_use() < 9u << 20); /* eight are kept for the next ones */
	CHECK(!vb_arena_discard(&arena, small, PAGE) && all_are(small, PAGE, 0));
	CHECK(vb_arena_free(&arena, small));
	vb_arena_end(&arena);
}

static void a_smaller_use_of_a_block_leaves_no_memory_behind(void)
{
	uint8_t *p[9];

	begin();
	for (int i = 0; i < 9; i++)
		p[i] = take(PAGE, 1 << 20, 1);
	for (int i = 0; i < 8; i++)
		CHECK(vb_arena_free(&arena, p[i]));
	for (int i = 0; i < 8; i++) /* the same blocks */
		p[i] = take(PAGE, (1 << 19) + PAGE, 1);
	for (int i = 8; i >= 0; i--) /* the last one is not kept */
		CHECK(vb_arena_free(&arena, p[i]));
	CHECK(memory_in_use() <= 8u << 20);
	vb_arena_end(&arena);
}

static void wrong_pointers_are_refused(void)
{
	uint8_t *p;

	begin();
	p = take(PAGE, 3 * PAGE, 1);
	CHECK(!vb_arena_free(&arena, p + 16) && !vb_arena_free(&arena, p + PAGE));
	CHECK(vb_arena_free(&arena, p));
	CHECK(!vb_arena_free(&arena, p) && !vb_arena_usable(&arena, p));
	CHECK(!vb_arena_has(&arena, &p) && !vb_arena_has(&arena, NULL));
	vb_arena_end(&arena);
	CHECK(!vb_arena_has(&arena, NULL) && !vb_arena_alloc(&arena, PAGE, PAGE));
}

static void a_block_is_new_whatever_the_program_did_to_it(void)
{
	uint8_t *p, *q;

	begin();
	p = take(PAGE, 4 * PAGE, 1);
	vb_arena_flag(&arena, p, PAGE, VB_PAGE_PROT, VB_PAGE_PROTECTED);
	CHECK(!mprotect(p, PAGE, PROT_NONE));
	CHECK(vb_arena_free(&arena, p));
	q = take(PAGE, 4 * PAGE, 2);
	CHECK(q == p);
	vb_arena_flag(&arena, q + PAGE, PAGE, 0, VB_PAGE_FOREIGN);
	CHECK(!munmap(q + PAGE, PAGE));
	CHECK(vb_arena_free(&arena, q));
	q = take(PAGE, 4 * PAGE, 3);
	CHECK(q != p); /* something else may be there now */
	CHECK(vb_arena_free(&arena, q));
	vb_arena_end(&arena);
}

/* --- threads --- */

static uint8_t *handed[16];

static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 5000; i++) {
		int slot = rand_r(&seed) % 16;
		size_t size = (1 + (size_t)rand_r(&seed) % 8) * PAGE;
		uint8_t *p = take(PAGE, size, (int)size & 0xff);

		p[0] = p[size - 1] = 7;
		p = __atomic_exchange_n(&handed[slot], p, __ATOMIC_ACQ_REL);
		CHECK(!p || (p[0] == 7 && vb_arena_free(&arena, p)));
	}
	return NULL;
}

static void threads_free_what_others_have_allocated(void)
{
	pthread_t t[4];

	begin();
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, churn, (void *)(i + 1)));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(t[i], NULL));
	for (int i = 0; i < 16; i++)
		CHECK(!handed[i] || vb_arena_free(&arena, handed[i]));
	SAME(arena.in_use, 0);
	vb_arena_end(&arena);
}

/* --- fork --- */

static int forks(void (*in_child)(void), void (*in_parent)(void))
{
	int go[2], status;
	char c = 0;

	CHECK(!pipe(go));
	vb_arena_before_fork(&arena);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		CHECK(vb_arena_in_child(&arena));
		CHECK(read(go[0], &c, 1) == 1);
		in_child();
		_exit(0);
	}
	vb_arena_after_fork(&arena);
	in_parent();
	CHECK(write(go[1], &c, 1) == 1 && waitpid(pid, &status, 0) == pid);
	close(go[0]);
	close(go[1]);
	return status;
}

static uint8_t *large, *guarded, *hidden, *unused, *mixed;

static void child_has_its_own(void)
{
	CHECK(all_are(large, 4 << 20, 5));
	CHECK(all_are(guarded + PAGE, PAGE, 6) && all_are(unused, PAGE, 0));
	CHECK(all_are(mixed, PAGE, 8) && all_are(mixed + PAGE, PAGE, 88) && all_are(mixed + 2 * PAGE, PAGE, 8));
	memset(large, 1, 4 << 20);
	CHECK(!arena.shared && vb_arena_free(&arena, large));
	uint8_t *p = take(PAGE, 8 * PAGE, 3); /* the child allocates on */

	CHECK(vb_arena_free(&arena, p) && vb_arena_free(&arena, guarded) && vb_arena_free(&arena, mixed));
	vb_arena_before_fork(&arena);
	pid_t pid = fork();
	int status;

	if (!pid) {
		CHECK(vb_arena_in_child(&arena));
		CHECK(all_are(hidden + 2 * PAGE, PAGE, 7));
		_exit(0);
	}
	vb_arena_after_fork(&arena);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void parent_stores(void)
{
	memset(large, 9, 4 << 20);
	memset(hidden + 2 * PAGE, 9, PAGE);
}

static void child_reads_what_it_has_not(void)
{
	struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	signal(SIGSEGV, SIG_DFL);                                                      /* not a sanitizer's */
	CHECK(all_are(hidden + 2 * PAGE, PAGE, 7) && all_are(hidden + PAGE, PAGE, 0)); /* wiped */
	_exit(*(volatile uint8_t *)hidden);
}

static void nothing(void)
{
}

static void a_child_has_a_copy(bool closed)
{
	begin();
	large = take(PAGE, 4 << 20, 5);
	guarded = take(PAGE, 2 * PAGE, 6);
	hidden = take(PAGE, 3 * PAGE, 7);
	mixed = take(PAGE, 3 * PAGE, 8);
	unused = vb_arena_alloc(&arena, PAGE, 8 << 20);
	vb_arena_flag(&arena, guarded, PAGE, VB_PAGE_PROT, VB_PAGE_PROTECTED);
	CHECK(!mprotect(guarded, PAGE, PROT_NONE));
	vb_arena_flag(&arena, hidden, PAGE, 0, VB_PAGE_NO_CHILD);
	vb_arena_flag(&arena, mixed + PAGE, PAGE, 0, VB_PAGE_FOREIGN);
	CHECK(mmap(mixed + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      mixed + PAGE);
	memset(mixed + PAGE, 88, PAGE);
	size_t before = memory_in_use();

	if (closed) { /* as a daemon does, which then opens another file */
		CHECK(dup2(1, arena.fd) == arena.fd);
	}
	SAME(forks(child_has_its_own, parent_stores), 0);
	CHECK(closed || memory_in_use() == before); /* what is not there is not copied */
	CHECK(all_are(large, 4 << 20, 9));
	memset(hidden + 2 * PAGE, 7, PAGE);
	vb_arena_flag(&arena, hidden + PAGE, PAGE, 0, VB_PAGE_WIPE);
	CHECK(WIFSIGNALED(forks(child_reads_what_it_has_not, nothing)));
	vb_arena_end(&arena);
}

static uint8_t seen;

static void look(int signal)
{
	(void)signal;
	seen = *(volatile uint8_t *)large;
}

static void a_handler_finds_the_memory_in_the_child(void)
{
	int status;

	begin();
	large = take(PAGE, PAGE, 5);
	signal(SIGUSR1, look);
	vb_arena_before_fork(&arena);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		raise(SIGUSR1); /* it comes before the child has its memory */
		CHECK(!seen && vb_arena_in_child(&arena));
		_exit(seen != 5);
	}
	vb_arena_after_fork(&arena);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	raise(SIGUSR1);
	SAME(seen, 5);
	signal(SIGUSR1, SIG_DFL);
	CHECK(vb_arena_free(&arena, large));
	vb_arena_end(&arena);
}

static void handlers_of_others_allocate_and_free_during_a_fork(void)
{
	begin();
	large = take(PAGE, 4 << 20, 5);
	hidden = take(PAGE, PAGE, 5);
	vb_arena_before_fork(&arena);
	CHECK(!vb_arena_alloc(&arena, PAGE, PAGE) && vb_arena_free(&arena, hidden));
	SAME(vb_arena_usable(&arena, large), 4 << 20);
	vb_arena_after_fork(&arena);
	SAME(arena.in_use, 4 << 20);
	CHECK(vb_arena_free(&arena, large));
	vb_arena_end(&arena);
}

/* --- where there is none --- */

static void limits_of_the_program_are_minded(void)
{
	static const int limits[] = {RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_NOFILE};

	for (int i = 0; i < 3; i++) {
		struct rlimit was, now;

		CHECK(!getrlimit(limits[i], &was));
		now = (struct rlimit){limits[i] == RLIMIT_NOFILE ? 3 : 48ul << 20, was.rlim_max};
#ifdef VB_SANITIZED
		if (limits[i] == RLIMIT_AS)
			continue;
#endif
		CHECK(!setrlimit(limits[i], &now));
		CHECK(!vb_arena_make(&arena, 14, LIMIT) && !vb_arena_alloc(&arena, PAGE, PAGE));
		CHECK(!setrlimit(limits[i], &was));
	}
}

int main(void)
{
	blocks_do_not_overlap();
	no_more_than_the_limit_is_given();
	what_is_free_joins_its_neighbours();
	large_blocks_give_their_memory_back();
	a_smaller_use_of_a_block_leaves_no_memory_behind();
	wrong_pointers_are_refused();
	a_block_is_new_whatever_the_program_did_to_it();
	threads_free_what_others_have_allocated();
	a_child_has_a_copy(false);
	a_child_has_a_copy(true);
	a_handler_finds_the_memory_in_the_child();
	handlers_of_others_allocate_and_free_during_a_fork();
	limits_of_the_program_are_minded();
	printf("ok whole pages come from the arena, and a child has a copy of them\n");
	return 0;
}
