// mr.c - memory regions: one table entry each, of any size; memory is not pinned
// follows: IBA volume 1, 10.6 and 11.2.8 (memory management); ibv_reg_mr(3), ibv_rereg_mr(3)
// SPDX-License-Identifier: MIT
#include "core/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/context.h"
#include "core/device.h"
#include "core/dm.h"
#include "core/dmabuf.h"
#include "core/dmah.h"
#include "core/handle.h"
#include "core/mw.h"
#include "core/pages.h"
#include "core/pd.h"
#include "core/verbs.h"
#include "util/guard.h"

#define ACCESS_KNOWN                                                                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND | VB_IBV_ACCESS_FLUSH_GLOBAL)
/* Persistence would need msync(2), which may take seconds, in the middle of a queue pair's requests. */
#define ACCESS_UNSUPPORTED VB_IBV_ACCESS_FLUSH_PERSISTENT
#define ACCESS_PAGING (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB)
#define ACCESS_REMOTE \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | VB_IBV_ACCESS_FLUSH_GLOBAL)

/* Optional bits (relaxed ordering) may be ignored: ibv_reg_mr(3). Programs set MW_BIND without using memory windows,
 * and the kernel accepts it for adapters without windows. HUGETLB is the program's promise, and copies do not need it. */
int vb_mr_check_access(struct ibv_context *context, uint32_t access)
{
	bool iwarp = vb_device_rc_only(vb_ctx(context)->dev);

	access &= ~(uint32_t)IBV_ACCESS_OPTIONAL_RANGE;
	if (access & ~(uint32_t)(ACCESS_KNOWN | ACCESS_PAGING | ACCESS_UNSUPPORTED))
		return EINVAL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL; /* IBA C11-17 */
	return (access & ACCESS_UNSUPPORTED) || (iwarp && (access & VB_IBV_ACCESS_FLUSH_GLOBAL)) ? EOPNOTSUPP : 0;
}

/* Every copy finds out by itself whether memory is there (util/guard.h), so on-demand paging needs no more than that
 * the registration does not check it. */
static int check_range(uint64_t start, uint64_t length, uint64_t iova, uint32_t access)
{
	if (!start && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND)) /* implicit: the whole address space */
		return iova || (access & IBV_ACCESS_HUGETLB) ? EINVAL : 0;
	if (!length) /* the kernel refuses an empty range only at a page boundary, where it has no page */
		return start & 4095 ? 0 : EINVAL;
	if (start + length - 1 < start || iova + length - 1 < iova)
		return EINVAL;
	return access & IBV_ACCESS_ON_DEMAND ? 0 : vb_pages_check(start, length, access & IBV_ACCESS_LOCAL_WRITE);
}

/* Writes mr with this key into the entry, and makes its sequence number even. Under mr_lock. */
static void rewrite_end(const struct vb_mr *mr, uint32_t key)
{
	struct vb_mr_shared *e = mr->shared;
	uint32_t pd = vb_pd_id(mr->pd);
	bool null = mr->access & VB_MR_NULL;

	atomic_store_explicit(&e->access, mr->access, memory_order_relaxed);
	atomic_store_explicit(&e->pd, null ? 0 : pd, memory_order_relaxed);
	atomic_store_explicit(&e->map_id, 0, memory_order_relaxed);
	atomic_store_explicit(&e->window, null ? pd : 0, memory_order_relaxed);
	atomic_store_explicit(&e->device, (uint64_t)vb_ctx((struct ibv_context *)mr->made.context)->dev->number,
	                      memory_order_relaxed);
	atomic_store_explicit(&e->iova, mr->iova, memory_order_relaxed);
	atomic_store_explicit(&e->length, mr->mr.length, memory_order_relaxed);
	atomic_store_explicit(&e->addr, mr->start, memory_order_relaxed);
	atomic_store_explicit(&e->key, key, memory_order_release);
	atomic_fetch_add(&e->seq, 1);
}

/* Closes the entry. When this returns, no process is copying with the key, or with that of a window that was bound to the
 * region. EBUSY: a window is bound to it. */
static int close_entry(struct vb_node *node, struct vb_mr *mr)
{
	int err;

	do { /* another binding may have begun to fade after the wait */
		vb_mw_await_region(node, mr->shared);
		vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
		err = vb_mw_close_region(node, mr->shared);
		vb_mutex_unlock(&node->mr_lock);
	} while (err == EAGAIN);
	if (err)
		return err;
	atomic_thread_fence(memory_order_seq_cst);
	vb_lock(&node->progress); /* waits for our own responder, which looks the key up again afterwards */
	vb_unlock(&node->progress);
	vb_quiesce(node, mr->key, 0);
	return 0;
}

struct vb_mr *vb_mr_enter(struct ibv_pd *pd, const struct vb_mr *as, uint32_t key)
{
	struct vb_node *node = vb_ctx(pd->context)->node;
	struct vb_mr *mr = malloc(sizeof(*mr));
	uint32_t entry;

	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	*mr = *as;
	mr->mr.context = pd->context;
	mr->mr.pd = pd;
	mr->pd = vb_pd(pd);
	mr->mr.lkey = key;
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	if (node->mr_count + node->mw_count >= VB_MAX_MR ||
	    (key ? vb_key_take_this(node->keys, key, &entry) : vb_key_take(node->keys, &mr->mr.lkey, &entry))) {
		vb_mutex_unlock(&node->mr_lock);
		free(mr);
		errno = ENOMEM;
		return NULL;
	}
	node->mr_count++;
	mr->key = mr->mr.rkey = mr->mr.lkey;
	mr->mr.handle = entry + 1;
	mr->made = VB_MADE(mr->mr);
	mr->shared = vb_seg_mr(node->seg, entry);
	node->keys->mr[entry] = mr;
	vb_mr_rewrite_begin(mr->shared);
	rewrite_end(mr, mr->key);
	vb_mutex_unlock(&node->mr_lock);
	return mr;
}

struct ibv_mr *vb_mr_new(struct ibv_pd *pd, const struct vb_mr *as)
{
	struct vb_mr *mr = vb_mr_enter(pd, as, 0);

	if (!mr)
		return NULL;
	atomic_fetch_add(&vb_pd(pd)->users, 1);
	return &mr->mr;
}

struct ibv_mr *vb_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	vb_guard_install();
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	int err = vb_pd_is_sound(pd) ? vb_mr_check_access(pd->context, access) : EINVAL;
	if (!err)
		err = check_range((uintptr_t)addr, length, iova, access);
	if (!err)
		err = vb_context_fault(vb_ctx(pd->context), VB_FAULT_REG);
	if (err) {
		errno = err;
		return NULL;
	}
	return vb_mr_new(pd, &(struct vb_mr){.mr = {.addr = addr, .length = length},
	                                     .iova = iova,
	                                     .access = access,
	                                     .start = (uintptr_t)addr});
}

/* The region does not use its dma-buf any more. */
static void drop_dmabuf(struct vb_mr *mr)
{
	if (mr->dmabuf)
		munmap(mr->dmabuf, mr->dmabuf_len);
	mr->dmabuf = NULL;
	mr->access &= ~VB_MR_BY_OWNER;
}

void vb_mr_drop_memory(struct vb_mr *mr)
{
	if (mr->dm)
		vb_dm_leave(mr->dm);
	vb_dmah_leave(mr);
	drop_dmabuf(mr);
}

int vb_dereg_mr(struct ibv_mr *ibmr)
{
	struct vb_mr *mr = vb_mr(ibmr);

	if (!vb_mr_is_sound(ibmr))
		return ENOENT;
	struct vb_node *node = VB_CONTEXT_OF(mr)->node;

	return vb_mr_ends(node, mr) ? vb_mr_end(node, mr) : ENOENT;
}

int vb_mr_end(struct vb_node *node, struct vb_mr *mr)
{
	int err = close_entry(node, mr);

	if (err) {
		vb_mr_goes_on(node, mr);
		return err;
	}
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	atomic_fetch_add(&mr->shared->seq, 1);
	node->keys->mr[mr->shared - vb_seg_mr(node->seg, 0)] = NULL;
	vb_key_give_back(node->keys, mr->key);
	node->mr_count--;
	vb_mutex_unlock(&node->mr_lock);
	vb_mr_release(node, mr);
	return 0;
}

/* What a region of this kind may become: a null region and device memory stay what they are (ibv_alloc_null_mr(3), and
 * the kernel for device memory), a dma-buf that keeps its memory must grant what its rights say. */
static int check_rereg(const struct vb_mr *mr, bool moves, uint32_t access)
{
	if (mr->dm || (mr->access & VB_MR_NULL))
		return EINVAL;
	if (!mr->dmabuf || moves)
		return 0;
	if (access & ~(uint32_t)VB_DMABUF_ACCESS)
		return EINVAL;
	return (access & IBV_ACCESS_LOCAL_WRITE) && mprotect(mr->dmabuf, mr->dmabuf_len, PROT_READ | PROT_WRITE) ? errno
	                                                                                                         : 0;
}

/* Nobody else deregisters it or changes it meanwhile. */
static int rereg_held(struct vb_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *ibmr = &mr->mr;
	struct vb_node *node = VB_CONTEXT_OF(mr)->node;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	uint32_t new_access =
	        flags & IBV_REREG_MR_CHANGE_ACCESS ? (uint32_t)access : mr->access & ~(VB_MR_NULL | VB_MR_BY_OWNER);
	uint64_t start = moves ? (uintptr_t)addr : mr->start;
	uint64_t new_length = moves ? length : ibmr->length;
	uint64_t new_iova = moves ? new_access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr : mr->iova;

	int err = vb_mr_check_access(ibmr->context, new_access);
	if (!err)
		err = check_rereg(mr, moves, new_access);
	if (!err && (moves || !mr->dmabuf))
		err = check_range(start, new_length, new_iova, new_access);
	if (!err)
		err = close_entry(node, mr);
	if (err)
		return err;

	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_add(&vb_pd(pd)->users, 1);
		vb_pd_drop(mr->pd);
		ibmr->pd = pd;
		mr->pd = vb_pd(pd);
	}
	if (moves) {
		drop_dmabuf(mr);
		ibmr->addr = addr;
	}
	ibmr->length = new_length;
	mr->start = start;
	mr->iova = new_iova;
	mr->access = new_access | (mr->dmabuf ? VB_MR_BY_OWNER : 0);
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	rewrite_end(mr, mr->key);
	vb_mutex_unlock(&node->mr_lock);
	return 0;
}

/* The key does not change. Receives that are already posted use the region as it is when a message arrives. */
int vb_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct vb_mr *mr = vb_mr(ibmr);
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;

	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || (moves && (!addr || !length)) ||
	    (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)))
		return EINVAL;
	if (!vb_mr_is_sound(ibmr) ||
	    ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != ibmr->context || !vb_pd_is_sound(pd))))
		return EINVAL;
	if (mr->origin || mr->map) /* an import has no memory of its own */
		return EINVAL;
	struct vb_node *node = VB_CONTEXT_OF(mr)->node;

	if (!vb_mr_ends(node, mr)) /* an import has deregistered it, or another thread is at it */
		return EINVAL;
	int err = rereg_held(mr, flags, pd, addr, length, access);

	vb_mr_goes_on(node, mr);
	return err;
}

int vb_mr_invalidate(struct vb_node *node, uint32_t pd_id, uint32_t rkey, bool from_remote)
{
	struct vb_mr_shared *e = vb_seg_mr_of(node->seg, rkey);

	if (!rkey || atomic_load(&e->key) != rkey || atomic_load(&e->pd) != pd_id)
		return EINVAL;
	if (from_remote && !(atomic_load(&e->access) & ACCESS_REMOTE))
		return EACCES;
	if (vb_mw_of_entry(node, e)->windows)
		return EBUSY;
	/* Clears the key alone, without mr_lock, which must not be taken under progress. */
	return atomic_compare_exchange_strong(&e->key, &rkey, 0) ? 0 : EINVAL;
}
