// local.h - the same-host protocol machine: what io/ drives
// follows: IBA volume 1, chapters 9 and 10, over rings in shared memory
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_LOCAL_H
#define VB_ENGINE_LOCAL_LOCAL_H

#include "core/active.h"
#include "core/buffer.h"
#include "core/counters.h"
#include "core/inbound.h"
#include "engine/local/peer.h"

/* Takes every record that stands in the peer's ring, at most `budget`. Under progress. Returns how many. Acknowledgements
 * and the consumed position are published by vb_rx_flush. A ring that makes no sense marks the peer dead. */
unsigned vb_rx_drain(struct vb_peer *peer, unsigned budget);
/* Publishes acknowledgements and consumed positions; rings bells where nobody looks. Under progress. */
void vb_rx_flush(struct vb_node *node);
/* Serves reads that are answered by ring, as far as there is room. Under progress. Returns true if something moved. */
bool vb_inread_serve(struct vb_qp *qp);

/* A record that answers a request of ours (READ_DATA). Under progress. */
void vb_requester_data(struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext, const uint8_t *payload);
/* The peer's acknowledgement count, from a record. Under progress. true: it is news. */
bool vb_requester_ack(struct vb_qp *qp, uint32_t ack);
/* One look at a QP with something unfinished: acknowledgements, NAKs, timers, what waits for room. Under progress.
 * wait: also if somebody is just posting; else the next look will do. Returns work done. */
unsigned vb_requester_visit(struct vb_qp *qp, bool wait);
/* Completes what has been executed, however little has been said of it. Under progress + sq_lock. */
void vb_requester_closing(struct vb_qp *qp);
/* When the earliest of the active QPs wants to be visited again at the latest: ns, 0 for never. Under progress. */
uint64_t vb_requester_deadline(struct vb_node *node);
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

/* --- the wire: path/roce/path.c. A QP that has qp->wire is driven by these --- */

/* After something was posted, or the state changed: sends what may go. true: it failed. Under sq_lock. */
bool vb_wire_kick(struct vb_qp *qp);
/* Acts upon a failure of the engine. Under progress + sq_lock. */
void vb_wire_settle(struct vb_qp *qp);
/* Looks at it if its time has come. wait: as with vb_requester_visit. Under progress. Returns work done. */
unsigned vb_wire_visit(struct vb_qp *qp, bool wait);
/* The QP leaves the receiving states: what the engine had taken completes. Under progress + sq_lock. */
void vb_wire_path_abort(struct vb_qp *qp);
/* Takes the engine from it. Under progress + sq_lock. */
void vb_wire_path_close(struct vb_qp *qp);
/* A datagram to another host. What was sent goes out at vb_wire_datagrams_end at the latest. Under sq_lock. */
enum vb_datagram_result {
	VB_DATAGRAM_SENT,
	VB_DATAGRAM_WAIT,  /* the network does not take it now */
	VB_DATAGRAM_LOST,  /* there is no network */
	VB_DATAGRAM_FAULT, /* local protection */
};
enum vb_datagram_result vb_wire_datagram(struct vb_qp *qp, struct vb_swqe *w);
void vb_wire_datagrams_end(struct vb_qp *qp);
/* A packet that another program got for us. Under progress. */
void vb_wire_forwarded(struct vb_node *node, const uint8_t *record, uint32_t length);

/* --- iWARP: path/iwarp/path.c. A QP that has qp->iwarp is driven by these; as their namesakes above --- */

bool vb_iwarp_kick(struct vb_qp *qp);
void vb_iwarp_settle(struct vb_qp *qp);
/* The queue pair leaves its connection, which ends. What the engine had taken completes. Under progress + sq_lock. */
void vb_iwarp_path_end(struct vb_qp *qp);
/* When it does, what is left of the stream is not sent, not even what is in the socket. Under progress + sq_lock. */
void vb_iwarp_path_abort(struct vb_qp *qp);

#endif
