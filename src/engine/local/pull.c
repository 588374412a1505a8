// pull.c - the receiver of a large SEND fetches its data from the sender's memory
// follows: IBA volume 1, 9.7.4 to 9.7.5.1 (SEND); process_vm_readv(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/rq.h"
#include "core/tm.h"
#include "engine/local/responder.h"

/* The sender's buffers belong to its queue pair only until that leaves RTS: then the request is flushed, or gone, and its
 * program may reuse them. The number changes before that; even: it has left. */
static uint32_t sender_gen(const struct vb_qp *qp, const struct vb_peer *peer)
{
	struct vb_qp_shared *sender = vb_seg_qp(peer->seg, qp->attr.dest_qp_num);
	uint32_t gen = atomic_load_explicit(&sender->gen, memory_order_acquire);

	return atomic_load_explicit(&sender->qpn, memory_order_relaxed) == qp->attr.dest_qp_num ? gen : 0;
}

/* Reads the header of tag matching first, and chooses the receive. */
static enum vb_verdict take_tagged(struct vb_qp *qp, struct vb_local_req *q, const struct vb_rec_span *span, uint32_t n)
{
	uint8_t head[VB_TMH_LEN];
	uint32_t have = 0, gen = sender_gen(qp, q->peer);

	if (!(gen & 1))
		return VB_VERDICT_DROP;
	for (uint32_t i = 0; i < n && have < sizeof(head); i++) {
		uint32_t left = (uint32_t)sizeof(head) - have, length = span[i].length < left ? span[i].length : left;
		struct iovec iov = {head + have, length};

		if (!length)
			continue;
		int err = vb_peer_alive(q->peer) ? q->peer->copy->read(q->peer, span[i].addr, &iov, 1, length) : ESRCH;

		if (err)
			return err == EFAULT ? VB_VERDICT_SOURCE : VB_VERDICT_DROP;
		have += length;
	}
	atomic_thread_fence(memory_order_acquire);
	if (sender_gen(qp, q->peer) != gen)
		return VB_VERDICT_DROP; /* what was copied may be anything */
	return vb_tm_take(qp, head, have, false) ? VB_VERDICT_OK : VB_VERDICT_RNR;
}

static enum vb_verdict take_for_pull(struct vb_qp *qp, struct vb_local_req *q, const struct vb_rec_span *span,
                                     uint32_t n)
{
	if (qp->inbound->active)
		return VB_VERDICT_OK;
	if (__builtin_expect(vb_rq_of(qp)->tagged, 0))
		return take_tagged(qp, q, span, n);
	return vb_receive_take(qp) ? VB_VERDICT_OK : VB_VERDICT_RNR;
}

/* Executes a SEND whose data this side fetches, by one copy from the sender's buffers to the receiver's. */
enum vb_verdict vb_local_pull(struct vb_qp *qp, struct vb_local_req *q)
{
	struct vb_rec_span span[VB_MAX_SGE + 1];
	uint32_t n = q->rec.length / sizeof(span[0]), total = q->ext.total;
	struct iovec iov[VB_MAX_SGE];
	uint64_t off = 0;

	if (n > VB_MAX_SGE || q->rec.length > q->room)
		return VB_VERDICT_INVALID;
	memcpy(span, q->payload, n * sizeof(span[0]));
	enum vb_verdict taken = take_for_pull(qp, q, span, n);

	if (taken != VB_VERDICT_OK)
		return taken;
	if (total > qp->inbound->wqe.length)
		return VB_VERDICT_TOO_LONG;
	unsigned class = vb_choice_class(total);
	struct vb_cost *cost = &q->peer->fetch_cost[class];
	uint64_t begin = vb_cost_begin(cost);
	uint32_t gen = sender_gen(qp, q->peer);

	if (!(gen & 1))
		return VB_VERDICT_DROP;
	for (uint32_t i = 0; i < n; off += span[i].length, i++) {
		if (span[i].length > total - off)
			return VB_VERDICT_TOO_LONG;
		uint64_t at = off; /* in the receive */
		uint32_t length = span[i].length, skip = 0;

		if (__builtin_expect(qp->inbound->kind != VB_TM_PLAIN, 0))
			skip = vb_tm_clip(qp, &at, &length);
		if (skip && !length)
			continue;
		int k = vb_receive_pieces(qp, at, length, iov);
		int err = k < 0                    ? VB_EFAULT_LOCAL
		          : vb_peer_alive(q->peer) ? q->peer->copy->read(q->peer, span[i].addr + skip, iov, k, length)
		                                   : ESRCH;

		if (err == VB_EFAULT_LOCAL)
			return VB_VERDICT_RECEIVE;
		if (err == ESRCH)
			return VB_VERDICT_DROP; /* the sender has ended; the next message uses the receive (inbound->active) */
		if (err == EFAULT)
			return VB_VERDICT_SOURCE; /* the receive stays for the next message, and this QP continues */
		if (err)
			return VB_VERDICT_DROP; /* copies are forbidden: can_pull is cleared now, so the retry sends the data */
	}
	atomic_thread_fence(memory_order_acquire);
	if (sender_gen(qp, q->peer) != gen)
		return VB_VERDICT_DROP; /* what was copied may be anything */
	if (begin && vb_cost_end(cost, begin, total))
		atomic_store_explicit(&q->peer->ours->costs[class].fetch, cost->ns, memory_order_relaxed);

	enum vb_verdict v = vb_local_invalidate_sent(qp, q);

	if (v != VB_VERDICT_OK)
		return v;
	VB_COUNT(one_copy_bytes, total);
	qp->local.received_bytes[0] += total;
	vb_local_count_taken(qp);
	vb_local_receive_complete(qp, q, IBV_WC_SUCCESS, IBV_WC_RECV, total);
	return VB_VERDICT_OK;
}
