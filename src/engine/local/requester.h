// requester.h - functions that the files of the same-host requester share
// follows: IBA volume 1, 9.7.5, 9.9, 10.8, over rings in shared memory
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_REQUESTER_H
#define VB_ENGINE_LOCAL_REQUESTER_H

#include "core/sq.h"
#include "engine/local/local.h"
#include "util/units.h"

enum vb_emit {
	VB_EMIT_OK,
	VB_EMIT_BLOCKED,
	VB_EMIT_FAILED, /* the entry is DONE, with its status */
};

/* Sends one entry (emit.c). Under sq_lock. */
enum vb_emit vb_local_emit_one(struct vb_qp *qp, struct vb_swqe *w);
/* Sends the plain SENDs from sq_emit on, up to the first request before end that is something else or has to wait
 * (emit_plain.c). Linked, under sq_lock. */
void vb_local_emit_plain(struct vb_qp *qp, uint32_t end);
/* Sends every datagram whose receiver has room (datagram.c). VB_SQ_FAILED: the one at sq_emit has failed. Under
 * sq_lock. */
enum vb_sq_status vb_local_emit_datagrams(struct vb_qp *qp, uint32_t end);

/* The GRH of a datagram on a fabric, of which payload bytes follow the GRH; zeros if its address has none. */
void vb_local_put_ib_grh(uint8_t grh[40], const struct vb_swqe *w, uint32_t payload);

/* Does the peer's QP exist, and does it accept requests? Checked before each send. If the peer's QP is not yet in RTR,
 * the request waits for a retry, as on a network. */
bool vb_local_link(struct vb_qp *qp);
static inline bool vb_local_linked(struct vb_qp *qp)
{
	const struct vb_qp_shared *remote = qp->local.remote;

	if (__builtin_expect(remote && vb_peer_alive(qp->local.peer), 1))
		return atomic_load_explicit(&remote->gen, memory_order_acquire) == qp->local.remote_gen;
	return vb_local_link(qp);
}
/* On a fabric: are the queue pairs of no common partition any more (IBA 10.9), or does the other one take packets from another
 * LID than ours (9.6.1.2)? Checked before each send. */
bool vb_local_look_apart(struct vb_qp *qp);
static inline bool vb_local_is_apart(struct vb_qp *qp)
{
	const struct vb_qp_shared *remote = qp->local.remote;

	return __builtin_expect(remote && atomic_load_explicit(&remote->partition, memory_order_relaxed) !=
	                                          qp->local.remote_partition,
	                        0) &&
	       vb_local_look_apart(qp);
}
/* The timeout of the QP; 0: none. */
uint64_t vb_local_timeout_ns(const struct vb_qp *qp);
/* Stops sending until the timer expires, which then counts as a retry. */
void vb_local_wait_retry(struct vb_qp *qp);

static inline void vb_local_stop_timer(struct vb_qp *qp)
{
	qp->local.deadline = 0;
	qp->local.timer_kind = VB_TIMER_NONE;
}

static inline enum vb_emit vb_local_emit_done(struct vb_swqe *w)
{
	w->state = VB_SWQE_DONE;
	w->status = IBV_WC_SUCCESS;
	return VB_EMIT_OK;
}

static inline enum vb_emit vb_local_emit_fault(struct vb_swqe *w, enum ibv_wc_status status)
{
	w->state = VB_SWQE_DONE;
	w->status = status;
	return VB_EMIT_FAILED;
}

static inline unsigned vb_local_message_flags(const struct vb_swqe *w)
{
	unsigned f = w->flags & IBV_SEND_SOLICITED ? VB_RECF_SOLICITED : 0;

	if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		f |= VB_RECF_IMM;
	if (w->opcode == IBV_WR_SEND_WITH_INV)
		f |= VB_RECF_INV;
	return f;
}

/* Is it a request that changes only our keys? */
static inline bool vb_local_needs_no_peer(const struct vb_swqe *w)
{
	return w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW;
}

/* How large reads or writes travel. Under tx_lock. */
static inline struct vb_pace *vb_pace_of(struct vb_peer *peer, const struct vb_swqe *w)
{
	struct vb_pace *of = w->opcode == IBV_WR_RDMA_READ ? peer->reads : peer->writes;

	return &of[vb_choice_class(w->length)];
}

/* Completes requests in order up to the first that is not done. Under sq_lock. */
enum vb_sq_status vb_local_retire_done(struct vb_qp *qp);

#define VB_WITHDRAW_AFTER VB_US(300) /* ns: requests in flight on which nothing happens for this long are withdrawn */
#define VB_WITHDRAW_SOON VB_US(5)    /* ns: the same for small writes between programs that write in turns */
/* A request has been put into the ring that one copy could execute: it is withdrawn if the peer does not work within
 * that time (ns). Under sq_lock. withdraw.c, as are the next two. */
void vb_local_expect_work(struct vb_qp *qp, uint64_t within);
/* If it is time: withdraws the oldest reads and writes, if the peer does not work. Under sq_lock. */
enum vb_sq_status vb_local_look(struct vb_qp *qp, uint64_t now);
/* The QP ends: its held writes are the peer's again. Under sq_lock. */
void vb_local_release_held(struct vb_qp *qp);

/* Are all requests in flight writes that may be withdrawn? Under sq_lock. */
bool vb_local_may_withdraw_all(struct vb_qp *qp);

/* Does the peer still have reads that were withdrawn? Under sq_lock. */
bool vb_local_reads_withdrawn(struct vb_qp *qp);

/* A read has got all its data, or a write is executed. begun: when it was sent, or 0. */
static inline void vb_local_rdma_done(struct vb_qp *qp, const struct vb_swqe *w, enum vb_rdma_way way, uint64_t begun)
{
	struct vb_peer *peer = qp->local.peer;

	if (w->length < VB_PACE_MIN)
		return;
	vb_lock(&peer->tx_lock);
	vb_pace_done(vb_pace_of(peer, w), way, begun, w->length);
	vb_unlock(&peer->tx_lock);
}

/* Fills the head of a record of this QP. Under tx_lock. */
static inline void vb_rec_fill(struct vb_qp *qp, struct vb_rec *rec, unsigned type, unsigned flags, uint32_t psn,
                               uint32_t length, uint32_t imm)
{
	uint64_t executed = atomic_load_explicit(&qp->local.executed, memory_order_relaxed);

	rec->dest = vb_rec_word(qp->attr.dest_qp_num, type);
	rec->src = vb_rec_word(qp->qp.qp_num, flags);
	rec->psn = vb_rec_word(psn, atomic_load_explicit(&qp->shared->gen, memory_order_relaxed) & 0xff);
	rec->length = length;
	rec->ack = (uint32_t)executed;
	rec->imm = imm;
	if (qp->type == IBV_QPT_RC)
		atomic_store_explicit(&qp->local.ack_sent, executed, memory_order_relaxed);
	else if (qp->type == IBV_QPT_XRC_SEND) /* it executes nothing, so the word names the SRQ of its request */
		rec->ack = qp->xrc.srqns[qp->sq_emit & qp->sq_mask];
}

/* Counts the packets that a message would be on a fabric: for those ports whose links it passes (packets.c). Under
 * sq_lock. */
void vb_local_count_packets(struct vb_qp *qp, const struct vb_swqe *w);
void vb_local_count_datagram(struct vb_qp *qp, const struct vb_swqe *w);

/* Counts the bytes of a message that was sent, or executed by one copy. ssn_emit counts messages. Under sq_lock. */
static inline void vb_local_count_sent(struct vb_qp *qp, const struct vb_swqe *w)
{
	qp->local.sent_bytes[w->opcode == IBV_WR_RDMA_READ] += w->length;
	if (__builtin_expect(qp->local.sent_by != NULL, 0))
		vb_local_count_packets(qp, w);
}

static inline bool vb_local_is_atomic(const struct vb_swqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Does the peer execute it in order behind all that was sent? */
static inline bool vb_local_is_placed(const struct vb_swqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_WRITE || w->opcode == VB_IBV_WR_FLUSH;
}

/* Fails the oldest request. Under progress + sq_lock. */
void vb_local_fail_oldest(struct vb_qp *qp, enum ibv_wc_status status);
/* Reads the peer's acknowledgements. gone: its QP or program has ended, so requests that it executed but did not
 * acknowledge count too. */
void vb_local_take_acks(struct vb_qp *qp, bool gone);

/* retry.c. All under progress + sq_lock. */

/* Goes back to the oldest request that the peer has not received, to send again from there. from is a count like
 * ssn_una. Each entry between sq_una and sq_emit has one PSN, so differences of counts are distances. */
void vb_local_go_back_to(struct vb_qp *qp, uint64_t from);
/* Repeats requests, or fails the oldest one: then returns false. Does nothing if the NAK is obsolete. */
bool vb_local_handle_nak(struct vb_qp *qp, uint64_t nak);
/* Is the oldest request a read whose answer may be in the ring? Then the NAK is for a later request, and waits. */
bool vb_local_nak_is_early(struct vb_qp *qp, uint64_t nak);
/* The deadline has passed. */
void vb_local_timer_expired(struct vb_qp *qp);
/* Detects records that the peer consumed but neither executed nor refused. It dropped them, because its QP was not
 * ready. */
void vb_local_check_dropped(struct vb_qp *qp);
/* The peer's program has ended. */
void vb_local_peer_died(struct vb_qp *qp);

#endif
