// responder.h - functions that the files of the same-host responder share
// follows: IBA volume 1, 9.7.3 to 9.7.5, over rings in shared memory
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_RESPONDER_H
#define VB_ENGINE_LOCAL_RESPONDER_H

#include "engine/local/local.h"

/* All are called under progress. */

/* Publishes the QP's acknowledgements, and answers its reads, with the next vb_local_publish_acks. */
void vb_local_ack_later(struct vb_qp *qp);
/* Updates the number of requests that may be acknowledged, which are all before the oldest unanswered read. */
void vb_local_update_ackable(struct vb_qp *qp);
/* A read is not allowed any more: NAK, and the QP goes to ERR. */
void vb_local_refuse_read(struct vb_qp *qp);
/* Has the peer withdrawn its read with this PSN? Then it has completed, and its memory may be gone. */
bool vb_local_is_withdrawn(const struct vb_qp *qp, const struct vb_peer *peer, uint32_t psn);

#endif
