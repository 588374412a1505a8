// responder.h - a received record, its verdicts, and functions that the files of the same-host responder share
// follows: IBA volume 1, 9.7.3 to 9.7.5, over rings in shared memory
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_RESPONDER_H
#define VB_ENGINE_LOCAL_RESPONDER_H

#include "core/mw.h"
#include "engine/local/local.h"
#include "engine/refusal.h"
#include "frame/fields.h"

/* A record. Parts that are read more than once are copies in local memory, because the peer may change the ring. */
struct vb_local_req {
	struct vb_peer *peer;
	const struct vb_rec *in_ring;
	uint64_t end; /* where it ends in the ring */
	bool held;    /* it must not be executed yet */
	bool there;   /* a READ of the memory of another process: engine/local/relay.h */
	struct vb_rec rec;
	struct vb_rec_ext ext;
	const uint8_t *payload;
	uint32_t room; /* payload bytes that fit in the record */
	unsigned type, flags;
};

/* After the last values, those of VB_REFUSALS, the QP goes to ERR. */
enum vb_verdict {
	VB_VERDICT_OK,
	VB_VERDICT_HELD,
	VB_VERDICT_AGAIN, /* XRC: not now; it will be asked for again */
	VB_VERDICT_DROP,
	VB_VERDICT_RNR,
	VB_VERDICT_SOURCE,
#define X(name, receive, event) VB_VERDICT_##name,
	VB_REFUSALS(X)
#undef X
};

/* All are called under progress. */

/* Publishes the QP's acknowledgements, and answers its reads, with the next vb_local_publish_acks. */
void vb_local_ack_later(struct vb_qp *qp);
/* Updates the number of requests that may be acknowledged, which are all before the oldest unanswered read. */
void vb_local_update_ackable(struct vb_qp *qp);
/* A read is not allowed any more: NAK, and the QP goes to ERR. */
void vb_local_refuse_read(struct vb_qp *qp);
/* All reads are answered: refuses the request that has waited for that. */
void vb_local_reads_served(struct vb_qp *qp);
/* Has the peer withdrawn its read with this PSN? Then it has completed, and its memory may be gone. */
bool vb_local_is_withdrawn(const struct vb_qp *qp, const struct vb_peer *peer, uint32_t psn);

/* Is the record from the queue pair to which its receiver is connected, in its current generation or the one that has
 * just ended? */
static inline bool vb_local_is_of_peer(const struct vb_qp *qp, const struct vb_peer *peer, const struct vb_rec *rec)
{
	const struct vb_qp_shared *from = vb_seg_qp(peer->seg, rec->src & VB_QPN_MASK);

	return qp->attr.dest_qp_num == (rec->src & VB_QPN_MASK) && VB_QP_LANE(rec->src) == peer->lane &&
	       ((atomic_load_explicit(&from->gen, memory_order_relaxed) - vb_rec_top(rec->psn)) & 0xff) <= 1;
}

/* Counts an executed request: it is acknowledged, unless a read before it is not answered yet. */
static inline void vb_local_count_taken(struct vb_qp *qp)
{
	qp->local.taken++;
	qp->local.epsn = (qp->local.epsn + 1) & VB_PSN_MASK;
	qp->local.nak_state = false;
	vb_local_update_ackable(qp);
}

/* Stores a part of a message in the receive in use. */
static inline enum vb_verdict vb_local_scatter(struct vb_qp *qp, const uint8_t *src, uint32_t n)
{
	if (!vb_receive_store(qp, qp->inbound->offset, src, n))
		return VB_VERDICT_RECEIVE;
	qp->inbound->offset += n;
	VB_COUNT_PROGRESS(ring_bytes, n);
	return VB_VERDICT_OK;
}

/* Completes the receive in use. q: its last record, or NULL. execute.c */
void vb_local_receive_complete(struct vb_qp *qp, struct vb_local_req *q, enum ibv_wc_status status,
                               enum ibv_wc_opcode opcode, uint32_t length);
/* Invalidates the key that a SEND with Invalidate names (IBA 10.6.5). */
static inline enum vb_verdict vb_local_invalidate_sent(struct vb_qp *qp, struct vb_local_req *q)
{
	if (!(q->flags & VB_RECF_INV))
		return VB_VERDICT_OK;
	return vb_mw_invalidate_sent(qp, q->rec.imm) ? VB_VERDICT_ACCESS : VB_VERDICT_OK;
}

/* An operation that the QP does not allow is an invalid request, whatever the key (IBA 9.7.4.1.4, like rxe). */
static inline bool vb_local_allows(const struct vb_qp *qp, uint32_t access)
{
	return (qp->attr.qp_access_flags & access) == access;
}

/* Executes a request of a connected peer that is next in order. execute.c */
enum vb_verdict vb_local_execute(struct vb_qp *qp, struct vb_local_req *q);
/* Executes a SEND whose data this side fetches. pull.c */
enum vb_verdict vb_local_pull(struct vb_qp *qp, struct vb_local_req *q);
/* Checks a read and answers it as far as there is room. answer.c */
enum vb_verdict vb_local_accept_read(struct vb_qp *qp, struct vb_local_req *q);
/* Executes an atomic write: 8 bytes that every reader sees as a whole. place.c */
enum vb_verdict vb_local_atomic_write(struct vb_qp *qp, const struct vb_local_req *q);
/* Executes a flush: what the peer has written before is visible to all, before it is told. place.c */
enum vb_verdict vb_local_flush(struct vb_qp *qp, const struct vb_local_req *q);

/* Executes a request for an SRQ of another process by passing it on. path/local/relay_record.c */
enum vb_verdict vb_relay_record(struct vb_qp *qp, struct vb_local_req *q);

#endif
