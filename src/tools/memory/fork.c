// fork.c - a child of fork() gets a copy of the arena's memory, as it gets a copy of private memory
// follows: fork(2), pthread_atfork(3); mremap(2), "if the value of old_size is zero"
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/memory/arena.h"

/* Copies [from, to) of the mirror. Pages without memory are not read, which would allocate them. */
static void copy_range(const struct vb_arena *a, const uint8_t *mirror, size_t from, size_t to, bool has_fd)
{
	while (from < to) {
		off_t data = has_fd ? lseek(a->fd, (off_t)from, SEEK_DATA) : (off_t)from;

		if (data < 0 || (size_t)data >= to)
			return; /* ENXIO: none follows */
		off_t hole = has_fd ? lseek(a->fd, data, SEEK_HOLE) : (off_t)to;
		size_t end = hole < data || (size_t)hole > to ? to : (size_t)hole;

		memcpy(a->copy + data, mirror + data, end - (size_t)data);
		from = end;
	}
}

static bool goes_to_child(const struct vb_arena *a, uint32_t i)
{
	return !(a->pages[i].flags & (VB_PAGE_NO_CHILD | VB_PAGE_WIPE | VB_PAGE_FOREIGN));
}

static void copy_block(const struct vb_arena *a, const uint8_t *mirror, uint32_t i, bool has_fd)
{
	uint32_t end = i + a->pages[i].pages;

	while (i < end) {
		uint32_t first = i;

		while (i < end && goes_to_child(a, i))
			i++;
		if (first < i)
			copy_range(a, mirror, first * a->page, i * a->page, has_fd);
		while (i < end && !goes_to_child(a, i))
			i++;
	}
}

static uint32_t block_after(const struct vb_arena *a, uint32_t i)
{
	return i ? i + (1u << a->pages[i].order) : 1;
}

/* The program may have changed the protection of its pages, so the copy is made through a second mapping of them. */
static bool make_copy(struct vb_arena *a)
{
	size_t n = a->top * a->page;
	bool has_fd = vb_arena_has_file(a);
	void *mirror = (void *)syscall(SYS_mremap, a->base, 0UL, n, MREMAP_MAYMOVE);

	a->copy = (void *)syscall(SYS_mmap, NULL, n, PROT_READ | PROT_WRITE,
	                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
	if (a->copy == MAP_FAILED)
		a->copy = NULL;
	bool ok = a->copy && mirror != MAP_FAILED && !syscall(SYS_mprotect, mirror, n, PROT_READ);

	for (uint32_t i = block_after(a, 0); ok && i < a->top; i = block_after(a, i))
		if (a->pages[i].state == VB_BLOCK_USED)
			copy_block(a, mirror, i, has_fd);
	if (mirror != MAP_FAILED)
		syscall(SYS_munmap, mirror, n);
	if (!ok && a->copy) {
		syscall(SYS_munmap, a->copy, n);
		a->copy = NULL;
	}
	return ok;
}

/* A signal's handler in the child would find no memory, and the lock held. */
void vb_arena_before_fork(struct vb_arena *a)
{
	int saved = errno;
	sigset_t all;

	if (!a->size)
		return;
	pthread_mutex_lock(&a->lock);
	__atomic_store_n(&a->forking, (int)syscall(SYS_gettid), __ATOMIC_RELAXED);
	a->copy = NULL;
	if (a->shared && a->in_use)
		make_copy(a);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &a->mask);
	errno = saved;
}

/* Ends the blocks that were freed while the lock was held, and lets signals in again. */
static void unlock(struct vb_arena *a)
{
	sigset_t mask = a->mask;
	bool blocked = a->forking; /* not in a child of a program in which the arena came during the fork */

	__atomic_store_n(&a->forking, 0, __ATOMIC_RELAXED);
	for (uint32_t i = block_after(a, 0); i < a->top; i = block_after(a, i)) {
		if (a->pages[i].state != VB_BLOCK_ENDED)
			continue;
		a->pages[i].state = VB_BLOCK_USED;
		pthread_mutex_unlock(&a->lock);
		vb_arena_free(a, a->base + (size_t)i * a->page);
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	if (blocked)
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

void vb_arena_after_fork(struct vb_arena *a)
{
	int saved = errno;

	if (__atomic_load_n(&a->forking, __ATOMIC_RELAXED) != (int)syscall(SYS_gettid)) /* there was no arena before */
		return;
	if (a->copy)
		syscall(SYS_munmap, a->copy, a->top * a->page);
	a->copy = NULL;
	unlock(a);
	errno = saved;
}

/* Moves the pages [first, end) of the copy to their place, or leaves them without access. */
static bool place(struct vb_arena *a, uint32_t first, uint32_t end)
{
	size_t off = first * a->page, n = (end - first) * a->page;

	if (first == end)
		return true;
	if (a->copy && syscall(SYS_mremap, a->copy + off, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, a->base + off) != -1)
		return true;
	syscall(SYS_mmap, a->base + off, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0L);
	return false;
}

/* What the program has mapped itself stays. */
static bool place_all(struct vb_arena *a)
{
	uint32_t first = 0;
	bool ok = true;

	for (uint32_t i = block_after(a, 0); i < a->top; i = block_after(a, i)) {
		const struct vb_page *b = &a->pages[i];

		if (b->state != VB_BLOCK_RETIRED && (b->state != VB_BLOCK_USED || !(b->marked & VB_PAGE_FOREIGN)))
			continue;
		for (uint32_t k = i; k < i + b->pages; k++) {
			if (b->state == VB_BLOCK_USED && !(a->pages[k].flags & VB_PAGE_FOREIGN))
				continue;
			ok &= place(a, first, k);
			first = k + 1;
		}
	}
	return place(a, first, a->top) && ok;
}

static void protect_pages(struct vb_arena *a, uint32_t i)
{
	for (uint32_t end = i + a->pages[i].pages; i < end; i++) {
		unsigned flags = a->pages[i].flags;
		int prot = flags & VB_PAGE_NO_CHILD ? PROT_NONE : (int)(flags & VB_PAGE_PROT) / VB_PAGE_PROT_1;

		if (flags & (VB_PAGE_NO_CHILD | VB_PAGE_PROTECTED) && !(flags & VB_PAGE_FOREIGN))
			syscall(SYS_mprotect, a->base + (size_t)i * a->page, a->page, prot);
	}
}

static void protect_all(struct vb_arena *a)
{
	for (uint32_t i = block_after(a, 0); i < a->top; i = block_after(a, i)) {
		struct vb_page *b = &a->pages[i];

		if (b->state != VB_BLOCK_USED || !(b->marked & (VB_PAGE_NO_CHILD | VB_PAGE_PROTECTED)))
			continue;
		protect_pages(a, i);
		b->marked |= VB_PAGE_PROTECTED;
	}
}

bool vb_arena_in_child(struct vb_arena *a)
{
	int saved = errno;
	bool ok = true;

	if (!a->size)
		return true;
	if (a->shared) {
		bool wanted = a->in_use;

		ok = place_all(a) || !wanted;
		if (!a->copy) /* nothing was in use, or nothing can be given */
			a->limit = 0;
		size_t used = a->top * a->page;

		syscall(SYS_mmap, a->base + used, a->size - used, PROT_NONE,
		        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0L);
		protect_all(a);
		if (vb_arena_has_file(a))
			syscall(SYS_close, a->fd);
		a->shared = false;
		a->copy = NULL;
	}
	a->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&a->lock);
	unlock(a);
	errno = saved;
	return ok;
}
