// pool.c - the memory for data in flight: a buddy allocator over one mapping
// follows: Knuth, The Art of Computer Programming 1, 2.5 (buddy system)
// SPDX-License-Identifier: MIT
#include "target/pool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096u
#define ORDERS 10 /* 4 KiB … 2 MiB */
#define NONE UINT32_MAX

/* For each page that begins a free block: its order and its neighbours in the list of that order. This is never stored
 * in the pool's memory itself. */
struct page {
	uint32_t next, prev;
	uint8_t order;
	bool unused;
};

struct nt_pool {
	uint8_t *memory;
	uint32_t size, used;
	uint32_t lists[ORDERS];
	struct page pages[];
};

static unsigned order_of(uint32_t length)
{
	unsigned order = 0;

	while ((PAGE << order) < length)
		order++;
	return order;
}

static void link_free(struct nt_pool *p, uint32_t n, unsigned order)
{
	struct page *page = &p->pages[n];

	*page = (struct page){.next = p->lists[order], .prev = NONE, .order = (uint8_t)order, .unused = true};
	if (page->next != NONE)
		p->pages[page->next].prev = n;
	p->lists[order] = n;
}

static void unlink_free(struct nt_pool *p, uint32_t n)
{
	struct page *page = &p->pages[n];

	if (page->prev != NONE)
		p->pages[page->prev].next = page->next;
	else
		p->lists[page->order] = page->next;
	if (page->next != NONE)
		p->pages[page->next].prev = page->prev;
	page->unused = false;
}

struct nt_pool *nt_pool_open(uint32_t size)
{
	size = size / NT_POOL_BLOCK_MAX * NT_POOL_BLOCK_MAX;
	struct nt_pool *p = size ? calloc(1, sizeof(*p) + size / PAGE * sizeof(struct page)) : NULL;

	if (!p)
		return NULL;
	p->memory = mmap(NULL, (size_t)size + NT_POOL_BLOCK_MAX, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->memory == MAP_FAILED) {
		free(p);
		return NULL;
	}
	/* aligned to the largest block; the rest is unmapped */
	uint8_t *at = (uint8_t *)(((uintptr_t)p->memory + NT_POOL_BLOCK_MAX - 1) & ~(uintptr_t)(NT_POOL_BLOCK_MAX - 1));

	if (at > p->memory)
		munmap(p->memory, (size_t)(at - p->memory));
	if (at < p->memory + NT_POOL_BLOCK_MAX)
		munmap(at + size, (size_t)(p->memory + NT_POOL_BLOCK_MAX - at));
	p->memory = at;
	p->size = size;
	for (int i = 0; i < ORDERS; i++)
		p->lists[i] = NONE;
	for (uint32_t n = size / PAGE; n; n -= NT_POOL_BLOCK_MAX / PAGE)
		link_free(p, n - NT_POOL_BLOCK_MAX / PAGE, ORDERS - 1);
	return p;
}

void nt_pool_close(struct nt_pool *p)
{
	if (!p)
		return;
	munmap(p->memory, p->size);
	free(p);
}

void *nt_pool_get(struct nt_pool *p, uint32_t length)
{
	unsigned want = order_of(length), have = want;

	while (have < ORDERS && p->lists[have] == NONE)
		have++;
	if (have >= ORDERS)
		return NULL;
	uint32_t n = p->lists[have];

	unlink_free(p, n);
	while (have > want) {
		have--;
		link_free(p, n + (1u << have), have);
	}
	p->used += PAGE << want;
	return p->memory + (size_t)n * PAGE;
}

void nt_pool_put(struct nt_pool *p, void *at, uint32_t length)
{
	unsigned order = order_of(length);
	uint32_t n = (uint32_t)((size_t)((uint8_t *)at - p->memory) / PAGE);

	p->used -= PAGE << order;
	while (order < ORDERS - 1) {
		uint32_t buddy = n ^ 1u << order;

		if (!p->pages[buddy].unused || p->pages[buddy].order != order)
			break;
		unlink_free(p, buddy);
		n &= ~(1u << order);
		order++;
	}
	link_free(p, n, order);
}

uint32_t nt_pool_room(uint32_t length)
{
	return PAGE << order_of(length);
}

uint32_t nt_pool_used(const struct nt_pool *p)
{
	return p->used;
}

void *nt_pool_memory(const struct nt_pool *p, size_t *size)
{
	*size = p->size;
	return p->memory;
}
