// frames.h - shows a capture the traffic between programs of this host
// see: docs/capture.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_FRAMES_H
#define VB_ENGINE_LOCAL_FRAMES_H

#include "engine/local/requester.h"

/*
 * While somebody captures, VB_LOCAL_SHOWN is set in qp->local.owed (UD: qp->datagram.shown), words that each send reads
 * anyway. All functions are called under sq_lock; those of local.h that begin with vb_local_frames_ under progress too.
 */

/* vb_local_emit_one, which also shows the request. */
enum vb_emit vb_local_emit_shown(struct vb_qp *qp, struct vb_swqe *w);
/* Shows answers to the requests that vb_local_retire_done will complete, before the program can know. */
void vb_local_show_answers(struct vb_qp *qp);
/* Shows a NAK. taken: how many requests the peer has received, a count like ssn_una. */
void vb_local_show_nak(struct vb_qp *qp, enum vb_ring_nak code, uint64_t taken);
/* Shows a datagram that was sent. */
void vb_local_show_datagram(struct vb_qp *qp, const struct vb_swqe *w, uint32_t qkey, const struct iovec *iov, int n);

static inline bool vb_local_is_shown(const struct vb_qp *qp)
{
	return __builtin_expect(qp->local.owed & VB_LOCAL_SHOWN, 0);
}

#endif
