// pool.h - the memory for data in flight: one range of pages, which bounds it and can be registered once
// SPDX-License-Identifier: MIT
#ifndef NT_POOL_H
#define NT_POOL_H

#include <stddef.h>
#include <stdint.h>

/* Blocks are powers of two from a page to this, aligned to their size. */
#define NT_POOL_BLOCK_MAX (2u << 20)

struct nt_pool;

struct nt_pool *nt_pool_open(uint32_t size); /* a multiple of NT_POOL_BLOCK_MAX; NULL: no memory */
void nt_pool_close(struct nt_pool *p);
void *nt_pool_get(struct nt_pool *p, uint32_t length); /* NULL: no block is free; length up to NT_POOL_BLOCK_MAX */
void nt_pool_put(struct nt_pool *p, void *at, uint32_t length);
uint32_t nt_pool_room(uint32_t length); /* bytes that a block for this length takes */
uint32_t nt_pool_used(const struct nt_pool *p);

/* The whole pool, for a transport that registers memory. */
void *nt_pool_memory(const struct nt_pool *p, size_t *size);

#endif
