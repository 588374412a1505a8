// buffer.c - the program's buffers: looked up, read and stored with guarded copies
// follows: IBA volume 1, 10.6.3 (access), 10.7.3 (scatter, gather)
// SPDX-License-Identifier: MIT
#include "core/mr.h"
#include "core/pd.h"
#include "core/sq.h"
#include "engine/engine.h"
#include "util/guard.h"

int vb_gather(struct vb_qp *qp, const struct vb_swqe *w, uint32_t access, struct iovec *iov)
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
