// path.c - the path by shared memory
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "path/path.h"

#include "engine/local/local.h"

static void local_reset(struct vb_qp *qp)
{
	vb_local_closed(qp); /* drops the requests of the engine */
	vb_local_reset(qp);
}

const struct vb_path_ops vb_local_path_ops = {
        .name = "same host",
        .ring = true,
        .kick = vb_local_kick,
        .kick_until = vb_local_kick_until,
        .settle = vb_local_settle,
        .visit = vb_local_visit,
        .deadline = vb_local_deadline,
        .start_responder = vb_local_start_responder,
        .entered = vb_local_entered,
        .resolved = vb_local_resolved,
        .idle = vb_local_idle,
        .closing = vb_local_closing,
        .closed = vb_local_closed,
        .forget_sends = vb_local_forget_sends,
        .next_psns = vb_local_next_psns,
        .reset = local_reset,
};
