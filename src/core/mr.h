// mr.h - memory regions: the local check on the data path, invalidation, and what the kinds of regions share
// follows: IBA volume 1, 10.6.3 (access), 10.6.5 (invalidation)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_MR_H
#define VB_CORE_MR_H

#include "core/key.h"
#include "core/node.h"

/* Makes a region like `as` with this key, or with a new one if key is 0. The arguments are checked already, and the caller
 * counts it as a user of the PD. NULL: no memory, no room, or the key is in use (errno ENOMEM). mr.c */
struct vb_mr *vb_mr_enter(struct ibv_pd *pd, const struct vb_mr *as, uint32_t key);
/* Ends the region's use of device memory or of a dma-buf. mr.c */
void vb_mr_drop_memory(struct vb_mr *mr);

/* The program deregisters the region by this handle. False if it has done so by another one. import.c */
bool vb_mr_ends(struct vb_node *node, struct vb_mr *mr);
/* Takes its key away, after vb_mr_ends, and releases it. EBUSY: a window is bound to it, and it goes on. No lock held. mr.c */
int vb_mr_end(struct vb_node *node, struct vb_mr *mr);
/* It could not be deregistered. import.c */
void vb_mr_goes_on(struct vb_node *node, struct vb_mr *mr);
/* The handle ends. The region has ended, or has other handles. import.c */
void vb_mr_release(struct vb_node *node, struct vb_mr *mr);

/* The same check for a null region (core/null.c), whose entry no other check accepts. */
const struct vb_mr_shared *vb_mr_check_null(const struct vb_mr_shared *e, uint32_t pd_id, uint64_t len,
                                            uint32_t need_access, uint64_t *va);

/* Makes the entry's sequence number odd, so that readers do not use the entry. Its writer makes the number even again. */
static inline void vb_mr_rewrite_begin(struct vb_mr_shared *e)
{
	atomic_fetch_add(&e->seq, 1);
	atomic_store(&e->key, 0);
	/* aarch64 may otherwise show a reader the new entry before the odd number */
	atomic_thread_fence(memory_order_release);
}

/*
 * The region of a local key, if it belongs to this PD, grants need_access and contains [addr, addr + len) without
 * wrap-around. *va is the address in this process. Otherwise NULL, which means IBV_WC_LOC_PROT_ERR. Any thread, no
 * lock.
 */
static inline const struct vb_mr_shared *vb_mr_check_local(const struct vb_node *node, uint32_t pd_id, uint32_t lkey,
                                                           uint64_t addr, uint64_t len, uint32_t need_access,
                                                           uint64_t *va)
{
	const struct vb_mr_shared *e = vb_seg_mr_of(node->seg, lkey);

	if (!lkey || atomic_load_explicit(&e->key, memory_order_acquire) != lkey)
		return NULL;
	if (__builtin_expect(atomic_load_explicit(&e->pd, memory_order_relaxed) != pd_id, 0))
		return vb_mr_check_null(e, pd_id, len, need_access, va);
	if ((atomic_load_explicit(&e->access, memory_order_relaxed) & need_access) != need_access)
		return NULL;

	uint64_t length = atomic_load_explicit(&e->length, memory_order_relaxed);
	uint64_t off = addr - atomic_load_explicit(&e->iova, memory_order_relaxed);

	if (off > length || len > length - off) /* for an address below iova, off wraps around and is too large */
		return NULL;
	*va = atomic_load_explicit(&e->addr, memory_order_relaxed) + off;
	return e;
}

/*
 * Invalidates a key for LOCAL_INV, or for a peer's SEND_WITH_INV (from_remote: the region must allow remote access).
 * The key allows no access, local or remote, until ibv_rereg_mr; the region exists until ibv_dereg_mr. Returns 0,
 * -EINVAL (no such key, another PD) or -EACCES. If it fails, a local request completes with IBV_WC_MW_BIND_ERR, which
 * IBA 11.6.2 calls "memory management operation error"; a peer's request gets a remote access error (IBA 9.4.1.1.3).
 * deviates: IBA 10.6.5 allows this for memory windows and fast-register regions only. User space has no fast-register
 * regions, and rxe refuses. -EBUSY: a window is bound to the region. Under node->mw_lock. Copies in progress may end after
 * it returns. core/mw.h has the calls that invalidate a region or a window.
 */
int vb_mr_invalidate(struct vb_node *node, uint32_t pd_id, uint32_t rkey, bool from_remote);

/* Makes a region of pd. *as has what its kind determines: mr.addr, mr.length, iova, access, start, dm, map. The caller
 * has checked them. NULL with ENOMEM: no room in the table. No lock held. */
struct ibv_mr *vb_mr_new(struct ibv_pd *pd, const struct vb_mr *as);

/* 0, or EINVAL if these access rights (IBV_ACCESS_*, without the optional ones) are unknown or make no sense. */
int vb_mr_check_access(struct ibv_context *context, uint32_t access);

#endif
