// calls.c - the calls that allocate whole pages get memory that peers can map; the other calls that may meet it
// follows: posix_memalign(3), malloc(3), madvise(2), mprotect(2), mmap(2); docs/same-host.md, "Memory that peers can map"
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/memory/arena.h"
#include "tools/memory/fit.h"

#define EXPORT __attribute__((visibility("default")))

static struct vb_arena arena;
static int tried; /* whether there can be an arena: 0 until the first allocation of whole pages, then 1 */
static size_t page_size;
static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static int maker; /* the thread that has it: a call of its own goes to the next allocator */

/* Ours, where the name means the one of a program with an allocator of its own. */
extern void own_free(void *p) __THROW __attribute__((alias("free"), visibility("hidden")));

/* The calls that ours replace. They are looked up when the library is loaded, or at the first call before that: dlsym(3)
 * may allocate, and free. What is freed then, is lost. */
static struct {
	__typeof__(memalign) *memalign;
	__typeof__(posix_memalign) *posix_memalign;
	__typeof__(aligned_alloc) *aligned_alloc;
	__typeof__(valloc) *valloc;
	__typeof__(pvalloc) *pvalloc;
	__typeof__(free) *free;
	__typeof__(realloc) *realloc;
	__typeof__(reallocarray) *reallocarray;
	__typeof__(malloc_usable_size) *malloc_usable_size;
	__typeof__(madvise) *madvise;
	__typeof__(mprotect) *mprotect;
	__typeof__(pkey_mprotect) *pkey_mprotect;
	__typeof__(munmap) *munmap;
	__typeof__(mmap) *mmap;
	__typeof__(mremap) *mremap;
} next;

#define NEXT(name) ((__typeof__(next.name))find((void **)&next.name, #name))

static inline void *find(void **to, const char *name)
{
	void *f = __atomic_load_n(to, __ATOMIC_RELAXED);

	return __builtin_expect(f != NULL, 1) ? f : vb_memory_find(to, name);
}

/* Is this the program's allocator, and is such memory wanted and safe here? */
static __attribute__((noinline, cold)) void try_to_make(void)
{
	int self = (int)syscall(SYS_gettid), saved = errno;
	unsigned order;
	size_t limit;

	if (__atomic_load_n(&maker, __ATOMIC_RELAXED) == self)
		return;
	pthread_mutex_lock(&once);
	__atomic_store_n(&maker, self, __ATOMIC_RELAXED);
	if (!tried && vb_memory_fits((void *)own_free, &order, &limit))
		vb_arena_make(&arena, order, limit);
	__atomic_store_n(&maker, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&tried, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&once);
	errno = saved;
}

/* NULL: the next allocator's turn. */
static void *take(size_t align, size_t size)
{
	if (align < page_size || size < page_size || (align & (align - 1)) || !page_size)
		return NULL;
	if (__builtin_expect(!__atomic_load_n(&tried, __ATOMIC_ACQUIRE), 0))
		try_to_make();
	return vb_arena_alloc(&arena, align, size);
}

EXPORT void *memalign(size_t align, size_t size)
{
	void *p = take(align, size);

	return p ? p : NEXT(memalign)(align, size);
}

EXPORT int posix_memalign(void **to, size_t align, size_t size)
{
	void *p = take(align, size);

	if (!p)
		return NEXT(posix_memalign)(to, align, size);
	*to = p;
	return 0;
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	void *p = take(align, size);

	return p ? p : NEXT(aligned_alloc)(align, size);
}

EXPORT void *valloc(size_t size)
{
	void *p = take(page_size, size);

	return p ? p : NEXT(valloc)(size);
}

EXPORT void *pvalloc(size_t size)
{
	void *p = take(page_size, size);

	return p ? p : NEXT(pvalloc)(size);
}

EXPORT void free(void *p)
{
	if (__builtin_expect(vb_arena_has(&arena, p), 0)) {
		if (!vb_arena_free(&arena, p))
			vb_memory_die("free(): invalid pointer\n");
		return;
	}
	__typeof__(free) *next_free = NEXT(free);

	if (next_free)
		next_free(p);
}

/* Returns what realloc(3) may: the memory need not begin at a page. */
static __attribute__((noinline)) void *move(void *old, size_t size)
{
	size_t had = vb_arena_usable(&arena, old);
	void *p;

	if (!had)
		vb_memory_die("realloc(): invalid pointer\n");
	if (!size) {
		free(old);
		return NULL;
	}
	if (size <= had && size > had / 2)
		return old;
	p = malloc(size);
	if (!p)
		return NULL;
	memcpy(p, old, had < size ? had : size);
	free(old);
	return p;
}

EXPORT void *realloc(void *p, size_t size)
{
	return __builtin_expect(vb_arena_has(&arena, p), 0) ? move(p, size) : NEXT(realloc)(p, size);
}

EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (!vb_arena_has(&arena, p))
		return NEXT(reallocarray)(p, n, size);
	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return move(p, bytes);
}

EXPORT size_t malloc_usable_size(void *p)
{
	return vb_arena_has(&arena, p) ? vb_arena_usable(&arena, p) : NEXT(malloc_usable_size)(p);
}

/* C23; the C library may have none of them. */
EXPORT void free_sized(void *p, size_t size);
EXPORT void free_sized(void *p, size_t size)
{
	free(p);
}

EXPORT void free_aligned_sized(void *p, size_t align, size_t size);
EXPORT void free_aligned_sized(void *p, size_t align, size_t size)
{
	free(p);
}

/* --- what programs do with their pages --- */

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static bool touches(const void *p, size_t n)
{
	size_t size = __atomic_load_n(&arena.size, __ATOMIC_ACQUIRE);

	return __builtin_expect(size && (uintptr_t)p - (uintptr_t)arena.base < size, 0) ||
	       (uintptr_t)arena.base - (uintptr_t)p < n;
}

/* As for private memory. */
static int advise_pages(void *p, size_t n, int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
		return vb_arena_discard(&arena, p, n);
	case MADV_DONTFORK:
		vb_arena_flag(&arena, p, n, 0, VB_PAGE_NO_CHILD);
		return 0;
	case MADV_DOFORK:
		vb_arena_flag(&arena, p, n, VB_PAGE_NO_CHILD, 0);
		return 0;
	case MADV_WIPEONFORK:
		vb_arena_flag(&arena, p, n, 0, VB_PAGE_WIPE);
		return 0;
	case MADV_KEEPONFORK:
		vb_arena_flag(&arena, p, n, VB_PAGE_WIPE, 0);
		return 0;
	default:
		return NEXT(madvise)(p, n, advice);
	}
}

/* The kernel takes what the program has mapped itself, also in place of pages of the arena. */
static int advise_parts(void *p, size_t n, int advice)
{
	size_t part;

	if ((uintptr_t)p % page_size) {
		errno = EINVAL;
		return -1;
	}
	for (int rc; n; p = (char *)p + part, n -= part) {
		bool foreign = vb_arena_is_foreign(&arena, p, n, &part);

		rc = foreign ? NEXT(madvise)(p, part, advice) : advise_pages(p, part, advice);
		if (rc)
			return rc;
	}
	return 0;
}

EXPORT int madvise(void *p, size_t n, int advice)
{
	return touches(p, n) && arena.shared ? advise_parts(p, n, advice) : NEXT(madvise)(p, n, advice);
}

/* rc: what the call has returned, and what this returns. */
static int note_protection(int rc, void *p, size_t n, int prot)
{
	unsigned bits = (unsigned)(prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) * VB_PAGE_PROT_1;

	if (!rc && touches(p, n))
		vb_arena_flag(&arena, p, n, VB_PAGE_PROT, VB_PAGE_PROTECTED | bits);
	return rc;
}

EXPORT int mprotect(void *p, size_t n, int prot)
{
	return note_protection(NEXT(mprotect)(p, n, prot), p, n, prot);
}

EXPORT int pkey_mprotect(void *p, size_t n, int prot, int key)
{
	return note_protection(NEXT(pkey_mprotect)(p, n, prot, key), p, n, prot);
}

EXPORT int munmap(void *p, size_t n)
{
	if (touches(p, n))
		vb_arena_flag(&arena, p, n, 0, VB_PAGE_FOREIGN);
	return NEXT(munmap)(p, n);
}

EXPORT void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset)
{
	if ((flags & MAP_FIXED) && touches(p, n))
		vb_arena_flag(&arena, p, n, 0, VB_PAGE_FOREIGN);
	return NEXT(mmap)(p, n, prot, flags, fd, offset);
}

EXPORT void *mmap64(void *p, size_t n, int prot, int flags, int fd, off64_t offset);
EXPORT void *mmap64(void *p, size_t n, int prot, int flags, int fd, off64_t offset)
{
	return mmap(p, n, prot, flags, fd, offset);
}

EXPORT void *mremap(void *p, size_t from, size_t to, int flags, ...)
{
	void *at = NULL;
	va_list list;

	va_start(list, flags);
	if (flags & MREMAP_FIXED)
		at = va_arg(list, void *);
	va_end(list);
	if (touches(p, from))
		vb_arena_flag(&arena, p, from, 0, VB_PAGE_FOREIGN);
	if (at && touches(at, to))
		vb_arena_flag(&arena, at, to, 0, VB_PAGE_FOREIGN);
	return NEXT(mremap)(p, from, to, flags, at);
}

/* --- fork --- */

static void memory_before_fork(void)
{
	vb_arena_before_fork(&arena);
}

static void memory_after_fork(void)
{
	vb_arena_after_fork(&arena);
}

static void memory_in_child(void)
{
	static const char text[] =
	        "verbena: fork: no memory for the child's copy of memory that peers can map; the child "
	        "does not have it (VERBENA_MEMORY=off)\n";

	/* another thread of the parent may have been making the arena: then this child makes its own */
	pthread_mutex_init(&once, NULL);
	maker = 0;
	if (!vb_arena_in_child(&arena))
		(void)!write(2, text, sizeof(text) - 1);
}

/* Runs before the constructors of other libraries (-z initfirst): their handlers for fork are then called while the
 * child has its memory. */
__attribute__((constructor)) static void load(void)
{
	page_size = (size_t)sysconf(_SC_PAGESIZE);
	pthread_atfork(memory_before_fork, memory_after_fork, memory_in_child);
	(void)NEXT(memalign), (void)NEXT(posix_memalign), (void)NEXT(aligned_alloc), (void)NEXT(valloc);
	(void)NEXT(pvalloc), (void)NEXT(free), (void)NEXT(realloc), (void)NEXT(reallocarray);
	(void)NEXT(malloc_usable_size), (void)NEXT(madvise), (void)NEXT(mprotect), (void)NEXT(pkey_mprotect);
	(void)NEXT(munmap), (void)NEXT(mmap), (void)NEXT(mremap);
}
