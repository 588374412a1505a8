// advise.c - advice about regions with on-demand paging: pages are fetched before they are used
// follows: ibv_advise_mr(3); madvise(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/buffer.h"
#include "core/handle.h"
#include "core/mw.h"
#include "core/verbs.h"
#include "util/guard.h"

/* Linux 5.14 */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The region of one element, and the address of its memory. The errors are those of the man page. */
static int advised_range(struct ibv_pd *pd, bool write, const struct ibv_sge *sge, uint64_t *va)
{
	struct vb_node *node = vb_ctx(pd->context)->node;
	uint32_t id = vb_pd_id(vb_pd(pd));
	struct vb_mr_view view;

	/* a region without on-demand paging is not one of those that advice is about; a dma-buf is always there */
	if (!vb_mr_read_shared(node->seg, sge->lkey, &view) || !(view.access & (IBV_ACCESS_ON_DEMAND | VB_MR_BY_OWNER)))
		return vb_mw_has_key(node, sge->lkey) ? EINVAL : ENOENT;
	if (view.pd != id || (write && !(view.access & IBV_ACCESS_LOCAL_WRITE)))
		return EPERM;
	return vb_mr_view_allows(&view, id, 0, sge->addr, sge->length, 0, va) ? 0 : EFAULT;
}

/* Loads a byte of each page, or stores nothing into a word of it. False: one is not mapped, or not writable. */
static bool touch_pages(uint64_t from, uint64_t end, uint64_t page, bool write)
{
	for (uint64_t at = from; at < end; at = (at | (page - 1)) + 1) {
		uint64_t *word = (uint64_t *)(uintptr_t)(at & ~7ull), old;
		char c;

		if (!(write ? vb_guard_add(word, 0, &old) : vb_guard_copy(&c, word, 1)))
			return false;
	}
	return true;
}

static bool fetch_pages(uint64_t va, uint64_t length, bool write)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = va & ~(page - 1);
	uint64_t end = (va + length + page - 1) & ~(page - 1);

	if (!length || !madvise((void *)(uintptr_t)from, end - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
		return true;
	return touch_pages(va, va + length, page, write); /* an older kernel, or pages that are not there */
}

/*
 * Pages are there when the call returns, with or without IBV_ADVISE_MR_FLAG_FLUSH. Without it the request cannot fail
 * because of them. NO_FAULT has nothing to do: a page that is there for the program is there for the adapter.
 */
int vb_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sges, uint32_t n)
{
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	uint64_t va;

	if (!vb_pd_is_sound(pd) || (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH) || !n || !sges)
		return EINVAL;
	if (!write && advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return ENOTSUP;
	for (uint32_t i = 0; i < n; i++) {
		int err = advised_range(pd, write, &sges[i], &va);

		if (err)
			return err;
	}
	for (uint32_t i = 0; advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT && i < n; i++)
		if (!advised_range(pd, write, &sges[i], &va) && !fetch_pages(va, sges[i].length, write) &&
		    (flags & IBV_ADVISE_MR_FLAG_FLUSH))
			return EFAULT;
	return 0;
}
