// ops.c - callbacks of the RoCE engine for a queue pair's queues and memory; the others are in path/queue_ops.c
// follows: IBA volume 1, 9.7.4.1 (checks of the responder), 10.3; annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include <sys/mman.h>

#include "path/roce/roce.h"

#include "core/denied.h"
#include "core/mr.h"
#include "core/pd.h"
#include "core/rq.h"
#include "util/guard.h"

#define NEAR (4u << 20) /* bytes; a larger region does not fit in the processor's nearest cache */

static bool copied_out(struct vb_roce_path *path, bool done, uint32_t len)
{
	path->q.stats.bytes_copied_out += done ? len : 0;
	return done;
}

static bool copied_in(struct vb_roce_path *path, bool done, uint32_t len)
{
	path->q.stats.bytes_copied_in += done ? len : 0;
	return done;
}

/* Places the payload of a packet past the caches, all but its first and last bytes, and computes its sum. */
static bool place_past(struct vb_roce_path *path, uint8_t *dst, const uint8_t *src, uint32_t len,
                       struct vb_tx_laid *laid)
{
	uint8_t *past = path->laying_past + (dst - path->laying);

	if (!vb_guard_copy_sum_past(dst, past, src, len, laid->sum))
		return false;
	*laid = (struct vb_tx_laid){.at = dst,
	                            .len = len,
	                            .from = past + vb_guard_past(past),
	                            .from_at = (uint32_t)vb_guard_past(past),
	                            .from_len = len - VB_GUARD_EDGE,
	                            .sum = {laid->sum[0], laid->sum[1]}};
	return copied_out(path, true, len);
}

/*
 * Places the payload of a packet. For a full packet it computes the CRC sum during the copy. If the packet can be
 * retried and its data is probably not in the near cache, it computes the sum in place and the kernel gathers the data:
 * this is slower than a copy within the cache, but faster than a copy from memory.
 */
static __attribute__((hot)) bool place_payload(struct vb_roce_path *path, uint8_t *dst, const uint8_t *src,
                                               uint32_t len, uint64_t region)
{
	if (len % 256 || !len || !vb_guard_can_sum())
		return copied_out(path, vb_guard_copy(dst, src, len), len);
	struct vb_tx_laid *laid = &path->laid[(uint32_t)(dst - path->laying) / path->laying_apart];

	if (path->laying_past && len >= VB_TX_IN_PLACE_MIN)
		return place_past(path, dst, src, len, laid);
	bool in_place = region > NEAR && len >= VB_TX_IN_PLACE_MIN && path->q.cfg.type == VB_ROCE_RC &&
	                !path->q.again && vb_tx_in_place(path->tx);

	if (!(in_place ? vb_guard_sum(src, len, laid->sum) : vb_guard_copy_sum(dst, src, len, laid->sum)))
		return false;
	laid->at = dst; /* only after success, because the next packet may use the place of a failed one */
	laid->from = in_place ? src : NULL;
	laid->len = laid->from_len = len;
	laid->from_at = 0;
	path->q.stats.bytes_in_place += in_place ? len : 0;
	return copied_out(path, true, in_place ? 0 : len);
}

static __attribute__((hot)) bool fetch_payload(void *own, const struct vb_work *work, uint32_t offset, void *dst,
                                               uint32_t len)
{
	struct vb_roce_path *path = ((struct vb_qp *)own)->roce;
	const struct vb_known *k = vb_queue_pieces(own, &path->known, work, 0);

	if (k && k->n == 1 && offset + (uint64_t)len <= k->iov[0].iov_len)
		return place_payload(path, dst, (uint8_t *)k->iov[0].iov_base + offset, len, k->region);
	return copied_out(path, k && vb_copy_from(k->iov, k->n, offset, dst, len), len);
}

/* Stores the data of a READ or the result of an atomic. */
static bool scatter_payload(void *own, const struct vb_work *work, uint32_t offset, const void *bytes, uint32_t len)
{
	struct vb_roce_path *path = ((struct vb_qp *)own)->roce;
	const struct vb_known *k = vb_queue_pieces(own, &path->known, work, IBV_ACCESS_LOCAL_WRITE);

	return copied_in(path, k && vb_copy_to(k->iov, k->n, offset, bytes, len), len);
}

static __attribute__((hot)) bool scatter_receive(void *own, uint32_t offset, const void *bytes, uint32_t len)
{
	return copied_in(((struct vb_qp *)own)->roce, vb_receive_store(own, offset, bytes, len), len);
}

static __attribute__((hot)) uint32_t posted_receives(void *own)
{
	struct vb_qp *qp = own;

	return qp->srq || qp->type == IBV_QPT_XRC_RECV ? UINT32_MAX : vb_rq_count(&qp->rq);
}

static __attribute__((hot)) bool memory_named(struct vb_qp *qp, uint32_t rkey, uint64_t va, uint32_t len,
                                              uint32_t access, uint64_t *at)
{
	const struct vb_mr_view *view = vb_queue_find_region(qp, &qp->roce->known, rkey) ? &qp->roce->known.view : NULL;

	if (__builtin_expect(view && vb_mr_view_allows(view, vb_pd_id(qp->pd), qp->qp.qp_num, va, len, access, at), 1))
		return true;
	return vb_access_denied(qp, view, rkey, va, len, access);
}

static __attribute__((hot)) bool check_memory(void *own, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access)
{
	uint64_t at;

	return memory_named(own, rkey, va, len, vb_ibv_access_of(access), &at);
}

static __attribute__((hot)) bool write_memory(void *own, uint32_t rkey, uint64_t va, const void *bytes, uint32_t len,
                                              bool last)
{
	uint64_t at;

	if (!memory_named(own, rkey, va, len, IBV_ACCESS_REMOTE_WRITE, &at))
		return false;
	return copied_in(((struct vb_qp *)own)->roce,
	                 (last ? vb_guard_copy_tail : vb_guard_copy)((void *)(uintptr_t)at, bytes, len), len);
}

static bool read_memory(void *own, uint32_t rkey, uint64_t va, void *dst, uint32_t len)
{
	struct vb_roce_path *path = ((struct vb_qp *)own)->roce;
	uint64_t at;

	return memory_named(own, rkey, va, len, IBV_ACCESS_REMOTE_READ, &at) &&
	       place_payload(path, dst, (const void *)(uintptr_t)at, len, path->known.view.length);
}

static enum vb_local execute_local(void *own, const struct vb_work *work)
{
	struct vb_qp *qp = own;

	vb_roce_path_locked(qp->roce);
	return vb_queue_local(qp, work);
}

static bool invalidate_key(void *own, uint32_t rkey)
{
	struct vb_qp *qp = own;

	vb_roce_path_locked(qp->roce);
	return vb_queue_invalidate(qp, rkey);
}

/* Gives the memory back to the kernel; the next access reads zeros. */
static void ahead_unused(void *own)
{
	madvise(((struct vb_qp *)own)->roce->ahead.slots, VB_ROCE_AHEAD, MADV_DONTNEED);
}

static void engine_failed(void *own, enum vb_work_event event)
{
	struct vb_qp *qp = own;

	qp->roce->failed = (uint8_t)event;
}

const struct vb_roce_ops vb_roce_engine_ops = {
        .next_send = vb_queue_next_send,
        .complete_send = vb_queue_complete_send,
        .fetch = fetch_payload,
        .scatter = scatter_payload,
        .local = execute_local,
        .select_srq = vb_roce_select_srq,
        .pass = vb_roce_pass,
        .oldest_passed = vb_roce_oldest_passed,
        .read_there = vb_roce_read_there,
        .take_receive = vb_queue_take_receive,
        .take_tagged = vb_queue_take_tagged,
        .scatter_receive = scatter_receive,
        .complete_receive = vb_queue_complete_receive,
        .receives = posted_receives,
        .check = check_memory,
        .write = write_memory,
        .read = read_memory,
        .atomic = vb_queue_atomic,
        .atomic_write = vb_queue_atomic_write,
        .flush = vb_queue_flush,
        .invalidate = invalidate_key,
        .ahead_unused = ahead_unused,
        .failed = engine_failed,
};
