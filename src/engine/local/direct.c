// direct.c - RDMA writes and reads by one copy between two programs' memories
// follows: IBA volume 1, 9.7.4.1.5 (R_Key check), 10.6; docs/same-host.md
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "core/key.h"
#include "engine/local/local.h"

/* Bytes per copy. A copy delays ibv_dereg_mr in the peer, so the key is looked up again for each piece. */
#define PIECE (4u << 20)

/*
 * Publishes a hazard: a copy with this key to this QP. This is done before the key is looked up. The owner first marks
 * the region invalid and then reads the hazards, so either the owner sees the hazard, or this process sees the mark.
 */
static _Atomic uint64_t *hazard_take(struct vb_peer *peer, uint64_t what)
{
	for (unsigned spins = 0;; spins++) {
		for (unsigned i = 0; i < VB_HAZARDS; i++) {
			uint64_t none = 0;

			if (atomic_compare_exchange_strong(&peer->ours->hazard[i], &none, what))
				return &peer->ours->hazard[i];
		}
		if (spins > 100)
			sched_yield();
	}
}

static void hazard_drop(_Atomic uint64_t *h)
{
	atomic_store_explicit(h, 0, memory_order_release);
}

static uint32_t access_of(const struct vb_swqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
}

/* Does the peer's QP accept such requests? */
static bool remote_accepts(const struct vb_qp *qp, const struct vb_swqe *w)
{
	return atomic_load(&qp->local.remote->gen) == qp->local.remote_gen && /* after the hazard: not an ldapr */
	       atomic_load_explicit(&qp->local.remote->access, memory_order_relaxed) & access_of(w);
}

/* The checks of a responder: the QP accepts such requests, and the key allows the whole range. */
static bool remote_allows(struct vb_qp *qp, const struct vb_swqe *w, uint64_t off, uint32_t length,
                          struct vb_mr_view *view, uint64_t *va)
{
	if (!remote_accepts(qp, w) || w->remote_addr + off < off)
		return false;
	return vb_mr_read_shared(qp->local.peer->seg, w->rkey, view) &&
	       vb_mr_view_allows(view, atomic_load_explicit(&qp->local.remote->pd, memory_order_relaxed),
	                         qp->attr.dest_qp_num, w->remote_addr + off, length, access_of(w), va);
}

/* Selects the part [off, off + n) of a gathered message. Returns the number of pieces. */
static int iov_slice(const struct iovec *iov, int niov, uint64_t off, uint64_t n, struct iovec *out)
{
	int k = 0;

	for (int i = 0; i < niov && n; i++) {
		if (off >= iov[i].iov_len) {
			off -= iov[i].iov_len;
			continue;
		}
		uint64_t piece = iov[i].iov_len - off < n ? iov[i].iov_len - off : n;

		out[k++] = (struct iovec){(uint8_t *)iov[i].iov_base + off, piece};
		n -= piece;
		off = 0;
	}
	return k;
}

/* On demand, the memory is what is mapped at the address now, not the file that was. The next key of a window may name
 * other memory. The addresses of a null region are not those between its first and its last. */
static bool may_be_mapped(const struct vb_mr_view *view)
{
	return !(view->access & (IBV_ACCESS_ON_DEMAND | VB_MR_BY_OWNER | VB_MR_NULL)) && !view->window;
}

bool vb_local_look_mapped(struct vb_qp *qp, uint32_t rkey)
{
	struct vb_mr_view view;

	if (!vb_mr_read_shared(qp->local.peer->seg, rkey, &view))
		return false;
	qp->local.map_key = rkey;
	qp->local.mapped = may_be_mapped(&view) ? (uint8_t)vb_map_ask(qp->local.peer, rkey, &view) : VB_MAPPED_NEVER;
	return qp->local.mapped == VB_MAPPED;
}

static enum vb_direct_result one_piece(struct vb_qp *qp, struct vb_swqe *w, const struct iovec *iov, int n,
                                       uint64_t off, uint32_t length)
{
	bool is_read = w->opcode == IBV_WR_RDMA_READ;
	struct vb_peer *peer = qp->local.peer;
	struct iovec part[VB_MAX_SGE + 1];
	const struct vb_copy_ops *copy = peer->copy;
	struct vb_mr_view view;
	uint64_t va = 0;
	int err = 0;

	if (!vb_peer_alive(peer))
		return VB_DIRECT_GONE;
	/* checks the whole rest, not just this piece, so that nothing is written if the end is out of range */
	if (!remote_allows(qp, w, off, w->length - (uint32_t)off, &view, &va))
		return VB_DIRECT_REFUSED;
	n = iov_slice(iov, n, off, length, part);

	if ((view.access & VB_MR_BY_OWNER) && !peer->self)
		return VB_DIRECT_FORBIDDEN;
	struct vb_map *map = !may_be_mapped(&view) ? NULL : vb_map_take(peer, w->rkey, &view, va, &va);

	if (map)
		copy = peer->copy_mapped;
	else if (qp->local.mapped == VB_MAPPED)
		qp->local.mapped = VB_MAPPED_LATER;
	err = is_read ? copy->read(peer, va, part, n, length) : copy->write(peer, va, part, n, length);
	if (map) {
		vb_map_drop(peer, map);
		VB_COUNT(mapped_bytes, length);
	}
	switch (err) {
	case 0:
		VB_COUNT(one_copy_bytes, length);
		return VB_DIRECT_DONE;
	case VB_EFAULT_LOCAL:
		return VB_DIRECT_LOCAL;
	case EFAULT:
		return VB_DIRECT_FAULT;
	case ESRCH:
		return VB_DIRECT_GONE;
	default:
		return VB_DIRECT_FORBIDDEN;
	}
}

enum vb_direct_result vb_local_direct(struct vb_qp *qp, struct vb_swqe *w)
{
	bool is_read = w->opcode == IBV_WR_RDMA_READ;
	struct iovec iov[VB_MAX_SGE + 1];
	enum vb_direct_result r = VB_DIRECT_DONE;
	int n;

	/* the local buffers stay registered during the copies, because vb_quiesce waits for sq_lock, which the caller
	 * holds */
	n = vb_gather(qp, w, is_read ? IBV_ACCESS_LOCAL_WRITE : 0, iov);
	if (n < 0)
		return VB_DIRECT_LOCAL;
	if (!w->length) /* succeeds without a check of the key (IBA C9-88) */
		return remote_accepts(qp, w) ? VB_DIRECT_DONE : VB_DIRECT_REFUSED;
	for (uint64_t off = 0; r == VB_DIRECT_DONE && off < w->length; off += PIECE) {
		uint32_t length = w->length - off < PIECE ? (uint32_t)(w->length - off) : PIECE;
		_Atomic uint64_t *h = hazard_take(qp->local.peer, (uint64_t)w->rkey << 32 | qp->attr.dest_qp_num);

		if (is_read && off == 0 && vb_gather(qp, w, IBV_ACCESS_LOCAL_WRITE, iov) < 0)
			r = VB_DIRECT_LOCAL;
		else
			r = one_piece(qp, w, iov, n, off, length);
		hazard_drop(h);
	}
	return r;
}
