// mr.c - memory regions: one table entry each, of any size; memory is not pinned
// follows: IBA volume 1, 10.6 and 11.2.8 (memory management); ibv_reg_mr(3), ibv_rereg_mr(3)
// SPDX-License-Identifier: MIT
#include "core/mr.h"

#include <errno.h>
#include <stdlib.h>

#include "core/context.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/pages.h"
#include "core/pd.h"
#include "core/verbs.h"
#include "util/guard.h"

#define ACCESS_KNOWN                                                                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND)
#define ACCESS_UNSUPPORTED (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB)
#define ACCESS_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Optional bits (relaxed ordering) may be ignored: ibv_reg_mr(3). Programs set MW_BIND without using memory windows,
 * and the kernel accepts it for adapters without windows. */
static int check_access(uint32_t access)
{
	access &= ~(uint32_t)IBV_ACCESS_OPTIONAL_RANGE;
	if (access & ~(uint32_t)(ACCESS_KNOWN | ACCESS_UNSUPPORTED))
		return EINVAL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL; /* IBA C11-17 */
	return access & ACCESS_UNSUPPORTED ? EOPNOTSUPP : 0;
}

static int check_range(const void *addr, uint64_t length, uint64_t iova, uint32_t access)
{
	uint64_t start = (uintptr_t)addr;

	if (!length) /* the kernel refuses an empty range only at a page boundary, where it has no page */
		return start & 4095 ? 0 : EINVAL;
	if (start + length - 1 < start || iova + length - 1 < iova)
		return EINVAL;
	return vb_pages_check(start, length, access & IBV_ACCESS_LOCAL_WRITE);
}

/* Makes the entry's sequence number odd, so that readers do not use the entry. */
static void rewrite_begin(struct vb_mr_shared *e)
{
	atomic_fetch_add(&e->seq, 1);
	atomic_store(&e->key, 0);
	/* aarch64 may otherwise show a reader the new entry before the odd number */
	atomic_thread_fence(memory_order_release);
}

/* Writes mr with this key into the entry, and makes its sequence number even. Under mr_lock. */
static void rewrite_end(const struct vb_mr *mr, uint32_t key)
{
	struct vb_mr_shared *e = mr->shared;

	atomic_store_explicit(&e->access, mr->access, memory_order_relaxed);
	atomic_store_explicit(&e->pd, vb_pd_id(mr->pd), memory_order_relaxed);
	atomic_store_explicit(&e->map_id, 0, memory_order_relaxed);
	atomic_store_explicit(&e->device, (uint64_t)vb_ctx((struct ibv_context *)mr->made.context)->dev->number,
	                      memory_order_relaxed);
	atomic_store_explicit(&e->iova, mr->iova, memory_order_relaxed);
	atomic_store_explicit(&e->length, mr->mr.length, memory_order_relaxed);
	atomic_store_explicit(&e->addr, (uintptr_t)mr->mr.addr, memory_order_relaxed);
	atomic_store_explicit(&e->key, key, memory_order_release);
	atomic_fetch_add(&e->seq, 1);
}

/* Closes the entry. When this returns, no process is copying with the key. */
static void close_entry(struct vb_node *node, struct vb_mr *mr)
{
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	rewrite_begin(mr->shared);
	vb_mutex_unlock(&node->mr_lock);
	atomic_thread_fence(memory_order_seq_cst);
	vb_lock(&node->progress); /* waits for our own responder, which looks the key up again afterwards */
	vb_unlock(&node->progress);
	vb_quiesce(node, mr->key, 0);
}

static struct vb_mr *mr_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, uint32_t access)
{
	struct vb_node *node = vb_ctx(pd->context)->node;
	struct vb_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	mr->pd = vb_pd(pd);
	mr->iova = iova;
	mr->access = access;
	uint32_t entry;

	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	if (node->mr_count >= VB_MAX_MR || vb_key_take(node->keys, &mr->mr.lkey, &entry)) {
		vb_mutex_unlock(&node->mr_lock);
		free(mr);
		return NULL;
	}
	node->mr_count++;
	mr->key = mr->mr.rkey = mr->mr.lkey;
	mr->mr.handle = entry + 1;
	mr->made = VB_MADE(mr->mr);
	mr->shared = vb_seg_mr(node->seg, entry);
	rewrite_begin(mr->shared);
	rewrite_end(mr, mr->key);
	vb_mutex_unlock(&node->mr_lock);
	return mr;
}

struct ibv_mr *vb_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	vb_guard_install();
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	int err = vb_pd_is_sound(pd) ? check_access(access) : EINVAL;
	if (!err)
		err = check_range(addr, length, iova, access);
	if (!err)
		err = vb_context_fault(vb_ctx(pd->context), VB_FAULT_REG);
	if (err) {
		errno = err;
		return NULL;
	}
	struct vb_mr *mr = mr_new(pd, addr, length, iova, access);
	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	atomic_fetch_add(&vb_pd(pd)->users, 1);
	return &mr->mr;
}

int vb_dereg_mr(struct ibv_mr *ibmr)
{
	struct vb_mr *mr = vb_mr(ibmr);

	if (!vb_mr_is_sound(ibmr))
		return ENOENT;
	struct vb_node *node = VB_CONTEXT_OF(mr)->node;

	close_entry(node, mr);
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	rewrite_end(mr, 0);
	vb_key_give_back(node->keys, mr->key);
	node->mr_count--;
	vb_mutex_unlock(&node->mr_lock);
	atomic_fetch_sub(&mr->pd->users, 1);
	vb_object_free(mr, &mr->made);
	return 0;
}

/* The key does not change. Receives that are already posted use the region as it is when a message arrives. */
int vb_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct vb_mr *mr = vb_mr(ibmr);
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	uint32_t new_access = flags & IBV_REREG_MR_CHANGE_ACCESS ? (uint32_t)access : mr->access;
	int err;

	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || (moves && (!addr || !length)) ||
	    (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)))
		return EINVAL;
	if (!vb_mr_is_sound(ibmr) ||
	    ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != ibmr->context || !vb_pd_is_sound(pd))))
		return EINVAL;
	struct vb_node *node = VB_CONTEXT_OF(mr)->node;
	void *new_addr = moves ? addr : ibmr->addr;
	uint64_t new_length = moves ? length : ibmr->length;
	uint64_t new_iova = moves ? new_access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr : mr->iova;

	err = check_access(new_access);
	if (!err)
		err = check_range(new_addr, new_length, new_iova, new_access);
	if (err)
		return err;

	close_entry(node, mr);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_add(&vb_pd(pd)->users, 1);
		atomic_fetch_sub(&mr->pd->users, 1);
		ibmr->pd = pd;
		mr->pd = vb_pd(pd);
	}
	ibmr->addr = new_addr;
	ibmr->length = new_length;
	mr->iova = new_iova;
	mr->access = new_access;
	vb_mutex_lock(&node->mr_lock, VB_RANK_MR);
	rewrite_end(mr, mr->key);
	vb_mutex_unlock(&node->mr_lock);
	return 0;
}

int vb_mr_invalidate(struct vb_node *node, uint32_t pd_id, uint32_t rkey, bool from_remote)
{
	struct vb_mr_shared *e = vb_seg_mr_of(node->seg, rkey);

	if (!rkey || atomic_load(&e->key) != rkey || atomic_load(&e->pd) != pd_id)
		return EINVAL;
	if (from_remote && !(atomic_load(&e->access) & ACCESS_REMOTE))
		return EACCES;
	/* Clears the key alone, without mr_lock, which must not be taken under progress. */
	return atomic_compare_exchange_strong(&e->key, &rkey, 0) ? 0 : EINVAL;
}
