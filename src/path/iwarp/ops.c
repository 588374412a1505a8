// ops.c - callbacks of the iWARP engine for a queue pair's queues and memory (engine/iwarp/iwarp.h)
// follows: RFC 5040, 8.1 (access); RFC 5041, 5.1 (buffer models)
// SPDX-License-Identifier: MIT
#include "core/pd.h"
#include "path/iwarp/path.h"
#include "util/guard.h"

void vb_iwarp_release(struct vb_iwarp_path *path)
{
	if (!path->held)
		return;
	path->held = false;
	atomic_fetch_sub(&path->qp->node->held_completions, 1);
	vb_queue_complete_send(path->qp, &path->held_work, VB_WORK_SUCCESS);
}

void vb_iwarp_release_all(struct vb_node *node)
{
	for (struct vb_iwarp_path *path = node->io->iwarp->paths; path; path = path->next) {
		vb_lock(&path->qp->sq_lock);
		vb_iwarp_release(path);
		vb_unlock(&path->qp->sq_lock);
	}
}

/* A thread that arms the queue reads node->held_completions after cq->lock. So either that thread finds the held
 * completion, or this function finds the queue armed. */
static bool is_armed(struct vb_cq *cq)
{
	vb_lock(&cq->lock);
	bool armed = atomic_load_explicit(&cq->armed, memory_order_relaxed);
	vb_unlock(&cq->lock);
	return armed;
}

static void complete_send(void *own, const struct vb_work *work, enum vb_work_status status)
{
	struct vb_iwarp_path *path = ((struct vb_qp *)own)->iwarp;

	vb_iwarp_release(path);
	if (!path->may_hold || status != VB_WORK_SUCCESS) {
		vb_queue_complete_send(own, work, status);
		return;
	}
	path->may_hold = false;
	path->held = true;
	path->held_work = *work;
	path->held_until = vb_now() + path->hold_ns;
	atomic_fetch_add(&path->qp->node->held_completions, 1);
	if (is_armed(path->qp->scq))
		vb_iwarp_release(path);
}

static enum vb_local iwarp_local(void *own, const struct vb_work *work)
{
	struct vb_qp *qp = own;

	vb_known_forget(&qp->iwarp->known);
	return vb_queue_local(qp, work);
}

static bool iwarp_invalidate(void *own, uint32_t stag)
{
	struct vb_qp *qp = own;

	vb_known_forget(&qp->iwarp->known);
	return vb_queue_invalidate(qp, stag);
}

static void iwarp_failed(void *own, enum vb_work_event event)
{
	struct vb_qp *qp = own;

	if (!qp->iwarp->failed)
		qp->iwarp->failed = (uint8_t)event;
}

/* --- memory of our own requests --- */

static int request_pieces(struct vb_qp *qp, const struct vb_work *work, uint32_t access, uint32_t offset, uint32_t len,
                          struct iovec *out)
{
	const struct vb_known *k = vb_queue_pieces(qp, &qp->iwarp->known, work, access);
	int n = 0;

	for (int i = 0; k && i < k->n && len; i++) {
		const struct iovec *v = &k->iov[i];

		if (offset >= v->iov_len) {
			offset -= (uint32_t)v->iov_len;
			continue;
		}
		uint32_t piece = v->iov_len - offset < len ? (uint32_t)(v->iov_len - offset) : len;

		out[n++] = (struct iovec){(uint8_t *)v->iov_base + offset, piece};
		len -= piece;
		offset = 0;
	}
	return k && !len ? n : -1;
}

static int iwarp_source(void *own, const struct vb_work *work, uint32_t offset, uint32_t len, struct iovec *iov)
{
	return request_pieces(own, work, 0, offset, len, iov);
}

static int iwarp_sink(void *own, const struct vb_work *work, uint32_t offset, uint32_t len, struct iovec *iov)
{
	return request_pieces(own, work, IBV_ACCESS_LOCAL_WRITE, offset, len, iov);
}

/* STag and offset do not reveal the address of the memory. */
static void sink_name(void *own, const struct vb_work *work, uint32_t *stag, uint64_t *to)
{
	*stag = (uint32_t)work->cookie << 8 | 1;
	*to = 0;
}

static int sink_receive(void *own, uint32_t offset, uint32_t len, struct iovec *iov)
{
	return vb_receive_pieces(own, offset, len, iov);
}

/* --- memory that the peer accesses --- */

/* *at: the address of the memory in this process, if it may be used. */
static enum vb_iw_denial find_target(struct vb_qp *qp, uint32_t stag, uint64_t to, uint64_t len, uint32_t right,
                                     uint64_t *at)
{
	const struct vb_mr_view *v = &qp->iwarp->known.view;

	if (!vb_queue_find_region(qp, &qp->iwarp->known, stag))
		return VB_IW_INVALID_STAG;
	if (to + len >= to && vb_mr_view_allows(v, vb_pd_id(qp->pd), qp->qp.qp_num, to, len, right, at))
		return VB_IW_GRANTED;
	if (!vb_mr_view_is_of(v, vb_pd_id(qp->pd), qp->qp.qp_num))
		return VB_IW_NOT_OURS;
	if (to + len < to)
		return VB_IW_WRAP;
	return to < v->iova || len > v->length || to - v->iova > v->length - len ? VB_IW_BOUNDS : VB_IW_ACCESS;
}

static enum vb_iw_denial iwarp_check_target(void *own, uint32_t stag, uint64_t to, uint64_t len, enum vb_right access)
{
	uint64_t at;

	return find_target(own, stag, to, len, vb_ibv_access_of(access), &at);
}

static int iwarp_target(void *own, uint32_t stag, uint64_t to, uint32_t len, enum vb_right access, struct iovec *iov)
{
	uint64_t at;

	if (find_target(own, stag, to, len, vb_ibv_access_of(access), &at) != VB_IW_GRANTED)
		return -1;
	if (!len)
		return 0;
	iov[0] = (struct iovec){(void *)(uintptr_t)at, len};
	return 1;
}

/* --- copies --- */

static bool copy_in(void *own, const struct iovec *iov, int n, const void *bytes, uint32_t len, bool last)
{
	const uint8_t *from = bytes;

	for (int i = 0; i < n && len; i++) {
		uint32_t piece = iov[i].iov_len < len ? (uint32_t)iov[i].iov_len : len;

		len -= piece;
		if (!(last && !len ? vb_guard_copy_tail : vb_guard_copy)(iov[i].iov_base, from, piece))
			return false;
		from += piece;
	}
	return !len;
}

static bool copy_out(void *own, const struct iovec *iov, int n, void *bytes, uint32_t len)
{
	uint8_t *to = bytes;

	for (int i = 0; i < n && len; i++) {
		uint32_t piece = iov[i].iov_len < len ? (uint32_t)iov[i].iov_len : len;

		if (!vb_guard_copy(to, iov[i].iov_base, piece))
			return false;
		to += piece;
		len -= piece;
	}
	return !len;
}

const struct vb_iw_ops vb_iwarp_ops = {
        .next_send = vb_queue_next_send,
        .complete_send = complete_send,
        .local = iwarp_local,
        .take_receive = vb_queue_take_receive,
        .complete_receive = vb_queue_complete_receive,
        .atomic = vb_queue_atomic,
        .invalidate = iwarp_invalidate,
        .failed = iwarp_failed,
        .source = iwarp_source,
        .sink = iwarp_sink,
        .sink_name = sink_name,
        .sink_receive = sink_receive,
        .check = iwarp_check_target,
        .target = iwarp_target,
        .copy_in = copy_in,
        .copy_out = copy_out,
};
