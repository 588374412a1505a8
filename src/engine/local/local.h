// local.h - the same-host protocol machine: what path/local drives
// follows: IBA volume 1, chapters 9 and 10, over rings in shared memory
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_LOCAL_H
#define VB_ENGINE_LOCAL_LOCAL_H

#include "core/active.h"
#include "core/buffer.h"
#include "core/counters.h"
#include "core/inbound.h"
#include "engine/local/peer.h"

/* Takes every record that stands in the peer's ring, at most `budget`. Under progress. Returns how many.
 * Acknowledgements and the consumed position are published by vb_rx_flush. A ring that makes no sense marks the peer
 * dead. */
unsigned vb_rx_drain(struct vb_peer *peer, unsigned budget);
/* Publishes acknowledgements and consumed positions; rings doorbells where nobody looks. Under progress. */
void vb_rx_flush(struct vb_node *node);
/* Serves reads that are answered by ring, as far as there is room. Under progress. Returns true if something moved. */
bool vb_inread_serve(struct vb_qp *qp);

/* A record that answers a request of ours (READ_DATA). Under progress. */
void vb_local_data(struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext,
                   const uint8_t *payload);
/* The peer's acknowledgement count, from a record. Under progress. true: it is news. */
bool vb_local_ack(struct vb_qp *qp, uint32_t ack);

/* As in struct vb_path_ops. */
enum vb_sq_status vb_local_kick(struct vb_qp *qp);
enum vb_sq_status vb_local_kick_datagrams(struct vb_qp *qp);
void vb_local_settle(struct vb_qp *qp);
unsigned vb_local_visit(struct vb_qp *qp, bool wait);
uint64_t vb_local_deadline(struct vb_qp *qp);
bool vb_local_idle(const struct vb_qp *qp);
void vb_local_closing(struct vb_qp *qp);
void vb_local_closed(struct vb_qp *qp);
void vb_local_reset(struct vb_qp *qp);

/* One-copy RDMA write or read of w; see direct.c. 0 done, else an enum vb_direct_result. Under sq_lock. */
enum vb_direct_result {
	VB_DIRECT_DONE,
	VB_DIRECT_REFUSED,   /* remote check failed: ask for a verdict */
	VB_DIRECT_FAULT,     /* remote memory is not mapped: likewise */
	VB_DIRECT_LOCAL,     /* local protection */
	VB_DIRECT_FORBIDDEN, /* not possible with this peer: by ring */
	VB_DIRECT_GONE,      /* the peer died */
};
enum vb_direct_result vb_direct(struct vb_qp *qp, struct vb_swqe *w);

#endif
