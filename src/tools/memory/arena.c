// arena.c - whole pages that peers can map: a range of addresses on a memfd, and the blocks in it
// follows: memfd_create(2), madvise(2); Knuth, The Art of Computer Programming, volume 1, 2.5 (buddies)
// SPDX-License-Identifier: MIT
#include "tools/memory/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHED_MOST (32u << 20) /* bytes of freed blocks that keep their memory */
#define FD_FROM 960             /* programs expect the lowest descriptors for themselves; select(2) ends at 1024 */

/* The program's calls are interposed: ours go to the kernel. */
static int advise(void *p, size_t n, int advice)
{
	return (int)syscall(SYS_madvise, p, n, advice);
}

static int protect(void *p, size_t n, int prot)
{
	return (int)syscall(SYS_mprotect, p, n, prot);
}

static void *map(void *at, size_t n, int prot, int flags, int fd)
{
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, 0L);
}

static uint8_t *page_address(const struct vb_arena *a, uint32_t i)
{
	return a->base + (size_t)i * a->page;
}

/* --- lists of free blocks; page 0 is in none --- */

static void list_add(struct vb_arena *a, uint32_t i, unsigned order)
{
	struct vb_page *b = &a->pages[i];

	b->state = VB_BLOCK_FREE;
	b->order = (uint8_t)order;
	b->prev = 0;
	b->next = a->free[order];
	if (b->next)
		a->pages[b->next].prev = i;
	a->free[order] = i;
}

static void list_remove(struct vb_arena *a, uint32_t i)
{
	struct vb_page *b = &a->pages[i];

	if (b->prev)
		a->pages[b->prev].next = b->next;
	else
		a->free[b->order] = b->next;
	if (b->next)
		a->pages[b->next].prev = b->prev;
	b->state = VB_BLOCK_NONE;
}

static void merge_free(struct vb_arena *a, uint32_t i, unsigned order)
{
	a->pages[i].state = VB_BLOCK_NONE;
	while (order + 1 < VB_ARENA_ORDERS) {
		uint32_t buddy = i ^ (1u << order);

		if ((size_t)buddy * a->page >= a->size || a->pages[buddy].state != VB_BLOCK_FREE ||
		    a->pages[buddy].order != order)
			break;
		list_remove(a, buddy);
		i &= ~(1u << order);
		order++;
	}
	list_add(a, i, order);
}

/* Returns the first page, or 0. */
static uint32_t take_free(struct vb_arena *a, unsigned order)
{
	unsigned k = order;

	while (k < VB_ARENA_ORDERS && !a->free[k])
		k++;
	if (k == VB_ARENA_ORDERS)
		return 0;
	uint32_t i = a->free[k];

	list_remove(a, i);
	while (k-- > order)
		list_add(a, i + (1u << k), k);
	return i;
}

/* --- the arena --- */

/* SIGXFSZ would end the program. A limit of addresses is for the program itself. */
static bool has_limits(size_t size)
{
	struct rlimit file, space, data;

	return getrlimit(RLIMIT_FSIZE, &file) || getrlimit(RLIMIT_AS, &space) || getrlimit(RLIMIT_DATA, &data) ||
	       file.rlim_cur < size || space.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY;
}

/* Nobody can shorten the file, which would end programs with SIGBUS. No user can open it by a name below /proc: whoever
 * wants the descriptor needs the right to trace the program, as for process_vm_writev. */
static int make_file(size_t size)
{
	int fd = memfd_create("verbena-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING), high;

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)size) || fchmod(fd, 0) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		syscall(SYS_close, fd);
		return -1;
	}
	high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FROM);
	if (high < 0)
		return fd;
	syscall(SYS_close, fd);
	return high;
}

/* Blocks are aligned as the base is. */
static void *map_aligned(size_t size, int fd)
{
	uint8_t *room = map(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

	if (room == MAP_FAILED)
		return MAP_FAILED;
	uint8_t *base = (uint8_t *)(((uintptr_t)room + size - 1) & ~(uintptr_t)(size - 1));
	void *p = map(base, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd);

	if (p == MAP_FAILED)
		base = room;
	if (base > room)
		syscall(SYS_munmap, room, (size_t)(base - room));
	if (p == MAP_FAILED || base < room + size) {
		uint8_t *rest = p == MAP_FAILED ? room : base + size;

		syscall(SYS_munmap, rest, (size_t)(room + 2 * size - rest));
	}
	return p;
}

static bool map_all(struct vb_arena *a, size_t size)
{
	size_t table = size / a->page * sizeof(*a->pages);
	struct stat st;

	a->base = map_aligned(size, a->fd);
	a->pages = map(NULL, table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (a->base != MAP_FAILED && a->pages != MAP_FAILED && !fstat(a->fd, &st) &&
	    !advise(a->base, size, MADV_DONTFORK)) {
		a->device = st.st_dev;
		a->inode = st.st_ino;
		advise(a->base, size, MADV_HUGEPAGE); /* where the kernel has large pages of shared memory */
		return true;
	}
	if (a->base != MAP_FAILED)
		syscall(SYS_munmap, a->base, size);
	if (a->pages != MAP_FAILED)
		syscall(SYS_munmap, a->pages, table);
	return false;
}

bool vb_arena_make(struct vb_arena *a, unsigned order, size_t limit)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size = page << order;

	if (order >= VB_ARENA_ORDERS || has_limits(size))
		return false;
	*a = (struct vb_arena){.page = page, .fd = make_file(size), .limit = limit, .shared = true, .top = 1};
	if (a->fd < 0)
		return false;
	if (!map_all(a, size)) {
		syscall(SYS_close, a->fd);
		return false;
	}
	pthread_mutex_init(&a->lock, NULL);
	for (unsigned k = 0; k < order; k++) /* all but page 0 */
		list_add(a, 1u << k, k);
	__atomic_store_n(&a->size, size, __ATOMIC_RELEASE);
	return true;
}

void vb_arena_end(struct vb_arena *a)
{
	syscall(SYS_munmap, a->base, a->size);
	syscall(SYS_munmap, a->pages, a->size / a->page * sizeof(*a->pages));
	syscall(SYS_close, a->fd);
	a->size = 0;
}

/* --- blocks --- */

/* While this thread forks, it has the lock: handlers of other libraries allocate and free. */
static bool lock(struct vb_arena *a)
{
	if (__builtin_expect(__atomic_load_n(&a->forking, __ATOMIC_RELAXED), 0) &&
	    __atomic_load_n(&a->forking, __ATOMIC_RELAXED) == (int)syscall(SYS_gettid))
		return false;
	pthread_mutex_lock(&a->lock);
	return true;
}

static unsigned order_of(const struct vb_arena *a, size_t bytes)
{
	size_t pages = (bytes + a->page - 1) / a->page;

	return pages <= 1 ? 0 : 64 - (unsigned)__builtin_clzl(pages - 1);
}

static uint32_t take_block(struct vb_arena *a, unsigned order)
{
	if (a->ncached[order]) {
		a->cached_bytes -= a->page << order;
		return a->cached[order][--a->ncached[order]];
	}
	uint32_t i = take_free(a, order), end = i + (1u << order);

	if (i && end > a->top) {
		if (protect(page_address(a, a->top), (end - a->top) * a->page, PROT_READ | PROT_WRITE)) {
			merge_free(a, i, order);
			return 0;
		}
		a->top = end;
	}
	return i;
}

void *vb_arena_alloc(struct vb_arena *a, size_t align, size_t size)
{
	int saved = errno;

	if (!a->size || size > a->limit || align > a->limit || !lock(a))
		return NULL;
	unsigned order = order_of(a, size > align ? size : align);
	size_t bytes = (size + a->page - 1) & ~(a->page - 1);
	uint32_t i = order < VB_ARENA_ORDERS && a->in_use + bytes <= a->limit ? take_block(a, order) : 0;

	if (i) {
		struct vb_page *b = &a->pages[i];

		b->state = VB_BLOCK_USED;
		b->order = (uint8_t)order;
		b->pages = (uint32_t)(bytes / a->page);
		b->marked = 0;
		a->in_use += bytes;
	}
	pthread_mutex_unlock(&a->lock);
	errno = saved;
	return i ? page_address(a, i) : NULL;
}

/* Under the lock, if p is in use. */
static struct vb_page *block_at(struct vb_arena *a, const void *p, uint32_t *first)
{
	size_t off = (size_t)((const uint8_t *)p - a->base);
	struct vb_page *b = &a->pages[off / a->page];

	*first = (uint32_t)(off / a->page);
	return off % a->page || b->state != VB_BLOCK_USED ? NULL : b;
}

static int purge_pages(const struct vb_arena *a, void *p, size_t n)
{
	return advise(p, n, a->shared ? MADV_REMOVE : MADV_DONTNEED);
}

/* Makes the block's pages what they were when it was new. False if that fails. */
static bool renew(struct vb_arena *a, uint32_t i)
{
	struct vb_page *b = &a->pages[i];
	unsigned marked = b->marked;

	if (!marked)
		return true;
	for (uint32_t k = 0; k < b->pages; k++)
		a->pages[i + k].flags = 0;
	b->marked = 0;
	if (marked & VB_PAGE_FOREIGN)
		return false;
	return !(marked & VB_PAGE_PROTECTED) ||
	       !protect(page_address(a, i), b->pages * a->page, PROT_READ | PROT_WRITE);
}

/* Returns true if the block's memory is to be given back. */
static bool end_block(struct vb_arena *a, uint32_t i)
{
	struct vb_page *b = &a->pages[i];
	size_t bytes = a->page << b->order; /* an earlier use may have touched all of them */

	a->in_use -= b->pages * a->page;
	if (!renew(a, i)) {
		b->state = VB_BLOCK_RETIRED;
		return false;
	}
	if (a->ncached[b->order] < VB_ARENA_CACHED && a->cached_bytes + bytes <= CACHED_MOST) {
		b->state = VB_BLOCK_CACHED;
		a->cached[b->order][a->ncached[b->order]++] = i;
		a->cached_bytes += bytes;
		return false;
	}
	b->state = VB_BLOCK_PURGED;
	return true;
}

bool vb_arena_free(struct vb_arena *a, void *p)
{
	int saved = errno;
	bool locked = lock(a);
	uint32_t i;
	struct vb_page *b = block_at(a, p, &i);

	if (!locked) { /* after the fork */
		if (b)
			b->state = VB_BLOCK_ENDED;
		return b;
	}
	bool purge = b && end_block(a, i);

	pthread_mutex_unlock(&a->lock);
	if (purge) { /* without the lock, because it takes long */
		size_t bytes = a->page << b->order;

		syscall(SYS_munlock, p, bytes); /* locked memory cannot be given back */
		purge_pages(a, p, bytes);
		pthread_mutex_lock(&a->lock);
		merge_free(a, i, b->order);
		pthread_mutex_unlock(&a->lock);
	}
	errno = saved;
	return b;
}

size_t vb_arena_usable(struct vb_arena *a, void *p)
{
	bool locked = lock(a);
	uint32_t i;
	struct vb_page *b = block_at(a, p, &i);
	size_t n = b ? b->pages * a->page : 0;

	if (locked)
		pthread_mutex_unlock(&a->lock);
	return n;
}

/* --- what programs do with their pages --- */

static bool pages_of(const struct vb_arena *a, const void *p, size_t n, uint32_t *first, uint32_t *end)
{
	uintptr_t from = (uintptr_t)p, to = from + n, base = (uintptr_t)a->base, limit = base + a->size;

	if (!a->size || to < from || to <= base || from >= limit)
		return false;
	from = from < base ? base : from;
	to = to > limit ? limit : to;
	*first = (uint32_t)((from - base) / a->page);
	*end = (uint32_t)((to - base + a->page - 1) / a->page);
	return *first < *end;
}

/* The block that has the page, or 0. Under the lock. */
static uint32_t block_of(const struct vb_arena *a, uint32_t i)
{
	for (unsigned k = 0; k < VB_ARENA_ORDERS; k++) {
		uint32_t first = i & ~((1u << k) - 1);

		if (a->pages[first].state != VB_BLOCK_NONE && a->pages[first].order >= k)
			return first;
	}
	return 0;
}

void vb_arena_flag(struct vb_arena *a, void *p, size_t n, unsigned clear, unsigned set)
{
	uint32_t i, end, first;

	if (!pages_of(a, p, n, &i, &end) || !lock(a))
		return;
	for (; i < end && (first = block_of(a, i)); i = first + (1u << a->pages[first].order)) {
		struct vb_page *b = &a->pages[first];
		uint32_t last = first + b->pages;

		if (b->state != VB_BLOCK_USED)
			continue;
		for (uint32_t k = i; k < end && k < last; k++)
			a->pages[k].flags = (uint8_t)((a->pages[k].flags & ~clear) | set);
		b->marked |= (uint8_t)set;
	}
	pthread_mutex_unlock(&a->lock);
}

/* Under the lock. Blocks that are not in use belong to nobody, but a retired one may be the program's own memory now. */
static bool page_is_foreign(const struct vb_arena *a, uint32_t i)
{
	uint32_t first = block_of(a, i);

	return (a->pages[i].flags & VB_PAGE_FOREIGN) || (first && a->pages[first].state == VB_BLOCK_RETIRED);
}

bool vb_arena_is_foreign(struct vb_arena *a, void *p, size_t n, size_t *part)
{
	uint32_t i, end;
	bool before = (uintptr_t)p < (uintptr_t)a->base;

	*part = n;
	if (!pages_of(a, p, n, &i, &end))
		return true;
	if (before) { /* up to the arena */
		*part = (size_t)((uintptr_t)a->base - (uintptr_t)p);
		return true;
	}
	bool locked = lock(a), foreign = page_is_foreign(a, i);

	while (i < end && page_is_foreign(a, i) == foreign)
		i++;
	if (locked)
		pthread_mutex_unlock(&a->lock);
	size_t same = (size_t)(a->base + (size_t)i * a->page - (uint8_t *)p);

	*part = same < n ? same : n;
	return foreign;
}

bool vb_arena_has_file(const struct vb_arena *a)
{
	struct stat st;

	return !fstat(a->fd, &st) && st.st_dev == a->device && st.st_ino == a->inode;
}

/* MADV_REMOVE is for memory that can be written, MADV_DONTNEED is not. */
int vb_arena_discard(struct vb_arena *a, void *p, size_t n)
{
	int rc = purge_pages(a, p, n);
	off_t off = (uint8_t *)p - a->base;

	if (rc && errno == EACCES && a->shared && vb_arena_has_file(a))
		rc = fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off,
		               (off_t)((n + a->page - 1) & ~(a->page - 1)));
	return rc;
}
