// fit.c - whether a program may get memory that peers can map
// see: docs/same-host.md, "Memory that peers can map"
// SPDX-License-Identifier: MIT
#include "tools/memory/fit.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/memory/arena.h"
#include "util/env.h"

#define LIMIT_MOST ((size_t)1 << 30) /* a fork copies it */
#define LIMIT_PART 8                 /* of the machine's memory */
#define ROOM 8                       /* addresses per byte: blocks have a power of two of pages, and are not moved */

static int finder; /* the thread in dlsym() */

void *vb_memory_find(void **to, const char *name)
{
	int self = (int)syscall(SYS_gettid);

	if (__atomic_load_n(&finder, __ATOMIC_RELAXED) == self)
		return NULL;
	__atomic_store_n(&finder, self, __ATOMIC_RELAXED);
	void *f = dlsym(RTLD_NEXT, name);
	__atomic_store_n(&finder, 0, __ATOMIC_RELAXED);

	__atomic_store_n(to, f, __ATOMIC_RELAXED);
	return f;
}

/* Is it only the address by which a program that is not position-independent knows another object's function? */
static bool is_reference(void *function)
{
	ElfW(Sym) *symbol = NULL;
	Dl_info info;

	return dladdr1(function, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol && symbol->st_shndx == SHN_UNDEF;
}

/* A program that has an allocator of its own in front of this library, or that checks its memory, keeps its own. */
static bool has_own_allocator(void *own_free)
{
	static const char *const checkers[] = {"__asan_init", "__tsan_init", "__msan_init", "__lsan_init",
	                                       "__hwasan_init"};
	const char *preload = vb_env("LD_PRELOAD");

	for (size_t i = 0; i < sizeof(checkers) / sizeof(*checkers); i++)
		if (dlsym(RTLD_DEFAULT, checkers[i]))
			return true;
	if (preload && strstr(preload, "/vgpreload_")) /* Valgrind */
		return true;
	void *first = dlsym(RTLD_DEFAULT, "free");

	return first != own_free && !is_reference(first);
}

/* Pages of shared memory are counted when they are touched: without memory the program would get SIGBUS. */
static bool is_strict(void)
{
	char c = '2';
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return true;
	if (syscall(SYS_read, fd, &c, 1UL) != 1)
		c = '2';
	syscall(SYS_close, fd);
	return c == '2';
}

/* Older kernels reject shared memory as registered buffers of io_uring. */
static bool is_old_kernel(void)
{
	struct utsname u;

	if (uname(&u))
		return true;
	long major = strtol(u.release, NULL, 10), minor = strchr(u.release, '.') ? atol(strchr(u.release, '.') + 1) : 0;

	return major < 5 || (major == 5 && minor < 15);
}

static bool memory_is_wanted(void)
{
	const char *value = vb_env("VERBENA_MEMORY");

	return !vb_env_is_hostile() && (!value || strcmp(value, "off") != 0);
}

bool vb_memory_fits(void *own_free, unsigned *order, size_t *limit)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), total = (size_t)sysconf(_SC_PHYS_PAGES) * page;

	if (!memory_is_wanted() || has_own_allocator(own_free) || is_strict() || is_old_kernel())
		return false;
	*limit = total / LIMIT_PART < LIMIT_MOST ? total / LIMIT_PART : LIMIT_MOST;
	for (*order = 0; *order + 1 < VB_ARENA_ORDERS && (page << *order) < *limit * ROOM;)
		++*order;
	return true;
}

_Noreturn void vb_memory_die(const char *text)
{
	(void)!write(2, text, strlen(text));
	abort();
}
