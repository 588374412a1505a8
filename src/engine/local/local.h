// local.h - the same-host protocol engine, which path/local drives
// follows: IBA volume 1, chapters 9 and 10, over rings in shared memory
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_LOCAL_H
#define VB_ENGINE_LOCAL_LOCAL_H

#include "core/active.h"
#include "core/buffer.h"
#include "core/counters.h"
#include "core/inbound.h"
#include "engine/local/peer.h"

/* Processes at most `budget` records of the peer's ring. Returns how many. The caller publishes the result:
 * vb_node_publish (node/progress.c). An invalid record marks the peer dead. Under progress. */
unsigned vb_local_drain(struct vb_peer *peer, unsigned budget);
/* Takes a run of plain SENDs, at most as many as the program wants if they complete in cq. Returns how many; 0: the next
 * record is for vb_local_drain. Otherwise the same (plain.c). */
unsigned vb_local_take_plain(struct vb_peer *peer, struct vb_cq *cq, unsigned want);
/* Publishes acknowledgements. Rings the doorbells of peers that do not poll. Under progress. */
void vb_local_publish_acks(struct vb_node *node);
/* Answers reads by the ring, as far as there is room; vb_local_publish_acks calls it again for the rest. A read that is not
 * allowed any more takes the QP to ERR. Under progress. */
void vb_local_serve_reads(struct vb_qp *qp);

/* Processes a record with data for a read of ours (VB_REC_READ_DATA). Under progress. */
void vb_local_data(struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext,
                   const uint8_t *payload);
/* Stores the acknowledgement count in a record of the peer. Under progress. Returns whether it is new. */
static inline bool vb_local_ack(struct vb_qp *qp, uint32_t ack)
{
	if ((int32_t)(ack - qp->local.ack_in) <= 0)
		return false;
	qp->local.ack_in = ack;
	return true;
}

/* Completes what the record's count has acknowledged, before what it carries is executed. Under progress. */
void vb_local_acked(struct vb_qp *qp);

/* Takes a datagram that came by no ring: payload is a GRH, then the datagram. Under progress. */
void vb_local_take_datagram(struct vb_qp *qp, const struct vb_rec *rec, const struct vb_rec_ext *ext,
                            const uint8_t *payload);

/* Adds the counters of its traffic on this host. Under progress. */
void vb_local_counts(const struct vb_qp *qp, struct vb_counts *c);
/* Adds them to those of the adapter, and begins again. Under progress + sq_lock. */
void vb_local_counts_leave(struct vb_qp *qp);

/* Begins or stops to show a capture the requests of the QP, which is in RTS or later (frames.c). Under progress +
 * sq_lock. */
void vb_local_frames_open(struct vb_qp *qp);
void vb_local_frames_close(struct vb_qp *qp);
void vb_local_frames_free(struct vb_qp *qp);

/* As in struct vb_path_ops. */
enum vb_sq_status vb_local_kick(struct vb_qp *qp);
/* The same for the requests before end, a position like sq_head. */
enum vb_sq_status vb_local_kick_until(struct vb_qp *qp, uint32_t end);
enum vb_sq_status vb_local_kick_datagrams(struct vb_qp *qp);
enum vb_sq_status vb_local_kick_datagrams_until(struct vb_qp *qp, uint32_t end);
void vb_local_settle(struct vb_qp *qp);
/* The way through the fabric is gone, or is there again. While it is gone, nothing is sent: reliable queue pairs spend their
 * retries, the requests of others are lost. Under progress + sq_lock. */
void vb_local_cut(struct vb_qp *qp, bool cut);
/* The way leads to another port: the peer is forgotten, and another one gets what the old one has not acknowledged. Under
 * progress + sq_lock. */
void vb_local_leave_peer(struct vb_qp *qp);
unsigned vb_local_visit(struct vb_qp *qp, bool finish);
uint64_t vb_local_deadline(struct vb_qp *qp);
void vb_local_start_responder(struct vb_qp *qp);
void vb_local_entered(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
bool vb_local_resolved(const struct vb_qp *qp);
bool vb_local_idle(const struct vb_qp *qp);
void vb_local_closing(struct vb_qp *qp);
void vb_local_closed(struct vb_qp *qp);
void vb_local_forget_sends(struct vb_qp *qp);
void vb_local_next_psns(const struct vb_qp *qp, uint32_t *sq_psn, uint32_t *rq_psn);
void vb_local_reset(struct vb_qp *qp);

/* Executes the RDMA write or read w by one copy (direct.c). Under sq_lock. */
enum vb_direct_result {
	VB_DIRECT_DONE,
	VB_DIRECT_REFUSED,   /* the remote check failed: the owner must be asked */
	VB_DIRECT_FAULT,     /* remote memory is not mapped: the owner must be asked */
	VB_DIRECT_LOCAL,     /* local protection error */
	VB_DIRECT_FORBIDDEN, /* impossible with this peer: use the ring */
	VB_DIRECT_GONE,      /* the peer died */
};
enum vb_direct_result vb_local_direct(struct vb_qp *qp, struct vb_swqe *w);

/* Is the peer's region mapped here? Then a copy to or from it takes no system call. A hint. Under sq_lock. */
bool vb_local_look_mapped(struct vb_qp *qp, uint32_t rkey);
static inline bool vb_local_is_mapped(struct vb_qp *qp, uint32_t rkey)
{
	if (qp->local.map_key == rkey && qp->local.mapped != VB_MAPPED_LATER)
		return qp->local.mapped == VB_MAPPED;
	return vb_local_look_mapped(qp, rkey);
}

#endif
