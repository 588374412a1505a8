// arena.h - whole pages that peers can map: a range of addresses on a memfd, and the blocks in it
// see: docs/same-host.md, "Memory that peers can map"
// SPDX-License-Identifier: MIT
#ifndef VB_MEMORY_ARENA_H
#define VB_MEMORY_ARENA_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	VB_ARENA_ORDERS = 24, /* a block has 2^order pages */
	VB_ARENA_CACHED = 8,  /* blocks of each order that keep their memory when they are freed */
};

/* What the program has done with a page. */
enum vb_page_flag {
	VB_PAGE_NO_CHILD = 1,  /* a child of fork() has no such page (MADV_DONTFORK) */
	VB_PAGE_WIPE = 2,      /* a child gets zeros (MADV_WIPEONFORK) */
	VB_PAGE_FOREIGN = 4,   /* it was unmapped, or something else was mapped there */
	VB_PAGE_PROTECTED = 8, /* its protection was changed, to what VB_PAGE_PROT has */
	VB_PAGE_PROT = 0x70,   /* PROT_READ, PROT_WRITE, PROT_EXEC times VB_PAGE_PROT_1 */
	VB_PAGE_PROT_1 = 0x10,
};

enum vb_block_state {
	VB_BLOCK_NONE, /* the page is not the first one of a block */
	VB_BLOCK_FREE,
	VB_BLOCK_USED,
	VB_BLOCK_CACHED,  /* free, with its memory */
	VB_BLOCK_PURGED,  /* a thread is giving back its memory */
	VB_BLOCK_RETIRED, /* free, and never used again, because there is other memory */
	VB_BLOCK_ENDED,   /* freed by the thread that forks */
};

/* One for each page. Most describe the block that begins there. */
struct vb_page {
	uint32_t next, prev; /* in the list of free blocks of its order; 0: none */
	uint32_t pages;      /* that the program has asked for */
	uint8_t order;
	uint8_t state;
	uint8_t flags;  /* of this page: enum vb_page_flag */
	uint8_t marked; /* the flags that pages of the block have had since it was allocated */
};

/* Buddies: a block of 2^order pages begins at a multiple of its size. All zeros is an arena that gives nothing. */
struct vb_arena {
	uint8_t *base;
	size_t size; /* bytes; 0: there is none. Set last. */
	size_t page;
	bool shared; /* on the memfd. A child of fork() has private memory in its place. */
	int fd;      /* the memfd, for peers. The program may have closed it. */
	uint64_t device, inode;

	pthread_mutex_t lock; /* guards the rest */
	int forking;          /* the thread that holds the lock while it forks, or 0 */
	sigset_t mask;        /* its signals; all are blocked until the child has its memory */
	struct vb_page *pages;
	uint32_t top;         /* pages that can be used so far; those behind have no access */
	size_t in_use, limit; /* bytes */
	uint32_t free[VB_ARENA_ORDERS];
	uint32_t cached[VB_ARENA_ORDERS][VB_ARENA_CACHED];
	uint32_t ncached[VB_ARENA_ORDERS];
	size_t cached_bytes;
	uint8_t *copy; /* for the child, while the program forks */
};

/* Makes an arena of 2^order pages, of which the program may use limit bytes. False if that is not possible here. */
bool vb_arena_make(struct vb_arena *a, unsigned order, size_t limit);
/* Unmaps it. */
void vb_arena_end(struct vb_arena *a);

/* Is this address in the arena? Any thread, no lock. */
static inline bool vb_arena_has(const struct vb_arena *a, const void *p)
{
	size_t size = __atomic_load_n(&a->size, __ATOMIC_ACQUIRE);

	return (uintptr_t)p - (uintptr_t)a->base < size;
}

/* size bytes at a multiple of align, a power of two of at least a page; not cleared. NULL if there is no room, or this
 * thread forks. Any thread. */
void *vb_arena_alloc(struct vb_arena *a, size_t align, size_t size);
/* p: what vb_arena_alloc has returned, with which the program is through. False if it is no such pointer. */
bool vb_arena_free(struct vb_arena *a, void *p);
/* The bytes that can be used at p; 0 if it is no such pointer. */
size_t vb_arena_usable(struct vb_arena *a, void *p);

/* The pages of [p, p + n) that the program has in the arena lose and get these flags. */
void vb_arena_flag(struct vb_arena *a, void *p, size_t n, unsigned clear, unsigned set);
/*
 * Is the page at p none of the arena's: outside of it, or unmapped or mapped anew by the program? *part: the answer is the
 * same for that many of the n bytes from p on, which end with a page, or are all.
 */
bool vb_arena_is_foreign(struct vb_arena *a, void *p, size_t n, size_t *part);
/* Gives back the memory of these whole pages, which are zeros then. Returns 0 or -1 and errno, as madvise(2). */
int vb_arena_discard(struct vb_arena *a, void *p, size_t n);
/* Is the descriptor still the memfd? The program may have closed it, and opened another file. */
bool vb_arena_has_file(const struct vb_arena *a);

/* Around fork(): the child gets a copy of the program's memory. In the child a->shared becomes false, and the function
 * returns false if there was no memory for the copy: then no memory is there. */
void vb_arena_before_fork(struct vb_arena *a);
void vb_arena_after_fork(struct vb_arena *a);
bool vb_arena_in_child(struct vb_arena *a);

#endif
