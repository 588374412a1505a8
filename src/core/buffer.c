// buffer.c - the program's buffers: looked up, read and stored with guarded copies
// follows: IBA volume 1, 10.6.3 (access), 10.7.3 (scatter, gather)
// SPDX-License-Identifier: MIT
#include "core/buffer.h"

#include "core/denied.h"
#include "core/mr.h"
#include "core/pd.h"
#include "core/sq.h"
#include "util/guard.h"
#include "util/log.h"

/* Takes a consistent copy of the owner's entry for the key. False if there is none, or it is being changed. */
__attribute__((hot)) bool vb_mr_read_shared(void *seg, uint32_t key, struct vb_mr_view *out)
{
	struct vb_mr_shared *m = vb_seg_mr_of(seg, key);
	uint64_t seq = atomic_load(&m->seq); /* not before the caller's hazard is visible: aarch64's ldapr may be */

	if ((seq & 1) || atomic_load_explicit(&m->key, memory_order_acquire) != key || !key)
		return false;
	out->access = atomic_load_explicit(&m->access, memory_order_relaxed);
	out->pd = atomic_load_explicit(&m->pd, memory_order_relaxed);
	out->map_id = atomic_load_explicit(&m->map_id, memory_order_relaxed);
	out->iova = atomic_load_explicit(&m->iova, memory_order_relaxed);
	out->length = atomic_load_explicit(&m->length, memory_order_relaxed);
	out->addr = atomic_load_explicit(&m->addr, memory_order_relaxed);
	out->window = __builtin_expect(!out->pd, 0) ? atomic_load_explicit(&m->window, memory_order_relaxed) : 0;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&m->seq, memory_order_relaxed) == seq;
}

/* addr and iova of the entry are memory to read zeros from, and memory to write to, of VB_MAX_MSG_SZ bytes each. */
const struct vb_mr_shared *vb_mr_check_null(const struct vb_mr_shared *e, uint32_t pd_id, uint64_t len,
                                            uint32_t need_access, uint64_t *va)
{
	if (!(atomic_load_explicit(&e->access, memory_order_relaxed) & VB_MR_NULL) ||
	    atomic_load_explicit(&e->window, memory_order_relaxed) != pd_id || len > VB_MAX_MSG_SZ ||
	    (need_access & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE))
		return NULL;
	*va = atomic_load_explicit(need_access ? &e->iova : &e->addr, memory_order_relaxed);
	return e;
}

/* A peer's access to a null region, at any address. deviates: ibv_alloc_null_mr(3) says that such a region has no rkey.
 * mlx5 takes its lkey as one, and perftest's servers (--use-null-mr) give it to their clients. */
static bool null_allows(const struct vb_mr_view *v, uint32_t pd, uint64_t length, uint32_t access, uint64_t *va)
{
	/* without a protection domain it would pass for a region that can be mapped: engine/local/direct.c */
	if (!(v->access & VB_MR_NULL) || v->pd || !v->window || v->window != pd || length > VB_MAX_MSG_SZ)
		return false;
	*va = access == IBV_ACCESS_REMOTE_WRITE ? v->iova : v->addr;
	return access == IBV_ACCESS_REMOTE_WRITE || access == IBV_ACCESS_REMOTE_READ;
}

__attribute__((hot)) bool vb_mr_view_allows(const struct vb_mr_view *v, uint32_t pd, uint32_t qpn, uint64_t addr,
                                            uint64_t length, uint32_t access, uint64_t *va)
{
	if (!vb_mr_view_is_of(v, pd, qpn) || (v->access & access) != access)
		return null_allows(v, pd, length, access, va);
	if (addr < v->iova || length > v->length || addr - v->iova > v->length - length)
		return false;
	*va = v->addr + (addr - v->iova);
	return true;
}

__attribute__((cold, noinline)) bool vb_access_denied(const struct vb_qp *qp, const struct vb_mr_view *view,
                                                      uint32_t key, uint64_t addr, uint64_t length, uint32_t access)
{
	const char *why = !view                                                      ? "it is not valid"
	                  : !vb_mr_view_is_of(view, vb_pd_id(qp->pd), qp->qp.qp_num) ? "it is for others"
	                  : (view->access & access) != access                        ? "it lacks this right"
	                                                                             : "it ends before";

	vb_log(VB_LOG_INFO,
	       "queue pair 0x%x: a peer has no access 0x%x by key 0x%x to %lu bytes at 0x%lx: %s (the key there is 0x%x)",
	       qp->qp.qp_num, access, key, (unsigned long)length, (unsigned long)addr, why,
	       atomic_load_explicit(&vb_seg_mr_of(qp->node->seg, key)->key, memory_order_relaxed));
	return false;
}

bool vb_own_memory(struct vb_qp *qp, uint32_t key, uint64_t addr, uint64_t length, uint32_t access, uint64_t *va)
{
	struct vb_mr_view view;
	bool found = vb_mr_read_shared(qp->node->seg, key, &view);

	if (__builtin_expect(
	            found && vb_mr_view_allows(&view, vb_pd_id(qp->pd), qp->qp.qp_num, addr, length, access, va), 1))
		return true;
	return vb_access_denied(qp, found ? &view : NULL, key, addr, length, access);
}

__attribute__((hot)) int vb_gather(struct vb_qp *qp, const struct vb_swqe *w, uint32_t access, struct iovec *iov)
{
	uint32_t slot = (uint32_t)(w - qp->swqe);
	int n = 0;

	if (w->flags & IBV_SEND_INLINE) {
		if (w->length)
			iov[n++] = (struct iovec){qp->sinline + (size_t)slot * qp->sq_max_inline, w->length};
		return n;
	}
	if (qp->type == IBV_QPT_UD && w->held) {
		iov[0] = (struct iovec){w->held->bytes, w->length};
		return 1;
	}
	for (uint32_t i = 0; i < w->num_sge; i++) {
		const struct ibv_sge *sge = &qp->ssge[(size_t)slot * qp->sq_max_sge + i];
		uint64_t va;

		if (!sge->length)
			continue;
		if (!vb_mr_check_local(qp->node, vb_pd_id(qp->pd), sge->lkey, sge->addr, sge->length, access, &va))
			return -1;
		iov[n++] = (struct iovec){(void *)(uintptr_t)va, sge->length};
	}
	return n;
}

bool vb_copy_from(const struct iovec *iov, int niov, uint64_t off, void *to, uint32_t n)
{
	uint8_t *dst = to;

	for (int i = 0; i < niov && n; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		uint32_t piece = iov[i].iov_len - off < n ? (uint32_t)(iov[i].iov_len - off) : n;

		if (!vb_guard_copy(dst, (uint8_t *)iov[i].iov_base + off, piece))
			return false;
		dst += piece;
		n -= piece;
		off = 0;
	}
	return !n;
}

bool vb_copy_to(const struct iovec *iov, int niov, uint64_t off, const void *from, uint32_t n)
{
	const uint8_t *src = from;

	for (int i = 0; i < niov && n; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		uint32_t piece = iov[i].iov_len - off < n ? (uint32_t)(iov[i].iov_len - off) : n;

		if (!vb_guard_copy_tail((uint8_t *)iov[i].iov_base + off, src, piece))
			return false;
		src += piece;
		n -= piece;
		off = 0;
	}
	return !n;
}
